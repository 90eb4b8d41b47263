// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Fused attention beside what bounds it: the peak of the multiply-add units, the register kernel on packed panels,
// Eigen's sgemm and the read bandwidth. The files of attention/ hold the policies, decode and threads.
// Names: layer/op/policy/heads/keys/dim; gflops counts visible pairs only.
#include <posenc/attention/masks.hpp>

#include <Eigen/Core>

#include "support/prefill.hpp"

#include <cmath>

namespace {

using batch = posenc::simd::batch<float>;
constexpr std::int64_t width = posenc::simd::width<float>;

/// Ten chains of multiply-adds, n links each; one copy of the code for all that call it.
[[gnu::noinline]] float multiply_add(int n) {
  batch r0(1.0f), r1(1.1f), r2(1.2f), r3(1.3f), r4(1.4f), r5(1.5f), r6(1.6f), r7(1.7f), r8(1.8f), r9(1.9f);
  float factor = 0.9999f;
  bench::touch(&factor);
  const batch b(factor), c(1e-5f);
  for (int i = 0; i < n; ++i) {
    r0 = xsimd::fma(r0, b, c), r1 = xsimd::fma(r1, b, c), r2 = xsimd::fma(r2, b, c), r3 = xsimd::fma(r3, b, c);
    r4 = xsimd::fma(r4, b, c), r5 = xsimd::fma(r5, b, c), r6 = xsimd::fma(r6, b, c), r7 = xsimd::fma(r7, b, c);
    r8 = xsimd::fma(r8, b, c), r9 = xsimd::fma(r9, b, c);
  }
  return posenc::simd::sum(((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7)) + (r8 + r9));
}
constexpr double flops_per_link = 2.0 * 10 * width;

void fma_peak(benchmark::State& state) {
  constexpr int n = 10000;
  for (auto _ : state) {
    float sum = multiply_add(n);
    bench::touch(&sum);
  }
  bench::flops(state, flops_per_link * n);
}
BENCHMARK(fma_peak)->Name("floor/fma_peak/float");

/// 96 rows times 128 packed keys of `dim` channels, over and over; between its repetitions the multiply-adds alone do
/// as much work, so that `of_peak` compares neighbouring fractions of a millisecond.
void register_kernel(benchmark::State& state) {
  using arch = posenc::simd::default_arch;
  constexpr std::int64_t rows = 96, keys = 128;
  constexpr std::int64_t block = posenc::kernels::block_rows<arch>, panel = posenc::kernels::panel_width<float, arch>;
  const std::int64_t dim = state.range(0);
  const std::int64_t repeats = 2560 / dim;
  const double flops = 2.0 * rows * keys * static_cast<double>(dim * repeats);
  const int links = static_cast<int>(flops / flops_per_link);
  const auto a = bench::normal<float>(static_cast<std::size_t>(rows * dim), 1);
  const auto panels = bench::normal<float>(static_cast<std::size_t>(keys * dim), 2);
  std::vector<float> out(rows * keys);
  double kernel_seconds = 0, peak_seconds = 0;
  for (auto _ : state) {
    const double start = bench::thread_seconds();
    float sum = multiply_add(links);
    bench::touch(&sum);
    const double middle = bench::thread_seconds();
    for (std::int64_t i = 0; i < repeats; ++i) {
      for (std::int64_t j = 0; j < keys; j += panel)
        for (std::int64_t r = 0; r < rows; r += block)
          posenc::kernels::multiply_block<arch, block, false>(a.data() + r * dim, dim, panels.data() + j * dim,
                                                              out.data() + r * keys + j, keys, dim);
      bench::touch(out.data());
    }
    const double end = bench::thread_seconds();
    peak_seconds += middle - start;
    kernel_seconds += end - middle;
    state.SetIterationTime(end - middle);
  }
  bench::flops(state, flops);
  state.counters["of_peak"] = peak_seconds / kernel_seconds * flops / (flops_per_link * links);
}
BENCHMARK(register_kernel)->Name("kernels/multiply_block/96_rows/128_keys")->Arg(64)->Arg(128)->UseManualTime();

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
  std::vector<float> x(std::size_t{32} << 20, 1.0f);
  for (auto _ : state) {
    batch a(0.0f), b(0.0f), c(0.0f), d(0.0f);
    for (std::size_t i = 0; i < x.size(); i += 4 * width) {
      a += batch::load_unaligned(x.data() + i);
      b += batch::load_unaligned(x.data() + i + width);
      c += batch::load_unaligned(x.data() + i + 2 * width);
      d += batch::load_unaligned(x.data() + i + 3 * width);
    }
    float sum = posenc::simd::sum((a + b) + (c + d));
    bench::touch(&sum);
  }
  bench::bytes(state, static_cast<double>(x.size()) * sizeof(float));
}
BENCHMARK(read_bandwidth)->Name("floor/read_bandwidth/float")->Unit(benchmark::kMillisecond);

/// Whether numbers below the normal range cost more: in the values, and in the softmax weights, where the logits of
/// most keys lie 87 to 104 below the largest.
enum class subnormal { none, values, weights };
void subnormals(benchmark::State& state, subnormal where) {
  constexpr std::int64_t n = 1024, dim = 64;
  bench::prefill_case c(n, dim);
  if (where == subnormal::values)
    for (float& x : c.v) x *= 1e-40f;
  // q.k / 8 is 0 for every sixteenth key and lies between -87 and -104 for the others.
  const bool low = where == subnormal::weights;
  std::fill(c.q.begin(), c.q.end(), 1.0f);
  for (std::size_t i = 0; i < c.k.size(); ++i) {
    const std::size_t key = i / dim % n;
    const float depth = low && key % 16 != 0 ? 87.5f + static_cast<float>(key % 16) : 0.0f;
    c.k[i] = -depth * 8 / dim;
  }
  c.run(state, posenc::compose(posenc::causal{}), bench::causal_pairs(n));
}
BENCHMARK_CAPTURE(subnormals, none, subnormal::none)
    ->Name("attention/subnormal/none/8_heads/1024/64")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(subnormals, values, subnormal::values)
    ->Name("attention/subnormal/values/8_heads/1024/64")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(subnormals, weights, subnormal::weights)
    ->Name("attention/subnormal/weights/8_heads/1024/64")
    ->Unit(benchmark::kMillisecond);

[[maybe_unused]] const bool registered = [] {
  bench::add_prefill(
      "none", {{512, 64}, {512, 128}, {2048, 64}, {2048, 128}, {4096, 64}, {4096, 128}},
      [](std::int64_t, std::int64_t) { return posenc::compose(posenc::causal{}); }, bench::causal_pairs);
  return true;
}();

}  // namespace
