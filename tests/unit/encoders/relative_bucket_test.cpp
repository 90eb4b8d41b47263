// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/dense_attention.hpp"
#include "support/catch.hpp"
#include "unit/encoders/attended.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/relative_bucket.hpp>

#include <Eigen/Core>
#include <unsupported/Eigen/AutoDiff>

#include <limits>

using posenc::positions;
using posenc::relative_bucket_options;
using posenc::table_layout;
using posenc_test::attended;
using posenc_test::refusal;
using posenc_test::values;

namespace {

posenc::relative_bucket<double> counting(std::int64_t buckets, std::int64_t max_distance, bool bidirectional) {
  std::vector<double> table;
  for (std::int64_t b = 0; b < buckets; ++b) table.push_back(static_cast<double>(b));
  return {{.heads = 1, .num_buckets = buckets, .max_distance = max_distance, .bidirectional = bidirectional},
          std::span<const double>(table)};
}

/// The first distance of every bucket that a growing distance in one direction visits after the exact ones.
std::vector<std::int64_t> borders(const posenc::relative_bucket<double>& e, int sign) {
  std::vector<std::int64_t> out;
  for (std::int64_t n = 1; n < 4096; ++n)
    if (e.bucket(sign * n) != e.bucket(sign * (n - 1))) out.push_back(n);
  return out;
}

}  // namespace

TEST_CASE("relative_bucket: the borders of T5, bidirectional and causal", "[relative_bucket]") {
  const auto both = counting(32, 128, true);
  const std::vector<std::int64_t> expected{1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
  CHECK(borders(both, -1) == expected);
  CHECK(borders(both, 1) == expected);
  CHECK(both.bucket(0) == 0);
  CHECK(both.bucket(-7) == 7);
  CHECK(both.bucket(1) == 17);
  CHECK(both.bucket(-128) == 15);
  CHECK(both.bucket(std::numeric_limits<std::int64_t>::min()) == 15);
  CHECK(both.bucket(std::numeric_limits<std::int64_t>::max()) == 31);
  for (std::int64_t r = -300; r <= 300; ++r) REQUIRE(both.bucket(r) != 16);  // a dead row of the table

  const auto past = counting(32, 128, false);
  CHECK(borders(past, -1) == std::vector<std::int64_t>{1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                                                       19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113});
  CHECK(borders(past, 1).empty());
  CHECK(past.bucket(5) == 0);

  const std::vector<std::int64_t> wide{20, 23, 27, 32, 39, 46, 54, 64, 77, 91, 108, 128, 153, 182, 216};
  const auto found = borders(counting(64, 256, true), 1);
  CHECK(std::vector(found.begin() + 16, found.end()) == wide);
}

TEST_CASE("relative_bucket: any number of buckets and any distance", "[relative_bucket]") {
  for (const std::int64_t buckets : {4, 6, 8, 10, 30, 32, 64, 320})
    for (const std::int64_t max_distance : {81, 100, 128, 800})
      for (const bool bidirectional : {true, false}) {
        if (max_distance <= (bidirectional ? buckets / 4 : buckets / 2)) continue;
        const auto e = counting(buckets, max_distance, bidirectional);
        bool same = true;
        for (std::int64_t r = -1000; r <= 1000; ++r)
          same = same && e.bucket(r) == dense::t5_bucket(r, bidirectional, buckets, max_distance);
        CAPTURE(buckets, max_distance, bidirectional);
        CHECK(same);
      }
  // Odd counts where all buckets are on one side; the least that works.
  for (const std::int64_t buckets : {2, 3, 5, 31}) {
    const auto e = counting(buckets, 20, false);
    for (std::int64_t r = -40; r <= 2; ++r) REQUIRE(e.bucket(r) == dense::t5_bucket(r, false, buckets, 20));
  }
}

TEST_CASE("relative_bucket: both layouts of the table, a scale, ids and lanes", "[relative_bucket]") {
  constexpr std::int64_t heads = 3;
  const auto by_bucket = values<double>(32 * heads);
  std::vector<double> by_head(by_bucket.size());
  for (std::size_t b = 0; b < 32; ++b)
    for (std::size_t h = 0; h < heads; ++h) by_head[h * 32 + b] = by_bucket[b * heads + h];
  const posenc::relative_bucket<double> a{{.heads = heads, .table_scale = 8}, std::span<const double>(by_bucket)};
  const posenc::relative_bucket<double> b{{.heads = heads, .layout = table_layout::head_bucket, .table_scale = 8},
                                          std::span<const double>(by_head)};
  const std::vector<std::int64_t> at{5, -200, 6, 100, 4, 1 << 20, -95};
  std::vector<double> bias_a(at.size() * heads * 2);
  auto bias_b = bias_a;
  posenc::fill_bias(a, heads, positions::from(4), 2, positions::listed(at), 7, std::span<double>(bias_a));
  posenc::fill_bias(b, heads, positions::from(4), 2, positions::listed(at), 7, std::span<double>(bias_b));
  CHECK(bias_a == bias_b);
  bool same = true;
  for (std::size_t h = 0; h < heads; ++h)
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 7; ++j) {
        const auto bucket = dense::t5_bucket(at[j] - 4 - static_cast<std::int64_t>(i), true, 32, 128);
        same = same && bias_a[(h * 2 + i) * 7 + j] == 8 * by_bucket[static_cast<std::size_t>(bucket) * heads + h];
      }
  CHECK(same);
  std::vector<double> row(400);
  posenc::add_bias_row(a, {.head = 2, .query_position = 1200}, 1000, std::span<double>(row));
  same = true;
  for (std::int64_t j = 0; j < 400; ++j)
    same = same && row[static_cast<std::size_t>(j)] ==
                       8 * by_bucket[static_cast<std::size_t>(dense::t5_bucket(j - 200, true, 32, 128) * heads + 2)];
  CHECK(same);
  CHECK(a.lines().line(2)[-200 + 72] == row[72]);
}

TEST_CASE("relative_bucket: refusals and description", "[relative_bucket]") {
  const std::vector<float> table(96);
  const auto make = [&](const relative_bucket_options& o) {
    return refusal([&] { posenc::relative_bucket<float>{o, std::span<const float>(table)}; });
  };
  CHECK(make({.heads = 3}) == "nothing thrown");
  CHECK(make({.heads = 0}) == "posenc::relative_bucket: heads must be at least 1, got 0");
  CHECK(make({.heads = 2}) == "posenc::relative_bucket: table must hold num_buckets * heads values, got 96");
  CHECK(make({.heads = 3, .num_buckets = 33}) ==
        "posenc::relative_bucket: num_buckets must be even when bidirectional, got 33");
  CHECK(make({.heads = 3, .num_buckets = 2}) ==
        "posenc::relative_bucket: num_buckets must be at least 4 when bidirectional, got 2");
  CHECK(make({.heads = 3, .num_buckets = 1, .bidirectional = false}) ==
        "posenc::relative_bucket: num_buckets must be at least 2, got 1");
  CHECK(make({.heads = 3, .num_buckets = 32, .max_distance = 8}) ==
        "posenc::relative_bucket: max_distance must exceed the distances that have a bucket of their own, got 8");
  CHECK(make({.heads = 3, .num_buckets = 32, .max_distance = 16, .bidirectional = false}) ==
        "posenc::relative_bucket: max_distance must exceed the distances that have a bucket of their own, got 16");

  const posenc::relative_bucket<float> e{{.heads = 3}, std::span<const float>(table)};
  CHECK(e.heads() == 3);
  CHECK(e.describe().parameters == 96);
  CHECK(e.describe().table_bytes == 3 * (257 + 2 * posenc::lane_slack) * 4);
  CHECK(!e.describe().position_limit);
  CHECK(e.describe().shift == posenc::cache_shift::keep_keys);
  const relative_bucket_options o;
  CHECK((o.num_buckets == 32 && o.max_distance == 128 && o.bidirectional && o.table_scale == 1));
  CHECK(o.layout == table_layout::bucket_head);
}

TEST_CASE("relative_bucket: the derivative of attention by the table", "[relative_bucket]") {
  // Two heads, four buckets a side of which a distance of 2 shares the last: the table entries are the variables.
  constexpr std::int64_t tokens = 4;
  constexpr std::int64_t entries = 8;
  using derivatives = Eigen::Matrix<double, entries, 1>;
  using dual = Eigen::AutoDiffScalar<derivatives>;
  const auto numbers = values<double>(entries);
  std::vector<dual> table;
  for (int i = 0; i < entries; ++i) table.emplace_back(numbers[static_cast<std::size_t>(i)], entries, i);
  const posenc::relative_bucket<dual> e{{.heads = 2, .num_buckets = 4, .max_distance = 2},
                                        std::span<const dual>(table)};
  const posenc::shape s{.tokens = tokens, .heads = 2, .dim = 2};
  const auto q = values<double>(s.elements());
  const auto k = values<double>(s.elements(), 1);
  const auto v = values<double>(s.elements(), 2);
  const auto lift = [](const std::vector<double>& x) {
    std::vector<dual> y;
    for (const double value : x) y.emplace_back(value, derivatives::Zero());
    return y;
  };
  auto dq = lift(q);
  auto dk = lift(k);
  auto dv = lift(v);
  std::vector<dual> out(q.size());
  posenc::attention_reference(posenc::view{dq.data(), s}, posenc::view{dk.data(), s}, posenc::view{dv.data(), s},
                              posenc::view{out.data(), s}, e);
  const auto by_oracle = [&](const std::vector<double>& t) {
    return attended(q, k, v, tokens, 2, [&](auto, std::int64_t h, std::int64_t i, std::int64_t j, double x) {
      return x + t[static_cast<std::size_t>(dense::t5_bucket(j - i, true, 4, 2) * 2 + h)];
    });
  };
  constexpr double step = 1e-5;
  const auto value = by_oracle(numbers);
  posenc_test::worst worst;
  posenc_test::worst slope_worst;
  for (std::size_t i = 0; i < entries; ++i) {
    auto up = numbers;
    auto down = numbers;
    up[i] += step;
    down[i] -= step;
    const auto above = by_oracle(up);
    const auto below = by_oracle(down);
    for (std::size_t j = 0; j < out.size(); ++j) {
      const double slope = (above[j] - below[j]) / (2 * step);
      worst.see(std::abs(out[j].value() - value[j]), static_cast<long double>(j));
      slope_worst.see(std::abs(out[j].derivatives()[static_cast<Eigen::Index>(i)] - slope),
                      static_cast<long double>(j));
    }
  }
  CHECK(worst.error < 1e-15);
  CHECK(slope_worst.error < 1e-9);
}
