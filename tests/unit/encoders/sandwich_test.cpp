// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/distance_bias.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/encoders/sandwich.hpp>

#include <limits>

using posenc::positions;
using posenc_test::refusal;

TEST_CASE("sandwich: sums of cosines, per head", "[sandwich]") {
  for (const std::int64_t dim : {2, 6, 128, 140})
    for (const std::int64_t first : {0, 1}) {
      const posenc::sandwich_options o{.heads = 3, .dim = dim, .first_index = first, .subtract = 0.5};
      const posenc::sandwich<double> e{o};
      std::vector<double> bias(3 * 60);
      posenc::fill_bias(e, 3, positions::from(1000), 1, positions::from(970), 60, std::span<double>(bias));
      posenc_test::worst worst;
      for (std::size_t h = 0; h < 3; ++h)
        for (std::size_t j = 0; j < 60; ++j)
          worst.see(std::fabs(static_cast<long double>(bias[60 * h + j]) -
                              distance_reference::sandwich(3, dim, 10000, first, 0.5, static_cast<std::int64_t>(h),
                                                           30 - static_cast<std::int64_t>(j))),
                    static_cast<long double>(j));
      CAPTURE(dim, first, worst);
      CHECK(worst.error < 3e-14L);
    }
}

TEST_CASE("sandwich: exact phases far out, on lanes and alone", "[sandwich]") {
  const posenc::sandwich<double> e{{.heads = 1, .dim = 4, .base = 100}};  // frequencies 1 and 1/10
  for (const std::int64_t d : {std::int64_t{1000000}, std::int64_t{-123456789}}) {
    const long double want = std::cos(static_cast<long double>(d)) + std::cos(static_cast<long double>(d) / 10);
    CHECK(std::fabs(static_cast<long double>(e.rule()(0, d)) - want / 8) < 2e-11L);
    double lane = 0;
    e.rule().line(d, 1, &lane, 1);
    CHECK(std::fabs(static_cast<long double>(lane) - want / 8) < 2e-11L);
  }
  CHECK(e.rule()(0, 12345) == e.rule()(0, -12345));
  // What NeMo subtracts is the value at distance 0.
  CHECK(posenc::sandwich<double>{{.heads = 4, .dim = 64, .first_index = 1, .subtract = 32}}.rule()(2, 0) == 0);
}

TEST_CASE("sandwich: refusals and description", "[sandwich]") {
  const auto make = [](const posenc::sandwich_options& o) { return refusal([&] { posenc::sandwich<float>{o}; }); };
  CHECK(make({.heads = 0}) == "posenc::sandwich: heads must be at least 1, got 0");
  CHECK(make({.heads = 1, .dim = 3}) == "posenc::sandwich: dim must be even and lie in 2..2^20, got 3");
  CHECK(make({.heads = 1, .dim = 0}) == "posenc::sandwich: dim must be even and lie in 2..2^20, got 0");
  CHECK(make({.heads = 1, .base = -1}) == "posenc::sandwich: base must be positive and finite, got -1");
  CHECK(make({.heads = 1, .first_index = -1}) == "posenc::sandwich: first_index must lie in 0..2^20, got -1");
  CHECK(make({.heads = 1, .subtract = std::numeric_limits<double>::infinity()}) ==
        "posenc::sandwich: subtract must be finite, got inf");
  CHECK(make({.heads = 1}) == "nothing thrown");
  const posenc::sandwich<float> e{{.heads = 8}};
  CHECK(e.heads() == 8);
  CHECK(e.describe().parameters == 0);
  CHECK(e.describe().table_bytes == 64 * 24);
  CHECK(!e.describe().monotone);
  STATIC_REQUIRE(posenc::sandwich<float>::traits.symmetric);
}
