// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/math/log_buckets.hpp>

#include "support/catch.hpp"

#include <cmath>

using posenc::deberta_far_rule;
using posenc::math::log_buckets;

namespace {

/// (n / mid)^(mid - 1) <= ((M - 1) / mid)^k exactly decided in long double logarithms with a guard far below any gap.
std::int64_t expected(std::int64_t r, std::int64_t buckets, std::int64_t most) {
  const std::int64_t mid = buckets / 2;
  const std::int64_t n = r < 0 ? -r : r;
  if (n <= mid) return r;
  const long double place = std::log(static_cast<long double>(n) / static_cast<long double>(mid)) /
                            std::log(static_cast<long double>(most - 1) / static_cast<long double>(mid)) *
                            static_cast<long double>(mid - 1);
  const auto b = mid + static_cast<std::int64_t>(std::ceil(place - 1e-13L));
  return r < 0 ? -b : b;
}

}  // namespace

TEST_CASE("buckets are exact near, logarithmic beyond, and odd in the distance") {
  for (const auto& [buckets, most] : {std::pair{256, 512}, {32, 128}, {16, 40}, {4, 16}, {2, 8}, {320, 1024}}) {
    CAPTURE(buckets, most);
    const log_buckets of(buckets, most, deberta_far_rule::hf);
    for (std::int64_t r = -(most - 1); r <= most - 1; ++r) {
      CAPTURE(r);
      REQUIRE(of(r) == expected(r, buckets, most));
      REQUIRE(of(-r) == -of(r));
    }
    CHECK(of(most - 1) == buckets / 2 + buckets / 2 - 1);
  }
}

TEST_CASE("the far rule decides what lies beyond the trained span") {
  const log_buckets hf(256, 512, deberta_far_rule::hf);
  const log_buckets microsoft(256, 512, deberta_far_rule::microsoft);
  CHECK(microsoft(100000) == 255);
  CHECK(microsoft(-100000) == -255);
  CHECK(hf(2048) == 383);
  CHECK(hf.row(-600) == 0);
  CHECK(microsoft.row(-600) == 1);
  CHECK(hf.row(600) == 511);
}

TEST_CASE("without buckets every distance has a row of its own") {
  const log_buckets none(-1, 6, deberta_far_rule::hf);
  CHECK(none.span() == 6);
  for (std::int64_t r = -9; r <= 9; ++r) CHECK(none.row(r) == std::clamp<std::int64_t>(r + 6, 0, 11));
}

TEST_CASE("log_buckets refuses impossible options") {
  CHECK_THROWS_AS(log_buckets(0, 512, deberta_far_rule::hf), std::invalid_argument);
  CHECK_THROWS_AS(log_buckets(256, 129, deberta_far_rule::hf), std::invalid_argument);
  CHECK_THROWS_AS(log_buckets(-1, 1, deberta_far_rule::hf), std::invalid_argument);
  CHECK_THROWS_WITH(log_buckets(1, 512, deberta_far_rule::hf), Catch::Contains("position_buckets"));
}
