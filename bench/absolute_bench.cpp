// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Absolute encodings: ns_per_element counts channels written, so that a table that is linear in its output shows one
// number at every size. `floor/fill` sets the same memory to a constant byte.
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/axial.hpp>
#include <posenc/encoders/complex_order.hpp>
#include <posenc/encoders/fourier_features.hpp>
#include <posenc/encoders/grid_detr.hpp>
#include <posenc/encoders/grid_sinusoidal.hpp>
#include <posenc/encoders/hierarchical.hpp>
#include <posenc/encoders/scaled_sinusoidal.hpp>
#include <posenc/encoders/segment.hpp>
#include <posenc/encoders/tiled.hpp>
#include <posenc/encoders/timestep.hpp>

#include "support/measure.hpp"

#include <cstring>

namespace {

constexpr std::int64_t width = 768;

/// Times `write(view)` over `tokens` rows of `dim` channels.
template <class F>
void rows(benchmark::State& state, std::int64_t tokens, std::int64_t dim, F&& write) {
  std::vector<float> out(static_cast<std::size_t>(tokens * dim));
  const posenc::view v{out.data(), {.tokens = tokens, .dim = dim}};
  for (auto _ : state) {
    write(v);
    bench::touch(out.data());
  }
  bench::per_element(state, tokens * dim);
}

void fill(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  int byte = 0;
  rows(state, n, width, [&](auto v) { std::memset(v.data(), byte++, static_cast<std::size_t>(n * width) * 4); });
}
BENCHMARK(fill)->Name("floor/fill/float/tokens")->Arg(1)->Arg(196)->Arg(1024);

void timestep(benchmark::State& state) {
  const posenc::timestep<float> e{{.dim = width}};
  std::int64_t first = 0;
  rows(state, state.range(0), width, [&](auto v) { e.table(v, posenc::positions::from(first++)); });
}
BENCHMARK(timestep)->Name("encoders/timestep/table/float/tokens")->Arg(1)->Arg(196)->Arg(1024);

void timestep_real(benchmark::State& state) {
  const posenc::timestep<float> e{{.dim = width}};
  const std::vector<double> at(static_cast<std::size_t>(state.range(0)), 123.25);
  rows(state, state.range(0), width, [&](auto v) { e.table(v, posenc::real_positions{at}); });
}
BENCHMARK(timestep_real)->Name("encoders/timestep/table_real/float/tokens")->Arg(1)->Arg(196);

void grid(benchmark::State& state) {
  const posenc::grid_sinusoidal<float> e{posenc::grid_sinusoidal_options::mae(width)};
  const std::vector<std::int64_t> extents{state.range(0), state.range(0)};
  rows(state, state.range(0) * state.range(0), width, [&](auto v) { e.table(v, extents); });
}
BENCHMARK(grid)->Name("encoders/grid_sinusoidal/table/float/side")->Arg(1)->Arg(14)->Arg(32);

void grid_embed(benchmark::State& state) {
  const posenc::grid_sinusoidal<float> e{posenc::grid_sinusoidal_options::mae(width)};
  const std::vector<std::int64_t> extents{state.range(0), state.range(0)};
  rows(state, state.range(0) * state.range(0), width, [&](auto v) { e.embed(v, extents); });
}
BENCHMARK(grid_embed)->Name("encoders/grid_sinusoidal/embed/float/side")->Arg(14);

void grid_listed(benchmark::State& state) {
  const posenc::grid_sinusoidal<float> e{posenc::grid_sinusoidal_options::mae(width)};
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 196; ++i) ids.push_back(i / 14);
  for (std::int64_t i = 0; i < 196; ++i) ids.push_back(i % 14);
  rows(state, 196, width, [&](auto v) { e.table(v, posenc::positions::axes(ids, 2)); });
}
BENCHMARK(grid_listed)->Name("encoders/grid_sinusoidal/table_listed/float/196");

void detr(benchmark::State& state) {
  const std::int64_t side = state.range(0);
  const posenc::grid_detr e{{.num_pos_feats = width / 2, .normalize = state.range(1) != 0}};
  const std::vector<int> valid(static_cast<std::size_t>(side * side), 1);
  rows(state, side * side, width, [&](auto v) { e.table(v, valid, side, side); });
}
BENCHMARK(detr)->Name("encoders/grid_detr/table/float/side_normalize")->Args({14, 0})->Args({14, 1})->Args({32, 1});

void fourier(benchmark::State& state) {
  const posenc::fourier_features e{{.num_bands = 64, .max_resolution = {224, 224}}};
  const std::vector<double> at(static_cast<std::size_t>(2 * state.range(0)), 0.3);
  rows(state, state.range(0), e.dim(), [&](auto v) { e.table(v, posenc::real_positions::axes(at, 2)); });
}
BENCHMARK(fourier)->Name("encoders/fourier_features/table/float/tokens")->Arg(1)->Arg(196)->Arg(1024);

void nerf(benchmark::State& state) {
  const auto e = posenc::fourier_features::nerf({.axes = 3, .num_freqs = 10});
  const std::vector<double> at(static_cast<std::size_t>(3 * state.range(0)), 0.3);
  rows(state, state.range(0), e.dim(), [&](auto v) { e.table(v, posenc::real_positions::axes(at, 3)); });
}
BENCHMARK(nerf)->Name("encoders/fourier_features/nerf/float/tokens")->Arg(1024);

void segment(benchmark::State& state) {
  const posenc::segment<float> e{{.dim = width}, bench::normal<float>(2 * width)};
  std::vector<int> ids(static_cast<std::size_t>(state.range(0)));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = i < ids.size() / 2 ? 0 : 1;
  rows(state, state.range(0), width, [&](auto v) { e.embed(v, ids); });
}
BENCHMARK(segment)->Name("encoders/segment/embed/float/tokens")->Arg(1)->Arg(196)->Arg(1024);

void axial(benchmark::State& state) {
  const auto a = bench::normal<float>(32 * width / 2);
  const auto b = bench::normal<float>(32 * width / 2, 2);
  const posenc::axial<float> e{{{32, width / 2, a}, {32, width / 2, b}}};
  rows(state, state.range(0), width, [&](auto v) { e.lookup(v); });
}
BENCHMARK(axial)->Name("encoders/axial/lookup/float/tokens")->Arg(1)->Arg(196)->Arg(1024);

void tiled(benchmark::State& state) {
  const posenc::tiled<float> e{{.rows = 128, .dim = width, .length = 1024}, bench::normal<float>(128 * width)};
  rows(state, state.range(0), width, [&](auto v) { e.lookup(v); });
}
BENCHMARK(tiled)->Name("encoders/tiled/lookup/float/tokens")->Arg(1)->Arg(196)->Arg(1024);

void hierarchical(benchmark::State& state) {
  const posenc::hierarchical<float> e{{.rows = 32, .dim = width}, bench::normal<float>(32 * width)};
  rows(state, state.range(0), width, [&](auto v) { e.lookup(v); });
}
BENCHMARK(hierarchical)->Name("encoders/hierarchical/lookup/float/tokens")->Arg(1)->Arg(196)->Arg(1024);

void complex_order(benchmark::State& state) {
  const auto r = bench::normal<float>(100 * width / 2);
  const auto omega = bench::normal<float>(100 * width / 2, 2);
  const auto theta = bench::normal<float>(100 * width / 2, 3);
  const posenc::complex_order<float> e{{.vocabulary = 100, .dim = width / 2}, {r, omega, theta}};
  std::vector<int> words(static_cast<std::size_t>(state.range(0)));
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<int>(i * 37 % 100);
  rows(state, state.range(0), width, [&](auto v) {
    const posenc::shape s{.tokens = v.tokens(), .dim = width / 2};
    const posenc::strides step{.token = width};
    e.lookup(posenc::view{v.data(), s, step}, posenc::view{v.data() + width / 2, s, step}, words,
             posenc::positions::from(1));
  });
}
BENCHMARK(complex_order)->Name("encoders/complex_order/lookup/float/tokens")->Arg(1)->Arg(196)->Arg(1024);

void scaled(benchmark::State& state) {
  const posenc::scaled_sinusoidal<float> e{{.dim = width, .layout = posenc::sinusoidal_layout::concat_sin_cos}};
  rows(state, state.range(0), width, [&](auto v) { e.embed(v, posenc::positions::from(7)); });
}
BENCHMARK(scaled)->Name("encoders/scaled_sinusoidal/embed/float/tokens")->Arg(1)->Arg(196)->Arg(1024);

}  // namespace
