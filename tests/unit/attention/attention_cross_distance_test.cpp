// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The cross product for biases that are lines of the distance, or of distance and query position.
#include <posenc/encoders/dynamic_bias.hpp>
#include <posenc/encoders/fire.hpp>
#include <posenc/encoders/kerple.hpp>
#include <posenc/encoders/sandwich.hpp>

#include "reference/distance_bias.hpp"
#include "unit/attention/cross.hpp"

using namespace cross;

TEST_CASE("attention with KERPLE is that of the dense oracle under every mask") {
  const std::vector<float> r1{0.5f, 1, 0.25f, 2}, r2{1, 0.5f, 2, 0.125f};
  const posenc::kerple<float> bias(
      posenc::kerple_options<float>{.distance = posenc::kerple_distance::absolute, .scale = r1, .shape = r2});
  run(beside_masks(bias), adds([&](extent h, extent q, extent k) {
        const auto x = static_cast<std::size_t>(h);
        return distance_reference::kerple(true, static_cast<double>(r1[x]), static_cast<double>(r2[x]), true, q - k);
      }));
}

TEST_CASE("attention with Sandwich is that of the dense oracle under every mask") {
  const posenc::sandwich<float> bias({.heads = heads, .dim = 16, .subtract = 8});
  run(beside_masks(bias), adds([](extent h, extent q, extent k) {
        return distance_reference::sandwich(heads, 16, 10000, 0, 8, h, q - k);
      }));
}

TEST_CASE("attention with FIRE is that of the dense oracle under every mask") {
  const std::vector<float> w1 = numbers(8, 1), b1 = numbers(8, 2), w2 = numbers(8 * heads, 3), b2 = numbers(heads, 4);
  const distance_reference::layer first{wide(w1), wide(b1)}, second{wide(w2), wide(b2)};
  // Queries beyond the threshold and below it.
  const posenc::fire<float> bias(
      posenc::fire_options<float>{.c = 0.5f, .threshold = 60, .weight1 = w1, .bias1 = b1, .weight2 = w2, .bias2 = b2});
  run(beside_masks(bias), adds([&](extent h, extent q, extent k) {
        return distance_reference::fire(0.5, 60, 1e-6, first, second, static_cast<std::size_t>(h), q, k);
      }));
}

TEST_CASE("attention with a dynamic bias is that of the dense oracle under every mask") {
  const std::vector<float> w1 = numbers(8, 5), b1 = numbers(8, 6), w2 = numbers(8 * heads, 7), b2 = numbers(heads, 8);
  const std::vector<distance_reference::layer> layers{{wide(w1), wide(b1)}, {wide(w2), wide(b2)}};
  const posenc::dynamic_bias<float> bias(
      posenc::dynamic_bias_options<float>{.layers = {{w1, b1}, {w2, b2}}, .log_distance = true});
  run(beside_masks(bias), adds([&](extent h, extent q, extent k) {
        return distance_reference::dynamic(layers, true, static_cast<std::size_t>(h), q - k);
      }));
}
