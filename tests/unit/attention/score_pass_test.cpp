// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/score_pass.hpp>

#include "support/catch.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace {

template <class C>
using batch = posenc::simd::batch<C>;
constexpr int lanes_of_float = posenc::simd::width<float>;

std::vector<float> numbers(std::int64_t n, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-20, 3);
  std::vector<float> x(static_cast<std::size_t>(n) + 2, 12345.0f);  // a canary on both sides
  for (std::int64_t i = 0; i < n; ++i) x[static_cast<std::size_t>(i) + 1] = draw(random);
  return x;
}

}  // namespace

TEST_CASE("transform_scores writes op(score, key) in place and finds the maximum, for every length") {
  using B = batch<float>;
  for (std::int64_t n = 0; n <= 4 * lanes_of_float + 3; ++n) {
    std::vector<float> x = numbers(n, static_cast<unsigned>(n));
    const std::vector<float> before = x;
    std::vector<std::int64_t> keys;
    const auto op = [&](const B& s, std::int64_t k) {
      keys.push_back(k);
      return B(s * B(2.0f));
    };
    const float highest = posenc::detail::transform_scores<posenc::simd::default_arch>(x.data() + 1, n, 70, op,
                                                                                       posenc::detail::no_lane_mask{});
    float expected = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = 1; i <= n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      REQUIRE(x[at] == 2 * before[at]);
      expected = std::max(expected, x[at]);
    }
    REQUIRE(highest == expected);
    REQUIRE(x.front() == 12345.0f);
    REQUIRE(x.back() == 12345.0f);
    for (std::size_t i = 0; i < keys.size(); ++i)
      REQUIRE(keys[i] == 70 + static_cast<std::int64_t>(i) * lanes_of_float);
  }
}

TEST_CASE("lanes that a mask hides become -inf, whatever they held") {
  using B = batch<float>;
  const auto keep = [](const B& s, std::int64_t) { return s; };
  const auto even = [](std::int64_t k) {
    bool seen[lanes_of_float];
    for (int i = 0; i < lanes_of_float; ++i) seen[i] = (k + i) % 2 == 0;
    return posenc::lanes<B>::mask_from(seen);
  };
  for (std::int64_t n = 1; n <= 3 * lanes_of_float; ++n) {
    std::vector<float> x = numbers(n);
    for (std::int64_t i = 1; i < n; i += 2)
      x[static_cast<std::size_t>(i) + 1] = std::numeric_limits<float>::quiet_NaN();
    const float highest = posenc::detail::transform_scores<posenc::simd::default_arch>(x.data() + 1, n, 0, keep, even);
    float expected = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = 0; i < n; ++i) {
      const float found = x[static_cast<std::size_t>(i) + 1];
      if (i % 2 != 0) {
        REQUIRE(found == -std::numeric_limits<float>::infinity());
      } else {
        expected = std::max(expected, found);
      }
    }
    REQUIRE(highest == expected);
  }
}

TEST_CASE("exponentiate writes exp(s - highest) and returns the sum, for every length") {
  for (std::int64_t n = 0; n <= 4 * lanes_of_float + 3; ++n) {
    std::vector<float> x = numbers(n, static_cast<unsigned>(n));
    if (n > 2) x[2] = -std::numeric_limits<float>::infinity();
    const std::vector<float> before = x;
    const float total = posenc::detail::exponentiate<posenc::simd::default_arch>(x.data() + 1, n, 3.0f);
    double expected = 0;
    for (std::int64_t i = 1; i <= n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double right = std::exp(static_cast<double>(before[at] - 3.0f));
      REQUIRE(static_cast<double>(x[at]) == Approx(right).epsilon(2e-7));
      if (std::isinf(before[at])) REQUIRE(x[at] == 0);
      expected += right;
    }
    REQUIRE(static_cast<double>(total) == Approx(expected).epsilon(1e-6));
    REQUIRE(x.front() == 12345.0f);
    REQUIRE(x.back() == 12345.0f);
  }
}
