// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Biases of image windows: a table by offsets, shifted windows, a table for another size, Swin v2's network, and the
// decomposed bias of SAM.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/bias.hpp>
#include <posenc/attention/mask_tensor.hpp>
#include <posenc/encoders/continuous_bias.hpp>
#include <posenc/encoders/decomposed_bias.hpp>
#include <posenc/encoders/window_bias.hpp>

#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

int main() {
  bool good = true;
  constexpr std::int64_t heads = 2;

  // [index]
  // Which entry of its table a pair of tokens of a 2 x 3 window takes, query first.
  const std::vector<std::int32_t> index = posenc::window_index(posenc::window_kind::swin, {2, 3});
  // [/index]
  std::printf("token 0 asks token 5: entry %d; token 5 asks token 0: entry %d\n", index[0 * 6 + 5], index[5 * 6 + 0]);
  good = good && index[0 * 6 + 5] == 0 && index[5 * 6 + 0] == 14 && index[0] == 7;

  // [window]
  // Swin: windows of 4 x 4 tokens are the batch rows of the call; table is [49, heads].
  std::vector<float> table(49 * heads);
  for (std::size_t entry = 0; entry < 49; ++entry) table[entry * heads + 1] = static_cast<float>(entry);
  const posenc::window_bias<float> bias({.heads = heads, .window = {4, 4}}, table);
  // [/window]
  constexpr std::int64_t tokens = 16;
  constexpr std::int64_t windows = 2;
  const posenc::shape shape{.batch = windows, .tokens = tokens, .heads = heads, .dim = 4};
  std::vector<float> q(static_cast<std::size_t>(shape.elements()), 0.0f);
  std::vector<float> v(q);
  std::vector<float> out(q);
  // Every value is the number of its token.
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i / 8 % tokens);
  const posenc::view queries{q.data(), shape};
  const posenc::view values{v.data(), shape};
  const posenc::view result{out.data(), shape};

  // [shifted]
  // A shifted window holds parts of the image that do not touch: the caller's mask keeps them apart, here the left half
  // of the second window from its right half.
  std::vector<float> mask(windows * tokens * tokens, 0.0f);
  for (std::size_t i = 0; i < tokens; ++i)
    for (std::size_t j = 0; j < tokens; ++j)
      if (i % 4 / 2 != j % 4 / 2) mask[(tokens + i) * tokens + j] = -std::numeric_limits<float>::infinity();
  posenc::attention(queries, queries, values, result,
                    posenc::compose(bias, posenc::additive_mask<float>(
                                              mask.data(), {.batch = windows, .queries = tokens, .keys = tokens})));
  // [/shifted]
  // Head 0 has no bias. In the first window it sees the mean of all tokens, in the second one that of its half: columns
  // 0 and 1 have the mean 6.5, columns 2 and 3 have 8.5.
  std::printf("head 0: window 0 %.4f, window 1 left %.4f, right %.4f\n", static_cast<double>(out[0]),
              static_cast<double>(result(1, 0, 0, 0)), static_cast<double>(result(1, 2, 0, 0)));
  good = good && std::fabs(out[0] - 7.5f) < 1e-5f && std::fabs(result(1, 0, 0, 0) - 6.5f) < 1e-5f &&
         std::fabs(result(1, 2, 0, 0) - 8.5f) < 1e-5f;
  // Head 1 likes large entries: the key as far up and left as there is.
  good = good && result(0, 15, 1, 0) < 0.6f;

  // [resize]
  // The table for windows of 8 x 8, resampled over the grid of offsets as Swin does.
  const std::vector<float> larger =
      posenc::resize_window_table<float>(posenc::window_kind::swin, {4, 4}, {8, 8}, table);
  const posenc::window_bias<float> larger_bias({.heads = heads, .window = {8, 8}}, larger);
  // [/resize]
  // The centre stays where it was: entry 24 of 49 became entry 112 of 225.
  std::printf("offset 0: %.4f before, %.4f after\n", static_cast<double>(table[24 * heads + 1]),
              static_cast<double>(larger[112 * heads + 1]));
  good = good && larger.size() == 225 * heads && std::fabs(larger[112 * heads + 1] - 24.0f) < 1e-4f &&
         larger_bias.keys() == 64;

  // [continuous]
  // Swin v2: a network of the offset, evaluated here, 49 times; trained on windows of 3 x 3.
  const std::vector<float> weight1{1, 0};  // [hidden, 2], (y, x)
  const std::vector<float> bias1{0};
  const std::vector<float> weight2{1, -1};  // [heads, hidden]
  const posenc::continuous_bias<float> continuous({.heads = heads, .window = {4, 4}, .trained = {3, 3}},
                                                  {.weight1 = weight1, .bias1 = bias1, .weight2 = weight2});
  // [/continuous]
  // A query three rows below its key: y = log2(8 * 3 / 2 + 1) / 3, and 16 sigmoid(y) for head 0.
  const double expected = 16 / (1 + std::exp(-std::log2(13.0) / 3));
  std::printf("three rows below: %.6f, %.6f expected\n", static_cast<double>(continuous.window().line(0, 12)[0]),
              expected);
  good = good && std::fabs(static_cast<double>(continuous.window().line(0, 12)[0]) - expected) < 1e-6;

  // [decomposed]
  // SAM: what a query says to a row and to a column; tables of a 3 x 3 window (5 rows) for one of 4 x 4 (7 rows).
  const std::vector<float> rel_pos_h{0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0};
  const std::vector<float> rel_pos_w(20, 0.0f);
  const posenc::decomposed_bias<float> decomposed({.queries = {4, 4}, .keys = {4, 4}, .dim = 4}, rel_pos_h, rel_pos_w);
  posenc::attention(queries, queries, values, result, decomposed);
  // [/decomposed]
  // The terms of a query (1, 0, 0, 0) of the first row: the resampled table, from the middle down.
  const std::vector<float> query{1, 0, 0, 0};
  std::vector<float> rel_h(4);
  std::vector<float> rel_w(4);
  decomposed.terms(query.data(), 1, 0, std::span<float>(rel_h), std::span<float>(rel_w));
  std::printf("terms of the rows: %.4f %.4f %.4f %.4f\n", static_cast<double>(rel_h[0]), static_cast<double>(rel_h[1]),
              static_cast<double>(rel_h[2]), static_cast<double>(rel_h[3]));
  good = good && std::fabs(rel_h[0] - 2.0f) < 1e-6f && std::fabs(rel_h[1] - (2 - 5.0f / 7)) < 1e-6f &&
         rel_h[3] == 0.0f && rel_w[2] == 0.0f;
  // Queries of zero say nothing: the mean of all tokens.
  good = good && std::fabs(result(1, 9, 1, 0) - 7.5f) < 1e-5f;

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
