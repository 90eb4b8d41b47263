// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Frequency ladders: inv_freq(i) = base^(-i * step / denominator), to 106 bits.

#include <posenc/math/double_double.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace posenc::math {

/// base^(-i / denominator) for i = 0 .. count-1; a denominator of 0 (one rung) gives 1.
/// RoPE: count = rotary_dim / 2, denominator = rotary_dim / 2, so that rung i is base^(-2i / rotary_dim).
/// Cost: one dd exp per rung, about 1 us. Domain: base > 0.
[[nodiscard]] inline std::vector<double_double> ladder(double_double base, std::int64_t count, double denominator) {
  std::vector<double_double> out(static_cast<std::size_t>(count), double_double(1));
  if (denominator == 0) return out;
  const double_double log_base = log(base);
  for (std::int64_t i = 1; i < count; ++i)
    out[static_cast<std::size_t>(i)] =
        exp(-(log_base * double_double(static_cast<double>(i)) / double_double(denominator)));
  return out;
}

/// A list of doubles taken as exact frequencies.
[[nodiscard]] inline std::vector<double_double> exact(std::span<const double> inv_freq) {
  return {inv_freq.begin(), inv_freq.end()};
}

/// Every frequency divided by a factor (position interpolation).
inline void divide(std::span<double_double> inv_freq, double factor) noexcept {
  for (double_double& f : inv_freq) f = f / double_double(factor);
}

/// base^(numerator / denominator) as models that run in float32 form it: the exponent and the power each rounded to
/// float. The power is formed in double, which is its correct rounding but for rare double rounding.
[[nodiscard]] inline float float32_power(float base, std::int64_t numerator, std::int64_t denominator) {
  const float exponent = static_cast<float>(numerator) / static_cast<float>(denominator);
  return static_cast<float>(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
}

/// The float32 frequencies of the models that were trained with them: exponent 2i / rotary_dim, pow and reciprocal each
/// rounded to float.
[[nodiscard]] inline std::vector<float> float32_ladder(float base, std::int64_t rotary_dim) {
  std::vector<float> out(static_cast<std::size_t>(rotary_dim / 2));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = 1.0f / float32_power(base, 2 * static_cast<std::int64_t>(i), rotary_dim);
  return out;
}

}  // namespace posenc::math
