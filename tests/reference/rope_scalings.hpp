// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The frequencies of scaled RoPE in long double, each from a form of its formula that is not the library's: stretched
/// bases as powers of the factor on plain frequencies, ramps by the share that is kept, wavelengths in positions.
/// It includes no header of the library and shares no line with it.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

namespace oracle {

using wide = long double;
using wides = std::vector<wide>;

/// What a scaling says: frequencies, the magnitude on cos and sin, the factor on the softmax scale.
struct scaled_rope {
  wides f;
  wide magnitude = 1;
  wide softmax = 1;
};

inline wides plain_rope(wide b, std::int64_t r) {
  wides f;
  for (std::int64_t channel = 0; channel < r; channel += 2)
    f.push_back(std::exp(-std::log(b) * static_cast<wide>(channel) / static_cast<wide>(r)));
  return f;
}

/// f(i) s^(-slope i - start): every stretched base is of this form.
inline wides fading(wides f, wide s, wide slope, wide start = 0) {
  for (std::size_t i = 0; i < f.size(); ++i) f[i] *= std::pow(s, -(slope * static_cast<wide>(i) + start));
  return f;
}
inline wides ntk_aware_rope(wide b, std::int64_t r, wide s) {
  return fading(plain_rope(b, r), s, 2 / static_cast<wide>(r - 2));
}
inline wides ntk_fixed_rope(wide b, std::int64_t r, wide s) {
  return fading(plain_rope(b, r), s, 2 / static_cast<wide>(r), 2 / static_cast<wide>(r));
}
inline wides ntk_base_rope(wide b, std::int64_t r, wide s) {
  return fading(plain_rope(b, r), s, 2 / static_cast<wide>(r));
}
inline wides ntk_mixed_rope(wide b, std::int64_t r, wide s, wide power) {
  wides f = plain_rope(b, r);
  const wide h = static_cast<wide>(f.size());
  for (std::size_t i = 0; i < f.size(); ++i) f[i] *= std::pow(s, -std::pow((static_cast<wide>(i) + 1) / h, power));
  return f;
}
inline wides dynamic_rope(wide b, std::int64_t r, wide s, wide trained, wide length) {
  if (length <= trained) return plain_rope(b, r);
  return ntk_aware_rope(b, r, 1 + s * (length - trained) / trained);
}

/// The pair whose wave turns n times within L positions.
inline wide pair_that_turns(wide n, wide L, wide b, std::int64_t r) {
  return static_cast<wide>(r) / 2 * std::log(L / (n * 2 * std::numbers::pi_v<wide>)) / std::log(b);
}

enum class inverted { none, as_it_stands, held_apart };

/// The share of the old frequency that pair i keeps.
struct kept_share {
  wide from;
  wide to;
  kept_share(wide fast, wide slow, wide L, wide b, std::int64_t r, bool whole = true, inverted how = inverted::none) {
    from = pair_that_turns(fast, L, b, r);
    to = pair_that_turns(slow, L, b, r);
    if (whole) from = std::floor(from), to = std::ceil(to);
    if (from < 0) from = 0;
    if (to > static_cast<wide>(r - 1)) to = static_cast<wide>(r - 1);
    if (how == inverted::held_apart ? to < from + 0.001L : to == from) to = from + 0.001L;
  }
  [[nodiscard]] wide of(std::size_t i) const {
    const wide gone = (static_cast<wide>(i) - from) / (to - from);
    return gone <= 0 ? 1 : gone >= 1 ? 0 : 1 - gone;
  }
};

inline wide log_magnitude(wide s, wide k) { return s > 1 ? k * std::log(s) / 10 + 1 : 1; }

struct yarn_rule {
  wide s = 1;
  wide L = 0;
  wide fast = 32;
  wide slow = 1;
  bool whole = true;
  inverted how = inverted::none;
  wide heard = 1;
};
/// Periods are blended, as the MLX implementation does: 1 / f' = 1 / f * s / (kept * (s - 1) + 1).
inline wides yarn_rope(wide b, std::int64_t r, const yarn_rule& y) {
  wides f = plain_rope(b, r);
  const kept_share share(y.fast, y.slow, y.L, b, r, y.whole, y.how);
  for (std::size_t i = 0; i < f.size(); ++i) {
    const wide kept = share.of(i) * y.heard;
    f[i] = 1 / (1 / f[i] * y.s / (kept * (y.s - 1) + 1));
  }
  return f;
}

struct parts_rule {
  wide s = 1;
  wide L = 0;
  wide beta_0 = 1.25L;
  wide beta_1 = 0.75L;
  wide gamma_0 = 16;
  wide gamma_1 = 2;
};
inline wides by_parts_rope(wide b, std::int64_t r, const parts_rule& p) {
  const kept_share outer(p.beta_0, p.beta_1, p.L, b, r);
  const kept_share inner(p.gamma_0, p.gamma_1, p.L, b, r);
  const wides f = plain_rope(b, r);
  wides g = ntk_aware_rope(b, r, p.s);
  for (std::size_t i = 0; i < f.size(); ++i) {
    g[i] = f[i] / p.s + outer.of(i) * (g[i] - f[i] / p.s);
    g[i] += inner.of(i) * (f[i] - g[i]);
  }
  return g;
}

/// By wavelengths in positions: above L / low divided, below L / high kept, between the two by the wave numbers.
inline wides llama3_rope(wides f, wide s, wide low, wide high, wide L) {
  for (wide& x : f) {
    const wide wave = 2 * std::numbers::pi_v<wide> / x;
    if (wave < L / high || (low == high && wave <= L / low)) continue;
    if (wave > L / low || low == high) {
      x /= s;
      continue;
    }
    const wide smooth = (L / wave - low) / (high - low);
    x = (1 - smooth) * x / s + smooth * x;
  }
  return f;
}

inline wide longrope_magnitude(wide s, wide L) { return s > 1 ? std::sqrt(1 + std::log(s) / std::log(L)) : 1; }

inline wides proportional_rope(wide b, std::int64_t d, std::int64_t turning, wide s) {
  wides f = plain_rope(b, d);
  for (std::size_t i = 0; i < f.size(); ++i) f[i] = static_cast<std::int64_t>(i) < turning ? f[i] / s : 0;
  return f;
}

inline wides pixel_rope(std::int64_t r, wide max_freq) {
  const std::int64_t h = r / 2;
  wides f;
  for (std::int64_t i = 0; i < h; ++i) {
    const wide along = h > 1 ? static_cast<wide>(i) / static_cast<wide>(h - 1) : 0;
    f.push_back(std::numbers::pi_v<wide> * ((1 - along) + along * max_freq / 2));
  }
  return f;
}

}  // namespace oracle
