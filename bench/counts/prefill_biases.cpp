// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/kerple.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/toeplitz.hpp>

#include "prefill.hpp"

void counts::prefill_biases() {
  using posenc::causal;
  using posenc::compose;
  prefill("prefill_none", compose(causal{}));
  prefill("prefill_alibi", compose(posenc::alibi<float>(std::vector<float>{0.25f}), causal{}));
  prefill("prefill_relative_bucket",
          compose(posenc::relative_bucket<float>({.heads = 1, .bidirectional = false}, numbers(32)), causal{}));
  prefill("prefill_toeplitz", compose(posenc::toeplitz<float>(1, tokens - 1, numbers(2 * tokens - 1)), causal{}));
  prefill("prefill_kerple", compose(posenc::kerple<float>({.scale = {0.5f}, .shape = {0.5f}}), causal{}));
}
