// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Options of RoPE and what follows from them: the rotated block, the frequencies in 64-bit turns, the magnitude.

#include <posenc/core/error.hpp>
#include <posenc/math/angle.hpp>
#include <posenc/math/frequencies.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace posenc {

/// Which channels form pair i of a block of r rotated channels.
enum class rope_layout {
  /// (i, i + r/2): GPT-NeoX, and Llama, Qwen, Gemma, Phi as Hugging Face stores them.
  half_split,
  /// (2i, 2i + 1): RoFormer, GPT-J, Meta's Llama weights, GLM, Cohere, DeepSeek.
  interleaved
};
using enum rope_layout;

/// How angles are formed.
enum class angle_mode {
  /// Exactly, in 64-bit turns; right at every position.
  exact,
  /// As models run in float32 form them: base^(2i/r) and its reciprocal in float, times the position in float.
  float32,
  /// The exact frequencies rounded to float, times the position in float.
  float32_rounded_inv_freq
};

/// No change to the frequencies.
struct no_scaling {};

/// Position interpolation (Chen et al. 2023): every frequency divided by `factor`.
struct linear {
  double factor = 1;
};

using rope_scaling = std::variant<no_scaling, linear>;

struct rope_options {
  /// Channels of a head.
  std::int64_t head_dim = 0;
  /// Rotated channels; absent: int(head_dim * partial_rotary_factor), truncated as Hugging Face and vLLM do.
  std::optional<std::int64_t> rotary_dim{};
  double partial_rotary_factor = 1;
  /// First rotated channel (0: leading block; head_dim - rotary_dim: trailing block).
  std::int64_t offset = 0;
  double base = 10000;
  rope_layout layout = half_split;
  rope_scaling scaling{};
  /// Frequencies given outright, one per pair, instead of base^(-2i/rotary_dim); scaling still applies.
  std::vector<double> inv_freq{};
  /// Magnitude multiplied onto cos and sin.
  double attention_factor = 1;
  angle_mode angles = angle_mode::exact;
};

namespace detail {

/// rotary_dim after the rules of the options. @throws std::invalid_argument
[[nodiscard]] inline std::int64_t checked_rotary_dim(const rope_options& o) {
  require(o.head_dim >= 1, "rope", "head_dim", "must be at least 1", o.head_dim);
  require(o.partial_rotary_factor > 0 && o.partial_rotary_factor <= 1, "rope", "partial_rotary_factor",
          "must lie in (0, 1]", o.partial_rotary_factor);
  const std::int64_t r =
      o.rotary_dim.value_or(static_cast<std::int64_t>(static_cast<double>(o.head_dim) * o.partial_rotary_factor));
  require(r >= 2 && r % 2 == 0, "rope", "rotary_dim", "must be even and at least 2", r);
  require(o.offset >= 0, "rope", "offset", "must not be negative", o.offset);
  require(o.offset <= o.head_dim - r, "rope", "offset + rotary_dim", "must not exceed head_dim", o.offset + r);
  require(std::isfinite(o.base) && o.base > 0 && o.base != 1, "rope", "base", "must be positive, finite and not 1",
          o.base);
  require(std::isfinite(o.attention_factor) && o.attention_factor > 0, "rope", "attention_factor",
          "must be positive and finite", o.attention_factor);
  require(o.inv_freq.empty() || static_cast<std::int64_t>(o.inv_freq.size()) == r / 2, "rope", "inv_freq",
          "must list one frequency per pair (rotary_dim / 2)", o.inv_freq.size());
  for (const double f : o.inv_freq) require(std::isfinite(f), "rope", "inv_freq", "must be finite", f);
  if (const auto* l = std::get_if<linear>(&o.scaling))
    require(std::isfinite(l->factor) && l->factor > 0, "rope", "scaling.factor", "must be positive and finite",
            l->factor);
  return r;
}

/// inv_freq of every pair to 106 bits, scaling applied.
[[nodiscard]] inline std::vector<math::double_double> rope_frequencies(const rope_options& o, std::int64_t rotary_dim) {
  const std::int64_t pairs = rotary_dim / 2;
  auto f = o.inv_freq.empty() ? math::ladder(o.base, pairs, static_cast<double>(pairs)) : math::exact(o.inv_freq);
  if (const auto* l = std::get_if<linear>(&o.scaling)) math::divide(f, l->factor);
  return f;
}

/// inv_freq as float32 models hold them.
[[nodiscard]] inline std::vector<float> rope_float32_frequencies(const rope_options& o, std::int64_t rotary_dim) {
  std::vector<float> f;
  if (o.angles == angle_mode::float32 && o.inv_freq.empty()) {
    f = math::float32_ladder(static_cast<float>(o.base), rotary_dim);
    if (const auto* l = std::get_if<linear>(&o.scaling))
      for (float& x : f) x /= static_cast<float>(l->factor);
  } else {
    for (const auto& x : rope_frequencies(o, rotary_dim)) f.push_back(static_cast<float>(static_cast<double>(x)));
  }
  return f;
}

}  // namespace detail
}  // namespace posenc
