// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/dense_attention.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/decomposed_bias.hpp>

using posenc::view;
using posenc_test::refusal;
using posenc_test::values;

namespace {

/// The row of an axis table of 2 max(q, k) - 1 rows, in long double with a guard against a quotient just below a whole
/// number.
std::int64_t axis_row(std::int64_t i, std::int64_t j, std::int64_t q, std::int64_t k) {
  const long double down = std::max(static_cast<long double>(k) / static_cast<long double>(q), 1.0L);
  const long double up = std::max(static_cast<long double>(q) / static_cast<long double>(k), 1.0L);
  return static_cast<std::int64_t>(std::trunc(static_cast<long double>(i) * down - static_cast<long double>(j) * up +
                                              static_cast<long double>(k - 1) * up + 1e-12L));
}

struct shapes {
  posenc::window_shape queries;
  posenc::window_shape keys;
  std::int64_t class_tokens;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t dim;
};

dense::tensor tensor_of(const std::vector<double>& x, std::int64_t batch, std::int64_t tokens, std::int64_t heads,
                        std::int64_t dim) {
  dense::tensor t(batch, tokens, heads, dim);
  t.data = x;
  return t;
}

/// Attention with the bias from its definition; tables that need no resize.
std::vector<double> expected(const shapes& s, const std::vector<double>& q, const std::vector<double>& k,
                             const std::vector<double>& v, const std::vector<double>& rh, const std::vector<double>& rw,
                             double scale) {
  const std::int64_t nq = s.class_tokens + s.queries.height * s.queries.width;
  const std::int64_t nk = s.class_tokens + s.keys.height * s.keys.width;
  const dense::tensor queries = tensor_of(q, 2, nq, s.heads, s.dim);
  const auto logit = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, double score) {
    const std::int64_t a = i - s.class_tokens;
    const std::int64_t c = j - s.class_tokens;
    if (a < 0 || c < 0) return score;
    const std::int64_t y = axis_row(a / s.queries.width, c / s.keys.width, s.queries.height, s.keys.height);
    const std::int64_t x = axis_row(a % s.queries.width, c % s.keys.width, s.queries.width, s.keys.width);
    for (std::int64_t d = 0; d < s.dim; ++d)
      score += queries(b, i, h, d) *
               (rh[static_cast<std::size_t>(y * s.dim + d)] + rw[static_cast<std::size_t>(x * s.dim + d)]);
    return score;
  };
  return dense::attention({.q = queries,
                           .k = tensor_of(k, 2, nk, s.kv_heads, s.dim),
                           .v = tensor_of(v, 2, nk, s.kv_heads, s.dim),
                           .scale = scale,
                           .logit = logit})
      .out.data;
}

template <class T>
void compare(const shapes& s, double bound) {
  const std::int64_t nq = s.class_tokens + s.queries.height * s.queries.width;
  const std::int64_t nk = s.class_tokens + s.keys.height * s.keys.width;
  const auto rows = [](std::int64_t a, std::int64_t b) { return 2 * std::max(a, b) - 1; };
  const auto rounded = [](std::vector<double> x) {
    for (double& each : x) each = static_cast<double>(static_cast<float>(each));
    return x;
  };
  const auto rh = rounded(values<double>(rows(s.queries.height, s.keys.height) * s.dim, 4));
  const auto rw = rounded(values<double>(rows(s.queries.width, s.keys.width) * s.dim, 5));
  const auto q = rounded(values<double>(2 * nq * s.heads * s.dim, 1));
  const auto k = rounded(values<double>(2 * nk * s.kv_heads * s.dim, 2));
  const auto v = rounded(values<double>(2 * nk * s.kv_heads * s.dim, 3));
  const std::vector<T> tq(q.begin(), q.end()), tk(k.begin(), k.end()), tv(v.begin(), v.end());
  const std::vector<T> th(rh.begin(), rh.end()), tw(rw.begin(), rw.end());
  const posenc::decomposed_bias<T> e(
      {.queries = s.queries, .keys = s.keys, .dim = s.dim, .class_tokens = s.class_tokens}, th, tw);
  const posenc::shape sq{.batch = 2, .tokens = nq, .heads = s.heads, .dim = s.dim};
  const posenc::shape sk{.batch = 2, .tokens = nk, .heads = s.kv_heads, .dim = s.dim};
  const double scale = 0.3;
  const auto right = expected(s, q, k, v, rh, rw, scale);
  std::vector<T> out(tq.size());
  posenc::attention(view{tq.data(), sq}, view{tk.data(), sk}, view{tv.data(), sk}, view{out.data(), sq}, e,
                    {.scale = scale});
  CHECK(posenc_test::largest_difference(out, right) < bound);
  std::fill(out.begin(), out.end(), T(0));
  posenc::attention_reference(view{tq.data(), sq}, view{tk.data(), sk}, view{tv.data(), sk}, view{out.data(), sq}, e,
                              {.scale = scale});
  CHECK(posenc_test::largest_difference(out, right) < bound);
}

}  // namespace

TEST_CASE("decomposed_bias: attention, square, oblong, pooled, with a class token and grouped heads",
          "[decomposed_bias]") {
  for (const shapes& s : {shapes{{4, 4}, {4, 4}, 0, 2, 2, 8}, shapes{{3, 5}, {3, 5}, 1, 2, 1, 6},
                          shapes{{2, 3}, {4, 6}, 1, 4, 2, 12}, shapes{{6, 4}, {3, 2}, 0, 1, 1, 5},
                          // More keys than a tile has, on rows that tiles cut.
                          shapes{{2, 19}, {9, 38}, 1, 2, 2, 8}}) {
    CAPTURE(s.queries.height, s.keys.height, s.class_tokens);
    compare<double>(s, 1e-13);
    compare<float>(s, 1e-5);
  }
}

TEST_CASE("decomposed_bias: under a mask that hides the first and last keys", "[decomposed_bias]") {
  const auto rh = values<double>(5 * 8, 1);
  const auto rw = values<double>(9 * 8, 2);
  const auto q = values<double>(16 * 8, 3);
  const posenc::decomposed_bias<double> e({.queries = {3, 5}, .keys = {3, 5}, .dim = 8, .class_tokens = 1}, rh, rw);
  const posenc::shape shape{.tokens = 16, .dim = 8};
  std::vector<double> out(q.size()), lines(q.size());
  const auto policy = posenc::compose(e, posenc::sliding_window{5});
  posenc::attention(view{q.data(), shape}, view{q.data(), shape}, view{q.data(), shape}, view{out.data(), shape},
                    policy);
  const auto right =
      dense::attention(
          {.q = tensor_of(q, 1, 16, 1, 8),
           .k = tensor_of(q, 1, 16, 1, 8),
           .v = tensor_of(q, 1, 16, 1, 8),
           .scale = 1 / std::sqrt(8.0),
           .logit =
               [&](std::int64_t, std::int64_t, std::int64_t i, std::int64_t j, double score) {
                 if (i == 0 || j == 0) return score;
                 const std::int64_t y = (i - 1) / 5 - (j - 1) / 5 + 2;
                 const std::int64_t x = (i - 1) % 5 - (j - 1) % 5 + 4;
                 for (std::int64_t d = 0; d < 8; ++d)
                   score += q[static_cast<std::size_t>(i * 8 + d)] *
                            (rh[static_cast<std::size_t>(y * 8 + d)] + rw[static_cast<std::size_t>(x * 8 + d)]);
                 return score;
               },
           .visible = [](std::int64_t, std::int64_t, std::int64_t i, std::int64_t j) { return j <= i && j > i - 5; }})
          .out.data;
  CHECK(posenc_test::largest_difference(out, right) < 1e-13);
}

TEST_CASE("decomposed_bias: the terms of one query, unscaled", "[decomposed_bias]") {
  const auto rh = values<double>(3 * 4, 1);
  const auto rw = values<double>(5 * 4, 2);
  const posenc::decomposed_bias<double> e({.queries = {2, 3}, .keys = {2, 3}, .dim = 4, .class_tokens = 1}, rh, rw);
  const std::vector<float> q{1, -7, 2, -7, 3, -7, 4};
  std::vector<double> h(2), w(3);
  e.terms(q.data(), 2, 5, std::span<double>(h), std::span<double>(w));  // token 4: y = 1, x = 1
  const auto product = [&](const std::vector<double>& table, std::int64_t row) {
    double sum = 0;
    for (std::size_t d = 0; d < 4; ++d)
      sum += static_cast<double>(d + 1) * table[static_cast<std::size_t>(row) * 4 + d];
    return sum;
  };
  CHECK(h[0] == Approx(product(rh, 2)).epsilon(1e-14));
  CHECK(h[1] == Approx(product(rh, 1)).epsilon(1e-14));
  CHECK(w[0] == Approx(product(rw, 3)).epsilon(1e-14));
  CHECK(w[2] == Approx(product(rw, 1)).epsilon(1e-14));
  CHECK(refusal<std::out_of_range>([&] { e.terms(q.data(), 2, 0, std::span<double>(h), std::span<double>(w)); }) ==
        "posenc::decomposed_bias::terms: query index must be that of a token of the image, got 0");
  CHECK(refusal<std::out_of_range>([&] { e.terms(q.data(), 2, 7, std::span<double>(h), std::span<double>(w)); }) ==
        "posenc::decomposed_bias::terms: query index must be that of a token of the image, got 7");
  CHECK(refusal([&] { e.terms(q.data(), 2, 1, std::span<double>(w), std::span<double>(w)); }) ==
        "posenc::decomposed_bias::terms: rel_h must hold one value per key row, got 3");
}

TEST_CASE("window_axis_index and window_axis_rows: every pair of sizes, and a table that is resampled",
          "[decomposed_bias]") {
  std::size_t broken = 0;
  for (std::int64_t q = 1; q <= 20; ++q)
    for (std::int64_t k = 1; k <= 20; ++k) {
      const auto index = posenc::window_axis_index(q, k);
      for (std::int64_t i = 0; i < q; ++i)
        for (std::int64_t j = 0; j < k; ++j)
          broken += index[static_cast<std::size_t>(i * k + j)] != axis_row(i, j, q, k);
    }
  CHECK(broken == 0);
  // Three rows become five: sources -0.2 (held at 0), 0.4, 1, 1.6, 2.2 (held at 2).
  const std::vector<double> table{0, 10, 100};
  const auto rows = posenc::window_axis_rows<double>(3, 3, 1, table);
  const std::vector<double> five{0, 4, 10, 64, 100};
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 3; ++j) CHECK(rows[i * 3 + j] == Approx(five[i + 2 - j]).epsilon(0).margin(1e-12));
  CHECK(refusal([&] { (void)posenc::window_axis_rows<double>(3, 3, 2, table); }) ==
        "posenc::window_axis_rows: rel_pos must hold at least one row of dim values, got 3");
  CHECK(refusal([&] { (void)posenc::window_axis_rows<double>(3, 3, 0, table); }) ==
        "posenc::window_axis_rows: dim must be at least 1, got 0");
  CHECK(refusal([&] { (void)posenc::window_axis_index(0, 3); }) ==
        "posenc::window_axis_index: sizes must have sides of at least 1 and at most 32768 tokens, got 0 x 3");
}

TEST_CASE("decomposed_bias: refusals and description", "[decomposed_bias]") {
  const auto table = values<float>(40);
  const posenc::decomposed_bias<float> e({.queries = {2, 3}, .keys = {2, 3}, .dim = 4}, std::span(table).first(12),
                                         std::span(table).first(20));
  const auto q = values<float>(100);
  std::vector<float> out(100);
  const auto run = [&](std::int64_t queries, std::int64_t keys, std::int64_t dim) {
    return refusal([&] {
      posenc::attention_reference(
          view{q.data(), {.tokens = queries, .dim = dim}}, view{q.data(), {.tokens = keys, .dim = dim}},
          view{q.data(), {.tokens = keys, .dim = dim}}, view{out.data(), {.tokens = queries, .dim = dim}}, e);
    });
  };
  CHECK(run(6, 6, 4) == "nothing thrown");
  CHECK(run(5, 6, 4) == "posenc::decomposed_bias: queries must be the window's tokens, got 5");
  CHECK(run(6, 7, 4) == "posenc::decomposed_bias: keys must be the window's tokens, got 7");
  CHECK(run(6, 6, 8) == "posenc::decomposed_bias: dim must equal that of its tables, got 8");
  CHECK(
      refusal([&] {
        posenc::decomposed_bias<float>({.queries = {2, 3}, .keys = {2, 3}, .dim = 4, .class_tokens = -1}, table, table);
      }) == "posenc::decomposed_bias: class_tokens must lie in 0..1024, got -1");
  CHECK(refusal([&] {
          posenc::decomposed_bias<float>({.queries = {2, 3}, .keys = {2, 3}}, table, table);
        }) == "posenc::decomposed_bias: dim must be at least 1, got 0");
  CHECK(e.describe().parameters == 32);
  CHECK(e.describe().table_bytes == (4 * (2 * 2 + 3 * 3) + 2 * posenc::lane_slack) * 4);
  CHECK(e.describe().position_limit == 6);
}

TEST_CASE("a scale of 0, as ssmax gives a row that sees one key, leaves the bias of the unscaled query") {
  constexpr std::int64_t side = 3, tokens = side * side, dim = 4;
  std::vector<float> axis((2 * side - 1) * dim), q(tokens * dim), v(tokens * dim, 1.0f), out(tokens * dim);
  for (std::size_t i = 0; i < axis.size(); ++i) axis[i] = 0.1f * static_cast<float>(i % 7);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = 0.2f * static_cast<float>(i % 5) - 0.3f;
  const posenc::decomposed_bias<float> bias({.queries = {side, side}, .keys = {side, side}, .dim = dim}, axis, axis);
  const posenc::shape s{.tokens = tokens, .dim = dim};
  const posenc::shape scores{.tokens = tokens, .dim = tokens};
  std::vector<float> with(tokens * tokens), without(with.size());
  const auto run = [&](double scale, std::vector<float>& logits) {
    posenc::attention_reference(posenc::view(q.data(), s), posenc::view(q.data(), s), posenc::view(v.data(), s),
                                posenc::view(out.data(), s), bias,
                                {.scale = scale, .logits = posenc::view(logits.data(), scores)});
  };
  run(0.0, with);
  run(1.0, without);
  for (std::int64_t i = 0; i < tokens; ++i)
    for (std::int64_t j = 0; j < tokens; ++j) {
      float product = 0;
      for (std::int64_t d = 0; d < dim; ++d)
        product += q[static_cast<std::size_t>(i * dim + d)] * q[static_cast<std::size_t>(j * dim + d)];
      const auto at = static_cast<std::size_t>(i * tokens + j);
      CHECK(with[at] == Approx(without[at] - product).epsilon(0).margin(2e-6));
    }
}
