// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What one worker of `attention` keeps for parts with content terms (`prepare`) and for parts that add to the value
/// sum (`add_weights`, `add_values`), and when it calls them: terms once per tile, weights once per row and tile,
/// values once per row before the division; and the scratch of parts that need whole rows. For a pack without such
/// parts all of it is empty.

#include <posenc/attention/compose.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/kernels/tile.hpp>

#include <algorithm>
#include <cstddef>
#include <new>

namespace posenc::detail {

template <class B, class Keys, class Pack>
class content_work {
  using C = typename lanes<B>::scalar;
  static constexpr std::size_t parts_ = std::tuple_size_v<Pack>;

 public:
  static constexpr bool terms = any_content<B, Keys, Pack>;
  static constexpr bool values = any_values<B, Keys, Pack>;
  static constexpr bool whole = any_whole_row<B, Keys, Pack>;

  /// Bytes for blocks of up to `rows` rows, `band` of them prepared at once, and tiles of up to `keys` keys.
  static std::size_t bytes(const Pack& pack, std::int64_t rows, std::int64_t band, std::int64_t keys, std::int64_t dim,
                           std::int64_t value_dim) {
    std::size_t at = 0;
    if constexpr (terms)
      at += 4 * 64 + static_cast<std::size_t>(rows) * (sizeof(row) + sizeof(interval) + sizeof(C)) +
            static_cast<std::size_t>(rows * dim) * sizeof(C);
    for_parts(pack, [&](const auto& part) {
      if constexpr (terms) at += 64 + static_cast<std::size_t>(rows) * sizeof(const C*);
      at += 2 * 64 + sizeof(C) * static_cast<std::size_t>(scratch_of<B, Keys>(part, band, keys, dim) +
                                                          rows * state_of<B, Keys>(part, value_dim));
    });
    return terms || values || whole ? (at + 63) / 64 * 64 : 0;
  }

  content_work(const Pack& pack, std::byte* memory, std::int64_t rows, std::int64_t band, std::int64_t keys,
               std::int64_t dim, std::int64_t value_dim)
      : pack_(pack), dim_(dim), value_dim_(value_dim) {
    if constexpr (terms || values || whole) {
      const auto take = [&]<class T>(T*& field, std::int64_t n) {
        field = reinterpret_cast<T*>(memory);
        memory += (static_cast<std::size_t>(n) * sizeof(T) + 63) / 64 * 64;
      };
      if constexpr (terms) {
        take(at_, rows);
        take(seen_, rows);
        take(factor_, rows);
        take(unscaled_, rows * dim);
      }
      each([&](auto i, const auto& part) {
        if constexpr (terms) take(lines_[i], rows);
        state_size_[i] = state_of<B, Keys>(part, value_dim);
        take(state_[i], rows * state_size_[i]);
        take(scratch_[i], scratch_of<B, Keys>(part, band, keys, dim));
      });
    }
  }

  /// The query of row r before its scale.
  void keep_query(std::int64_t r, const C* query) {
    if constexpr (terms) std::copy_n(query, dim_, unscaled_ + r * dim_);
  }
  void start_row(std::int64_t r, const row& at, C factor) {
    if constexpr (terms) {
      ::new (static_cast<void*>(at_ + r)) row(at);
      factor_[r] = factor;
    }
    if constexpr (values)
      for (std::size_t i = 0; i < parts_; ++i) std::fill_n(state_[i] + r * state_size_[i], state_size_[i], C(0));
  }

  /// The terms of every part for one tile and the rows from .. from + rows - 1 of the block, whose queries are `query`;
  /// `seen(r)` is the hull of what row r sees, counted from `first`.
  template <class Seen>
  void prepare(std::int64_t from, std::int64_t rows, const C* query, std::int64_t first, std::int64_t count,
               const Keys& keys, const void* source, void (*copy)(const void*, std::int64_t, C*), const Seen& seen) {
    if constexpr (terms) {
      first_ = first;
      for (std::int64_t r = from; r < from + rows; ++r) ::new (static_cast<void*>(seen_ + r)) interval(seen(r));
      const content_tile<C> tile{rows,           count,        first,  dim_, at_ + from, query, unscaled_ + from * dim_,
                                 factor_ + from, seen_ + from, source, copy};
      each([&]<class P>(auto i, const P& part) {
        if constexpr (has_prepare<P, B, Keys>) {
          std::fill_n(lines_[i] + from, rows, nullptr);
          part.template prepare<B>(tile, keys, scratch_[i], lines_[i] + from);
        }
      });
    }
  }

  /// The lines of row r as `make_logit_op` asks for them.
  [[nodiscard]] auto lines_of(std::int64_t r) const {
    return [work = this, r]<class I>(I) {
      if constexpr (terms) {
        return content_line<C>{work->lines_[I::value][r], work->first_};
      } else {
        static_cast<void>(work), static_cast<void>(r);
        return content_line<C>{};
      }
    };
  }

  /// What part i was promised beside its row.
  [[nodiscard]] C* scratch(std::size_t i) const noexcept { return scratch_[i]; }

  void rescale(std::int64_t r, C factor) {
    if constexpr (values)
      for (std::size_t i = 0; i < parts_; ++i)
        for (std::int64_t k = 0; k < state_size_[i]; ++k) state_[i][r * state_size_[i] + k] *= factor;
  }
  /// Softmax weights, before the division, of the keys first .. first + n - 1.
  void add_weights(std::int64_t r, const row& at, const Keys& keys, std::int64_t first, const C* weights,
                   std::int64_t n) {
    each([&]<class P>(auto i, const P& part) {
      if constexpr (has_values<P, B, Keys>)
        part.template add_weights<B>(state_[i] + r * state_size_[i], at, keys, first, weights, n);
    });
  }
  void add_values(std::int64_t r, const row& at, C* sum) const {
    each([&]<class P>(auto i, const P& part) {
      if constexpr (has_values<P, B, Keys>)
        part.template add_values<B>(state_[i] + r * state_size_[i], at, sum, value_dim_);
    });
  }

 private:
  template <class F>
  void each(const F& f) const {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (f(std::integral_constant<std::size_t, I>{}, std::get<I>(pack_)), ...);
    }
    (std::make_index_sequence<parts_>{});
  }

  const Pack& pack_;
  std::int64_t dim_;
  std::int64_t value_dim_;
  std::int64_t first_ = 0;
  row* at_ = nullptr;
  interval* seen_ = nullptr;
  C* factor_ = nullptr;
  C* unscaled_ = nullptr;
  const C** lines_[parts_ == 0 ? 1 : parts_]{};
  C* scratch_[parts_ == 0 ? 1 : parts_]{};
  C* state_[parts_ == 0 ? 1 : parts_]{};
  std::int64_t state_size_[parts_ == 0 ? 1 : parts_]{};
};

}  // namespace posenc::detail
