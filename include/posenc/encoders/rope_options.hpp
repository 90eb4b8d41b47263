// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Options of RoPE and what follows from them: the rotated block, the frequencies in 64-bit turns, the magnitude.

#include <posenc/core/error.hpp>
#include <posenc/encoders/rope_axes.hpp>
#include <posenc/encoders/rope_float32.hpp>
#include <posenc/encoders/rope_frequencies.hpp>
#include <posenc/encoders/rope_scaling.hpp>
#include <posenc/math/angle.hpp>
#include <posenc/math/frequencies.hpp>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace posenc {

/// Which channels form pair i of a block of r rotated channels.
enum class rope_layout {
  /// (i, i + r/2): GPT-NeoX, and Llama, Qwen, Gemma, Phi as Hugging Face stores them.
  half_split,
  /// (2i, 2i + 1): RoFormer, GPT-J, Meta's Llama weights, GLM, Cohere, DeepSeek.
  interleaved,
  /// Reads (2i, 2i + 1), writes (i, i + r/2): DeepSeek V3 in Hugging Face. Queries and keys are permuted alike, so
  /// scores are those of `interleaved`; cached keys lie in half_split order, where shift and rerotate expect them.
  interleaved_in_half_out,
  /// Pairs (2i, 2i + 1), but channel k takes the angle of pair k mod r/2: V-JEPA 2. Not orthogonal, so there is no
  /// inverse and no shift; needed for weights trained with it.
  vjepa2_mixed,
  /// half_split within each of the blocks `axes.block_dims`: Gemma 4's vision tower.
  half_split_in_blocks
};
using enum rope_layout;

/// How angles are formed.
enum class angle_mode {
  /// Exactly, in 64-bit turns; right at every position.
  exact,
  /// As Hugging Face forms them: frequencies in float step by step, times the position in float. Frequencies given
  /// outright, rules that exist in no float32 model, and freq_factors or a multiplier of the axes under a rule other
  /// than `linear` are formed exactly and rounded.
  float32,
  /// The exact frequencies rounded to float, times the position in float.
  float32_rounded_inv_freq,
  /// As ggml forms them on the CPU: a running float product over the pairs.
  ggml_recurrence
};

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
  /// Which axis turns which pair; absent: all by the first.
  rope_axes axes{};
  /// Frequencies given outright, one per pair, instead of base^(-2i/rotary_dim). Scalings that count no rungs still
  /// apply (linear, longrope, llama3). With several sets: [frequency_heads, frequency_axes, pairs].
  std::vector<double> inv_freq{};
  /// More than 1: the angle is the sum over this many axes, each with frequencies of its own (RoPE-ViT mixed).
  int frequency_axes = 1;
  /// More than 1: every head has frequencies of its own.
  std::int64_t frequency_heads = 1;
  /// Divisors of the frequencies, one per pair, before any scaling (GGUF's rope_freqs).
  std::vector<double> freq_factors{};
  /// On cos and sin, instead of the magnitude that the scaling says.
  std::optional<double> attention_factor{};
  angle_mode angles = angle_mode::exact;
};

namespace detail {

/// Rows of interleaved_in_half_out are permuted on the stack.
inline constexpr std::int64_t permuted_rotary_dim = 512;

/// rotary_dim after the rules of the options. @throws std::invalid_argument
[[nodiscard]] inline std::int64_t checked_rotary_dim(const rope_options& o) {
  require(o.head_dim >= 1, "rope", "head_dim", "must be at least 1", o.head_dim);
  require(o.head_dim <= most_channels, "rope", "head_dim", "must not exceed 2^24", o.head_dim);
  require(o.layout >= half_split && o.layout <= half_split_in_blocks, "rope", "layout", "must be one of rope_layout",
          static_cast<int>(o.layout));
  require(o.angles >= angle_mode::exact && o.angles <= angle_mode::ggml_recurrence, "rope", "angles",
          "must be one of angle_mode", static_cast<int>(o.angles));
  require(o.partial_rotary_factor > 0 && o.partial_rotary_factor <= 1, "rope", "partial_rotary_factor",
          "must lie in (0, 1]", o.partial_rotary_factor);
  const std::int64_t r =
      o.rotary_dim.value_or(static_cast<std::int64_t>(static_cast<double>(o.head_dim) * o.partial_rotary_factor));
  require(r >= 2 && r % 2 == 0, "rope", "rotary_dim", "must be even and at least 2", r);
  require(o.offset >= 0, "rope", "offset", "must not be negative", o.offset);
  require(r <= most_channels && o.offset <= most_channels, "rope", "offset and rotary_dim", "must not exceed head_dim",
          std::max(r, o.offset));
  require(o.offset <= o.head_dim - r, "rope", "offset + rotary_dim", "must not exceed head_dim", o.offset + r);
  require(std::isfinite(o.base) && o.base > 0 && o.base != 1, "rope", "base", "must be positive, finite and not 1",
          o.base);
  require(o.layout != interleaved_in_half_out || r <= permuted_rotary_dim, "rope", "rotary_dim",
          "must not exceed 512 in the layout interleaved_in_half_out", r);
  return r;
}

inline void check_axes(const rope_options& o, std::int64_t r) {
  const std::int64_t pairs = r / 2;
  require(o.axes.pairs.empty() || static_cast<std::int64_t>(o.axes.pairs.size()) == pairs, "rope", "axes",
          "must hold one entry per pair (rotary_dim / 2)", o.axes.pairs.size());
  for (const rope_pair& p : o.axes.pairs) {
    require(p.axis >= 0 && p.axis < position::max_axes, "rope", "axes", "must name axes 0..3", p.axis);
    require(p.rungs >= 1, "rope", "axes", "must have at least one rung per ladder", p.rungs);
  }
  require(std::isfinite(o.axes.multiplier) && o.axes.multiplier > 0, "rope", "axes.multiplier",
          "must be positive and finite", o.axes.multiplier);
  if (o.layout == half_split_in_blocks) {
    for (const std::int64_t d : o.axes.block_dims) {
      require(d >= 0 && d % 2 == 0, "rope", "axes.block_dims", "must be even", d);
      require(d <= r, "rope", "axes.block_dims", "must not exceed rotary_dim", d);
    }
    const std::int64_t sum = std::accumulate(o.axes.block_dims.begin(), o.axes.block_dims.end(), std::int64_t{0});
    require(sum == r, "rope", "axes.block_dims", "must sum to rotary_dim in the layout half_split_in_blocks", sum);
  }
  require(o.frequency_axes >= 1 && o.frequency_axes <= position::max_axes, "rope", "frequency_axes", "must lie in 1..4",
          o.frequency_axes);
  require(o.frequency_heads >= 1, "rope", "frequency_heads", "must be at least 1", o.frequency_heads);
  require(o.frequency_heads <= most_channels, "rope", "frequency_heads", "must not exceed 2^24", o.frequency_heads);
  require(o.frequency_axes == 1 || o.axes.pairs.empty(), "rope", "axes",
          "must be absent where angles are sums over axes, frequency_axes is", o.frequency_axes);
  const std::int64_t sets = o.frequency_heads * o.frequency_axes;
  require(sets == 1 || !o.inv_freq.empty(), "rope", "inv_freq", "must be given for several sets of frequencies", sets);
  require(o.inv_freq.empty() || static_cast<std::int64_t>(o.inv_freq.size()) == sets * pairs, "rope", "inv_freq",
          "must list one frequency per pair (rotary_dim / 2) of each set", o.inv_freq.size());
  for (const double f : o.inv_freq) require(std::isfinite(f), "rope", "inv_freq", "must be finite", f);
  require(o.freq_factors.empty() || (sets == 1 && static_cast<std::int64_t>(o.freq_factors.size()) == pairs), "rope",
          "freq_factors", "must list one divisor per pair (rotary_dim / 2)", o.freq_factors.size());
  for (const double f : o.freq_factors) require_positive("rope", "freq_factors", f);
}

/// What the options make of positions: everything about frequencies.
struct rope_rule {
  std::int64_t rotary_dim = 0;
  scaled_frequencies scaled{};
  rope_float32 float32{};
  std::vector<std::uint8_t> axis_of_pair{};
  int axis_count = 1;

  explicit rope_rule(const rope_options& o) : rotary_dim(checked_rotary_dim(o)) {
    check_axes(o, rotary_dim);
    scaling_rule rule{{}, o.base, rotary_dim, o.head_dim, {}};
    if (runs_through(o, rotary_dim)) {
      rule.ladder = [&o, r = rotary_dim](math::double_double base) { return ladder_of(o, r, base); };
      rule.f = rule.ladder(o.base);
    } else {
      rule.f = o.inv_freq.empty() ? ladder_of(o, rotary_dim, o.base) : adjusted(o, math::exact(o.inv_freq));
    }
    require(!std::holds_alternative<pixel>(o.scaling) || (o.freq_factors.empty() && o.axes.multiplier == 1), "pixel",
            "freq_factors and axes.multiplier", "must be absent: the frequencies are the rule's own, not",
            "those of a ladder");
    scaled = std::visit(rule, o.scaling);
    if (o.attention_factor) scaled.magnitude = *o.attention_factor;
    require(std::isfinite(scaled.magnitude) && scaled.magnitude > 0, "rope", "attention_factor",
            "must be positive and finite", scaled.magnitude);
    require(std::isfinite(scaled.softmax_scale) && scaled.softmax_scale > 0, "rope",
            "the softmax factor of the scaling", "must be positive and finite", scaled.softmax_scale);
    if (o.angles == angle_mode::ggml_recurrence) {
      require(o.inv_freq.empty(), "rope", "inv_freq", "must be absent: the recurrence of ggml climbs a ladder",
              o.inv_freq.size());
      require(o.axes.multiplier == 1, "rope", "axes.multiplier", "must be 1: the recurrence of ggml knows no other",
              o.axes.multiplier);
      rope_options plain = o;
      plain.freq_factors.clear();
      scaling_rule unfactored = rule;
      unfactored.f = ladder_of(plain, rotary_dim, o.base);
      float32 = ggml_recurrence_of(o.scaling, unfactored, scaled.inv_freq, o.axes, o.freq_factors);
    } else if (o.angles == angle_mode::float32 && o.inv_freq.empty() &&
               ((o.freq_factors.empty() && o.axes.multiplier == 1) || std::holds_alternative<no_scaling>(o.scaling) ||
                std::holds_alternative<linear>(o.scaling))) {
      float32.inv_freq =
          std::visit(float32_rule{scaled.inv_freq, o.base, rotary_dim, o.head_dim, o.axes, o.freq_factors}, o.scaling);
    } else if (o.angles != angle_mode::exact) {
      for (const auto& f : scaled.inv_freq) float32.inv_freq.push_back(f32(static_cast<double>(f)));
    }
    for (const rope_pair& p : o.axes.pairs) {
      axis_of_pair.push_back(static_cast<std::uint8_t>(p.axis));
      axis_count = std::max(axis_count, p.axis + 1);
    }
    if (axis_count == 1) axis_of_pair.clear();
    axis_count = std::max(axis_count, o.frequency_axes);
  }

 private:
  /// Whether pair i stands on rung i of one ladder over the whole block.
  static bool runs_through(const rope_options& o, std::int64_t r) {
    if (!o.inv_freq.empty()) return false;
    for (std::size_t i = 0; i < o.axes.pairs.size(); ++i)
      if (o.axes.pairs[i].rung != static_cast<std::int64_t>(i) || o.axes.pairs[i].rungs != r / 2) return false;
    return true;
  }
  /// Plain frequencies under a base, divided by the factors.
  static std::vector<math::double_double> ladder_of(const rope_options& o, std::int64_t r, math::double_double base) {
    auto f = math::ladder(base, r / 2, static_cast<double>(r / 2));
    if (!runs_through(o, r))
      for (std::size_t i = 0; i < f.size(); ++i)
        f[i] =
            math::power(base, -static_cast<double>(o.axes.pairs[i].rung), static_cast<double>(o.axes.pairs[i].rungs));
    return adjusted(o, std::move(f));
  }
  /// Times the multiplier of the axes, divided by the factors.
  static std::vector<math::double_double> adjusted(const rope_options& o, std::vector<math::double_double> f) {
    if (o.axes.multiplier != 1)
      for (auto& x : f) x = x * math::double_double(o.axes.multiplier);
    for (std::size_t i = 0; i < o.freq_factors.size(); ++i) f[i] = f[i] / math::double_double(o.freq_factors[i]);
    return f;
  }
};

}  // namespace detail
}  // namespace posenc
