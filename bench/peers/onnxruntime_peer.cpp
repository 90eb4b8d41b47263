// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// ONNX Runtime on one thread: RotaryEmbedding with its table given, and GroupQueryAttention.
#include <onnxruntime_cxx_api.h>

#include "onnx_model.hpp"
#include "support/measure.hpp"

#include <string>

namespace {

using bench::onnx_type;

Ort::Session session(const std::string& model) {
  static const Ort::Env environment(ORT_LOGGING_LEVEL_ERROR, "posenc");
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(1);
  return {environment, model.data(), model.size(), options};
}

template <class T>
Ort::Value tensor(std::vector<T>& values, const std::vector<std::int64_t>& extents) {
  static const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  return Ort::Value::CreateTensor<T>(memory, values.data(), values.size(), extents.data(), extents.size());
}

void rope(benchmark::State& state, bool interleaved) {
  constexpr std::int64_t heads = 32, dim = 128, length = 4096;
  const std::int64_t tokens = state.range(0);
  const std::vector<std::int64_t> extents{1, heads, tokens, dim};
  const auto rows = [](const char* name, unsigned seed) {
    return bench::onnx_matrix{name, length, dim / 2, bench::normal<float>(length * dim / 2, seed)};
  };
  Ort::Session run =
      session(bench::onnx_model("RotaryEmbedding", {"x", "at", "cos", "sin"}, {{"interleaved", interleaved}},
                                {{"x", onnx_type::float32, extents}, {"at", onnx_type::int64, {1, tokens}}},
                                {{"y", onnx_type::float32, extents}}, {rows("cos", 1), rows("sin", 2)}));
  auto x = bench::normal<float>(static_cast<std::size_t>(tokens * heads * dim));
  std::vector<float> y(x.size());
  std::vector<std::int64_t> at;
  for (std::int64_t i = 0; i < tokens; ++i) at.push_back(1000 + i);
  Ort::IoBinding binding(run);
  binding.BindInput("x", tensor(x, extents));
  binding.BindInput("at", tensor(at, {1, tokens}));
  binding.BindOutput("y", tensor(y, extents));
  for (auto _ : state) run.Run(Ort::RunOptions{nullptr}, binding);
  bench::per_element(state, tokens * heads * dim);
}
BENCHMARK_CAPTURE(rope, half_split, false)
    ->Name("encoders/rope_table/half_split/float")
    ->Arg(1)
    ->Arg(16)
    ->Arg(512)
    ->Arg(2048);
BENCHMARK_CAPTURE(rope, interleaved, true)
    ->Name("encoders/rope_table/interleaved/float")
    ->Arg(1)
    ->Arg(16)
    ->Arg(512)
    ->Arg(2048);

void attention(benchmark::State& state) {
  constexpr std::int64_t heads = 8;
  const std::int64_t n = state.range(0), dim = state.range(1);
  const std::vector<std::int64_t> rows{1, n, heads * dim}, cache{1, heads, n, dim}, one{1};
  Ort::Session run = session(bench::onnx_model(
      "GroupQueryAttention", {"q", "k", "v", "", "", "last", "total"}, {{"num_heads", heads}, {"kv_num_heads", heads}},
      {{"q", onnx_type::float32, rows},
       {"k", onnx_type::float32, rows},
       {"v", onnx_type::float32, rows},
       {"last", onnx_type::int32, one},
       {"total", onnx_type::int32, one}},
      {{"y", onnx_type::float32, rows}, {"keys", onnx_type::float32, cache}, {"values", onnx_type::float32, cache}}));
  const auto size = static_cast<std::size_t>(n * heads * dim);
  auto q = bench::normal<float>(size, 1), k = bench::normal<float>(size, 2), v = bench::normal<float>(size, 3);
  std::vector<float> y(size), keys(size), values(size);
  std::vector<std::int32_t> last{static_cast<std::int32_t>(n - 1)}, total{static_cast<std::int32_t>(n)};
  Ort::IoBinding binding(run);
  binding.BindInput("q", tensor(q, rows));
  binding.BindInput("k", tensor(k, rows));
  binding.BindInput("v", tensor(v, rows));
  binding.BindInput("last", tensor(last, one));
  binding.BindInput("total", tensor(total, one));
  binding.BindOutput("y", tensor(y, rows));
  binding.BindOutput("keys", tensor(keys, cache));
  binding.BindOutput("values", tensor(values, cache));
  for (auto _ : state) run.Run(Ort::RunOptions{nullptr}, binding);
  bench::flops(state, 4.0 * heads * static_cast<double>(dim) * static_cast<double>(n * (n + 1)) / 2);
}
BENCHMARK(attention)
    ->Name("attention/prefill/none/8_heads")
    ->Args({512, 64})
    ->Args({512, 128})
    ->Args({2048, 64})
    ->Args({2048, 128})
    ->Unit(benchmark::kMillisecond);

}  // namespace
