// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Swin v2's continuous bias (Liu et al. 2022): a small network of the offset instead of a table of it,
///   bias(h, i, j) = 16 sigmoid(W2 relu(W1 c + b1))_h, c the coordinates of the offset of query i and key j,
/// evaluated once per distinct offset, (2h - 1)(2w - 1) times, when the encoder is made; what is left is a window_bias.
/// An axis of c runs over -(side - 1) .. side - 1, is divided by the side it was trained with less 1 (by its own where
/// no other is given; a side of 1 is not divided), multiplied by 8, then v -> sign(v) log2(|v| + 1) / 3.
/// Domain   as window_bias. Error: the network runs in double (long double for T = long double), one rounding to T.
/// Cost     hidden * (heads + 2) multiply-adds per offset once; then that of window_bias.
/// Throws   std::invalid_argument for weights of other sizes, a NaN among the values included.
/// Who uses it  Swin v2 (hidden 512; cosine attention with a learned logit scale, see the page).
/// Example  examples/window_bias_example.cpp

#include <posenc/encoders/window_bias.hpp>
#include <posenc/math/affine.hpp>

#include <cmath>

namespace posenc {

/// The coordinates [2h - 1, 2w - 1, (y, x)] of every offset. A trained side of 0 stands for the window's own.
[[nodiscard]] inline std::vector<double> continuous_coords(const window_shape& window,
                                                           const window_shape& trained = {}) {
  detail::check_window("continuous_coords", "window", window);
  detail::require(trained.height >= 0, "continuous_coords", "trained.height", "must not be negative", trained.height);
  detail::require(trained.width >= 0, "continuous_coords", "trained.width", "must not be negative", trained.width);
  detail::require(trained.height != 1 && trained.width != 1, "continuous_coords", "trained",
                  "must have sides above 1, or 0 for the window's own", 1);
  const auto coordinate = [](std::int64_t offset, std::int64_t side, std::int64_t trained_side) {
    const std::int64_t reach = (trained_side > 0 ? trained_side : side) - 1;
    const double v = 8.0 * static_cast<double>(offset) / static_cast<double>(reach > 0 ? reach : 1);
    return std::copysign(std::log2(std::abs(v) + 1) / 3, v);
  };
  std::vector<double> out;
  out.reserve(static_cast<std::size_t>(2 * (2 * window.height - 1) * (2 * window.width - 1)));
  for (std::int64_t y = 1 - window.height; y < window.height; ++y)
    for (std::int64_t x = 1 - window.width; x < window.width; ++x) {
      out.push_back(coordinate(y, window.height, trained.height));
      out.push_back(coordinate(x, window.width, trained.width));
    }
  return out;
}

struct continuous_bias_options {
  std::int64_t heads = 0;
  window_shape window{};
  /// pretrained_window_size; sides of 0 stand for the window's own.
  window_shape trained{};
};

/// W1 [hidden, 2], b1 [hidden], W2 [heads, hidden]; coordinates in the order (y, x). They are read by the constructor.
template <class T>
struct continuous_weights {
  std::span<const T> weight1{};
  std::span<const T> bias1{};
  std::span<const T> weight2{};
};

template <class T = float>
class continuous_bias {
 public:
  static constexpr encoder_traits traits{.name = "continuous_bias",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};

  continuous_bias(const continuous_bias_options& o, const continuous_weights<T>& w)
      : continuous_bias(o, w, continuous_coords(o.window, o.trained)) {}
  /// With coordinates [2h - 1, 2w - 1, 2] of your own, for example those of a checkpoint.
  continuous_bias(const continuous_bias_options& o, const continuous_weights<T>& w, std::span<const double> coords)
      : parameters_(static_cast<std::int64_t>(w.weight1.size() + w.bias1.size() + w.weight2.size())),
        bias_({.heads = o.heads, .window = o.window}, table(o, w, coords)) {}

  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
    return bias_.template row<B>(r, keys);
  }
  void check(const call& c) const { bias_.check(c); }
  [[nodiscard]] std::int64_t heads() const noexcept { return bias_.heads(); }
  [[nodiscard]] const window_bias<T>& window() const noexcept { return bias_; }

  [[nodiscard]] encoder_description describe() const {
    encoder_description d = bias_.describe();
    d.parameters = parameters_;
    return d;
  }

 private:
  static std::vector<T> table(const continuous_bias_options& o, const continuous_weights<T>& w,
                              std::span<const double> coords) {
    using N = math::table_t<T>;
    detail::require(o.heads >= 1, "continuous_bias", "heads", "must be at least 1", o.heads);
    const std::int64_t entries = window_entries(window_kind::swin, o.window);
    detail::require(static_cast<std::int64_t>(coords.size()) == 2 * entries, "continuous_bias", "coords",
                    "must hold 2 values per offset", coords.size());
    const std::size_t hidden = w.bias1.size();
    detail::require(hidden >= 1, "continuous_bias", "bias1", "must not be empty", hidden);
    detail::require(w.weight1.size() == 2 * hidden, "continuous_bias", "weight1", "must hold 2 values per hidden unit",
                    w.weight1.size());
    detail::require(w.weight2.size() == hidden * static_cast<std::size_t>(o.heads), "continuous_bias", "weight2",
                    "must hold one value per head and hidden unit", w.weight2.size());
    std::vector<N> unit(hidden);
    std::vector<N> value(static_cast<std::size_t>(o.heads));
    std::vector<T> out;
    out.reserve(static_cast<std::size_t>(entries * o.heads));
    for (std::int64_t e = 0; e < entries; ++e) {
      math::affine(coords.data() + 2 * e, 1, 2, w.weight1, w.bias1, std::span<N>(unit));
      for (N& u : unit)
        if (!(u > N(0))) u = u == u ? N(0) : u;
      math::affine(unit.data(), 1, static_cast<std::int64_t>(hidden), w.weight2, {}, std::span<N>(value));
      for (const N& v : value) {
        detail::require(v == v, "continuous_bias", "weights", "must give numbers", "a NaN");
        out.push_back(narrow<T>(N(N(16) * math::sigmoid(v))));
      }
    }
    return out;
  }

  std::int64_t parameters_;
  window_bias<T> bias_;
};

}  // namespace posenc
