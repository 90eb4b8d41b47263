// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The angles of one token: what a rotation knows of its encoder, and rows of cos and sin of one position, or of the
/// difference of two. Shared by `rope`, its tables and `rerotate`.

#include <posenc/core/positions.hpp>
#include <posenc/encoders/rope_options.hpp>
#include <posenc/kernels/cos_sin.hpp>

#include <algorithm>
#include <cstdint>
#include <span>

namespace posenc::detail {

/// What a rotation needs to know of its encoder.
struct rope_frame {
  rope_layout layout = half_split;
  std::int64_t offset = 0;
  std::int64_t rotary_dim = 0;
  std::int64_t head_dim = 0;
  /// [frequency_heads, frequency_axes, pairs].
  const math::turns* steps = nullptr;
  /// The rules of a float32 angle mode, or null.
  const rope_float32* float32 = nullptr;
  /// The axis of every pair, or null where all are turned by the first.
  const std::uint8_t* axis_of_pair = nullptr;
  int frequency_axes = 1;
  std::int64_t frequency_heads = 1;
  std::span<const std::int64_t> block_dims{};

  [[nodiscard]] std::int64_t pairs() const noexcept { return rotary_dim / 2; }
  [[nodiscard]] int axis(std::int64_t i) const noexcept { return axis_of_pair ? axis_of_pair[i] : 0; }
  [[nodiscard]] bool one_axis() const noexcept { return !axis_of_pair && frequency_axes == 1; }
  /// The same encoder as cached keys see it: in the order they lie in.
  [[nodiscard]] rope_frame of_stored_keys() const noexcept {
    rope_frame f = *this;
    if (layout == interleaved_in_half_out) f.layout = half_split;
    return f;
  }
};

/// Stands on every axis.
struct constant_position {
  std::int64_t value;
};

inline void check_cover(const positions& at, const char* function, std::int64_t batch, std::int64_t tokens, int axes) {
  at.check(function, "positions", batch, tokens);
  require(at.axis_count() == 1 || (axes > 1 && at.axis_count() >= axes), function, "positions",
          axes == 1 ? "must have one axis" : "must have one axis or those that the pairs name", at.axis_count());
}
inline void check_cover(const real_positions& at, const char* function, std::int64_t, std::int64_t tokens, int axes) {
  require(at.size() == tokens, function, "positions", "must list one position per token", at.size());
  require(at.axis_count() == 1 || (axes > 1 && at.axis_count() >= axes), function, "positions",
          axes == 1 ? "must have one axis" : "must have one axis or those that the pairs name", at.axis_count());
  for (std::int64_t t = 0; t < tokens; ++t)
    for (int a = 0; a < at.axis_count(); ++a)
      require(std::abs(at.at(t)[a]) <= 1e15, function, "positions", "must be finite and within +-10^15", at.at(t)[a]);
}
inline void check_cover(const constant_position&, const char*, std::int64_t, std::int64_t, int) {}

inline position position_of(const positions& at, std::int64_t b, std::int64_t t) noexcept { return at.at(b, t); }
inline real_position position_of(const real_positions& at, std::int64_t, std::int64_t t) noexcept { return at.at(t); }
inline position position_of(const constant_position& at, std::int64_t, std::int64_t) noexcept { return at.value; }

/// The phase of pair i of one set of frequencies; `At` is position or real_position.
template <class At>
[[nodiscard]] std::uint64_t pair_phase(const rope_frame& f, std::int64_t set, std::int64_t i, const At& at) noexcept {
  const math::turns* steps = f.steps + set * f.frequency_axes * f.pairs() + i;
  if (f.frequency_axes == 1) return math::phase(*steps, at[f.axis(i)]);
  std::uint64_t sum = 0;
  for (int a = 0; a < f.frequency_axes; ++a) sum += math::phase(steps[a * f.pairs()], at[a]);
  return sum;
}

/// Angles of the pairs first .. first + count - 1 in a float32 mode.
template <class At>
void float32_angles(const rope_frame& f, std::int64_t set, std::int64_t first, std::int64_t count, const At& at,
                    float* angles) noexcept {
  const rope_float32& rule = *f.float32;
  if (!rule.inv_freq.empty()) {
    const float* inv_freq = rule.inv_freq.data() + set * f.frequency_axes * f.pairs() + first;
    for (std::int64_t i = 0; i < count; ++i) {
      angles[i] = math::float32_angle(static_cast<double>(at[f.axis(first + i)]), inv_freq[i]);
      for (int a = 1; a < f.frequency_axes; ++a)
        angles[i] = f32(static_cast<double>(angles[i]) +
                        f32(math::float32_angle(static_cast<double>(at[a]), inv_freq[a * f.pairs() + i])));
    }
    return;
  }
  float running[position::max_axes];
  for (int a = 0; a < position::max_axes; ++a) running[a] = f32(static_cast<double>(at[a]));
  for (std::int64_t i = 0; i < first + count; ++i) {
    const auto pair = static_cast<std::size_t>(i);
    const int axis = f.axis(i);
    if (rule.restart[pair]) running[axis] = f32(static_cast<double>(at[axis]));
    if (i >= first) {
      const float whole = f32(static_cast<double>(running[axis]) / rule.divisor[pair]);
      const float scaled = f32(static_cast<double>(rule.freq_scale) * whole);
      const float mix = rule.mix[pair];
      angles[i - first] = mix == 0 ? scaled
                                   : f32(static_cast<double>(f32(static_cast<double>(scaled) * f32(1.0 - mix))) +
                                         f32(static_cast<double>(whole) * mix));
    }
    for (float& theta : running) theta = f32(static_cast<double>(theta) * rule.theta_scale);
  }
}

/// The row of one position: pairs first .. first + count - 1 of set `set`, count at most 128.
template <class Arch, kernels::row_form Form, class R, class At>
void rope_row(const rope_frame& f, std::int64_t set, std::int64_t first, std::int64_t count, const At& at,
              double magnitude, double direction, R* cos, R* sin) {
  if (f.float32) {
    float angles[128];
    float32_angles(f, set, first, count, at, angles);
    kernels::cos_sin_row_float32<Form>(angles, count, f32(magnitude), direction, cos, sin);
  } else if (f.one_axis()) {
    kernels::cos_sin_row<Arch, Form>(f.steps + set * f.pairs() + first, count, at[0], magnitude, direction, cos, sin);
  } else {
    kernels::cos_sin_row_of<Arch, Form>([&](std::int64_t i) { return pair_phase(f, set, first + i, at); }, count,
                                        magnitude, direction, cos, sin);
  }
}

/// Fills rows for `rotate_token` from one position.
template <class Arch, class At>
struct rows_of_position {
  const rope_frame& frame;
  const At& at;
  double magnitude;
  double direction;

  template <kernels::row_form Form, class C>
  void fill(std::int64_t set, std::int64_t first, std::int64_t count, C* cos, C* sin) const {
    rope_row<Arch, Form>(frame, set, first, count, at, magnitude, direction, cos, sin);
  }
};

}  // namespace posenc::detail
