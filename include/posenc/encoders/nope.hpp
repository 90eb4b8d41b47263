// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// No positional encoding (Kazemnejad et al. 2023): no hook at all. A causal mask alone tells positions apart from the
/// second layer on; without a mask attention commutes with every permutation of the tokens.
/// Who uses it  every fourth layer of Llama 4 and SmolLM3, the full-attention layers of Cohere 2.
/// Also here: the free function `rotate`, which turns x by any encoder that rotates and leaves it alone, bit for bit,
/// for any other. Encoders that turn queries and keys differently (xpos) are refused.

#include <posenc/core/positions.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>

namespace posenc {

struct nope {
  static constexpr encoder_traits traits{.name = "nope",
                                         .site = site::none,
                                         .relation = relation::none,
                                         .origin = origin::designed,
                                         .translation_invariant = true,
                                         .symmetric = true};
  [[nodiscard]] static encoder_description describe() noexcept { return {.monotone = true}; }
};

/// `encoder.rotate(x, at)` where the encoder rotates; nothing otherwise.
template <class Encoder, class U>
void rotate(const Encoder& encoder, view<U> x, const positions& at = {}) {
  if constexpr (requires { encoder.rotate(x, at); }) {
    encoder.rotate(x, at);
  } else {
    static_assert(
        !requires { encoder.rotate_keys(x, at); },
        "posenc::rotate: this encoder turns queries and keys differently; call rotate_queries or rotate_keys");
  }
}

}  // namespace posenc
