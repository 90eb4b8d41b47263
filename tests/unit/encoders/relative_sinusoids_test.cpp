// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/encoders/relative_sinusoids.hpp>

using posenc::distance_sign;
using posenc::relative_sinusoids;
using posenc::sinusoidal;
using posenc::sinusoidal_layout;
using posenc_test::largest_difference;
using posenc_test::refusal;

TEST_CASE("relative sinusoids: halves as in Transformer-XL, both signs", "[relative_sinusoids]") {
  const sinusoidal<double> e{{.dim = 6, .layout = sinusoidal_layout::concat_sin_cos}};
  for (const auto sign : {distance_sign::key_minus_query, distance_sign::query_minus_key}) {
    const auto table = relative_sinusoids(e, 4, 2, sign);
    std::vector<double> expected;
    for (int r = -4; r <= 2; ++r) {
      const double at = sign == distance_sign::key_minus_query ? r : -r;
      for (int k = 0; k < 3; ++k) expected.push_back(std::sin(at * std::pow(10000.0, -k / 3.0)));
      for (int k = 0; k < 3; ++k) expected.push_back(std::cos(at * std::pow(10000.0, -k / 3.0)));
    }
    CHECK(largest_difference(table, expected) < 1e-15);
  }
}

TEST_CASE("relative sinusoids: interleaved, float, one row", "[relative_sinusoids]") {
  const sinusoidal<float> e{{.dim = 4}};
  CHECK(relative_sinusoids(e, 0, 0) == std::vector<float>{0, 1, 0, 1});
  const auto table = relative_sinusoids(e, 1, 0);
  CHECK(table == std::vector<float>{static_cast<float>(std::sin(-1.0)), static_cast<float>(std::cos(1.0)),
                                    static_cast<float>(std::sin(-0.01)), static_cast<float>(std::cos(0.01)), 0, 1, 0,
                                    1});
}

TEST_CASE("relative sinusoids: what is refused", "[relative_sinusoids]") {
  const sinusoidal<float> e{{.dim = 4}};
  CHECK(refusal([&] { (void)relative_sinusoids(e, -1, 3); }) ==
        "posenc::relative_sinusoids: left must lie in 0..2^40, got -1");
  CHECK(refusal([&] { (void)relative_sinusoids(e, 3, -1); }) ==
        "posenc::relative_sinusoids: right must lie in 0..2^40, got -1");
}
