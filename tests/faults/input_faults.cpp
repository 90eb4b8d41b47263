// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Faults that were reported against other code of input embeddings: sinusoidal and learned.
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/position_ids.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include "support/catch.hpp"

#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace {

using posenc::positions;
using posenc::view;
using posenc_test::contains;

std::vector<double> row(const posenc::sinusoidal_options& o, std::int64_t at) {
  std::vector<double> x(static_cast<std::size_t>(o.dim), 7);
  posenc::sinusoidal<double>(o).table(view(x.data(), {.tokens = 1, .dim = o.dim}), positions::from(at));
  return x;
}
void check_close(const std::vector<double>& found, const std::vector<double>& right, double tolerance = 1e-9) {
  REQUIRE(found.size() == right.size());
  for (std::size_t i = 0; i < right.size(); ++i) CHECK(std::abs(found[i] - right[i]) <= tolerance);
}

template <class Positions, class Encoder>
concept embeds_at = requires(const Encoder& e, view<float> x, const Positions& at) {
  e.embed(x, at);
};

}  // namespace

TEST_CASE("F34: sinusoidal rows exist at negative positions") {
  check_close(row({.dim = 4}, -1), {-0.841470985, 0.540302306, -0.009999833, 0.999950000});
}

TEST_CASE("F35: an odd width ends in a lone sine") {
  check_close(row({.dim = 5}, 1), {0.841470985, 0.540302306, 0.025116223, 0.999684538, 0.000630957});
  check_close(row({.dim = 5}, 2), {0.909297427, -0.416146837, 0.050216599, 0.998738351, 0.001261914});
  for (const std::int64_t p : {-3, 0, 1, 9}) check_close(row({.dim = 1}, p), {std::sin(static_cast<double>(p))});
  const std::vector<double> three = row({.dim = 3}, 2);
  check_close(three, {std::sin(2.0), std::cos(2.0), std::sin(2 * std::pow(10000.0, -2.0 / 3))});
}

TEST_CASE("F36: the four tables have names, and a width of 2 holds no NaN") {
  using enum posenc::sinusoidal_layout;
  using enum posenc::sinusoidal_denominator;
  check_close(row({.dim = 4}, 1), {0.841470985, 0.540302306, 0.009999833, 0.999950000});
  check_close(row({.dim = 4, .layout = concat_sin_cos}, 1), {0.841470985, 0.009999833, 0.540302306, 0.999950000});
  check_close(row({.dim = 4, .layout = concat_sin_cos, .denominator = half_minus_1}, 1),
              {0.841470985, 0.000100000, 0.540302306, 0.999999995});
  check_close(row({.dim = 4, .start = 1}, 0), row({.dim = 4}, 1), 0);
  for (const auto layout : {interleaved_sin_cos, interleaved_cos_sin, concat_sin_cos, concat_cos_sin})
    for (const std::int64_t dim : {2, 3})
      for (const double x : row({.dim = dim, .layout = layout, .denominator = half_minus_1}, 5))
        CHECK(std::isfinite(x));
}

TEST_CASE("F37: activations are not taken for positions") {
  using encoder = posenc::sinusoidal<float>;
  static_assert(embeds_at<positions, encoder>);
  static_assert(embeds_at<posenc::real_positions, encoder>);
  static_assert(!embeds_at<view<float>, encoder>);
  static_assert(!embeds_at<std::vector<float>, encoder>);
  static_assert(!embeds_at<std::vector<double>, encoder>);
  static_assert(!embeds_at<float*, encoder>);
  static_assert(!std::is_convertible_v<std::vector<double>, posenc::real_positions>);
  CHECK_FALSE(embeds_at<view<float>, posenc::learned<float>>);
}

TEST_CASE("F38: the squared norm of a sinusoidal row is half its width") {
  for (const std::int64_t dim : {2, 4, 64, 512})
    for (const std::int64_t p : {std::int64_t{-5}, std::int64_t{0}, std::int64_t{77}, std::int64_t{1000000000}}) {
      double norm = 0;
      for (const double x : row({.dim = dim}, p)) norm += x * x;
      CHECK(norm == Approx(static_cast<double>(dim) / 2).epsilon(1e-12));
    }
}

TEST_CASE("F39: a step past the last row throws, names the rows, and writes nothing") {
  const std::vector<float> table(448, 1);
  const posenc::learned<float> learned({.rows = 448, .dim = 1}, std::span<const float>(table));
  std::vector<float> x(2, 0);
  const view<float> two(x.data(), {.tokens = 2, .dim = 1});
  learned.embed(two, positions::from(446));
  CHECK(x == std::vector<float>{1, 1});
  const auto step = [&] { learned.embed(two, positions::from(447)); };
  CHECK_THROWS_AS(step(), std::out_of_range);
  CHECK_THROWS_WITH(step(), contains("0..447") && contains("got 448"));
  CHECK(x == std::vector<float>{1, 1});  // the token that had a row is as it was
  CHECK(learned.describe().position_limit == 448);
}

TEST_CASE("F40: rows that start behind the padding id") {
  const std::vector<int> tokens{0, 31414, 232, 2, 1, 1};
  CHECK(posenc::roberta_ids(std::span<const int>(tokens), 1) == std::vector<std::int64_t>{2, 3, 4, 5, 1, 1});
  const std::vector<int> full(512, 7);
  const auto ids = posenc::roberta_ids(std::span<const int>(full), 1);
  CHECK(*std::max_element(ids.begin(), ids.end()) == 513);  // so 514 rows
}

TEST_CASE("F41: padding does not advance the count") {
  const std::vector<int> tokens{1, 13, 54, 0, 0, 1, 55, 12, 24, 0};
  CHECK(posenc::roberta_ids(std::span<const int>(tokens), 0, 2) ==
        std::vector<std::int64_t>{1, 2, 3, 0, 0, 1, 2, 3, 4, 0});
}

TEST_CASE("F42: the length is the token axis, not the feature axis") {
  std::vector<float> table(3 * 8);
  std::iota(table.begin(), table.end(), 0.0f);
  // Three rows are enough for [2, 3, 8].
  const posenc::learned<float> learned({.rows = 3, .dim = 8}, std::span<const float>(table));
  std::vector<float> x(2 * 3 * 8, 0);
  learned.embed(view(x.data(), {.batch = 2, .tokens = 3, .dim = 8}));
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(x[i] == table[i % 24]);
}

TEST_CASE("F43: relative ids come from the two positions, no matrix of them is kept") {
  const std::vector<float> table(32 * 2, 0.5f);
  const posenc::relative_bucket<float> t5({.heads = 2}, table);
  const std::int64_t bytes = t5.describe().table_bytes;
  CHECK(bytes < 2 * (2 * 128 + 1 + 2 * posenc::lane_slack + 1) * 4);
  for (const std::int64_t length : {512, 513, 100000}) {
    const auto op = t5.row<float>({.head = 1, .query_position = length - 1}, posenc::contiguous_keys{});
    CHECK(op(0.0f, 0) == 0.5f);
    CHECK(op(0.0f, length - 1) == 0.5f);
  }
  CHECK_FALSE(t5.describe().position_limit.has_value());
}
