// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Timestep embedding of diffusion models: with h = floor(dim / 2) and f(k) = max_period^(-k / (h - shift)), a row is
/// [sin a | cos a] of a(k) = scale * t * f(k), or [cos a | sin a] with flip_sin_to_cos; an odd dim ends in a zero.
/// gaussian_fourier takes its own frequencies instead: [sin | cos] of 2 pi t w(k) (NCSN++).
/// Domain   every int64 timestep and real ones within +-10^15.
/// Error    scale * f(k) is formed to 106 bits, each value is rounded once from double to the type of the row.
/// Cost     about 2 ns per channel, 13 to 26 for real timesteps; nothing is allocated.
/// Throws   std::invalid_argument for impossible options or a view of another dim, before anything is written.
/// Who uses it  DDPM, Stable Diffusion and every U-Net of diffusers, DiT; NCSN++ (gaussian_fourier).
/// Example  examples/absolute_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/positions.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/embedding_rows.hpp>
#include <posenc/math/frequencies.hpp>

#include <optional>
#include <span>
#include <vector>

namespace posenc {

/// The defaults are diffusers' own: sines first, shift 1. Stable Diffusion: flip_sin_to_cos, shift 0.
struct timestep_options {
  std::int64_t dim = 0;
  bool flip_sin_to_cos = false;
  /// Less than h; h itself where h is 1, and then f(0) = 1.
  double downscale_freq_shift = 1;
  /// On the timesteps.
  double scale = 1;
  double max_period = 10000;
};

/// T is the scalar of `table(timesteps)`; data of any type is written under any T.
template <class T = float>
class timestep {
 public:
  static constexpr encoder_traits traits{.name = "timestep",
                                         .site = site::input,
                                         .relation = relation::absolute,
                                         .origin = origin::designed,
                                         .translation_invariant = false,
                                         .symmetric = false};

  explicit timestep(const timestep_options& o) : options_(o) {
    const std::int64_t half = o.dim / 2;
    const double shift = o.downscale_freq_shift;
    detail::require(o.dim >= 2, "timestep", "dim", "must be at least 2", o.dim);
    detail::require(std::isfinite(o.scale), "timestep", "scale", "must be finite", o.scale);
    detail::require(std::isfinite(o.max_period) && o.max_period > 0, "timestep", "max_period",
                    "must be positive and finite", o.max_period);
    detail::require(std::isfinite(shift) &&
                        (shift < static_cast<double>(half) || (half == 1 && shift == static_cast<double>(half))),
                    "timestep", "downscale_freq_shift", "must be less than dim / 2, or 1 for one frequency", shift);
    for (const auto& f : math::ladder(o.max_period, half, static_cast<double>(half) - shift)) {
      const math::double_double scaled = f * math::double_double(o.scale);
      detail::require(std::abs(scaled.hi) <= 0x1p32, "timestep", "scale", "must keep every frequency within 2^32",
                      o.scale);
      steps_.emplace_back(scaled);
    }
  }

  /// Gaussian Fourier features: dim 2 n, [sin | cos] of 2 pi t weights[k]; the n weights are a checkpoint's or drawn
  /// once from N(0, scale^2). Models that embed log t give it log t.
  [[nodiscard]] static timestep gaussian_fourier(std::span<const double> weights, bool flip_sin_to_cos = false) {
    detail::require(!weights.empty(), "timestep::gaussian_fourier", "weights", "must not be empty", weights.size());
    for (const double w : weights)
      detail::require(std::abs(w) <= 0x1p29, "timestep::gaussian_fourier", "weights",
                      "must be finite and within +-2^29", w);
    timestep out;
    out.options_ = {.dim = 2 * static_cast<std::int64_t>(weights.size()), .flip_sin_to_cos = flip_sin_to_cos};
    for (const double w : weights) out.steps_.emplace_back(math::two_pi * math::double_double(w));
    return out;
  }

  /// Writes the row of each token's timestep into every head.
  template <class U, class Arch = simd::default_arch>
  void table(view<U> out, const positions& timesteps) const {
    apply<Arch, false>("timestep::table", out, timesteps);
  }
  template <class U, class Arch = simd::default_arch>
  void table(view<U> out, const real_positions& timesteps) const {
    apply<Arch, false>("timestep::table", out, timesteps);
  }
  /// Adds it.
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, const positions& timesteps) const {
    apply<Arch, true>("timestep::embed", x, timesteps);
  }
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, const real_positions& timesteps) const {
    apply<Arch, true>("timestep::embed", x, timesteps);
  }

  /// The rows of the timesteps, row-major.
  [[nodiscard]] std::vector<T> table(std::span<const double> timesteps) const {
    std::vector<T> out(timesteps.size() * static_cast<std::size_t>(dim()));
    table(view<T>(out.data(), {.tokens = static_cast<std::int64_t>(timesteps.size()), .dim = dim()}),
          real_positions(timesteps));
    return out;
  }

  [[nodiscard]] std::int64_t dim() const noexcept { return options_.dim; }
  [[nodiscard]] bool flip_sin_to_cos() const noexcept { return options_.flip_sin_to_cos; }

  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = 0,
            .table_bytes = static_cast<std::int64_t>(steps_.size() * sizeof(math::turns)),
            .monotone = false,
            .shift = cache_shift::recompute_keys,
            .shift_reason = "rows enter the input and lie inside the keys"};
  }

 private:
  timestep() = default;

  template <class Arch, bool Add, class U, class At>
  void apply(const char* function, view<U> x, const At& at) const {
    if (x.empty()) return;
    detail::check_rows(function, x, dim());
    detail::check_cover(function, at, x.batch(), x.tokens(), 1);
    const auto half = static_cast<std::int64_t>(steps_.size());
    const bool flip = options_.flip_sin_to_cos;
    const detail::sine_place place{.sine = flip ? half : 0, .cosine = flip ? 0 : half, .sines = half, .cosines = half};
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) {
        detail::put_sines<Arch, Add>(x, b, t, steps_.data(), place, 1.0, detail::coordinates(at, b, t)[0]);
        if (!Add && dim() % 2 != 0)
          for (std::int64_t h = 0; h < x.heads(); ++h) x(b, t, h, dim() - 1) = narrow<U>(0.0);
      }
  }

  timestep_options options_;
  std::vector<math::turns> steps_;
};

}  // namespace posenc
