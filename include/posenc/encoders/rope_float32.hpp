// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The two float32 compatibility modes: the angles that models were run with, wrong digits included.
///   inv_freq     Hugging Face: frequencies formed step by step in float, angle = float(p) * inv_freq rounded to float
///   recurrence   ggml on the CPU: the angle starts at float(p) and is multiplied once per pair by float(base^(-2/r))
/// Every step is formed in double and rounded to float, which for one operation on floats is its correct rounding;
/// `f32` keeps two of them from being fused.

#include <posenc/encoders/rope_frequencies.hpp>

#include <cstdint>
#include <variant>
#include <vector>

namespace posenc::detail {

/// x rounded to float, in memory: without that a compiler narrows a product in double to one in float and fuses it with
/// the sum that follows.
inline float f32(double x) noexcept {
  volatile float rounded = static_cast<float>(x);
  return rounded;
}

/// Rules of the recurrence, per pair.
struct rope_float32 {
  /// Frequencies of the first mode; empty in the second.
  std::vector<float> inv_freq{};
  float theta_scale = 1;
  float freq_scale = 1;
  std::vector<float> divisor{};
  /// How much of the unscaled angle counts (YaRN).
  std::vector<float> mix{};
  /// Pairs at which the running angle of their axis starts again.
  std::vector<std::uint8_t> restart{};

  [[nodiscard]] bool empty() const noexcept { return inv_freq.empty() && divisor.empty(); }
};

/// inv_freq of the first mode for ladders of rungs: the reference order of operations where a scaling has one
/// there, else the exact frequencies rounded.
struct float32_rule {
  const std::vector<math::double_double>& exact;
  double base;
  std::int64_t r;
  std::int64_t head_dim;
  const rope_axes& axes;
  const std::vector<double>& freq_factors;

  using result = std::vector<float>;
  template <class S>
  [[nodiscard]] result operator()(const S&) const {
    result out;
    for (const auto& f : exact) out.push_back(f32(static_cast<double>(f)));
    return out;
  }
  [[nodiscard]] result operator()(const no_scaling&) const { return reciprocals(base); }
  [[nodiscard]] result operator()(const linear& s) const {
    result out = reciprocals(base);
    for (float& x : out) x = f32(x / static_cast<double>(f32(s.factor)));
    return out;
  }
  [[nodiscard]] result operator()(const ntk_aware& s) const {
    return reciprocals(static_cast<double>(ntk_scaled_base("ntk_aware", base, s.factor, r)));
  }
  [[nodiscard]] result operator()(const dynamic_ntk& s) const {
    if (s.length <= s.max_position_embeddings) return reciprocals(base);
    return reciprocals(static_cast<double>(ntk_scaled_base("dynamic_ntk", base, scaling_rule::dynamic_factor(s), r)));
  }
  [[nodiscard]] result operator()(const yarn& s) const {
    const pair_ramp ramp(
        "yarn", {s.beta_fast, s.beta_slow, s.truncate, s.original_max_position_embeddings, s.inverted_range}, base, r);
    result out;
    for (const float power : powers(base)) {
      const auto i = static_cast<double>(out.size());
      const float kept = f32(1.0 / power);
      const float stretched = f32(1.0 / f32(static_cast<double>(f32(s.factor)) * power));
      const float t = f32(f32(i - f32(ramp.lo)) / static_cast<double>(f32(ramp.hi - ramp.lo)));
      const float keep = f32(f32(1.0 - std::clamp(t, 0.0f, 1.0f)) * s.ext_factor);
      out.push_back(f32(static_cast<double>(f32(static_cast<double>(stretched) * f32(1.0 - keep))) +
                        f32(static_cast<double>(kept) * keep)));
    }
    return out;
  }
  [[nodiscard]] result operator()(const longrope& s) const {
    const std::vector<double>& list = scaling_rule::factors_of(s);
    result out;
    for (const float power : powers(base))
      out.push_back(f32(1.0 / f32(static_cast<double>(f32(list[out.size()])) * power)));
    return out;
  }
  [[nodiscard]] result operator()(const llama3& s) const {
    const auto original = static_cast<double>(s.original_max_position_embeddings);
    result out;
    for (const float f : reciprocals(base)) {
      const float wavelength = f32(static_cast<double>(f32(static_cast<double>(math::two_pi))) / f);
      const float divided = f32(f / static_cast<double>(f32(s.factor)));
      if (wavelength < f32(original / s.high_freq_factor)) {
        out.push_back(f);
      } else if (wavelength > f32(original / s.low_freq_factor) || s.high_freq_factor == s.low_freq_factor) {
        out.push_back(wavelength > f32(original / s.low_freq_factor) ? divided : f);
      } else {
        const float smooth = f32(f32(f32(original / wavelength) - static_cast<double>(f32(s.low_freq_factor))) /
                                 static_cast<double>(f32(s.high_freq_factor - s.low_freq_factor)));
        const float rest = f32(f32(f32(1.0 - smooth) * static_cast<double>(f)) / static_cast<double>(f32(s.factor)));
        out.push_back(f32(static_cast<double>(rest) + f32(static_cast<double>(smooth) * f)));
      }
    }
    return out;
  }
  [[nodiscard]] result operator()(const proportional& s) const {
    result out = (*this)(linear{s.factor});
    for (std::size_t i = scaling_rule::rotated_pairs(s, head_dim); i < out.size(); ++i) out[i] = 0;
    return out;
  }

 private:
  /// base^(rung / rungs) in float, before the reciprocal.
  [[nodiscard]] result powers(double b) const {
    result out;
    for (std::size_t i = 0; i < static_cast<std::size_t>(r / 2); ++i) {
      const rope_pair pair = axes.pairs.empty() ? rope_pair{0, static_cast<std::int64_t>(i), r / 2} : axes.pairs[i];
      out.push_back(math::float32_power(f32(b), 2 * pair.rung, 2 * pair.rungs));
    }
    return out;
  }
  [[nodiscard]] result reciprocals(double b) const {
    result out = powers(b);
    for (float& x : out) x = f32(1.0 / x);
    if (axes.multiplier != 1)
      for (float& x : out) x = f32(static_cast<double>(x) * f32(axes.multiplier));
    for (std::size_t i = 0; i < freq_factors.size(); ++i)
      out[i] = f32(out[i] / static_cast<double>(f32(freq_factors[i])));
    return out;
  }
};

/// The rules of ggml's recurrence. `rule` has the unscaled frequencies of the ladder, `scaled` is what divisors and
/// scaling made of them; scalings that ggml has no parameter for become divisors, as its converter writes them.
inline rope_float32 ggml_recurrence_of(const rope_scaling& scaling, const scaling_rule& rule,
                                       const std::vector<math::double_double>& scaled, const rope_axes& axes,
                                       const std::vector<double>& freq_factors) {
  rope_float32 out;
  const std::size_t n = rule.f.size();
  double base = rule.base;
  out.mix.assign(n, 0);
  out.restart.assign(n, 0);
  std::vector<double> divisor = freq_factors.empty() ? std::vector<double>(n, 1.0) : freq_factors;
  if (const auto* l = std::get_if<linear>(&scaling)) {
    out.freq_scale = f32(1 / l->factor);
  } else if (const auto* y = std::get_if<yarn>(&scaling)) {
    out.freq_scale = f32(1 / y->factor);
    const pair_ramp ramp = rule.ramp_of(*y);
    for (std::size_t i = 0; i < n; ++i) {
      const float width = std::max(0.001f, f32(ramp.hi - ramp.lo));
      const float t = f32(f32(static_cast<double>(i) - f32(ramp.lo)) / static_cast<double>(width));
      out.mix[i] = f32((1.0 - std::clamp(t, 0.0f, 1.0f)) * f32(y->ext_factor));
    }
  } else if (const auto* a = std::get_if<ntk_aware>(&scaling)) {
    base = static_cast<double>(ntk_scaled_base("ntk_aware", rule.base, a->factor, rule.r));
  } else if (!std::holds_alternative<no_scaling>(scaling)) {
    for (std::size_t i = 0; i < n; ++i)
      divisor[i] = scaled[i].hi == 0 ? 1e30 : static_cast<double>(rule.f[i] / scaled[i]);
  }
  const std::int64_t rungs = axes.pairs.empty() ? static_cast<std::int64_t>(n) : axes.pairs.front().rungs;
  out.theta_scale = math::float32_power(f32(base), -2, 2 * rungs);
  for (std::size_t i = 0; i < n; ++i) {
    out.divisor.push_back(f32(divisor[i]));
    if (axes.pairs.empty()) continue;
    const rope_pair& pair = axes.pairs[i];
    require(pair.rungs == rungs && (pair.rung == 0 || (i > 0 && pair.rung == axes.pairs[i - 1].rung + 1)), "rope",
            "axes", "must climb one ladder rung by rung: the recurrence of ggml knows no other, at pair", i);
    out.restart[i] = pair.rung == 0;
  }
  return out;
}

}  // namespace posenc::detail
