// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "laws/random_case.hpp"
#include "reference/dense_attention.hpp"
#include "support/catch.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/toeplitz.hpp>

using posenc::positions;

namespace {

constexpr std::uint64_t cases = 40;

/// [heads, queries, keys] for contiguous positions.
template <class T, class Encoder>
std::vector<T> bias(const Encoder& e, std::int64_t first_query, std::int64_t queries, std::int64_t first_key,
                    std::int64_t keys) {
  std::vector<T> out(static_cast<std::size_t>(e.heads() * queries * keys));
  posenc::fill_bias(e, e.heads(), positions::from(first_query), queries, positions::from(first_key), keys,
                    std::span<T>(out));
  return out;
}

/// What holds for every bias of distances: constant along diagonals, the same after a shift of all positions, the same
/// for listed ids as for contiguous ones, and the same on lanes as one by one.
template <class T, class Encoder>
void check_distances_alone(const Encoder& e, laws::random_case& any) {
  const std::int64_t queries = any.whole(2, 9);
  const std::int64_t keys = any.whole(2, 70);
  const std::int64_t q0 = any.whole(-200, 200);
  const std::int64_t k0 = any.whole(-200, 200);
  const auto b = bias<T>(e, q0, queries, k0, keys);
  const auto value = [&](std::int64_t h, std::int64_t i, std::int64_t j) {
    return b[static_cast<std::size_t>((h * queries + i) * keys + j)];
  };
  std::size_t broken = 0;
  for (std::int64_t h = 0; h < e.heads(); ++h)
    for (std::int64_t i = 1; i < queries; ++i)
      for (std::int64_t j = 1; j < keys; ++j) broken += value(h, i, j) != value(h, i - 1, j - 1);
  CHECK(broken == 0);

  const std::int64_t t = any.whole(-1000000, 1000000) << any.whole(0, 20);
  CHECK(bias<T>(e, q0 + t, queries, k0 + t, keys) == b);

  // Keys in random order, each with its own id.
  const auto order = any.order(keys);
  std::vector<std::int64_t> ids;
  for (const std::int64_t j : order) ids.push_back(k0 + j);
  std::vector<T> mixed(b.size());
  posenc::fill_bias(e, e.heads(), positions::from(q0), queries, positions::listed(ids), keys, std::span<T>(mixed));
  broken = 0;
  for (std::int64_t h = 0; h < e.heads(); ++h)
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j)
        broken += mixed[static_cast<std::size_t>((h * queries + i) * keys + j)] !=
                  value(h, i, order[static_cast<std::size_t>(j)]);
  CHECK(broken == 0);

  const std::int64_t h = any.whole(0, e.heads() - 1);
  const std::int64_t i = any.whole(0, queries - 1);
  std::vector<T> line(static_cast<std::size_t>(keys));
  posenc::add_bias_row(e, {.head = h, .query_position = q0 + i}, k0, std::span<T>(line));
  broken = 0;
  for (std::int64_t j = 0; j < keys; ++j) broken += line[static_cast<std::size_t>(j)] != value(h, i, j);
  CHECK(broken == 0);
}

}  // namespace

TEMPLATE_TEST_CASE("alibi: a bias of distances alone", "[laws][alibi]", float, double) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const auto form = any.coin() ? posenc::alibi_form::symmetric : posenc::alibi_form::causal;
    const posenc::alibi<TestType> e{{.heads = any.whole(1, 20), .form = form}};
    check_distances_alone<TestType>(e, any);
    // key_only differs from causal by a constant per row: exact here, where slopes are powers of two.
    const posenc::alibi<double> causal{{.heads = 8, .form = posenc::alibi_form::causal}};
    const posenc::alibi<double> key_only{{.heads = 8, .form = posenc::alibi_form::key_only}};
    const std::int64_t q = any.whole(0, 500);
    const auto a = bias<double>(causal, q, 1, 0, 30);
    const auto b = bias<double>(key_only, q, 1, 0, 30);
    std::size_t broken = 0;
    for (std::size_t h = 0; h < 8; ++h)
      for (std::size_t j = 0; j < 30; ++j)
        broken += b[30 * h + j] - a[30 * h + j] != causal.slopes()[h] * static_cast<double>(q);
    CHECK(broken == 0);
  }
}

TEMPLATE_TEST_CASE("relative_bucket: a bias of distances alone, the table's value at the bucket",
                   "[laws][relative_bucket]", float, double) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const bool bidirectional = any.coin();
    const std::int64_t buckets = 2 * any.whole(2, 40);
    const std::int64_t max_distance = buckets + any.whole(1, 200);
    const std::int64_t heads = any.whole(1, 5);
    const auto table = any.vector<TestType>(buckets * heads);
    const posenc::relative_bucket<TestType> e{
        {.heads = heads, .num_buckets = buckets, .max_distance = max_distance, .bidirectional = bidirectional},
        std::span<const TestType>(table)};
    check_distances_alone<TestType>(e, any);
    const std::int64_t h = any.whole(0, heads - 1);
    std::vector<TestType> line(600);
    posenc::add_bias_row(e, {.head = h, .query_position = 0}, -300, std::span<TestType>(line));
    std::size_t broken = 0;
    for (std::int64_t j = 0; j < 600; ++j)
      broken +=
          line[static_cast<std::size_t>(j)] !=
          table[static_cast<std::size_t>(dense::t5_bucket(j - 300, bidirectional, buckets, max_distance) * heads + h)];
    CHECK(broken == 0);
  }
}

TEMPLATE_TEST_CASE("toeplitz: a bias of distances alone", "[laws][toeplitz]", float, double) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t reach = any.whole(0, 60);
    const std::int64_t heads = any.whole(1, 4);
    const auto table = any.vector<TestType>(heads * (2 * reach + 1));
    const posenc::toeplitz<TestType> e{heads, reach, std::span<const TestType>(table)};
    check_distances_alone<TestType>(e, any);
  }
}

TEST_CASE("buckets are monotone in the distance and never finer further out", "[laws][relative_bucket]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t buckets = 2 * any.whole(2, 100);
    const std::int64_t max_distance = buckets + any.whole(1, 500);
    const std::vector<float> table(static_cast<std::size_t>(buckets));
    const posenc::relative_bucket<float> e{
        {.heads = 1, .num_buckets = buckets, .max_distance = max_distance, .bidirectional = false},
        std::span<const float>(table)};
    std::size_t falls = 0;
    for (std::int64_t n = 1; n < max_distance + 50; ++n) falls += e.bucket(-n) < e.bucket(-n + 1);
    CHECK(falls == 0);
    CHECK(e.bucket(-max_distance) == buckets - 1);
    CHECK(e.bucket(0) == 0);
  }
}
