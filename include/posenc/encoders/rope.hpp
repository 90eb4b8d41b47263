// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Rotary position embedding (Su et al. 2021): pair i of a query or key at position p is turned by p * inv_freq(i),
///   (a, b) -> A (a cos - b sin, a sin + b cos),   inv_freq(i) = base^(-2i / rotary_dim),
/// so that the product of a query and a key depends on the difference of their positions alone.
/// Domain   every int64 position, negative ones too; real ones within +-10^15 through `real_positions`.
/// Error    cos and sin are rounded once to the compute type of the data (see kernels/cos_sin.hpp); one rounding when
///          16-bit data is stored.
/// Cost     the row of cos and sin once per token, then one load and one store per element; nothing is allocated.
/// Throws   std::invalid_argument for impossible options or a view of another head_dim, before anything is written.
/// Example  examples/rope_example.cpp

#include <posenc/core/policy.hpp>
#include <posenc/core/positions.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/rope_options.hpp>
#include <posenc/encoders/rope_rows.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace posenc {

template <class T>
class rope_table;

/// T is the scalar of the tables that `table` builds. Data of any type is rotated under any T: float, double, half and
/// bfloat16 with cos and sin of their compute type, other scalars with cos and sin in double.
template <class T = float>
class rope {
 public:
  static constexpr encoder_traits traits{.name = "rope",
                                         .site = site::query_key,
                                         .relation = relation::relative,
                                         .origin = origin::designed,
                                         .translation_invariant = true,
                                         .symmetric = false};

  explicit rope(const rope_options& o)
      : layout_(o.layout),
        head_dim_(o.head_dim),
        rotary_dim_(detail::checked_rotary_dim(o)),
        offset_(o.offset),
        magnitude_(o.attention_factor),
        angles_(o.angles) {
    for (const auto& f : detail::rope_frequencies(o, rotary_dim_)) {
      detail::require(std::abs(f.hi) <= 0x1p32, "rope", "inv_freq", "must stay within +-2^32 after scaling", f.hi);
      inv_freq_.push_back(static_cast<double>(f));
      steps_.emplace_back(f);
    }
    if (angles_ != angle_mode::exact) float32_ = detail::rope_float32_frequencies(o, rotary_dim_);
  }

  /// Turns every head of every token of x, in place, by its position. T may be any storage or scalar type.
  template <class U, class Arch = simd::default_arch>
  void rotate(view<U> x, const positions& at = {}) const {
    apply<Arch>("rope::rotate", view<const U>(x), x, at, magnitude_, 1);
  }
  /// The same into `out`, which has the shape of `in` and is `in` itself or lies apart from it.
  template <class V, class U, class Arch = simd::default_arch>
  void rotate_to(view<V> in, view<U> out, const positions& at = {}) const {
    apply<Arch>("rope::rotate_to", view<const U>(in), out, at, magnitude_, 1);
  }
  /// At real-valued positions, one per token, shared by the batch rows.
  template <class U, class Arch = simd::default_arch>
  void rotate(view<U> x, const real_positions& at) const {
    apply<Arch>("rope::rotate", view<const U>(x), x, at, magnitude_, 1);
  }
  /// Undoes `rotate`: turns back and divides by the magnitude.
  template <class U, class Arch = simd::default_arch>
  void inverse(view<U> x, const positions& at = {}) const {
    apply<Arch>("rope::inverse", view<const U>(x), x, at, 1 / magnitude_, -1);
  }
  /// The transpose of `rotate`, for gradients: turns back and keeps the magnitude.
  template <class U, class Arch = simd::default_arch>
  void adjoint(view<U> x, const positions& at = {}) const {
    apply<Arch>("rope::adjoint", view<const U>(x), x, at, magnitude_, -1);
  }
  /// Moves cached keys by `delta` positions: turned by the difference with magnitude 1, since they already carry it.
  /// @throws std::invalid_argument in the float32 angle modes, where turns do not add up.
  template <class U, class Arch = simd::default_arch>
  void shift(view<U> keys, std::int64_t delta) const {
    detail::require(angles_ == angle_mode::exact, "rope::shift", "angles",
                    "must be exact: float32 angles do not add up", "a float32 angle mode");
    apply<Arch>("rope::shift", view<const U>(keys), keys, detail::constant_position{delta}, 1, 1);
  }

  /// Hooks of the attention kernels: one row of head_dim channels in compute type, in place.
  template <class C, class Arch = simd::default_arch>
  void transform_q(C* x, std::int64_t, const position& at, std::int64_t) const {
    detail::rotate_token<Arch>(frame(), detail::row_span<const C>{x, 0, 1}, detail::row_span<C>{x, 0, 1}, 1, at.value(),
                               magnitude_, 1);
  }
  template <class C, class Arch = simd::default_arch>
  void transform_k(C* x, std::int64_t dim, const position& at, std::int64_t head) const {
    transform_q<C, Arch>(x, dim, at, head);
  }
  /// Refuses heads of another width and positions of several axes, once per call of attention.
  void check(const call& c) const {
    detail::require(c.dim == head_dim_, "rope", "the dim of queries and keys", "must equal head_dim", c.dim);
    detail::require(c.query_positions.axis_count() == 1 && c.key_positions.axis_count() == 1, "rope", "positions",
                    "must have one axis", std::max(c.query_positions.axis_count(), c.key_positions.axis_count()));
  }

  /// Rows of the positions first .. first + rows - 1, built once; include posenc/encoders/rope_table.hpp.
  [[nodiscard]] rope_table<T> table(std::int64_t first, std::int64_t rows) const {
    return rope_table<T>(*this, first, rows);
  }

  [[nodiscard]] const std::vector<double>& inv_freq() const& noexcept { return inv_freq_; }
  /// By value from a temporary, so that `for (f : rope{...}.inv_freq())` reads living memory.
  [[nodiscard]] std::vector<double> inv_freq() && noexcept { return std::move(inv_freq_); }
  /// The frequencies of a float32 angle mode; empty in the exact mode.
  [[nodiscard]] std::vector<float> float32_inv_freq() const { return float32_; }
  [[nodiscard]] double magnitude() const noexcept { return magnitude_; }
  [[nodiscard]] std::int64_t head_dim() const noexcept { return head_dim_; }
  [[nodiscard]] std::int64_t rotary_dim() const noexcept { return rotary_dim_; }
  [[nodiscard]] std::int64_t offset() const noexcept { return offset_; }
  [[nodiscard]] std::int64_t pairs() const noexcept { return rotary_dim_ / 2; }
  [[nodiscard]] rope_layout layout() const noexcept { return layout_; }
  [[nodiscard]] angle_mode angles() const noexcept { return angles_; }

  /// cos and sin of one position times the magnitude, one per pair, rounded once to R (double, float, half, bfloat16).
  template <class R, class Arch = simd::default_arch>
  void cos_sin(std::int64_t at, R* cos, R* sin) const {
    detail::rope_row<Arch, kernels::row_form::separate>(frame(), 0, pairs(), at, magnitude_, 1, cos, sin);
  }

  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = 0,
            .table_bytes = static_cast<std::int64_t>(steps_.size() * sizeof(math::turns)),
            .monotone = false,
            .shift = cache_shift::rotate_keys};
  }

 private:
  [[nodiscard]] detail::rope_frame frame() const noexcept {
    return {layout_, offset_, rotary_dim_, head_dim_, steps_.data(), float32_.empty() ? nullptr : float32_.data()};
  }

  template <class Arch, class U, class At>
  void apply(const char* function, view<const U> in, view<U> out, const At& at, double magnitude,
             double direction) const {
    detail::require(in.extents() == out.extents(), function, "out", "must have the shape of in", out.dim());
    if (in.empty()) return;
    detail::require(in.dim() == head_dim_, function, "dim", "must equal head_dim", in.dim());
    detail::check_apart(in, out, function);
    detail::check_cover(at, function, in.batch(), in.tokens());
    for (std::int64_t b = 0; b < in.batch(); ++b)
      for (std::int64_t t = 0; t < in.tokens(); ++t)
        detail::rotate_token<Arch>(frame(), detail::row_span<const U>{in.row(b, t, 0), in.steps().head, in.steps().dim},
                                   detail::row_span<U>{out.row(b, t, 0), out.steps().head, out.steps().dim}, in.heads(),
                                   detail::position_of(at, b, t), magnitude, direction);
  }

  rope_layout layout_;
  std::int64_t head_dim_;
  std::int64_t rotary_dim_;
  std::int64_t offset_;
  double magnitude_;
  angle_mode angles_;
  std::vector<double> inv_freq_;
  std::vector<math::turns> steps_;
  std::vector<float> float32_;
};

}  // namespace posenc
