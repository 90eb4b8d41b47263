// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Prefill with position terms that are products with the queries or keys; the products of the tables count as no work,
// so that the ratio of gflops to `none` is that of the times. R of transformer_xl is projected beforehand.
#include <posenc/attention/masks.hpp>
#include <posenc/encoders/deberta.hpp>
#include <posenc/encoders/shaw.hpp>
#include <posenc/encoders/transformer_xl.hpp>

#include "support/prefill.hpp"

namespace {

std::vector<float> rows(std::int64_t n) { return bench::normal<float>(static_cast<std::size_t>(n), 7); }

[[maybe_unused]] const bool registered = [] {
  constexpr std::int64_t heads = bench::prefill_case::heads;
  const auto add = [](const char* name, const auto& part) {
    bench::add_prefill(
        name, {{2048, 64}, {2048, 128}},
        [part](std::int64_t n, std::int64_t dim) { return posenc::compose(part(n, dim), posenc::causal{}); },
        bench::causal_pairs);
  };
  add("shaw", [](std::int64_t, std::int64_t dim) {
    return posenc::shaw<float>({.head_dim = dim}, rows(33 * dim), rows(33 * dim));
  });
  add("deberta", [](std::int64_t, std::int64_t dim) {
    return posenc::deberta<float>({.heads = heads, .head_dim = dim}, rows(heads * 512 * dim), rows(heads * 512 * dim));
  });
  add("transformer_xl", [](std::int64_t n, std::int64_t dim) {
    return posenc::transformer_xl<float>::from_rows({.heads = heads, .head_dim = dim, .past = n - 1}, rows(heads * dim),
                                                    rows(heads * dim), rows(heads * n * dim));
  });
  return true;
}();

}  // namespace
