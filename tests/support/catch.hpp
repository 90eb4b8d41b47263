// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Catch2 2.13 or 3 under the names that the tests use.
/// Catch2 3 moved Approx and the string matcher into its namespace; both spellings work after this header.
/// `POSENC_SKIP("reason")` leaves a test case and says by name that it did not run: tests/run.sh lists these.

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#include <catch2/catch_version_macros.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

#include <iostream>
#include <string>

namespace posenc_test {

/// `CHECK_THROWS_WITH(expression, contains("words"))` under either version.
inline auto contains(const std::string& words) {
#if CATCH_VERSION_MAJOR >= 3
  return Catch::Matchers::ContainsSubstring(words);
#else
  return Catch::Matchers::Contains(words);
#endif
}

}  // namespace posenc_test

#define POSENC_SKIP(reason)                                                                                 \
  do {                                                                                                      \
    std::cout << "skipped: " << Catch::getResultCapture().getCurrentTestName() << ": " << (reason) << '\n'; \
    return;                                                                                                 \
  } while (false)
