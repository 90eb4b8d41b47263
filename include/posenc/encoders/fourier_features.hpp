// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Fourier features of real coordinates: sin(pi x_a f) and cos(pi x_a f) over the axes a and the bands f of each, after
/// the coordinates themselves if `concat_pos`.
///   Perceiver   `num_bands` bands evenly spaced from 1 to max_resolution(a) / 2, coordinates in -1..1.
///   NeRF        `nerf(options)`: f = 2^k, k = 0, 1, ...
/// Domain   real coordinates within +-10^15, 1 to 4 axes.
/// Error    each value is rounded once from double to the type of the row.
/// Cost     14 to 28 ns per channel; nothing is allocated.
/// Throws   std::invalid_argument for impossible options or a view of another dim, before anything is written.
/// Who uses it  Perceiver, Perceiver IO; NeRF and its successors.
/// Example  examples/absolute_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/positions.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/embedding_rows.hpp>

#include <optional>
#include <vector>

namespace posenc {

/// Order of the features after the coordinates. by_function: all sines, axis by axis, then all cosines (Perceiver).
/// by_band: for each band the sines of all axes, then their cosines (NeRF's code). by_axis: for each axis and band a
/// sine and a cosine (the formula of the NeRF paper).
enum class fourier_order { by_function, by_band, by_axis };

struct fourier_features_options {
  std::int64_t num_bands = 0;
  /// One per axis.
  std::vector<double> max_resolution{};
  bool concat_pos = true;
  bool sine_only = false;
  fourier_order order = fourier_order::by_function;
};

/// Bands 2^k, k = 0 .. num_freqs - 1, on every axis.
struct nerf_options {
  int axes = 3;
  std::int64_t num_freqs = 10;
  /// The paper has angles 2^k pi x, the published code 2^k x.
  bool times_pi = true;
  bool include_input = true;
  fourier_order order = fourier_order::by_band;
};

class fourier_features {
 public:
  static constexpr encoder_traits traits{.name = "fourier_features",
                                         .site = site::input,
                                         .relation = relation::absolute,
                                         .origin = origin::designed,
                                         .translation_invariant = false,
                                         .symmetric = false};

  explicit fourier_features(const fourier_features_options& o) : fourier_features(o, "fourier_features") {
    for (const double resolution : o.max_resolution) {
      detail::require(std::abs(resolution) <= 0x1p32, "fourier_features", "max_resolution",
                      "must be finite and within +-2^32", resolution);
      const double last = resolution / 2;
      for (std::int64_t m = 0; m < o.num_bands; ++m) {
        const double f = m == 0 ? 1 : 1 + static_cast<double>(m) * (last - 1) / static_cast<double>(o.num_bands - 1);
        steps_.emplace_back(math::two_pi * math::double_double(f / 2));
      }
    }
  }

  [[nodiscard]] static fourier_features nerf(const nerf_options& o) {
    constexpr const char* function = "fourier_features::nerf";
    detail::require(o.axes >= 1 && o.axes <= position::max_axes, function, "axes", "must lie in 1..4", o.axes);
    detail::require(o.num_freqs >= 1 && o.num_freqs <= 30, function, "num_freqs", "must lie in 1..30", o.num_freqs);
    fourier_features out({.num_bands = o.num_freqs,
                          .max_resolution = std::vector<double>(static_cast<std::size_t>(o.axes), 0.0),
                          .concat_pos = o.include_input,
                          .order = o.order},
                         function);
    const math::double_double first = o.times_pi ? math::two_pi * math::double_double(0.5) : math::double_double(1);
    for (int a = 0; a < o.axes; ++a)
      for (std::int64_t k = 0; k < o.num_freqs; ++k)
        out.steps_.emplace_back(first * math::double_double(std::ldexp(1.0, static_cast<int>(k))));
    return out;
  }

  /// Writes the features of each token's coordinates (`real_positions::axes`) into every head.
  template <class U, class Arch = simd::default_arch>
  void table(view<U> out, const real_positions& at) const {
    apply<Arch, false>("fourier_features::table", out, at);
  }
  /// Adds them.
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, const real_positions& at) const {
    apply<Arch, true>("fourier_features::embed", x, at);
  }

  [[nodiscard]] int axes() const noexcept { return static_cast<int>(options_.max_resolution.size()); }
  /// Channels: axes * num_bands sines, as many cosines unless sine_only, and the coordinates if concat_pos.
  [[nodiscard]] std::int64_t dim() const noexcept {
    return axes() * ((options_.concat_pos ? 1 : 0) + (options_.sine_only ? 1 : 2) * options_.num_bands);
  }
  [[nodiscard]] const fourier_features_options& options() const noexcept { return options_; }

  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = 0,
            .table_bytes = static_cast<std::int64_t>(steps_.size() * sizeof(math::turns)),
            .monotone = false,
            .shift = cache_shift::recompute_keys,
            .shift_reason = "features enter the input and lie inside the keys"};
  }

 private:
  fourier_features(const fourier_features_options& o, const char* function) : options_(o) {
    detail::require(o.num_bands >= 1 && o.num_bands <= (std::int64_t{1} << 24), function, "num_bands",
                    "must lie in 1..2^24", o.num_bands);
    detail::require(!o.max_resolution.empty() && o.max_resolution.size() <= position::max_axes, function,
                    "max_resolution", "must list one to four axes", o.max_resolution.size());
  }

  [[nodiscard]] detail::sine_place place(std::int64_t axis) const noexcept {
    const std::int64_t n = options_.num_bands;
    const std::int64_t first = options_.concat_pos ? axes() : 0;
    const std::int64_t cosines = options_.sine_only ? 0 : n;
    const std::int64_t functions = options_.sine_only ? 1 : 2;
    switch (options_.order) {
      case fourier_order::by_function: return {first + axis * n, first + (axes() + axis) * n, 1, n, cosines};
      case fourier_order::by_band: return {first + axis, first + axes() + axis, functions * axes(), n, cosines};
      default: {
        const std::int64_t from = first + axis * functions * n;
        return {from, from + 1, functions, n, cosines};
      }
    }
  }

  template <class Arch, bool Add, class U>
  void apply(const char* function, view<U> x, const real_positions& at) const {
    if (x.empty()) return;
    detail::check_rows(function, x, dim());
    detail::check_cover(function, at, x.batch(), x.tokens(), axes());
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) {
        const real_position p = at.at(t);
        if (options_.concat_pos) detail::put_row<Arch, Add>(x, b, t, 0, p.axis.data(), axes());
        for (int a = 0; a < axes(); ++a)
          detail::put_sines<Arch, Add>(x, b, t, steps_.data() + a * options_.num_bands, place(a), 1.0, p[a]);
      }
  }

  fourier_features_options options_;
  std::vector<math::turns> steps_;
};

}  // namespace posenc
