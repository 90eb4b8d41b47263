// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Every layout, scaling and map of axes, angles inside, float, 32 heads x 128 channels; `plain` is half_split alone.
#include <posenc/encoders/rerotate.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/xpos.hpp>

#include "support/rotation.hpp"

#include <string>
#include <utility>

namespace {

using bench::dim;
using bench::heads;

/// Each variant is one line of options.
void variant(benchmark::State& state, const posenc::rope_options& options) {
  const std::int64_t t = state.range(0);
  const posenc::rope<float> encoder{options};
  auto x = bench::normal<float>(static_cast<std::size_t>(t * heads * dim));
  const posenc::view v{x.data(), {.tokens = t, .heads = heads, .dim = dim}};
  // Positions of as many axes as the encoder has, all of them different.
  std::vector<std::int64_t> ids;
  for (int a = 0; a < encoder.axis_count(); ++a)
    for (std::int64_t i = 0; i < t; ++i) ids.push_back(1000 * a + i);
  const auto at =
      encoder.axis_count() == 1 ? posenc::positions::from(1000) : posenc::positions::axes(ids, encoder.axis_count());
  for (auto _ : state) {
    encoder.rotate(v, at);
    bench::touch(x.data());
  }
  bench::per_element(state, t * heads * dim);
}

std::vector<std::pair<std::string, posenc::rope_options>> variants() {
  using namespace posenc;
  const std::vector<double> ones(dim / 2, 1.0);
  const std::vector<double> ladder = rope<double>({.head_dim = dim}).inv_freq();
  std::vector<double> two_axes = ladder;
  two_axes.insert(two_axes.end(), ladder.begin(), ladder.end());
  std::vector<double> per_head;
  for (std::int64_t h = 0; h < heads; ++h) per_head.insert(per_head.end(), ladder.begin(), ladder.end());
  std::vector<std::pair<std::string, rope_options>> out;
  const auto add = [&](const char* name, rope_options o) {
    o.head_dim = dim;
    out.emplace_back(name, std::move(o));
  };
  add("plain", {});
  add("interleaved", {.layout = interleaved});
  add("interleaved_in_half_out", {.layout = interleaved_in_half_out});
  add("vjepa2_mixed", {.layout = vjepa2_mixed});
  add("half_split_in_blocks", {.layout = half_split_in_blocks, .axes = rope_axes::blocks({64, 64})});
  add("linear", {.scaling = posenc::linear{4}});
  add("dynamic_ntk", {.scaling = dynamic_ntk{.factor = 2, .max_position_embeddings = 4096, .length = 8192}});
  add("yarn", {.scaling = yarn{.factor = 4, .original_max_position_embeddings = 32768}});
  add("longrope", {.scaling = longrope{ones, ones, 4096, 32.0, 131072, {}, 8192}});
  add("llama3", {.scaling = llama3{}});
  add("proportional", {.scaling = proportional{}});
  add("axes_chunked", {.axes = rope_axes::chunked({16, 24, 24})});
  add("axes_interleaved", {.axes = rope_axes::interleaved({24, 20, 20})});
  add("axes_blocks", {.layout = interleaved, .axes = rope_axes::blocks({16, 56, 56})});
  add("two_axes_summed", {.inv_freq = two_axes, .frequency_axes = 2});
  add("frequencies_per_head", {.inv_freq = per_head, .frequency_heads = heads});
  add("float32_angles", {.angles = angle_mode::float32});
  add("ggml_recurrence", {.angles = angle_mode::ggml_recurrence});
  return out;
}
[[maybe_unused]] const bool variants_registered = [] {
  for (const auto& [name, options] : variants())
    benchmark::RegisterBenchmark(("variant/" + name + "/float").c_str(), variant, options)->Arg(16)->Arg(512);
  return true;
}();

void xpos_queries(benchmark::State& state) {
  const std::int64_t t = state.range(0);
  const posenc::xpos<float> encoder{{.head_dim = dim}};
  auto x = bench::normal<float>(static_cast<std::size_t>(t * heads * dim));
  const posenc::view v{x.data(), {.tokens = t, .heads = heads, .dim = dim}};
  for (auto _ : state) {
    encoder.rotate_queries(v);
    bench::touch(x.data());
  }
  bench::per_element(state, t * heads * dim);
}
BENCHMARK(xpos_queries)->Name("variant/xpos_queries/float")->Arg(16)->Arg(512);

void rerotate_keys(benchmark::State& state) {
  const std::int64_t t = state.range(0);
  const posenc::rope<float> from{{.head_dim = dim}};
  const posenc::rope<float> to{{.head_dim = dim, .base = 20000}};
  auto x = bench::normal<float>(static_cast<std::size_t>(t * heads * dim));
  const posenc::view v{x.data(), {.tokens = t, .heads = heads, .dim = dim}};
  for (auto _ : state) {
    posenc::rerotate(v, posenc::positions::from(1000), from, to);
    bench::touch(x.data());
  }
  bench::per_element(state, t * heads * dim);
}
BENCHMARK(rerotate_keys)->Name("variant/rerotate/float")->Arg(16)->Arg(512);

}  // namespace
