// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The free `rotate` knows no queries and keys, so an encoder that turns them differently is refused.
// CASE 1: posenc::rotate: this encoder turns queries and keys differently
// CASE 2: posenc::rotate: a part turns queries and keys differently
#include <posenc/attention/compose.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/xpos.hpp>

void turn(const posenc::xpos<float>& encoder, const posenc::nope& none, posenc::view<float> x) {
  posenc::rotate(none, x);
#if CASE == 1
  posenc::rotate(encoder, x);
#elif CASE == 2
  posenc::rotate(posenc::compose(none, encoder), x);
#else
  encoder.rotate_keys(x);
#endif
}
