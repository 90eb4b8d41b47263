// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/math/affine.hpp>

#include <limits>

using posenc::view;
using posenc_test::refusal;

TEST_CASE("affine: W x + b, the bias left out, and a strided x", "[affine]") {
  const std::vector<float> w{1, 2, 3, 4, 5, 6};
  const std::vector<float> b{10, 20};
  const std::vector<float> x{1, -9, 2, -9, -1};
  std::vector<double> y(2);
  posenc::math::affine(x.data(), 2, 3, std::span<const float>(w), std::span<const float>(b), std::span<double>(y));
  CHECK(y == std::vector<double>{12, 28});
  posenc::math::affine(x.data(), 2, 3, std::span<const float>(w), {}, std::span<double>(y));
  CHECK(y == std::vector<double>{2, 8});
  // In double: 1 + 2^-30 would be 1 in float.
  const std::vector<float> one{1, 0x1p-30f};
  const std::vector<float> ones{1, 1};
  y.resize(1);
  posenc::math::affine(one.data(), 1, 2, std::span<const float>(ones), {}, std::span<double>(y));
  CHECK(y[0] == 1 + 0x1p-30);
  static_assert(std::is_same_v<posenc::math::table_t<float>, double>);
  static_assert(std::is_same_v<posenc::math::table_t<long double>, long double>);
}

TEST_CASE("affine_rows: outputs in order over the heads, refusals", "[affine]") {
  const std::vector<double> x{1, 2, 3, 4};
  const std::vector<double> w{1, 0, 0, 1, 1, 1, 1, -1};
  const std::vector<double> b{0, 0, 100, 0};
  std::vector<double> out(8);
  const view in{x.data(), {.tokens = 2, .dim = 2}};
  const auto run = [&](std::int64_t heads, std::int64_t dim, std::size_t weights, std::size_t biases) {
    return refusal([&] {
      posenc::math::affine_rows("f", in, std::span<const double>(w).first(weights),
                                std::span<const double>(b).first(biases),
                                view{out.data(), {.tokens = 2, .heads = heads, .dim = dim}});
    });
  };
  CHECK(run(2, 2, 8, 4) == "nothing thrown");
  CHECK(out == std::vector<double>{1, 2, 103, -1, 3, 4, 107, -1});
  CHECK(run(2, 1, 8, 4) == "posenc::f: weight must hold one row of x's dim per output, got 8");
  CHECK(run(2, 2, 8, 3) == "posenc::f: bias must hold one value per output, got 3");
  CHECK(refusal([&] {
          posenc::math::affine_rows("f", in, std::span<const double>(w), std::span<const double>(b),
                                    view{out.data(), {.tokens = 1, .heads = 4, .dim = 1}});
        }) == "posenc::f: out must have the batch and tokens of x, got 1");
  CHECK(refusal([&] {
          posenc::math::affine_rows("f", view{x.data(), {.tokens = 2, .heads = 2, .dim = 1}},
                                    std::span<const double>(w), std::span<const double>(b),
                                    view{out.data(), {.tokens = 2, .heads = 4, .dim = 1}});
        }) == "posenc::f: x heads must be 1: the heads come out of the weights, got 2");
}

TEST_CASE("sigmoid and log_sigmoid: no overflow and no cancellation at either end", "[affine]") {
  using posenc::math::log_sigmoid;
  using posenc::math::sigmoid;
  CHECK(sigmoid(0.0) == 0.5);
  CHECK(sigmoid(-1000.0) == 0);
  CHECK(sigmoid(1000.0) == 1);
  CHECK(log_sigmoid(-1000.0) == -1000);
  CHECK(log_sigmoid(0.0) == Approx(-std::log(2.0)).epsilon(1e-15));
  // ln(1 - e) = -e - e^2 / 2 ...: relative accuracy where ln(sigmoid(x)) is 0 in double.
  CHECK(log_sigmoid(50.0) == Approx(-std::exp(-50.0)).epsilon(1e-14));
  CHECK(log_sigmoid(50.0) < 0);
  CHECK(log_sigmoid(-40.0f) == -40.0f);
  for (double x = -30; x <= 30; x += 0.37) {
    CAPTURE(x);
    const long double exact = -std::log1p(std::exp(-static_cast<long double>(x)));
    CHECK(std::abs(static_cast<double>((log_sigmoid(x) - exact) / exact)) < 4e-16);
    CHECK(std::abs(sigmoid(x) - static_cast<double>(std::exp(exact))) < 4e-16);
  }
}
