// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/math/frequencies.hpp>

#include "reference/angle.hpp"
#include "reference/constants.hpp"
#include "support/catch.hpp"
#include "support/tolerance.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

using posenc::math::double_double;
using reference::binary;

namespace {
binary exact(const double_double& x) { return binary(x.hi) + binary(x.lo); }
}  // namespace

TEST_CASE("frequencies: the ladder is base^(-2i/d) to better than 2^-95", "[math][frequencies]") {
  for (const reference::ladder_values& right : reference::ladders) {
    const std::int64_t pairs = right.dim / 2;
    const auto got = posenc::math::ladder(right.base, pairs, static_cast<double>(pairs));
    REQUIRE(got.size() == static_cast<std::size_t>(pairs));
    int worst = -1000;
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, reference::relative_error_log2(exact(got[i]), reference::wide(right.values[i])));
    CAPTURE(right.base, right.dim);
    CHECK(worst <= -95);
    CHECK(got[0].hi == 1);
    CHECK(got[0].lo == 0);
  }
}

TEST_CASE("frequencies: one rung, no rung, other denominators", "[math][frequencies]") {
  CHECK(posenc::math::ladder(1e4, 0, 0).empty());
  const auto one = posenc::math::ladder(1e4, 1, 0);
  REQUIRE(one.size() == 1);
  CHECK(one[0].hi == 1);
  // The last rung of a ladder with denominator count - 1 is 1 / base.
  const auto closed = posenc::math::ladder(1e4, 32, 31);
  CHECK(static_cast<double>(closed[31]) == 1e-4);
  // Base 1 gives ones, a base below 1 growing frequencies.
  for (const double_double& f : posenc::math::ladder(1, 5, 5)) CHECK(static_cast<double>(f) == 1);
  CHECK(static_cast<double>(posenc::math::ladder(0.25, 2, 1)[1]) == 4);
}

TEST_CASE("frequencies: explicit ones are taken as they are, division scales each", "[math][frequencies]") {
  const std::vector<double> given{1, 0.1, 1e-5};
  auto f = posenc::math::exact(given);
  for (std::size_t i = 0; i < given.size(); ++i) {
    CHECK(f[i].hi == given[i]);
    CHECK(f[i].lo == 0);
  }
  posenc::math::divide(f, 3);
  for (std::size_t i = 0; i < given.size(); ++i)
    CHECK(reference::relative_error_log2(exact(f[i]) * binary(3), binary(given[i])) <= -102);
}

TEST_CASE("frequencies: the float32 ladder rounds the power and its reciprocal to float", "[math][frequencies]") {
  // The steps written out: exponent, power (correctly rounded from 64 bits), reciprocal.
  for (const float base : {10000.0f, 500000.0f, 1000000.0f}) {
    for (const std::int64_t dim : {2, 4, 64, 80, 96, 128, 256}) {
      const std::vector<float> got = posenc::math::float32_ladder(base, dim);
      REQUIRE(got.size() == static_cast<std::size_t>(dim / 2));
      int wrong = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const volatile float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
        const volatile auto power =
            static_cast<float>(std::pow(static_cast<long double>(base), static_cast<long double>(exponent)));
        const volatile float reciprocal = 1.0f / power;
        wrong += got[i] != reciprocal;
      }
      CAPTURE(base, dim);
      CHECK(wrong == 0);
    }
  }
  const std::vector<float> known = posenc::math::float32_ladder(10000.0f, 8);
  CHECK(known == std::vector<float>{1.0f, 0.1f, 0.01f, 0.001f});
}
