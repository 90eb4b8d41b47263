// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Biases by index tables and gates: one row of logits through the first softmax pass, beside the empty pass of the same
// length; and attention of image windows with the decomposed bias, whose terms are products with the queries.
#include <posenc/encoders/continuous_bias.hpp>
#include <posenc/encoders/decomposed_bias.hpp>
#include <posenc/encoders/forgetting.hpp>
#include <posenc/encoders/gated_bias.hpp>
#include <posenc/encoders/projected_bias.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/tupe.hpp>
#include <posenc/encoders/tupe_bucket.hpp>
#include <posenc/encoders/window_bias.hpp>

#include "support/score_pass.hpp"

namespace {

constexpr std::int64_t heads = 8;
constexpr std::int64_t window_keys = 256;
constexpr std::int64_t text_keys = 4096;

template <class Policy>
void pass(benchmark::State& state, const Policy& policy, std::int64_t keys) {
  bench::score_pass(state, policy, heads, keys);
}

void empty_window(benchmark::State& state) { pass(state, posenc::compose(), window_keys); }
void empty_text(benchmark::State& state) { pass(state, posenc::compose(), text_keys); }
void window(benchmark::State& state) {
  const posenc::window_bias<float> e({.heads = heads, .window = {16, 16}}, bench::normal<float>(31 * 31 * heads));
  pass(state, posenc::compose(e), window_keys);
}
void continuous(benchmark::State& state) {
  const auto w1 = bench::normal<float>(1024), b1 = bench::normal<float>(512), w2 = bench::normal<float>(512 * heads);
  const posenc::continuous_bias<float> e({.heads = heads, .window = {16, 16}}, {w1, b1, w2});
  pass(state, posenc::compose(e), window_keys);
}
template <bool Keep>
void tupe(benchmark::State& state) {
  constexpr std::size_t width = 512;
  const auto p = bench::normal<float>((window_keys + 1) * width), g = bench::normal<float>(width),
             w = bench::normal<float>(width * width);
  const posenc::tupe<float> e({.heads = heads, .width = width, .keep_table = Keep}, {p, g, g, w, g, w, g});
  pass(state, posenc::compose(e), window_keys);
}
void tupe_bucket(benchmark::State& state) {
  pass(state, posenc::compose(posenc::tupe_bucket<float>({.heads = heads}, bench::normal<float>(33 * heads))),
       text_keys);
}
void gated(benchmark::State& state) {
  const posenc::relative_bucket<float> bias({.heads = heads, .num_buckets = 320, .max_distance = 800},
                                            bench::normal<float>(320 * heads));
  const auto gates = bench::normal<float>(text_keys * heads);
  pass(state,
       posenc::compose(
           posenc::gated_bias(bias, posenc::view{gates.data(), {.tokens = text_keys, .heads = heads, .dim = 1}})),
       text_keys);
}
void forgetting(benchmark::State& state) {
  const auto gates = bench::normal<float>(text_keys * heads);
  posenc::forget_sums<> sums({.heads = heads});
  sums.append(posenc::view{gates.data(), {.tokens = text_keys, .heads = heads, .dim = 1}});
  pass(state, posenc::compose(posenc::forgetting<>(sums)), text_keys);
}
void projected(benchmark::State& state) {
  constexpr std::int64_t functions = 16;
  const posenc::projected_bank<float> bank(functions, text_keys, bench::normal<float>(functions * text_keys));
  const auto weights = bench::normal<float>(text_keys * heads * functions);
  pass(state,
       posenc::compose(posenc::projected_bias(
           bank, posenc::view{weights.data(), {.tokens = text_keys, .heads = heads, .dim = functions}})),
       text_keys);
}
BENCHMARK(empty_window)->Name("attention/score_pass/empty_256/float");
BENCHMARK(window)->Name("attention/score_pass/window_bias/float");
BENCHMARK(continuous)->Name("attention/score_pass/continuous_bias/float");
BENCHMARK(tupe<false>)->Name("attention/score_pass/tupe_rows/float");
BENCHMARK(tupe<true>)->Name("attention/score_pass/tupe_table/float");
BENCHMARK(empty_text)->Name("attention/score_pass/empty_4096/float");
BENCHMARK(tupe_bucket)->Name("attention/score_pass/tupe_bucket/float");
BENCHMARK(gated)->Name("attention/score_pass/gated_bias/float");
BENCHMARK(forgetting)->Name("attention/score_pass/forgetting/float");
BENCHMARK(projected)->Name("attention/score_pass/projected_bias/float");

/// Eight heads of 64 channels over windows of `side` x `side` tokens.
template <class Policy>
void attend(benchmark::State& state, const Policy& policy, std::int64_t side, std::int64_t windows) {
  const posenc::shape s{.batch = windows, .tokens = side * side, .heads = heads, .dim = 64};
  const auto q = bench::normal<float>(static_cast<std::size_t>(s.elements()), 1);
  const auto k = bench::normal<float>(static_cast<std::size_t>(s.elements()), 2);
  const auto v = bench::normal<float>(static_cast<std::size_t>(s.elements()), 3);
  std::vector<float> out(q.size());
  for (auto _ : state) {
    posenc::attention(posenc::view{q.data(), s}, posenc::view{k.data(), s}, posenc::view{v.data(), s},
                      posenc::view{out.data(), s}, policy);
    bench::touch(out.data());
  }
  bench::flops(state, 4.0 * static_cast<double>(windows * heads * side * side * side * side) * 64);
}
posenc::decomposed_bias<float> decomposed_of(std::int64_t side) {
  const auto table = bench::normal<float>(static_cast<std::size_t>((2 * side - 1) * 64));
  return {{.queries = {side, side}, .keys = {side, side}, .dim = 64}, table, table};
}
void plain_window(benchmark::State& state) { attend(state, posenc::compose(), 14, 4); }
void decomposed_window(benchmark::State& state) { attend(state, posenc::compose(decomposed_of(14)), 14, 4); }
void plain_image(benchmark::State& state) { attend(state, posenc::compose(), 45, 1); }
void decomposed_image(benchmark::State& state) { attend(state, posenc::compose(decomposed_of(45)), 45, 1); }
BENCHMARK(plain_window)->Name("attention/window_14/plain/float");
BENCHMARK(decomposed_window)->Name("attention/window_14/decomposed_bias/float");
BENCHMARK(plain_image)->Name("attention/window_45/plain/float");
BENCHMARK(decomposed_image)->Name("attention/window_45/decomposed_bias/float");

}  // namespace
