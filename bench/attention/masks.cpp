// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Prefill under masks, per visible pair, and under a softcap; `none` of the same size is their floor.
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>

#include "support/prefill.hpp"

namespace {

[[maybe_unused]] const bool registered = [] {
  using bench::add_prefill;
  using bench::causal_pairs;
  const auto window = [](std::int64_t w) {
    return [w](std::int64_t, std::int64_t) { return posenc::compose(posenc::sliding_window{w}); };
  };
  const auto in_window = [](std::int64_t w) { return [w](std::int64_t n) { return bench::window_pairs(n, w); }; };
  add_prefill("window_256", {{4096, 64}, {4096, 128}}, window(256), in_window(256));
  add_prefill("window_1024", {{2048, 64}, {2048, 128}}, window(1024), in_window(1024));
  add_prefill(
      "prefix_512", {{2048, 64}, {2048, 128}},
      [](std::int64_t, std::int64_t) { return posenc::compose(posenc::prefix_lm{512}); },
      [](std::int64_t n) { return causal_pairs(n) + causal_pairs(511); });
  add_prefill(
      "softcap", {{512, 64}, {512, 128}, {2048, 64}, {2048, 128}},
      [](std::int64_t, std::int64_t) { return posenc::compose(posenc::softcap{50}, posenc::causal{}); }, causal_pairs);
  return true;
}();

}  // namespace
