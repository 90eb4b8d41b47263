// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Rotation of 32 heads x 128 channels, in place, beside its floor: the same bytes multiplied in place by a constant.
// Targets: <= 1.3 x the floor at 2048 tokens, <= 2 x up to 512; half and bfloat16 <= 0.7 x the float
// time at 2048. A scaling, a map of axes or a layout costs what the plain half_split rotation costs. A decode step
// (32 + 8 heads of one token): <= 400 ns for its row of 64 pairs, <= 2 x the floor of the same bytes for the rest.
// Names: layer/op/storage/tokens.
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rerotate.hpp>
#include <posenc/encoders/rope_table.hpp>
#include <posenc/encoders/xpos.hpp>

#include "support/measure.hpp"

#include <string>
#include <utility>

namespace {

constexpr std::int64_t heads = 32;
constexpr std::int64_t dim = 128;

void tokens(benchmark::internal::Benchmark* b) {
  for (const int t : {1, 16, 512, 2048}) b->Arg(t);
}

inline void scale_in_place(float* x, std::int64_t n) {
  const posenc::simd::batch<float> factor(0.9999999f);
  constexpr std::int64_t w = posenc::simd::width<float>;
  for (std::int64_t i = 0; i < n; i += 4 * w)
    for (std::int64_t j = i; j < i + 4 * w; j += w)
      (posenc::simd::batch<float>::load_unaligned(x + j) * factor).store_unaligned(x + j);
}

void floor_scale(benchmark::State& state) {
  const std::int64_t n = state.range(0) * heads * dim;
  auto x = bench::normal<float>(static_cast<std::size_t>(n));
  for (auto _ : state) {
    scale_in_place(x.data(), n);
    bench::touch(x.data());
  }
  bench::per_element(state, n);
  bench::bytes(state, 8.0 * static_cast<double>(n));
}
BENCHMARK(floor_scale)->Name("floor/scale_in_place/float")->Apply(tokens);

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

/// Every layout and variant, angles inside, float: each is one line of options.
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

// One token of a decode step: 32 query heads and 8 key heads.
constexpr std::int64_t kv_heads = 8;

struct one_token {
  std::vector<float> q = bench::normal<float>(heads * dim);
  std::vector<float> k = bench::normal<float>(kv_heads * dim, 2);
  posenc::view<float> queries{q.data(), {.tokens = 1, .heads = heads, .dim = dim}};
  posenc::view<float> keys{k.data(), {.tokens = 1, .heads = kv_heads, .dim = dim}};

  void touch() {
    bench::touch(q.data());
    bench::touch(k.data());
  }
};

void decode_floor(benchmark::State& state) {
  one_token x;
  for (auto _ : state) {
    scale_in_place(x.q.data(), heads * dim);
    scale_in_place(x.k.data(), kv_heads * dim);
    x.touch();
  }
}
BENCHMARK(decode_floor)->Name("decode/floor/scale_in_place");

void decode_row(benchmark::State& state) {
  const posenc::rope<float> encoder{{.head_dim = dim}};
  float cos[dim / 2];
  float sin[dim / 2];
  std::int64_t at = 100000;
  for (auto _ : state) {
    encoder.cos_sin(at++, cos, sin);
    bench::touch(cos);
    bench::touch(sin);
  }
}
BENCHMARK(decode_row)->Name("decode/row/64_pairs");

/// The row once, then q and k from it.
template <posenc::rope_layout Layout>
void decode_shared_row(benchmark::State& state) {
  const posenc::rope<float> encoder{{.head_dim = dim, .layout = Layout}};
  one_token x;
  float cos[dim / 2];
  float sin[dim / 2];
  std::int64_t at = 100000;
  for (auto _ : state) {
    encoder.cos_sin(at, cos, sin);
    const posenc::rope_table_view<float> row(Layout, dim, dim, 0, {cos, sin, dim / 2, at, 1});
    row.rotate(x.queries, posenc::positions::from(at));
    row.rotate(x.keys, posenc::positions::from(at));
    ++at;
    x.touch();
  }
}
BENCHMARK(decode_shared_row<posenc::half_split>)->Name("decode/shared_row/half_split");
BENCHMARK(decode_shared_row<posenc::interleaved>)->Name("decode/shared_row/interleaved");

/// Two calls, each with a row of its own.
template <posenc::rope_layout Layout>
void decode_two_calls(benchmark::State& state) {
  const posenc::rope<float> encoder{{.head_dim = dim, .layout = Layout}};
  one_token x;
  std::int64_t at = 100000;
  for (auto _ : state) {
    encoder.rotate(x.queries, posenc::positions::from(at));
    encoder.rotate(x.keys, posenc::positions::from(at));
    ++at;
    x.touch();
  }
}
BENCHMARK(decode_two_calls<posenc::half_split>)->Name("decode/two_calls/half_split");
BENCHMARK(decode_two_calls<posenc::interleaved>)->Name("decode/two_calls/interleaved");

/// q and k side by side, as a fused projection writes them: one view of 40 heads, one row.
template <posenc::rope_layout Layout>
void decode_one_view(benchmark::State& state) {
  const posenc::rope<float> encoder{{.head_dim = dim, .layout = Layout}};
  auto x = bench::normal<float>((heads + kv_heads) * dim);
  const posenc::view both{x.data(), {.tokens = 1, .heads = heads + kv_heads, .dim = dim}};
  std::int64_t at = 100000;
  for (auto _ : state) {
    encoder.rotate(both, posenc::positions::from(at++));
    bench::touch(x.data());
  }
}
BENCHMARK(decode_one_view<posenc::half_split>)->Name("decode/one_view/half_split");
BENCHMARK(decode_one_view<posenc::interleaved>)->Name("decode/one_view/interleaved");

}  // namespace
