// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The first pass over a row of logits (transforms and maximum) under a policy, apart from the products.

#include <posenc/attention/attention.hpp>
#include <posenc/attention/score_pass.hpp>

#include "measure.hpp"

namespace bench {

inline posenc::call call_of(std::int64_t heads, std::int64_t queries, std::int64_t keys,
                            const posenc::positions& query_at = {}, const posenc::positions& key_at = {}) {
  return {.batch = 1,
          .heads = heads,
          .kv_heads = heads,
          .queries = queries,
          .keys = keys,
          .dim = 0,
          .value_dim = 0,
          .query_positions = query_at,
          .key_positions = key_at};
}

/// Runs `op` over one row of logits and takes their maximum.
template <class Op>
void transform_row(std::vector<float>& logits, const Op& op) {
  float m = posenc::detail::transform_scores<posenc::simd::default_arch>(
      logits.data(), static_cast<std::int64_t>(logits.size()), 0, op, posenc::detail::no_lane_mask{});
  touch(&m);
  touch(logits.data());
}

/// One row after the other of a call of `keys` queries and keys at the positions `at`, all heads in turn.
template <class Policy>
void score_pass(benchmark::State& state, const Policy& policy, std::int64_t heads, std::int64_t keys,
                const posenc::positions& at = {}) {
  using Arch = posenc::simd::default_arch;
  using B = posenc::simd::batch<float, Arch>;
  auto s = normal<float>(static_cast<std::size_t>(keys));
  const posenc::call c = call_of(heads, keys, keys, at, at);
  std::vector<std::byte> memory(posenc::detail::bound_bytes(policy, c) + 64);
  const auto pack = posenc::detail::bind_policy<Arch>(policy, memory.data(), c);
  std::int64_t query = 0;
  for (auto _ : state) {
    const std::int64_t i = query * 1021 % keys;
    const posenc::row r{.head = query % heads, .query_index = i, .query_position = at(0, i)};
    ++query;
    transform_row(s, posenc::detail::make_logit_op<B>(pack, r, posenc::contiguous_keys{0}));
  }
  per_element(state, keys);
}

}  // namespace bench
