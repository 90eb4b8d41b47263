// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// iRoPE: which layers rotate, and the policy of each.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/irope.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  bool good = true;
  // [model]
  // Llama 4's schedule, small: every fourth layer is a NoPE layer with full attention and a query temperature.
  const posenc::irope<float> model{
      {.layers = 8, .interval = 4, .chunk = 4, .rope = {.head_dim = 8, .base = 5e5, .layout = posenc::interleaved}}};
  // [/model]
  for (std::int64_t l = 0; l < 8; ++l) good = good && model.schedule().uses_rope(l) == (l != 3 && l != 7);

  constexpr std::int64_t tokens = 6;
  std::vector<float> q(tokens * 2 * 8, 1.0f);
  std::vector<float> k(q);
  std::vector<float> v(q);
  std::vector<float> out(q.size());
  const posenc::shape shape{.tokens = tokens, .heads = 2, .dim = 8};
  const posenc::view queries{q.data(), shape};
  const posenc::view keys{k.data(), shape};
  const posenc::view values{v.data(), shape};
  const posenc::view result{out.data(), shape};
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t d = 0; d < 8; ++d) values(0, t, h, d) = t < 4 ? 1.0f : 0.0f;

  for (const std::int64_t layer : {2, 3}) {
    // [layer]
    // attention rotates q itself on a RoPE layer, because the policy of that layer holds the rotation.
    model.rotate(layer, keys, posenc::positions::from(0));
    model.visit_layer(layer, [&](const auto& policy) { posenc::attention(queries, keys, values, result, policy); });
    // [/layer]
    // Position 5 lies in the second chunk: on a RoPE layer it sees no key of the first, on a NoPE layer all of them.
    std::printf("layer %lld: position 5 takes %.4f of its values from the first chunk\n", static_cast<long long>(layer),
                static_cast<double>(result(0, 5, 0, 0)));
    good = good && (layer == 3 ? result(0, 5, 0, 0) > 0.5f : result(0, 5, 0, 0) == 0.0f);
  }

  const posenc::query_temperature temperature{};
  good = good && temperature.query_scale(0, 8190, 0) == 1.0;
  good = good && std::abs(temperature.query_scale(0, 8191, 0) - 1.0693147) < 1e-7;
  good = good && std::abs(temperature.query_scale(0, 131071, 0) - 1.2833213) < 1e-7;

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
