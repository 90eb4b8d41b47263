// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What a whole row costs: the two-pass path with a policy that fused attention takes too, with contextual positions,
// and scalable softmax, which needs the number of visible keys alone. Names: layer/op/path/encoding/8_heads/keys/dim;
// gflops counts the products of queries, keys and values alone, so its ratio to `fused/none` is the ratio of the times.
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/two_pass.hpp>
#include <posenc/encoders/cope.hpp>

#include "support/prefill.hpp"

namespace {

constexpr std::int64_t heads = 8;

/// The last `queries` of n tokens through the two-pass path.
template <class Policy>
void two_pass(benchmark::State& state, std::int64_t queries, const Policy& policy) {
  const std::int64_t n = state.range(0);
  const std::int64_t dim = state.range(1);
  const posenc::shape s{1, n, heads, dim};
  const posenc::shape rows{1, queries, heads, dim};
  auto q = bench::normal<float>(static_cast<std::size_t>(rows.elements()), 1);
  auto k = bench::normal<float>(static_cast<std::size_t>(s.elements()), 2);
  auto v = bench::normal<float>(static_cast<std::size_t>(s.elements()), 3);
  std::vector<float> out(q.size());
  const posenc::view<float> vq{q.data(), rows, posenc::head_major(rows)}, vk{k.data(), s, posenc::head_major(s)},
      vv{v.data(), s, posenc::head_major(s)}, vo{out.data(), rows, posenc::head_major(rows)};
  const posenc::positions at = posenc::positions::from(n - queries);
  std::vector<std::byte> workspace(
      posenc::attention_two_pass_workspace(vq, vk, vv, vo, policy, {.query_positions = at}));
  for (auto _ : state) {
    posenc::attention_two_pass(vq, vk, vv, vo, policy, {.query_positions = at, .workspace = workspace});
    bench::touch(out.data());
  }
  const double pairs = queries == 1 ? static_cast<double>(n) : bench::causal_pairs(n);
  bench::flops(state, 4.0 * heads * pairs * static_cast<double>(dim));
  state.counters["workspace_bytes"] = static_cast<double>(workspace.size());
}

posenc::cope<float> contextual(std::int64_t npos, std::int64_t dim) {
  return posenc::cope<float>({.head_dim = dim}, bench::normal<float>(static_cast<std::size_t>(npos * dim), 4));
}
template <class F>
void add(const char* op, const char* name, std::int64_t keys, const F& f) {
  for (const int dim : {64, 128})
    benchmark::RegisterBenchmark((std::string("attention/") + op + "/" + name + "/8_heads").c_str(), f)
        ->Args({keys, dim})
        ->Unit(benchmark::kMicrosecond);
}

[[maybe_unused]] const bool registered = [] {
  constexpr std::int64_t n = 2048;
  add("prefill", "fused/none", n, [](benchmark::State& s) {
    bench::prefill(s, n, s.range(1), posenc::compose(posenc::causal{}), bench::causal_pairs(n));
  });
  add("prefill", "fused/ssmax", n, [](benchmark::State& s) {
    bench::prefill(s, n, s.range(1), posenc::compose(posenc::ssmax(0.43), posenc::causal{}), bench::causal_pairs(n));
  });
  add("prefill", "two_pass/none", n,
      [](benchmark::State& s) { two_pass(s, s.range(0), posenc::compose(posenc::causal{})); });
  for (const std::int64_t npos : {64, 2048}) {
    const std::string name = "two_pass/cope_" + std::to_string(npos);
    add("prefill", name.c_str(), n, [npos](benchmark::State& s) {
      two_pass(s, s.range(0), posenc::compose(contextual(npos, s.range(1)), posenc::causal{}));
    });
    add("decode", name.c_str(), n, [npos](benchmark::State& s) {
      two_pass(s, 1, posenc::compose(contextual(npos, s.range(1)), posenc::causal{}));
    });
  }
  add("decode", "fused/none", n,
      [](benchmark::State& s) { bench::decode_step(s, n, s.range(1), posenc::compose(posenc::causal{})); });
  add("decode", "two_pass/none", n, [](benchmark::State& s) { two_pass(s, 1, posenc::compose(posenc::causal{})); });
  return true;
}();

}  // namespace
