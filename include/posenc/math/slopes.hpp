// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The slopes of ALiBi (Press et al. 2022), in double. What the exponent loses by rounding is put back to first order:
/// exp2 alone would be off by up to 6 ulp where the exponent is a third or a seventh.

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace posenc {

/// paper: the rule of the published code (BLOOM, MPT, llama.cpp, CTranslate2): the slopes of the largest power of two
/// p <= heads, 2^(-m (h+1) / p), then 2^(-(m/2) (2 (h-p) + 1) / p) for the heads beyond it, never sorted.
/// geometric: 2^(-m (h+1) / heads) for every head count (attention-gym and hand-written ports).
enum class slope_rule { paper, geometric };

namespace math {

/// One slope per head, m = bias_max. Domain: heads >= 1, finite m. Error: 1 ulp of double.
[[nodiscard]] inline std::vector<double> alibi_slopes(std::int64_t heads, slope_rule rule, double bias_max) {
  std::vector<double> out(static_cast<std::size_t>(heads));
  const auto p = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  for (std::int64_t h = 0; h < heads; ++h) {
    const double numerator =
        rule == slope_rule::geometric || h < p ? static_cast<double>(h + 1) : static_cast<double>(2 * (h - p) + 1) / 2;
    const auto denominator = static_cast<double>(rule == slope_rule::geometric ? heads : p);
    const double product = bias_max * numerator;
    const double exponent = product / denominator;
    const double lost = std::fma(-exponent, denominator, product) + std::fma(bias_max, numerator, -product);
    const double slope = std::exp2(-exponent);
    constexpr double log_of_2 = 0x1.62e42fefa39efp-1;
    out[static_cast<std::size_t>(h)] = std::fma(-slope, log_of_2 * lost / denominator, slope);
  }
  return out;
}

}  // namespace math
}  // namespace posenc
