// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The cross product for layers whose heads follow different encodings.
#include <posenc/attention/per_head.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/kerple.hpp>
#include <posenc/encoders/rope.hpp>

#include "reference/distance_bias.hpp"
#include "unit/attention/cross.hpp"

#include <cmath>

using namespace cross;

TEST_CASE("heads with ALiBi beside heads with RoPE are those of the dense oracle under every mask") {
  const auto lower = [](extent h) { return h < 2; };
  const posenc::per_head part(lower, posenc::alibi<float>(heads), posenc::rope<float>({.head_dim = dim}),
                              heads / kv_heads);
  run(beside_masks(part),
      [](dense::content_problem& p, const where& at) {
        // Heads 2 and 3 share key head 1.
        const auto turn = [](dense::tensor& x, extent from, const std::vector<std::int64_t>& positions) {
          for (extent b = 0; b < batch; ++b)
            for (extent t = 0; t < x.tokens; ++t)
              for (extent h = from; h < x.heads; ++h)
                for (extent c = 0; c < dim / 2; ++c) {
                  const double angle = static_cast<double>(positions[static_cast<std::size_t>(t)]) *
                                       std::pow(10000.0, -2.0 * static_cast<double>(c) / static_cast<double>(dim));
                  const double a = x(b, t, h, c);
                  const double o = x(b, t, h, c + dim / 2);
                  x(b, t, h, c) = a * std::cos(angle) - o * std::sin(angle);
                  x(b, t, h, c + dim / 2) = a * std::sin(angle) + o * std::cos(angle);
                }
        };
        turn(p.base.q, 2, at.query);
        turn(p.base.k, 1, at.key);
        p.base.logit = [&at](extent, extent h, extent i, extent j, double x) {
          return h < 2 ? x - dense::alibi_slope(h, heads) * std::abs(static_cast<double>(at.distance(i, j))) : x;
        };
      },
      {.keys = posenc::key_state::unrotated});
}

TEST_CASE("heads with KERPLE beside heads without any encoding are those of the dense oracle under every mask") {
  const std::vector<float> r1{0.5f, 1, 0.25f, 2}, r2{1, 0.5f, 2, 0.125f};
  const auto even = [](extent h) { return h % 2 == 0; };
  const posenc::per_head part(even, posenc::kerple<float>(posenc::kerple_options<float>{.scale = r1, .shape = r2}),
                              posenc::nope{});
  run(beside_masks(part), adds([&](extent h, extent q, extent k) {
        const auto x = static_cast<std::size_t>(h);
        if (h % 2 != 0) return 0.0L;
        return distance_reference::kerple(true, static_cast<double>(r1[x]), static_cast<double>(r2[x]), false, q - k);
      }));
}
