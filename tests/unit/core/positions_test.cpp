// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/positions.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <limits>
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
