// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The arguments of ggml's rotary operators (ggml_rope_ext, ggml_rope_multi) as options of `rope`. With B = freq_base,
/// S = freq_scale and te = p B^(-2j / n_dims) / freq_factors[i]:
///   ext_factor = 0    angle S te, magnitude attn_factor
///   otherwise         angle S te (1 - k) + te k, k = ext_factor (1 - ramp(i)), ramp as YaRN's over n_ctx_orig, and the
///                     magnitude attn_factor (1 + 0.1 ln(1 / S)), which the operator multiplies in by itself
/// j = i, except in vision mode, where the ladder starts again at each section. Modes with sections take positions of
/// four axes.
/// Error    that of `rope`: angles are exact. angle_mode::ggml_recurrence forms them as ggml's CPU kernel does, in
///          float from pair to pair, for results that must equal its own.
/// Throws   std::invalid_argument for what ggml asserts against; `rope` refuses the rest.
/// Source   ggml.h, ggml-cpu/ops.cpp. ggml_rope_ext_back is `rope::adjoint`. A context shift of llama.cpp rotates keys
///          a second time, magnitude included; `rope::shift` turns them by the difference alone.

#include <posenc/core/error.hpp>
#include <posenc/encoders/rope_axes.hpp>
#include <posenc/encoders/rope_options.hpp>
#include <posenc/encoders/rope_scaling.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace posenc::models {

/// GGML_ROPE_TYPE_*, with its numbers.
enum class ggml_rope_mode : int { normal = 0, neox = 2, mrope = 8, vision = 24, imrope = 40 };

struct ggml_rope_arguments {
  /// ne0, channels of a head.
  std::int64_t head_dim = 0;
  /// Rotated channels; in vision mode the distance of partners, head_dim / 2.
  std::int64_t n_dims = 0;
  /// First rotated channel (ggml_rope_set_offset).
  std::int64_t offset = 0;
  ggml_rope_mode mode = ggml_rope_mode::normal;
  /// Pairs per axis, for mrope, vision and imrope; int in ggml. In imrope, pairs that no section claims take the fourth
  /// coordinate, which llama.cpp sets to 0 for text: give text four coordinates, {p, p, p, 0}.
  std::array<std::int64_t, 4> sections{};
  std::int64_t n_ctx_orig = 0;
  double freq_base = 10000;
  /// 1 / s for an extension by s.
  double freq_scale = 1;
  double ext_factor = 0;
  double attn_factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  /// Divisors of the frequencies, one per pair or more; empty: none.
  std::vector<double> freq_factors{};
};

namespace detail {

/// Axis and rung of every pair. Sections are repeated where they sum to fewer pairs.
[[nodiscard]] inline rope_axes ggml_rope_axes(const ggml_rope_arguments& a, std::int64_t pairs) {
  using posenc::detail::require;
  for (const std::int64_t s : a.sections)
    require(s >= 0 && s <= INT32_MAX, "models::ggml_rope_options", "sections", "must lie in 0..2^31 - 1", s);
  const std::int64_t period = std::accumulate(a.sections.begin(), a.sections.end(), std::int64_t{0});
  require(period >= 1, "models::ggml_rope_options", "sections", "must sum to at least 1", period);
  const bool interleaved_axes = a.mode == ggml_rope_mode::imrope;
  const bool restart = a.mode == ggml_rope_mode::vision;
  if (interleaved_axes && period == pairs) return rope_axes::imrope_ggml({a.sections.begin(), a.sections.end()});
  rope_axes out;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int64_t q = i % period;
    int axis = 0;
    std::int64_t first = 0;  // of the section that holds q
    if (interleaved_axes) {
      axis = static_cast<int>(q % 3);
      if (q >= 3 * a.sections[static_cast<std::size_t>(axis)]) axis = 3;
    } else {
      while (q >= first + a.sections[static_cast<std::size_t>(axis)])
        first += a.sections[static_cast<std::size_t>(axis++)];
    }
    out.pairs.push_back({axis, restart ? q - first : i, a.n_dims / 2});
  }
  return out;
}

}  // namespace detail

/// Options of the rotation that the operator performs. @throws std::invalid_argument
[[nodiscard]] inline rope_options ggml_rope_options(const ggml_rope_arguments& a,
                                                    angle_mode angles = angle_mode::exact) {
  using posenc::detail::require;
  constexpr const char* name = "models::ggml_rope_options";
  const bool vision = a.mode == ggml_rope_mode::vision;
  const bool plain = a.mode == ggml_rope_mode::normal || a.mode == ggml_rope_mode::neox;
  require(plain || vision || a.mode == ggml_rope_mode::mrope || a.mode == ggml_rope_mode::imrope, name, "mode",
          "must be normal, neox, mrope, vision or imrope", static_cast<int>(a.mode));
  require(a.head_dim >= 2 && a.head_dim <= std::int64_t{1} << 20, name, "head_dim", "must lie in 2..2^20", a.head_dim);
  require(a.n_dims >= 2 && a.n_dims % 2 == 0, name, "n_dims", "must be even and at least 2", a.n_dims);
  require(a.n_dims <= a.head_dim, name, "n_dims", "must not exceed head_dim", a.n_dims);
  require(!vision || 2 * a.n_dims == a.head_dim, name, "n_dims", "must be half of head_dim in vision mode", a.n_dims);
  require(!vision || a.ext_factor == 0, name, "ext_factor", "must be 0 in vision mode", a.ext_factor);
  require(std::isfinite(a.freq_scale) && a.freq_scale > 0, name, "freq_scale", "must be positive and finite",
          a.freq_scale);
  const std::int64_t rotary_dim = vision ? a.head_dim : a.n_dims;
  const std::int64_t pairs = rotary_dim / 2;
  require(a.freq_factors.empty() || static_cast<std::int64_t>(a.freq_factors.size()) >= pairs, name, "freq_factors",
          "must list a divisor for every pair", a.freq_factors.size());

  rope_options o{.head_dim = a.head_dim, .rotary_dim = rotary_dim, .offset = a.offset, .base = a.freq_base};
  o.layout = a.mode == ggml_rope_mode::normal ? rope_layout::interleaved : rope_layout::half_split;
  if (!plain) o.axes = detail::ggml_rope_axes(a, pairs);
  if (!a.freq_factors.empty()) o.freq_factors.assign(a.freq_factors.begin(), a.freq_factors.begin() + pairs);
  double magnitude = a.attn_factor;
  if (a.ext_factor != 0) {
    magnitude *= 1 + 0.1 * std::log(1 / a.freq_scale);
    o.scaling = yarn{.factor = 1 / a.freq_scale,
                     .original_max_position_embeddings = a.n_ctx_orig,
                     .beta_fast = a.beta_fast,
                     .beta_slow = a.beta_slow,
                     .inverted_range = yarn_inverted_range::ggml,
                     .ext_factor = a.ext_factor};
  } else if (a.freq_scale != 1) {
    o.scaling = linear{1 / a.freq_scale};
  }
  o.attention_factor = magnitude;
  o.angles = angles;
  return o;
}

}  // namespace posenc::models
