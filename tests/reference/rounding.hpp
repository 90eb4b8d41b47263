// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Binary floating-point formats by their definition: decoding by powers of two, encoding by integer division with ties
/// to even. Slow and obvious.

#include <cmath>
#include <cstdint>

namespace reference {

struct small_format {
  int exponent_bits;
  int fraction_bits;
};
inline constexpr small_format binary16{5, 10};
inline constexpr small_format bfloat16{8, 7};

/// The value of a 16-bit pattern.
[[nodiscard]] inline double decode(small_format f, std::uint16_t bits) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int exponent = (bits >> f.fraction_bits) & ((1 << f.exponent_bits) - 1);
  const int fraction = bits & ((1 << f.fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << f.exponent_bits) - 1) return fraction ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - f.fraction_bits);
  return sign * std::ldexp(fraction + (1 << f.fraction_bits), exponent - bias - f.fraction_bits);
}

/// The nearest pattern, ties to even, in one rounding; value must not be NaN.
[[nodiscard]] inline std::uint16_t encode(small_format f, double value) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const auto infinity = static_cast<std::uint16_t>(sign | (((1 << f.exponent_bits) - 1) << f.fraction_bits));
  if (std::isinf(value)) return infinity;
  if (value == 0) return sign;
  int e = 0;
  const auto integer = static_cast<std::uint64_t>(std::ldexp(std::frexp(std::fabs(value), &e), 53));
  const int exponent = e - 1;  // |value| = integer * 2^(exponent - 52), 2^52 <= integer < 2^53
  const int lowest = 1 - bias;
  const int kept = (exponent < lowest ? lowest : exponent) - f.fraction_bits;  // the result counts steps of 2^kept
  const int drop = kept - (exponent - 52);
  if (drop > 60) return sign;
  const std::uint64_t unit = std::uint64_t{1} << drop;
  std::uint64_t steps = integer / unit;
  const std::uint64_t rest = integer % unit;
  if (rest > unit / 2 || (rest == unit / 2 && steps % 2 == 1)) ++steps;
  // A carry out of the fraction moves into the exponent by itself: patterns are ordered like values.
  const std::uint64_t pattern =
      exponent < lowest ? steps : steps + (static_cast<std::uint64_t>(exponent + bias - 1) << f.fraction_bits);
  return pattern >= (infinity & 0x7fffu) ? infinity : static_cast<std::uint16_t>(sign | pattern);
}

}  // namespace reference
