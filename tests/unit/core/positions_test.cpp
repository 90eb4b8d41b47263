// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/positions.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

using posenc::positions;
using posenc_test::contains;

TEST_CASE("positions: contiguous from an offset in every batch row", "[core][positions]") {
  const positions none;
  CHECK(none.contiguous());
  CHECK(none(0, 0) == 0);
  CHECK(none(5, 9) == 9);
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{17}, std::int64_t{-5}, std::int64_t{1} << 40,
                                   std::numeric_limits<std::int64_t>::min()}) {
    const positions p = positions::from(first);
    CHECK(p.contiguous());
    CHECK(p.first(3) == first);
    CHECK(p(0, 0) == first);
    CHECK(p(7, 12) == first + 12);
    CHECK(p.at(2, 4) == posenc::position(first + 4));
    CHECK(p.axis_count() == 1);
    CHECK_NOTHROW(p.check("f", "positions", 1000, 1000));
  }
}

TEST_CASE("positions: each batch row starts at its own first position", "[core][positions]") {
  const std::vector<std::int64_t> firsts{10, -3, std::int64_t{1} << 33};
  const positions p = positions::per_row(firsts);
  CHECK(p.contiguous());
  for (std::size_t b = 0; b < firsts.size(); ++b) {
    CHECK(p.first(static_cast<std::int64_t>(b)) == firsts[b]);
    CHECK(p(static_cast<std::int64_t>(b), 6) == firsts[b] + 6);
  }
  CHECK_NOTHROW(p.check("f", "positions", 3, 99));
  CHECK_THROWS_WITH(p.check("f", "query_positions", 2, 4),
                    "posenc::f: query_positions must list one first position per batch row, got 3");
}

TEST_CASE("positions: contiguous ones must not run past the last int64", "[core][positions]") {
  constexpr std::int64_t last = std::numeric_limits<std::int64_t>::max();
  CHECK_NOTHROW(positions::from(last).check("f", "positions", 1, 1));
  CHECK_NOTHROW(positions::from(last - 9).check("f", "positions", 3, 10));
  CHECK_THROWS_AS(positions::from(last - 8).check("f", "positions", 3, 10), std::invalid_argument);
  const std::vector<std::int64_t> firsts{0, last - 1};
  CHECK_NOTHROW(positions::per_row(firsts).check("f", "positions", 2, 2));
  CHECK_THROWS_WITH(positions::per_row(firsts).check("f", "positions", 2, 3),
                    contains("must leave room for the tokens"));
}

TEMPLATE_TEST_CASE("positions: listed ids, for all rows or for each", "[core][positions]", std::int32_t, std::int64_t) {
  const std::vector<TestType> ids{4, -1, std::numeric_limits<TestType>::max(), 7, std::numeric_limits<TestType>::min(),
                                  0};
  const positions shared = positions::listed(ids);
  CHECK(!shared.contiguous());
  int wrong = 0;
  for (int b = 0; b < 3; ++b)
    for (int t = 0; t < 6; ++t) wrong += shared(b, t) != std::int64_t{ids[static_cast<std::size_t>(t)]};
  const positions rows = positions::listed(ids, 2);
  for (int b = 0; b < 2; ++b)
    for (int t = 0; t < 3; ++t) {
      wrong += rows(b, t) != std::int64_t{ids[static_cast<std::size_t>(3 * b + t)]};
      wrong += rows.at(b, t) != posenc::position(rows(b, t));
    }
  CHECK(wrong == 0);
  CHECK_NOTHROW(shared.check("f", "positions", 5, 6));
  CHECK_NOTHROW(rows.check("f", "positions", 2, 3));
  CHECK_THROWS_WITH(shared.check("f", "positions", 5, 7),
                    "posenc::f: positions must list one id per token, batch row and axis, got 6");
  CHECK_THROWS_WITH(rows.check("f", "positions", 3, 3),
                    "posenc::f: positions must be listed for one batch row or for each of them, got 2");
  CHECK_THROWS_WITH(rows.check("f", "positions", 2, 4), contains("must list one id per token"));
  CHECK_THROWS_WITH(positions::listed(ids, 4),
                    "posenc::positions: ids must fill batch * axes rows of equal length, got 6");
  CHECK_THROWS_WITH(positions::listed(ids, 0), "posenc::positions: batch must be at least 1, got 0");
  CHECK_THROWS_AS(positions::listed(ids, -1), std::invalid_argument);
  const std::vector<TestType> empty;
  CHECK_NOTHROW(positions::listed(empty).check("f", "positions", 1, 0));
}

TEST_CASE("positions: several axes per token", "[core][positions]") {
  // [batch 2][axis 3][token 2]
  const std::vector<std::int64_t> ids{0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121};
  const positions p = positions::axes(ids, 3, 2);
  CHECK(p.axis_count() == 3);
  CHECK(!p.contiguous());
  int wrong = 0;
  for (int b = 0; b < 2; ++b)
    for (int t = 0; t < 2; ++t) {
      const posenc::position at = p.at(b, t);
      for (int a = 0; a < 3; ++a) wrong += at[a] != 100 * b + 10 * a + t;
      wrong += at.value() != p(b, t);
      wrong += at[3] != 0;
    }
  CHECK(wrong == 0);
  CHECK_NOTHROW(p.check("f", "positions", 2, 2));
  CHECK_THROWS_AS(p.check("f", "positions", 2, 6), std::invalid_argument);
  const positions shared = positions::axes(ids, 2);
  CHECK(shared.at(4, 5)[0] == 21);
  CHECK(shared.at(4, 5)[1] == 121);
  CHECK_THROWS_WITH(positions::axes(ids, 0), "posenc::positions::axes: axes must lie in 1..4, got 0");
  CHECK_THROWS_WITH(positions::axes(ids, 5), contains("axes must lie in 1..4, got 5"));
  CHECK_THROWS_WITH(positions::axes(ids, 4, 2), contains("must fill batch * axes rows"));
}

TEST_CASE("positions: a token of one coordinate has it on every axis", "[core][positions]") {
  const posenc::position p = 42;
  for (int a = 0; a < posenc::position::max_axes; ++a) CHECK(p[a] == 42);
  const std::vector<std::int64_t> ids{8, 9};
  CHECK(positions::listed(ids).at(0, 1)[3] == 9);
  CHECK(positions::axes(ids, 1).at(0, 1)[3] == 9);
}

TEST_CASE("positions: real-valued positions are read as they are", "[core][positions]") {
  const std::vector<double> values{0.5, -2.25, 1e9};
  const posenc::real_positions p(values);
  CHECK(p.size() == 3);
  CHECK(p[1] == -2.25);
}

TEMPLATE_TEST_CASE("positions: a number of any integer type is a position", "[core][positions]", std::int8_t,
                   std::uint16_t, int, unsigned, std::int64_t, long long, std::size_t) {
  constexpr posenc::position p = TestType(100);
  static_assert(p[0] == 100 && p[3] == 100 && p.value() == 100);
  static_assert(std::is_convertible_v<TestType, posenc::position>);
  CHECK(posenc::position(std::numeric_limits<TestType>::min())[2] ==
        static_cast<std::int64_t>(std::numeric_limits<TestType>::min()));
}

TEST_CASE("positions: a feature is not a position, and no position a real one by accident", "[core][positions]") {
  static_assert(!std::is_convertible_v<double, posenc::position>);
  static_assert(!std::is_convertible_v<float, posenc::position>);
  static_assert(!std::is_convertible_v<int, posenc::real_position>);
  static_assert(!std::is_convertible_v<std::vector<double>, posenc::real_positions>);
  static_assert(posenc::position(3) == posenc::position(std::int64_t{3}));
  static_assert(posenc::position(3) != posenc::position(4));
  posenc::position p = 3;
  p.axis[2] = 4;
  CHECK(p != posenc::position(3));
  CHECK(p.value() == 3);
  CHECK(posenc::position{}[0] == 0);
}

TEST_CASE("positions: real values on several axes", "[core][positions]") {
  const std::vector<double> values{0.5, -2.25, 1e9, 10.5, 11.5, 12.5};
  const auto two = posenc::real_positions::axes(values, 2);
  CHECK(two.axis_count() == 2);
  CHECK(two.size() == 3);
  CHECK(two[1] == -2.25);
  CHECK(two.at(1)[0] == -2.25);
  CHECK(two.at(1)[1] == 11.5);
  CHECK(two.at(2)[1] == 12.5);
  // Coordinates that are not given are 0, as those of whole positions.
  CHECK(two.at(2)[2] == 0);
  CHECK(two.at(2)[3] == 0);
  const auto three = posenc::real_positions::axes(values, 3);
  CHECK(three.size() == 2);
  CHECK(three.at(1)[2] == 12.5);
  // One coordinate stands on every axis.
  const posenc::real_positions one(values);
  CHECK(one.axis_count() == 1);
  CHECK(one.size() == 6);
  for (int a = 0; a < posenc::position::max_axes; ++a) CHECK(one.at(3)[a] == 10.5);
  CHECK(posenc::real_positions::axes(values, 1).at(3)[2] == 10.5);
  CHECK_THROWS_WITH(posenc::real_positions::axes(values, 0),
                    "posenc::real_positions::axes: axes must lie in 1..4, got 0");
  CHECK_THROWS_WITH(posenc::real_positions::axes(values, 5), contains("axes must lie in 1..4, got 5"));
  CHECK_THROWS_WITH(posenc::real_positions::axes(values, 4),
                    "posenc::real_positions::axes: values must fill axes of equal length, got 6");
  const std::vector<double> none;
  CHECK(posenc::real_positions::axes(none, 3).size() == 0);
  const posenc::real_position r = 0.25f;
  for (int a = 0; a < posenc::position::max_axes; ++a) CHECK(r[a] == 0.25);
}
