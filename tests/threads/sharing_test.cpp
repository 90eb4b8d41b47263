// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// One encoder, one policy, one cache and one executor, used by many threads at once: the same bits as alone, and
// nothing for a race detector to find.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/core/parallel_threads.hpp>
#include <posenc/encoders/fire.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/rope_table.hpp>
#include <posenc/encoders/shaw.hpp>

#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "support/tolerance.hpp"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace {

using namespace posenc_test;

constexpr std::int64_t heads = 4, kv_heads = 2, dim = 16, keys = 200;
constexpr posenc::shape cache_shape{1, keys, kv_heads, dim};

/// Runs f(i) on n threads that start together.
template <class F>
void together(int n, F&& f) {
  std::atomic<int> waiting{n};
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i)
    threads.emplace_back([&, i] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      f(i);
    });
  for (std::thread& t : threads) t.join();
}

std::vector<float> numbers(std::int64_t n, std::uint64_t seed) {
  return random_values<float>(static_cast<std::size_t>(n), seed);
}

posenc::fire<float> a_fire() {
  posenc::fire_options<float> o;
  o.weight1 = numbers(8, 31);
  o.bias1 = numbers(8, 32);
  o.weight2 = numbers(8 * heads, 33);
  o.bias2 = numbers(heads, 34);
  return posenc::fire<float>(o);
}

struct cache {
  std::vector<float> k = numbers(cache_shape.elements(), 1);
  std::vector<float> v = numbers(cache_shape.elements(), 2);
  [[nodiscard]] posenc::view<const float> key() const { return {k.data(), cache_shape}; }
  [[nodiscard]] posenc::view<const float> value() const { return {v.data(), cache_shape}; }
};

/// Attends `queries` of one user at the end of the cache.
template <class Policy, class Executor>
std::vector<float> attended(const Policy& policy, const cache& kv, std::int64_t queries, std::uint64_t user,
                            Executor& executor) {
  const posenc::shape s{1, queries, heads, dim};
  const std::vector<float> q = numbers(s.elements(), 100 + user);
  std::vector<float> out(q.size()), lse(static_cast<std::size_t>(queries * heads));
  posenc::attention(posenc::view(q.data(), s), kv.key(), kv.value(), posenc::view(out.data(), s), policy,
                    {.query_positions = posenc::positions::from(keys - queries),
                     .keys = posenc::key_state::unrotated,
                     .lse = {lse.data(), {1, queries, heads, 1}}},
                    executor);
  out.insert(out.end(), lse.begin(), lse.end());
  return out;
}

template <class Policy>
void check_shared(const Policy& policy) {
  const cache kv;
  posenc::thread_executor own(1);
  posenc::thread_executor shared(3);
  for (const std::int64_t queries : {1, 40}) {
    std::vector<std::vector<float>> expected, found(6);
    for (std::uint64_t user = 0; user < found.size(); ++user)
      expected.push_back(attended(policy, kv, queries, user, own));
    const auto user = [&](posenc::thread_executor& executor) {
      together(static_cast<int>(found.size()), [&](int i) {
        for (int round = 0; round < 3; ++round)
          found[static_cast<std::size_t>(i)] = attended(policy, kv, queries, static_cast<std::uint64_t>(i), executor);
      });
      for (std::size_t i = 0; i < found.size(); ++i)
        CHECK(same_bits(found[i].data(), expected[i].data(), expected[i].size()));
    };
    user(own);     // each in its own thread
    user(shared);  // each split over workers that serve the others too
  }
}

}  // namespace

TEST_CASE("threads share a policy of rope, a bias that is bound per call, masks and sinks, and a cache") {
  check_shared(posenc::compose(posenc::rope<float>({.head_dim = dim}), a_fire(), posenc::causal{},
                               posenc::sinks<float>(std::vector<float>{0.5f, 0, -1, 2})));
}

TEST_CASE("threads share a policy with content terms and values of its own") {
  check_shared(posenc::compose(
      posenc::shaw<float>({.head_dim = dim, .left = 4, .right = 4}, numbers(9 * dim, 41), numbers(9 * dim, 42)),
      posenc::sliding_window{150}));
}

TEST_CASE("threads share a rope and its table while they append to one cache") {
  const posenc::rope<float> rope({.head_dim = dim});
  const auto table = rope.table(0, keys);
  const std::vector<float> before = numbers(cache_shape.elements(), 3);
  std::vector<float> expected = before;
  rope.rotate(posenc::view(expected.data(), cache_shape));
  std::vector<float> by_rope = before, by_table = before;
  constexpr std::int64_t each = keys / 8;
  together(8, [&](int i) {
    const std::int64_t first = i * each;
    const posenc::shape mine{1, each, kv_heads, dim};
    const std::int64_t at = first * kv_heads * dim;
    rope.rotate(posenc::view(by_rope.data() + at, mine), posenc::positions::from(first));
    table.rotate(posenc::view(by_table.data() + at, mine), posenc::positions::from(first));
  });
  CHECK(same_bits(by_rope.data(), expected.data(), expected.size()));
  CHECK(same_bits(by_table.data(), expected.data(), expected.size()));
}
