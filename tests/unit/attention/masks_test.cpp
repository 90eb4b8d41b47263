// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/compose.hpp>
#include <posenc/attention/index_masks.hpp>
#include <posenc/attention/masks.hpp>

#include "reference/dense_attention.hpp"
#include "support/catch.hpp"

#include <limits>
#include <random>
#include <vector>

namespace {

using posenc::interval;
using posenc::interval_list;

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

posenc::row at(std::int64_t query) { return {.query_position = query}; }

/// What a mask lets through, after the intersection that the kernels do.
template <class Mask>
bool sees(const Mask& mask, std::int64_t query, std::int64_t key) {
  return posenc::detail::positions_allowed(std::make_tuple(mask), at(query)).contains(key);
}

template <class Mask, class Rule>
void compare(const Mask& mask, const Rule& rule) {
  for (std::int64_t q = -20; q <= 20; ++q)
    for (std::int64_t k = -25; k <= 25; ++k) {
      INFO("query " << q << ", key " << k);
      REQUIRE(sees(mask, q, k) == rule(q, k));
    }
}

}  // namespace

TEST_CASE("causal sees keys up to the query's own position") {
  compare(posenc::causal{}, [](std::int64_t q, std::int64_t k) { return k <= q; });
}

TEST_CASE("sliding_window sees W keys with the query's own") {
  for (const std::int64_t w : {1, 2, 3, 7, 20})
    compare(posenc::sliding_window(w), [w](std::int64_t q, std::int64_t k) { return k <= q && q - k < w; });
}

TEST_CASE("a sliding window of at least n keys is causal on n keys") {
  for (const std::int64_t w : {std::int64_t{9}, std::int64_t{10}, std::int64_t{1000}, highest})
    for (std::int64_t q = 0; q < 9; ++q)
      for (std::int64_t k = 0; k < 9; ++k) REQUIRE(sees(posenc::sliding_window(w), q, k) == (k <= q));
}

TEST_CASE("symmetric_window sees |distance| < W") {
  for (const std::int64_t w : {1, 2, 5})
    compare(posenc::symmetric_window(w), [w](std::int64_t q, std::int64_t k) {
      return std::abs(static_cast<double>(k - q)) < static_cast<double>(w);
    });
}

TEST_CASE("chunks divide by floor, below zero too") {
  for (const std::int64_t c : {1, 2, 3, 4, 7}) {
    const auto same = [c](std::int64_t q, std::int64_t k) {
      return dense::floor_divide(q, c) == dense::floor_divide(k, c);
    };
    compare(posenc::chunked(c), [&](std::int64_t q, std::int64_t k) { return same(q, k) && k <= q; });
    compare(posenc::block_diagonal(c), same);
  }
}

TEST_CASE("prefix_lm sees the prefix and the past") {
  for (const std::int64_t n : {-3, 0, 1, 5, 30})
    compare(posenc::prefix_lm(n), [n](std::int64_t q, std::int64_t k) { return k < n || k <= q; });
}

TEST_CASE("before sees keys below its end, whatever the query") {
  compare(posenc::before(3), [](std::int64_t, std::int64_t k) { return k < 3; });
}

TEST_CASE("any_of is the union of two masks, in either order") {
  const auto rule = [](std::int64_t q, std::int64_t k) { return k < 2 || (k <= q && q - k < 4); };
  compare(posenc::any_of(posenc::before(2), posenc::sliding_window(4)), rule);
  compare(posenc::any_of(posenc::sliding_window(4), posenc::before(2)), rule);
}

TEST_CASE("masks of a policy intersect, unions among them") {
  const auto pack =
      std::make_tuple(posenc::any_of(posenc::before(-4), posenc::sliding_window(6)),
                      posenc::any_of(posenc::chunked(5), posenc::symmetric_window(2)), posenc::prefix_lm(3));
  for (std::int64_t q = -12; q <= 12; ++q) {
    const interval_list list = posenc::detail::positions_allowed(pack, at(q));
    for (int i = 1; i < list.size(); ++i) REQUIRE(list[i - 1].hi <= list[i].lo);
    for (std::int64_t k = -20; k <= 20; ++k) {
      const bool first = k < -4 || (k <= q && q - k < 6);
      const bool second =
          (k <= q && dense::floor_divide(q, 5) == dense::floor_divide(k, 5)) || (k - q < 2 && q - k < 2);
      INFO("query " << q << ", key " << k);
      REQUIRE(list.contains(k) == (first && second && (k < 3 || k <= q)));
    }
  }
}

TEST_CASE("an intersection of unions is right for random intervals, empty and touching ones too") {
  std::mt19937 random(11);
  std::uniform_int_distribution<std::int64_t> end(0, 24);
  for (int round = 0; round < 400; ++round) {
    interval_list list({0, 24});
    std::vector<posenc::interval_pair> pairs(6);
    for (auto& pair : pairs) {
      for (auto& side : pair) side = {end(random), end(random)};  // a third of these are empty
      if (round % 2 == 0) pair[1] = {0, end(random)};
      list.intersect(pair);
    }
    std::int64_t total = 0;
    for (std::int64_t x = -1; x <= 25; ++x) {
      bool inside = x >= 0 && x < 24;
      for (const auto& pair : pairs) inside = inside && (pair[0].contains(x) || pair[1].contains(x));
      REQUIRE(list.contains(x) == inside);
      total += inside ? 1 : 0;
    }
    REQUIRE(list.total() == total);
  }
}

TEST_CASE("the most unions that one policy may hold leave no interval out") {
  // Ten unions, each with a hole at another place: eleven intervals remain.
  interval_list list({0, 110});
  for (std::int64_t i = 1; i <= 10; ++i) list.intersect(posenc::interval_pair{interval{0, 10 * i}, {10 * i + 1, 110}});
  CHECK(list.size() == 11);
  for (std::int64_t x = 0; x < 110; ++x) CHECK(list.contains(x) == (x % 10 != 0 || x == 0));
}

TEST_CASE("masks hold at the ends of int64") {
  CHECK(sees(posenc::causal{}, highest, highest - 1));
  CHECK(sees(posenc::causal{}, highest, highest));
  CHECK(sees(posenc::causal{}, lowest, lowest));
  CHECK_FALSE(sees(posenc::causal{}, lowest, lowest + 1));
  CHECK(sees(posenc::sliding_window(3), lowest, lowest));
  CHECK_FALSE(sees(posenc::sliding_window(3), lowest, lowest + 1));
  CHECK(sees(posenc::sliding_window(3), highest - 1, highest - 3));
  CHECK_FALSE(sees(posenc::sliding_window(3), highest - 1, highest - 4));
  CHECK(sees(posenc::sliding_window(highest), 5, -1000000));
  CHECK(sees(posenc::symmetric_window(highest), 5, -1000000));
  CHECK(sees(posenc::symmetric_window(highest), highest - 1, 3));
  CHECK(sees(posenc::prefix_lm(lowest), 4, 4));
  CHECK_FALSE(sees(posenc::prefix_lm(lowest), 4, 5));
  CHECK(sees(posenc::prefix_lm(highest), 4, 5000));
}

TEST_CASE("chunks hold at the ends of int64") {
  // A chunk of the largest size: [0, 2^63 - 1) is one chunk, everything below 0 another but for the lowest number.
  CHECK(sees(posenc::chunked(highest), 5, 0));
  CHECK(sees(posenc::chunked(highest), 5, 5));
  CHECK_FALSE(sees(posenc::chunked(highest), 5, -1));
  CHECK(sees(posenc::chunked(highest), highest - 1, 0));
  CHECK(sees(posenc::chunked(highest), -1, -1000));
  CHECK_FALSE(sees(posenc::chunked(highest), -1, 0));
  CHECK(sees(posenc::block_diagonal(highest), 0, highest - 1));
  CHECK_FALSE(sees(posenc::block_diagonal(highest), 0, -1));
  // 2^63 = 2 mod 3: the lowest number and the next one end the chunk that begins below int64.
  CHECK(dense::floor_divide(lowest + 1, 3) == dense::floor_divide(lowest, 3));
  CHECK(dense::floor_divide(lowest + 2, 3) == dense::floor_divide(lowest, 3) + 1);
  for (std::int64_t a = 0; a < 6; ++a)
    for (std::int64_t b = 0; b < 6; ++b) {
      INFO(a << ", " << b);
      CHECK(sees(posenc::block_diagonal(3), lowest + a, lowest + b) ==
            (dense::floor_divide(lowest + a, 3) == dense::floor_divide(lowest + b, 3)));
      CHECK(sees(posenc::chunked(3), lowest + a, lowest + b) ==
            (b <= a && dense::floor_divide(lowest + a, 3) == dense::floor_divide(lowest + b, 3)));
    }
}

TEST_CASE("masks refuse widths below one and say so") {
  using posenc_test::contains;
  for (const std::int64_t w : {0, -1}) {
    CHECK_THROWS_AS(posenc::sliding_window(w), std::invalid_argument);
    CHECK_THROWS_AS(posenc::chunked(w), std::invalid_argument);
    CHECK_THROWS_AS(posenc::symmetric_window(w), std::invalid_argument);
    CHECK_THROWS_AS(posenc::block_diagonal(w), std::invalid_argument);
  }
  CHECK_THROWS_WITH(posenc::sliding_window(0), contains("posenc::sliding_window: width must be at least 1, got 0"));
  CHECK_THROWS_WITH(posenc::chunked(-4), contains("posenc::chunked: size must be at least 1, got -4"));
}
