// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/learned.hpp>

#include <unsupported/Eigen/AutoDiff>

#include <limits>
#include <memory>

using posenc::out_of_range;
using posenc::positions;
using posenc_test::largest_difference;
using posenc_test::refusal;
using posenc_test::values;

TEST_CASE("learned: lookup and embed take the row of each position, for every head", "[learned]") {
  const std::vector<float> table = values<float>(5 * 19);
  const posenc::learned<float> e{{.rows = 5, .dim = 19}, std::span<const float>(table)};
  const posenc::shape s{.batch = 2, .tokens = 3, .heads = 2, .dim = 19};
  const std::vector<std::int64_t> ids{4, 0, 4, 1, 2, 3};
  std::vector<float> out(static_cast<std::size_t>(s.elements()), 99.0f);
  e.lookup(posenc::view{out.data(), s}, positions::listed(ids, 2));
  const auto x = values<float>(s.elements(), 1);
  auto sum = x;
  e.embed(posenc::view{sum.data(), s}, positions::listed(ids, 2));
  bool same = true;
  for (std::size_t t = 0; t < 6; ++t)
    for (std::size_t h = 0; h < 2; ++h)
      for (std::size_t d = 0; d < 19; ++d) {
        const std::size_t i = (2 * t + h) * 19 + d;
        const float row = table[static_cast<std::size_t>(ids[t]) * 19 + d];
        same = same && out[i] == row && sum[i] == x[i] + row;
      }
  CHECK(same);
}

TEST_CASE("learned: own memory, the caller's memory, copies and moves", "[learned]") {
  std::vector<float> checkpoint = values<float>(6);
  const posenc::learned<float> borrowed{{.rows = 3, .dim = 2}, std::span<const float>(checkpoint)};
  const posenc::learned<float> owned{{.rows = 3, .dim = 2}, std::vector<float>(checkpoint)};
  CHECK(borrowed.table().data() == checkpoint.data());
  CHECK(owned.table().data() != checkpoint.data());
  const float before = checkpoint[2];
  checkpoint[2] = 8;  // a training step is seen through borrowed memory alone
  CHECK(borrowed.table()[2] == 8);
  CHECK(owned.table()[2] == before);
  auto first = std::make_unique<posenc::learned<float>>(owned);
  posenc::learned<float> copy = *first;
  first.reset();
  CHECK(copy.table().data() != owned.table().data());
  CHECK(std::equal(copy.table().begin(), copy.table().end(), owned.table().begin()));
  const posenc::learned<float> moved = std::move(copy);
  CHECK(std::equal(moved.table().begin(), moved.table().end(), owned.table().begin()));
  CHECK(owned.rows() == 3);
  CHECK(owned.dim() == 2);
}

TEST_CASE("learned: what a position outside the table means", "[learned]") {
  const std::vector<float> table{10, 11, 12};
  const auto rule = [&](out_of_range r) {
    return posenc::learned<float>{{.rows = 3, .dim = 1, .out_of_range = r}, std::span<const float>(table)};
  };
  const auto clamp = rule(out_of_range::clamp);
  const auto repeat = rule(out_of_range::repeat);
  const std::vector<std::int64_t> at{
      -4, -3, -1, 0, 2, 3, 7, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
  std::vector<float> out(at.size());
  const posenc::view v{out.data(), {.tokens = 9, .dim = 1}};
  clamp.lookup(v, positions::listed(at));
  CHECK(out == std::vector<float>{10, 10, 10, 10, 12, 12, 12, 12, 10});
  repeat.lookup(v, positions::listed(at));
  // 2^63 - 1 = 1 and -2^63 = 1 modulo 3.
  CHECK(out == std::vector<float>{12, 10, 12, 10, 12, 10, 11, 11, 11});
  CHECK(repeat.row_of(-1) == 2);
  CHECK(clamp.row_of(99) == 2);

  const auto strict = rule(out_of_range::throws);
  CHECK(posenc::learned_options{}.out_of_range == out_of_range::throws);
  CHECK(strict.row_of(2) == 2);
  CHECK(refusal<std::out_of_range>([&] { (void)strict.row_of(3); }) ==
        "posenc::learned: position must lie in the table's 0..2, got 3");
  // Only the last token of the last batch row is wrong, yet nothing is written.
  const std::vector<std::int64_t> late{0, 1, 2, 0, 1, -1};
  auto x = values<float>(6);
  const auto before = x;
  const posenc::view two{x.data(), {.batch = 2, .tokens = 3, .dim = 1}};
  CHECK(refusal<std::out_of_range>([&] { strict.embed(two, positions::listed(late, 2)); }) ==
        "posenc::learned: position must lie in the table's 0..2, got -1");
  CHECK_THROWS_AS(strict.lookup(two, positions::listed(late, 2)), std::out_of_range);
  CHECK_THROWS_AS(strict.embed(two, positions::from(1)), std::out_of_range);
  CHECK(x == before);
}

TEST_CASE("learned: other storage and strides", "[learned]") {
  const auto numbers = values<double>(4 * 6);
  const posenc::learned<double> e{{.rows = 4, .dim = 6}, std::vector<double>(numbers)};
  const posenc::shape s{.tokens = 4, .dim = 6};
  // A table of double on float data: summed in double, rounded once.
  const auto x = values<float>(24, 2);
  auto sum = x;
  e.embed(posenc::view{sum.data(), s});
  bool once = true;
  for (std::size_t i = 0; i < 24; ++i)
    once = once && sum[i] == static_cast<float>(static_cast<double>(x[i]) + numbers[i]);
  CHECK(once);
  std::vector<float> strided(48, -1.0f);
  e.lookup(posenc::view{strided.data(), s, {.token = 12, .dim = 2}});
  for (std::size_t i = 0; i < 24; ++i)
    CHECK((strided[2 * i] == static_cast<float>(numbers[i]) && strided[2 * i + 1] == -1));
  // 16-bit table and data, in float.
  std::vector<Eigen::half> rows;
  std::vector<Eigen::half> y;
  for (std::size_t i = 0; i < 24; ++i) {
    rows.emplace_back(static_cast<float>(numbers[i]));
    y.emplace_back(x[i]);
  }
  auto expected = y;
  for (std::size_t i = 0; i < 24; ++i)
    expected[i] = Eigen::half(static_cast<float>(y[i]) + static_cast<float>(rows[i]));
  posenc::learned<Eigen::half>{{.rows = 4, .dim = 6}, std::span<const Eigen::half>(rows)}.embed(
      posenc::view{y.data(), s});
  CHECK(largest_difference(y, expected) == 0);
  // The derivative by a table entry arrives at the tokens that took its row.
  using dual = Eigen::AutoDiffScalar<Eigen::VectorXd>;
  std::vector<dual> table;
  for (int i = 0; i < 4; ++i) table.emplace_back(0.5 * i, 4, i);
  const posenc::learned<dual> learnable{{.rows = 2, .dim = 2}, std::span<const dual>(table)};
  std::vector<dual> z(6, dual(1.0, Eigen::VectorXd::Zero(4)));
  const std::vector<std::int64_t> ids{1, 0, 1};
  learnable.embed(posenc::view{z.data(), {.tokens = 3, .dim = 2}}, positions::listed(ids));
  CHECK(z[1].value() == 1 + 1.5);
  CHECK(z[1].derivatives() == Eigen::VectorXd::Unit(4, 3));
  CHECK(z[2].derivatives() == Eigen::VectorXd::Unit(4, 0));
  CHECK(z[4].derivatives() == Eigen::VectorXd::Unit(4, 2));
}

TEST_CASE("learned: refusals and description", "[learned]") {
  const std::vector<float> table(6);
  const std::span<const float> memory(table);
  const auto make = [&](std::int64_t rows, std::int64_t dim) {
    return refusal([&] { posenc::learned<float>{{.rows = rows, .dim = dim}, memory}; });
  };
  CHECK(make(0, 2) == "posenc::learned: rows must be at least 1, got 0");
  CHECK(make(3, 0) == "posenc::learned: dim must be at least 1, got 0");
  CHECK(make(3, 3) == "posenc::learned: table must hold rows * dim elements, got 6");
  CHECK(refusal([&] {
          posenc::learned<float>{{.rows = 1, .dim = 2}, std::vector<float>(3)};
        }) == "posenc::learned: table must hold rows * dim elements, got 3");

  const posenc::learned<float> e{{.rows = 3, .dim = 2}, memory};
  std::vector<float> x(12, 5.0f);
  CHECK(refusal([&] {
          e.embed(posenc::view{x.data(), {.tokens = 2, .dim = 3}});
        }) == "posenc::learned::embed: dim must equal the table's, got 3");
  CHECK(refusal([&] {
          e.lookup(posenc::view{x.data(), {.tokens = 2, .dim = 3}});
        }) == "posenc::learned::lookup: dim must equal the table's, got 3");
  CHECK(refusal([&] {
          e.embed(posenc::view{x.data(), {.tokens = 2, .heads = 3, .dim = 2}, {.token = 2, .head = 0}});
        }) == "posenc::learned::embed: x must not repeat elements through a stride of 0, got a stride of 0");
  const std::vector<std::int64_t> grid{0, 1, 2, 0};
  CHECK(refusal([&] {
          e.embed(posenc::view{x.data(), {.tokens = 2, .dim = 2}}, positions::axes(grid, 2));
        }) == "posenc::learned::embed: positions must have one axis, got 2");
  CHECK(x == std::vector<float>(12, 5.0f));

  CHECK(e.describe().position_limit == 3);
  CHECK(e.describe().parameters == 6);
  CHECK(e.describe().table_bytes == 24);
  CHECK(e.describe().shift == posenc::cache_shift::recompute_keys);
  CHECK(!posenc::learned<float>{{.rows = 3, .dim = 2, .out_of_range = out_of_range::clamp}, memory}
             .describe()
             .position_limit);
  CHECK(!posenc::learned<float>{{.rows = 3, .dim = 2, .out_of_range = out_of_range::repeat}, memory}
             .describe()
             .position_limit);
}
