// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The CPU backend of ggml on one thread: rotation with the angles formed inside the call, and flash attention.
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include "support/measure.hpp"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>

namespace {

ggml_backend_t backend() {
  static ggml_backend_t cpu = [] {
    ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    ggml_backend_load_all();
    ggml_backend_t b = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr);
    if (!b) std::abort();
    const ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(b));
    const auto threads = reinterpret_cast<void (*)(ggml_backend_t, int)>(
        ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads"));
    threads(b, 1);
    return b;
  }();
  return cpu;
}

void fill(ggml_tensor* t, unsigned seed) {
  const auto x = bench::normal<float>(static_cast<std::size_t>(ggml_nelements(t)), seed);
  if (t->type == GGML_TYPE_F32) {
    std::copy(x.begin(), x.end(), static_cast<float*>(t->data));
  } else {
    ggml_fp32_to_fp16_row(x.data(), static_cast<ggml_fp16_t*>(t->data), ggml_nelements(t));
  }
}

/// Times the graph of the tensor that `make` gives; `ready` fills its inputs.
void run(benchmark::State& state, const std::function<ggml_tensor*(ggml_context*)>& make,
         const std::function<void()>& ready) {
  ggml_context* context = ggml_init({ggml_tensor_overhead() * 32 + ggml_graph_overhead(), nullptr, true});
  ggml_tensor* out = make(context);
  ggml_cgraph* graph = ggml_new_graph(context);
  ggml_build_forward_expand(graph, out);
  ggml_backend_buffer_t memory = ggml_backend_alloc_ctx_tensors(context, backend());
  ready();
  for (auto _ : state) ggml_backend_graph_compute(backend(), graph);
  ggml_backend_buffer_free(memory);
  ggml_free(context);
}

void rope(benchmark::State& state, int mode, ggml_type type) {
  constexpr std::int64_t heads = 32, dim = 128;
  const std::int64_t tokens = state.range(0);
  ggml_tensor *x = nullptr, *at = nullptr;
  run(
      state,
      [&](ggml_context* c) {
        x = ggml_new_tensor_3d(c, type, dim, heads, tokens);
        at = ggml_new_tensor_1d(c, GGML_TYPE_I32, tokens);
        return ggml_rope_ext_inplace(c, x, at, nullptr, dim, mode, 4096, 1e4f, 1, 0, 1, 32, 1);
      },
      [&] {
        fill(x, 1);
        for (int i = 0; i < tokens; ++i) static_cast<std::int32_t*>(at->data)[i] = 1000 + i;
      });
  bench::per_element(state, tokens * heads * dim);
}

struct attention_case {
  std::int64_t heads, kv_heads, queries, keys, dim;
  ggml_type storage;
  float max_bias;
};

void attention(benchmark::State& state, const attention_case& a) {
  ggml_tensor *q = nullptr, *k = nullptr, *v = nullptr, *mask = nullptr;
  run(
      state,
      [&](ggml_context* c) {
        q = ggml_new_tensor_3d(c, GGML_TYPE_F32, a.dim, a.queries, a.heads);
        k = ggml_new_tensor_3d(c, a.storage, a.dim, a.keys, a.kv_heads);
        v = ggml_new_tensor_3d(c, a.storage, a.dim, a.keys, a.kv_heads);
        mask = ggml_new_tensor_2d(c, GGML_TYPE_F16, a.keys, a.queries);
        return ggml_flash_attn_ext(c, q, k, v, mask, 1 / std::sqrt(static_cast<float>(a.dim)), a.max_bias, 0);
      },
      [&] {
        fill(q, 1), fill(k, 2), fill(v, 3);
        auto* m = static_cast<ggml_fp16_t*>(mask->data);
        const std::int64_t past = a.keys - a.queries;
        for (std::int64_t i = 0; i < a.queries; ++i)
          for (std::int64_t j = 0; j < a.keys; ++j) {
            const float bias = a.max_bias > 0 ? -static_cast<float>(past + i - j) : 0.0f;
            m[i * a.keys + j] = ggml_fp32_to_fp16(j > past + i ? -std::numeric_limits<float>::infinity() : bias);
          }
      });
  const double pairs = a.queries == 1 ? static_cast<double>(a.keys)
                                      : static_cast<double>(a.queries) * static_cast<double>(a.queries + 1) / 2;
  bench::flops(state, 4.0 * static_cast<double>(a.heads * a.dim) * pairs);
  if (a.queries == 1)
    bench::bytes(
        state, 2.0 * static_cast<double>(a.keys * a.kv_heads * a.dim) * static_cast<double>(ggml_type_size(a.storage)));
}

[[maybe_unused]] const bool registered = [] {
  const std::pair<ggml_type, std::string> storages[] = {{GGML_TYPE_F32, "float"}, {GGML_TYPE_F16, "half"}};
  for (const auto& [type, storage] : storages)
    for (const int mode : {0, GGML_ROPE_TYPE_NEOX})
      for (const std::int64_t tokens : {1, 16, 512, 2048})
        benchmark::RegisterBenchmark(
            ("encoders/rope/" + std::string(mode == 0 ? "interleaved/" : "half_split/") + storage).c_str(), rope, mode,
            type)
            ->Arg(tokens);
  for (const auto& [policy, max_bias] : {std::pair{std::string("none"), 0.0f}, {std::string("alibi"), 8.0f}}) {
    for (const std::int64_t n : {512, 2048})
      for (const std::int64_t dim : {64, 128})
        benchmark::RegisterBenchmark(
            ("attention/prefill/" + policy + "/8_heads/" + std::to_string(n) + "/" + std::to_string(dim)).c_str(),
            attention, attention_case{8, 8, n, n, dim, GGML_TYPE_F32, max_bias})
            ->Unit(benchmark::kMillisecond);
  }
  for (const auto& [type, storage] : storages)
    for (const std::int64_t kv_heads : {8, 32})
      benchmark::RegisterBenchmark(("attention/decode/none/32_heads/" + std::to_string(kv_heads) +
                                    "_kv_heads/4096/128/" + storage + "/head_major")
                                       .c_str(),
                                   attention, attention_case{32, kv_heads, 1, 4096, 128, type, 0})
          ->Unit(benchmark::kMillisecond);
  return true;
}();

}  // namespace
