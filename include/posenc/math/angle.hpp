// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Exact angles. A frequency f is kept as the number of turns per position, f / (2 pi), in 64-bit fixed point; the
/// phase of position p is p * step modulo 2^64, where wrapping is the reduction: nothing is lost at any int64 position,
/// negative ones included, and stepping by one is one integer addition.
/// Error   the step is rounded to 2^-65 turns, so an angle is off by at most |p| * 2^-65 turns: 1.7e-10 rad at p =
///         10^9, 1.7e-13 at 10^6; plus the conversion to double, 2^-53 of a quarter turn.
/// Cost    one integer multiplication per (position, frequency), then one sine and cosine of a reduced argument.

#include <posenc/math/double_double.hpp>

#include <cmath>
#include <cstdint>

namespace posenc::math {

/// Turns per position: `fraction` in units of 2^-64 for integer positions (whole turns drop out), and the whole number
/// to 106 bits for real-valued ones.
struct turns {
  std::uint64_t fraction = 0;
  double_double whole;

  constexpr turns() = default;
  /// From an inverse frequency in radians per position.
  explicit turns(double_double inv_freq) noexcept : whole(inv_freq * inverse_two_pi) {
    const double_double wrapped = whole - double_double(std::floor(whole.hi));
    // Each part is a multiple of 2^-64 after scaling only approximately: round the sum once, low part with its sign.
    const double high = std::floor(wrapped.hi * 0x1p32);
    const double_double rest = wrapped - double_double(high * 0x1p-32);
    const auto top = static_cast<std::uint64_t>(static_cast<std::int64_t>(high)) << 32;
    fraction = top + static_cast<std::uint64_t>(std::llrint(static_cast<double>(rest) * 0x1p64));
  }
};

/// The phase of an integer position, in units of 2^-64 turns.
[[nodiscard]] constexpr std::uint64_t phase(const turns& t, std::int64_t position) noexcept {
  return t.fraction * static_cast<std::uint64_t>(position);
}

/// The phase of a real-valued position: the product is formed to 106 bits before whole turns are dropped.
/// Domain: fewer than 2^79 turns, finite, which holds for frequencies up to 2^32 at positions up to 10^15; off by
/// 2^-102 of the turns.
[[nodiscard]] inline std::uint64_t phase(const turns& t, double position) noexcept {
  const double_double product = t.whole * double_double(position);
  double_double wrapped = product - double_double(std::nearbyint(product.hi));
  wrapped = wrapped - double_double(std::nearbyint(wrapped.hi));  // beyond 2^53 turns the low part holds whole ones
  const double_double units{wrapped.hi * 0x1p63, wrapped.lo * 0x1p63};
  // |units.hi| <= 2^62 and llrint is exact there; the doubled sum wraps where it must.
  const auto high = std::llrint(units.hi);
  const auto low = std::llrint((units.hi - static_cast<double>(high)) + units.lo);
  return (static_cast<std::uint64_t>(high) + static_cast<std::uint64_t>(low)) << 1;
}

/// A phase in radians, -pi to pi, within 2 ulp.
[[nodiscard]] inline double radians(std::uint64_t phase) noexcept {
  return std::ldexp(static_cast<double>(static_cast<std::int64_t>(phase)), -64) * two_pi.hi;
}

/// cos and sin of a phase, off by at most 2^-52: the scalar form of `simd/sincos.hpp`, for any platform.
struct cos_sin_pair {
  double cos;
  double sin;
};
[[nodiscard]] inline cos_sin_pair cos_sin(std::uint64_t phase) noexcept {
  const std::uint64_t quadrant = (phase + (std::uint64_t{1} << 61)) >> 62;
  const double reduced = radians(phase - (quadrant << 62));
  const double c = std::cos(reduced);
  const double s = std::sin(reduced);
  switch (quadrant & 3) {
    case 1: return {-s, c};
    case 2: return {-c, -s};
    case 3: return {s, -c};
    default: return {c, s};
  }
}

/// The angle as models run in float32 formed it: float(position) * float(inv_freq), rounded to float. The named
/// compatibility mode: off by up to |p| * inv_freq * 2^-24 from the exact angle, bit for bit what they were trained
/// with.
[[nodiscard]] inline float float32_angle(double position, float inv_freq) noexcept {
  const volatile float product = static_cast<float>(position) * inv_freq;  // no fused or widened product
  return product;
}

}  // namespace posenc::math
