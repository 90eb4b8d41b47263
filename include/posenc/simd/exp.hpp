// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// exp and tanh on lanes.

#include <posenc/simd/batch.hpp>

namespace posenc::simd {

/// e^x.
/// Domain  x <= 88.37 (float) and x <= 709.43 (double); from there on infinity, a little early. -inf gives 0, NaN stays
///         NaN.
/// Error   at most 2 ulp (float and double) where the result is normal; below that, less than the smallest normal
///         number.
template <class T, class A>
[[nodiscard]] POSENC_ALWAYS_INLINE xsimd::batch<T, A> exp(const xsimd::batch<T, A>& x) noexcept {
  using B = xsimd::batch<T, A>;
  if constexpr (sizeof(T) == 8) {
    // Where 64-bit conversions are emulated one lane at a time, infinities and NaN may not reach them.
    const B low = xsimd::select(x > B(T(-750)), x, B(T(-750)));
    const B finite = xsimd::select(low < B(T(750)), low, B(T(750)));
    return xsimd::select(x == x, xsimd::exp(finite), x);
  } else {
    return xsimd::exp(x);
  }
}

/// tanh x.
/// Domain  every x. Error: at most 2 ulp.
template <class T, class A>
[[nodiscard]] POSENC_ALWAYS_INLINE xsimd::batch<T, A> tanh(const xsimd::batch<T, A>& x) noexcept {
  return xsimd::tanh(x);
}

}  // namespace posenc::simd
