// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The cross product for content terms: Shaw on keys and values, Transformer-XL, DeBERTa.
#include <posenc/encoders/deberta.hpp>
#include <posenc/encoders/shaw.hpp>
#include <posenc/encoders/transformer_xl.hpp>

#include "unit/attention/cross.hpp"

#include <cmath>

using namespace cross;

TEST_CASE("attention with Shaw's keys and values is that of the dense oracle under every mask") {
  const extent left = 12, right = 5;
  const auto rows = left + right + 1;
  const std::vector<float> key_table = numbers(rows * dim, 21), value_table = numbers(rows * value_dim, 22);
  const posenc::shaw<float> part({.head_dim = dim, .value_dim = value_dim, .left = left, .right = right}, key_table,
                                 value_table);
  run(beside_masks(part), [&](dense::content_problem& p, const where& at) {
    const auto row = [&at](extent i, extent j) {
      const extent d = at.distance(i, j);
      return (d < -12 ? -12 : d > 5 ? 5 : d) + 12;
    };
    p.key_vector = [&, row](extent, extent, extent i, extent j, extent d) {
      return static_cast<double>(key_table[static_cast<std::size_t>(row(i, j) * dim + d)]);
    };
    p.value_vector = [&, row](extent, extent, extent i, extent j, extent d) {
      return static_cast<double>(value_table[static_cast<std::size_t>(row(i, j) * value_dim + d)]);
    };
  });
}

TEST_CASE("attention with Transformer-XL's terms is that of the dense oracle under every mask") {
  const extent model = 12;
  const std::vector<float> u = numbers(heads * dim, 31), v = numbers(heads * dim, 32),
                           w = numbers(heads * dim * model, 33, 0.3);
  const posenc::transformer_xl<float> part({.heads = heads, .head_dim = dim, .past = 200, .future = 200}, u, v, w);
  // R_h(r), channel d: sines then cosines of r projected by the head's matrix.
  const auto r_of = [&](extent h, extent d, extent r) {
    double sum = 0;
    for (extent m = 0; m < model; ++m) {
      const extent pair = m % (model / 2);
      const double angle = static_cast<double>(r) * std::pow(10000.0, -2.0 * static_cast<double>(pair) / model);
      sum += static_cast<double>(w[static_cast<std::size_t>((h * dim + d) * model + m)]) *
             (m < model / 2 ? std::sin(angle) : std::cos(angle));
    }
    return sum;
  };
  std::vector<double> table;  // [head][r + 200][d]
  for (extent h = 0; h < heads; ++h)
    for (extent r = -200; r <= 200; ++r)
      for (extent d = 0; d < dim; ++d) table.push_back(r_of(h, d, r));
  run(beside_masks(part),
      [&](dense::content_problem& p, const where& at) {
        p.base.logit = [&](extent b, extent h, extent i, extent j, double x) {
          double more = 0;
          for (extent d = 0; d < dim; ++d) {
            const auto channel = static_cast<std::size_t>(h * dim + d);
            more += static_cast<double>(u[channel]) * p.base.k(b, j, h * kv_heads / heads, d);
            more += (p.base.q(b, i, h, d) + static_cast<double>(v[channel])) *
                    table[static_cast<std::size_t>((h * 401 + 200 - at.distance(i, j)) * dim + d)];
          }
          return x + scale * more;
        };
      },
      {.bound = 3e-6});
}

TEST_CASE("attention with DeBERTa's terms is that of the dense oracle under every mask") {
  const extent span = 16, farthest = 64;
  const std::vector<float> pos_key = numbers(heads * 2 * span * dim, 41),
                           pos_query = numbers(heads * 2 * span * dim, 42);
  const posenc::deberta<float> part(
      {.heads = heads, .head_dim = dim, .position_buckets = span, .max_relative_positions = farthest}, pos_key,
      pos_query);
  // The bucket of query - key: itself up to 8, then logarithmic up to 63 (Hugging Face goes on beyond).
  const auto row = [&](extent r) {
    const double n = std::abs(static_cast<double>(r));
    double bucket = n;
    if (n > 8) bucket = 8 + std::ceil(std::log(n / 8) / std::log(63.0 / 8) * 7 - 1e-9);
    return std::min<extent>(std::max<extent>(static_cast<extent>(r < 0 ? -bucket : bucket) + span, 0), 2 * span - 1);
  };
  run(beside_masks(part),
      [&](dense::content_problem& p, const where& at) {
        p.base.logit = [&](extent b, extent h, extent i, extent j, double x) {
          double more = 0;
          const extent a = (h * 2 * span + row(-at.distance(i, j))) * dim;
          for (extent d = 0; d < dim; ++d)
            more += p.base.q(b, i, h, d) * static_cast<double>(pos_key[static_cast<std::size_t>(a + d)]) +
                    p.base.k(b, j, h * kv_heads / heads, d) *
                        static_cast<double>(pos_query[static_cast<std::size_t>(a + d)]);
          return x + scale * more;
        };
      },
      {.bound = 3e-6});
}
