// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// How a worker of `attention` reads keys and values: one key in the compute type, transformed where the cache holds
/// raw keys, and a tile of both as panels.

#include <posenc/attention/call.hpp>
#include <posenc/attention/scratch.hpp>
#include <posenc/kernels/tile.hpp>

#include <algorithm>
#include <concepts>

namespace posenc::detail {

template <class Arch, class C, class K, class V, class Pack>
struct tile_reader {
  const view<K>& k;
  const view<V>& v;
  const call& c;
  const Pack& pack;
  key_state state;
  /// Panels of one tile, and one row of widened channels.
  C* keys;
  C* values;
  C* line;

  /// The tile's keys and values as panels; whether every value is finite.
  bool pack_tile(std::int64_t b, std::int64_t kv_head, const interval& tile) const {
    const std::int64_t n = tile.hi - tile.lo;
    constexpr std::int64_t p = kernels::panel_width<C, Arch>;
    if (n % p != 0) std::fill_n(keys + n / p * p * c.dim, p * c.dim, C(0));
    bool finite = true;
    for (std::int64_t j = 0; j < n; ++j) {
      kernels::pack_key<Arch>(keys, key(b, kv_head, tile.lo + j), j, c.dim);
      const C* value = line;
      if constexpr (std::same_as<std::remove_cv_t<V>, C>) {
        if (v.unit_dim_stride()) value = v.row(b, tile.lo + j, kv_head);
      }
      if (value == line) kernels::widen_row<Arch>(line, v.row(b, tile.lo + j, kv_head), v.steps().dim, c.value_dim);
      finite = kernels::pack_value<Arch>(values, value, j, n, c.value_dim) && finite;
    }
    return finite;
  }

  /// One key in the compute type: in place where it can be read so, else widened (and rotated).
  const C* key(std::int64_t b, std::int64_t kv_head, std::int64_t j) const {
    const K* row = k.row(b, j, kv_head);
    if constexpr (std::same_as<std::remove_cv_t<K>, C>) {
      if (k.unit_dim_stride() && state == key_state::rotated) return row;
    }
    kernels::widen_row<Arch>(line, row, k.steps().dim, c.dim);
    if (state == key_state::unrotated) transform_key(pack, line, c.dim, c.key_positions.at(b, j), kv_head);
    return line;
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
    std::copy_n(from.read.key(from.b, from.kv_head, j), from.read.c.dim, to);
  }
};
template <class Reader>
tile_source(const Reader&, std::int64_t, std::int64_t) -> tile_source<Reader>;

}  // namespace posenc::detail
