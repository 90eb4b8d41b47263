// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The ring keeps the last tokens, in the order of positions, and a window over it is the window over all of them.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/contiguous_cache.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/ring_cache.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/rope_table.hpp>

#include "support/catch.hpp"
#include "unit/attention/cache_model.hpp"

namespace {

using namespace posenc_test;

constexpr std::int64_t heads = 4;
constexpr std::int64_t kv_heads = 2;
constexpr std::int64_t dim = 8;
constexpr std::int64_t window = 9;
constexpr std::int64_t tokens = 40;

const posenc::rope<float> encoder{{.head_dim = dim}};

/// The same tokens through a ring of `capacity` slots in chunks of n; the largest difference to the whole at once.
double error_of_chunks(std::int64_t capacity, std::int64_t n) {
  std::mt19937 random(51);
  auto q = random_stored<float>(random, {.tokens = tokens, .heads = heads, .dim = dim});
  auto k = random_stored<float>(random, {.tokens = tokens, .heads = kv_heads, .dim = dim});
  auto v = random_stored<float>(random, {.tokens = tokens, .heads = kv_heads, .dim = dim});
  const auto policy = posenc::compose(encoder, posenc::sliding_window(window));
  stored<float> whole({.tokens = tokens, .heads = heads, .dim = dim});
  posenc::attention(q.view(), k.view(), v.view(), whole.view(), policy, {.keys = posenc::key_state::unrotated});
  posenc::ring_cache<float> ring({.capacity = capacity, .kv_heads = kv_heads, .dim = dim});
  stored<float> out(whole.extents, 7);
  for (std::int64_t t = 0; t < tokens; t += n) {
    const std::int64_t count = std::min(n, tokens - t);
    const posenc::shape kv{.tokens = count, .heads = kv_heads, .dim = dim};
    const posenc::shape queries{.tokens = count, .heads = heads, .dim = dim};
    ring.append(posenc::view(k.read().row(0, t, 0), kv), posenc::view(v.read().row(0, t, 0), kv), policy);
    posenc::attention(posenc::view(q.read().row(0, t, 0), queries), ring.keys(), ring.values(),
                      posenc::view(out.view().row(0, t, 0), queries), policy,
                      {.query_positions = ring.last_positions(count), .key_positions = ring.positions()});
  }
  double worst = 0;
  for (std::size_t i = 0; i < out.data.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(out.data[i]) - static_cast<double>(whole.data[i])));
  return worst;
}

}  // namespace

TEST_CASE("ring_cache: the last tokens are kept, however many come at once") {
  std::mt19937 random(52);
  for (const std::int64_t capacity : {1, 7, 8}) {
    posenc::ring_cache<float> ring(
        {.batch = 2, .capacity = capacity, .kv_heads = kv_heads, .dim = dim, .value_dim = 3, .first_position = -20});
    cache_model model{
        .extents = {.batch = 2, .tokens = capacity, .heads = kv_heads, .dim = dim}, .value_dim = 3, .first = -20};
    double worst = 0;
    for (int step = 0; step < 80; ++step) {
      const std::int64_t n = std::uniform_int_distribution<std::int64_t>(0, step % 4 == 0 ? 20 : 3)(random);
      const auto k = exact_values<float>(random, {.batch = step % 3 == 0 ? 1 : 2, .tokens = n, .heads = 2, .dim = dim});
      const auto v = exact_values<float>(random, {.batch = k.extents.batch, .tokens = n, .heads = 2, .dim = 3});
      model.append(k.read(), v.read());
      ring.append(k.read(), v.read(), encoder);
      model.drop_first(std::max<std::int64_t>(0, model.size() - capacity));
      if (step % 5 == 0) {
        const std::int64_t kept = std::uniform_int_distribution<std::int64_t>(0, model.size())(random);
        model.truncate(kept);
        ring.truncate(kept);
      }
      if (step % 7 == 0) {
        const std::int64_t dropped = std::uniform_int_distribution<std::int64_t>(0, model.size())(random);
        model.drop_first(dropped);
        ring.drop_first(dropped);
      }
      worst = std::max(worst, model.error(ring));
    }
    INFO("capacity " << capacity);
    CHECK(worst <= 5e-7);
  }
}

TEST_CASE("ring_cache: tokens lie in two runs at most") {
  std::mt19937 random(53);
  posenc::ring_cache<float> ring({.capacity = 10, .kv_heads = kv_heads, .dim = dim});
  int two = 0;
  for (int step = 0; step < 40; ++step) {
    const auto x = exact_values<float>(random, {.tokens = 3, .heads = kv_heads, .dim = dim});
    ring.append(x.read(), x.read(), encoder);
    const auto keys = ring.keys();
    const std::int64_t run = keys.run(0, 0);
    two += run < keys.tokens();
    if (run < keys.tokens()) CHECK(run + keys.run(0, run) == keys.tokens());
  }
  CHECK(ring.size() == 10);
  CHECK(ring.next_position() == 120);
  CHECK(two > 20);
}

TEST_CASE("ring_cache: a window over window + chunk - 1 slots is the window over the whole text") {
  for (const std::int64_t n : {1, 2, 5, 12}) {
    INFO("chunks of " << n);
    CHECK(error_of_chunks(window + n - 1, n) <= 2e-6);
    CHECK(error_of_chunks(window + n + 6, n) <= 2e-6);
  }
  // One slot less, and the first query of a chunk misses the end of its window.
  CHECK(error_of_chunks(window + 5 - 2, 5) > 0.001);
  CHECK(error_of_chunks(window - 1, 1) > 0.001);
}

TEST_CASE("ring_cache: attention over a ring is bit by bit that over the same tokens in one piece") {
  std::mt19937 random(54);
  for (const std::int64_t queries : {1, 6}) {
    auto q = random_stored<float>(random, {.batch = 2, .tokens = queries, .heads = heads, .dim = dim});
    posenc::ring_cache<Eigen::half> ring({.batch = 2, .capacity = 70, .kv_heads = kv_heads, .dim = dim});
    posenc::contiguous_cache<Eigen::half> plain({.batch = 2, .capacity = 200, .kv_heads = kv_heads, .dim = dim});
    const auto policy = posenc::compose(encoder, posenc::causal{});
    for (int step = 0; step < 3; ++step) {
      auto k = random_stored<float>(random, {.batch = 2, .tokens = 50, .heads = kv_heads, .dim = dim});
      auto v = random_stored<float>(random, {.batch = 2, .tokens = 50, .heads = kv_heads, .dim = dim});
      ring.append(k.read(), v.read(), policy);
      plain.append(k.read(), v.read(), policy);
      plain.drop_first(plain.size() - ring.size());
      CHECK(same_content(ring, plain));
      stored<float> a({.batch = 2, .tokens = queries, .heads = heads, .dim = dim});
      stored<float> b(a.extents);
      const posenc::attention_options<float> options{.query_positions = ring.last_positions(queries),
                                                     .key_positions = ring.positions()};
      posenc::attention(q.view(), ring.keys(), ring.values(), a.view(), policy, options);
      posenc::attention(q.view(), plain.keys(), plain.values(), b.view(), policy, options);
      CHECK(same_bits(a, b));
    }
    CHECK(ring.keys().run(0, 0) < ring.size());
  }
}

TEST_CASE("ring_cache: a refused append overwrites nothing") {
  std::mt19937 random(55);
  posenc::ring_cache<float> ring({.capacity = 6, .kv_heads = kv_heads, .dim = dim});
  const auto k = exact_values<float>(random, {.tokens = 4, .heads = kv_heads, .dim = dim});
  const auto table = encoder.table(0, 7);
  ring.append(k.read(), k.read(), table);
  const auto before = gathered(ring.keys());
  CHECK_THROWS(ring.append(k.read(), k.read(), table));
  CHECK(ring.size() == 4);
  CHECK(same_bits(gathered(ring.keys()), before));
  CHECK_THROWS_WITH(ring.append(posenc::view(ring.keys().row(0, 0, 0), {.tokens = 2, .heads = kv_heads, .dim = dim}),
                                posenc::view(k.data.data(), {.tokens = 2, .heads = kv_heads, .dim = dim}), encoder),
                    "posenc::ring_cache: k must lie outside the memory of the cache, got overlapping memory");
}
