// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "laws/random_case.hpp"
#include "reference/dense_attention.hpp"
#include "support/catch.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/encoders/forgetting.hpp>
#include <posenc/encoders/gated_bias.hpp>
#include <posenc/encoders/projected_bias.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/toeplitz.hpp>
#include <posenc/encoders/tupe.hpp>
#include <posenc/encoders/tupe_bucket.hpp>

using posenc::positions;
using posenc::view;

namespace {

constexpr std::uint64_t cases = 40;

/// The bias of one row on lanes.
template <class T, class Encoder>
std::vector<T> row_of(const Encoder& e, const posenc::row& r, std::int64_t first_key, std::int64_t keys) {
  std::vector<T> out(static_cast<std::size_t>(keys));
  posenc::add_bias_row(e, r, first_key, std::span<T>(out));
  return out;
}

}  // namespace

TEST_CASE("tupe: the kept table holds what the rows give, in any order of positions", "[laws][tupe]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t heads = any.whole(1, 4);
    const std::int64_t width = heads * any.whole(1, 9);
    const std::int64_t limit = any.whole(1, 60);
    const auto p = any.vector((limit + 1) * width), g = any.vector(width), b = any.vector(width),
               wq = any.vector(width * width), bq = any.vector(width), wk = any.vector(width * width),
               bk = any.vector(width);
    const posenc::tupe_weights<double> w{p, g, b, wq, bq, wk, bk};
    const posenc::tupe<double> rows({.heads = heads, .width = width}, w);
    const posenc::tupe<double> table({.heads = heads, .width = width, .keep_table = true}, w);
    const auto order = any.order(limit);
    std::vector<double> counted(static_cast<std::size_t>(heads * limit * limit)), mixed(counted), kept(counted);
    posenc::fill_bias<double>(rows, heads, {}, limit, {}, limit, counted);
    posenc::fill_bias<double>(table, heads, {}, limit, {}, limit, kept);
    CHECK(laws::difference(counted, kept) < 1e-12);
    posenc::fill_bias<double>(rows, heads, positions::listed(order), limit, positions::listed(order), limit, mixed);
    std::size_t broken = 0;
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < limit; ++i)
        for (std::int64_t j = 0; j < limit; ++j)
          broken += mixed[static_cast<std::size_t>((h * limit + i) * limit + j)] !=
                    counted[static_cast<std::size_t>((h * limit + order[static_cast<std::size_t>(i)]) * limit +
                                                     order[static_cast<std::size_t>(j)])];
    CHECK(broken == 0);
    // The class token's column and row are one number each.
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 1; i < limit; ++i) {
        const double* head = counted.data() + h * limit * limit;
        broken += head[i] != head[0] || head[i * limit] != head[limit];
      }
    CHECK(broken == 0);
    // Lanes.
    const std::int64_t h = any.whole(0, heads - 1);
    const std::int64_t q = any.whole(0, limit - 1);
    const std::int64_t first = any.whole(0, limit - 1);
    const auto line = row_of<double>(rows, {.head = h, .query_position = q}, first, limit - first);
    double worst = 0;
    for (std::int64_t j = first; j < limit; ++j)
      worst = std::max(worst, std::abs(line[static_cast<std::size_t>(j - first)] -
                                       counted[static_cast<std::size_t>((h * limit + q) * limit + j)]));
    CHECK(worst < 1e-12);
  }
}

TEST_CASE("tupe_bucket: relative_bucket wherever no class token takes part", "[laws][tupe_bucket]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t heads = any.whole(1, 4);
    const std::int64_t buckets = 2 * any.whole(2, 20);
    const std::int64_t max_distance = buckets + any.whole(0, 100);
    const auto table = any.vector((buckets + 1) * heads);
    const posenc::tupe_bucket<double> e({.heads = heads, .num_buckets = buckets, .max_distance = max_distance}, table);
    const posenc::relative_bucket<double> plain(
        {.heads = heads, .num_buckets = buckets, .max_distance = max_distance},
        std::span<const double>(table).first(static_cast<std::size_t>(buckets * heads)));
    const std::int64_t first = any.whole(-60, 60);
    const posenc::row r{.head = any.whole(0, heads - 1), .query_position = any.whole(-20, 20)};
    const auto a = row_of<double>(e, r, first, 70);
    const auto b = row_of<double>(plain, r, first, 70);
    std::size_t broken = 0;
    for (std::int64_t j = 0; j < 70; ++j) {
      double right = b[static_cast<std::size_t>(j)];
      if (first + j == 0) right = table[static_cast<std::size_t>(buckets * heads + r.head)];
      if (r.query_position == 0) right = table[static_cast<std::size_t>(buckets / 2 * heads + r.head)];
      broken += a[static_cast<std::size_t>(j)] != right;
    }
    CHECK(broken == 0);
  }
}

TEMPLATE_TEST_CASE("gated_bias: gates of one change nothing, of zero everything, and the bias is linear in them",
                   "[laws][gated_bias]", float, double) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t heads = any.whole(1, 4);
    const std::int64_t queries = any.whole(1, 6);
    const std::int64_t keys = any.whole(1, 50);
    const std::int64_t reach = any.whole(0, 30);
    const auto table = any.vector<TestType>(heads * (2 * reach + 1));
    const posenc::toeplitz<TestType> bias(heads, reach, std::span<const TestType>(table));
    const auto gated = [&](const std::vector<TestType>& gates) {
      const posenc::gated_bias e(bias, view{gates.data(), {.tokens = queries, .heads = heads, .dim = 1}});
      std::vector<TestType> out(static_cast<std::size_t>(heads * queries * keys));
      posenc::fill_bias<TestType>(e, heads, positions::from(3), queries, positions::from(-7), keys, out);
      return out;
    };
    const auto count = static_cast<std::size_t>(queries * heads);
    std::vector<TestType> plain(static_cast<std::size_t>(heads * queries * keys));
    posenc::fill_bias<TestType>(bias, heads, positions::from(3), queries, positions::from(-7), keys, plain);
    CHECK(gated(std::vector<TestType>(count, TestType(1))) == plain);
    CHECK(gated(std::vector<TestType>(count, TestType(0))) == std::vector<TestType>(plain.size(), TestType(0)));
    const auto gates = any.vector<TestType>(queries * heads);
    auto doubled = gates;
    for (TestType& g : doubled) g *= 2;
    auto once = gated(gates);
    for (TestType& x : once) x *= 2;
    CHECK(gated(doubled) == once);
  }
}

TEST_CASE("forgetting: shares of a chain multiply, whatever way the columns came", "[laws][forgetting]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t heads = any.whole(1, 3);
    const std::int64_t n = any.whole(1, 60);
    const bool both = any.coin();
    const std::int64_t count = both ? 2 * heads : heads;
    auto gates = any.vector(n * count);
    for (double& g : gates) g *= 20;
    posenc::forget_sums<double> sums({.heads = heads, .bidirectional = both});
    for (std::int64_t t = 0; t < n;) {
      const std::int64_t step = any.whole(1, n - t);
      sums.append(view{gates.data() + t * count, {.tokens = step, .heads = count, .dim = 1}});
      t += step;
    }
    posenc::forget_sums<double> whole({.heads = heads, .bidirectional = both});
    whole.append(view{gates.data(), {.tokens = n, .heads = count, .dim = 1}});
    std::vector<double> bias(static_cast<std::size_t>(heads * n * n)), again(bias);
    posenc::fill_bias<double>(posenc::forgetting<double>(sums), heads, {}, n, {}, n, bias);
    posenc::fill_bias<double>(posenc::forgetting<double>(whole), heads, {}, n, {}, n, again);
    CHECK(bias == again);
    const auto value = [&](std::int64_t h, std::int64_t i, std::int64_t j) {
      return bias[static_cast<std::size_t>((h * n + i) * n + j)];
    };
    double worst = 0;
    std::size_t broken = 0;
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < n; ++i) {
        broken += value(h, i, i) != 0;
        for (std::int64_t j = 0; j < n; ++j) {
          broken += !(value(h, i, j) <= 0) || (!both && j > i && value(h, i, j) != 0);
          const std::int64_t m = any.whole(std::min(i, j), std::max(i, j));
          worst = std::max(worst, std::abs(value(h, i, j) - value(h, i, m) - value(h, m, j)));
        }
      }
    CHECK(broken == 0);
    CHECK(worst < 1e-11);
    // A cached step: the last rows alone, on lanes.
    const std::int64_t rows = any.whole(1, n);
    const std::int64_t h = any.whole(0, heads - 1);
    const std::int64_t i = any.whole(0, rows - 1);
    const auto line = row_of<double>(posenc::forgetting<double>(sums, n - rows), {.head = h, .query_index = i}, 0, n);
    for (std::int64_t j = 0; j < n; ++j) broken += line[static_cast<std::size_t>(j)] != value(h, n - rows + i, j);
    CHECK(broken == 0);
  }
}

TEMPLATE_TEST_CASE("projected_bias: a sum of Toeplitz lines", "[laws][projected_bias]", float, double) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t functions = any.whole(1, 18);
    const std::int64_t reach = any.whole(1, 60);
    const auto bank = any.vector<TestType>(functions * reach);
    const auto weights = any.vector<TestType>(3 * 2 * functions);
    const posenc::projected_bank<TestType> held(functions, reach, bank);
    const posenc::projected_bias e(held, view{weights.data(), {.tokens = 3, .heads = 2, .dim = functions}});
    const posenc::row r{.head = any.whole(0, 1), .query_index = any.whole(0, 2), .query_position = any.whole(-50, 50)};
    const std::int64_t first = any.whole(-100, 60);
    const auto line = row_of<TestType>(e, r, first, 80);
    const auto moved = row_of<TestType>(
        e, {.head = r.head, .query_index = r.query_index, .query_position = r.query_position + 1000}, first + 1000, 80);
    CHECK(line == moved);
    const TestType* w = weights.data() + (r.query_index * 2 + r.head) * functions;
    double worst = 0;
    std::size_t broken = 0;
    for (std::int64_t j = 0; j < 80; ++j) {
      const std::int64_t distance = r.query_position - first - j;
      double right = 0;
      for (std::int64_t m = 0; m < functions && distance >= 0 && distance < reach; ++m)
        right += static_cast<double>(w[m]) * static_cast<double>(bank[static_cast<std::size_t>(m * reach + distance)]);
      const auto got = static_cast<double>(line[static_cast<std::size_t>(j)]);
      worst = std::max(worst, std::abs(got - right));
      broken += (distance < 0 || distance >= reach) && got != 0;
    }
    CHECK(broken == 0);
    CHECK(worst < (sizeof(TestType) == 4 ? 5e-6 : 1e-14));
    // Listed ids give the same values, by another order of arithmetic on one lane.
    const auto order = any.order(80);
    std::vector<std::int64_t> ids;
    for (const std::int64_t j : order) ids.push_back(first + j);
    std::vector<TestType> mixed(2 * 3 * 80);
    std::vector<std::int64_t> queries(3, r.query_position);
    posenc::fill_bias<TestType>(e, 2, positions::listed(queries), 3, positions::listed(ids), 80, mixed);
    for (std::int64_t j = 0; j < 80; ++j)
      worst = std::max(
          worst, std::abs(static_cast<double>(mixed[static_cast<std::size_t>((r.head * 3 + r.query_index) * 80 + j)] -
                                              line[static_cast<std::size_t>(order[static_cast<std::size_t>(j)])])));
    CHECK(worst < (sizeof(TestType) == 4 ? 5e-6 : 1e-14));
  }
}
