// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Angles without error: the turns of frequency * position in units of 2^-128, from a frequency that is a double or 128
/// bits wide and from 320 bits of 1 / (2 pi).

#include "reference/constants.hpp"
#include "reference/natural.hpp"

#include <cmath>
#include <cstdint>

namespace reference {

[[nodiscard]] inline binary wide(const wide_value& v) {
  return {v.negative, natural::from_words({v.high, v.low}), v.exponent};
}

/// The phase of `frequency * position` (radians) modulo one turn: `units` of 2^-64 turns, rounded down, and the 64 bits
/// below them.
struct exact_phase {
  std::uint64_t units;
  std::uint64_t below;
};

[[nodiscard]] inline exact_phase phase_of(const binary& frequency, const binary& position) {
  binary turns = frequency * position;
  turns.magnitude = turns.magnitude * natural::from_words({inverse_two_pi[0], inverse_two_pi[1], inverse_two_pi[2],
                                                           inverse_two_pi[3], inverse_two_pi[4]});
  turns.exponent -= 320;
  // Units of 2^-128 turns; what lies below is dropped.
  const int shift = turns.exponent + 128;
  const natural scaled = shift >= 0 ? turns.magnitude << static_cast<std::size_t>(shift)
                                    : turns.magnitude >> static_cast<std::size_t>(-shift);
  std::uint64_t low = scaled.word_at(0);
  std::uint64_t high = scaled.word_at(64);
  if (turns.negative) {
    high = ~high + (low == 0 ? 1 : 0);
    low = std::uint64_t{0} - low;
  }
  return {high, low};
}

[[nodiscard]] inline binary integer(std::int64_t p) {
  const std::uint64_t magnitude =
      p < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(p) : static_cast<std::uint64_t>(p);
  return {p < 0, natural(magnitude), 0};
}

/// cos and sin of a phase, in long double, by the nearest eighth of a turn.
struct cosine_sine {
  long double cos;
  long double sin;
};
[[nodiscard]] inline cosine_sine cosine_sine_of(exact_phase p) {
  constexpr long double turn = 6.283185307179586476925286766559005768L;
  const std::uint64_t eighth = (p.units + (std::uint64_t{1} << 60)) >> 61;
  const auto offset = static_cast<std::int64_t>(p.units - (eighth << 61));
  const long double x =
      (std::ldexp(static_cast<long double>(offset), -64) + std::ldexp(static_cast<long double>(p.below), -128)) * turn;
  const long double c = std::cos(x);
  const long double s = std::sin(x);
  constexpr long double r = 0.707106781186547524400844362104849039L;
  switch (eighth & 7) {
    case 1: return {r * (c - s), r * (c + s)};
    case 2: return {-s, c};
    case 3: return {-r * (c + s), r * (c - s)};
    case 4: return {-c, -s};
    case 5: return {r * (s - c), -r * (c + s)};
    case 6: return {s, -c};
    case 7: return {r * (c + s), r * (s - c)};
    default: return {c, s};
  }
}

}  // namespace reference
