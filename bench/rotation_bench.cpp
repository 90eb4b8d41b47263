// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Rotation of 32 heads x 128 channels, in place, beside its floor: the same bytes multiplied in place by a constant.
// The files of rotation/ hold variants, tables and the decode step. Names: layer/op/layout/storage/tokens.
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rope_table.hpp>

#include "support/rotation.hpp"

namespace {

using bench::dim;
using bench::heads;

void tokens(benchmark::internal::Benchmark* b) {
  for (const int t : {1, 16, 512, 2048}) b->Arg(t);
}

void floor_scale(benchmark::State& state) {
  const std::int64_t n = state.range(0) * heads * dim;
  auto x = bench::normal<float>(static_cast<std::size_t>(n));
  for (auto _ : state) {
    bench::scale_in_place(x.data(), n);
    bench::touch(x.data());
  }
  bench::per_element(state, n);
  bench::bytes(state, 8.0 * static_cast<double>(n));
}
BENCHMARK(floor_scale)->Name("floor/scale_in_place/float")->Apply(tokens);

void floor_copy(benchmark::State& state) {
  using B = posenc::simd::batch<float>;
  const std::int64_t n = state.range(0) * heads * dim;
  const auto x = bench::normal<float>(static_cast<std::size_t>(n));
  std::vector<float> y(x.size());
  // By hand: memcpy of the C library takes a slow path on some machines.
  for (auto _ : state) {
    for (std::int64_t i = 0; i < n; i += 4 * B::size)
      for (std::int64_t j = i; j < i + 4 * static_cast<std::int64_t>(B::size); j += B::size)
        B::load_unaligned(x.data() + j).store_unaligned(y.data() + j);
    bench::touch(y.data());
  }
  bench::per_element(state, n);
}
BENCHMARK(floor_copy)->Name("floor/copy/float")->Apply(tokens);

template <class S, posenc::rope_layout Layout>
void table(benchmark::State& state) {
  const std::int64_t t = state.range(0);
  const posenc::rope<float> encoder{{.head_dim = dim, .layout = Layout}};
  const posenc::rope_table<float> rows(encoder, 0, t);
  auto x = bench::normal<S>(static_cast<std::size_t>(t * heads * dim));
  const posenc::view v{x.data(), {.tokens = t, .heads = heads, .dim = dim}};
  for (auto _ : state) {
    rows.rotate(v);
    bench::touch(x.data());
  }
  bench::per_element(state, t * heads * dim);
}
BENCHMARK(table<float, posenc::half_split>)->Name("encoders/rope_table/half_split/float")->Apply(tokens);
BENCHMARK(table<float, posenc::interleaved>)->Name("encoders/rope_table/interleaved/float")->Apply(tokens);
BENCHMARK(table<Eigen::half, posenc::half_split>)->Name("encoders/rope_table/half_split/half")->Apply(tokens);
BENCHMARK(table<Eigen::half, posenc::interleaved>)->Name("encoders/rope_table/interleaved/half")->Apply(tokens);
BENCHMARK(table<Eigen::bfloat16, posenc::half_split>)->Name("encoders/rope_table/half_split/bfloat16")->Apply(tokens);
BENCHMARK(table<Eigen::bfloat16, posenc::interleaved>)->Name("encoders/rope_table/interleaved/bfloat16")->Apply(tokens);

/// Angles formed inside the call.
template <class S, posenc::rope_layout Layout>
void angles_inside(benchmark::State& state) {
  const std::int64_t t = state.range(0);
  const posenc::rope<float> encoder{{.head_dim = dim, .layout = Layout}};
  auto x = bench::normal<S>(static_cast<std::size_t>(t * heads * dim));
  const posenc::view v{x.data(), {.tokens = t, .heads = heads, .dim = dim}};
  std::int64_t past = 0;
  for (auto _ : state) {
    encoder.rotate(v, posenc::positions::from(past++));
    bench::touch(x.data());
  }
  bench::per_element(state, t * heads * dim);
}
BENCHMARK(angles_inside<float, posenc::half_split>)->Name("encoders/rope/half_split/float")->Apply(tokens);
BENCHMARK(angles_inside<float, posenc::interleaved>)->Name("encoders/rope/interleaved/float")->Apply(tokens);

}  // namespace
