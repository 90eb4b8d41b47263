// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Prefill and decode of fused attention under a policy: 8 heads, float, packed head by head.

#include <posenc/attention/attention.hpp>

#include "measure.hpp"

#include <cstddef>
#include <vector>

namespace bench {

template <class Policy>
void prefill(benchmark::State& state, std::int64_t n, std::int64_t dim, const Policy& policy, double visible) {
  constexpr std::int64_t heads = 8;
  const posenc::shape s{1, n, heads, dim};
  const auto elements = static_cast<std::size_t>(s.elements());
  auto q = normal<float>(elements, 1);
  auto k = normal<float>(elements, 2);
  auto v = normal<float>(elements, 3);
  std::vector<float> out(elements);
  const auto by = posenc::head_major(s);
  const posenc::view<float> vq{q.data(), s, by}, vk{k.data(), s, by}, vv{v.data(), s, by}, vo{out.data(), s, by};
  std::vector<std::byte> workspace(posenc::attention_workspace(vq, vk, vv, vo, policy));
  for (auto _ : state) {
    posenc::attention(vq, vk, vv, vo, policy, {.workspace = workspace});
    touch(out.data());
  }
  flops(state, 4.0 * heads * visible * static_cast<double>(dim));
  state.counters["workspace_bytes"] = static_cast<double>(workspace.size());
}

inline double causal_pairs(std::int64_t n) { return static_cast<double>(n) * static_cast<double>(n + 1) / 2; }

/// One query at the end of a cache of `keys` keys, every head with keys of its own.
template <class Policy>
void decode_step(benchmark::State& state, std::int64_t keys, std::int64_t dim, const Policy& policy) {
  constexpr std::int64_t heads = 8;
  const posenc::shape cache{1, keys, heads, dim};
  auto q = normal<float>(heads * static_cast<std::size_t>(dim), 1);
  auto k = normal<float>(static_cast<std::size_t>(cache.elements()), 2);
  auto v = normal<float>(static_cast<std::size_t>(cache.elements()), 3);
  std::vector<float> out(q.size());
  const posenc::shape one{.tokens = 1, .heads = heads, .dim = dim};
  const posenc::view<float> vq{q.data(), one}, vo{out.data(), one};
  const posenc::view<float> vk{k.data(), cache, posenc::head_major(cache)},
      vv{v.data(), cache, posenc::head_major(cache)};
  const posenc::positions last = posenc::positions::from(keys - 1);
  std::vector<std::byte> workspace(posenc::attention_workspace(vq, vk, vv, vo, policy, {.query_positions = last}));
  for (auto _ : state) {
    posenc::attention(vq, vk, vv, vo, policy, {.query_positions = last, .workspace = workspace});
    touch(out.data());
  }
  bytes(state, 2.0 * static_cast<double>(cache.elements()) * sizeof(float));
}

}  // namespace bench
