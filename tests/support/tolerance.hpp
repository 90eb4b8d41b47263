// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The families of comparison. Each says what a result may be off by, so that a test names a family, not a number:
///   exact          same_bits(a, b)
///   k ulp          ulp_error<T>(got, exact): distance from a wider value in units of the last place of T
///   elementwise    elementwise<T>(k, scale): k roundings of values up to `scale`
///   reduction      reduction<T>(n, terms): a sum of n products in any order, terms = sum |a_i b_i|
/// `worst` keeps the largest error of a sweep and where it was, for one CHECK after the loop; `largest_difference` does
/// so for two lists. Neither passes over a NaN, as std::max would.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#include <type_traits>
#include <vector>

namespace posenc_test {

/// The same bytes: tells 0 from -0 and compares NaN by payload.
template <class T>
[[nodiscard]] bool same_bits(const T& a, const T& b) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}
template <class T>
[[nodiscard]] bool same_bits(const T* a, const T* b, std::size_t n) noexcept {
  return n == 0 || std::memcmp(a, b, n * sizeof(T)) == 0;
}

/// The step of T at |exact|, not below the smallest normal number's.
template <class T>
[[nodiscard]] long double ulp(long double exact) noexcept {
  const int smallest = std::numeric_limits<T>::min_exponent - 1;
  const int e = exact == 0 ? smallest : std::max(std::ilogb(exact), smallest);
  return std::ldexp(1.0L, e - (std::numeric_limits<T>::digits - 1));
}

/// |got - exact| in units of the last place of T; infinity when only one of the two is finite.
template <class T>
[[nodiscard]] long double ulp_error(T got, long double exact) noexcept {
  if (std::isnan(got) || std::isnan(exact)) return std::isnan(got) && std::isnan(exact) ? 0 : INFINITY;
  if (std::isinf(got) || std::isinf(exact)) return static_cast<long double>(got) == exact ? 0 : INFINITY;
  return std::fabs(static_cast<long double>(got) - exact) / ulp<T>(exact);
}

/// k roundings, each half a step of values up to `scale`.
template <class T>
[[nodiscard]] double elementwise(int k, double scale) noexcept {
  return k * scale * static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
}

/// Sum of n products in any order, with or without fused steps: at most n + 1 roundings on each path to the result, so
/// the error is below gamma(n + 1) * sum |a_i b_i| (Higham, section 3.1).
template <class T>
[[nodiscard]] double reduction(std::int64_t n, double terms) noexcept {
  const double u = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
  const double k = static_cast<double>(n + 1) * u;
  return k / (1 - k) * terms;
}

/// The largest error seen, and the input it was seen at. A NaN counts as infinite.
struct worst {
  long double error = 0;
  long double at = 0;
  void see(long double e, long double where = 0) noexcept {
    if (std::isnan(e)) e = INFINITY;
    if (e > error) {
      error = e;
      at = where;
    }
  }
  friend std::ostream& operator<<(std::ostream& out, const worst& w) {
    return out << "largest error " << static_cast<double>(w.error) << " at " << static_cast<double>(w.at);
  }
};

/// The largest |a - b|; infinity where one is NaN, and for lists of different length.
template <class A, class B>
[[nodiscard]] double largest_difference(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return INFINITY;
  worst w;
  for (std::size_t i = 0; i < a.size(); ++i)
    w.see(std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])), static_cast<long double>(i));
  return static_cast<double>(w.error);
}

}  // namespace posenc_test
