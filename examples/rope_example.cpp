// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// RoPE: rotate queries and keys, move cached keys, read a table, keep a part of the head unrotated.
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/rope_table.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

// q.k after both were rotated, for q = (1, 2, 3, 4) and k = (0.5, -1, 2, 0.25).
double score(posenc::rope_layout layout, std::int64_t query_position, std::int64_t key_position) {
  double q[4] = {1, 2, 3, 4};
  double k[4] = {0.5, -1, 2, 0.25};
  const posenc::rope<double> encoder{{.head_dim = 4, .layout = layout}};
  encoder.rotate(posenc::view(q, {.tokens = 1, .dim = 4}), posenc::positions::from(query_position));
  encoder.rotate(posenc::view(k, {.tokens = 1, .dim = 4}), posenc::positions::from(key_position));
  return q[0] * k[0] + q[1] * k[1] + q[2] * k[2] + q[3] * k[3];
}

bool near(double a, double b, double tolerance) { return std::abs(a - b) <= tolerance; }

}  // namespace

int main() {
  bool good = true;

  std::vector<float> q(3 * 4 * 64, 1.0f);
  std::vector<float> k(3 * 2 * 64, 1.0f);
  // [rotate]
  // Three new tokens of one layer, 100 tokens already in the cache; 4 query heads share 2 key heads.
  const posenc::rope<float> encoder{{.head_dim = 64, .base = 10000, .layout = posenc::half_split}};
  const posenc::view queries{q.data(), {.tokens = 3, .heads = 4, .dim = 64}};
  const posenc::view keys{k.data(), {.tokens = 3, .heads = 2, .dim = 64}};
  encoder.rotate(queries, posenc::positions::from(100));
  encoder.rotate(keys, posenc::positions::from(100));
  // [/rotate]
  // Pair 0 turns by one radian per position, and (1, 1) at angle a becomes (cos a - sin a, sin a + cos a).
  good = good && near(queries(0, 2, 3, 0), std::cos(102.0) - std::sin(102.0), 2e-7);
  good = good && near(queries(0, 2, 3, 32), std::sin(102.0) + std::cos(102.0), 2e-7);

  // The score depends on the difference of the positions alone, at any distance from zero.
  for (const std::int64_t t : {std::int64_t{0}, std::int64_t{7}, std::int64_t{1000000000}, std::int64_t{-1000000000}}) {
    const double interleaved = score(posenc::interleaved, 5 + t, 3 + t);
    const double half = score(posenc::half_split, 5 + t, 3 + t);
    std::printf("positions %lld and %lld: score %.9f interleaved, %.9f half\n", static_cast<long long>(5 + t),
                static_cast<long long>(3 + t), interleaved, half);
    good = good && near(interleaved, 5.659235114, 1e-8) && near(half, -3.160111731, 1e-8);
  }

  // [shift]
  // The first 40 tokens were dropped: cached keys move down by 40 positions, without the originals.
  encoder.shift(keys, -40);
  // [/shift]
  std::vector<float> direct(3 * 2 * 64, 1.0f);
  const posenc::view expected{direct.data(), {.tokens = 3, .heads = 2, .dim = 64}};
  encoder.rotate(expected, posenc::positions::from(60));
  for (std::size_t i = 0; i < direct.size(); ++i) good = good && near(k[i], direct[i], 1e-6);

  // [table]
  // Rows built once for positions 0..4095 and read in every layer.
  const posenc::rope_table<float> table{encoder, 0, 4096};
  table.rotate(queries, posenc::positions::from(100));
  // [/table]
  // [slice]
  // A view of some of its rows; one over a model's own caches is made from pointers and strides.
  const posenc::rope_table_view<float> prompt = table.slice(0, 512);
  // [/slice]
  good = good && prompt.rows() == 512 && prompt.cos(100) == table.cos(100) && prompt.sin(511) == table.sin(511);
  std::vector<float> twice(3 * 4 * 64, 1.0f);
  const posenc::view again{twice.data(), {.tokens = 3, .heads = 4, .dim = 64}};
  encoder.rotate(again, posenc::positions::from(100));
  encoder.rotate(again, posenc::positions::from(100));
  for (std::size_t i = 0; i < twice.size(); ++i) good = good && q[i] == twice[i];

  std::vector<float> x(100, 1.0f);
  // [partial]
  // 26 of 100 channels are rotated; the other channels pass through untouched.
  const posenc::rope<float> partial{{.head_dim = 100, .partial_rotary_factor = 0.26}};
  partial.rotate(posenc::view(x.data(), {.tokens = 1, .dim = 100}), posenc::positions::from(9));
  // [/partial]
  good = good && partial.rotary_dim() == 26 && x[25] != 1.0f && x[26] == 1.0f && x[99] == 1.0f;

  // [float32]
  // A model that was run with float32 angles: its own arithmetic, not the exact one.
  const posenc::rope<float> as_trained{{.head_dim = 64, .angles = posenc::angle_mode::float32}};
  // [/float32]
  float cosine[2][32];
  float sine[2][32];
  encoder.cos_sin(131071, cosine[0], sine[0]);
  as_trained.cos_sin(131071, cosine[1], sine[1]);
  float difference = 0;
  for (int i = 0; i < 32; ++i) difference = std::max(difference, std::abs(cosine[0][i] - cosine[1][i]));
  std::printf("position 131071: float32 angles move a cosine by up to %.1e\n", static_cast<double>(difference));
  good = good && difference > 1e-4f && difference < 2e-2f;

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
