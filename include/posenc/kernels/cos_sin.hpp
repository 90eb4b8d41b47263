// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Rows of cos and sin: one position against a list of frequencies, exactly reduced in 64-bit turns, computed in double
/// and rounded once to the type of the row.
/// Error   float: 3.0e-8 * max(1, magnitude) at every position up to 10^9; double: 1e-12 at 10^6, 1e-9 at 10^9.
/// Cost    about 2 ns per pair on AVX2.

#include <posenc/core/scalar.hpp>
#include <posenc/math/angle.hpp>
#include <posenc/simd/loop.hpp>
#include <posenc/simd/sincos.hpp>

#include <algorithm>
#include <cstdint>

namespace posenc::kernels {

/// Where the values of pair i go. separate: cos[i], sin[i]. neighbours: cos[2i] = cos[2i+1] = c, sin[2i] = -s,
/// sin[2i+1] = s, the form that interleaved pairs are multiplied with.
enum class row_form { separate, neighbours };

namespace detail {
template <row_form Form, class C>
inline void put(C* cos, C* sin, std::int64_t i, double c, double s) noexcept {
  const C cc = narrow<C>(c);
  const C ss = narrow<C>(s);
  if constexpr (Form == row_form::separate) {
    cos[i] = cc;
    sin[i] = ss;
  } else {
    cos[2 * i] = cc;
    cos[2 * i + 1] = cc;
    sin[2 * i] = narrow<C>(-s);
    sin[2 * i + 1] = ss;
  }
}
}  // namespace detail

/// cos and sin of `count` phases (units of 2^-64 turns), times `magnitude`; `direction` -1 turns the other way.
template <class Arch, row_form Form, class C>
void cos_sin_of_phases(const std::uint64_t* phases, std::int64_t count, double magnitude, double direction, C* cos,
                       C* sin) noexcept {
  using D = simd::batch<double, Arch>;
  using U = simd::batch<std::uint64_t, Arch>;
  constexpr std::int64_t step = simd::width<double, Arch>;
  alignas(64) std::uint64_t phase[step] = {};
  alignas(64) double c[step];
  alignas(64) double s[step];
  for (std::int64_t i = 0; i < count; i += step) {
    const std::int64_t n = std::min(step, count - i);
    const std::uint64_t* from = phases + i;
    if (n < step) from = std::copy(from, from + n, phase) - n;
    const auto [cosine, sine] = simd::cos_sin_of_phase(U::load_unaligned(from));
    (cosine * D(magnitude)).store_aligned(c);
    (sine * D(magnitude * direction)).store_aligned(s);
    for (std::int64_t j = 0; j < n; ++j) detail::put<Form>(cos, sin, i + j, c[j], s[j]);
  }
}

/// The row of one position. `steps[i]` is the frequency of pair i; `Position` is std::int64_t or double.
template <class Arch, row_form Form, class C, class Position>
void cos_sin_row(const math::turns* steps, std::int64_t pairs, Position position, double magnitude, double direction,
                 C* cos, C* sin) noexcept {
  constexpr std::int64_t block = 64;
  alignas(64) std::uint64_t phases[block];
  constexpr std::int64_t spread = Form == row_form::separate ? 1 : 2;
  for (std::int64_t i = 0; i < pairs; i += block) {
    const std::int64_t n = std::min(block, pairs - i);
    for (std::int64_t j = 0; j < n; ++j) phases[j] = math::phase(steps[i + j], position);
    cos_sin_of_phases<Arch, Form>(phases, n, magnitude, direction, cos + i * spread, sin + i * spread);
  }
}

/// The row of one position in the float32-angle compatibility mode: angle, cosine, sine and product with the magnitude
/// each rounded to float.
template <row_form Form, class C>
void cos_sin_row_float32(const float* inv_freq, std::int64_t pairs, double position, float magnitude, double direction,
                         C* cos, C* sin) noexcept {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float angle = math::float32_angle(position, inv_freq[i]);
    const float c = static_cast<float>(std::cos(static_cast<double>(angle))) * magnitude;
    const float s = static_cast<float>(std::sin(static_cast<double>(angle))) * magnitude;
    detail::put<Form>(cos, sin, i, c, direction * static_cast<double>(s));
  }
}

}  // namespace posenc::kernels
