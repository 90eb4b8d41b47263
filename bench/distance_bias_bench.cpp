// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Biases of the distance. One row of 4096 logits through the first softmax pass, to be read beside the empty pass, and
// what it costs to make the lines of a call of 2048 queries and keys.
#include <posenc/attention/bias.hpp>
#include <posenc/encoders/alibi_asymmetric.hpp>
#include <posenc/encoders/alibi_grid.hpp>
#include <posenc/encoders/dynamic_bias.hpp>
#include <posenc/encoders/fire.hpp>
#include <posenc/encoders/kerple.hpp>
#include <posenc/encoders/sandwich.hpp>

#include "support/score_pass.hpp"

namespace {

constexpr std::int64_t keys = 4096;
constexpr std::int64_t heads = 8;

std::vector<float> numbers(std::int64_t n, unsigned seed) {
  auto out = bench::normal<float>(static_cast<std::size_t>(n), seed);
  for (float& x : out) x *= 0.5f;
  return out;
}
posenc::kerple_options<float> kerple_of(posenc::kerple_kernel kernel) {
  posenc::kerple_options<float> o{.kernel = kernel};
  for (int h = 0; h < heads; ++h) {
    o.scale.push_back(0.1f * static_cast<float>(h + 1));
    o.shape.push_back(0.2f * static_cast<float>(h + 1));
  }
  return o;
}
posenc::kerple<float> kerple_log() { return posenc::kerple<float>(kerple_of(posenc::kerple_kernel::log)); }
posenc::kerple<float> kerple_power() { return posenc::kerple<float>(kerple_of(posenc::kerple_kernel::power)); }
posenc::kerple_weight<float> kerple_weight() {
  return posenc::kerple_weight<float>(kerple_of(posenc::kerple_kernel::power));
}
posenc::sandwich<float> sandwich() { return posenc::sandwich<float>({.heads = heads}); }
posenc::dynamic_bias<float> dynamic_bias() {
  return posenc::dynamic_bias<float>(
      {.layers = {{numbers(64, 1), numbers(64, 2)}, {numbers(64 * heads, 3), numbers(heads, 4)}},
       .log_distance = true});
}
posenc::fire<float> fire(float threshold) {
  return posenc::fire<float>({.threshold = threshold,
                              .weight1 = numbers(32, 5),
                              .bias1 = numbers(32, 6),
                              .weight2 = numbers(32 * heads, 7),
                              .bias2 = numbers(heads, 8)});
}

template <class Policy>
void pass(benchmark::State& state, const Policy& policy, const posenc::positions& at = {}) {
  bench::score_pass(state, policy, heads, keys, at);
}

void empty(benchmark::State& state) { pass(state, posenc::compose()); }
void pass_kerple(benchmark::State& state) { pass(state, kerple_log()); }
void pass_kerple_weight(benchmark::State& state) { pass(state, posenc::compose(kerple_weight(), kerple_power())); }
void pass_sandwich(benchmark::State& state) { pass(state, sandwich()); }
void pass_dynamic(benchmark::State& state) { pass(state, dynamic_bias()); }
void pass_fire_within(benchmark::State& state) { pass(state, fire(8192)); }
void pass_fire_beyond(benchmark::State& state) { pass(state, fire(512)); }
void pass_split(benchmark::State& state) { pass(state, posenc::alibi_split<float>{heads}); }
void pass_two_sided(benchmark::State& state) {
  pass(state, posenc::alibi_two_sided<float>(numbers(heads, 1), numbers(heads, 2)));
}
void pass_grid(benchmark::State& state, posenc::grid_metric metric) {
  std::vector<std::int64_t> ids(2 * keys);
  for (std::size_t t = 0; t < keys; ++t) {
    ids[t] = static_cast<std::int64_t>(t / 64);
    ids[keys + t] = static_cast<std::int64_t>(t % 64);
  }
  pass(state, posenc::alibi_grid<float>(heads, metric), posenc::positions::axes(ids, 2));
}
BENCHMARK(empty)->Name("distance_bias/score_pass/empty");
BENCHMARK(pass_kerple)->Name("distance_bias/score_pass/kerple");
BENCHMARK(pass_kerple_weight)->Name("distance_bias/score_pass/kerple_weight+kerple");
BENCHMARK(pass_sandwich)->Name("distance_bias/score_pass/sandwich");
BENCHMARK(pass_dynamic)->Name("distance_bias/score_pass/dynamic_bias");
BENCHMARK(pass_fire_within)->Name("distance_bias/score_pass/fire/within_threshold");
BENCHMARK(pass_fire_beyond)->Name("distance_bias/score_pass/fire/beyond_threshold");
BENCHMARK(pass_split)->Name("distance_bias/score_pass/alibi_split");
BENCHMARK(pass_two_sided)->Name("distance_bias/score_pass/alibi_two_sided");
BENCHMARK_CAPTURE(pass_grid, manhattan, posenc::grid_metric::manhattan)->Name("distance_bias/score_pass/alibi_grid/1");
BENCHMARK_CAPTURE(pass_grid, euclidean, posenc::grid_metric::euclidean)->Name("distance_bias/score_pass/alibi_grid/2");

/// ns per value of the lines, `lines` of them.
template <class Encoder>
void lines(benchmark::State& state, const Encoder& encoder, std::int64_t count) {
  constexpr std::int64_t n = 2048;
  const posenc::call c = bench::call_of(heads, n, n);
  std::vector<std::byte> memory(encoder.workspace_bytes(c));
  for (auto _ : state) {
    auto bound = encoder.bind(memory.data(), c);
    bench::touch(&bound);
    bench::touch(memory.data());
  }
  bench::per_element(state, count * (2 * n - 1));
}
void lines_log(benchmark::State& state) { lines(state, kerple_log(), heads); }
void lines_power(benchmark::State& state) { lines(state, kerple_power(), heads); }
void lines_sandwich(benchmark::State& state) { lines(state, sandwich(), heads); }
void lines_dynamic(benchmark::State& state) { lines(state, dynamic_bias(), heads); }
void lines_fire_within(benchmark::State& state) { lines(state, fire(8192), heads); }
void lines_fire_beyond(benchmark::State& state) { lines(state, fire(512), 1); }
BENCHMARK(lines_log)->Name("distance_bias/lines/kerple_log");
BENCHMARK(lines_power)->Name("distance_bias/lines/kerple_power");
BENCHMARK(lines_sandwich)->Name("distance_bias/lines/sandwich_128");
BENCHMARK(lines_dynamic)->Name("distance_bias/lines/dynamic_bias_64");
BENCHMARK(lines_fire_within)->Name("distance_bias/lines/fire/within_threshold");
BENCHMARK(lines_fire_beyond)->Name("distance_bias/lines/fire/beyond_threshold");

}  // namespace
