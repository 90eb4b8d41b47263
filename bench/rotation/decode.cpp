// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// One token of a decode step, 32 query heads and 8 key heads of 128 channels: its row of 64 pairs, and the rotation.
#include <posenc/encoders/rope_table.hpp>

#include "support/rotation.hpp"

namespace {

using bench::dim;
using bench::heads;
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
    bench::scale_in_place(x.q.data(), heads * dim);
    bench::scale_in_place(x.k.data(), kv_heads * dim);
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
  bench::per_element(state, dim / 2);
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
