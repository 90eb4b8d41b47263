// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// One query of 32 heads at the end of 4096 keys of 128 channels, with a key head for each query head or for four of
// them. The read bandwidth is its floor. Names: layer/op/policy/heads/kv_heads/keys/dim/storage/layout.
#include <posenc/attention/masks.hpp>
#include <posenc/core/eigen.hpp>

#include "support/prefill.hpp"

namespace {

constexpr std::int64_t heads = 32;
constexpr std::int64_t keys = 4096;
constexpr std::int64_t dim = 128;

template <class S>
void decode(benchmark::State& state, std::int64_t kv_heads, bool by_head) {
  const posenc::shape cache{1, keys, kv_heads, dim};
  const posenc::strides steps = by_head ? posenc::head_major(cache) : posenc::token_major(cache);
  const auto elements = static_cast<std::size_t>(cache.elements());
  // Caches in turn, 256 MiB or more of them, so that none of their rows waits in the processor's caches.
  const std::size_t caches = ((std::size_t{256} << 20) + 2 * elements * sizeof(S) - 1) / (2 * elements * sizeof(S));
  const auto memory = bench::normal<S>(2 * caches * elements, 2);
  const auto q = bench::normal<float>(heads * dim, 1);
  std::vector<float> out(heads * dim);
  const posenc::shape one{.tokens = 1, .heads = heads, .dim = dim};
  const posenc::view<const float> vq{q.data(), one};
  const posenc::view<float> vo{out.data(), one};
  const auto policy = posenc::compose(posenc::causal{});
  const posenc::positions last = posenc::positions::from(keys - 1);
  const auto cached = [&](std::size_t i) { return posenc::view<const S>{memory.data() + i * elements, cache, steps}; };
  std::vector<std::byte> workspace(
      posenc::attention_workspace(vq, cached(0), cached(1), vo, policy, {.query_positions = last}));
  std::size_t turn = 0;
  for (auto _ : state) {
    posenc::attention(vq, cached(2 * turn), cached(2 * turn + 1), vo, policy,
                      {.query_positions = last, .workspace = workspace});
    bench::touch(out.data());
    turn = (turn + 1) % caches;
  }
  bench::bytes(state, 2.0 * static_cast<double>(elements) * sizeof(S));
}

template <class S>
void add(const std::string& storage) {
  for (const std::int64_t kv_heads : {8, 32})
    for (const bool by_head : {true, false})
      benchmark::RegisterBenchmark(("attention/decode/none/32_heads/" + std::to_string(kv_heads) +
                                    "_kv_heads/4096/128/" + storage + (by_head ? "/head_major" : "/token_major"))
                                       .c_str(),
                                   [=](benchmark::State& state) { decode<S>(state, kv_heads, by_head); })
          ->Unit(benchmark::kMillisecond);
}

[[maybe_unused]] const bool registered = [] {
  add<float>("float");
  add<Eigen::half>("half");
  add<Eigen::bfloat16>("bfloat16");
  return true;
}();

}  // namespace
