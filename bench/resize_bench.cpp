// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Making and using the tables of tests/laws/table_laws.cpp: ns_per_element counts elements written.
#include <posenc/encoders/position_convolution.hpp>
#include <posenc/encoders/recursive.hpp>
#include <posenc/encoders/relative_sinusoids.hpp>
#include <posenc/encoders/resize.hpp>

#include "support/measure.hpp"

namespace {

constexpr std::int64_t width = 768;

posenc::resize_options vision(std::int64_t to, posenc::resize_mode mode, bool antialias) {
  return {.from = {14, 14}, .to = posenc::table_extent{to, to}, .mode = mode, .antialias = antialias, .prefix_rows = 1};
}

void resize(benchmark::State& state, posenc::resize_mode mode, bool antialias) {
  const posenc::table_resize resized(vision(state.range(0), mode, antialias));
  const auto table = bench::normal<float>(static_cast<std::size_t>(resized.rows_before() * width));
  for (auto _ : state) {
    auto out = resized(table);
    bench::touch(out.data());
  }
  bench::per_element(state, resized.rows_after() * width);
}
BENCHMARK_CAPTURE(resize, bilinear, posenc::resize_mode::bilinear, false)
    ->Name("encoders/resize/bilinear/float/side")
    ->Arg(16)
    ->Arg(64);
BENCHMARK_CAPTURE(resize, bicubic, posenc::resize_mode::bicubic, false)
    ->Name("encoders/resize/bicubic/float/side")
    ->Arg(16)
    ->Arg(32)
    ->Arg(64);
BENCHMARK_CAPTURE(resize, antialias, posenc::resize_mode::bicubic, true)
    ->Name("encoders/resize/bicubic_antialias/float/side")
    ->Arg(7)
    ->Arg(64);

void resize_adjoint(benchmark::State& state) {
  const posenc::table_resize resized(vision(state.range(0), posenc::resize_mode::bicubic, false));
  const auto upstream = bench::normal<float>(static_cast<std::size_t>(resized.rows_after() * width));
  for (auto _ : state) {
    auto out = resized.adjoint(upstream);
    bench::touch(out.data());
  }
  bench::per_element(state, resized.rows_after() * width);
}
BENCHMARK(resize_adjoint)->Name("encoders/resize/bicubic_adjoint/float/side")->Arg(16)->Arg(64);

/// A flow that costs nothing by itself, so that the stepper is what is measured.
void recursive_cursor(benchmark::State& state) {
  const auto decay = [](double, std::span<const double> p, std::span<double> out) {
    for (std::size_t d = 0; d < p.size(); ++d) out[d] = -p[d];
  };
  posenc::recursive_cursor cursor(bench::normal<double>(width), posenc::runge_kutta(decay));
  std::vector<float> x(width);
  for (auto _ : state) {
    cursor.embed(posenc::view{x.data(), {.tokens = 1, .dim = width}});
    bench::touch(x.data());
  }
  bench::per_element(state, width);
}
BENCHMARK(recursive_cursor)->Name("encoders/recursive/runge_kutta_5_substeps/double/tokens/1");

void depthwise(benchmark::State& state) {
  const posenc::position_convolution<float> encoder({.channels = width}, bench::normal<float>(width * 9));
  auto x = bench::normal<float>(static_cast<std::size_t>(14 * 14 * width), 2);
  for (auto _ : state) {
    encoder.embed(posenc::view{x.data(), {.tokens = 14 * 14, .dim = width}}, {.rows = 14, .columns = 14});
    bench::touch(x.data());
    state.PauseTiming();
    for (float& e : x) e = 1;  // a residual in place would grow
    state.ResumeTiming();
  }
  bench::per_element(state, 14 * 14 * width);
}
BENCHMARK(depthwise)->Name("encoders/position_convolution/depthwise_3x3/float/grid/14");

void grouped(benchmark::State& state) {
  constexpr std::int64_t tokens = 499;  // ten seconds of wav2vec 2.0
  const posenc::position_convolution<float> encoder({.channels = width,
                                                     .groups = 16,
                                                     .kernel = {.rows = 1, .columns = 128},
                                                     .activation = posenc::convolution_activation::gelu},
                                                    bench::normal<float>(width * 48 * 128));
  auto x = bench::normal<float>(static_cast<std::size_t>(tokens * width), 2);
  std::vector<float> out(x.size());
  const posenc::shape shape{.tokens = tokens, .dim = width};
  for (auto _ : state) {
    encoder.apply(posenc::view{x.data(), shape}, posenc::view{out.data(), shape}, {.rows = 1, .columns = tokens});
    bench::touch(out.data());
  }
  bench::per_element(state, tokens * width);
  // Pairs of a token and a kernel position that lie inside, two operations for each of 48 inputs.
  std::int64_t pairs = 0;
  for (std::int64_t t = 0; t < tokens; ++t)
    pairs += std::min<std::int64_t>(tokens, t + 64) - std::max<std::int64_t>(0, t - 64);
  bench::flops(state, 2.0 * 48 * static_cast<double>(pairs) * width);
}
BENCHMARK(grouped)->Name("encoders/position_convolution/grouped_128/float/tokens/499");

void distances(benchmark::State& state) {
  const std::int64_t reach = state.range(0);
  const posenc::sinusoidal<float> encoder{{.dim = 64, .layout = posenc::sinusoidal_layout::concat_sin_cos}};
  for (auto _ : state) {
    auto table = posenc::relative_sinusoids(encoder, reach, reach);
    bench::touch(table.data());
  }
  bench::per_element(state, (2 * reach + 1) * 64);
}
BENCHMARK(distances)->Name("encoders/relative_sinusoids/float/reach")->Arg(16)->Arg(2048);

}  // namespace
