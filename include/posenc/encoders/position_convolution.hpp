// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Position from the border: a convolution with zero padding tells how far a token stands from the edge of its sequence
/// or image, because zeros take the place of neighbours there. For tokens on a grid (one row for a sequence),
///   out(y, x) = [in(y, x) +] act(bias + sum over i, j of W(i, j) in(y + i - pad_rows, x + j - pad_columns)),
/// with W depthwise or grouped, and zeros outside. The output has the size of the grid: an even kernel with padding
/// kernel / 2 would give one line more, which is dropped.
/// Shapes   x is [batch, prefix + rows * columns, heads, dim], channels = heads * dim. Weights as PyTorch holds them:
///          [channels, channels / groups, kernel rows, kernel columns]. Prefix tokens (class, registers) stay as they
///          are. A constant image under a 3x3 kernel of ones gives 4 in the corners, 6 at the edges, 9 inside.
/// Domain   any content; every batch row is one image. Not causal: a token sees those after it.
/// Error    a sum of kernel * channels / groups products in T, any order. Cost: one matrix product per kernel position
///          and group (a product of elements if depthwise); two copies of a batch row as scratch.
/// Throws   std::invalid_argument for impossible options or a view that does not fit, before anything is written.
/// Who uses it  CPVT (PEG: depthwise 3x3, residual, identity), SegFormer (without residual), wav2vec 2.0, HuBERT,
///          data2vec (kernel 128, 16 groups, GELU, residual; their weight normalisation is folded into the weights).
/// Example  examples/table_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/scalar.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/resize.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace posenc {

enum class convolution_activation {
  identity,
  /// x (1 + erf(x / sqrt 2)) / 2
  gelu
};

struct position_convolution_options {
  std::int64_t channels = 0;
  /// As many as channels: depthwise.
  std::int64_t groups = 0;
  /// One row for a sequence.
  table_extent kernel{.rows = 3, .columns = 3};
  /// {rows, columns}; half the kernel, rounded down, where it is absent.
  std::optional<std::array<std::int64_t, 2>> padding{};
  convolution_activation activation = convolution_activation::identity;
  bool residual = true;
  std::int64_t prefix_rows = 0;
};

/// T is the scalar of weights and sums.
template <class T = float>
class position_convolution {
 public:
  static constexpr encoder_traits traits{.name = "position_convolution",
                                         .site = site::input,
                                         .relation = relation::absolute,
                                         .origin = origin::learned,
                                         .translation_invariant = false,
                                         .symmetric = false};

  /// An empty bias is zero.
  position_convolution(const position_convolution_options& o, std::span<const T> weight, std::span<const T> bias = {})
      : options_(o), bias_(bias.begin(), bias.end()) {
    const auto require = [](bool holds, const char* argument, const char* rule, auto value) {
      detail::require(holds, "position_convolution", argument, rule, value);
    };
    require(o.channels >= 1, "channels", "must be at least 1", o.channels);
    if (options_.groups == 0) options_.groups = o.channels;
    require(options_.groups >= 1 && o.channels % options_.groups == 0, "groups", "must divide channels", o.groups);
    require(o.kernel.rows >= 1, "kernel.rows", "must be at least 1", o.kernel.rows);
    require(o.kernel.columns >= 1, "kernel.columns", "must be at least 1", o.kernel.columns);
    require(o.prefix_rows >= 0, "prefix_rows", "must not be negative", o.prefix_rows);
    padding_ = o.padding.value_or(std::array{o.kernel.rows / 2, o.kernel.columns / 2});
    require(padding_[0] >= 0 && 2 * padding_[0] >= o.kernel.rows - 1, "padding of rows",
            "must be at least (kernel - 1) / 2", padding_[0]);
    require(padding_[1] >= 0 && 2 * padding_[1] >= o.kernel.columns - 1, "padding of columns",
            "must be at least (kernel - 1) / 2", padding_[1]);
    const std::int64_t size = o.channels * depth() * taps();
    require(static_cast<std::int64_t>(weight.size()) == size, "weight",
            "must hold channels * channels / groups * kernel values", weight.size());
    require(bias.empty() || static_cast<std::int64_t>(bias.size()) == o.channels, "bias",
            "must be empty or list one value per channel", bias.size());
    bias_.resize(static_cast<std::size_t>(o.channels), T(0));
    // Kept as [kernel position][input of the group][channel], so that a position is a matrix to multiply by.
    weight_.resize(weight.size());
    for (std::int64_t c = 0; c < o.channels; ++c)
      for (std::int64_t i = 0; i < depth(); ++i)
        for (std::int64_t k = 0; k < taps(); ++k)
          weight_[static_cast<std::size_t>((k * depth() + i) * o.channels + c)] =
              weight[static_cast<std::size_t>((c * depth() + i) * taps() + k)];
  }
  position_convolution(const position_convolution_options& o, const std::vector<T>& weight,
                       const std::vector<T>& bias = {})
      : position_convolution(o, std::span<const T>(weight), std::span<const T>(bias)) {}

  /// In place, over a grid of rows * columns tokens after the prefix.
  template <class U>
  void embed(view<U> x, const table_extent& grid) const {
    apply(x, x, grid);
  }
  /// In place, for a sequence: one row of all tokens after the prefix.
  template <class U>
  void embed(view<U> x) const {
    embed(x, {.rows = 1, .columns = x.tokens() - options_.prefix_rows});
  }
  /// `out` is `in` or lies apart from it; the prefix is copied.
  template <class In, class U>
  void apply(view<In> in, view<U> out, const table_extent& grid) const {
    const char* function = "position_convolution::apply";
    if (in.empty() && out.empty()) return;
    detail::require(in.extents() == out.extents(), function, "out", "must have the shape of in, tokens", out.tokens());
    detail::require(in.heads() * in.dim() == channels(), function, "heads * dim", "must equal the channels",
                    in.heads() * in.dim());
    detail::require(grid.rows >= 1 && grid.columns >= 1, function, "grid", "must have rows and columns",
                    std::min(grid.rows, grid.columns));
    const std::int64_t cells = in.tokens() - options_.prefix_rows;
    detail::require(cells >= 1 && cells % grid.rows == 0 && cells / grid.rows == grid.columns, function, "tokens",
                    "must be prefix_rows + rows * columns", in.tokens());
    detail::check_apart(in, out, function);
    matrix x(cells, channels());
    matrix y(cells, channels());
    for (std::int64_t b = 0; b < in.batch(); ++b) {
      for_elements(in, b, [&](const auto& element, std::int64_t t, std::int64_t c) {
        if (t >= 0) x(t, c) = static_cast<T>(widen(element));
      });
      convolve(x, y, grid);
      for_elements(out, b, [&](auto& element, std::int64_t t, std::int64_t c) {
        if (t < 0) return;
        const T moved = activated(y(t, c));
        element = narrow<U>(options_.residual ? T(x(t, c) + moved) : moved);
      });
      copy_prefix(in, out, b);
    }
  }

  [[nodiscard]] std::int64_t channels() const noexcept { return options_.channels; }
  [[nodiscard]] const position_convolution_options& options() const noexcept { return options_; }

  [[nodiscard]] encoder_description describe() const {
    const auto parameters = static_cast<std::int64_t>(weight_.size() + bias_.size());
    return {.position_limit = std::nullopt,
            .parameters = parameters,
            .table_bytes = parameters * static_cast<std::int64_t>(sizeof(T)),
            .monotone = false,
            .shift = cache_shift::recompute_keys,
            .shift_reason = "the convolution mixes neighbours into the input"};
  }

 private:
  using matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

  /// Channels that one output channel reads.
  [[nodiscard]] std::int64_t depth() const noexcept { return options_.channels / options_.groups; }
  [[nodiscard]] std::int64_t taps() const noexcept { return options_.kernel.rows * options_.kernel.columns; }

  /// f(element, token of the grid or below 0 in the prefix, channel)
  template <class U, class F>
  void for_elements(const view<U>& v, std::int64_t b, F&& f) const {
    for (std::int64_t t = 0; t < v.tokens(); ++t)
      for (std::int64_t h = 0; h < v.heads(); ++h)
        for (std::int64_t d = 0; d < v.dim(); ++d)
          f(v.row(b, t, h)[d * v.steps().dim], t - options_.prefix_rows, h * v.dim() + d);
  }
  template <class In, class U>
  void copy_prefix(const view<In>& in, const view<U>& out, std::int64_t b) const {
    if (static_cast<const void*>(in.data()) == static_cast<const void*>(out.data())) return;
    for (std::int64_t t = 0; t < options_.prefix_rows; ++t)
      for (std::int64_t h = 0; h < in.heads(); ++h)
        for (std::int64_t d = 0; d < in.dim(); ++d) out(b, t, h, d) = narrow<U>(widen(in(b, t, h, d)));
  }

  /// y = bias + convolution of x, one kernel position at a time over the cells whose neighbour lies on the grid.
  void convolve(const matrix& x, matrix& y, const table_extent& grid) const {
    y.rowwise() = Eigen::Map<const Eigen::Matrix<T, 1, Eigen::Dynamic>>(bias_.data(), channels());
    for (std::int64_t k = 0; k < taps(); ++k) {
      const std::int64_t down = k / options_.kernel.columns - padding_[0];
      const std::int64_t right = k % options_.kernel.columns - padding_[1];
      const std::int64_t first = std::max<std::int64_t>(0, -right);
      const std::int64_t count = std::min(grid.columns, grid.columns - right) - first;
      if (count <= 0) continue;
      const Eigen::Map<const matrix> w(weight_.data() + k * depth() * channels(), depth(), channels());
      for (std::int64_t row = std::max<std::int64_t>(0, -down); row < std::min(grid.rows, grid.rows - down); ++row) {
        const auto from = x.middleRows((row + down) * grid.columns + first + right, count);
        auto to = y.middleRows(row * grid.columns + first, count);
        if (depth() == 1) {
          for (std::int64_t i = 0; i < count; ++i) to.row(i).array() += from.row(i).array() * w.row(0).array();
          continue;
        }
        for (std::int64_t g = 0; g < channels(); g += depth())
          to.middleCols(g, depth()).noalias() += from.middleCols(g, depth()) * w.middleCols(g, depth());
      }
    }
  }
  [[nodiscard]] T activated(const T& x) const {
    using std::erf;
    if (options_.activation == convolution_activation::identity) return x;
    return T(x * (T(1) + erf(T(x * T(0.70710678118654752440L)))) / T(2));
  }

  position_convolution_options options_;
  std::array<std::int64_t, 2> padding_{};
  std::vector<T> weight_;
  std::vector<T> bias_;
};

}  // namespace posenc
