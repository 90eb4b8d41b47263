// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A learned table extended by tiling: rows past its end repeat the block after the `leading` rows, so that
///   row(p) = table[p] for p < rows, else table[leading + (p - leading) mod (rows - leading)].
/// Longformer grew RoBERTa's 512 rows to 4096 in this way; its two leading rows (padding) are not repeated.
/// Domain   positions 0 .. length - 1.
/// Error    one rounding of the sum. Cost: one load, one addition, one store per channel; the extension is no memory.
/// Throws   std::out_of_range for a position from `length` on, std::invalid_argument for other shapes; the whole call
///          is checked before anything is written.
/// Who uses it  Longformer, LED, BigBird-style extensions of trained tables.
/// Example  examples/absolute_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/positions.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/embedding_rows.hpp>
#include <posenc/encoders/learned.hpp>

#include <span>
#include <utility>
#include <vector>

namespace posenc {

struct tiled_options {
  /// Of the trained table, leading rows included.
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  /// Rows after the extension, leading rows included.
  std::int64_t length = 0;
  /// Rows at the start that are not repeated: 2 in the fairseq family, whose first rows belong to padding.
  std::int64_t leading = 0;
};

/// T is the scalar of the table.
template <class T = float>
class tiled {
 public:
  static constexpr encoder_traits traits{.name = "tiled",
                                         .site = site::input,
                                         .relation = relation::absolute,
                                         .origin = origin::learned,
                                         .translation_invariant = false,
                                         .symmetric = false};

  /// Over the caller's memory, row-major, which must outlive the encoder; `rows * dim` elements.
  tiled(const tiled_options& o, std::span<const T> table)
      : options_(checked(o)), rows_({.rows = o.rows, .dim = o.dim}, table) {}
  /// Owns a table that is handed over.
  tiled(const tiled_options& o, std::vector<T>&& table)
      : options_(checked(o)), rows_({.rows = o.rows, .dim = o.dim}, std::move(table)) {}

  /// x += the row of each token's position, for every head, in place.
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, const positions& at = {}) const {
    apply<Arch, true>("tiled::embed", x, at);
  }
  /// Writes the rows themselves; for positions 0 .. length - 1 that is the extended table.
  template <class U, class Arch = simd::default_arch>
  void lookup(view<U> out, const positions& at = {}) const {
    apply<Arch, false>("tiled::lookup", out, at);
  }

  /// The row of the trained table that a position takes. @throws std::out_of_range
  [[nodiscard]] std::int64_t row_of(std::int64_t position) const { return row_of("tiled", position); }
  [[nodiscard]] std::int64_t dim() const noexcept { return options_.dim; }
  [[nodiscard]] const tiled_options& options() const noexcept { return options_; }
  [[nodiscard]] std::span<const T> table() const& noexcept { return rows_.table(); }
  std::span<const T> table() && = delete;  // the table would be gone with the temporary

  [[nodiscard]] encoder_description describe() const {
    encoder_description d = rows_.describe();
    d.position_limit = options_.length;
    return d;
  }

 private:
  static tiled_options checked(const tiled_options& o) {
    detail::require(o.rows >= 1, "tiled", "rows", "must be at least 1", o.rows);
    detail::require(o.dim >= 1, "tiled", "dim", "must be at least 1", o.dim);
    detail::require(o.leading >= 0 && o.leading < o.rows, "tiled", "leading", "must be less than rows", o.leading);
    detail::require(o.length >= o.rows, "tiled", "length", "must be at least rows", o.length);
    return o;
  }
  [[nodiscard]] std::int64_t row_of(const char* function, std::int64_t position) const {
    if (position < 0 || position >= options_.length)
      detail::outside(function, "position", "must lie in 0.." + std::to_string(options_.length - 1), position);
    if (position < options_.rows) return position;
    return options_.leading + (position - options_.leading) % (options_.rows - options_.leading);
  }

  template <class Arch, bool Add, class U>
  void apply(const char* function, view<U> x, const positions& at) const {
    if (x.empty()) return;
    detail::check_rows(function, x, dim());
    detail::check_cover(function, at, x.batch(), x.tokens(), 1);
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) (void)row_of(function, at(b, t));
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t)
        detail::put_row<Arch, Add>(x, b, t, 0, table().data() + row_of(function, at(b, t)) * dim(), dim());
  }

  tiled_options options_;
  learned<T> rows_;
};

}  // namespace posenc
