// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The cross product for a part that needs whole rows, alone and under another bias and a sink, by the two-pass path.
// Its queries are the last columns of the keys, so there is no cross attention, and columns in the order of time.
#include <posenc/attention/two_pass.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/cope.hpp>

#include "reference/contextual.hpp"
#include "unit/attention/cross.hpp"

using namespace cross;

namespace {

struct two_pass {
  template <class... A>
  void operator()(A&&... arguments) const {
    posenc::attention_two_pass(std::forward<A>(arguments)...);
  }
};

// A decoded query stands at the last key only where keys are contiguous.
void run_both(const auto& make, const auto& oracle) {
  run(make, oracle,
      {.bound = 4e-6, .calls = {kind::prefill}, .orders = {order::contiguous, order::listed, order::ring}}, two_pass{});
  run(make, oracle, {.bound = 4e-6, .calls = {kind::decode}, .orders = {order::contiguous}}, two_pass{});
}

}  // namespace

TEST_CASE("attention with contextual positions is that of the dense oracle under every mask") {
  const std::vector<float> table = numbers(24 * dim, 51);
  const posenc::cope<float> part({.head_dim = dim}, table);
  run_both(beside_masks(part), [&](dense::content_problem& p, const where&) {
    p.base = dense::with_contextual(p.base, {.table = wide(table)});
  });
}

TEST_CASE("contextual positions over ALiBi, with softmax-1 and a query scale, under every mask") {
  const std::vector<float> table = numbers(24 * dim, 52);
  const posenc::cope<float> part({.head_dim = dim, .bias_scale = 0.5}, table);
  const posenc::alibi<float> bias(heads);
  run_both(
      [&](const posenc::run_time_masks& masks, const where&) {
        return posenc::compose(bias, part,
                               posenc::run_time_policy<>{.masks = masks, .sinks = {0.0}, .logit_scale = 1.5});
      },
      [&](dense::content_problem& p, const where& at) {
        p.base.row_factor = [](extent, extent, extent) { return 1.5; };
        p.base.logit = [&at](extent, extent h, extent i, extent j, double x) {
          return x - dense::alibi_slope(h, heads) * std::abs(static_cast<double>(at.distance(i, j)));
        };
        p.base = dense::with_contextual(p.base, {.table = wide(table), .bias_scale = 0.5});
        p.base.sink = [](extent) { return 0.0; };
      });
}
