// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// ALiBi: slopes, the penalty inside attention, and a shard of heads.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/encoders/alibi.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  bool good = true;
  constexpr std::int64_t heads = 8;
  constexpr std::int64_t tokens = 12;
  // Equal queries and keys, and values that say whether their key stands at position 1.
  std::vector<float> q(tokens * heads * 4, 0.0f);
  std::vector<float> k(q);
  std::vector<float> v(q);
  for (std::size_t i = 0; i < heads * 4; ++i) v[heads * 4 + i] = 1;
  std::vector<float> out(q.size());
  const posenc::shape shape{.tokens = tokens, .heads = heads, .dim = 4};
  const posenc::view queries{q.data(), shape};
  const posenc::view keys{k.data(), shape};
  const posenc::view values{v.data(), shape};
  const posenc::view result{out.data(), shape};

  // [attention]
  const auto policy = posenc::compose(posenc::alibi<float>{heads}, posenc::causal{});
  posenc::attention(queries, keys, values, result, policy);
  // [/attention]
  // The weight of the key at distance 10 is e^(-10 m) over the sum of e^(-r m).
  for (std::int64_t h = 0; h < heads; ++h) {
    const double slope = std::exp2(-static_cast<double>(h + 1));
    double total = 0;
    for (int r = 0; r <= 11; ++r) total += std::exp(-slope * r);
    const double expected = std::exp(-slope * 10) / total;
    std::printf("head %lld, slope 1/%.0f: weight of the key ten back %.7f\n", static_cast<long long>(h), 1 / slope,
                static_cast<double>(result(0, 11, h, 0)));
    good = good && std::abs(static_cast<double>(result(0, 11, h, 0)) - expected) < 1e-6;
  }

  // [shard]
  // Heads 4..7 of a model of 12, for tensor parallelism: the slopes of the whole model, cut.
  const posenc::alibi<float> part{{.heads = 12, .shard = posenc::head_shard{.first = 4, .count = 4, .of = 12}}};
  // [/shard]
  good = good && part.slopes() == std::vector<float>{0.03125f, 0.015625f, 0.0078125f, 0.00390625f};

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
