// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Faults that were reported against other code of T5's relative bias and of ALiBi.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/bias.hpp>
#include <posenc/attention/index_masks.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/position_ids.hpp>
#include <posenc/encoders/relative_bucket.hpp>

#include "support/catch.hpp"

#include <array>
#include <cmath>
#include <random>
#include <vector>

namespace {

using posenc::positions;
using posenc::view;

/// [queries, keys] of one head.
template <class Policy>
std::vector<double> bias_of(const Policy& policy, std::int64_t heads, std::int64_t head, const positions& query_at,
                            std::int64_t queries, const positions& key_at, std::int64_t keys) {
  std::vector<double> all(static_cast<std::size_t>(heads * queries * keys));
  posenc::fill_bias<double>(policy, heads, query_at, queries, key_at, keys, all);
  const auto first = all.begin() + head * queries * keys;
  return {first, first + queries * keys};
}
posenc::alibi<double> one_head(double slope, posenc::alibi_form form = posenc::alibi_form::symmetric) {
  return posenc::alibi<double>(std::vector<double>{slope}, form);
}
std::vector<double> numbers(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> draw(-1, 1);
  std::vector<double> x(n);
  for (double& e : x) e = draw(random);
  return x;
}

}  // namespace

TEST_CASE("F44: buckets start at exact distances") {
  const std::vector<double> table(32);
  const posenc::relative_bucket<double> both({.heads = 1}, table);
  const posenc::relative_bucket<double> causal({.heads = 1, .bidirectional = false}, table);
  const auto check = [](const auto& t5, std::int64_t sign, std::int64_t add,
                        std::vector<std::array<std::int64_t, 2>> starts) {
    std::int64_t bucket = -1;
    for (std::int64_t n = sign > 0 ? 1 : 0; n <= 1000; ++n) {
      for (const auto& [start, value] : starts)
        if (start == n) bucket = value;
      INFO("distance " << sign * n);
      CHECK(t5.bucket(sign * n) == bucket + add);
    }
  };
  std::vector<std::array<std::int64_t, 2>> starts;
  for (std::int64_t n = 0; n < 8; ++n) starts.push_back({n, n});
  for (const auto& s : std::vector<std::array<std::int64_t, 2>>{
           {8, 8}, {12, 9}, {16, 10}, {23, 11}, {32, 12}, {46, 13}, {64, 14}, {91, 15}})
    starts.push_back(s);
  check(both, -1, 0, starts);
  check(both, 1, 16, starts);
  starts.clear();
  for (std::int64_t n = 0; n < 16; ++n) starts.push_back({n, n});
  for (const auto& s : std::vector<std::array<std::int64_t, 2>>{{16, 16},
                                                                {19, 17},
                                                                {21, 18},
                                                                {24, 19},
                                                                {27, 20},
                                                                {31, 21},
                                                                {35, 22},
                                                                {40, 23},
                                                                {46, 24},
                                                                {52, 25},
                                                                {59, 26},
                                                                {67, 27},
                                                                {77, 28},
                                                                {87, 29},
                                                                {99, 30},
                                                                {113, 31}})
    starts.push_back(s);
  check(causal, -1, 0, starts);
  for (std::int64_t n = 1; n < 200; ++n) CHECK(causal.bucket(n) == 0);

  // Bounds that are exact powers, where other orders of operation fall one short.
  CHECK(both.bucket(-64) == 14);
  const std::vector<double> wide(64);
  CHECK(posenc::relative_bucket<double>({.heads = 1, .num_buckets = 64, .max_distance = 256}, wide).bucket(-64) == 24);
  CHECK(posenc::relative_bucket<double>({.heads = 1, .num_buckets = 64, .max_distance = 256}, wide).bucket(-128) == 28);
}

TEST_CASE("F45: cross attention has no bias unless the caller says so, and a table serves every layer") {
  const std::vector<double> table = numbers(32 * 2, 1);
  const posenc::relative_bucket<double> t5({.heads = 2}, table);
  const std::vector<double> x = numbers(2 * 6, 2);
  const view<const double> qkv(x.data(), {.tokens = 3, .heads = 2, .dim = 2});
  std::vector<double> none(12);
  std::vector<double> first(12);
  std::vector<double> sixth(12);
  posenc::attention_reference(qkv, qkv, qkv, view(none.data(), qkv.extents()), posenc::compose());
  posenc::attention_reference(qkv, qkv, qkv, view(first.data(), qkv.extents()), t5);
  posenc::attention_reference(qkv, qkv, qkv, view(sixth.data(), qkv.extents()), t5);
  CHECK(first == sixth);
  CHECK(none != first);
}

TEST_CASE("F46: the bias of a cached step is the last row of the whole") {
  std::vector<double> buckets(32);
  for (std::size_t i = 0; i < 32; ++i) buckets[i] = static_cast<double>(i);
  const posenc::relative_bucket<double> t5({.heads = 1, .bidirectional = false}, buckets);
  const std::vector<double> step = bias_of(t5, 1, 0, positions::from(4), 1, positions::from(0), 5);
  CHECK(step == std::vector<double>{4, 3, 2, 1, 0});
  const std::vector<double> whole = bias_of(t5, 1, 0, positions::from(0), 5, positions::from(0), 5);
  CHECK(std::equal(step.begin(), step.end(), whole.end() - 5));
}

TEST_CASE("F47: slopes of head counts that are not powers of two, never sorted") {
  const auto slopes = [](std::int64_t n) { return posenc::alibi<double>(n).slopes(); };
  CHECK(slopes(1) == std::vector<double>{1.0 / 256});
  CHECK(slopes(3) == std::vector<double>{1.0 / 16, 1.0 / 256, 1.0 / 4});
  CHECK(slopes(6) == std::vector<double>{1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256, 1.0 / 2, 1.0 / 8});
  const std::vector<double> twelve = slopes(12);
  for (std::size_t i = 0; i < 8; ++i) CHECK(twelve[i] == std::exp2(-static_cast<double>(i + 1)));
  const std::array<double, 4> rest{0.707106781, 0.353553391, 0.176776695, 0.088388348};
  for (std::size_t i = 0; i < 4; ++i) CHECK(twelve[8 + i] == Approx(rest[i]).epsilon(0).margin(1e-9));
}

TEST_CASE("F48: eight slopes run from one half to one 256th") {
  const std::vector<double> slopes = posenc::alibi<double>(8).slopes();
  CHECK(slopes.front() == 0.5);
  CHECK(slopes.back() == 0.00390625);
}

TEST_CASE("F49: one query against cached keys has its bias") {
  CHECK(bias_of(one_head(0.5), 1, 0, positions::from(4), 1, positions::from(0), 5) ==
        std::vector<double>{-2, -1.5, -1, -0.5, 0});
  // And attention uses it: equal keys, so that the bias alone decides.
  const std::vector<float> q{1, 1};
  const std::vector<float> k(10, 1);
  std::vector<float> v(5);
  for (std::size_t i = 0; i < 5; ++i) v[i] = static_cast<float>(i);
  float out = 0;
  posenc::attention(view(q.data(), {.tokens = 1, .dim = 2}), view(k.data(), {.tokens = 5, .dim = 2}),
                    view(v.data(), {.tokens = 5, .dim = 1}), view(&out, {.tokens = 1, .dim = 1}),
                    posenc::compose(posenc::alibi<float>(std::vector<float>{0.5f})),
                    {.query_positions = positions::from(4)});
  double total = 0;
  double sum = 0;
  for (int i = 0; i < 5; ++i) {
    const double weight = std::exp(-0.5 * (4 - i));
    total += weight;
    sum += weight * i;
  }
  CHECK(static_cast<double>(out) == Approx(sum / total).epsilon(1e-6));
}

TEST_CASE("F50: the bias at the query's own position is exactly 0") {
  for (const auto form : {posenc::alibi_form::symmetric, posenc::alibi_form::causal})
    for (const std::int64_t p : {std::int64_t{0}, std::int64_t{7}, std::int64_t{1000000}})
      CHECK(bias_of(one_head(0.3, form), 1, 0, positions::from(p), 1, positions::from(p), 1)[0] == 0);
}

TEST_CASE("F51: the bias is a penalty that grows with distance") {
  const std::vector<double> right{-1.5, -1, -0.5, 0};
  CHECK(bias_of(one_head(0.5), 1, 0, positions::from(3), 1, positions::from(0), 4) == right);
  CHECK(bias_of(one_head(0.5, posenc::alibi_form::causal), 1, 0, positions::from(3), 1, positions::from(0), 4) ==
        right);
}

TEST_CASE("F52: the bias of a pair depends on its positions alone, whatever the sizes of the call") {
  const posenc::alibi<double> alibi(3);
  for (std::int64_t queries = 1; queries <= 6; ++queries)
    for (std::int64_t keys = 1; keys <= 6; ++keys)
      for (std::int64_t past = 0; past <= 6; ++past)
        for (std::int64_t h = 0; h < 3; ++h) {
          const std::vector<double> b = bias_of(alibi, 3, h, positions::from(past), queries, positions::from(0), keys);
          for (std::int64_t i = 0; i < queries; ++i)
            for (std::int64_t j = 0; j < keys; ++j)
              REQUIRE(b[static_cast<std::size_t>(i * keys + j)] ==
                      -alibi.slopes()[static_cast<std::size_t>(h)] * std::abs(static_cast<double>(j - past - i)));
        }
}

TEST_CASE("F53: left padding moves neither the key-only form nor the outputs") {
  const posenc::alibi<double> key_only({.heads = 2, .form = posenc::alibi_form::key_only});
  const std::array<std::int64_t, 4> mask{0, 0, 1, 1};
  const std::vector<std::int64_t> ids = posenc::masked_ids<std::int64_t>(mask);
  REQUIRE(ids == std::vector<std::int64_t>{0, 0, 0, 1});  // padding takes any position; here 0
  const std::vector<double> first = bias_of(key_only, 2, 0, positions::listed(ids), 4, positions::listed(ids), 4);
  const std::vector<double> second = bias_of(key_only, 2, 1, positions::listed(ids), 4, positions::listed(ids), 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(std::vector(first.begin() + 4 * static_cast<long>(i), first.begin() + 4 * static_cast<long>(i) + 4) ==
          std::vector<double>{0, 0, 0, 0.0625});
    CHECK(second[4 * i + 3] == 0.00390625);
  }

  const std::vector<double> real = numbers(2 * 2 * 3, 4);  // two real tokens, two heads, width 3
  std::vector<double> padded(4 * 2 * 3, 99);
  std::copy(real.begin(), real.end(), padded.begin() + 12);
  const std::array<std::int64_t, 1> begin{2};
  std::vector<double> alone(12);
  std::vector<double> beside(24);
  const view<const double> short_one(real.data(), {.tokens = 2, .heads = 2, .dim = 3});
  const view<const double> long_one(padded.data(), {.tokens = 4, .heads = 2, .dim = 3});
  for (const auto form : {posenc::alibi_form::symmetric, posenc::alibi_form::key_only}) {
    const posenc::alibi<double> alibi({.heads = 2, .form = form});
    posenc::attention_reference(short_one, short_one, short_one, view(alone.data(), short_one.extents()),
                                posenc::compose(alibi, posenc::causal{}));
    posenc::attention_reference(long_one, long_one, long_one, view(beside.data(), long_one.extents()),
                                posenc::compose(alibi, posenc::causal{}, posenc::padding{begin, {}}),
                                {.query_positions = positions::listed(ids), .key_positions = positions::listed(ids)});
    for (std::size_t i = 0; i < 12; ++i) CHECK(beside[12 + i] == Approx(alone[i]).epsilon(0).margin(1e-14));
    for (std::size_t i = 0; i < 12; ++i) CHECK(beside[i] != 99);

    // The same through the kernels; one policy for both, without padding where there is none.
    std::vector<double> fused_alone(12);
    std::vector<double> fused_beside(24);
    posenc::attention(short_one, short_one, short_one, view(fused_alone.data(), short_one.extents()),
                      posenc::compose(alibi, posenc::causal{}, posenc::padding{}));
    posenc::attention(long_one, long_one, long_one, view(fused_beside.data(), long_one.extents()),
                      posenc::compose(alibi, posenc::causal{}, posenc::padding{begin, {}}),
                      {.query_positions = positions::listed(ids), .key_positions = positions::listed(ids)});
    for (std::size_t i = 0; i < 12; ++i) CHECK(fused_alone[i] == Approx(alone[i]).epsilon(0).margin(1e-14));
    for (std::size_t i = 0; i < 12; ++i) CHECK(fused_beside[12 + i] == Approx(alone[i]).epsilon(0).margin(1e-14));
    for (std::size_t i = 0; i < 12; ++i) CHECK(fused_beside[i] != 99);
  }
}

TEST_CASE("F54: no bias of the size queries x keys is made") {
  // The bytes of the workspace; a counting allocator in the tests of attention shows that nothing else is taken.
  const posenc::alibi<float> alibi(32);
  const auto bytes = [&](std::int64_t n) {
    std::vector<float> one(1);
    const view<float> x(one.data(), {.batch = 1, .tokens = n, .heads = 32, .dim = 2},
                        {.batch = 0, .token = 0, .head = 0, .dim = 0});
    std::vector<float> rows(static_cast<std::size_t>(n) * 64);
    return posenc::attention_workspace(x, x, x, view(rows.data(), x.extents()),
                                       posenc::compose(alibi, posenc::causal{}));
  };
  CHECK(bytes(8192) == bytes(1024));
  CHECK(bytes(8192) < 200 * 1024);
}

TEST_CASE("F55: bias and mask are separate, no mask never means no bias") {
  const posenc::alibi<double> alibi = one_head(0.5);
  const auto op = posenc::detail::make_logit_op<double>(posenc::compose(alibi).parts, {.query_position = 4},
                                                        posenc::contiguous_keys{});
  const auto masked = posenc::detail::make_logit_op<double>(posenc::compose(alibi, posenc::causal{}).parts,
                                                            {.query_position = 4}, posenc::contiguous_keys{});
  for (std::int64_t k = 0; k < 5; ++k) {
    CHECK(op(1.0, k) == 1 - 0.5 * static_cast<double>(4 - k));
    CHECK(masked(1.0, k) == op(1.0, k));
  }
}
