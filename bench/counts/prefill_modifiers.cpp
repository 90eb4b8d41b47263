// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/modifiers.hpp>
#include <posenc/encoders/shaw.hpp>

#include "prefill.hpp"

void counts::prefill_modifiers() {
  using posenc::causal;
  using posenc::compose;
  // The same pairs as causal, so that the cost of the mask itself shows; then half of the keys.
  prefill("prefill_window_512", compose(posenc::sliding_window{tokens}));
  prefill("prefill_window_256", compose(posenc::sliding_window{256}), causal_pairs - 256 * 257 / 2);
  prefill("prefill_softcap", compose(posenc::softcap{50}, causal{}));
  prefill("prefill_shaw", compose(posenc::shaw<float>({.head_dim = 64}, numbers(33 * 64)), causal{}));
}
