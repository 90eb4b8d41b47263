// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// exp and tanh on lanes.

#include <posenc/simd/batch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

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

namespace detail {
/// The numbers of exp_nonpositive: ln 2 in two parts, the first so short that n times it is exact, and
/// 2 e^r = 2 + c[0] r + c[1] r^2 + ... for |r| <= ln(2) / 2.
template <class T>
struct exp_numbers;
template <>
struct exp_numbers<float> {
  using bits = std::uint32_t;
  static constexpr int mantissa_bits = 23;
  /// A number below 2^22 in size plus this has n + 126 in its lowest bits.
  static constexpr float rounder = 0x1.8p23f + 126;
  /// Below the cut.
  static constexpr float lowest = -87.25f;
  static constexpr float ln2_high = 0x1.62e4p-1f;
  static constexpr float ln2_low = 0x1.7f7d1cp-20f;
  static constexpr std::array<float, 6> c{2.0f,          1.00000012f,   0.333327293f,
                                          0.0833295509f, 0.0167581178f, 0.00281228055f};
};
template <>
struct exp_numbers<double> {
  using bits = std::uint64_t;
  static constexpr int mantissa_bits = 52;
  static constexpr double rounder = 0x1.8p52 + 1022;
  static constexpr double lowest = -708.25;
  static constexpr double ln2_high = 0x1.62e42fee00000p-1;
  static constexpr double ln2_low = 0x1.a39ef35793c76p-33;
  static constexpr std::array<double, 11> c{
      2.0000000000000011176,    1.0000000000000011144,    0.33333333333314605141,    0.08333333333314727991,
      0.016666666675430803834,  0.0027777777864678619714, 0.00039682522982861429054, 0.000049603009025823403102,
      5.5128509908318072119e-6, 5.525259160235726711e-7,  4.5962578163714434934e-8};
};
}  // namespace detail

/// e^x for x <= 0: the weight of a logit minus the maximum.
/// Formula 2^(n - 1) * 2 e^r with x = n ln 2 + r, n = round(x / ln 2). A large number is added to x / ln 2, so that n
///         stands in the lowest bits of the sum, one shift away from the exponent of 2^(n - 1). Where n is -126 (float)
///         or -1022 (double) that exponent is 0, and so is the number.
/// Domain  x <= 0 with -inf; NaN stays NaN; e^0 is 1. Up to 88 (float) and 709 (double) the bound holds too.
/// Error   at most 1.5 ulp; below -125.5 ln 2 = -86.99 (float) and -1021.5 ln 2 = -708.05 (double), where e^x is less
///         than 1.5 times the smallest normal number, exactly 0: no result is subnormal.
/// Cost    a batch of float takes 13 instructions with fused multiply-add, one of double 18.
template <class T, class A>
[[nodiscard]] POSENC_ALWAYS_INLINE xsimd::batch<T, A> exp_nonpositive(const xsimd::batch<T, A>& x) noexcept {
  using B = xsimd::batch<T, A>;
  using number = detail::exp_numbers<T>;
  // xsimd::max keeps its second operand where one is NaN.
  const B held = xsimd::max(B(number::lowest), x);
  const B shifted = xsimd::fma(held, B(T(1.44269504088896340736)), B(number::rounder));
  const B n = shifted - B(number::rounder);
  const B r = xsimd::fma(n, B(-number::ln2_low), xsimd::fma(n, B(-number::ln2_high), held));
  B p(number::c.back());
  POSENC_UNROLL
  for (std::size_t i = 1; i < number::c.size(); ++i) p = xsimd::fma(p, r, B(number::c[number::c.size() - 1 - i]));
  p = xsimd::fma(p, r, B(T(2)));
  return p * bits_as<T>(bits_as<typename number::bits>(shifted) << number::mantissa_bits);
}

/// tanh x.
/// Domain  every x. Error: at most 2 ulp.
template <class T, class A>
[[nodiscard]] POSENC_ALWAYS_INLINE xsimd::batch<T, A> tanh(const xsimd::batch<T, A>& x) noexcept {
  return xsimd::tanh(x);
}

}  // namespace posenc::simd
