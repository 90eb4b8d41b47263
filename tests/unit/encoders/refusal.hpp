// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What the tests of the encoders share: the text of an error and filled arrays, with the comparisons of
/// support/tolerance.hpp.

#include "support/tolerance.hpp"

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

}  // namespace posenc_test
