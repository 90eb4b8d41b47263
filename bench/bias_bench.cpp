// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// One row of 4096 logits through the first softmax pass (transforms, maximum), per policy: what a bias costs above the
// empty pass, beside a bias row streamed from a materialised tensor.
#include <posenc/attention/bias.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/relative_bucket.hpp>

#include "support/score_pass.hpp"

namespace {

constexpr std::int64_t keys = 4096;
constexpr std::int64_t heads = 8;

template <class Policy>
void pass(benchmark::State& state, const Policy& policy) {
  bench::score_pass(state, policy, heads, keys);
}

void empty(benchmark::State& state) { pass(state, posenc::compose()); }
void alibi(benchmark::State& state) { pass(state, posenc::compose(posenc::alibi<float>{heads})); }
void t5(benchmark::State& state) {
  const std::vector<float> table(32 * heads, 0.0f);
  pass(state, posenc::compose(posenc::relative_bucket<float>({.heads = heads}, table)));
}
void softcap(benchmark::State& state) { pass(state, posenc::compose(posenc::softcap{50})); }
BENCHMARK(empty)->Name("attention/score_pass/empty/float");
BENCHMARK(alibi)->Name("attention/score_pass/alibi/float");
BENCHMARK(t5)->Name("attention/score_pass/relative_bucket/float");
BENCHMARK(softcap)->Name("attention/score_pass/softcap/float");

void streamed(benchmark::State& state) {
  constexpr std::int64_t rows = 4096;  // 64 MiB of bias: beyond the caches, as a [heads, q, k] tensor is
  std::vector<float> bias(static_cast<std::size_t>(rows * keys), 0.0f);
  auto s = bench::normal<float>(keys);
  std::int64_t row = 0;
  using B = posenc::simd::batch<float>;
  for (auto _ : state) {
    const float* line = bias.data() + (row++ % rows) * keys;
    const auto op = [line](const B& x, std::int64_t k) { return B(x + B::load_unaligned(line + k)); };
    bench::transform_row(s, op);
  }
  bench::per_element(state, keys);
}
BENCHMARK(streamed)->Name("floor/bias_streamed_from_memory/float");

}  // namespace
