// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>
#include <posenc/attention/index_masks.hpp>
#include <posenc/attention/masks.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

#include <array>

namespace {

using posenc_test::contains;
using list = std::vector<std::int64_t>;

template <class Mask>
bool sees(const Mask& mask, std::int64_t batch, std::int64_t query, std::int64_t key, std::int64_t keys = 20) {
  posenc::interval_list seen({0, keys});
  posenc::detail::allow_by_index(std::make_tuple(mask), {.batch = batch, .query_index = query}, seen);
  return seen.contains(key);
}

}  // namespace

TEST_CASE("cache_length is one for all batch rows or one for each") {
  const list lengths{3, 0, 20};
  for (std::int64_t b = 0; b < 3; ++b)
    for (std::int64_t j = -1; j <= 20; ++j) {
      CHECK(sees(posenc::cache_length(5), b, 0, j) == (j >= 0 && j < 5));
      CHECK(sees(posenc::cache_length(lengths), b, 0, j) == (j >= 0 && j < lengths[static_cast<std::size_t>(b)]));
    }
  CHECK_THROWS_WITH(posenc::cache_length(-1), contains("posenc::cache_length: length must not be negative, got -1"));
  const list bad{1, -2};
  CHECK_THROWS_AS(posenc::cache_length(bad), std::invalid_argument);
  CHECK_THROWS_AS(posenc::cache_length(lengths).check({.batch = 2}), std::invalid_argument);
}

TEST_CASE("padding is told per batch row, on either side or both") {
  const list begin{0, 4, 20};
  const list end{20, 9, 20};
  for (std::int64_t b = 0; b < 3; ++b)
    for (std::int64_t j = 0; j < 20; ++j) {
      const auto at = static_cast<std::size_t>(b);
      CHECK(sees(posenc::padding{begin, end}, b, 0, j) == (j >= begin[at] && j < end[at]));
      CHECK(sees(posenc::padding{begin, {}}, b, 0, j) == (j >= begin[at]));
      CHECK(sees(posenc::padding{{}, end}, b, 0, j) == (j < end[at]));
      CHECK(sees(posenc::padding{}, b, 0, j));
    }
  CHECK_THROWS_WITH((posenc::padding{begin, {}}.check({.batch = 2})),
                    contains("posenc::padding: begin must list one index per batch row, got 3"));
  CHECK_THROWS_WITH((posenc::padding{{}, end}.check({.batch = 4})), contains("posenc::padding: end must list"));
}

TEST_CASE("documents see their own keys, empty documents and uncovered queries see none") {
  const list query_starts{1, 4, 4, 9};
  const list key_starts{0, 6, 8, 15};
  for (std::int64_t i = 0; i < 12; ++i)
    for (std::int64_t j = 0; j < 20; ++j) {
      bool expected = false;
      for (std::size_t d = 0; d + 1 < query_starts.size(); ++d)
        expected = expected ||
                   (query_starts[d] <= i && i < query_starts[d + 1] && key_starts[d] <= j && j < key_starts[d + 1]);
      INFO("query " << i << ", key " << j);
      CHECK(sees(posenc::documents(query_starts, key_starts), 0, i, j) == expected);
    }
  for (std::int64_t i = 0; i < 12; ++i)
    for (std::int64_t j = 0; j < 12; ++j)
      CHECK(sees(posenc::documents(query_starts), 0, i, j) ==
            ((i >= 1 && i < 4 && j >= 1 && j < 4) || (i >= 4 && i < 9 && j >= 4 && j < 9)));
  const list falling{0, 5, 4};
  const list two{0, 5};
  CHECK_THROWS_AS(posenc::documents(falling), std::invalid_argument);
  CHECK_THROWS_WITH(posenc::documents(query_starts, two), contains("as many documents for keys as for queries"));
  CHECK_THROWS_AS(posenc::documents(list{}), std::invalid_argument);
}

TEST_CASE("packed documents give what each document gives alone, padding and cache length included") {
  // Documents of 5, 1 and 30 tokens, behind 3 keys of padding and before 100 keys of an unfilled cache.
  std::mt19937 random(2);
  const list starts{0, 5, 6, 36};
  const list key_starts{3, 8, 9, 39};
  auto q = posenc_test::random_stored<float>(random, {1, 36, 2, 8});
  auto k = posenc_test::random_stored<float>(random, {1, 139, 2, 8});
  auto v = posenc_test::random_stored<float>(random, {1, 139, 2, 8});
  for (std::int64_t j = 0; j < 139; ++j)
    if (j < 3 || j >= 39)
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t d = 0; d < 8; ++d) k(0, j, h, d) = v(0, j, h, d) = posenc_test::nan_f;
  list query_ids;
  list key_ids(139, 0);
  for (std::size_t d = 0; d < 3; ++d)
    for (std::int64_t t = 0; t < starts[d + 1] - starts[d]; ++t) {
      query_ids.push_back(t);
      key_ids[static_cast<std::size_t>(key_starts[d] + t)] = t;
    }
  posenc_test::stored<float> out({1, 36, 2, 8});
  const list begin{3};
  posenc::attention(
      q.view(), k.view(), v.view(), out.view(),
      posenc::compose(posenc::causal{}, posenc::documents(starts, key_starts), posenc::padding{begin, {}},
                      posenc::cache_length(39)),
      {.query_positions = posenc::positions::listed(query_ids), .key_positions = posenc::positions::listed(key_ids)});
  for (std::size_t d = 0; d < 3; ++d) {
    const std::int64_t n = starts[d + 1] - starts[d];
    posenc_test::stored<float> alone({1, n, 2, 8});
    const auto part = [](posenc::view<float> x, std::int64_t first, std::int64_t tokens) {
      return posenc::view<float>(x.row(0, first, 0), {.tokens = tokens, .heads = 2, .dim = 8});
    };
    posenc::attention(part(q.view(), starts[d], n), part(k.view(), key_starts[d], n), part(v.view(), key_starts[d], n),
                      alone.view(), posenc::compose(posenc::causal{}));
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t e = 0; e < 8; ++e) CHECK(std::abs(out(0, starts[d] + i, h, e) - alone(0, i, h, e)) <= 1e-6f);
  }
}
