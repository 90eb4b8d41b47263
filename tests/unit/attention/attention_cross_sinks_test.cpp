// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The cross product for sinks: over a bias, over content terms with values of their own, and over whole rows.
#include <posenc/attention/two_pass.hpp>
#include <posenc/encoders/cope.hpp>
#include <posenc/encoders/kerple.hpp>
#include <posenc/encoders/shaw.hpp>

#include "reference/contextual.hpp"
#include "reference/distance_bias.hpp"
#include "unit/attention/cross.hpp"

using namespace cross;

namespace {

/// A sink per head; softmax-1 on head 1, none on head 3.
const std::vector<double> sinks{1.5, 0.0, -2.0, -std::numeric_limits<double>::infinity()};

auto over(const auto& part) {
  return [&part](const posenc::run_time_masks& masks, const where&) {
    return posenc::compose(part, posenc::run_time_policy<>{.masks = masks, .sinks = sinks});
  };
}
double sink(extent h) { return sinks[static_cast<std::size_t>(h)]; }

}  // namespace

TEST_CASE("sinks over KERPLE are those of the dense oracle under every mask") {
  const std::vector<float> r1{0.5f, 1, 0.25f, 2}, r2{1, 0.5f, 2, 0.125f};
  const posenc::kerple<float> part(posenc::kerple_options<float>{.scale = r1, .shape = r2});
  const auto formula = [&](extent h, extent q, extent k) {
    const auto x = static_cast<std::size_t>(h);
    return distance_reference::kerple(true, static_cast<double>(r1[x]), static_cast<double>(r2[x]), false, q - k);
  };
  const auto bias = adds(formula);
  run(over(part), [&](dense::content_problem& p, const where& at) {
    bias(p, at);
    p.base.sink = sink;
  });
}

TEST_CASE("sinks over Shaw's keys and values are those of the dense oracle under every mask") {
  const std::vector<float> key_table = numbers(9 * dim, 21), value_table = numbers(9 * value_dim, 22);
  const posenc::shaw<float> part({.head_dim = dim, .value_dim = value_dim, .left = 4, .right = 4}, key_table,
                                 value_table);
  run(over(part), [&](dense::content_problem& p, const where& at) {
    const auto row = [&at](extent i, extent j) { return std::clamp<extent>(at.distance(i, j), -4, 4) + 4; };
    p.key_vector = [&, row](extent, extent, extent i, extent j, extent d) {
      return static_cast<double>(key_table[static_cast<std::size_t>(row(i, j) * dim + d)]);
    };
    p.value_vector = [&, row](extent, extent, extent i, extent j, extent d) {
      return static_cast<double>(value_table[static_cast<std::size_t>(row(i, j) * value_dim + d)]);
    };
    p.base.sink = sink;
  });
}

TEST_CASE("sinks over contextual positions are those of the dense oracle under every mask") {
  const std::vector<float> table = numbers(24 * dim, 51);
  const posenc::cope<float> part({.head_dim = dim}, table);
  run(
      over(part),
      [&](dense::content_problem& p, const where&) {
        p.base = dense::with_contextual(p.base, {.table = wide(table)});
        p.base.sink = sink;
      },
      {.bound = 4e-6, .calls = {kind::prefill}},
      [](auto&&... arguments) { posenc::attention_two_pass(std::forward<decltype(arguments)>(arguments)...); });
}
