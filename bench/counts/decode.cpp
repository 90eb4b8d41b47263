// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// One query at the end of 1024 keys of 128 channels, one key head.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/core/eigen.hpp>

#include "counts.hpp"

#include <cstddef>

namespace {

template <class S>
void decode(const char* name, std::int64_t heads) {
  const posenc::shape one{.tokens = 1, .heads = heads, .dim = 128}, cache{.tokens = 1024, .dim = 128};
  const auto q = counts::numbers(one.elements(), 1), keys = counts::numbers(cache.elements(), 2),
             values = counts::numbers(cache.elements(), 3);
  std::vector<S> k, v;
  for (const float x : keys) k.push_back(static_cast<S>(x));
  for (const float x : values) v.push_back(static_cast<S>(x));
  std::vector<float> out(q.size());
  const posenc::view vq{q.data(), one};
  const posenc::view vk{k.data(), cache}, vv{v.data(), cache};
  const posenc::view vo{out.data(), one};
  const auto policy = posenc::compose(posenc::causal{});
  const posenc::positions last = posenc::positions::from(cache.tokens - 1);
  std::vector<std::byte> workspace(posenc::attention_workspace(vq, vk, vv, vo, policy, {.query_positions = last}));
  counts::count(name, heads * cache.tokens,
                [&] { posenc::attention(vq, vk, vv, vo, policy, {.query_positions = last, .workspace = workspace}); });
}

}  // namespace

void counts::decode() {
  ::decode<float>("decode_float", 1);
  ::decode<float>("decode_float_group_4", 4);
  ::decode<Eigen::half>("decode_half", 1);
  ::decode<Eigen::half>("decode_half_group_4", 4);
}
