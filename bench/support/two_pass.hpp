// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The two-pass path of attention under a policy: 8 heads, float, packed head by head.

#include <posenc/attention/two_pass.hpp>

#include "prefill.hpp"

namespace bench {

/// The last `queries` of n tokens; one query sees every key, all n of them are causal.
template <class Policy>
void two_pass(benchmark::State& state, std::int64_t queries, std::int64_t n, std::int64_t dim, const Policy& policy) {
  constexpr std::int64_t heads = 8;
  const posenc::shape s{1, n, heads, dim};
  const posenc::shape rows{1, queries, heads, dim};
  auto q = normal<float>(static_cast<std::size_t>(rows.elements()), 1);
  auto k = normal<float>(static_cast<std::size_t>(s.elements()), 2);
  auto v = normal<float>(static_cast<std::size_t>(s.elements()), 3);
  std::vector<float> out(q.size());
  const posenc::view<float> vq{q.data(), rows, posenc::head_major(rows)}, vk{k.data(), s, posenc::head_major(s)},
      vv{v.data(), s, posenc::head_major(s)}, vo{out.data(), rows, posenc::head_major(rows)};
  const posenc::positions at = posenc::positions::from(n - queries);
  std::vector<std::byte> workspace(
      posenc::attention_two_pass_workspace(vq, vk, vv, vo, policy, {.query_positions = at}));
  for (auto _ : state) {
    posenc::attention_two_pass(vq, vk, vv, vo, policy, {.query_positions = at, .workspace = workspace});
    touch(out.data());
  }
  const double pairs = queries == 1 ? static_cast<double>(n) : causal_pairs(n);
  flops(state, 4.0 * heads * pairs * static_cast<double>(dim));
  state.counters["workspace_bytes"] = static_cast<double>(workspace.size());
}

}  // namespace bench
