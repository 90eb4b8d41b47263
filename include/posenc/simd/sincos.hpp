// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Elementary functions on lanes, each with its domain and error.

#include <posenc/simd/batch.hpp>

#include <utility>

namespace posenc::simd {

/// cos and sin of phases in units of 2^-64 turns (see math/angle.hpp): the reduction is integer arithmetic, the rest
/// two polynomials on [-pi/4, pi/4].
/// Domain  every phase. Error: at most 4.5e-16 absolute. Phases 0 and multiples of a quarter turn are exact.
template <class A>
[[nodiscard]] POSENC_ALWAYS_INLINE std::pair<xsimd::batch<double, A>, xsimd::batch<double, A>> cos_sin_of_phase(
    const xsimd::batch<std::uint64_t, A>& phase) noexcept {
  using D = xsimd::batch<double, A>;
  using U = xsimd::batch<std::uint64_t, A>;
  // Move the quadrant borders to multiples of a quarter: the top two bits number the quadrant, the rest is the offset.
  const U moved = phase + U(std::uint64_t{1} << 61);
  const U offset = (moved & U((std::uint64_t{1} << 62) - 1)) >> 10;
  // 52 bits under the exponent of 2^52 are the integer itself; subtracting 2^52 + 2^51 centres it.
  const D centred = bits_as<double>(offset | U(0x4330000000000000u)) - D(0x1.8p52);
  const D x = centred * D(0x1.921fb54442d18p2 * 0x1p-54);
  const D z = x * x;
  D s = xsimd::fma(z, D(1.58969099521155010221e-10), D(-2.50507602534068634195e-08));
  s = xsimd::fma(z, s, D(2.75573137070700676789e-06));
  s = xsimd::fma(z, s, D(-1.98412698298579493134e-04));
  s = xsimd::fma(z, s, D(8.33333333332248946124e-03));
  s = xsimd::fma(z, s, D(-1.66666666666666324348e-01));
  const D sine = xsimd::fma(z * x, s, x);
  D c = xsimd::fma(z, D(-1.13596475577881948265e-11), D(2.08757232129817482790e-09));
  c = xsimd::fma(z, c, D(-2.75573143513906633035e-07));
  c = xsimd::fma(z, c, D(2.48015872894767294178e-05));
  c = xsimd::fma(z, c, D(-1.38888888888741095749e-03));
  c = xsimd::fma(z, c, D(4.16666666666666019037e-02));
  const D cosine = xsimd::fma(z * z, c, D(1.0) - D(0.5) * z);
  // Odd quadrants swap the two; the quadrant's bits are the signs.
  const U swap = U(0u) - ((moved >> 62) & U(1u));
  const U sine_bits = bits_as<std::uint64_t>(sine);
  const U cosine_bits = bits_as<std::uint64_t>(cosine);
  const U sign = U(std::uint64_t{1} << 63);
  const U cos_out = ((cosine_bits & ~swap) | (sine_bits & swap)) ^ ((moved ^ (moved << 1)) & sign);
  const U sin_out = ((sine_bits & ~swap) | (cosine_bits & swap)) ^ (moved & sign);
  return {bits_as<double>(cos_out), bits_as<double>(sin_out)};
}

/// sin and cos of an angle in radians.
/// Domain  |x| <= 8192. Error: at most 1e-7 (float) and 2.5e-16 (double) absolute there.
template <class T, class A>
[[nodiscard]] POSENC_ALWAYS_INLINE std::pair<xsimd::batch<T, A>, xsimd::batch<T, A>> sincos(
    const xsimd::batch<T, A>& x) noexcept {
  return xsimd::sincos(x);
}

}  // namespace posenc::simd
