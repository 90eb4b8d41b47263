// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/encoders/continuous_bias.hpp>

#include <limits>

using posenc_test::refusal;
using posenc_test::values;

namespace {

/// One axis of the coordinates from its description.
double axis(std::int64_t offset, std::int64_t side) {
  const double v = side > 1 ? 8.0 * static_cast<double>(offset) / static_cast<double>(side - 1) : 0.0;
  const double size = std::log(std::fabs(v) + 1) / std::log(2.0) / 3;
  return v < 0 ? -size : size;
}

/// The network of one offset, summed in the other order.
double network(const std::vector<double>& w1, const std::vector<double>& b1, const std::vector<double>& w2,
               std::int64_t head, double y, double x) {
  double sum = 0;
  const std::size_t hidden = b1.size();
  for (std::size_t m = hidden; m-- > 0;)
    sum += w2[static_cast<std::size_t>(head) * hidden + m] * std::fmax(0.0, b1[m] + w1[2 * m + 1] * x + w1[2 * m] * y);
  return 16 / (1 + std::exp(-sum));
}

}  // namespace

TEST_CASE("continuous_coords: own window, trained window, and a side of 1", "[continuous_bias]") {
  const auto coords = posenc::continuous_coords({2, 3});
  REQUIRE(coords.size() == 3 * 5 * 2);
  CHECK(coords[0] == Approx(-std::log2(9.0) / 3).epsilon(1e-15));
  CHECK(coords[1] == Approx(-std::log2(9.0) / 3).epsilon(1e-15));
  CHECK(coords[3] == Approx(-std::log2(5.0) / 3).epsilon(1e-15));  // one step of two
  CHECK(coords[2 * 7] == 0);                                       // the centre
  CHECK(coords[2 * 7 + 1] == 0);
  // A larger window than the trained one leaves -8 .. 8.
  const auto wide = posenc::continuous_coords({4, 1}, {3, 0});
  REQUIRE(wide.size() == 7 * 2);
  CHECK(wide[0] == Approx(-std::log2(13.0) / 3).epsilon(1e-15));
  for (std::size_t i = 0; i < 7; ++i) CHECK(wide[2 * i + 1] == 0);
  CHECK(refusal([] {
          (void)posenc::continuous_coords({2, 2}, {1, 2});
        }) == "posenc::continuous_coords: trained must have sides above 1, or 0 for the window's own, got 1");
  CHECK(refusal([] {
          (void)posenc::continuous_coords({2, 2}, {-1, 2});
        }) == "posenc::continuous_coords: trained.height must not be negative, got -1");
}

TEST_CASE("continuous_bias: the network at every offset", "[continuous_bias]") {
  constexpr std::int64_t hidden = 7;
  const auto w1 = values<double>(2 * hidden, 1);
  const auto b1 = values<double>(hidden, 2);
  const auto w2 = values<double>(3 * hidden, 3);
  const posenc::continuous_bias<double> e({.heads = 3, .window = {3, 4}, .trained = {5, 2}}, {w1, b1, w2});
  std::vector<double> bias(3 * 12 * 12);
  posenc::fill_bias<double>(e, 3, {}, 12, {}, 12, bias);
  double worst = 0;
  for (std::int64_t h = 0; h < 3; ++h)
    for (std::int64_t i = 0; i < 12; ++i)
      for (std::int64_t j = 0; j < 12; ++j) {
        const double right = network(w1, b1, w2, h, axis(i / 4 - j / 4, 5), axis(i % 4 - j % 4, 2));
        worst = std::fmax(worst, std::fabs(bias[static_cast<std::size_t>((h * 12 + i) * 12 + j)] - right));
      }
  CHECK(worst < 1e-14);

  // float: computed in double from the float weights, rounded once.
  const auto narrow = [](const std::vector<double>& x) { return std::vector<float>(x.begin(), x.end()); };
  const auto w1f = narrow(w1), b1f = narrow(b1), w2f = narrow(w2);
  const posenc::continuous_bias<float> f({.heads = 3, .window = {3, 4}}, {w1f, b1f, w2f});
  const std::vector<double> w1d(w1f.begin(), w1f.end()), b1d(b1f.begin(), b1f.end()), w2d(w2f.begin(), w2f.end());
  const posenc::continuous_bias<double> d({.heads = 3, .window = {3, 4}}, {w1d, b1d, w2d});
  bool rounded = true;
  for (std::int64_t h = 0; h < 3; ++h)
    for (std::int64_t i = 0; i < 12; ++i)
      for (std::int64_t j = 0; j < 12; ++j)
        rounded = rounded && f.window().line(h, i)[j] == static_cast<float>(d.window().line(h, i)[j]);
  CHECK(rounded);
  // A scalar that SIMD does not know.
  const std::vector<long double> w1l(w1.begin(), w1.end()), b1l(b1.begin(), b1.end()), w2l(w2.begin(), w2.end());
  const posenc::continuous_bias<long double> l({.heads = 3, .window = {3, 4}}, {w1l, b1l, w2l});
  CHECK(static_cast<double>(l.window().line(1, 0)[5]) ==
        Approx(network(w1, b1, w2, 1, axis(-1, 3), axis(-1, 4))).epsilon(1e-14));
}

TEST_CASE("continuous_bias: refusals and description", "[continuous_bias]") {
  auto w1 = values<float>(10, 1);
  const auto b1 = values<float>(5, 2);
  const auto w2 = values<float>(10, 3);
  const auto make = [&](std::int64_t heads, std::size_t n1, std::size_t nb, std::size_t n2) {
    return refusal([&] {
      posenc::continuous_bias<float>({.heads = heads, .window = {2, 2}},
                                     {std::span<const float>(w1).first(n1), std::span<const float>(b1).first(nb),
                                      std::span<const float>(w2).first(n2)});
    });
  };
  CHECK(make(2, 10, 5, 10) == "nothing thrown");
  CHECK(make(0, 10, 5, 10) == "posenc::continuous_bias: heads must be at least 1, got 0");
  CHECK(make(2, 9, 5, 10) == "posenc::continuous_bias: weight1 must hold 2 values per hidden unit, got 9");
  CHECK(make(2, 10, 0, 10) == "posenc::continuous_bias: bias1 must not be empty, got 0");
  CHECK(make(2, 10, 5, 9) == "posenc::continuous_bias: weight2 must hold one value per head and hidden unit, got 9");
  CHECK(refusal([&] {
          posenc::continuous_bias<float>({.heads = 2, .window = {2, 2}}, {w1, b1, w2}, std::vector<double>(17));
        }) == "posenc::continuous_bias: coords must hold 2 values per offset, got 17");
  const posenc::continuous_bias<float> e({.heads = 2, .window = {2, 2}}, {w1, b1, w2});
  CHECK(e.describe().parameters == 25);
  CHECK(e.describe().table_bytes == (2 * 16 + posenc::lane_slack) * 4);
  w1[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK(make(2, 10, 5, 10) == "posenc::continuous_bias: weights must give numbers, got a NaN");
}
