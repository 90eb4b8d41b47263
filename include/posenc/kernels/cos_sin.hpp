// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Rows of cos and sin: one position against a list of frequencies, exactly reduced in 64-bit turns, computed in double
/// and rounded once to the type of the row.
/// Error   float: 3.0e-8 at every position up to 10^9 for a magnitude up to 1, above it half a step of float at the
///         magnitude, 6.0e-8 up to 2; double: 1e-12 at 10^6, 1e-9 at 10^9, times max(1, magnitude).
/// Cost    measured in bench/: a few ns per pair.

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

/// Pairs of a block: phases and values of one block fit the first-level cache and the stack.
inline constexpr std::int64_t row_block = 64;

/// n values of cos and sin to their places in a row.
template <row_form Form, class V, class C>
void place(const V* c, const V* s, std::int64_t n, C* cos, C* sin) noexcept {
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (Form == row_form::separate) {
      cos[i] = narrow<C>(c[i]);
      sin[i] = narrow<C>(s[i]);
    } else {
      cos[2 * i] = cos[2 * i + 1] = narrow<C>(c[i]);
      sin[2 * i] = narrow<C>(-s[i]);
      sin[2 * i + 1] = narrow<C>(s[i]);
    }
  }
}
}  // namespace detail

/// cos and sin of `count` phases (units of 2^-64 turns), times `magnitude`; `direction` -1 turns the other way. R is
/// float or double. `phases`, `cos` and `sin` have room for whole batches: count rounded up to 8.
template <class Arch, class R>
void cos_sin_of_phases(const std::uint64_t* phases, std::int64_t count, double magnitude, double direction, R* cos,
                       R* sin) noexcept {
  using D = simd::batch<double, Arch>;
  using U = simd::batch<std::uint64_t, Arch>;
  for (std::int64_t i = 0; i < count; i += simd::width<double, Arch>) {
    const auto [cosine, sine] = simd::cos_sin_of_phase(U::load_unaligned(phases + i));
    simd::store_rounded<Arch>(cos + i, cosine * D(magnitude));
    simd::store_rounded<Arch>(sin + i, sine * D(magnitude * direction));
  }
}

/// A row of `pairs` phases: pair i stands at `phase_of(i)`, in units of 2^-64 turns.
template <class Arch, row_form Form, class C, class PhaseOf>
void cos_sin_row_of(PhaseOf phase_of, std::int64_t pairs, double magnitude, double direction, C* cos, C* sin) noexcept {
  // 16-bit rows are rounded from double, not from an intermediate float.
  using R = std::conditional_t<std::same_as<C, float>, float, double>;
  constexpr std::int64_t block = detail::row_block;
  alignas(64) std::uint64_t phases[block];
  alignas(64) R c[block];
  alignas(64) R s[block];
  for (std::int64_t i = 0; i < pairs; i += block) {
    const std::int64_t n = std::min(block, pairs - i);
    for (std::int64_t j = 0; j < n; ++j) phases[j] = phase_of(i + j);
    for (std::int64_t j = n; j < (n + 7) / 8 * 8; ++j) phases[j] = 0;
    if constexpr (Form == row_form::separate && std::same_as<C, R>) {
      if (n == block) {
        cos_sin_of_phases<Arch>(phases, n, magnitude, direction, cos + i, sin + i);
        continue;
      }
    }
    cos_sin_of_phases<Arch>(phases, n, magnitude, direction, c, s);
    constexpr std::int64_t spread = Form == row_form::separate ? 1 : 2;
    detail::place<Form>(c, s, n, cos + i * spread, sin + i * spread);
  }
}

/// The row of one position. `steps[i]` is the frequency of pair i; `Position` is std::int64_t or double.
template <class Arch, row_form Form, class C, class Position>
void cos_sin_row(const math::turns* steps, std::int64_t pairs, Position position, double magnitude, double direction,
                 C* cos, C* sin) noexcept {
  cos_sin_row_of<Arch, Form>([=](std::int64_t i) POSENC_LAMBDA_INLINE { return math::phase(steps[i], position); },
                             pairs, magnitude, direction, cos, sin);
}

/// A row of float32 angles: cosine, sine and product with the magnitude each rounded to float.
template <row_form Form, class C>
void cos_sin_row_float32(const float* angles, std::int64_t pairs, float magnitude, double direction, C* cos,
                         C* sin) noexcept {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float c = static_cast<float>(std::cos(static_cast<double>(angles[i]))) * magnitude;
    const float s =
        static_cast<float>(std::sin(static_cast<double>(angles[i]))) * magnitude * static_cast<float>(direction);
    constexpr std::int64_t spread = Form == row_form::separate ? 1 : 2;
    detail::place<Form>(&c, &s, 1, cos + i * spread, sin + i * spread);
  }
}

}  // namespace posenc::kernels
