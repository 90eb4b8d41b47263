// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Rotations and sinusoids written down from their formulas. It includes no header of the library and shares no line
/// with it; attention and the biases are in dense_attention.hpp.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>

namespace oracle {

using index = std::int64_t;

/// base^(-i / denominator); 1 where the denominator is 0.
inline long double frequency(double base, index i, double denominator) {
  if (denominator == 0) return 1;
  return std::pow(static_cast<long double>(base), -static_cast<long double>(i) / static_cast<long double>(denominator));
}

/// cos and sin of position * frequency, reduced by whole turns in long double: good to 1e-15 for positions up to 10^3,
/// 1e-13 up to 10^5.
struct turn {
  double cos;
  double sin;
};
inline turn turn_by(double position, long double f) {
  const long double angle = static_cast<long double>(position) * f;
  const long double reduced = std::remainder(angle, 2 * std::numbers::pi_v<long double>);
  return {static_cast<double>(std::cos(reduced)), static_cast<double>(std::sin(reduced))};
}

/// RoPE on one head of channels, in place: pairs of the block offset .. offset + rotary_dim - 1 turned by
/// position * base^(-2i / rotary_dim) / factor and multiplied by the magnitude.
struct rope_rule {
  index rotary_dim = 0;
  index offset = 0;
  double base = 10000;
  bool interleaved = false;
  double factor = 1;
  double magnitude = 1;
};
template <class T>
void rope(T* x, const rope_rule& r, double position) {
  const index half = r.rotary_dim / 2;
  for (index i = 0; i < half; ++i) {
    const turn t =
        turn_by(position, frequency(r.base, i, static_cast<double>(half)) / static_cast<long double>(r.factor));
    T& first = x[r.offset + (r.interleaved ? 2 * i : i)];
    T& second = x[r.offset + (r.interleaved ? 2 * i + 1 : i + half)];
    const double a = static_cast<double>(first);
    const double b = static_cast<double>(second);
    first = static_cast<T>(r.magnitude * (a * t.cos - b * t.sin));
    second = static_cast<T>(r.magnitude * (a * t.sin + b * t.cos));
  }
}

}  // namespace oracle
