// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The heads of every rotation row, and its floor: the same bytes multiplied in place by a constant.

#include <posenc/simd/batch.hpp>

#include "measure.hpp"

namespace bench {

inline constexpr std::int64_t heads = 32;
inline constexpr std::int64_t dim = 128;

inline void scale_in_place(float* x, std::int64_t n) {
  const posenc::simd::batch<float> factor(0.9999999f);
  constexpr std::int64_t w = posenc::simd::width<float>;
  for (std::int64_t i = 0; i < n; i += 4 * w)
    for (std::int64_t j = i; j < i + 4 * w; j += w)
      (posenc::simd::batch<float>::load_unaligned(x + j) * factor).store_unaligned(x + j);
}

}  // namespace bench
