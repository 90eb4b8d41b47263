// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Fused attention, causal, under several policies, beside the peak of the multiply-add units, Eigen's sgemm and the
// read bandwidth. Names: layer/op/policy/heads/queries/keys/dim; gflops counts visible pairs only.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/relative_bucket.hpp>

#include <Eigen/Core>

#include "support/prefill.hpp"

namespace {

using bench::causal_pairs;
using bench::prefill;

void none(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  prefill(state, n, state.range(1), posenc::compose(posenc::causal{}), causal_pairs(n));
}
void alibi(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  prefill(state, n, state.range(1), posenc::compose(posenc::alibi<float>{8}, posenc::causal{}), causal_pairs(n));
}
void t5(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const std::vector<float> table(32 * 8, 0.1f);
  prefill(
      state, n, state.range(1),
      posenc::compose(posenc::relative_bucket<float>({.heads = 8, .bidirectional = false}, table), posenc::causal{}),
      causal_pairs(n));
}
void softcap(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  prefill(state, n, state.range(1), posenc::compose(posenc::softcap{50}, posenc::causal{}), causal_pairs(n));
}
void window(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const std::int64_t w = 256;
  prefill(state, n, state.range(1), posenc::compose(posenc::sliding_window{w}),
          static_cast<double>(n * w) - static_cast<double>(w * (w - 1) / 2));
}
void sizes(benchmark::internal::Benchmark* b) {
  for (const int dim : {64, 128})
    for (const int n : {512, 2048}) b->Args({n, dim});
  b->Unit(benchmark::kMillisecond);
}
BENCHMARK(none)->Name("attention/prefill/none/8_heads")->Apply(sizes);
BENCHMARK(alibi)->Name("attention/prefill/alibi/8_heads")->Apply(sizes);
BENCHMARK(t5)->Name("attention/prefill/relative_bucket/8_heads")->Apply(sizes);
BENCHMARK(softcap)->Name("attention/prefill/softcap/8_heads")->Apply(sizes);
BENCHMARK(window)->Name("attention/prefill/window_256/8_heads")->Args({4096, 64})->Unit(benchmark::kMillisecond);
BENCHMARK(none)->Name("attention/prefill/none/8_heads")->Args({4096, 64})->Unit(benchmark::kMillisecond);

template <class S>
void decode(benchmark::State& state) {
  const std::int64_t kv_heads = state.range(0);
  constexpr std::int64_t heads = 32;
  constexpr std::int64_t keys = 4096;
  constexpr std::int64_t dim = 128;
  auto q = bench::normal<float>(heads * dim, 1);
  const auto k = bench::normal<S>(static_cast<std::size_t>(keys * kv_heads * dim), 2);
  const auto v = bench::normal<S>(static_cast<std::size_t>(keys * kv_heads * dim), 3);
  std::vector<float> out(heads * dim);
  const posenc::shape cache{1, keys, kv_heads, dim};
  const posenc::view vq{q.data(), {.tokens = 1, .heads = heads, .dim = dim}};
  const posenc::view vk{k.data(), cache, posenc::head_major(cache)};
  const posenc::view vv{v.data(), cache, posenc::head_major(cache)};
  const posenc::view vo{out.data(), {.tokens = 1, .heads = heads, .dim = dim}};
  for (auto _ : state) {
    posenc::attention(vq, vk, vv, vo, posenc::compose(posenc::causal{}),
                      {.query_positions = posenc::positions::from(keys - 1)});
    bench::touch(out.data());
  }
  bench::bytes(state, 2.0 * static_cast<double>(keys * kv_heads * dim) * sizeof(S));
}
BENCHMARK(decode<float>)->Name("attention/decode/none/32_heads/4096_keys/128/float/kv_heads")->Arg(8)->Arg(32);

void fma_peak(benchmark::State& state) {
  using B = posenc::simd::batch<float>;
  B r0(1.0f), r1(1.1f), r2(1.2f), r3(1.3f), r4(1.4f), r5(1.5f), r6(1.6f), r7(1.7f), r8(1.8f), r9(1.9f);
  float factor = 0.9999f;
  bench::touch(&factor);
  const B b(factor), c(1e-5f);
  constexpr int n = 10000;
  for (auto _ : state) {
    for (int i = 0; i < n; ++i) {
      r0 = xsimd::fma(r0, b, c), r1 = xsimd::fma(r1, b, c), r2 = xsimd::fma(r2, b, c), r3 = xsimd::fma(r3, b, c);
      r4 = xsimd::fma(r4, b, c), r5 = xsimd::fma(r5, b, c), r6 = xsimd::fma(r6, b, c), r7 = xsimd::fma(r7, b, c);
      r8 = xsimd::fma(r8, b, c), r9 = xsimd::fma(r9, b, c);
    }
    float sum = posenc::simd::sum(((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7)) + (r8 + r9));
    bench::touch(&sum);
  }
  bench::flops(state, 2.0 * 10 * n * posenc::simd::width<float>);
}
BENCHMARK(fma_peak)->Name("floor/fma_peak/float");

void sgemm(benchmark::State& state) {
  const Eigen::MatrixXf a = Eigen::MatrixXf::Random(1024, 1024);
  const Eigen::MatrixXf b = Eigen::MatrixXf::Random(1024, 1024);
  Eigen::MatrixXf c(1024, 1024);
  for (auto _ : state) {
    c.noalias() = a * b;
    bench::touch(c.data());
  }
  bench::flops(state, 2.0 * 1024 * 1024 * 1024);
}
BENCHMARK(sgemm)->Name("floor/eigen_sgemm_1024/float")->Unit(benchmark::kMillisecond);

void read_bandwidth(benchmark::State& state) {
  using B = posenc::simd::batch<float>;
  constexpr std::int64_t w = posenc::simd::width<float>;
  std::vector<float> x(std::size_t{32} << 20, 1.0f);
  for (auto _ : state) {
    B a(0.0f), b(0.0f), c(0.0f), d(0.0f);
    for (std::size_t i = 0; i < x.size(); i += 4 * w) {
      a += B::load_unaligned(x.data() + i);
      b += B::load_unaligned(x.data() + i + w);
      c += B::load_unaligned(x.data() + i + 2 * w);
      d += B::load_unaligned(x.data() + i + 3 * w);
    }
    float sum = posenc::simd::sum((a + b) + (c + d));
    bench::touch(&sum);
  }
  bench::bytes(state, static_cast<double>(x.size()) * sizeof(float));
}
BENCHMARK(read_bandwidth)->Name("floor/read_bandwidth/float")->Unit(benchmark::kMillisecond);

}  // namespace
