// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Rows of cos and sin: ns_per_element counts (position, pair). Exact angles are to take 6 ns at most, one row of a
// decode step included.
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rope_table.hpp>

#include "support/rotation.hpp"

namespace {

using bench::dim;

template <class R>
void rope_rows(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  const posenc::rope<float> encoder{{.head_dim = dim}};
  std::vector<R> cos(dim / 2);
  std::vector<R> sin(dim / 2);
  std::int64_t at = 123456;
  for (auto _ : state) {
    for (std::int64_t r = 0; r < rows; ++r) encoder.cos_sin(at + r, cos.data(), sin.data());
    at += rows;
    bench::touch(cos.data());
    bench::touch(sin.data());
  }
  bench::per_element(state, rows * dim / 2);
}
BENCHMARK(rope_rows<float>)->Name("encoders/rope/cos_sin/float/rows")->Arg(1)->Arg(2048);
BENCHMARK(rope_rows<double>)->Name("encoders/rope/cos_sin/double/rows")->Arg(1)->Arg(2048);
BENCHMARK(rope_rows<Eigen::bfloat16>)->Name("encoders/rope/cos_sin/bfloat16/rows")->Arg(1)->Arg(2048);

void float32_rows(benchmark::State& state) {
  const posenc::rope<float> encoder{{.head_dim = dim, .angles = posenc::angle_mode::float32}};
  std::vector<float> cos(dim / 2);
  std::vector<float> sin(dim / 2);
  std::int64_t at = 0;
  for (auto _ : state) {
    encoder.cos_sin(at++, cos.data(), sin.data());
    bench::touch(cos.data());
    bench::touch(sin.data());
  }
  bench::per_element(state, dim / 2);
}
BENCHMARK(float32_rows)->Name("encoders/rope/cos_sin_float32_angles/float/rows/1");

}  // namespace
