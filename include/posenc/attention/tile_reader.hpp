// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// How a worker of `attention` reads keys and values: a tile of both as panels, runs of rows as they lie, and one key
/// in the compute type, transformed where the cache holds raw keys.

#include <posenc/attention/call.hpp>
#include <posenc/attention/scratch.hpp>
#include <posenc/kernels/few_rows.hpp>
#include <posenc/kernels/panels.hpp>

#include <algorithm>
#include <concepts>

namespace posenc::detail {

/// Rows of storage S may be read by kernels of compute type C.
template <class S, class C>
inline constexpr bool read_by = simd_storage<S>&& std::same_as<compute_t<S>, C>;

/// K and V are views or paged views.
template <class Arch, class C, class K, class V, class Pack>
struct tile_reader {
  const K& k;
  const V& v;
  const call& c;
  const Pack& pack;
  key_state state;
  /// Panels of one tile, and `line_rows` rows of widened channels, `line_step` apart.
  C* keys;
  C* values;
  C* line;
  std::int64_t line_step;

  static constexpr std::int64_t panel = kernels::panel_width<C, Arch>;
  static_assert(line_rows<C, Arch> >= panel);

  /// Whether kernels may read keys, values where they lie.
  [[nodiscard]] bool keys_in_place() const noexcept {
    return read_by<typename K::value_type, C> && k.unit_dim_stride() && state == key_state::rotated;
  }
  [[nodiscard]] bool values_in_place() const noexcept {
    return read_by<typename V::value_type, C> && v.unit_dim_stride();
  }

  /// The tile's keys and values as panels; whether every value is finite.
  bool pack_tile(std::int64_t b, std::int64_t kv_head, const interval& tile) const {
    const std::int64_t n = tile.hi - tile.lo;
    for (std::int64_t x = 0; x < n; x += panel) {
      const std::int64_t some = std::min(panel, n - x);
      if (keys_in_place()) {
        if constexpr (read_by<typename K::value_type, C>)
          kernels::pack_panel<Arch>(keys + x * c.dim, some, c.dim,
                                    [&](std::int64_t i) { return k.row(b, tile.lo + x + i, kv_head); });
      } else {
        for (std::int64_t i = 0; i < some; ++i) widen_key(b, kv_head, tile.lo + x + i, line + i * line_step);
        kernels::pack_panel<Arch>(keys + x * c.dim, some, c.dim,
                                  [&](std::int64_t i) { return static_cast<const C*>(line + i * line_step); });
      }
    }
    simd::batch<C, Arch> differences(C(0));
    for (std::int64_t j = 0; j < n; ++j) {
      if (values_in_place()) {
        if constexpr (read_by<typename V::value_type, C>)
          kernels::pack_value<Arch>(values, v.row(b, tile.lo + j, kv_head), j, n, c.value_dim, differences);
      } else {
        kernels::widen_row<Arch>(line, v.row(b, tile.lo + j, kv_head), v.steps().dim, c.value_dim);
        kernels::pack_value<Arch>(values, static_cast<const C*>(line), j, n, c.value_dim, differences);
      }
    }
    return simd::sum(differences) == 0;
  }

  /// Key j in the compute type, transformed where the cache holds raw keys, into `to`.
  void widen_key(std::int64_t b, std::int64_t kv_head, std::int64_t j, C* to) const {
    kernels::widen_row<Arch>(to, k.row(b, j, kv_head), k.steps().dim, c.dim);
    if (state == key_state::unrotated) transform_key(pack, to, c.dim, c.key_positions.at(b, j), kv_head);
  }

  /// f(first, kernels::row_run) for runs of keys lo .. hi - 1 whose rows lie evenly apart: in place, or widened.
  template <class F>
  void for_key_runs(std::int64_t b, std::int64_t kv_head, std::int64_t lo, std::int64_t hi, const F& f) const {
    for_runs(
        k, keys_in_place(), b, kv_head, lo, hi, [&](std::int64_t j, C* to) { widen_key(b, kv_head, j, to); }, f);
  }
  /// The same for values.
  template <class F>
  void for_value_runs(std::int64_t b, std::int64_t kv_head, std::int64_t lo, std::int64_t hi, const F& f) const {
    const auto widen_value = [&](std::int64_t j, C* to) {
      kernels::widen_row<Arch>(to, v.row(b, j, kv_head), v.steps().dim, c.value_dim);
    };
    for_runs(v, values_in_place(), b, kv_head, lo, hi, widen_value, f);
  }

 private:
  template <class Rows, class Widen, class F>
  void for_runs(const Rows& x, bool in_place, std::int64_t b, std::int64_t kv_head, std::int64_t lo, std::int64_t hi,
                const Widen& widen_one, const F& f) const {
    using S = typename Rows::value_type;
    if constexpr (read_by<S, C>) {
      if (in_place) {
        for (std::int64_t j = lo, n; j < hi; j += n) {
          n = std::min(x.run(b, j), hi - j);
          const S* next = j + n < x.tokens() ? x.row(b, j + n, kv_head) : nullptr;
          f(j, kernels::row_run<S>{x.row(b, j, kv_head), x.steps().token, n, next});
        }
        return;
      }
    }
    for (std::int64_t j = lo; j < hi; j += line_rows<C, Arch>) {
      const std::int64_t n = std::min(line_rows<C, Arch>, hi - j);
      for (std::int64_t i = 0; i < n; ++i) widen_one(j + i, line + i * line_step);
      f(j, kernels::row_run<C>{line, line_step, n});
    }
  }
};

/// The keys of one head for content terms (`content_tile::copy`).
template <class Reader>
struct tile_source {
  const Reader& read;
  std::int64_t b;
  std::int64_t kv_head;
  template <class C>
  static void copy(const void* self, std::int64_t j, C* to) {
    const tile_source& from = *static_cast<const tile_source*>(self);
    from.read.widen_key(from.b, from.kv_head, j, to);
  }
};
template <class Reader>
tile_source(const Reader&, std::int64_t, std::int64_t) -> tile_source<Reader>;

}  // namespace posenc::detail
