// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What attention allocates.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/contiguous_cache.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/paged_cache.hpp>
#include <posenc/attention/ring_cache.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/rope.hpp>

#include "support/catch.hpp"
#include "support/count_allocations.hpp"
#include "unit/attention/tensors.hpp"

namespace {

using namespace posenc_test;

auto policy_of(std::int64_t heads) {
  return posenc::compose(posenc::softcap(30), posenc::alibi<float>(heads), posenc::causal{});
}

}  // namespace

TEST_CASE("attention with a workspace allocates nothing, without one it allocates once") {
  std::mt19937 random(1);
  const auto policy = policy_of(4);
  std::vector<std::int64_t> ids(40);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>((i * 7) % 40);
  for (const std::int64_t queries : {1, 40})
    for (const bool listed : {false, true}) {
      auto q = random_stored<float>(random, {2, queries, 4, 8});
      auto k = random_stored<float>(random, {2, 40, 2, 8});
      auto v = random_stored<float>(random, {2, 40, 2, 8});
      stored<float> out({2, queries, 4, 8});
      stored<float> own({2, queries, 4, 8});
      posenc::attention_options<float> options{.query_positions = posenc::positions::from(40 - queries)};
      if (listed) options.key_positions = posenc::positions::listed(ids);
      const std::size_t needed = posenc::attention_workspace(q.view(), k.view(), v.view(), out.view(), policy, options);
      CHECK(count([&] { posenc::attention(q.view(), k.view(), v.view(), own.view(), policy, options); }).number == 1);
      std::vector<std::byte> memory(needed + 64);
      for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, std::size_t{63}}) {  // any alignment will do
        options.workspace = std::span(memory).subspan(offset, needed);
        CHECK(count([&] { posenc::attention(q.view(), k.view(), v.view(), out.view(), policy, options); }).number == 0);
        CHECK(out.data == own.data);
      }
    }
}

TEST_CASE("a part that is not in a pack is not copied by a call with a workspace") {
  std::mt19937 random(1);
  auto x = random_stored<float>(random, {1, 5, 4, 8});
  stored<float> out({1, 5, 4, 8});
  const posenc::alibi<float> bias(4);
  posenc::attention_options<float> options;
  std::vector<std::byte> memory(posenc::attention_workspace(x.view(), x.view(), x.view(), out.view(), bias, options));
  options.workspace = memory;
  CHECK(count([&] { posenc::attention(x.view(), x.view(), x.view(), out.view(), bias, options); }).number == 0);
}

TEST_CASE("attention never writes outside its workspace or its output") {
  std::mt19937 random(2);
  const auto policy = policy_of(4);
  auto q = random_stored<float>(random, {1, 33, 4, 7});
  auto k = random_stored<float>(random, {1, 140, 2, 7});
  auto v = random_stored<float>(random, {1, 140, 2, 9});
  std::vector<float> out(33 * 4 * 16, -5.0f);
  const posenc::view<float> target(out.data(), {1, 33, 4, 9}, {.token = 64, .head = 16});
  posenc::attention_options<float> options{.query_positions = posenc::positions::from(107)};
  const std::size_t needed = posenc::attention_workspace(q.view(), k.view(), v.view(), target, policy, options);
  std::vector<std::byte> memory(needed + 128, std::byte{0x5a});
  options.workspace = std::span(memory).subspan(64, needed);
  posenc::attention(q.view(), k.view(), v.view(), target, policy, options);
  for (std::size_t i = 0; i < 64; ++i) {
    REQUIRE(memory[i] == std::byte{0x5a});
    REQUIRE(memory[64 + needed + i] == std::byte{0x5a});
  }
  for (std::size_t i = 0; i < out.size(); ++i) REQUIRE((out[i] == -5.0f) == (i % 16 >= 9));
}

TEST_CASE("at 16384 queries and keys nothing is proportional to queries x keys") {
  // queries x keys floats would be 1 GiB.
  constexpr std::int64_t n = 16384;
  std::mt19937 random(4);
  auto q = random_stored<float>(random, {1, n, 1, 8});
  auto k = random_stored<float>(random, {1, n, 1, 8});
  auto v = random_stored<float>(random, {1, n, 1, 8});
  stored<float> out({1, n, 1, 8});
  stored<float> own({1, n, 1, 8});
  const auto policy = policy_of(1);
  std::vector<std::int64_t> ids(n);
  for (std::int64_t i = 0; i < n; ++i) ids[static_cast<std::size_t>(i)] = i;
  const auto needed = [&](std::int64_t tokens, bool listed) {
    posenc::attention_options<float> options;
    if (listed)
      options.key_positions = posenc::positions::listed(std::span(ids).first(static_cast<std::size_t>(tokens)));
    const posenc::shape s{.tokens = tokens, .dim = 8};
    return posenc::attention_workspace(posenc::view{q.data.data(), s}, posenc::view{k.data.data(), s},
                                       posenc::view{v.data.data(), s}, posenc::view{out.data.data(), s}, policy,
                                       options);
  };
  for (const bool listed : {false, true}) {
    CHECK(needed(n, listed) <= 4 * needed(n / 4, listed));
    CHECK(needed(n, listed) < std::size_t{n} * n / 500);
  }
  posenc::attention_options<float> options;
  const counts without = count([&] { posenc::attention(q.view(), k.view(), v.view(), own.view(), policy, options); });
  CHECK(without.number == 1);
  CHECK(without.bytes == needed(n, false));
  std::vector<std::byte> memory(needed(n, false));
  options.workspace = memory;
  CHECK(count([&] { posenc::attention(q.view(), k.view(), v.view(), out.view(), policy, options); }).number == 0);
  CHECK(out.data == own.data);
}

TEST_CASE("listed ids take memory by the key, a window of them no more") {
  constexpr std::int64_t n = 8192;
  std::mt19937 random(4);
  auto q = random_stored<float>(random, {1, n, 2, 16});
  auto k = random_stored<float>(random, {1, n, 2, 16});
  auto v = random_stored<float>(random, {1, n, 2, 16});
  stored<float> out({1, n, 2, 16});
  const auto policy = posenc::compose(posenc::alibi<float>(2), posenc::sliding_window(256));
  std::vector<std::int64_t> ids(n);
  for (std::int64_t i = 0; i < n; ++i) ids[static_cast<std::size_t>(i)] = i;
  const counts contiguous = count([&] { posenc::attention(q.view(), k.view(), v.view(), out.view(), policy, {}); });
  const counts listed = count([&] {
    posenc::attention(q.view(), k.view(), v.view(), out.view(), policy,
                      {.key_positions = posenc::positions::listed(ids)});
  });
  // An id and its distance from the first one.
  CHECK(listed.bytes <= contiguous.bytes + (8 + 4) * (n + posenc::lane_slack) + 128);
  CHECK(listed.bytes > contiguous.bytes);
  CHECK(contiguous.number == 1);
  CHECK(listed.number == 1);
}

TEST_CASE("caches allocate when they are made, not when tokens come, go or move") {
  std::mt19937 random(3);
  const auto policy = posenc::compose(posenc::rope<float>({.head_dim = 8}), posenc::causal{});
  auto k = random_stored<float>(random, {.tokens = 7, .heads = 2, .dim = 8});
  const posenc::cache_options options{.capacity = 40, .kv_heads = 2, .dim = 8};
  posenc::page_pool<Eigen::half> pool({.pages = 20, .page_tokens = 4, .kv_heads = 2, .dim = 8});
  posenc::contiguous_cache<Eigen::half> contiguous(options);
  posenc::ring_cache<Eigen::half> ring(options);
  posenc::paged_cache<Eigen::half> paged(pool);
  const auto use = [&](auto& cache) {
    for (int i = 0; i < 5; ++i) cache.append(k.view(), k.view(), policy);
    cache.truncate(30);
    cache.shift(-3, policy);
    cache.erase(4, 5, policy);
    cache.drop_first(9);
    for (int i = 0; i < 3; ++i) cache.append(k.view(), k.view(), policy);
  };
  CHECK(count([&] { use(contiguous); }).number == 0);
  CHECK(count([&] { use(ring); }).number == 0);
  CHECK(count([&] { use(paged); }).number == 0);
  CHECK(count([&] { posenc::paged_cache<Eigen::half> other = paged.fork(); }).number > 0);
}
