// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// A policy that contradicts itself does not compile, and says why.
// CASE 1: posenc::compose: prefix_lm already holds the causal rule
// CASE 2: posenc::compose: prefix_lm already holds the causal rule
// CASE 3: posenc::compose: too many interval masks in one policy
// CASE 4: posenc::compose: at most one sink per policy
#include <posenc/attention/compose.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>

using namespace posenc;

auto make() {
#if CASE == 1
  return compose(causal{}, prefix_lm{4});
#elif CASE == 2
  return compose(compose(prefix_lm{4}, softcap{30}), causal{});
#elif CASE == 3
  const chunked m{8};
  return compose(m, m, m, m, m, m, m, m, m, m, m, m);
#else
  return compose(prefix_lm{4}, sliding_window{8}, chunked{8});
#endif
}

#if CASE == 4
bool has() { return detail::pack_has_sink<std::tuple<sinks<float>, causal, sinks<float>>>(); }
#else
bool has() { return detail::pack_has_sink<std::tuple<sinks<float>, causal>>(); }
#endif
