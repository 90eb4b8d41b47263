// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Hierarchical decomposition of a learned table (Su): n trained rows p give n^2 positions. With
/// u(k) = (p(k) - alpha p(0)) / (1 - alpha), row t is alpha u(t div n) + (1 - alpha) u(t mod n), which is
///   p(t mod n) + alpha / (1 - alpha) (p(t div n) - p(0)):
/// computed in this form the first n rows are the trained ones, bit for bit.
/// Domain   positions 0 .. n^2 - 1; 0 < alpha < 1 and not 1/2, where positions i n + j and j n + i would share a row.
/// Error    rows are formed in double and rounded once; one rounding of the sum.
/// Cost     three loads and two operations per channel, 1 to 2 ns; nothing is allocated.
/// Throws   std::out_of_range for a position from n^2 on, std::invalid_argument for other shapes or alpha; the whole
///          call is checked before anything is written.
/// Gradient row t gives g to p(t mod n), alpha / (1 - alpha) g to p(t div n) and its negative to p(0); alpha may be an
///          autodiff scalar of its own.
/// Who uses it  bert4keras (hierarchical position embedding of BERT beyond 512 tokens).
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

/// Alpha is double or an autodiff scalar that the table's scalar multiplies with.
template <class Alpha = double>
struct hierarchical_options {
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  Alpha alpha = Alpha(0.4);
};

/// T is the scalar of the table.
template <class T = float, class Alpha = double>
class hierarchical {
 public:
  static constexpr encoder_traits traits{.name = "hierarchical",
                                         .site = site::input,
                                         .relation = relation::absolute,
                                         .origin = origin::learned,
                                         .translation_invariant = false,
                                         .symmetric = false};

  /// Over the caller's memory, row-major, which must outlive the encoder; `rows * dim` elements.
  hierarchical(const hierarchical_options<Alpha>& o, std::span<const T> table)
      : options_(checked(o)), rows_({.rows = o.rows, .dim = o.dim}, table) {}
  /// Owns a table that is handed over.
  hierarchical(const hierarchical_options<Alpha>& o, std::vector<T>&& table)
      : options_(checked(o)), rows_({.rows = o.rows, .dim = o.dim}, std::move(table)) {}

  /// x += the row of each token's position, for every head, in place.
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, const positions& at = {}) const {
    apply<Arch, true>("hierarchical::embed", x, at);
  }
  /// Writes the rows themselves.
  template <class U, class Arch = simd::default_arch>
  void lookup(view<U> out, const positions& at = {}) const {
    apply<Arch, false>("hierarchical::lookup", out, at);
  }

  /// Of the trained table.
  [[nodiscard]] std::int64_t rows() const noexcept { return options_.rows; }
  /// rows^2.
  [[nodiscard]] std::int64_t length() const noexcept { return rows() * rows(); }
  [[nodiscard]] std::int64_t dim() const noexcept { return options_.dim; }
  [[nodiscard]] const Alpha& alpha() const noexcept { return options_.alpha; }
  [[nodiscard]] std::span<const T> table() const& noexcept { return rows_.table(); }
  std::span<const T> table() && = delete;  // the table would be gone with the temporary

  [[nodiscard]] encoder_description describe() const {
    encoder_description d = rows_.describe();
    d.position_limit = length();
    return d;
  }

 private:
  static hierarchical_options<Alpha> checked(const hierarchical_options<Alpha>& o) {
    detail::require(o.rows >= 1 && o.rows <= (std::int64_t{1} << 31), "hierarchical", "rows", "must lie in 1..2^31",
                    o.rows);
    detail::require(o.dim >= 1, "hierarchical", "dim", "must be at least 1", o.dim);
    constexpr const char* rule = "must lie between 0 and 1 and not be 0.5";
    const bool holds = o.alpha > Alpha(0) && o.alpha < Alpha(1) && !(o.alpha == Alpha(0.5));
    if constexpr (std::is_arithmetic_v<Alpha>) {
      detail::require(holds, "hierarchical", "alpha", rule, o.alpha);
    } else {
      detail::require(holds, "hierarchical", "alpha", rule, "another value");
    }
    return o;
  }

  template <class Arch, bool Add, class U>
  void apply(const char* function, view<U> x, const positions& at) const {
    if (x.empty()) return;
    detail::check_rows(function, x, dim());
    detail::check_cover(function, at, x.batch(), x.tokens(), 1);
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t)
        if (at(b, t) < 0 || at(b, t) >= length())
          detail::outside(function, "position", "must lie in 0.." + std::to_string(length() - 1), at(b, t));
    using R = std::conditional_t<!std::is_arithmetic_v<Alpha>, Alpha,
                                 std::conditional_t<simd_storage<T>, double, compute_t<T>>>;
    using C = std::conditional_t<std::is_arithmetic_v<R>, detail::row_type<Add, U>, R>;
    const R ratio = R(options_.alpha) / (R(1) - R(options_.alpha));
    const T* first = table().data();
    constexpr std::int64_t block = 64;
    C row[block];
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) {
        const std::int64_t p = at(b, t);
        const T* coarse = first + p / rows() * dim();
        const T* fine = first + p % rows() * dim();
        for (std::int64_t d = 0; d < dim(); d += block) {
          const std::int64_t n = std::min(block, dim() - d);
          for (std::int64_t i = 0; i < n; ++i) {
            const R step = R(widen(coarse[d + i])) - R(widen(first[d + i]));
            const R value = R(widen(fine[d + i])) + ratio * step;
            row[i] = C(value);
          }
          detail::put_row<Arch, Add>(x, b, t, d, row, n);
        }
      }
  }

  hierarchical_options<Alpha> options_;
  learned<T> rows_;
};

}  // namespace posenc
