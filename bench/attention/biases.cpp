// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Prefill under biases of the distance; `none` of the same size is their floor.
#include <posenc/attention/masks.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/kerple.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/toeplitz.hpp>

#include "support/prefill.hpp"

namespace {

[[maybe_unused]] const bool registered = [] {
  using posenc::causal;
  using posenc::compose;
  constexpr std::int64_t heads = bench::prefill_case::heads;
  const auto add = [](const char* name, const auto& policy) {
    bench::add_prefill(name, {{512, 64}, {512, 128}, {2048, 64}, {2048, 128}}, policy, bench::causal_pairs);
  };
  add("alibi", [](std::int64_t, std::int64_t) { return compose(posenc::alibi<float>{heads}, causal{}); });
  add("relative_bucket", [](std::int64_t, std::int64_t) {
    return compose(
        posenc::relative_bucket<float>({.heads = heads, .bidirectional = false}, bench::normal<float>(32 * heads)),
        causal{});
  });
  add("kerple", [](std::int64_t, std::int64_t) {
    const std::vector<float> halves(heads, 0.5f);
    return compose(posenc::kerple<float>({.scale = halves, .shape = halves}), causal{});
  });
  add("toeplitz", [](std::int64_t n, std::int64_t) {
    const auto line = bench::normal<float>(static_cast<std::size_t>(heads * (2 * n - 1)));
    return compose(posenc::toeplitz<float>(heads, n - 1, line), causal{});
  });
  return true;
}();

}  // namespace
