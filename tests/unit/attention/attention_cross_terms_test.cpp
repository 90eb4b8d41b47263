// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The cross product for terms that the content of a query weighs: segments, a mixed bank, decomposed offsets.
#include <posenc/encoders/decomposed_bias.hpp>
#include <posenc/encoders/projected_bias.hpp>
#include <posenc/encoders/relative_segments.hpp>

#include "unit/attention/cross.hpp"

using namespace cross;

TEST_CASE("attention with relative segments is that of the dense oracle under every mask") {
  const std::vector<float> vectors = numbers(heads * 2 * dim, 111), bias = numbers(heads * dim, 112);
  std::vector<std::int64_t> of_query, of_key;
  for (extent j = 0; j < keys; ++j) {
    of_query.push_back(j / 9 % 3);
    of_key.push_back(j / 20 % 3);
  }
  run(
      [&](const posenc::run_time_masks& masks, const where& at) {
        const posenc::relative_segments<float> part({.heads = heads, .head_dim = dim}, vectors, bias, {},
                                                    std::span(of_query).first(at.query.size()), of_key);
        return posenc::compose(part, posenc::run_time_policy<>{.masks = masks});
      },
      [&](dense::content_problem& p, const where&) {
        p.base.logit = [&](extent b, extent h, extent i, extent j, double x) {
          const extent other = of_query[static_cast<std::size_t>(i)] == of_key[static_cast<std::size_t>(j)] ? 0 : 1;
          double more = 0;
          for (extent d = 0; d < dim; ++d)
            more += (p.base.q(b, i, h, d) + static_cast<double>(bias[static_cast<std::size_t>(h * dim + d)])) *
                    static_cast<double>(vectors[static_cast<std::size_t>((h * 2 + other) * dim + d)]);
          return x + scale * more;
        };
      });
}

TEST_CASE("attention with a mixed bank is that of the dense oracle under every mask") {
  const extent functions = 3, reach = 40;
  const std::vector<float> values = numbers(functions * reach, 121);
  const std::vector<float> mixed = numbers(batch * keys * heads * functions, 122);
  const posenc::projected_bank<float> bank(functions, reach, values);
  run(
      [&](const posenc::run_time_masks& masks, const where& at) {
        const posenc::view<const float> weights(
            mixed.data(),
            {.batch = batch, .tokens = static_cast<extent>(at.query.size()), .heads = heads, .dim = functions});
        return posenc::compose(posenc::projected_bias(bank, weights), posenc::run_time_policy<>{.masks = masks});
      },
      [&](dense::content_problem& p, const where& at) {
        p.base.logit = [&](extent b, extent h, extent i, extent j, double x) {
          const extent back = -at.distance(i, j);
          if (back < 0 || back >= reach) return x;
          const extent row = (b * static_cast<extent>(at.query.size()) + i) * heads + h;
          for (extent m = 0; m < functions; ++m)
            x += static_cast<double>(mixed[static_cast<std::size_t>(row * functions + m)]) *
                 static_cast<double>(values[static_cast<std::size_t>(m * reach + back)]);
          return x;
        };
      });
}

TEST_CASE("attention with decomposed offsets is that of the dense oracle under every mask") {
  const std::vector<float> rel_h = numbers(dim, 131), rel_w = numbers((2 * keys - 1) * dim, 132);
  const posenc::window_shape line{.height = 1, .width = keys};
  const posenc::decomposed_bias<float> part({.queries = line, .keys = line, .dim = dim}, rel_h, rel_w);
  run(beside_masks(part),
      [&](dense::content_problem& p, const where&) {
        p.base.logit = [&](extent b, extent h, extent i, extent j, double x) {
          for (extent d = 0; d < dim; ++d)
            x += p.base.q(b, i, h, d) *
                 (static_cast<double>(rel_h[static_cast<std::size_t>(d)]) +
                  static_cast<double>(rel_w[static_cast<std::size_t>((i - j + keys - 1) * dim + d)]));
          return x;
        };
      },
      {.bound = 4e-6, .calls = {kind::prefill}});
}
