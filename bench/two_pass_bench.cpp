// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What a whole row costs: the two-pass path with a policy that fused attention takes too, with contextual positions,
// and scalable softmax, which needs the number of visible keys alone. Names: layer/op/path/encoding/8_heads/keys/dim;
// gflops counts the products of queries, keys and values alone, so its ratio to `fused/none` is the ratio of the times.
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/encoders/cope.hpp>

#include "support/two_pass.hpp"

namespace {

/// The last `queries` of as many tokens as the row's first argument says.
template <class Policy>
void two_pass(benchmark::State& state, std::int64_t queries, const Policy& policy) {
  bench::two_pass(state, queries, state.range(0), state.range(1), policy);
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
