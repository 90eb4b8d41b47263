// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/alibi.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

#include <array>
#include <numeric>
#include <thread>

namespace {

using namespace posenc_test;

// One instantiation serves the file.
using policy = posenc::run_time_policy<posenc::alibi<float>>;
policy plain(std::int64_t heads) { return {.bias = posenc::alibi<float>(heads)}; }

struct call {
  stored<float> q;
  stored<float> k;
  stored<float> v;
  stored<float> out;
  stored<float> lse;

  call(std::int64_t batch, std::int64_t queries, std::int64_t keys, std::int64_t heads, std::int64_t kv_heads,
       std::int64_t dim, std::int64_t value_dim, unsigned seed = 1) {
    std::mt19937 random(seed);
    q = random_stored<float>(random, {batch, queries, heads, dim});
    k = random_stored<float>(random, {batch, keys, kv_heads, dim});
    v = random_stored<float>(random, {batch, keys, kv_heads, value_dim});
    out = stored<float>({batch, queries, heads, value_dim}, 7);
    lse = stored<float>({batch, queries, heads, 1}, 7);
  }
  void run(const policy& p, posenc::attention_options<float> options = {}) {
    options.lse = lse.view();
    posenc::attention(q.view(), k.view(), v.view(), out.view(), p, options);
  }
};

/// Tokens first .. first + n - 1 of every batch row.
stored<float> slice(const stored<float>& x, std::int64_t first, std::int64_t n) {
  stored<float> y({x.extents.batch, n, x.extents.heads, x.extents.dim});
  for (std::int64_t b = 0; b < x.extents.batch; ++b)
    for (std::int64_t t = 0; t < n; ++t)
      for (std::int64_t h = 0; h < x.extents.heads; ++h)
        for (std::int64_t d = 0; d < x.extents.dim; ++d) y(b, t, h, d) = x.read()(b, first + t, h, d);
  return y;
}

struct pool {
  std::int64_t workers;
  [[nodiscard]] std::int64_t concurrency() const { return workers; }
  template <class F>
  void parallel_for(std::int64_t n, F&& f) const {
    std::vector<std::thread> threads;
    // Worker w takes the items from the back, so that the order differs from the serial one.
    for (std::int64_t w = 0; w < workers; ++w)
      threads.emplace_back([&, w] {
        for (std::int64_t i = n - 1 - w; i >= 0; i -= workers) f(i, w);
      });
    for (std::thread& t : threads) t.join();
  }
};

}  // namespace

TEST_CASE("chunked prefill is the whole, and decode step t is row t of prefill") {
  constexpr std::int64_t n = 141;
  call whole(2, n, n, 4, 2, 12, 20);
  policy p = plain(4);
  p.masks.causal = true;
  whole.run(p);
  for (const std::int64_t chunk : {1, 50}) {
    for (std::int64_t first = chunk == 1 ? 120 : 0; first < n; first += chunk) {
      const std::int64_t queries = std::min(chunk, n - first);
      const std::int64_t keys = first + queries;
      call part(2, queries, keys, 4, 2, 12, 20);
      part.q = slice(whole.q, first, queries);
      part.k = slice(whole.k, 0, keys);
      part.v = slice(whole.v, 0, keys);
      part.run(p, {.query_positions = posenc::positions::from(first)});
      const stored<float> expected = slice(whole.out, first, queries);
      for (std::size_t i = 0; i < expected.data.size(); ++i)
        REQUIRE(std::abs(part.out.data[i] - expected.data[i]) <= 1e-6f);
      const stored<float> expected_lse = slice(whole.lse, first, queries);
      for (std::size_t i = 0; i < expected_lse.data.size(); ++i)
        REQUIRE(std::abs(part.lse.data[i] - expected_lse.data[i]) <= 1e-6f * (1 + std::abs(expected_lse.data[i])));
    }
  }
}

TEST_CASE("every number of workers gives the same bits") {
  call serial(2, 130, 150, 4, 2, 9, 11);
  policy p = plain(4);
  p.masks.window = posenc::sliding_window(60);
  const posenc::attention_options<float> options{.query_positions = posenc::positions::from(20)};
  serial.run(p, options);
  for (const std::int64_t workers : {1, 2, 3, 4}) {
    call threaded(2, 130, 150, 4, 2, 9, 11);
    posenc::attention_options<float> same = options;
    same.lse = threaded.lse.view();
    std::vector<std::byte> memory(posenc::attention_workspace(threaded.q.view(), threaded.k.view(), threaded.v.view(),
                                                              threaded.out.view(), p, same, workers));
    if (workers % 2 == 0) same.workspace = memory;
    const pool executor{workers};
    posenc::attention(threaded.q.view(), threaded.k.view(), threaded.v.view(), threaded.out.view(), p, same, executor);
    CHECK(threaded.out.data == serial.out.data);
    CHECK(threaded.lse.data == serial.lse.data);
  }
}

TEST_CASE("listed ids in any order, with duplicates, give what the same keys give in order") {
  constexpr std::int64_t keys = 137;
  for (const std::int64_t queries : {1, 20}) {
    call sorted(1, queries, keys, 4, 2, 8, 8);
    policy p = plain(4);
    p.masks.window = posenc::sliding_window(50);
    p.masks.chunk = posenc::chunked(32);
    std::vector<std::int64_t> ids(keys);
    for (std::int64_t j = 0; j < keys; ++j) ids[static_cast<std::size_t>(j)] = j - j % 3;  // triples share a position
    const auto at = posenc::positions::from(keys - queries);
    sorted.run(p, {.query_positions = at, .key_positions = posenc::positions::listed(ids)});

    std::vector<std::size_t> order(keys);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937(3));
    call shuffled = sorted;
    std::vector<std::int32_t> narrow_ids(keys);
    for (std::int64_t j = 0; j < keys; ++j) {
      const auto from = static_cast<std::int64_t>(order[static_cast<std::size_t>(j)]);
      narrow_ids[static_cast<std::size_t>(j)] = static_cast<std::int32_t>(ids[static_cast<std::size_t>(from)]);
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t d = 0; d < 8; ++d) {
          shuffled.k(0, j, h, d) = sorted.k(0, from, h, d);
          shuffled.v(0, j, h, d) = sorted.v(0, from, h, d);
        }
    }
    shuffled.run(p, {.query_positions = at, .key_positions = posenc::positions::listed(narrow_ids)});
    for (std::size_t i = 0; i < sorted.out.data.size(); ++i)
      REQUIRE(std::abs(shuffled.out.data[i] - sorted.out.data[i]) <= 1e-6f);
  }
}

TEST_CASE("batch rows have positions of their own, as lists and as first positions") {
  constexpr std::int64_t keys = 30;
  call both(2, 5, keys, 2, 1, 8, 8);
  policy p = plain(2);
  p.masks.causal = true;
  std::vector<std::int64_t> key_ids;
  std::vector<std::int64_t> query_ids;
  const std::array<std::int64_t, 2> key_first{4, -11};
  const std::array<std::int64_t, 2> query_first{20, 9};
  for (const std::int64_t first : key_first)
    for (std::int64_t j = 0; j < keys; ++j) key_ids.push_back(first + j);
  for (const std::int64_t first : query_first)
    for (std::int64_t i = 0; i < 5; ++i) query_ids.push_back(first + i);
  both.run(p, {.query_positions = posenc::positions::per_row(query_first),
               .key_positions = posenc::positions::per_row(key_first)});
  call lists = both;
  lists.run(p, {.query_positions = posenc::positions::listed(query_ids, 2),
                .key_positions = posenc::positions::listed(key_ids, 2)});
  for (std::size_t i = 0; i < both.out.data.size(); ++i) CHECK(std::abs(lists.out.data[i] - both.out.data[i]) <= 1e-6f);
  for (std::int64_t b = 0; b < 2; ++b) {
    call one(1, 5, keys, 2, 1, 8, 8);
    std::copy_n(both.q.data.begin() + b * 80, 80, one.q.data.begin());
    std::copy_n(both.k.data.begin() + b * keys * 8, keys * 8, one.k.data.begin());
    std::copy_n(both.v.data.begin() + b * keys * 8, keys * 8, one.v.data.begin());
    one.run(p, {.query_positions = posenc::positions::from(query_first[static_cast<std::size_t>(b)]),
                .key_positions = posenc::positions::from(key_first[static_cast<std::size_t>(b)])});
    CHECK(std::equal(one.out.data.begin(), one.out.data.end(), both.out.data.begin() + b * 80));
  }
}

TEST_CASE("positions of any size give what their differences give") {
  constexpr std::int64_t keys = 140;
  for (const std::int64_t queries : {1, 16}) {
    call near(1, queries, keys, 4, 2, 8, 8);
    policy p = plain(4);
    p.masks.window = posenc::sliding_window(100);
    near.run(p, {.query_positions = posenc::positions::from(keys - queries)});
    for (const std::int64_t far :
         {std::int64_t{1000000000}, std::int64_t{1000000000000000}, -std::int64_t{1000000000}}) {
      call moved = near;
      moved.run(p, {.query_positions = posenc::positions::from(far + keys - queries),
                    .key_positions = posenc::positions::from(far)});
      CHECK(moved.out.data == near.out.data);
      std::vector<std::int64_t> ids(keys);
      std::iota(ids.begin(), ids.end(), far);
      moved.run(p, {.query_positions = posenc::positions::from(far + keys - queries),
                    .key_positions = posenc::positions::listed(ids)});
      for (std::size_t i = 0; i < near.out.data.size(); ++i)
        REQUIRE(std::abs(moved.out.data[i] - near.out.data[i]) <= 1e-6f);
    }
  }
}

TEST_CASE("masks that start near the ends of int64 keep their keys") {
  constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  posenc::run_time_policy<posenc::alibi<float>> p = plain(1);
  p.masks.causal = true;
  call near(1, 1, 4, 1, 1, 4, 4);
  near.run(p, {.query_positions = posenc::positions::from(3)});
  for (const std::int64_t first : {highest - 4, lowest}) {
    call end = near;
    end.run(p,
            {.query_positions = posenc::positions::from(first + 3), .key_positions = posenc::positions::from(first)});
    CHECK(end.out.data == near.out.data);
    const std::vector<std::int64_t> ids{first, first + 1, first + 2, first + 3};
    end.run(p,
            {.query_positions = posenc::positions::from(first + 3), .key_positions = posenc::positions::listed(ids)});
    CHECK(relative_error(end.out.data, to_dense(near.out).data) <= 1e-6);
  }
  // The position above the last visible one has to be a number too.
  call refused = near;
  CHECK_THROWS_AS(refused.run(p, {.query_positions = posenc::positions::from(highest)}), std::invalid_argument);
  CHECK(refused.out.data == near.out.data);
}

TEST_CASE("no keys give zeros and an empty log-sum-exp, no queries give nothing, null pointers included") {
  const policy p = plain(2);
  stored<float> q({2, 3, 2, 4}, 1);
  stored<float> out({2, 3, 2, 5}, 7);
  stored<float> lse({2, 3, 2, 1}, 7);
  const posenc::view<float> none(nullptr, {.batch = 2, .tokens = 0, .heads = 1, .dim = 4});
  const posenc::view<float> no_values(nullptr, {.batch = 2, .tokens = 0, .heads = 1, .dim = 5});
  posenc::attention(q.view(), none, no_values, out.view(), p, {.lse = lse.view()});
  for (const float x : out.data) CHECK(x == 0);
  for (const float x : lse.data) CHECK(x == -inf_f);

  policy with_sink = p;
  with_sink.sinks = {0.5, -2};
  posenc::attention(q.view(), none, no_values, out.view(), with_sink, {.lse = lse.view()});
  for (std::size_t i = 0; i < lse.data.size(); ++i) CHECK(lse.data[i] == (i % 2 == 0 ? 0.5f : -2.0f));

  stored<float> k({2, 6, 1, 4}, 1);
  const posenc::view<float> no_queries(nullptr, {.batch = 2, .tokens = 0, .heads = 2, .dim = 4});
  posenc::attention(no_queries, k.view(), k.view(), no_queries, p, {});
  const posenc::view<float> nobody(nullptr, {.batch = 0, .tokens = 3, .heads = 2, .dim = 4});
  const posenc::view<float> nothing(nullptr, {.batch = 0, .tokens = 6, .heads = 1, .dim = 4});
  posenc::attention(nobody, nothing, nothing, nobody, p, {});
}

TEST_CASE("heads of no width see uniform weights, values of no width leave the log-sum-exp") {
  const policy p{.bias = posenc::alibi<float>(std::vector<float>{0.0f})};
  for (const std::int64_t queries : {1, 20}) {
    stored<float> v({1, 4, 1, 2});
    for (std::size_t i = 0; i < 8; ++i) v.data[i] = static_cast<float>(i);
    stored<float> out({1, queries, 1, 2}, 9);
    stored<float> lse({1, queries, 1, 1}, 9);
    const posenc::view<float> q(nullptr, {.tokens = queries, .heads = 1, .dim = 0});
    const posenc::view<float> k(nullptr, {.tokens = 4, .heads = 1, .dim = 0});
    posenc::attention(q, k, v.view(), out.view(), p, {.lse = lse.view()});
    CHECK(out(0, 0, 0, 0) == Approx(3));
    CHECK(out(0, queries - 1, 0, 1) == Approx(4));
    CHECK(lse(0, queries - 1, 0, 0) == Approx(std::log(4.0)));

    stored<float> wide({1, queries, 1, 2}, 1);
    stored<float> keys({1, 4, 1, 2}, 1);
    const posenc::view<float> no_v(nullptr, {.tokens = 4, .heads = 1, .dim = 0});
    const posenc::view<float> no_out(nullptr, {.tokens = queries, .heads = 1, .dim = 0});
    posenc::attention(wide.view(), keys.view(), no_v, no_out, p, {.scale = 0.5, .lse = lse.view()});
    CHECK(lse(0, queries - 1, 0, 0) == Approx(1 + std::log(4.0)));
  }
}

TEST_CASE("rows without a visible key give zeros and -inf, or their sink, and leave the others alone") {
  for (const std::int64_t queries : {3, 40}) {
    call c(1, queries, 20, 2, 1, 8, 8);
    policy p = plain(2);
    p.masks.causal = true;
    call all = c;
    const auto at = posenc::positions::from(queries - 2);
    all.run(p, {.query_positions = at});
    // The first query stands before every key.
    std::vector<std::int64_t> ids(static_cast<std::size_t>(queries));
    std::iota(ids.begin(), ids.end(), queries - 2);
    ids[0] = -1;
    c.run(p, {.query_positions = posenc::positions::listed(ids)});
    for (std::int64_t h = 0; h < 2; ++h) {
      CHECK(c.lse(0, 0, h, 0) == -inf_f);
      for (std::int64_t d = 0; d < 8; ++d) CHECK(c.out(0, 0, h, d) == 0);
    }
    CHECK(std::equal(c.out.data.begin() + 16, c.out.data.end(), all.out.data.begin() + 16));
    p.sinks = {0.25, -3};
    c.run(p, {.query_positions = posenc::positions::listed(ids)});
    CHECK(c.lse(0, 0, 0, 0) == 0.25f);
    CHECK(c.lse(0, 0, 1, 0) == -3.0f);
    for (std::int64_t d = 0; d < 8; ++d) CHECK(c.out(0, 0, 0, d) == 0);
    CHECK(c.lse(0, 1, 0, 0) > all.lse(0, 1, 0, 0));
  }
}

TEST_CASE("NaN and Inf in hidden keys and values never reach a row") {
  // 137 keys: the hidden ones lie in the middle of a tile, at its end and in the last tile.
  constexpr std::int64_t keys = 137;
  for (const std::int64_t queries : {1, 3, 30})
    for (const bool ring : {false, true}) {
      call clean(1, queries, keys, 4, 2, 8, 12);
      policy p = plain(4);
      p.masks.window = posenc::sliding_window(40);
      std::vector<std::int64_t> ids(keys);
      for (std::int64_t j = 0; j < keys; ++j) ids[static_cast<std::size_t>(j)] = ring ? (j + 60) % keys : j;
      const posenc::attention_options<float> options{
          .query_positions = posenc::positions::from(90),
          .key_positions = ring ? posenc::positions::listed(ids) : posenc::positions::from(0)};
      clean.run(p, options);
      for (const float poison : {nan_f, inf_f, -inf_f}) {
        call planted = clean;
        for (std::int64_t j = 0; j < keys; ++j) {
          const std::int64_t at = ids[static_cast<std::size_t>(j)];
          if (at > 50 && at < 90 + queries) continue;
          for (std::int64_t h = 0; h < 2; ++h) {
            for (std::int64_t d = 0; d < 8; ++d) planted.k(0, j, h, d) = poison;
            for (std::int64_t d = 0; d < 12; ++d) planted.v(0, j, h, d) = poison;
          }
        }
        planted.run(p, options);
        INFO("queries " << queries << ", ring " << ring << ", poison " << poison);
        CHECK(relative_error(planted.out.data, to_dense(clean.out).data) <= 1e-6);
        CHECK(relative_error(planted.lse.data, to_dense(clean.lse).data) <= 1e-6);
      }
    }
}

TEST_CASE("NaN in one query stays in its rows, NaN in a visible key reaches the rows that see it") {
  for (const std::int64_t queries : {2, 30}) {
    call clean(1, queries, 137, 4, 2, 8, 12);
    policy p = plain(4);
    p.masks.causal = true;
    const posenc::attention_options<float> options{.query_positions = posenc::positions::from(100)};
    clean.run(p, options);
    call planted = clean;
    planted.q(0, 1, 2, 3) = nan_f;
    planted.run(p, options);
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t h = 0; h < 4; ++h)
        for (std::int64_t d = 0; d < 12; ++d) {
          INFO("query " << i << ", head " << h << ", dim " << d);
          if (i == 1 && h == 2) {
            REQUIRE(std::isnan(planted.out(0, i, h, d)));
          } else {
            REQUIRE(planted.out(0, i, h, d) == clean.out(0, i, h, d));
          }
        }
    CHECK(std::isnan(planted.lse(0, 1, 2, 0)));

    for (const std::int64_t key : {0, 40, 101}) {  // key 101 is seen from query 1 on
      planted = clean;
      planted.k(0, key, 1, 0) = nan_f;
      planted.run(p, options);
      for (std::int64_t i = 0; i < queries; ++i)
        for (std::int64_t h = 0; h < 4; ++h) {
          INFO("key " << key << ", query " << i << ", head " << h);
          const bool sees = h >= 2 && key <= 100 + i;
          REQUIRE(std::isnan(planted.out(0, i, h, 0)) == sees);
          REQUIRE(std::isnan(planted.lse(0, i, h, 0)) == sees);
        }
      planted = clean;
      planted.v(0, key, 1, 5) = nan_f;
      planted.run(p, options);
      for (std::int64_t i = 0; i < queries; ++i)
        for (std::int64_t h = 0; h < 4; ++h) {
          const bool sees = h >= 2 && key <= 100 + i;
          REQUIRE(std::isnan(planted.out(0, i, h, 5)) == sees);
          REQUIRE_FALSE(std::isnan(planted.out(0, i, h, 4)));
        }
    }
  }
}

TEST_CASE("an infinite logit makes its rows NaN, an infinite key that lowers a logit has no weight") {
  for (const std::int64_t queries : {2, 30}) {
    call clean(1, queries, 137, 4, 2, 8, 12);
    policy p = plain(4);
    p.masks.causal = true;
    for (float& x : clean.q.data) x = std::abs(x) + 0.1f;
    const posenc::attention_options<float> options{.query_positions = posenc::positions::from(100)};
    call high = clean;
    high.k(0, 40, 1, 3) = inf_f;
    high.run(p, options);
    call low = clean;
    low.k(0, 40, 1, 3) = -inf_f;
    for (std::int64_t d = 0; d < 12; ++d) low.v(0, 40, 1, d) = 1e30f;
    low.run(p, options);
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t h = 0; h < 4; ++h) {
        INFO("query " << i << ", head " << h);
        REQUIRE(std::isnan(high.out(0, i, h, 0)) == (h >= 2));
        REQUIRE(std::abs(low.out(0, i, h, 0)) <= 1);
        REQUIRE(std::isfinite(low.lse(0, i, h, 0)));
      }
  }
}

TEST_CASE("a key of NaN alone in its row gives NaN, not an empty row") {
  for (const std::int64_t queries : {1, 20}) {
    call c(1, queries, 1, 1, 1, 4, 4);
    c.k(0, 0, 0, 2) = nan_f;
    c.run(plain(1));
    for (const float x : c.out.data) CHECK(std::isnan(x));
    for (const float x : c.lse.data) CHECK(std::isnan(x));
  }
}

TEST_CASE("the log-sum-exp joins halves of the keys") {
  call whole(1, 13, 60, 2, 2, 8, 8);
  whole.run(plain(2));
  call low = whole;
  call high = whole;
  low.k = slice(whole.k, 0, 25);
  low.v = slice(whole.v, 0, 25);
  high.k = slice(whole.k, 25, 35);
  high.v = slice(whole.v, 25, 35);
  low.run(plain(2));
  high.run(plain(2), {.key_positions = posenc::positions::from(25)});
  for (std::int64_t i = 0; i < 13; ++i)
    for (std::int64_t h = 0; h < 2; ++h) {
      const double a = std::exp(static_cast<double>(low.lse(0, i, h, 0)));
      const double b = std::exp(static_cast<double>(high.lse(0, i, h, 0)));
      CHECK(whole.lse(0, i, h, 0) == Approx(std::log(a + b)).epsilon(1e-6));
      for (std::int64_t d = 0; d < 8; ++d) {
        const double joined =
            (a * static_cast<double>(low.out(0, i, h, d)) + b * static_cast<double>(high.out(0, i, h, d))) / (a + b);
        CHECK(std::abs(joined - static_cast<double>(whole.out(0, i, h, d))) <= 1e-6);
      }
    }
}

TEST_CASE("the scale is one over the root of the width unless it is given") {
  call c(1, 2, 9, 1, 1, 16, 4);
  c.run(plain(1));
  call given = c;
  given.run(plain(1), {.scale = 0.25});
  CHECK(given.out.data == c.out.data);
  given.run(plain(1), {.scale = 1.0});
  CHECK(given.out.data != c.out.data);
}
