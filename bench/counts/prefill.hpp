// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Prefill of one head, 512 queries and keys of 64 channels, float.

#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>

#include "counts.hpp"

#include <cstddef>

namespace counts {

inline constexpr std::int64_t tokens = 512;
inline constexpr std::int64_t causal_pairs = tokens * (tokens + 1) / 2;

template <class Policy>
void prefill(const char* name, const Policy& policy, std::int64_t pairs = causal_pairs) {
  const posenc::shape s{.tokens = tokens, .dim = 64};
  const auto q = numbers(s.elements(), 1), k = numbers(s.elements(), 2), v = numbers(s.elements(), 3);
  std::vector<float> out(q.size());
  const posenc::view vq{q.data(), s}, vk{k.data(), s}, vv{v.data(), s};
  const posenc::view vo{out.data(), s};
  std::vector<std::byte> workspace(posenc::attention_workspace(vq, vk, vv, vo, policy));
  count(name, pairs, [&] { posenc::attention(vq, vk, vv, vo, policy, {.workspace = workspace}); });
}

}  // namespace counts
