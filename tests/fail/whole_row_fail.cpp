// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// A part that needs whole rows of logits is refused where there are none, by the name of what has them.
// CASE 1: posenc::attention: a part of the policy needs whole rows of logits; call attention_two_pass
// CASE 2: only attention_two_pass and attention_reference have them
#include <posenc/attention/attention.hpp>
#include <posenc/attention/bias.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/two_pass.hpp>
#include <posenc/encoders/cope.hpp>

using namespace posenc;

void use(const cope<float>& encoder, view<float> q, view<float> out, std::vector<float>& bias) {
#if CASE == 1
  attention(q, q, q, out, compose(encoder, causal{}));
#elif CASE == 2
  fill_bias<float>(encoder, 1, {}, 4, {}, 4, bias);
#else
  attention_two_pass(q, q, q, out, compose(encoder, causal{}));
#endif
  static_cast<void>(bias);
}
