// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Numbers of about 106 bits as an unevaluated sum of two doubles (Dekker 1971, Knuth). Frequencies are formed in them:
/// an angle at position 10^9 is right to 10^-10 only if its frequency is known to better than a double.
/// Error   add, multiply, divide: a few 2^-104 relative. exp, log: below 2^-95 relative (absolute for log) for the
///         arguments met here, |x| < 700.
/// Nothing here relies on long double, which is 64 bits wide on some platforms.

#include <posenc/config.hpp>

#include <cmath>

namespace posenc::math {

struct double_double {
  double hi = 0;
  double lo = 0;

  constexpr double_double() = default;
  constexpr double_double(double h, double l = 0) noexcept : hi(h), lo(l) {}  // NOLINT: every double is one
  [[nodiscard]] explicit constexpr operator double() const noexcept { return hi + lo; }
};

namespace detail {
/// a + b exactly, |a| >= |b|.
inline double_double quick_sum(double a, double b) noexcept {
  const double s = a + b;
  return {s, b - (s - a)};
}
/// a + b exactly.
inline double_double two_sum(double a, double b) noexcept {
  const double s = a + b;
  const double t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}
/// a * b exactly.
inline double_double two_product(double a, double b) noexcept {
  const double p = a * b;
  return {p, std::fma(a, b, -p)};
}
}  // namespace detail

[[nodiscard]] inline double_double operator-(double_double a) noexcept { return {-a.hi, -a.lo}; }
[[nodiscard]] inline double_double operator+(double_double a, double_double b) noexcept {
  const double_double s = detail::two_sum(a.hi, b.hi);
  const double_double t = detail::two_sum(a.lo, b.lo);
  const double_double u = detail::quick_sum(s.hi, s.lo + t.hi);
  return detail::quick_sum(u.hi, u.lo + t.lo);
}
[[nodiscard]] inline double_double operator-(double_double a, double_double b) noexcept { return a + (-b); }
[[nodiscard]] inline double_double operator*(double_double a, double_double b) noexcept {
  const double_double p = detail::two_product(a.hi, b.hi);
  return detail::quick_sum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}
[[nodiscard]] inline double_double operator/(double_double a, double_double b) noexcept {
  const double q1 = a.hi / b.hi;
  const double_double r1 = a - b * double_double(q1);
  const double q2 = r1.hi / b.hi;
  const double_double r2 = r1 - b * double_double(q2);
  return detail::quick_sum(q1, q2) + double_double(r2.hi / b.hi);
}

/// ln 2, 2 pi and 1 / (2 pi) to 106 bits.
inline constexpr double_double ln2{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
inline constexpr double_double two_pi{0x1.921fb54442d18p+2, 0x1.1a62633145c07p-52};
inline constexpr double_double inverse_two_pi{0x1.45f306dc9c883p-3, -0x1.6b01ec5417056p-57};

/// e^x. Reduced to |r| <= ln2 / 512 by powers of two and repeated squaring, then a Taylor polynomial.
[[nodiscard]] inline double_double exp(double_double x) noexcept {
  if (!(std::abs(x.hi) < 745)) return std::exp(x.hi);  // 0, infinity or NaN
  const double n = std::nearbyint(x.hi / ln2.hi);
  double_double r = x - ln2 * double_double(n);
  r = {r.hi * 0x1p-8, r.lo * 0x1p-8};
  double_double term = r;
  double_double sum = r;  // e^r - 1, kept without the 1 so that squaring loses nothing
  for (int k = 2; k <= 9; ++k) {
    term = term * r / double_double(k);
    sum = sum + term;
  }
  for (int i = 0; i < 8; ++i) sum = double_double(2) * sum + sum * sum;
  sum = sum + double_double(1);
  const int e = static_cast<int>(n);
  return {std::ldexp(sum.hi, e), std::ldexp(sum.lo, e)};
}

/// ln x for x > 0: two Newton steps on exp from the double logarithm.
[[nodiscard]] inline double_double log(double_double x) noexcept {
  double_double y(std::log(x.hi));
  for (int i = 0; i < 2; ++i) y = y + (x * exp(-y) - double_double(1));
  return y;
}

/// base^(numerator / denominator), base > 0.
[[nodiscard]] inline double_double power(double_double base, double numerator, double denominator) noexcept {
  return exp(log(base) * double_double(numerator) / double_double(denominator));
}

}  // namespace posenc::math
