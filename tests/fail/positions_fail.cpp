// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// F37: what is encoded is never taken for the places it is encoded at.
// CASE 1: (no matching (member )?function|could not convert|cannot convert)
// CASE 2: (no matching (member )?function|could not convert|cannot convert)
// CASE 3: (no matching (member )?function|could not convert|cannot convert)
// CASE 4: (no matching (member )?function|could not convert|cannot convert)
// CASE 5: (no matching (member )?function|could not convert|cannot convert|conversion from)
// CASE 6: (no matching (member )?function|could not convert|cannot convert)
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include <vector>

using namespace posenc;

void use(const sinusoidal<float>& encoder, const rope<float>& turner, view<float> x, view<float> features,
         const std::vector<float>& numbers, const std::vector<std::int64_t>& ids) {
#if CASE == 1
  encoder.embed(x, features);
#elif CASE == 2
  turner.rotate(x, features);
#elif CASE == 3
  encoder.embed(x, positions::listed(numbers));
#elif CASE == 4
  turner.rotate(x, 5);
#elif CASE == 5
  const real_positions at = std::vector<double>(7);
  encoder.embed(x, at);
#elif CASE == 6
  encoder.embed(features, x, positions::listed(ids));
#else
  encoder.embed(x, positions::listed(ids));
  turner.rotate(x, positions::from(5));
#endif
  static_cast<void>(features);
  static_cast<void>(numbers);
}
