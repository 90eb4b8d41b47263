// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// DETR's sine encoding of an image with padding: y and x are running counts of the valid cells down the column and
/// along the row (the first valid cell has 1, padded ones keep the last count), and channel c < F of the y half is
///   sin (c even) or cos (c odd) of y / temperature^(2 floor(c / 2) / F);
/// the x half follows, so y comes first. `normalize` puts (y + shift) / (y of the last row + eps) * scale for y, and
/// likewise for x.
/// Shapes   valid [rows, columns] or [batch, rows, columns]; data of rows * columns tokens (the columns fastest) and
///          2 F channels. Channel-first tensors are views with strides {.token = 1, .dim = rows * columns}.
/// Error    counts are exact, normalised ones are formed in double; values are rounded once from double.
/// Cost     about 2 ns per channel and cell, 13 to 26 with `normalize`; two counts per cell are allocated.
/// Throws   std::invalid_argument for impossible options, shapes or a mask of another size, before anything is written.
/// Who uses it  DETR, Conditional DETR, Table Transformer, MaskFormer; Deformable DETR with shift -0.5.
/// Example  examples/absolute_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/embedding_rows.hpp>
#include <posenc/math/frequencies.hpp>

#include <numbers>
#include <optional>
#include <vector>

namespace posenc {

struct grid_detr_options {
  /// F, channels per axis.
  std::int64_t num_pos_feats = 0;
  double temperature = 10000;
  bool normalize = false;
  /// Only with `normalize`.
  double scale = 2 * std::numbers::pi;
  double eps = 1e-6;
  /// Added to the counts before they are normalised: Deformable DETR has -0.5.
  double shift = 0;
};

class grid_detr {
 public:
  static constexpr encoder_traits traits{.name = "grid_detr",
                                         .site = site::input,
                                         .relation = relation::absolute,
                                         .origin = origin::designed,
                                         .translation_invariant = false,
                                         .symmetric = false};

  explicit grid_detr(const grid_detr_options& o) : options_(o) {
    detail::require(o.num_pos_feats >= 1, "grid_detr", "num_pos_feats", "must be at least 1", o.num_pos_feats);
    detail::require(std::isfinite(o.temperature) && o.temperature > 0, "grid_detr", "temperature",
                    "must be positive and finite", o.temperature);
    detail::require(std::isfinite(o.scale) && std::abs(o.scale) <= 1e9, "grid_detr", "scale",
                    "must be finite and within +-10^9", o.scale);
    detail::require(std::isfinite(o.eps) && o.eps > 0, "grid_detr", "eps", "must be positive and finite", o.eps);
    detail::require(std::abs(o.shift) <= 1, "grid_detr", "shift", "must lie in -1..1", o.shift);
    detail::require(o.normalize || o.shift == 0, "grid_detr", "shift", "must be 0 without normalize", o.shift);
    const std::int64_t pairs = (o.num_pos_feats + 1) / 2;
    for (const auto& f : math::ladder(o.temperature, pairs, static_cast<double>(o.num_pos_feats) / 2))
      steps_.emplace_back(f);
  }

  /// Writes the encoding of the cells into every head. `valid` is a vector, span or array of bool or integers, 0 where
  /// padding is.
  template <class U, detail::integer_list M, class Arch = simd::default_arch>
  void table(view<U> out, const M& valid, std::int64_t rows, std::int64_t columns) const {
    apply<Arch, false>("grid_detr::table", out, valid, rows, columns);
  }
  /// Adds it.
  template <class U, detail::integer_list M, class Arch = simd::default_arch>
  void embed(view<U> x, const M& valid, std::int64_t rows, std::int64_t columns) const {
    apply<Arch, true>("grid_detr::embed", x, valid, rows, columns);
  }

  /// 2 F.
  [[nodiscard]] std::int64_t dim() const noexcept { return 2 * options_.num_pos_feats; }
  [[nodiscard]] const grid_detr_options& options() const noexcept { return options_; }

  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = 0,
            .table_bytes = static_cast<std::int64_t>(steps_.size() * sizeof(math::turns)),
            .monotone = false,
            .shift = cache_shift::recompute_keys,
            .shift_reason = "rows are added to the input and lie inside the keys"};
  }

 private:
  template <class Arch, bool Add, class U, class M>
  void apply(const char* function, view<U> x, const M& valid, std::int64_t rows, std::int64_t columns) const {
    constexpr std::int64_t most = std::int64_t{1} << 24;
    detail::require(rows >= 0 && rows <= most, function, "rows", "must lie in 0..2^24", rows);
    detail::require(columns >= 0 && columns <= most, function, "columns", "must lie in 0..2^24", columns);
    detail::require(x.tokens() == rows * columns, function, "tokens", "must be rows * columns", x.tokens());
    const auto listed = static_cast<std::int64_t>(std::ranges::size(valid));
    const bool shared = listed == rows * columns;
    detail::require(shared || (x.tokens() > 0 && listed / x.tokens() == x.batch() && listed % x.tokens() == 0),
                    function, "valid", "must have rows * columns cells, once or for each batch row", listed);
    if (x.empty()) return;
    detail::check_rows(function, x, dim());
    const std::int64_t f = options_.num_pos_feats;
    const detail::sine_place y_place{0, 1, 2, (f + 1) / 2, f / 2};
    const detail::sine_place x_place{f, f + 1, 2, (f + 1) / 2, f / 2};
    const auto cells = static_cast<std::size_t>(rows * columns);
    std::vector<std::int64_t> down(cells);
    std::vector<std::int64_t> along(cells);
    for (std::int64_t b = 0; b < x.batch(); ++b) {
      if (b == 0 || !shared)
        count(std::ranges::data(valid) + (shared ? 0 : b * rows * columns), rows, columns, down, along);
      for (std::int64_t t = 0; t < x.tokens(); ++t) {
        const std::int64_t y = down[static_cast<std::size_t>(t)];
        const std::int64_t c = along[static_cast<std::size_t>(t)];
        if (!options_.normalize) {
          detail::put_sines<Arch, Add>(x, b, t, steps_.data(), y_place, 1.0, y);
          detail::put_sines<Arch, Add>(x, b, t, steps_.data(), x_place, 1.0, c);
          continue;
        }
        const std::int64_t last_y = down[cells - static_cast<std::size_t>(columns - t % columns)];
        const std::int64_t last_x = along[static_cast<std::size_t>(t - t % columns + columns - 1)];
        detail::put_sines<Arch, Add>(x, b, t, steps_.data(), y_place, 1.0, normalized(y, last_y));
        detail::put_sines<Arch, Add>(x, b, t, steps_.data(), x_place, 1.0, normalized(c, last_x));
      }
    }
  }

  template <class V>
  static void count(const V* valid, std::int64_t rows, std::int64_t columns, std::vector<std::int64_t>& down,
                    std::vector<std::int64_t>& along) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) {
        const auto i = static_cast<std::size_t>(r * columns + c);
        const std::int64_t one = valid[i] != V{0} ? 1 : 0;
        down[i] = one + (r == 0 ? 0 : down[i - static_cast<std::size_t>(columns)]);
        along[i] = one + (c == 0 ? 0 : along[i - 1]);
      }
  }
  [[nodiscard]] double normalized(std::int64_t count, std::int64_t last) const noexcept {
    return (static_cast<double>(count) + options_.shift) / (static_cast<double>(last) + options_.eps) * options_.scale;
  }

  grid_detr_options options_;
  std::vector<math::turns> steps_;
};

}  // namespace posenc
