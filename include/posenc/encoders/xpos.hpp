// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// xPos (Sun et al. 2022): RoPE whose pairs also fade with distance,
///   queries R(p) q * zeta(i)^((p - centre) / scale_base),  keys R(p) k * zeta(i)^-((p - centre) / scale_base),
///   zeta(i) = (2i + 0.4 r) / (1.4 r),
/// so that pair i of a score is multiplied by zeta(i)^((p_q - p_k) / scale_base). The centre cancels only if queries
/// and keys share it, so it is fixed here, never taken from a length: what is cached stays valid. (Implementations
/// centre on half the current length, rounded up or down; their cached keys do not fit the next call.)
/// Domain   causal attention: keys behind the query. Positions within `reach` of the centre, about 36 000 for float at
///          scale_base 512, where the scale of the fastest pair stays within 2^+-127, and 3 966 for half data (2^+-14);
///          beyond it the call is refused.
/// Error    scales are formed in double and multiplied onto cos and sin before their one rounding.
/// Cost     that of rope and one exp per pair and token.
/// Throws   std::invalid_argument for impossible options, another head_dim, or positions out of reach, before anything
///          is written.
/// Source   torchscale, RetNet's line; interleaved pairs.
/// Example  examples/rope_example.cpp

#include <posenc/encoders/rope.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace posenc {

struct xpos_options {
  std::int64_t head_dim = 0;
  std::optional<std::int64_t> rotary_dim{};
  double base = 10000;
  rope_layout layout = interleaved;
  double scale_base = 512;
  /// The position at which nothing is scaled, the same for queries and keys of a model.
  std::int64_t centre = 0;
};

template <class T = float>
class xpos {
 public:
  static constexpr encoder_traits traits{.name = "xpos",
                                         .site = site::query_key,
                                         .relation = relation::relative,
                                         .origin = origin::designed,
                                         .translation_invariant = true,
                                         .symmetric = false};

  explicit xpos(const xpos_options& o)
      : rotation_({.head_dim = o.head_dim, .rotary_dim = o.rotary_dim, .base = o.base, .layout = o.layout}),
        scale_base_(o.scale_base),
        centre_(o.centre) {
    detail::require(std::isfinite(o.scale_base) && o.scale_base > 0, "xpos", "scale_base",
                    "must be positive and finite", o.scale_base);
    detail::require(o.layout == interleaved || o.layout == half_split, "xpos", "layout",
                    "must be half_split or interleaved", static_cast<int>(o.layout));
    const auto r = static_cast<double>(rotation_.rotary_dim());
    for (std::int64_t i = 0; i < rotation_.pairs(); ++i)
      log_zeta_.push_back(std::log((2 * static_cast<double>(i) + 0.4 * r) / (1.4 * r)));
  }

  /// Queries and keys are scaled the opposite way, so there are two verbs, in place.
  template <class U, class Arch = simd::default_arch>
  void rotate_queries(view<U> x, const positions& at = {}) const {
    apply<Arch>("xpos::rotate_queries", x, at, 1);
  }
  template <class U, class Arch = simd::default_arch>
  void rotate_keys(view<U> x, const positions& at = {}) const {
    apply<Arch>("xpos::rotate_keys", x, at, -1);
  }
  /// Moves cached keys by `delta` positions: turned, and scaled by zeta^(-delta / scale_base).
  template <class U, class Arch = simd::default_arch>
  void shift(view<U> keys, std::int64_t delta) const {
    detail::require(keys.empty() || keys.dim() == head_dim(), "xpos::shift", "dim", "must equal head_dim", keys.dim());
    detail::check_apart(view<const U>(keys), keys, "xpos::shift");
    check_reach("xpos::shift", delta, 0, reach<U>());
    for (std::int64_t b = 0; b < keys.batch(); ++b)
      for (std::int64_t t = 0; t < keys.tokens(); ++t) token<Arch>(keys, b, t, delta, delta, -1);
  }

  /// Hooks of the attention kernels.
  template <class C, class Arch = simd::default_arch>
  void transform_q(C* x, std::int64_t dim, const position& at, std::int64_t) const {
    token<Arch>(view<C>(x, {.dim = dim}), 0, 0, at.value(), position_difference(at.value(), centre_), 1);
  }
  template <class C, class Arch = simd::default_arch>
  void transform_k(C* x, std::int64_t dim, const position& at, std::int64_t) const {
    token<Arch>(view<C>(x, {.dim = dim}), 0, 0, at.value(), position_difference(at.value(), centre_), -1);
  }
  void check(const call& c) const {
    rotation_.check(c);
    for (std::int64_t b = 0; b < c.batch; ++b) {
      for (std::int64_t t = 0; t < c.queries; ++t) check_reach("xpos", c.query_positions(b, t), centre_, reach());
      for (std::int64_t t = 0; t < c.keys; ++t) check_reach("xpos", c.key_positions(b, t), centre_, reach());
    }
  }

  [[nodiscard]] std::int64_t head_dim() const noexcept { return rotation_.head_dim(); }
  [[nodiscard]] std::int64_t centre() const noexcept { return centre_; }
  /// How far from the centre positions of data of type U may lie.
  template <class U = float>
  [[nodiscard]] std::int64_t reach() const noexcept {
    const double powers_of_two = format_of<U> == format::binary16 ? 14 : 126;
    return static_cast<std::int64_t>(
        std::min(powers_of_two * std::log(2.0) * scale_base_ / -log_zeta_.front(), 0x1p62));
  }
  [[nodiscard]] encoder_description describe() const {
    encoder_description d = rotation_.describe();
    d.shift = cache_shift::rotate_keys;
    d.position_limit = centre_ + reach() + 1;
    return d;
  }

 private:
  static void check_reach(const char* function, std::int64_t at, std::int64_t centre, std::int64_t reach) {
    const std::int64_t far = position_difference(at, centre);
    detail::require(far <= reach && -far <= reach, function, "positions",
                    "must lie within reach of the centre, where scales stay finite", at);
  }
  template <class Arch, class U>
  void apply(const char* function, view<U> x, const positions& at, double sign) const {
    if (x.empty()) return;
    detail::require(x.dim() == head_dim(), function, "dim", "must equal head_dim", x.dim());
    detail::check_apart(view<const U>(x), x, function);
    detail::check_cover(at, function, x.batch(), x.tokens(), 1);
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) check_reach(function, at(b, t), centre_, reach<U>());
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t)
        token<Arch>(x, b, t, at(b, t), position_difference(at(b, t), centre_), sign);
  }

  /// Rows of cos and sin times the scale of every pair, formed in double.
  template <class Arch>
  struct scaled_rows {
    const xpos& encoder;
    const detail::rope_frame& frame;
    const position& at;
    double power;

    template <kernels::row_form Form, class C>
    void fill(std::int64_t set, std::int64_t first, std::int64_t count, C* cos, C* sin) const {
      alignas(64) double c[detail::rope_block];
      alignas(64) double s[detail::rope_block];
      detail::rope_row<Arch, kernels::row_form::separate>(frame, set, first, count, at, 1, 1, c, s);
      for (std::int64_t i = 0; i < count; ++i) {
        const double scale = std::exp(power * encoder.log_zeta_[static_cast<std::size_t>(first + i)]);
        c[i] *= scale;
        s[i] *= scale;
      }
      kernels::detail::place<Form>(c, s, count, cos, sin);
    }
  };

  template <class Arch, class U>
  void token(view<U> x, std::int64_t b, std::int64_t t, std::int64_t at, std::int64_t distance, double sign) const {
    const detail::rope_frame f = detail::rope_access::frame(rotation_);
    const position where(at);
    detail::rotate_token<Arch>(f, detail::row_span<const U>{x.row(b, t, 0), x.steps().head, x.steps().dim},
                               detail::row_span<U>{x.row(b, t, 0), x.steps().head, x.steps().dim}, x.heads(), 0, true,
                               scaled_rows<Arch>{*this, f, where, sign * static_cast<double>(distance) / scale_base_});
  }

  rope<T> rotation_;
  double scale_base_;
  std::int64_t centre_;
  std::vector<double> log_zeta_;
};

}  // namespace posenc
