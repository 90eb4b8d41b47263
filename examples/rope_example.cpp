// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// RoPE: rotate queries and keys, move cached keys, read a table, keep a part of the head unrotated, permute weights,
// turn pairs by several axes, set frequencies; and xPos.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/rope_table.hpp>
#include <posenc/encoders/rope_weights.hpp>
#include <posenc/encoders/xpos.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <span>
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

std::vector<float> waves(std::int64_t n, double step) {
  std::vector<float> x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(static_cast<float>(std::sin(step * static_cast<double>(i + 1))));
  return x;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Inverse and adjoint under YaRN, whose magnitude is not 1.
bool inverse_and_adjoint() {
  const std::vector<float> given = waves(64, 0.37);
  std::vector<float> x = given;
  std::vector<float> g = given;
  const posenc::view data{x.data(), {.tokens = 1, .dim = 64}};
  const posenc::view gradient{g.data(), {.tokens = 1, .dim = 64}};
  // [inverse]
  const posenc::rope<float> yarn{
      {.head_dim = 64, .scaling = posenc::yarn{.factor = 4, .original_max_position_embeddings = 4096}}};
  yarn.rotate(data, posenc::positions::from(17));
  yarn.inverse(data, posenc::positions::from(17));  // the data again: turned back, divided by A
  yarn.rotate(gradient, posenc::positions::from(17));
  yarn.adjoint(gradient, posenc::positions::from(17));  // A^2 times the data: turned back, times A once more
  // [/inverse]
  bool good = largest_difference(x, given) < 1e-6f;
  const double square = yarn.magnitude() * yarn.magnitude();
  for (std::size_t i = 0; i < g.size(); ++i) good = good && near(g[i], square * static_cast<double>(given[i]), 1e-6);
  return good;
}

// A projection of an interleaved model, permuted for half_split, gives the same scores.
bool permuted_weights() {
  constexpr std::size_t inputs = 6;
  std::vector<float> wq = waves(2 * 8 * inputs, 0.37);
  std::vector<float> wk = waves(1 * 8 * inputs, 0.91);
  const std::vector<float> x = waves(inputs, 0.53);
  const auto scores = [&](posenc::rope_layout layout) {
    std::array<float, 16> q{};
    std::array<float, 8> k{};
    for (std::size_t i = 0; i < inputs; ++i) {
      for (std::size_t r = 0; r < 16; ++r) q[r] += wq[r * inputs + i] * x[i];
      for (std::size_t r = 0; r < 8; ++r) k[r] += wk[r * inputs + i] * x[i];
    }
    const posenc::rope<float> encoder{{.head_dim = 8, .layout = layout}};
    encoder.rotate(posenc::view(q.data(), {.tokens = 1, .heads = 2, .dim = 8}), posenc::positions::from(9));
    encoder.rotate(posenc::view(k.data(), {.tokens = 1, .heads = 1, .dim = 8}), posenc::positions::from(4));
    std::array<double, 2> out{};
    for (std::size_t h = 0; h < 2; ++h)
      for (std::size_t i = 0; i < 8; ++i) out[h] += static_cast<double>(q[8 * h + i]) * static_cast<double>(k[i]);
    return out;
  };
  const auto before = scores(posenc::interleaved);
  // [weights]
  // Wq of 2 query heads and Wk of 1 key head, rows [heads * 8, inputs]; biases and QK-norm gains have inputs = 1.
  const posenc::rope_relayout how{.head_dim = 8, .from = posenc::interleaved, .to = posenc::half_split};
  posenc::relayout_rows(std::span(wq), 2, inputs, how);
  posenc::relayout_rows(std::span(wk), 1, inputs, how);
  // [/weights]
  const auto after = scores(posenc::half_split);
  return near(before[0], after[0], 1e-5) && near(before[1], after[1], 1e-5) && std::abs(before[0] - before[1]) > 0.1;
}

// Text, then an image of 2 x 3 patches, then text, as Qwen2-VL numbers them.
bool several_axes() {
  constexpr std::int64_t tokens = 10;
  constexpr std::int64_t dim = 16;
  std::vector<float> q = waves(tokens * dim, 0.37);
  std::vector<float> k = waves(tokens * dim, 0.91);
  std::vector<float> v = waves(tokens * dim, 0.53);
  std::vector<float> out(tokens * dim);
  const posenc::shape all{.tokens = tokens, .dim = dim};
  const posenc::view queries{q.data(), all};
  const posenc::view keys{k.data(), all};
  const posenc::view values{v.data(), all};
  const posenc::view result{out.data(), all};
  // [axes]
  // Two words, an image of 2 x 3 patches, two words: time, height and width of every token.
  const std::vector<std::int64_t> ids{0, 1, 2, 2, 2, 2, 2, 2, 5, 6,   //
                                      0, 1, 2, 2, 2, 3, 3, 3, 5, 6,   //
                                      0, 1, 2, 3, 4, 2, 3, 4, 5, 6};  //
  const posenc::rope<float> encoder{{.head_dim = 16, .axes = posenc::rope_axes::chunked({2, 3, 3})}};
  // The rotation takes the axes; the mask takes the order of the tokens, which is not in them.
  encoder.rotate(queries, posenc::positions::axes(ids, 3));
  encoder.rotate(keys, posenc::positions::axes(ids, 3));
  posenc::attention(queries, keys, values, result, posenc::causal{});
  // [/axes]
  // The first patch sees two words and itself, as if nothing stood behind it. With times for positions it would see the
  // whole image.
  const posenc::shape three{.tokens = 3, .dim = dim};
  std::vector<float> alone(3 * dim);
  posenc::attention(posenc::view(q.data(), three), posenc::view(k.data(), three), posenc::view(v.data(), three),
                    posenc::view(alone.data(), three), posenc::causal{});
  std::vector<float> by_time(tokens * dim);
  const auto times = posenc::positions::listed(std::span(ids).first(tokens));
  posenc::attention(queries, keys, values, posenc::view(by_time.data(), all), posenc::causal{},
                    {.query_positions = times, .key_positions = times});
  float same = 0;
  float other = 0;
  for (std::size_t i = 2 * dim; i < 3 * dim; ++i) {
    same = std::max(same, std::abs(out[i] - alone[i]));
    other = std::max(other, std::abs(out[i] - by_time[i]));
  }
  return same < 1e-6f && other > 1e-2f;
}

// Frequencies that a model learned, per head too, and V-JEPA 2.
bool own_frequencies() {
  std::vector<float> x = waves(2 * 64, 0.37);
  const posenc::view two_heads{x.data(), {.tokens = 1, .heads = 2, .dim = 64}};
  std::vector<double> learned(2 * 32);
  for (std::size_t i = 0; i < learned.size(); ++i) learned[i] = std::pow(0.9, static_cast<double>(i));
  // [learned]
  // [head, pair], from the checkpoint; a list of 32 alone would serve all heads.
  const posenc::rope<float> per_head{{.head_dim = 64, .inv_freq = learned, .frequency_heads = 2}};
  per_head.rotate(two_heads, posenc::positions::from(3));
  // [/learned]
  const double a = std::sin(0.37 * 65);
  const double b = std::sin(0.37 * 97);
  const double angle = 3 * std::pow(0.9, 32);
  bool good = near(x[64], a * std::cos(angle) - b * std::sin(angle), 1e-6);

  const std::vector<float> given = waves(64, 0.37);
  std::vector<float> patch = given;
  const posenc::view token{patch.data(), {.tokens = 1, .dim = 64}};
  const std::int64_t frame = 3;
  const std::int64_t row = 5;
  const std::int64_t column = 7;
  // [vjepa2]
  // Blocks of 2 * ((64 / 3) / 2) = 20 channels for frame, row and column; the last four channels stay as they are.
  const auto block = [](std::int64_t offset) {
    return posenc::rope<float>{{.head_dim = 64, .rotary_dim = 20, .offset = offset, .layout = posenc::vjepa2_mixed}};
  };
  block(0).rotate(token, posenc::positions::from(frame));
  block(20).rotate(token, posenc::positions::from(row));
  block(40).rotate(token, posenc::positions::from(column));
  // [/vjepa2]
  // Channel 20 is the first of a pair and takes the angle of pair 0 of its block, row * 1.
  const double turned = static_cast<double>(given[20]) * std::cos(5.0) - static_cast<double>(given[21]) * std::sin(5.0);
  good = good && near(patch[20], turned, 1e-6);
  return good && patch[63] == given[63] && !block(0).shift_refusal().empty();
}

// The row of a decode step once, for queries and keys.
bool one_row() {
  std::vector<float> q = waves(4 * 64, 0.37);
  std::vector<float> k = waves(2 * 64, 0.91);
  std::vector<float> direct = q;
  const posenc::rope<float> encoder{{.head_dim = 64}};
  const posenc::view queries{q.data(), {.tokens = 1, .heads = 4, .dim = 64}};
  const posenc::view keys{k.data(), {.tokens = 1, .heads = 2, .dim = 64}};
  const std::int64_t step = 1234;
  // [row]
  // One row of 32 pairs serves queries and keys in every layer of a decode step.
  float cos[32];
  float sin[32];
  encoder.cos_sin(step, cos, sin);
  const posenc::rope_table_view<float> row(encoder.layout(), 64, 64, 0, {cos, sin, 32, step, 1});
  row.rotate(queries, posenc::positions::from(step));
  row.rotate(keys, posenc::positions::from(step));
  // [/row]
  encoder.rotate(posenc::view(direct.data(), {.tokens = 1, .heads = 4, .dim = 64}), posenc::positions::from(step));
  return q == direct;
}

// xPos: a score fades with the distance, wherever the two stand.
bool fading() {
  std::vector<float> q = waves(32, 0.37);
  std::vector<float> k = waves(32, 0.91);
  const posenc::view query{q.data(), {.tokens = 1, .dim = 32}};
  const posenc::view key{k.data(), {.tokens = 1, .dim = 32}};
  // [xpos]
  // Queries and keys are scaled the opposite way around the centre, which is one number for the whole model.
  const posenc::xpos<float> encoder{{.head_dim = 32, .scale_base = 512, .centre = 0}};
  encoder.rotate_queries(query, posenc::positions::from(700));
  encoder.rotate_keys(key, posenc::positions::from(600));
  encoder.shift(key, -50);  // a cached key, from 600 to 550
  // [/xpos]
  std::vector<float> direct = waves(32, 0.91);
  encoder.rotate_keys(posenc::view(direct.data(), {.tokens = 1, .dim = 32}), posenc::positions::from(550));
  return largest_difference(k, direct) < 2e-6f;
}

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

  const auto also = [&](const char* what, bool holds) {
    std::printf("%s: %s\n", what, holds ? "as expected" : "wrong");
    good = good && holds;
  };
  also("inverse and adjoint", inverse_and_adjoint());
  also("weights of the other layout", permuted_weights());
  also("time, height and width", several_axes());
  also("frequencies per head, V-JEPA 2", own_frequencies());
  also("one row for queries and keys", one_row());
  also("xPos after a shift", fading());

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
