// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// One token of 32 heads x 128 channels, and a row of 64 pairs.
#include <posenc/encoders/rope_table.hpp>

#include "counts.hpp"

void counts::rotation() {
  const posenc::shape s{.tokens = 1, .heads = 32, .dim = 128};
  for (const posenc::rope_layout layout : {posenc::half_split, posenc::interleaved}) {
    const posenc::rope<float> encoder{{.head_dim = s.dim, .layout = layout}};
    const posenc::rope_table<float> table(encoder, 0, 8);
    auto x = numbers(s.elements());
    const posenc::view v{x.data(), s};
    count(layout == posenc::half_split ? "rotation_half_split" : "rotation_interleaved", s.elements(),
          [&] { table.rotate(v, posenc::positions::from(5)); });
  }
  const posenc::rope<float> encoder{{.head_dim = s.dim}};
  float cos[64], sin[64];
  count("table_row", 64, [&] { encoder.cos_sin(123456, cos, sin); });
  if (cos[0] == sin[0]) std::printf("\n");  // the row is used
}
