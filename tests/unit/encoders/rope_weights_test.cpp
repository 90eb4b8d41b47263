// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/rope_weights.hpp>

#include <algorithm>
#include <numeric>

using posenc::half_split;
using posenc::interleaved;
using posenc::rope_relayout;
using posenc_test::refusal;

namespace {
using indices = std::vector<std::int64_t>;

constexpr rope_relayout to_half(std::int64_t dim) { return {.head_dim = dim, .from = interleaved, .to = half_split}; }
constexpr rope_relayout to_interleaved(std::int64_t dim) {
  return {.head_dim = dim, .from = half_split, .to = interleaved};
}

/// y = W x with W [rows, inputs] row-major.
std::vector<double> product(const std::vector<double>& w, const std::vector<double>& x) {
  std::vector<double> y(w.size() / x.size());
  for (std::size_t r = 0; r < y.size(); ++r)
    y[r] = std::inner_product(x.begin(), x.end(), w.begin() + static_cast<std::ptrdiff_t>(r * x.size()), 0.0);
  return y;
}

std::vector<double> rotated(std::vector<double> x, std::int64_t heads, posenc::rope_options o, std::int64_t at) {
  posenc::rope<double>(o).rotate(posenc::view(x.data(), {.tokens = 1, .heads = heads, .dim = o.head_dim}),
                                 posenc::positions::from(at));
  return x;
}
}  // namespace

TEST_CASE("rope weights: the permutation of eight channels and its inverse", "[rope_weights]") {
  CHECK(posenc::rope_permutation(to_half(8)) == indices{0, 2, 4, 6, 1, 3, 5, 7});
  CHECK(posenc::rope_permutation(to_interleaved(8)) == indices{0, 4, 1, 5, 2, 6, 3, 7});
  CHECK(posenc::rope_permutation({.head_dim = 4, .from = half_split, .to = half_split}) == indices{0, 1, 2, 3});
  CHECK(posenc::rope_permutation({.head_dim = 2, .from = half_split, .to = interleaved}) == indices{0, 1});
}

TEST_CASE("rope weights: only the rotated block of each head moves", "[rope_weights]") {
  const rope_relayout how{.head_dim = 7, .rotary_dim = 4, .offset = 2, .from = interleaved, .to = half_split};
  CHECK(posenc::rope_permutation(how) == indices{0, 1, 2, 4, 3, 5, 6});
  CHECK(posenc::rope_row_permutation(2, how) == indices{0, 1, 2, 4, 3, 5, 6, 7, 8, 9, 11, 10, 12, 13});
  CHECK(posenc::rope_row_permutation(0, how).empty());
}

// A converter that writes interleaved weights from half-split ones: each head as (2, d / 2), axes swapped, flattened.
TEST_CASE("rope weights: half to interleaved is the swap of (2, d / 2)", "[rope_weights]") {
  const std::int64_t heads = 3, dim = 10, inputs = 4;
  const auto w = posenc_test::values<float>(heads * dim * inputs);
  std::vector<float> swapped;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < dim / 2; ++i)
      for (std::int64_t side = 0; side < 2; ++side)
        for (std::int64_t c = 0; c < inputs; ++c)
          swapped.push_back(w[static_cast<std::size_t>(((h * 2 + side) * (dim / 2) + i) * inputs + c)]);
  auto in_place = w;
  posenc::relayout_rows(std::span(in_place), heads, inputs, to_interleaved(dim));
  CHECK(in_place == swapped);
  std::vector<float> out(w.size());
  posenc::relayout_rows_to(std::span<const float>(w), std::span(out), heads, inputs, to_interleaved(dim));
  CHECK(out == swapped);
  // A permuted copy by the indices alone.
  const indices rows = posenc::rope_row_permutation(heads, to_interleaved(dim));
  for (std::size_t r = 0; r < rows.size(); ++r)
    CHECK(std::equal(swapped.begin() + static_cast<std::ptrdiff_t>(r * 4),
                     swapped.begin() + static_cast<std::ptrdiff_t>(r * 4 + 4), w.begin() + rows[r] * 4));
}

TEST_CASE("rope weights: both ways give back every bit, for any block", "[rope_weights]") {
  posenc_test::random_source random(71);
  for (int n = 0; n < 200; ++n) {
    const std::int64_t r = 2 * random.integer(1, 40);
    const std::int64_t offset = random.integer(0, 5);
    const std::int64_t dim = r + offset + random.integer(0, 5);
    const std::int64_t heads = random.integer(1, 4);
    const std::int64_t inputs = random.integer(1, 5);
    CAPTURE(r, offset, dim, heads, inputs);
    rope_relayout how{.head_dim = dim, .rotary_dim = r, .offset = offset, .from = interleaved, .to = half_split};
    const auto w = posenc_test::values<double>(heads * dim * inputs, n);
    auto x = w;
    posenc::relayout_rows(std::span(x), heads, inputs, how);
    CHECK((x != w) == (r > 2));
    std::vector<double> y(w.size());
    posenc::relayout_rows_to(std::span<const double>(w), std::span(y), heads, inputs, how);
    CHECK(x == y);
    const indices forth = posenc::rope_permutation(how);
    std::swap(how.from, how.to);
    posenc::relayout_rows(std::span(x), heads, inputs, how);
    CHECK(x == w);
    const indices back = posenc::rope_permutation(how);
    for (std::size_t i = 0; i < forth.size(); ++i)
      CHECK(back[static_cast<std::size_t>(forth[i])] == static_cast<std::int64_t>(i));
  }
}

// half(P x) = P interleaved(x), bit for bit: the same products of the same numbers.
TEST_CASE("rope weights: permuted channels under the other layout are the permuted result", "[rope_weights]") {
  posenc_test::random_source random(5);
  for (int n = 0; n < 60; ++n) {
    const std::int64_t r = 2 * random.integer(1, 32);
    const std::int64_t offset = random.integer(0, 3);
    const std::int64_t dim = r + offset + random.integer(0, 3);
    const std::int64_t heads = random.integer(1, 3);
    const std::int64_t at = random.integer(-100000, 100000);
    CAPTURE(r, offset, dim, heads, at);
    const rope_relayout how{.head_dim = dim, .rotary_dim = r, .offset = offset, .from = interleaved, .to = half_split};
    posenc::rope_options o{.head_dim = dim, .rotary_dim = r, .offset = offset, .layout = interleaved};
    const auto x = posenc_test::values<double>(heads * dim, n);
    auto expected = rotated(x, heads, o, at);
    posenc::relayout_rows(std::span(expected), heads, 1, how);
    auto px = x;
    posenc::relayout_rows(std::span(px), heads, 1, how);
    o.layout = half_split;
    CHECK(posenc_test::largest_difference(rotated(px, heads, o, at), expected) <= 4e-16);
  }
}

// Grouped queries: 4 query heads over 2 key heads, biases and shared norm gains; scores do not change.
TEST_CASE("rope weights: a converted model gives the same scores", "[rope_weights]") {
  const std::int64_t dim = 12, rotary = 8, inputs = 5, query_heads = 4, key_heads = 2;
  const rope_relayout how{.head_dim = dim, .rotary_dim = rotary, .from = half_split, .to = interleaved};
  auto wq = posenc_test::values<double>(query_heads * dim * inputs, 1);
  auto wk = posenc_test::values<double>(key_heads * dim * inputs, 2);
  auto bq = posenc_test::values<double>(query_heads * dim, 3);
  auto bk = posenc_test::values<double>(key_heads * dim, 4);
  auto gain = posenc_test::values<double>(dim, 5);
  const auto x = posenc_test::values<double>(inputs, 6);

  const auto scores = [&](posenc::rope_layout layout) {
    const posenc::rope_options o{.head_dim = dim, .rotary_dim = rotary, .layout = layout};
    const auto side = [&](const std::vector<double>& w, const std::vector<double>& b, std::int64_t heads,
                          std::int64_t at) {
      auto y = product(w, x);
      for (std::size_t i = 0; i < y.size(); ++i) y[i] = (y[i] + b[i]) * gain[i % static_cast<std::size_t>(dim)];
      return rotated(y, heads, o, at);
    };
    const auto q = side(wq, bq, query_heads, 911);
    const auto k = side(wk, bk, key_heads, 30);
    std::vector<double> s;
    for (std::int64_t h = 0; h < query_heads; ++h)
      s.push_back(std::inner_product(q.begin() + h * dim, q.begin() + (h + 1) * dim, k.begin() + h / 2 * dim, 0.0));
    return s;
  };
  const auto before = scores(half_split);
  // [convert]
  posenc::relayout_rows(std::span(wq), query_heads, inputs, how);
  posenc::relayout_rows(std::span(wk), key_heads, inputs, how);
  posenc::relayout_rows(std::span(bq), query_heads, 1, how);
  posenc::relayout_rows(std::span(bk), key_heads, 1, how);
  posenc::relayout_rows(std::span(gain), 1, 1, how);  // gains of a norm that all heads share
  // [/convert]
  CHECK(posenc_test::largest_difference(scores(interleaved), before) < 1e-14);
  CHECK(posenc_test::largest_difference(scores(half_split), before) > 1e-3);  // the other layout is another model
}

TEST_CASE("rope weights: cached keys, in any memory order", "[rope_weights]") {
  const posenc::shape s{.batch = 2, .tokens = 3, .heads = 2, .dim = 6};
  auto packed = posenc_test::values<float>(s.elements());
  auto by_head = packed;
  const posenc::view tokens_first{packed.data(), s};
  const posenc::view heads_first{by_head.data(), s, posenc::head_major(s)};
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t t = 0; t < 3; ++t)
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t d = 0; d < 6; ++d) heads_first(b, t, h, d) = tokens_first(b, t, h, d);
  std::vector<float> before;
  for (std::int64_t d = 0; d < 6; ++d) before.push_back(tokens_first(1, 2, 1, d));
  posenc::relayout(tokens_first, to_half(6));
  posenc::relayout(heads_first, to_half(6));
  for (const std::int64_t d : {0, 1, 2, 3, 4, 5}) {
    const auto from = before[static_cast<std::size_t>(d < 3 ? 2 * d : 2 * (d - 3) + 1)];
    CHECK(tokens_first(1, 2, 1, d) == from);
    CHECK(heads_first(1, 2, 1, d) == from);
  }
  // Into itself.
  auto again = packed;
  posenc::relayout_to(posenc::view<const float>(tokens_first), tokens_first, to_interleaved(6));
  posenc::relayout(posenc::view{again.data(), s}, to_interleaved(6));
  CHECK(packed == again);
}

TEST_CASE("rope weights: what is refused, and how", "[rope_weights]") {
  std::vector<float> w(64 * 3, 1.0f);
  const auto refused = [&](std::int64_t heads, std::int64_t inputs, const rope_relayout& how) {
    return refusal([&] { posenc::relayout_rows(std::span(w), heads, inputs, how); });
  };
  // Wk given with the count of query heads.
  CHECK(refused(8, 3, to_half(16)) ==
        "posenc::projection_rows: rows must hold heads * head_dim * inputs elements, got 192");
  CHECK(refused(4, 0, to_half(16)) == "posenc::projection_rows: inputs must be at least 1, got 0");
  CHECK(refused(-1, 3, to_half(16)) == "posenc::projection_rows: heads must not be negative, got -1");
  CHECK(refused(4, 3, {.head_dim = 16, .rotary_dim = 5}) ==
        "posenc::rope_permutation: rotary_dim must be even and at least 2, got 5");
  CHECK(refused(4, 3, {.head_dim = 16, .rotary_dim = 0}) ==
        "posenc::rope_permutation: rotary_dim must be even and at least 2, got 0");
  CHECK(refused(4, 3, {.head_dim = 16, .rotary_dim = 12, .offset = 5}) ==
        "posenc::rope_permutation: offset must lie in 0..head_dim - rotary_dim, got 5");
  CHECK(refused(4, 3, {.head_dim = 16, .rotary_dim = 12, .offset = -1}) ==
        "posenc::rope_permutation: offset must lie in 0..head_dim - rotary_dim, got -1");
  CHECK(refusal([] { (void)posenc::rope_permutation({.head_dim = 0}); }) ==
        "posenc::rope_permutation: head_dim must be at least 1, got 0");
  CHECK(refusal([] { (void)posenc::rope_row_permutation(-2, to_half(4)); }) ==
        "posenc::rope_row_permutation: heads must not be negative, got -2");
  const posenc::view x{w.data(), {.tokens = 2, .dim = 8}};
  CHECK(refusal([&] { posenc::relayout(x, to_half(4)); }) == "posenc::relayout: dim must equal head_dim, got 8");
  const posenc::view shifted{w.data() + 4, {.tokens = 2, .dim = 8}};
  CHECK(refusal([&] { posenc::relayout_to(x, shifted, to_half(8)); }) ==
        "posenc::relayout_to: out must be in itself or not overlap it, got overlapping memory");
  CHECK(std::all_of(w.begin(), w.end(), [](float v) { return v == 1.0f; }));
}
