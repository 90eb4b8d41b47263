// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Sinusoids on a grid (images, video): a row is the concatenation of one-dimensional sinusoidal rows, one per block,
/// each of the coordinate c on the block's axis: sines and cosines of c * coordinate_scale(axis) * base^(-k / den).
/// Which axis comes first is where models differ, so it is written down: MAE puts x (the last axis) before y.
/// Cells    run in row-major order of the extents, the last axis fastest: (y, x) for images, (t, y, x) for video.
/// Domain   every int64 coordinate and real ones within +-10^15, up to 4 axes.
/// Error    each value is rounded once from double to the compute type of the data; one rounding of the sum.
/// Cost     over a whole grid sines and cosines are formed once per index of an axis and copied, so the cost per
///          element is that of a copy; listed positions cost about 2 ns per channel. A whole grid allocates those rows.
/// Throws   std::invalid_argument for impossible options or a view of another shape, before anything is written.
/// Who uses it  MAE, MoCo v3, DiT, PixArt, Stable Diffusion 3, CogVideoX, multidim-positional-encoding, tensor2tensor.
/// Example  examples/absolute_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/positions.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/embedding_rows.hpp>
#include <posenc/encoders/sinusoidal.hpp>
#include <posenc/math/frequencies.hpp>

#include <optional>
#include <span>
#include <vector>

namespace posenc {

/// Channels that belong to one axis of the grid, counted from 0.
struct grid_block {
  int axis = 0;
  std::int64_t channels = 0;
  friend constexpr bool operator==(const grid_block&, const grid_block&) = default;
};

struct grid_sinusoidal_options {
  std::int64_t dim = 0;
  double base = 10000;
  sinusoidal_layout layout = sinusoidal_layout::concat_sin_cos;
  sinusoidal_denominator denominator = sinusoidal_denominator::half;
  /// In the order of the row. What exceeds dim is cut; channels past the last block are zero.
  std::vector<grid_block> blocks{};
  /// Rows of zeros before the cells, for class tokens.
  std::int64_t prefix_rows = 0;
  /// One factor per axis on its coordinates; empty: 1.
  std::vector<double> coordinate_scale{};

  /// MAE, MoCo v3, DiT: dim / 2 channels of x, then of y, for a grid (y, x).
  [[nodiscard]] static grid_sinusoidal_options mae(std::int64_t dim, std::int64_t prefix_rows = 0) {
    detail::require(dim >= 4 && dim % 4 == 0, "grid_sinusoidal_options::mae", "dim", "must be a multiple of 4", dim);
    return {.dim = dim, .blocks = {{1, dim / 2}, {0, dim / 2}}, .prefix_rows = prefix_rows};
  }
  /// diffusers in 2-D: MAE's row at index / (extent / base_size) / interpolation_scale, extents (rows, columns).
  [[nodiscard]] static grid_sinusoidal_options diffusers_2d(std::int64_t dim, std::int64_t rows, std::int64_t columns,
                                                            std::int64_t base_size, double interpolation_scale = 1) {
    constexpr const char* function = "grid_sinusoidal_options::diffusers_2d";
    detail::require(rows >= 1, function, "rows", "must be at least 1", rows);
    detail::require(columns >= 1, function, "columns", "must be at least 1", columns);
    detail::require(base_size >= 1, function, "base_size", "must be at least 1", base_size);
    detail::require(std::isfinite(interpolation_scale) && interpolation_scale > 0, function, "interpolation_scale",
                    "must be positive and finite", interpolation_scale);
    grid_sinusoidal_options o = mae(dim);
    const auto size = static_cast<double>(base_size);
    o.coordinate_scale = {size / (static_cast<double>(rows) * interpolation_scale),
                          size / (static_cast<double>(columns) * interpolation_scale)};
    return o;
  }
  /// diffusers in 3-D, CogVideoX: dim / 4 channels of t, then 3 dim / 8 of x and of y, for a grid (t, y, x).
  [[nodiscard]] static grid_sinusoidal_options diffusers_3d(std::int64_t dim, double spatial_interpolation_scale = 1,
                                                            double temporal_interpolation_scale = 1) {
    constexpr const char* function = "grid_sinusoidal_options::diffusers_3d";
    detail::require(dim >= 16 && dim % 16 == 0, function, "dim", "must be a multiple of 16", dim);
    detail::require(std::isfinite(spatial_interpolation_scale) && spatial_interpolation_scale > 0, function,
                    "spatial_interpolation_scale", "must be positive and finite", spatial_interpolation_scale);
    detail::require(std::isfinite(temporal_interpolation_scale) && temporal_interpolation_scale > 0, function,
                    "temporal_interpolation_scale", "must be positive and finite", temporal_interpolation_scale);
    const double space = 1 / spatial_interpolation_scale;
    return {.dim = dim,
            .blocks = {{0, dim / 4}, {2, 3 * dim / 8}, {1, 3 * dim / 8}},
            .coordinate_scale = {1 / temporal_interpolation_scale, space, space}};
  }
  /// multidim-positional-encoding: axes in order, 2 ceil(dim / (2 axes)) interleaved channels each, cut to dim.
  [[nodiscard]] static grid_sinusoidal_options multidim(std::int64_t dim, int axes) {
    return in_order("grid_sinusoidal_options::multidim", dim, axes, (dim + 2 * axes - 1) / (2 * (axes < 1 ? 1 : axes)),
                    sinusoidal_layout::interleaved_sin_cos, sinusoidal_denominator::half);
  }
  /// tensor2tensor's get_timing_signal_nd: axes in order, floor(dim / (2 axes)) sines and cosines each, the rest zero.
  [[nodiscard]] static grid_sinusoidal_options tensor2tensor(std::int64_t dim, int axes) {
    detail::require(axes < 1 || dim >= 2 * axes, "grid_sinusoidal_options::tensor2tensor", "dim",
                    "must be at least twice the number of axes", dim);
    return in_order("grid_sinusoidal_options::tensor2tensor", dim, axes, dim / (2 * (axes < 1 ? 1 : axes)),
                    sinusoidal_layout::concat_sin_cos, sinusoidal_denominator::half_minus_1);
  }

 private:
  [[nodiscard]] static grid_sinusoidal_options in_order(const char* function, std::int64_t dim, int axes,
                                                        std::int64_t pairs, sinusoidal_layout layout,
                                                        sinusoidal_denominator denominator) {
    detail::require(axes >= 1 && axes <= position::max_axes, function, "axes", "must lie in 1..4", axes);
    grid_sinusoidal_options o{.dim = dim, .layout = layout, .denominator = denominator};
    for (int a = 0; a < axes; ++a) o.blocks.push_back({a, 2 * pairs});
    return o;
  }
};

/// T is the scalar of `table(extents)`; data of any type is embedded under any T.
template <class T = float>
class grid_sinusoidal {
 public:
  static constexpr encoder_traits traits{.name = "grid_sinusoidal",
                                         .site = site::input,
                                         .relation = relation::absolute,
                                         .origin = origin::designed,
                                         .translation_invariant = false,
                                         .symmetric = false};

  explicit grid_sinusoidal(const grid_sinusoidal_options& o) : options_(o) {
    constexpr const char* name = "grid_sinusoidal";
    detail::require(o.dim >= 1, name, "dim", "must be at least 1", o.dim);
    detail::require(std::isfinite(o.base) && o.base > 0, name, "base", "must be positive and finite", o.base);
    detail::require(o.prefix_rows >= 0, name, "prefix_rows", "must not be negative", o.prefix_rows);
    detail::require(!o.blocks.empty(), name, "blocks", "must not be empty", o.blocks.size());
    for (const grid_block& block : o.blocks) {
      detail::require(block.axis >= 0 && block.axis < position::max_axes, name, "axis of a block", "must lie in 0..3",
                      block.axis);
      detail::require(block.channels >= 2 && block.channels % 2 == 0, name, "channels of a block",
                      "must be even and at least 2", block.channels);
      detail::require(block.channels <= most_channels, name, "channels of a block", "must not exceed 2^24",
                      block.channels);
      axes_ = std::max(axes_, block.axis + 1);
    }
    if (!o.coordinate_scale.empty()) {
      detail::require(
          o.coordinate_scale.size() <= position::max_axes && static_cast<int>(o.coordinate_scale.size()) >= axes_, name,
          "coordinate_scale", "must list one factor per axis", o.coordinate_scale.size());
      axes_ = static_cast<int>(o.coordinate_scale.size());
    }
    for (const double s : o.coordinate_scale)
      detail::require(std::abs(s) <= 0x1p32, name, "coordinate_scale", "must be finite and within +-2^32", s);
    for (const grid_block& block : o.blocks) {
      const std::int64_t pairs = block.channels / 2;
      const auto den = static_cast<double>(o.denominator == sinusoidal_denominator::half ? pairs : pairs - 1);
      const double scale = o.coordinate_scale.empty() ? 1 : o.coordinate_scale[static_cast<std::size_t>(block.axis)];
      for (const auto& f : math::ladder(o.base, pairs, den)) steps_.emplace_back(f * math::double_double(scale));
    }
  }

  /// Writes a whole grid: prefix_rows rows of zeros, then the cells.
  template <class U, class Arch = simd::default_arch>
  void table(view<U> out, std::span<const std::int64_t> extents) const {
    grid<Arch, false>("grid_sinusoidal::table", out, extents);
  }
  /// Adds a whole grid; the first prefix_rows tokens stay as they are.
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, std::span<const std::int64_t> extents) const {
    grid<Arch, true>("grid_sinusoidal::embed", x, extents);
  }
  /// Writes or adds the row of each token's coordinates (`positions::axes`, in the order of the axes); no prefix rows.
  template <class U, class Arch = simd::default_arch>
  void table(view<U> out, const positions& at) const {
    listed<Arch, false>("grid_sinusoidal::table", out, at);
  }
  template <class U, class Arch = simd::default_arch>
  void table(view<U> out, const real_positions& at) const {
    listed<Arch, false>("grid_sinusoidal::table", out, at);
  }
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, const positions& at) const {
    listed<Arch, true>("grid_sinusoidal::embed", x, at);
  }
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, const real_positions& at) const {
    listed<Arch, true>("grid_sinusoidal::embed", x, at);
  }

  /// The rows of a whole grid, row-major.
  [[nodiscard]] std::vector<T> table(std::span<const std::int64_t> extents) const {
    const std::int64_t n = rows("grid_sinusoidal::table", extents);
    std::vector<T> out(static_cast<std::size_t>(n * dim()));
    table(view<T>(out.data(), {.tokens = n, .dim = dim()}), extents);
    return out;
  }

  [[nodiscard]] std::int64_t dim() const noexcept { return options_.dim; }
  [[nodiscard]] int axes() const noexcept { return axes_; }
  [[nodiscard]] const grid_sinusoidal_options& options() const noexcept { return options_; }

  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = 0,
            .table_bytes = static_cast<std::int64_t>(steps_.size() * sizeof(math::turns)),
            .monotone = false,
            .shift = cache_shift::recompute_keys,
            .shift_reason = "rows are added to the input and lie inside the keys"};
  }

 private:
  static constexpr std::int64_t most_channels = std::int64_t{1} << 24;

  /// prefix_rows and the product of the extents.
  [[nodiscard]] std::int64_t rows(const char* function, std::span<const std::int64_t> extents) const {
    detail::require(static_cast<int>(extents.size()) == axes_, function, "extents", "must list one extent per axis",
                    extents.size());
    std::int64_t cells = 1;
    for (const std::int64_t e : extents) {
      detail::require(e >= 1 && e <= (std::int64_t{1} << 31), function, "extents", "must lie in 1..2^31", e);
      detail::require(cells <= (std::int64_t{1} << 38) / e, function, "extents", "must not exceed 2^38 cells", e);
      cells *= e;
    }
    return options_.prefix_rows + cells;
  }

  /// Where the pairs of a block of `channels` stand when the block starts at `channel`.
  [[nodiscard]] detail::sine_place place(std::int64_t channel, std::int64_t channels) const noexcept {
    const std::int64_t pairs = channels / 2;
    switch (options_.layout) {
      case sinusoidal_layout::concat_sin_cos: return {channel, channel + pairs, 1, pairs, pairs};
      case sinusoidal_layout::concat_cos_sin: return {channel + pairs, channel, 1, pairs, pairs};
      case sinusoidal_layout::interleaved_sin_cos: return {channel, channel + 1, 2, pairs, pairs};
      default: return {channel + 1, channel, 2, pairs, pairs};
    }
  }

  template <class Arch, bool Add, class U, class At>
  void listed(const char* function, view<U> x, const At& at) const {
    if (x.empty()) return;
    detail::check_rows(function, x, dim());
    detail::check_cover(function, at, x.batch(), x.tokens(), axes_);
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) {
        const auto p = detail::coordinates(at, b, t);
        if (!Add) detail::clear_row(x, b, t);
        std::int64_t channel = 0;
        for (const grid_block& block : options_.blocks) {
          if (channel < dim())
            detail::put_sines<Arch, Add>(x, b, t, steps_.data() + channel / 2, place(channel, block.channels), 1.0,
                                         p[block.axis]);
          channel += block.channels;
        }
      }
  }

  template <class Arch, bool Add, class U>
  void grid(const char* function, view<U> x, std::span<const std::int64_t> extents) const {
    const std::int64_t total = rows(function, extents);
    detail::require(x.tokens() == total, function, "tokens", "must be prefix_rows and the product of the extents",
                    x.tokens());
    if (x.empty()) return;
    detail::check_rows(function, x, dim());
    // One row per index of an axis and block; a cell copies from them.
    using C = detail::row_type<Add, U>;
    std::vector<std::vector<C>> parts;
    std::int64_t channel = 0;
    for (const grid_block& block : options_.blocks) {
      const std::int64_t n = extents[static_cast<std::size_t>(block.axis)];
      auto& part = parts.emplace_back(static_cast<std::size_t>(n * block.channels));
      const view<C> into(part.data(), {.tokens = n, .dim = block.channels});
      for (std::int64_t i = 0; i < n; ++i)
        detail::put_sines<Arch, false>(into, 0, i, steps_.data() + channel / 2, place(0, block.channels), 1.0, i);
      channel += block.channels;
    }
    for (std::int64_t b = 0; b < x.batch(); ++b) {
      if (!Add)
        for (std::int64_t t = 0; t < options_.prefix_rows; ++t) detail::clear_row(x, b, t);
      std::int64_t at[position::max_axes] = {};
      for (std::int64_t t = options_.prefix_rows; t < total; ++t) {
        if (!Add && channel < dim()) detail::clear_row(x, b, t);
        std::int64_t to = 0;
        for (std::size_t i = 0; i < parts.size() && to < dim(); ++i) {
          const grid_block& block = options_.blocks[i];
          detail::put_row<Arch, Add>(x, b, t, to, parts[i].data() + at[block.axis] * block.channels, block.channels);
          to += block.channels;
        }
        for (int a = axes_ - 1; a >= 0 && ++at[a] == extents[static_cast<std::size_t>(a)]; --a) at[a] = 0;
      }
    }
  }

  grid_sinusoidal_options options_;
  int axes_ = 0;
  std::vector<math::turns> steps_;
};

}  // namespace posenc
