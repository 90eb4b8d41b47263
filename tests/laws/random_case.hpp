// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Random cases of the laws. A case is made from its seed alone, and every test captures the seed, so that a failure
/// prints what to repeat. std::mt19937_64 gives the same numbers everywhere; the distributions of the standard library
/// do not, so none is used.

#include "support/tolerance.hpp"

#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace laws {

class random_case {
 public:
  explicit random_case(std::uint64_t seed) : engine_(seed) {}

  /// A whole number in lo .. hi.
  std::int64_t whole(std::int64_t lo, std::int64_t hi) {
    return lo + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(hi - lo + 1));
  }
  bool coin() { return whole(0, 1) == 1; }
  /// A number in [lo, hi).
  double real(double lo, double hi) { return lo + (hi - lo) * std::ldexp(static_cast<double>(engine_() >> 11), -53); }
  /// n numbers in [-1, 1).
  template <class T = double>
  std::vector<T> vector(std::int64_t n) {
    std::vector<T> out(static_cast<std::size_t>(n));
    for (T& x : out) x = static_cast<T>(real(-1, 1));
    return out;
  }
  /// The numbers 0 .. n - 1 in random order.
  std::vector<std::int64_t> order(std::int64_t n) {
    std::vector<std::int64_t> out(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) out[static_cast<std::size_t>(i)] = i;
    for (std::int64_t i = n - 1; i > 0; --i)
      std::swap(out[static_cast<std::size_t>(i)], out[static_cast<std::size_t>(whole(0, i))]);
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

/// The largest |a(i) - b(i)|; infinity where one is NaN, and for lists of different length.
template <class A, class B>
double difference(const std::vector<A>& a, const std::vector<B>& b) {
  return posenc_test::largest_difference(a, b);
}

template <class A, class B>
double dot(const A* a, const B* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

}  // namespace laws
