// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The same prefill on one and on two threads, by the clock on the wall. Names: layer/op/threads/policy/heads/keys/dim.
#include <posenc/attention/masks.hpp>
#include <posenc/core/parallel_threads.hpp>

#include "support/prefill.hpp"

namespace {

void prefill(benchmark::State& state) {
  const std::int64_t n = state.range(1);
  posenc::thread_executor threads(state.range(0));
  bench::prefill_case(n, state.range(2)).run(state, posenc::compose(posenc::causal{}), bench::causal_pairs(n), threads);
}
BENCHMARK(prefill)
    ->Name("attention/prefill_threads/none/8_heads")
    ->Args({1, 2048, 64})
    ->Args({2, 2048, 64})
    ->Args({1, 2048, 128})
    ->Args({2, 2048, 128})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
