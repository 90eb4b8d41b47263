// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Sequences over one pool: shared pages, copies on write, exhaustion, and the same attention as over one piece.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/contiguous_cache.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/paged_cache.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/rope_table.hpp>

#include "support/catch.hpp"
#include "unit/attention/cache_model.hpp"

#include <list>
#include <optional>
#include <thread>
#include <utility>

namespace {

using namespace posenc_test;

constexpr std::int64_t kv_heads = 2;
constexpr std::int64_t dim = 8;

const posenc::rope<float> encoder{{.head_dim = dim}};

posenc::page_pool_options small_pool(std::int64_t pages, std::int64_t page_tokens) {
  return {.pages = pages, .page_tokens = page_tokens, .kv_heads = kv_heads, .dim = dim, .value_dim = 3};
}

struct chunk {
  stored<float> k;
  stored<float> v;
  chunk(std::mt19937& random, std::int64_t n)
      : k(exact_values<float>(random, {.tokens = n, .heads = kv_heads, .dim = dim})),
        v(exact_values<float>(random, {.tokens = n, .heads = kv_heads, .dim = 3})) {}
};

struct sequence {
  posenc::paged_cache<float> cache;
  cache_model model;

  void append(const chunk& c) {
    model.append(c.k.read(), c.v.read());
    cache.append(c.k.read(), c.v.read(), encoder);
  }
};

sequence empty_sequence(posenc::page_pool<float>& pool, std::int64_t first = 0) {
  return {posenc::paged_cache<float>(pool, {.first_position = first}),
          {.extents = {.tokens = 1, .heads = kv_heads, .dim = dim}, .value_dim = 3, .first = first}};
}

}  // namespace

TEST_CASE("paged_cache: a prefix is shared until one of its holders writes to the last page") {
  std::mt19937 random(61);
  posenc::page_pool<float> pool(small_pool(20, 4));
  sequence first = empty_sequence(pool, 100);
  first.append(chunk(random, 10));
  CHECK(first.cache.pages() == 3);
  CHECK(pool.free_pages() == 17);

  sequence second{first.cache.prefix(6), first.model};
  second.model.truncate(6);
  CHECK(second.model.error(second.cache) <= 5e-7);
  CHECK(second.cache.pages() == 2);
  CHECK(pool.free_pages() == 17);
  CHECK(second.cache.keys().row(0, 5, 1) == first.cache.keys().row(0, 5, 1));

  // Tokens 6 and 7 would land in a page of the first: it is copied, the full one before it stays shared.
  CHECK(second.cache.pages_needed(2) == 1);
  second.append(chunk(random, 2));
  CHECK(pool.free_pages() == 16);
  CHECK(second.cache.keys().row(0, 3, 1) == first.cache.keys().row(0, 3, 1));
  CHECK(second.cache.keys().row(0, 4, 1) != first.cache.keys().row(0, 4, 1));
  CHECK(first.model.error(first.cache) <= 5e-7);
  CHECK(second.model.error(second.cache) <= 5e-7);

  // A full last page is not copied, the next page is new.
  sequence third{second.cache.fork(), second.model};
  CHECK(third.cache.pages_needed(1) == 1);
  third.append(chunk(random, 1));
  CHECK(third.cache.keys().row(0, 7, 0) == second.cache.keys().row(0, 7, 0));
  CHECK(pool.free_pages() == 15);
  // The first goes, the shared page stays with the others.
  first.cache.truncate(0);
  CHECK(pool.free_pages() == 17);
  CHECK(second.model.error(second.cache) <= 5e-7);
  CHECK(third.model.error(third.cache) <= 5e-7);
}

TEST_CASE("paged_cache: any changes of any sequences leave each of them as if it were alone") {
  for (const std::int64_t page_tokens : {1, 3, 8}) {
    std::mt19937 random(static_cast<unsigned>(62 + page_tokens));
    const auto draw = [&](std::int64_t lo, std::int64_t hi) {
      return std::uniform_int_distribution<std::int64_t>(lo, hi)(random);
    };
    posenc::page_pool<float> pool(small_pool(240 / page_tokens, page_tokens));
    double worst = 0;
    int refused = 0;
    int wrong = 0;
    {
      std::list<sequence> all;
      for (int step = 0; step < 300; ++step) {
        if (all.empty() || (all.size() < 5 && draw(0, 9) == 0)) all.push_back(empty_sequence(pool, draw(-50, 50)));
        auto chosen = std::next(all.begin(), draw(0, static_cast<std::int64_t>(all.size()) - 1));
        sequence& s = *chosen;
        const std::int64_t size = s.model.size();
        switch (draw(0, 9)) {
          case 0:
            if (all.size() < 8) {
              const std::int64_t n = draw(0, size);
              all.push_back({s.cache.prefix(n), s.model});
              all.back().model.truncate(n);
            }
            break;
          case 1: {
            const std::int64_t n = draw(0, size);
            s.model.truncate(n);
            s.cache.truncate(n);
            break;
          }
          case 2: {
            const std::int64_t n = draw(0, size);
            s.model.drop_first(n);
            s.cache.drop_first(n);
            break;
          }
          case 3:
            if (all.size() > 1) {
              all.erase(chosen);
              continue;
            }
            break;
          case 4:
            try {
              s.cache.shift(17, encoder);
              s.model.first += 17;
            } catch (const std::out_of_range&) {
              ++refused;
            }
            break;
          case 5: {
            const std::int64_t from = draw(0, size);
            const std::int64_t n = draw(0, std::min<std::int64_t>(size - from, 4));
            try {
              s.cache.erase(from, n, encoder);
              s.model.erase(from, n);
            } catch (const std::out_of_range&) {
              ++refused;
            }
            break;
          }
          default: {
            const chunk c(random, draw(0, 20));
            const bool fits = s.cache.pages_needed(c.k.extents.tokens) <= pool.free_pages();
            const std::int64_t before = pool.free_pages();
            const std::int64_t needed = s.cache.pages_needed(c.k.extents.tokens);
            try {
              s.cache.append(c.k.read(), c.v.read(), encoder);
              s.model.append(c.k.read(), c.v.read());
              wrong += !fits || pool.free_pages() != before - needed;
            } catch (const std::out_of_range&) {
              ++refused;
              wrong += fits || pool.free_pages() != before;
            }
          }
        }
        for (const sequence& each : all) worst = std::max(worst, each.model.error(each.cache));
      }
    }
    INFO("pages of " << page_tokens << " tokens");
    CHECK(worst <= 5e-6);
    CHECK(wrong == 0);
    CHECK(refused > 0);
    CHECK(pool.free_pages() == pool.pages());
  }
}

TEST_CASE("paged_cache: what the pool cannot hold is refused before anything is written") {
  std::mt19937 random(63);
  posenc::page_pool<float> pool(small_pool(5, 4));
  sequence first = empty_sequence(pool);
  first.append(chunk(random, 10));
  sequence second{first.cache.fork(), first.model};
  const chunk seven(random, 7);
  CHECK(second.cache.pages_needed(7) == 3);
  CHECK_THROWS_AS(second.cache.append(seven.k.read(), seven.v.read(), encoder), std::out_of_range);
  CHECK_THROWS_WITH(second.cache.append(seven.k.read(), seven.v.read(), encoder),
                    "posenc::paged_cache: pages must be free in the pool, which has 2 left, got 3");
  // Three shared pages would have to be copied before they are turned; erasing among the last tokens copies one.
  CHECK_THROWS_WITH(second.cache.shift(3, encoder), contains("which has 2 left, got 3"));
  CHECK_THROWS_WITH(second.cache.erase(0, 1, encoder), contains("which has 2 left, got 3"));
  CHECK(first.model.error(first.cache) <= 5e-7);
  CHECK(second.model.error(second.cache) <= 5e-7);
  CHECK(pool.free_pages() == 2);
  second.cache.erase(8, 1, encoder);
  second.model.erase(8, 1);
  CHECK(second.model.error(second.cache) <= 1e-6);
  CHECK(pool.free_pages() == 1);
  // Positions move without a page where nothing is turned.
  second.cache.shift(3, posenc::alibi<float>(2));
  CHECK(second.cache.first_position() == 3);
  posenc::paged_cache<float> brief(pool, {.capacity = 5});
  CHECK_THROWS_WITH(brief.append(seven.k.read(), seven.v.read(), encoder),
                    "posenc::paged_cache: tokens must fit the capacity, room for 5, got 7");
  CHECK_THROWS_WITH(second.cache.prefix(10), contains("the tokens to keep must lie in 0..size, got 10"));
}

TEST_CASE("paged_cache: a sequence moves with its pages") {
  std::mt19937 random(64);
  posenc::page_pool<float> pool(small_pool(20, 4));
  sequence first = empty_sequence(pool);
  first.append(chunk(random, 10));
  posenc::paged_cache<float> moved(std::move(first.cache));
  CHECK(first.model.error(moved) <= 5e-7);
  CHECK(pool.free_pages() == 17);
  sequence second = empty_sequence(pool);
  second.append(chunk(random, 5));
  second.cache = std::move(moved);
  CHECK(first.model.error(second.cache) <= 5e-7);
  CHECK(pool.free_pages() == 17);
  second.model = first.model;
  second.append(chunk(random, 5));
  CHECK(second.model.error(second.cache) <= 5e-7);
}

TEST_CASE("paged_cache: sequences of one pool grow in threads of their own") {
  std::mt19937 random(65);
  posenc::page_pool<float> pool(small_pool(200, 4));
  sequence root = empty_sequence(pool);
  root.append(chunk(random, 30));
  std::vector<sequence> all;
  std::vector<std::vector<chunk>> work(4);
  for (auto& chunks : work) {
    all.push_back({root.cache.prefix(29), root.model});
    all.back().model.truncate(29);
    for (int i = 0; i < 30; ++i) chunks.emplace_back(random, 1 + i % 3);
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < work.size(); ++i)
    threads.emplace_back([&, i] {
      for (const chunk& c : work[i]) {
        all[i].append(c);
        if (c.k.extents.tokens == 3) {
          all[i].cache.truncate(all[i].cache.size() - 1);
          all[i].model.truncate(all[i].model.size() - 1);
        }
      }
    });
  for (std::thread& t : threads) t.join();
  for (const sequence& s : all) CHECK(s.model.error(s.cache) <= 5e-7);
  CHECK(root.model.error(root.cache) <= 5e-7);
  all.clear();
  CHECK(pool.free_pages() == 200 - 8);
}

TEST_CASE("paged_cache: attention over pages is bit by bit that over the same tokens in one piece") {
  std::mt19937 random(66);
  const auto policy = posenc::compose(encoder, posenc::causal{});
  for (const std::int64_t page_tokens : {1, 7, 16, 64})
    for (const posenc::key_state state : {posenc::key_state::rotated, posenc::key_state::unrotated})
      for (const std::int64_t queries : {1, 6}) {
        posenc::page_pool<Eigen::half> pool(
            {.pages = 200, .page_tokens = page_tokens, .kv_heads = kv_heads, .dim = dim});
        posenc::paged_cache<Eigen::half> other(pool, {.keys = state});
        posenc::paged_cache<Eigen::half> paged(pool, {.keys = state});
        posenc::contiguous_cache<Eigen::half> plain({.capacity = 200, .kv_heads = kv_heads, .dim = dim, .keys = state});
        // Pages of two sequences alternate.
        for (int i = 0; i < 15; ++i) {
          const auto k = random_stored<float>(random, {.tokens = 9, .heads = kv_heads, .dim = dim});
          const auto v = random_stored<float>(random, {.tokens = 9, .heads = kv_heads, .dim = dim});
          if (page_tokens > 1 && i < 5) other.append(v.read(), k.read(), policy);
          paged.append(k.read(), v.read(), policy);
          plain.append(k.read(), v.read(), policy);
        }
        paged.drop_first(11);
        plain.drop_first(11);
        CHECK(same_content(paged, plain));
        auto q = random_stored<float>(random, {.tokens = queries, .heads = 4, .dim = dim});
        stored<float> a({.tokens = queries, .heads = 4, .dim = dim});
        stored<float> b(a.extents);
        const posenc::attention_options<float> options{
            .query_positions = paged.last_positions(queries), .key_positions = paged.positions(), .keys = state};
        posenc::attention(q.view(), paged.keys(), paged.values(), a.view(), policy, options);
        posenc::attention(q.view(), plain.keys(), plain.values(), b.view(), policy, options);
        INFO("pages of " << page_tokens << " tokens, " << queries << " queries");
        CHECK(same_bits(a, b));
      }
}

TEST_CASE("paged_cache: keys that are split between workers give the same bits, too") {
  std::mt19937 random(67);
  const auto policy = posenc::compose(encoder, posenc::causal{});
  for (const std::int64_t page_tokens : {10, 16, 64}) {
    posenc::page_pool<float> pool({.pages = 300, .page_tokens = page_tokens, .kv_heads = kv_heads, .dim = dim});
    posenc::paged_cache<float> paged(pool);
    posenc::contiguous_cache<float> plain({.capacity = 2500, .kv_heads = kv_heads, .dim = dim});
    const auto k = random_stored<float>(random, {.tokens = 2500, .heads = kv_heads, .dim = dim});
    paged.append(k.read(), k.read(), policy);
    plain.append(k.read(), k.read(), policy);
    paged.drop_first(7);
    plain.drop_first(7);
    const auto q = random_stored<float>(random, {.tokens = 1, .heads = 4, .dim = dim});
    stored<float> a({.tokens = 1, .heads = 4, .dim = dim});
    stored<float> b(a.extents);
    const posenc::attention_options<float> options{.query_positions = paged.last_positions(1),
                                                   .key_positions = paged.positions()};
    posenc::attention(q.read(), paged.keys(), paged.values(), a.view(), policy, options);
    posenc::attention(q.read(), plain.keys(), plain.values(), b.view(), policy, options);
    CHECK(same_bits(a, b));
  }
}
