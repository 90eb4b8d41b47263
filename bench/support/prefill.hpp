// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Prefill and decode of fused attention under a policy: 8 heads, float, packed head by head.

#include <posenc/attention/attention.hpp>

#include "measure.hpp"

#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace bench {

/// Visible pairs of n queries and keys: causal, and causal within the last w keys.
inline double causal_pairs(std::int64_t n) { return static_cast<double>(n) * static_cast<double>(n + 1) / 2; }
inline double window_pairs(std::int64_t n, std::int64_t w) { return causal_pairs(n) - causal_pairs(n - w); }

/// q, k, v and out of a prefill. `adjust` may change what they hold.
struct prefill_case {
  static constexpr std::int64_t heads = 8;
  posenc::shape extents;
  std::vector<float> q, k, v, out;

  prefill_case(std::int64_t n, std::int64_t dim)
      : extents{1, n, heads, dim},
        q(normal<float>(static_cast<std::size_t>(extents.elements()), 1)),
        k(normal<float>(q.size(), 2)),
        v(normal<float>(q.size(), 3)),
        out(q.size()) {}

  /// Times attention of all tokens; `visible` pairs per head count as work.
  template <class Policy, class Executor = posenc::serial_executor>
  void run(benchmark::State& state, const Policy& policy, double visible, Executor&& executor = {}) {
    const auto by = posenc::head_major(extents);
    const posenc::view<float> vq{q.data(), extents, by}, vk{k.data(), extents, by}, vv{v.data(), extents, by},
        vo{out.data(), extents, by};
    std::vector<std::byte> workspace(posenc::attention_workspace(vq, vk, vv, vo, policy, {}, executor.concurrency()));
    for (auto _ : state) {
      posenc::attention(vq, vk, vv, vo, policy, {.workspace = workspace}, executor);
      touch(out.data());
    }
    flops(state, 4.0 * heads * visible * static_cast<double>(extents.dim));
    state.counters["workspace_bytes"] = static_cast<double>(workspace.size());
  }
};

template <class Policy>
void prefill(benchmark::State& state, std::int64_t n, std::int64_t dim, const Policy& policy, double visible) {
  prefill_case(n, dim).run(state, policy, visible);
}

/// Registers `attention/prefill/NAME/8_heads/KEYS/DIM`. `policy(keys, dim)` and `visible(keys)` are asked at each run.
template <class Make, class Visible>
void add_prefill(const std::string& name, std::initializer_list<std::pair<std::int64_t, std::int64_t>> sizes,
                 const Make& policy, const Visible& visible) {
  auto* rows = benchmark::RegisterBenchmark(("attention/prefill/" + name + "/8_heads").c_str(),
                                            [policy, visible](benchmark::State& state) {
                                              const std::int64_t n = state.range(0), dim = state.range(1);
                                              prefill(state, n, dim, policy(n, dim), visible(n));
                                            });
  for (const auto& [n, dim] : sizes) rows->Args({n, dim});
  rows->Unit(benchmark::kMillisecond);
}

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
