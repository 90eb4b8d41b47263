// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/dense_attention.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/encoders/tupe_bucket.hpp>

using posenc::positions;
using posenc_test::refusal;
using posenc_test::values;

namespace {
std::int64_t expected(std::int64_t buckets, std::int64_t max_distance, std::int64_t q, std::int64_t k) {
  if (q == 0) return buckets / 2;
  if (k == 0) return buckets;
  return dense::t5_bucket(k - q, true, buckets, max_distance);
}
}  // namespace

TEST_CASE("tupe_bucket: T5's buckets with the two values of the class token", "[tupe_bucket]") {
  const auto table = values<double>(17 * 2);
  const posenc::tupe_bucket<double> e({.heads = 2, .num_buckets = 16, .max_distance = 50}, table);
  REQUIRE(e.heads() == 2);
  std::size_t broken = 0;
  for (std::int64_t q = -3; q < 90; ++q)
    for (std::int64_t k = -3; k < 90; ++k) broken += e.index(q, k) != expected(16, 50, q, k);
  CHECK(broken == 0);
  const auto value = [&](std::int64_t head, std::int64_t q, std::int64_t k) {
    return table[static_cast<std::size_t>(expected(16, 50, q, k) * 2 + head)];
  };
  // Contiguous keys: position 0 at every lane of a batch, before the first key and past the last one.
  for (std::int64_t first = -40; first <= 3; ++first)
    for (const std::int64_t q : {0, 1, 30}) {
      std::vector<double> line(37, 0.5);
      posenc::add_bias_row(e, {.head = 1, .query_position = q}, first, std::span<double>(line));
      for (std::size_t j = 0; j < line.size(); ++j)
        broken += line[j] != 0.5 + value(1, q, first + static_cast<std::int64_t>(j));
    }
  CHECK(broken == 0);
  const std::vector<std::int64_t> at{0, 9, 3, 0, 200, 1};
  std::vector<double> bias(2 * 36);
  posenc::fill_bias<double>(e, 2, positions::listed(at), 6, positions::listed(at), 6, bias);
  for (std::int64_t h = 0; h < 2; ++h)
    for (std::size_t i = 0; i < 6; ++i)
      for (std::size_t j = 0; j < 6; ++j)
        broken += bias[(static_cast<std::size_t>(h) * 6 + i) * 6 + j] != value(h, at[i], at[j]);
  CHECK(broken == 0);
}

TEST_CASE("tupe_bucket: refusals and description", "[tupe_bucket]") {
  const auto table = values<float>(66);
  const auto make = [&](const posenc::tupe_bucket_options& o, std::size_t size) {
    return refusal([&] { posenc::tupe_bucket<float>(o, std::span<const float>(table).first(size)); });
  };
  CHECK(make({.heads = 2}, 66) == "nothing thrown");
  CHECK(make({.heads = 2}, 64) == "posenc::tupe_bucket: table must hold (num_buckets + 1) * heads values, got 64");
  CHECK(make({.heads = 0}, 66) == "posenc::tupe_bucket: heads must be at least 1, got 0");
  CHECK(make({.heads = 2, .num_buckets = 7}, 16) ==
        "posenc::tupe_bucket: num_buckets must be even and at least 4, got 7");
  CHECK(make({.heads = 2, .max_distance = 3}, 66) ==
        "posenc::relative_bucket: max_distance must exceed the distances that have a bucket of their own, got 3");
  const posenc::tupe_bucket<float> e({.heads = 2}, table);
  CHECK(e.describe().parameters == 66);
  CHECK(e.describe().table_bytes == (2 * (257 + 2 * posenc::lane_slack) + 4) * 4);
  CHECK(!e.describe().position_limit);
}
