// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Recursive encoding: p(0) is given, p(n + 1) = f(n, p(n)), and the row of a token's position is added to its
/// embedding. f is the caller's: any map, or `runge_kutta`, which follows dp/dt = f(t, p) from token to token
/// (FLOATER, Liu et al. 2020), t = n * dt, by `substeps` steps of s = dt / substeps:
///   classic        k1 = f(t, p), k2 = f(t + s/2, p + s k1/2), k3 = f(t + s/2, p + s k2/2), k4 = f(t + s, p + s k3),
///                  p += s (k1 + 2 k2 + 2 k3 + k4) / 6
///   three_eighths  k2 = f(t + s/3, p + s k1/3), k3 = f(t + 2s/3, p + s (k2 - k1/3)),
///                  k4 = f(t + s, p + s (k1 - k2 + k3)), p += s (k1 + 3 k2 + 3 k3 + k4) / 8
/// The two rules agree up to the fifth power of s.
/// A row cannot be had without those before it: `recursive` makes a table up to a last position once, and
/// `recursive_cursor` keeps one row and goes one token on, for decoding.
/// Domain   positions 0 .. rows - 1. Error: that of f in the scalar T; one rounding of the sum with the data.
/// Cost     one call of f per row (4 * substeps evaluations of the derivative); embedding is that of `learned`.
/// Throws   std::invalid_argument for impossible options, std::out_of_range for a position without a row.
/// Who uses it  FLOATER.
/// Example  examples/table_example.cpp

#include <posenc/encoders/learned.hpp>

#include <cmath>
#include <cstddef>
#include <utility>

namespace posenc {

enum class runge_kutta_rule { classic, three_eighths };

struct runge_kutta_options {
  /// Time from one token to the next.
  double dt = 0.01;
  int substeps = 5;
  runge_kutta_rule rule = runge_kutta_rule::classic;
};

/// One token of a flow: step(n, p, next) brings p(n) to p(n + 1). `derivative(t, p, out)` takes the time as double, a
/// std::span<const T> and a std::span<T>. Holds scratch: a stepper serves one thread at a time.
template <class Derivative, class T = double>
class runge_kutta {
 public:
  explicit runge_kutta(Derivative derivative, const runge_kutta_options& o = {})
      : derivative_(std::move(derivative)), options_(o) {
    detail::require(std::isfinite(o.dt) && o.dt != 0, "runge_kutta", "dt", "must be finite and not 0", o.dt);
    detail::require(o.substeps >= 1, "runge_kutta", "substeps", "must be at least 1", o.substeps);
  }

  void operator()(std::int64_t n, std::span<const T> p, std::span<T> next) {
    const std::size_t dim = p.size();
    scratch_.resize(5 * dim);
    const auto part = [&](std::size_t i) { return std::span<T>(scratch_).subspan(i * dim, dim); };
    const std::span<T> k1 = part(0);
    const std::span<T> k2 = part(1);
    const std::span<T> k3 = part(2);
    const std::span<T> k4 = part(3);
    const std::span<T> at = part(4);
    const double h = options_.dt / options_.substeps;
    const bool classic = options_.rule == runge_kutta_rule::classic;
    const T s = static_cast<T>(h);
    const T third = static_cast<T>(1.0L / 3);
    std::copy(p.begin(), p.end(), next.begin());
    for (int i = 0; i < options_.substeps; ++i) {
      const double t = static_cast<double>(n) * options_.dt + i * h;
      const auto slope = [&](double time, std::span<T> k) { derivative_(time, std::span<const T>(at), k); };
      std::copy(next.begin(), next.end(), at.begin());
      slope(t, k1);
      for (std::size_t d = 0; d < dim; ++d) at[d] = next[d] + s * k1[d] * (classic ? T(0.5) : third);
      slope(t + h / (classic ? 2 : 3), k2);
      for (std::size_t d = 0; d < dim; ++d)
        at[d] = classic ? T(next[d] + s * k2[d] * T(0.5)) : T(next[d] + s * (k2[d] - k1[d] * third));
      slope(t + (classic ? h / 2 : 2 * h / 3), k3);
      for (std::size_t d = 0; d < dim; ++d)
        at[d] = classic ? T(next[d] + s * k3[d]) : T(next[d] + s * (k1[d] - k2[d] + k3[d]));
      slope(t + h, k4);
      for (std::size_t d = 0; d < dim; ++d)
        next[d] += classic ? T(s * (k1[d] + T(2) * (k2[d] + k3[d]) + k4[d]) / T(6))
                           : T(s * (k1[d] + T(3) * (k2[d] + k3[d]) + k4[d]) / T(8));
    }
  }

  [[nodiscard]] const runge_kutta_options& options() const noexcept { return options_; }

 private:
  Derivative derivative_;
  runge_kutta_options options_;
  std::vector<T> scratch_;
};

/// p(position), kept up to date one token at a time. `next(n, p, out)` writes row n + 1 from row n.
template <class Next, class T = double>
class recursive_cursor {
 public:
  recursive_cursor(std::vector<T> first, Next next) : next_(std::move(next)), row_(std::move(first)), to_(row_.size()) {
    detail::require(!row_.empty(), "recursive_cursor", "first", "must not be empty", row_.size());
  }

  /// The position of the row that is held; the next token takes it.
  [[nodiscard]] std::int64_t position() const noexcept { return at_; }
  [[nodiscard]] std::span<const T> row() const& noexcept { return row_; }
  std::span<const T> row() && = delete;
  [[nodiscard]] std::int64_t dim() const noexcept { return static_cast<std::int64_t>(row_.size()); }

  void advance() {
    next_(at_, std::span<const T>(row_), std::span<T>(to_));
    row_.swap(to_);
    ++at_;
  }
  /// @throws std::out_of_range for a position that lies behind: the recursion goes forward only.
  void advance_to(std::int64_t position) {
    if (position < at_)
      detail::outside("recursive_cursor::advance_to", "position", "must not lie before " + std::to_string(at_),
                      position);
    while (at_ < position) advance();
  }
  /// Adds the rows of position(), position() + 1, ... to the tokens of x, in every batch row and head, and stands
  /// behind the last of them.
  template <class U>
  void embed(view<U> x) {
    if (x.empty()) return;
    detail::require(x.dim() == dim(), "recursive_cursor::embed", "dim", "must equal that of the rows", x.dim());
    detail::check_output(x, "recursive_cursor::embed", "x");
    for (std::int64_t t = 0; t < x.tokens(); ++t, advance())
      for (std::int64_t b = 0; b < x.batch(); ++b)
        for (std::int64_t h = 0; h < x.heads(); ++h)
          kernels::add_row_strided(x.row(b, t, h), x.steps().dim, row_.data(), dim());
  }

 private:
  Next next_;
  std::vector<T> row_;
  std::vector<T> to_;
  std::int64_t at_ = 0;
};

/// The table of the rows 0 .. rows - 1. T is the scalar of the recursion and of the table.
template <class T = double>
class recursive {
 public:
  static constexpr encoder_traits traits{.name = "recursive",
                                         .site = site::input,
                                         .relation = relation::absolute,
                                         .origin = origin::learned,
                                         .translation_invariant = false,
                                         .symmetric = false};

  template <class Next>
  recursive(std::int64_t rows, std::vector<T> first, Next next)
      : table_({.rows = rows, .dim = static_cast<std::int64_t>(first.size())}, rows_of(rows, first, next)) {}

  /// x += row of each token's position, in place; ids may repeat and stand in any order.
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, const positions& at = {}) const {
    check("recursive::embed", x, at);
    table_.template embed<U, Arch>(x, at);
  }
  template <class U>
  void lookup(view<U> out, const positions& at = {}) const {
    check("recursive::lookup", out, at);
    table_.lookup(out, at);
  }

  [[nodiscard]] std::int64_t rows() const noexcept { return table_.rows(); }
  [[nodiscard]] std::int64_t dim() const noexcept { return table_.dim(); }
  [[nodiscard]] std::span<const T> table() const& noexcept { return table_.table(); }
  std::span<const T> table() && = delete;

  /// The parameters are p(0); those of the function are the caller's.
  [[nodiscard]] encoder_description describe() const {
    encoder_description d = table_.describe();
    d.parameters = dim();
    return d;
  }

 private:
  template <class U>
  void check(const char* function, const view<U>& x, const positions& at) const {
    if (x.empty()) return;
    at.check(function, "positions", x.batch(), x.tokens());
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t)
        if (const std::int64_t p = at(b, t); p < 0 || p >= rows())
          detail::outside(function, "position",
                          "must lie in 0.." + std::to_string(rows() - 1) + ", as far as the recursion ran", p);
  }
  template <class Next>
  static std::vector<T> rows_of(std::int64_t rows, const std::vector<T>& first, Next& next) {
    detail::require(rows >= 1, "recursive", "rows", "must be at least 1", rows);
    detail::require(!first.empty(), "recursive", "first", "must not be empty", first.size());
    const std::size_t dim = first.size();
    std::vector<T> table(static_cast<std::size_t>(rows) * dim);
    std::copy(first.begin(), first.end(), table.begin());
    const std::span<T> all(table);
    for (std::int64_t n = 0; n + 1 < rows; ++n) {
      const std::size_t from = static_cast<std::size_t>(n) * dim;
      next(n, std::span<const T>(all.subspan(from, dim)), all.subspan(from + dim, dim));
    }
    return table;
  }

  learned<T> table_;
};

}  // namespace posenc
