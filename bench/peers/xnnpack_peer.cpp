// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The rope operator of XNNPACK on one thread: half_split, table given, out of place.
#include <xnnpack.h>

#include "support/measure.hpp"

namespace {

void rope(benchmark::State& state) {
  constexpr std::size_t heads = 32, dim = 128;
  const auto tokens = static_cast<std::size_t>(state.range(0));
  // The operator reads past its arrays, by less than 64 numbers.
  const auto x = bench::normal<float>(tokens * heads * dim + 64);
  const auto rows = bench::normal<float>(tokens * dim + 64, 2);
  std::vector<float> y(x.size());
  xnn_operator_t op = nullptr;
  if (xnn_initialize(nullptr) != xnn_status_success || xnn_create_rope_nthc_f32(0, &op) != xnn_status_success ||
      xnn_reshape_rope_nthc_f32(op, 1, tokens, heads, dim, nullptr) != xnn_status_success ||
      xnn_setup_rope_nthc_f32(op, x.data(), rows.data(), y.data()) != xnn_status_success) {
    state.SkipWithError("the operator refuses the shape");
    return;
  }
  for (auto _ : state) {
    xnn_run_operator(op, nullptr);
    bench::touch(y.data());
  }
  xnn_delete_operator(op);
  bench::per_element(state, static_cast<std::int64_t>(tokens * heads * dim));
}
BENCHMARK(rope)->Name("encoders/rope_table/half_split/float")->Arg(1)->Arg(16)->Arg(512)->Arg(2048);

}  // namespace
