// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What the absolute encodings share: the checks of a call, a row put into every head of a token, and blocks of sines
/// and cosines of exactly reduced angles laid out in such a row.
/// Error   sines and cosines are formed in double and rounded once to the compute type of the data (a table: once to
///         its type); a sum is rounded once more.
/// Cost    about 2 ns per channel for sines and cosines at integer positions, 13 to 26 at real ones, whose angles take
///         a longer product; nothing is allocated.

#include <posenc/core/error.hpp>
#include <posenc/core/positions.hpp>
#include <posenc/core/scalar.hpp>
#include <posenc/core/view.hpp>
#include <posenc/kernels/cos_sin.hpp>
#include <posenc/kernels/rows.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <ranges>
#include <type_traits>

namespace posenc::detail {

/// Refuses a view that is not rows of `dim` channels or that names an element twice.
template <class U>
void check_rows(const char* function, const view<U>& x, std::int64_t dim) {
  static_assert(!std::is_const_v<U>, "posenc: what is written to must be a view of elements that are not const");
  require(x.dim() == dim, function, "dim", "must equal the encoder's", x.dim());
  require(!x.repeats(), function, "x", "must not repeat elements through a stride of 0", "a stride of 0");
}
inline void check_axes(const char* function, int given, int axes) {
  require(given == axes, function, "positions",
          axes == 1 ? "must have one axis" : "must have as many axes as the encoder", given);
}
inline void check_cover(const char* function, const positions& at, std::int64_t batch, std::int64_t tokens, int axes) {
  at.check(function, "positions", batch, tokens);
  check_axes(function, at.axis_count(), axes);
}
inline void check_cover(const char* function, const real_positions& at, std::int64_t, std::int64_t tokens, int axes) {
  check_axes(function, at.axis_count(), axes);
  require(at.size() == tokens, function, "positions", "must list one position per token", at.size());
  for (std::int64_t i = 0; i < axes * tokens; ++i)
    require(std::abs(at[i]) <= 1e15, function, "positions", "must be finite and within +-10^15", at[i]);
}

[[nodiscard]] inline position coordinates(const positions& at, std::int64_t b, std::int64_t t) noexcept {
  return at.at(b, t);
}
[[nodiscard]] inline real_position coordinates(const real_positions& at, std::int64_t, std::int64_t t) noexcept {
  return at.at(t);
}

/// Ids of tokens or segments, or a mask: a vector, span or array of integers or bool.
template <class L>
concept integer_list =
    std::ranges::contiguous_range<L> && std::ranges::sized_range<L> && std::integral<std::ranges::range_value_t<L>>;

/// Refuses a list that does not name a row of 0 .. rows - 1 per token, for one batch row or for each of them.
template <class U, integer_list L>
void check_ids(const char* function, const view<U>& x, const L& ids, std::int64_t rows) {
  const auto count = static_cast<std::int64_t>(std::ranges::size(ids));
  require(count == x.tokens() || count == x.batch() * x.tokens(), function, "ids",
          "must list one id per token, for one batch row or for each", count);
  for (const auto id : ids) {
    bool inside = static_cast<std::uint64_t>(id) < static_cast<std::uint64_t>(rows);
    if constexpr (std::signed_integral<std::ranges::range_value_t<L>>) inside = inside && id >= 0;
    if (!inside) outside(function, "id", "must lie in 0.." + std::to_string(rows - 1), id);
  }
}
template <class U, integer_list L>
[[nodiscard]] std::int64_t id_of(const view<U>& x, const L& ids, std::int64_t b, std::int64_t t) noexcept {
  const bool shared = static_cast<std::int64_t>(std::ranges::size(ids)) == x.tokens();
  return static_cast<std::int64_t>(std::ranges::data(ids)[(shared ? 0 : b * x.tokens()) + t]);
}

/// The type in which a row is held before it is put into elements of U: a table is rounded once to its type, a sum once
/// more after the addition.
template <bool Add, class U>
using row_type = std::conditional_t<simd_storage<U> && (Add || simd_scalar<U>), compute_t<U>, double>;

/// Adds (or writes) n values to the channels channel, channel + apart, ... in every head of one token; what lies past
/// the end of the row is dropped.
template <class Arch, bool Add, class U, class R>
void put_row(const view<U>& x, std::int64_t b, std::int64_t t, std::int64_t channel, const R* row, std::int64_t n,
             std::int64_t apart = 1) {
  n = std::min(n, (x.dim() - channel + apart - 1) / apart);
  if (n <= 0) return;
  const std::int64_t step = x.steps().dim * apart;
  for (std::int64_t h = 0; h < x.heads(); ++h) {
    U* to = x.row(b, t, h) + channel * x.steps().dim;
    if constexpr (Add && simd_storage<U> && simd_storage<R>) {
      if constexpr (std::same_as<compute_t<U>, compute_t<R>>) {
        if (step == 1) {
          kernels::add_row<Arch>(to, row, n);
          continue;
        }
      }
    } else if constexpr (!Add && simd_scalar<U> && std::same_as<U, R>) {
      // Not memmove: its string instructions cost ten times this on some processors.
      if (step == 1) {
        simd::for_lanes<Arch, U>(
            n, [&](std::int64_t i, auto at) POSENC_LAMBDA_INLINE { at.store(to + i, at.load(row + i)); });
        continue;
      }
    }
    for (std::int64_t d = 0; d < n; ++d) {
      U& element = to[d * step];
      if constexpr (!Add) {
        element = narrow<U>(widen(row[d]));
      } else if constexpr (simd_storage<U> && simd_storage<R>) {
        element = narrow<U>(widen(element) + widen(row[d]));
      } else {
        element = narrow<U>(widen(element) + static_cast<compute_t<U>>(widen(row[d])));
      }
    }
  }
}

template <class U>
void clear_row(const view<U>& x, std::int64_t b, std::int64_t t) {
  for (std::int64_t h = 0; h < x.heads(); ++h)
    for (std::int64_t d = 0; d < x.dim(); ++d) x(b, t, h, d) = narrow<U>(0.0);
}

/// Pair i stands at channels sine + i * step and cosine + i * step; the first `sines` and `cosines` pairs have one.
struct sine_place {
  std::int64_t sine = 0;
  std::int64_t cosine = 0;
  std::int64_t step = 1;
  std::int64_t sines = 0;
  std::int64_t cosines = 0;
};

/// One block of a row: sines and cosines of `at` times the frequencies `steps`. Channels from x.dim() on are dropped.
/// `Position` is std::int64_t or double.
template <class Arch, bool Add, class U, class Position>
void put_sines(const view<U>& x, std::int64_t b, std::int64_t t, const math::turns* steps, const sine_place& place,
               double scale, Position at) {
  constexpr std::int64_t block = 64;
  using C = row_type<Add, U>;
  alignas(64) C cosine[block];
  alignas(64) C sine[block];
  const std::int64_t pairs = std::max(place.sines, place.cosines);
  for (std::int64_t i = 0; i < pairs; i += block) {
    const std::int64_t n = std::min(block, pairs - i);
    kernels::cos_sin_row<Arch, kernels::row_form::separate>(steps + i, n, at, scale, 1.0, cosine, sine);
    const std::int64_t to_sine = place.sine + i * place.step;
    const std::int64_t to_cosine = place.cosine + i * place.step;
    const std::int64_t n_sin = std::clamp<std::int64_t>(place.sines - i, 0, n);
    const std::int64_t n_cos = std::clamp<std::int64_t>(place.cosines - i, 0, n);
    const bool sine_first = to_sine < to_cosine;
    const std::int64_t first = std::min(to_sine, to_cosine);
    if (place.step == 2 && std::abs(to_cosine - to_sine) == 1 && (sine_first ? n_sin >= n_cos : n_cos >= n_sin)) {
      C both[2 * block];
      for (std::int64_t j = 0; j < n; ++j) {
        both[2 * j] = sine_first ? sine[j] : cosine[j];
        both[2 * j + 1] = sine_first ? cosine[j] : sine[j];
      }
      put_row<Arch, Add>(x, b, t, first, both, n_sin + n_cos);
      continue;
    }
    put_row<Arch, Add>(x, b, t, to_sine, sine, n_sin, place.step);
    put_row<Arch, Add>(x, b, t, to_cosine, cosine, n_cos, place.step);
  }
}

}  // namespace posenc::detail
