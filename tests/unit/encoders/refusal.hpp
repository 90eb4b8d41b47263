// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What the tests of the encoders share: the text of an error, and filled arrays.

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace posenc_test {

/// The text of the Error that f throws; "nothing thrown" if it returns. Another exception passes through.
template <class Error = std::invalid_argument, class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing thrown";
}

/// n values between -1 and 1 without a pattern that an encoding has; `seed` shifts them.
template <class T>
std::vector<T> values(std::int64_t n, int seed = 0) {
  std::vector<T> out;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(
        static_cast<T>(std::sin(1.7 * static_cast<double>(i) + 0.3 * static_cast<double>(i * i % 17) + seed)));
  return out;
}

/// The largest |a - b|; infinity for lists of different length.
template <class A, class B>
double largest_difference(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    worst = d > worst || std::isnan(d) ? d : worst;
  }
  return worst;
}

}  // namespace posenc_test
