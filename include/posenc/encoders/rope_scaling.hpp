// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// How models stretch RoPE to longer contexts: small value types, each a rule from (base b, rotary_dim r, head_dim d)
/// to the frequencies f(i), the magnitude A on cos and sin, and a factor on the softmax scale. With f(i) = b^(-2i/r):
///   linear          f / s                                         position interpolation (Chen et al. 2023)
///   ntk_aware       base b s^(r/(r-2))                            bloc97; HunYuan and the YaRN repository call s alpha
///   ntk_fixed_su    (b s)^(-2i/r) / s^(2/r)                       Su; vLLM "ntk"
///   ntk_mixed_su    f exp(-a (i+1)^B), a = ln s / (r/2)^B         Su; vLLM "ntk" with mixed_b = B
///   ntk_base        base b s                                      diffusers ntk_factor
///   dynamic_ntk     base b (s n/M - (s-1))^(r/(r-2)), n = max(length, M)
///   ntk_by_parts    two ramps between f, f / s and ntk_aware      the YaRN repository, before YaRN
///   yarn            f (1-t) + (f / s) t, t a ramp over the pairs  Peng et al. 2023: Qwen, gpt-oss, DeepSeek, Ministral
///   longrope        f / c(i), c short or long by length > L       Ding et al. 2024: Phi-3/4, MiniCPM
///   llama3          by wavelength: keep, f / s, or between        Llama 3.1 .. 3.3, Llama 4 Scout
///   proportional    b^(-2i/d) / s for the first pairs, 0 after    Gemma 4 global layers
///   pixel           pi * linspace(1, max_freq / 2, r/2)           lucidrains, for positions in [-1, 1]
/// The ones that depend on a length take it explicitly and say `depends_on_length`: a cache rotated under one length is
/// rotated again under another (see `rerotate`). Parameters are doubles; frequencies are formed to 106 bits, but shares
/// of a blend (yarn, ntk_by_parts, llama3) and the exponents of ntk_mixed_su are doubles: 2e-14 of the plain frequency.

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace posenc {

/// No change to the frequencies.
struct no_scaling {};

struct linear {
  double factor = 1;
};
struct ntk_aware {
  double factor = 1;
};
struct ntk_fixed_su {
  double factor = 1;
};
struct ntk_mixed_su {
  double factor = 1;
  double mixed_b = 0.625;
};
struct ntk_base {
  double factor = 1;
};
struct dynamic_ntk {
  static constexpr bool depends_on_length = true;
  double factor = 1;
  /// M: the length up to which nothing changes.
  std::int64_t max_position_embeddings = 0;
  /// The length served now; up to M the base is exactly b.
  std::int64_t length = 0;
};
struct ntk_by_parts {
  double factor = 1;
  std::int64_t original_max_position_embeddings = 0;
  double beta_0 = 1.25;
  double beta_1 = 0.75;
  double gamma_0 = 16;
  double gamma_1 = 2;
};
/// What YaRN does where the original length is so short that its ramp would end before it begins.
enum class yarn_inverted_range {
  refuse,
  /// The quotient as it stands, which keeps the frequencies of short lengths: the PyTorch family.
  hugging_face,
  /// A width of at least 0.001, which stretches every pair but the first.
  ggml
};
struct yarn {
  double factor = 1;
  std::int64_t original_max_position_embeddings = 0;
  double beta_fast = 32;
  double beta_slow = 1;
  /// Round the borders of the ramp to whole pairs (gpt-oss does not).
  bool truncate = true;
  /// Replaces the magnitude, as in Hugging Face's key of this name.
  std::optional<double> attention_factor{};
  /// Both given and not 0: the magnitude is their ratio m(mscale) / m(mscale_all_dim), m(k) = 0.1 k ln s + 1; the
  /// softmax factor is m(mscale_all_dim)^2 and stays apart from it (DeepSeek).
  std::optional<double> mscale{};
  std::optional<double> mscale_all_dim{};
  yarn_inverted_range inverted_range = yarn_inverted_range::refuse;
  /// The share of the ramp that is heard: f (1 - t) counts times this (ggml's parameter of the same name).
  double ext_factor = 1;
};
struct longrope {
  static constexpr bool depends_on_length = true;
  std::vector<double> short_factor{};
  std::vector<double> long_factor{};
  std::int64_t original_max_position_embeddings = 0;
  /// s for the magnitude; absent: max_position_embeddings / original.
  std::optional<double> factor{};
  std::int64_t max_position_embeddings = 0;
  std::optional<double> attention_factor{};
  /// The length served now: beyond the original one the long list is in force. To choose "by capacity", as engines with
  /// a fixed context do, hand over the capacity.
  std::int64_t length = 0;
};
struct llama3 {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_max_position_embeddings = 8192;
};
struct proportional {
  double partial_rotary_factor = 0.25;
  double factor = 1;
};
struct pixel {
  double max_freq = 10;
};

using rope_scaling = std::variant<no_scaling, linear, ntk_aware, ntk_fixed_su, ntk_mixed_su, ntk_base, dynamic_ntk,
                                  ntk_by_parts, yarn, longrope, llama3, proportional, pixel>;

}  // namespace posenc
