// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What the scalings of rope_scaling.hpp make of a ladder of frequencies, to 106 bits. Impossible settings are refused
/// here with their rule and value.

#include <posenc/core/error.hpp>
#include <posenc/encoders/rope_axes.hpp>
#include <posenc/encoders/rope_scaling.hpp>
#include <posenc/math/double_double.hpp>
#include <posenc/math/frequencies.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace posenc {

struct scaled_frequencies {
  std::vector<math::double_double> inv_freq;
  /// On cos and sin.
  double magnitude = 1;
  /// On the softmax scale 1 / sqrt(dim).
  double softmax_scale = 1;
};

namespace detail {

inline void require_positive(const char* name, const char* field, double value) {
  require(std::isfinite(value) && value > 0, name, field, "must be positive and finite", value);
}
inline void require_length(const char* name, const char* field, std::int64_t value) {
  require(value >= 1, name, field, "must be at least 1", value);
}

/// b s^(r/(r-2)).
inline math::double_double ntk_scaled_base(const char* name, double base, double multiplier, std::int64_t r) {
  require(r > 2, name, "rotary_dim", "must exceed 2: the exponent divides by rotary_dim - 2", r);
  require_positive(name, "the factor on the base", multiplier);
  return math::double_double(base) * math::power(multiplier, static_cast<double>(r), static_cast<double>(r - 2));
}

/// 0.1 k ln s + 1 for s > 1.
inline double yarn_magnitude(double s, double k) { return s <= 1 ? 1.0 : 0.1 * k * std::log(s) + 1; }

/// A ramp over the pairs, 0 up to `lo`, 1 from `hi` on; the borders are the pairs that turn `fast` and `slow` times
/// within the original length. `hi` is held at r - 1, not at the last pair, as every implementation does, so the ramp
/// may end below 1.
struct pair_ramp {
  double lo = 0;
  double hi = 0;

  struct options {
    double fast;
    double slow;
    bool truncate;
    std::int64_t original;
    yarn_inverted_range inverted = yarn_inverted_range::refuse;
    const char* field = "beta_fast";
    const char* rule = "must exceed beta_slow, and that 0";
  };

  pair_ramp(const char* name, const options& o, double base, std::int64_t r) {
    require_length(name, "original_max_position_embeddings", o.original);
    require(o.fast > o.slow && o.slow > 0 && std::isfinite(o.fast), name, o.field, o.rule, o.fast);
    const auto border = [&](double turns) {
      return static_cast<double>(r) *
             std::log(static_cast<double>(o.original) / (turns * static_cast<double>(math::two_pi))) /
             (2 * std::log(base));
    };
    lo = border(o.fast);
    hi = border(o.slow);
    if (o.truncate) {
      lo = std::floor(lo);
      hi = std::ceil(hi);
    }
    lo = std::max(lo, 0.0);
    hi = std::min(hi, static_cast<double>(r - 1));
    require(
        lo <= hi || o.inverted != yarn_inverted_range::refuse, name, "original_max_position_embeddings",
        "must let the slow border of the ramp lie behind the fast one (yarn's inverted_range gives others a meaning)",
        o.original);
    if (o.inverted == yarn_inverted_range::ggml) {
      hi = std::max(hi, lo + 0.001);
    } else if (lo == hi) {
      hi += 0.001;
    }
  }
  [[nodiscard]] double operator()(std::size_t i) const noexcept {
    return std::clamp((static_cast<double>(i) - lo) / (hi - lo), 0.0, 1.0);
  }
};

/// a (1 - t) + b t; exactly a or b at the ends.
inline math::double_double blend(math::double_double a, math::double_double b, double t) noexcept {
  return a * math::double_double(1 - t) + b * math::double_double(t);
}

/// Applies one scaling to the frequencies `f` of a block of r channels with base b in heads of `head_dim`.
struct scaling_rule {
  using frequencies = std::vector<math::double_double>;
  frequencies f;
  double base;
  std::int64_t r;
  std::int64_t head_dim;
  /// The ladder under another base; empty where frequencies were given outright or start again per axis.
  std::function<frequencies(math::double_double)> ladder;

  using result = scaled_frequencies;
  [[nodiscard]] result operator()(const no_scaling&) const { return {f}; }
  [[nodiscard]] result operator()(const linear& s) const { return divided("linear", s.factor); }
  [[nodiscard]] result operator()(const ntk_aware& s) const {
    require_positive("ntk_aware", "factor", s.factor);
    return {rebased("ntk_aware", ntk_scaled_base("ntk_aware", base, s.factor, r))};
  }
  [[nodiscard]] result operator()(const ntk_fixed_su& s) const {
    require_positive("ntk_fixed_su", "factor", s.factor);
    result out{rebased("ntk_fixed_su", math::double_double(base) * math::double_double(s.factor))};
    const math::double_double shared = math::power(s.factor, 2, static_cast<double>(r));
    for (auto& x : out.inv_freq) x = x / shared;
    return out;
  }
  [[nodiscard]] result operator()(const ntk_mixed_su& s) const {
    require_positive("ntk_mixed_su", "factor", s.factor);
    require_positive("ntk_mixed_su", "mixed_b", s.mixed_b);
    whole("ntk_mixed_su");
    const double a = std::log(s.factor) / std::pow(static_cast<double>(r / 2), s.mixed_b);
    result out{f};
    for (std::size_t i = 0; i < f.size(); ++i)
      out.inv_freq[i] = f[i] * math::exp(-a * std::pow(static_cast<double>(i + 1), s.mixed_b));
    return out;
  }
  [[nodiscard]] result operator()(const ntk_base& s) const {
    require_positive("ntk_base", "factor", s.factor);
    return {rebased("ntk_base", math::double_double(base) * math::double_double(s.factor))};
  }
  [[nodiscard]] result operator()(const dynamic_ntk& s) const {
    require_positive("dynamic_ntk", "factor", s.factor);
    require_length("dynamic_ntk", "max_position_embeddings", s.max_position_embeddings);
    require(s.length >= 0, "dynamic_ntk", "length", "must not be negative", s.length);
    require(r > 2, "dynamic_ntk", "rotary_dim", "must exceed 2: the exponent divides by rotary_dim - 2", r);
    if (s.length <= s.max_position_embeddings) return {f};
    return {rebased("dynamic_ntk", ntk_scaled_base("dynamic_ntk", base, dynamic_factor(s), r))};
  }
  [[nodiscard]] result operator()(const ntk_by_parts& s) const {
    require_positive("ntk_by_parts", "factor", s.factor);
    const std::int64_t original = s.original_max_position_embeddings;
    constexpr auto refuse = yarn_inverted_range::refuse;
    const pair_ramp first("ntk_by_parts",
                          {s.beta_0, s.beta_1, true, original, refuse, "beta_0", "must exceed beta_1, and that 0"},
                          base, r);
    const pair_ramp second("ntk_by_parts",
                           {s.gamma_0, s.gamma_1, true, original, refuse, "gamma_0", "must exceed gamma_1, and that 0"},
                           base, r);
    const auto stretched = rebased("ntk_by_parts", ntk_scaled_base("ntk_by_parts", base, s.factor, r));
    result out{f};
    for (std::size_t i = 0; i < f.size(); ++i) {
      const auto mixed = blend(f[i] / math::double_double(s.factor), stretched[i], 1 - first(i));
      out.inv_freq[i] = blend(mixed, f[i], 1 - second(i));
    }
    return out;
  }
  [[nodiscard]] result operator()(const yarn& s) const {
    require_positive("yarn", "factor", s.factor);
    require(std::isfinite(s.ext_factor), "yarn", "ext_factor", "must be finite", s.ext_factor);
    whole("yarn");
    const pair_ramp ramp = ramp_of(s);
    result out{f};
    for (std::size_t i = 0; i < f.size(); ++i)
      out.inv_freq[i] = blend(f[i] / math::double_double(s.factor), f[i], (1 - ramp(i)) * s.ext_factor);
    const double all_dim = s.mscale_all_dim.value_or(0);
    const bool ratio = s.mscale.value_or(0) != 0 && all_dim != 0;
    out.magnitude = s.attention_factor.value_or(
        ratio ? yarn_magnitude(s.factor, *s.mscale) / yarn_magnitude(s.factor, all_dim) : yarn_magnitude(s.factor, 1));
    if (all_dim != 0) out.softmax_scale = yarn_magnitude(s.factor, all_dim) * yarn_magnitude(s.factor, all_dim);
    return out;
  }
  [[nodiscard]] result operator()(const longrope& s) const {
    for (const auto* list : {&s.short_factor, &s.long_factor}) {
      const char* name = list == &s.short_factor ? "short_factor" : "long_factor";
      require(list->size() == f.size(), "longrope", name, "must list one divisor per pair", list->size());
      for (const double c : *list) require_positive("longrope", name, c);
    }
    const std::vector<double>& list = factors_of(s);
    result out{f};
    for (std::size_t i = 0; i < f.size(); ++i) out.inv_freq[i] = f[i] / math::double_double(list[i]);
    out.magnitude = s.attention_factor ? *s.attention_factor : longrope_magnitude(s);
    return out;
  }
  [[nodiscard]] result operator()(const llama3& s) const {
    require_positive("llama3", "factor", s.factor);
    require_length("llama3", "original_max_position_embeddings", s.original_max_position_embeddings);
    require_positive("llama3", "low_freq_factor", s.low_freq_factor);
    require(std::isfinite(s.high_freq_factor) && s.high_freq_factor >= s.low_freq_factor, "llama3", "high_freq_factor",
            "must not be below low_freq_factor", s.high_freq_factor);
    result out{f};
    for (std::size_t i = 0; i < f.size(); ++i) {
      // How often the pair turns within the original length.
      const double turns = static_cast<double>(s.original_max_position_embeddings) * static_cast<double>(f[i]) /
                           static_cast<double>(math::two_pi);
      // Equal factors make a step; a pair on it is kept.
      const double keep = turns >= s.high_freq_factor ? 1.0
                          : turns < s.low_freq_factor
                              ? 0.0
                              : (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
      out.inv_freq[i] = blend(f[i] / math::double_double(s.factor), f[i], keep);
    }
    return out;
  }
  [[nodiscard]] result operator()(const proportional& s) const {
    require(s.partial_rotary_factor > 0 && s.partial_rotary_factor <= 1, "proportional", "partial_rotary_factor",
            "must lie in (0, 1]", s.partial_rotary_factor);
    require(r == head_dim, "proportional", "rotary_dim", "must span the head", r);
    whole("proportional");
    result out = divided("proportional", s.factor);
    for (std::size_t i = rotated_pairs(s, head_dim); i < f.size(); ++i) out.inv_freq[i] = 0;
    return out;
  }
  [[nodiscard]] result operator()(const pixel& s) const {
    require_positive("pixel", "max_freq", s.max_freq);
    whole("pixel");
    result out{f};
    const math::double_double half_turn{math::two_pi.hi / 2, math::two_pi.lo / 2};
    for (std::size_t i = 0; i < f.size(); ++i) {
      const math::double_double along =
          math::double_double(static_cast<double>(i)) /
          math::double_double(static_cast<double>(std::max<std::size_t>(f.size(), 2) - 1));
      out.inv_freq[i] = half_turn * (math::double_double(1) + along * math::double_double(s.max_freq / 2 - 1));
    }
    return out;
  }

  [[nodiscard]] pair_ramp ramp_of(const yarn& s) const {
    return {
        "yarn", {s.beta_fast, s.beta_slow, s.truncate, s.original_max_position_embeddings, s.inverted_range}, base, r};
  }
  /// s n / M - (s - 1).
  [[nodiscard]] static double dynamic_factor(const dynamic_ntk& s) noexcept {
    return s.factor * static_cast<double>(s.length) / static_cast<double>(s.max_position_embeddings) - (s.factor - 1);
  }
  /// The list in force at the length: the long one from original_max_position_embeddings + 1 on.
  [[nodiscard]] static const std::vector<double>& factors_of(const longrope& s) {
    require_length("longrope", "original_max_position_embeddings", s.original_max_position_embeddings);
    require(s.length >= 0, "longrope", "length", "must not be negative", s.length);
    return s.length > s.original_max_position_embeddings ? s.long_factor : s.short_factor;
  }
  /// sqrt(1 + ln s / ln L), 1 for s <= 1.
  [[nodiscard]] static double longrope_magnitude(const longrope& s) {
    require(s.factor || s.max_position_embeddings >= 1, "longrope", "max_position_embeddings",
            "must be given where neither factor nor attention_factor is", s.max_position_embeddings);
    const auto original = static_cast<double>(s.original_max_position_embeddings);
    const double stretch = s.factor.value_or(static_cast<double>(s.max_position_embeddings) / original);
    require_positive("longrope", "factor", stretch);
    if (stretch <= 1) return 1;
    require(s.original_max_position_embeddings > 1, "longrope", "original_max_position_embeddings",
            "must exceed 1: the magnitude divides by its logarithm", s.original_max_position_embeddings);
    return std::sqrt(1 + std::log(stretch) / std::log(original));
  }
  [[nodiscard]] static std::size_t rotated_pairs(const proportional& s, std::int64_t head_dim) noexcept {
    return static_cast<std::size_t>(std::floor(s.partial_rotary_factor * static_cast<double>(head_dim) / 2));
  }

 private:
  void whole(const char* name) const {
    require(static_cast<bool>(ladder), name, "inv_freq and axes",
            "must be absent: the rule counts the rungs of one ladder, not", "frequencies of your own");
  }
  [[nodiscard]] frequencies rebased(const char* name, math::double_double to) const {
    whole(name);
    return ladder(to);
  }
  [[nodiscard]] result divided(const char* name, double factor) const {
    require_positive(name, "factor", factor);
    result out{f};
    math::divide(out.inv_freq, factor);
    return out;
  }
};

}  // namespace detail
}  // namespace posenc
