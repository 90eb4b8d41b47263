// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// PyTorch on one thread: scaled_dot_product_attention, causal or with a materialised bias (any bias it is given it
// reads from memory), and the eager rotation. torch_peer.py prints the same rows where the C++ headers are missing.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "support/measure.hpp"

#include <limits>
#include <optional>
#include <string>

namespace {

at::Tensor filled(const std::vector<std::int64_t>& extents, unsigned seed) {
  std::size_t n = 1;
  for (const std::int64_t e : extents) n *= static_cast<std::size_t>(e);
  auto x = bench::normal<float>(n, seed);
  return at::from_blob(x.data(), extents, at::kFloat).clone();
}

void rope(benchmark::State& state) {
  const c10::InferenceMode inference;
  at::set_num_threads(1);
  const std::int64_t tokens = state.range(0);
  const at::Tensor x = filled({1, tokens, 32, 128}, 1), c = filled({1, tokens, 1, 128}, 2),
                   s = filled({1, tokens, 1, 128}, 3);
  for (auto _ : state) {
    const at::Tensor turned = at::cat({-x.slice(3, 64), x.slice(3, 0, 64)}, 3);
    at::Tensor y = x * c + turned * s;
    bench::touch(y.data_ptr());
  }
  bench::per_element(state, x.numel());
}
BENCHMARK(rope)->Name("encoders/rope_table/half_split/float")->Arg(1)->Arg(16)->Arg(512)->Arg(2048);

void attention(benchmark::State& state, std::int64_t heads, std::int64_t kv_heads, std::int64_t queries,
               std::int64_t keys, std::int64_t dim, bool biased) {
  const c10::InferenceMode inference;
  at::set_num_threads(1);
  const at::Tensor q = filled({1, heads, queries, dim}, 1), k = filled({1, kv_heads, keys, dim}, 2),
                   v = filled({1, kv_heads, keys, dim}, 3);
  std::optional<at::Tensor> bias;
  if (biased) {
    const at::Tensor distance = at::arange(keys).unsqueeze(0) - (at::arange(queries).unsqueeze(1) + (keys - queries));
    bias = (distance.unsqueeze(0) * at::rand({heads, 1, 1}))
               .masked_fill(distance.unsqueeze(0) > 0, -std::numeric_limits<float>::infinity())
               .unsqueeze(0);
  }
  for (auto _ : state) {
    at::Tensor y =
        at::scaled_dot_product_attention(q, k, v, bias, 0.0, !biased && queries > 1, std::nullopt, heads != kv_heads);
    bench::touch(y.data_ptr());
  }
  const double pairs = queries == 1 ? static_cast<double>(keys) : static_cast<double>(queries * (queries + 1)) / 2;
  bench::flops(state, 4.0 * static_cast<double>(heads * dim) * pairs);
  if (queries == 1) bench::bytes(state, 2.0 * static_cast<double>(keys * kv_heads * dim) * sizeof(float));
}

[[maybe_unused]] const bool registered = [] {
  for (const bool biased : {false, true})
    for (const std::int64_t n : {512, 2048})
      for (const std::int64_t dim : {64, 128})
        benchmark::RegisterBenchmark(("attention/prefill/" + std::string(biased ? "materialised_bias" : "none") +
                                      "/8_heads/" + std::to_string(n) + "/" + std::to_string(dim))
                                         .c_str(),
                                     attention, 8, 8, n, n, dim, biased)
            ->Unit(benchmark::kMillisecond);
  for (const std::int64_t kv_heads : {8, 32})
    benchmark::RegisterBenchmark(
        ("attention/decode/none/32_heads/" + std::to_string(kv_heads) + "_kv_heads/4096/128/float/head_major").c_str(),
        attention, 32, kv_heads, 1, 4096, 128, false)
        ->Unit(benchmark::kMillisecond);
  return true;
}();

}  // namespace
