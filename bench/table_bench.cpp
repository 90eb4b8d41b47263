// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Adding rows to embeddings: ns_per_element counts channels.
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include "support/measure.hpp"

namespace {

void sinusoidal_embed(benchmark::State& state) {
  constexpr std::int64_t width = 768;
  const std::int64_t t = state.range(0);
  const posenc::sinusoidal<float> encoder{{.dim = width}};
  auto x = bench::normal<float>(static_cast<std::size_t>(t * width));
  for (auto _ : state) {
    encoder.embed(posenc::view{x.data(), {.tokens = t, .dim = width}});
    bench::touch(x.data());
  }
  bench::per_element(state, t * width);
}
BENCHMARK(sinusoidal_embed)->Name("encoders/sinusoidal/embed/float/tokens")->Arg(1)->Arg(512);

void learned_embed(benchmark::State& state) {
  constexpr std::int64_t width = 768;
  const std::int64_t t = state.range(0);
  const posenc::learned<float> encoder({.rows = t, .dim = width},
                                       bench::normal<float>(static_cast<std::size_t>(t * width)));
  auto x = bench::normal<float>(static_cast<std::size_t>(t * width), 2);
  for (auto _ : state) {
    encoder.embed(posenc::view{x.data(), {.tokens = t, .dim = width}});
    bench::touch(x.data());
  }
  bench::per_element(state, t * width);
}
BENCHMARK(learned_embed)->Name("encoders/learned/embed/float/tokens")->Arg(1)->Arg(512);

}  // namespace
