// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// One token of a rotation: build its row of cos and sin once, apply it to all heads. Shared by `rope` and its tables.

#include <posenc/core/positions.hpp>
#include <posenc/encoders/rope_options.hpp>
#include <posenc/kernels/cos_sin.hpp>
#include <posenc/kernels/rotate.hpp>

#include <algorithm>
#include <cstdint>

namespace posenc::detail {

/// What a rotation needs to know of its encoder.
struct rope_frame {
  rope_layout layout;
  std::int64_t offset;
  std::int64_t rotary_dim;
  std::int64_t head_dim;
  const math::turns* steps;
  const float* float32;  // frequencies of a float32 angle mode, or null
};

/// The heads of one token.
template <class T>
struct row_span {
  T* data;
  std::int64_t head;
  std::int64_t dim;
};

struct constant_position {
  std::int64_t value;
};

inline void check_cover(const positions& at, const char* function, std::int64_t batch, std::int64_t tokens) {
  at.check(function, "positions", batch, tokens);
  require(at.axis_count() == 1, function, "positions", "must have one axis", at.axis_count());
}
inline void check_cover(const real_positions& at, const char* function, std::int64_t, std::int64_t tokens) {
  require(at.size() == tokens, function, "positions", "must list one position per token", at.size());
  for (std::int64_t t = 0; t < tokens; ++t)
    require(std::abs(at[t]) <= 1e15, function, "positions", "must be finite and within +-10^15", at[t]);
}
inline void check_cover(const constant_position&, const char*, std::int64_t, std::int64_t) {}

inline std::int64_t position_of(const positions& at, std::int64_t b, std::int64_t t) noexcept { return at(b, t); }
inline double position_of(const real_positions& at, std::int64_t, std::int64_t t) noexcept { return at[t]; }
inline std::int64_t position_of(const constant_position& at, std::int64_t, std::int64_t) noexcept { return at.value; }

/// Pairs first .. first + count - 1 of the row of one position.
template <class Arch, kernels::row_form Form, class R, class Position>
void rope_row(const rope_frame& f, std::int64_t first, std::int64_t count, Position at, double magnitude,
              double direction, R* cos, R* sin) {
  if (f.float32) {
    kernels::cos_sin_row_float32<Form>(f.float32 + first, count, static_cast<double>(at), static_cast<float>(magnitude),
                                       direction, cos, sin);
  } else {
    kernels::cos_sin_row<Arch, Form>(f.steps + first, count, at, magnitude, direction, cos, sin);
  }
}

/// Channels outside the rotated block are copied as they are.
template <class U>
void copy_rest(const rope_frame& f, row_span<const U> in, row_span<U> out, std::int64_t heads) {
  if (in.data == out.data) return;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t d = 0; d < f.head_dim; ++d)
      if (d < f.offset || d >= f.offset + f.rotary_dim)
        out.data[h * out.head + d * out.dim] = in.data[h * in.head + d * in.dim];
}

/// Rotates all heads of one token by the pairs first .. first + count - 1, given as a row.
template <class Arch, class U, class C>
void rotate_block(const rope_frame& f, row_span<const U> in, row_span<U> out, std::int64_t heads, std::int64_t first,
                  std::int64_t count, const C* cos, const C* sin) {
  const std::int64_t half = f.rotary_dim / 2;
  const bool split = f.layout == rope_layout::half_split;
  const std::int64_t channel = f.offset + (split ? first : 2 * first);
  if constexpr (simd_storage<U>) {
    if ((in.dim == 1 && out.dim == 1)) {
      if (split) {
        kernels::rotate_half<Arch>(in.data + channel, in.head, out.data + channel, out.head, heads, cos, sin, half,
                                   count);
      } else {
        kernels::rotate_interleaved<Arch>(in.data + channel, in.head, out.data + channel, out.head, heads, cos, sin,
                                          count);
      }
      return;
    }
  }
  for (std::int64_t h = 0; h < heads; ++h)
    kernels::rotate_pairs<U, C, Arch>(in.data + h * in.head + channel * in.dim, in.dim,
                                      out.data + h * out.head + channel * out.dim, out.dim, split ? half : 1,
                                      split ? 1 : 2, cos, sin, count);
}

/// Whether the row must be built in the form that interleaved SIMD kernels read.
template <class U>
bool wants_neighbours(const rope_frame& f, row_span<const U> in, row_span<U> out) noexcept {
  return simd_storage<U> && f.layout == rope_layout::interleaved && in.dim == 1 && out.dim == 1;
}

/// One token at one position: the row is built in blocks on the stack, so nothing is allocated.
template <class Arch, class U, class Position>
void rotate_token(const rope_frame& f, row_span<const U> in, row_span<U> out, std::int64_t heads, Position at,
                  double magnitude, double direction) {
  constexpr std::int64_t block = 128;
  using C = std::conditional_t<simd_storage<U>, compute_t<U>, double>;
  alignas(64) C cos[2 * block];
  alignas(64) C sin[2 * block];
  copy_rest(f, in, out, heads);
  for (std::int64_t first = 0; first < f.rotary_dim / 2; first += block) {
    const std::int64_t count = std::min(block, f.rotary_dim / 2 - first);
    if (wants_neighbours(f, in, out)) {
      rope_row<Arch, kernels::row_form::neighbours>(f, first, count, at, magnitude, direction, cos, sin);
    } else {
      rope_row<Arch, kernels::row_form::separate>(f, first, count, at, magnitude, direction, cos, sin);
    }
    rotate_block<Arch>(f, in, out, heads, first, count, cos, sin);
  }
}

}  // namespace posenc::detail
