// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/math/slopes.hpp>

#include "support/catch.hpp"
#include "support/tolerance.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

using posenc::slope_rule;
using posenc::math::alibi_slopes;

namespace {

/// The published recursion: the slopes of the power of two below, then every other slope of the next one.
std::vector<long double> published(std::int64_t heads, long double bias_max) {
  std::int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<long double> out;
  for (std::int64_t h = 1; h <= power; ++h)
    out.push_back(std::exp2(-bias_max * static_cast<long double>(h) / static_cast<long double>(power)));
  for (std::int64_t h = 1; static_cast<std::int64_t>(out.size()) < heads; h += 2)
    out.push_back(std::exp2(-bias_max * static_cast<long double>(h) / static_cast<long double>(2 * power)));
  return out;
}

}  // namespace

TEST_CASE("slopes: the paper's rule for every head count is exact to 1 ulp", "[math][slopes]") {
  posenc_test::worst worst;
  for (const double bias_max : {8.0, 16.0, 4.0, 6.5}) {
    for (std::int64_t heads = 1; heads <= 130; ++heads) {
      const std::vector<double> got = alibi_slopes(heads, slope_rule::paper, bias_max);
      const std::vector<long double> right = published(heads, bias_max);
      REQUIRE(got.size() == right.size());
      for (std::size_t h = 0; h < got.size(); ++h)
        worst.see(posenc_test::ulp_error(got[h], right[h]), static_cast<long double>(heads));
    }
  }
  CAPTURE(worst);
  CHECK(worst.error <= 1);
}

TEST_CASE("slopes: the geometric rule is one ladder", "[math][slopes]") {
  posenc_test::worst worst;
  for (const double bias_max : {8.0, 16.0, 4.0, 6.5}) {
    for (std::int64_t heads = 1; heads <= 130; ++heads) {
      const std::vector<double> got = alibi_slopes(heads, slope_rule::geometric, bias_max);
      for (std::size_t h = 0; h < got.size(); ++h) {
        const long double exponent =
            static_cast<long double>(bias_max) * static_cast<long double>(h + 1) / static_cast<long double>(heads);
        worst.see(posenc_test::ulp_error(got[h], std::exp2(-exponent)), static_cast<long double>(heads));
      }
    }
  }
  CAPTURE(worst);
  CHECK(worst.error <= 1);
}

TEST_CASE("slopes: known values", "[math][slopes]") {
  CHECK(alibi_slopes(1, slope_rule::paper, 8) == std::vector<double>{0x1p-8});
  CHECK(alibi_slopes(6, slope_rule::paper, 8) == std::vector<double>{0x1p-2, 0x1p-4, 0x1p-6, 0x1p-8, 0x1p-1, 0x1p-3});
  CHECK(alibi_slopes(8, slope_rule::paper, 8) == alibi_slopes(8, slope_rule::geometric, 8));
  const std::vector<double> twelve = alibi_slopes(12, slope_rule::paper, 8);
  CHECK(twelve[8] == std::exp2(-0.5));
  CHECK(twelve[11] == std::exp2(-3.5));
  CHECK(alibi_slopes(4, slope_rule::geometric, 0) == std::vector<double>(4, 1.0));
}
