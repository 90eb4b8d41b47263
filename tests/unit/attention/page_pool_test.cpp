// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/page_pool.hpp>
#include <posenc/attention/paged_cache.hpp>

#include "support/catch.hpp"
#include "unit/attention/cache_model.hpp"

namespace {
using namespace posenc_test;
}

TEST_CASE("page_pool: every page is free, taken or held, and returns with its last holder") {
  posenc::page_pool<float> pool({.pages = 5, .page_tokens = 4, .kv_heads = 2, .dim = 6, .value_dim = 3});
  CHECK(pool.pages() == 5);
  CHECK(pool.page_tokens() == 4);
  CHECK(pool.kv_heads() == 2);
  CHECK(pool.dim() == 6);
  CHECK(pool.value_dim() == 3);
  CHECK(pool.free_pages() == 5);
  std::mt19937 random(31);
  const auto k = exact_values<float>(random, {.tokens = 9, .heads = 2, .dim = 6});
  const auto v = exact_values<float>(random, {.tokens = 9, .heads = 2, .dim = 3});
  {
    posenc::paged_cache<float> first(pool);
    first.append_rotated(k.read(), v.read());
    CHECK(pool.free_pages() == 2);
    {
      const posenc::paged_cache<float> second = first.fork();
      CHECK(second.pages() == 3);
      CHECK(pool.free_pages() == 2);
      first.truncate(0);
      CHECK(first.pages() == 0);
      CHECK(pool.free_pages() == 2);
    }
    CHECK(pool.free_pages() == 5);
    // Freed pages are taken again, one after another.
    for (int round = 0; round < 20; ++round) {
      first.append_rotated(k.read(), v.read());
      first.drop_first(8);
      first.truncate(0);
    }
    CHECK(pool.free_pages() == 5);
  }
  CHECK(pool.free_pages() == 5);
}

TEST_CASE("page_pool: refuses extents that hold nothing") {
  const auto make = [](const posenc::page_pool_options& o) { posenc::page_pool<float> pool(o); };
  CHECK_NOTHROW(make({.pages = 1, .dim = 1}));
  CHECK_THROWS_WITH(make({.pages = 0, .dim = 1}), "posenc::page_pool: pages must lie in 1..2^31-1, got 0");
  CHECK_THROWS_WITH(make({.pages = std::int64_t{1} << 31, .dim = 1}), contains("pages must lie in 1..2^31-1"));
  CHECK_THROWS_WITH(make({.pages = 1, .page_tokens = 0, .dim = 1}), contains("page_tokens must be at least 1, got 0"));
  CHECK_THROWS_WITH(make({.pages = 1, .kv_heads = 0, .dim = 1}), contains("kv_heads must be at least 1"));
  CHECK_THROWS_WITH(make({.pages = 1, .dim = 0}), contains("dim and value_dim must be at least 1"));
  CHECK_THROWS_WITH(make({.pages = 1, .dim = 1, .value_dim = 0}), contains("dim and value_dim must be at least 1"));
  CHECK_THROWS_WITH(make({.pages = 1 << 30, .page_tokens = 1 << 30, .dim = 1}), contains("must not exceed 2^56"));
}
