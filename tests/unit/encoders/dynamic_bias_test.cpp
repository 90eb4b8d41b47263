// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/distance_bias.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/dynamic_bias.hpp>

#include <unsupported/Eigen/AutoDiff>

#include <limits>

using posenc::positions;
using posenc_test::refusal;
using posenc_test::values;

namespace {

/// Layers of these widths, the first of one input.
std::vector<distance_reference::layer> network(const std::vector<std::int64_t>& widths) {
  std::vector<distance_reference::layer> out;
  std::int64_t inputs = 1;
  int seed = 3;
  for (const std::int64_t n : widths) {
    out.push_back({values<double>(inputs * n, seed), values<double>(n, seed + 1)});
    seed += 2;
    inputs = n;
  }
  return out;
}
template <class T>
posenc::dynamic_bias_options<T> options(const std::vector<distance_reference::layer>& layers, bool logarithm) {
  posenc::dynamic_bias_options<T> o{.layers = {}, .log_distance = logarithm};
  for (const auto& l : layers)
    o.layers.push_back(
        {std::vector<T>(l.weight.begin(), l.weight.end()), std::vector<T>(l.bias.begin(), l.bias.end())});
  return o;
}

}  // namespace

TEMPLATE_TEST_CASE("dynamic_bias: the network at every distance", "[dynamic_bias]", double, long double) {
  for (const auto& widths : std::vector<std::vector<std::int64_t>>{{3}, {7, 3}, {16, 5, 3}})
    for (const bool logarithm : {false, true}) {
      const auto layers = network(widths);
      const posenc::dynamic_bias<TestType> e{options<TestType>(layers, logarithm)};
      CHECK(e.heads() == 3);
      std::vector<TestType> bias(3 * 50);
      posenc::fill_bias(e, 3, positions::from(520), 1, positions::from(500), 50, std::span<TestType>(bias));
      posenc_test::worst lines;
      posenc_test::worst alone;
      for (std::size_t h = 0; h < 3; ++h)
        for (std::size_t j = 0; j < 50; ++j) {
          const auto r = 20 - static_cast<std::int64_t>(j);
          const long double want = distance_reference::dynamic(layers, logarithm, h, r);
          const auto where = static_cast<long double>(r);
          lines.see(std::fabs(static_cast<long double>(bias[50 * h + j]) - want), where);
          alone.see(std::fabs(static_cast<long double>(e.rule()(static_cast<std::int64_t>(h), -r)) - want), where);
        }
      CAPTURE(widths.size(), logarithm, lines, alone);
      CHECK(lines.error < 2e-13L);
      CHECK(alone.error < 2e-13L);
    }
}

TEST_CASE("dynamic_bias: float is evaluated in double and rounded once", "[dynamic_bias]") {
  const auto layers = network({40, 2});
  const posenc::dynamic_bias<float> e{options<float>(layers, true)};
  // The parameters as float holds them.
  std::vector<distance_reference::layer> held;
  for (const auto& l : e.rule().options().layers)
    held.push_back({{l.weight.begin(), l.weight.end()}, {l.bias.begin(), l.bias.end()}});
  const auto table = e.tabulated(700);
  posenc_test::worst ulp;
  for (std::int64_t d = -700; d <= 700; ++d)
    ulp.see(posenc_test::ulp_error(table.line(1)[d], distance_reference::dynamic(held, true, 1, -d)),
            static_cast<long double>(d));
  CAPTURE(ulp);
  CHECK(ulp.error <= 0.5001L);
}

TEST_CASE("dynamic_bias: refusals and description", "[dynamic_bias]") {
  const auto make = [](const posenc::dynamic_bias_options<float>& o) {
    return refusal([&] { posenc::dynamic_bias<float>{o}; });
  };
  CHECK(make({}) == "posenc::dynamic_bias: layers must not be empty, got 0");
  CHECK(make({.layers = {{{1, 2}, {}}}}) == "posenc::dynamic_bias: layers.bias must hold 1..1024 values, got 0");
  CHECK(make({.layers = {{std::vector<float>(1025), std::vector<float>(1025)}}}) ==
        "posenc::dynamic_bias: layers.bias must hold 1..1024 values, got 1025");
  CHECK(make({.layers = {{{1, 2}, {1, 2}}, {{1, 2, 3}, {1, 2}}}}) ==
        "posenc::dynamic_bias: layers.weight must hold as many values as inputs * outputs, got 3");
  CHECK(make({.layers = {{{std::numeric_limits<float>::quiet_NaN()}, {1}}}}) ==
        "posenc::dynamic_bias: layers must hold numbers, got a NaN");
  CHECK(make({.layers = {{{1}, {std::numeric_limits<float>::infinity()}}}}) ==
        "posenc::dynamic_bias: layers must be finite, got inf");
  CHECK(make({.layers = {{std::vector<float>(1024), std::vector<float>(1024)}}}) == "nothing thrown");
  const posenc::dynamic_bias<float> e{options<float>(network({7, 3}), true)};
  CHECK(e.describe().parameters == 7 + 7 + 21 + 3);
  CHECK(e.describe().table_bytes == 4 * 38);
}

TEST_CASE("dynamic_bias: derivatives by its parameters", "[dynamic_bias]") {
  using dual = Eigen::AutoDiffScalar<Eigen::VectorXd>;
  const auto layers = network({5, 2});
  auto o = options<dual>(layers, true);
  // One variable in either layer.
  const auto constant = [](double x) { return dual(x, Eigen::VectorXd::Zero(2)); };
  for (auto& l : o.layers)
    for (auto* list : {&l.weight, &l.bias})
      for (dual& x : *list) x = constant(x.value());
  o.layers[0].weight[3] = dual(layers[0].weight[3], 2, 0);
  o.layers[1].weight[8] = dual(layers[1].weight[8], 2, 1);
  const posenc::dynamic_bias<dual> e{o};
  std::vector<dual> bias(2);
  posenc::fill_bias(e, 2, positions::from(9), 1, positions::from(0), 1, std::span<dual>(bias));
  const auto value = [&](double by0, double by1) {
    auto moved = layers;
    moved[0].weight[3] += by0;
    moved[1].weight[8] += by1;
    return distance_reference::dynamic(moved, true, 1, 9);
  };
  constexpr double step = 1e-4;
  CHECK(bias[1].value() == Approx(static_cast<double>(value(0, 0))).epsilon(1e-13));
  CHECK(bias[1].derivatives()[0] ==
        Approx(static_cast<double>((value(step, 0) - value(-step, 0)) / (2 * step))).epsilon(1e-7));
  CHECK(bias[1].derivatives()[1] ==
        Approx(static_cast<double>((value(0, step) - value(0, -step)) / (2 * step))).epsilon(1e-7));
}
