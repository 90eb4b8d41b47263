// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Axial learned embedding: one table [rows, dim] per axis, a token's row is the concatenation of one row of each.
/// A single position is split over the axes row-major, the last axis fastest (Reformer: id = y * W + x gives
/// [E0[y] | E1[x]]); coordinates per axis are taken as they are, in the order of the tables (DETR's learned encoding:
/// x first).
/// Domain   positions 0 .. product of the rows - 1, or coordinates 0 .. rows - 1 on each axis.
/// Error    one rounding of the sum. Cost: one load, one addition, one store per channel.
/// Throws   std::out_of_range for a position without a row, std::invalid_argument for other shapes; the whole call is
///          checked before anything is written.
/// Who uses it  Reformer; DETR's learned row and column embedding.
/// Example  examples/absolute_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/positions.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/embedding_rows.hpp>

#include <span>
#include <utility>
#include <vector>

namespace posenc {

/// The table of one axis, row-major in the caller's memory, which must outlive the encoder.
template <class T>
struct axial_table {
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  std::span<const T> table{};
};

/// T is the scalar of the tables.
template <class T = float>
class axial {
 public:
  static constexpr encoder_traits traits{.name = "axial",
                                         .site = site::input,
                                         .relation = relation::absolute,
                                         .origin = origin::learned,
                                         .translation_invariant = false,
                                         .symmetric = false};

  explicit axial(std::vector<axial_table<T>> tables) : tables_(std::move(tables)) {
    detail::require(!tables_.empty() && tables_.size() <= position::max_axes, "axial", "tables", "must be one to four",
                    tables_.size());
    for (const axial_table<T>& a : tables_) {
      detail::require(a.rows >= 1, "axial", "rows", "must be at least 1", a.rows);
      detail::require(a.dim >= 1, "axial", "dim", "must be at least 1", a.dim);
      const auto size = static_cast<std::int64_t>(a.table.size());
      detail::require(size % a.dim == 0 && size / a.dim == a.rows, "axial", "table", "must hold rows * dim elements",
                      size);
      detail::require(rows_ <= (std::int64_t{1} << 62) / a.rows, "axial", "rows", "must multiply to at most 2^62",
                      a.rows);
      rows_ *= a.rows;
      dim_ += a.dim;
    }
  }

  /// x += the row of each token's position, for every head, in place.
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, const positions& at = {}) const {
    apply<Arch, true>("axial::embed", x, at);
  }
  /// Writes the rows themselves.
  template <class U, class Arch = simd::default_arch>
  void lookup(view<U> out, const positions& at = {}) const {
    apply<Arch, false>("axial::lookup", out, at);
  }

  [[nodiscard]] int axes() const noexcept { return static_cast<int>(tables_.size()); }
  /// Sum of the tables' dims.
  [[nodiscard]] std::int64_t dim() const noexcept { return dim_; }
  /// Product of the tables' rows.
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::span<const axial_table<T>> tables() const noexcept { return tables_; }

  [[nodiscard]] encoder_description describe() const {
    std::int64_t parameters = 0;
    for (const axial_table<T>& a : tables_) parameters += a.rows * a.dim;
    return {.position_limit = rows_,
            .parameters = parameters,
            .table_bytes = parameters * static_cast<std::int64_t>(sizeof(T)),
            .monotone = false,
            .shift = cache_shift::recompute_keys,
            .shift_reason = "rows are added to the input and lie inside the keys"};
  }

 private:
  /// The row of each table that a token takes. @throws std::out_of_range
  [[nodiscard]] position split(const char* function, const positions& at, std::int64_t b, std::int64_t t) const {
    position p = at.at(b, t);
    if (at.axis_count() > 1 || axes() == 1) {
      for (int a = 0; a < axes(); ++a) {
        const std::int64_t rows = tables_[static_cast<std::size_t>(a)].rows;
        if (p[a] < 0 || p[a] >= rows)
          detail::outside(function, "position", "must lie in the table's 0.." + std::to_string(rows - 1), p[a]);
      }
      return p;
    }
    std::int64_t rest = p[0];
    if (rest < 0 || rest >= rows_)
      detail::outside(function, "position", "must lie in the tables' 0.." + std::to_string(rows_ - 1), rest);
    for (int a = axes() - 1; a >= 0; --a) {
      const std::int64_t rows = tables_[static_cast<std::size_t>(a)].rows;
      p.axis[static_cast<std::size_t>(a)] = rest % rows;
      rest /= rows;
    }
    return p;
  }

  template <class Arch, bool Add, class U>
  void apply(const char* function, view<U> x, const positions& at) const {
    if (x.empty()) return;
    detail::check_rows(function, x, dim());
    detail::check_cover(function, at, x.batch(), x.tokens(), at.axis_count() == 1 ? 1 : axes());
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) (void)split(function, at, b, t);
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) {
        const position p = split(function, at, b, t);
        std::int64_t channel = 0;
        for (int a = 0; a < axes(); ++a) {
          const axial_table<T>& from = tables_[static_cast<std::size_t>(a)];
          detail::put_row<Arch, Add>(x, b, t, channel, from.table.data() + p[a] * from.dim, from.dim);
          channel += from.dim;
        }
      }
  }

  std::vector<axial_table<T>> tables_;
  std::int64_t rows_ = 1;
  std::int64_t dim_ = 0;
};

}  // namespace posenc
