// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Rotary position embedding (Su et al. 2021): pair i of a query or key at position p is turned by p * inv_freq(i),
///   (a, b) -> A (a cos - b sin, a sin + b cos),   inv_freq(i) = base^(-2i / rotary_dim),
/// so that the product of a query and a key depends on the difference of their positions alone. Scalings, layouts, axes
/// and angle modes are options (rope_options.hpp); a variant changes the rows of cos and sin, never the kernel.
/// Domain   every int64 position, negative ones too; real ones within +-10^15 through `real_positions`.
/// Error    cos and sin are rounded once to the compute type of the data (see kernels/cos_sin.hpp); one rounding when
///          16-bit data is stored.
/// Cost     the row of cos and sin once per token, then one load and one store per element; nothing is allocated
///          (but one buffer per token for scalars without SIMD in the layout interleaved_in_half_out).
/// Throws   std::invalid_argument for impossible options or a view of another head_dim, before anything is written.
/// Example  examples/rope_example.cpp

#include <posenc/core/policy.hpp>
#include <posenc/core/positions.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/rope_options.hpp>
#include <posenc/encoders/rope_rows.hpp>
#include <posenc/encoders/rope_token.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace posenc {

template <class T>
class rope_table;
namespace detail {
struct rope_access;
}

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

  /// Positions of several axes are taken where the options name axes.
  static constexpr bool several_axes = true;

  explicit rope(const rope_options& o) : rope(o, detail::rope_rule(o)) {}

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
  /// At real-valued positions, shared by the batch rows.
  template <class U, class Arch = simd::default_arch>
  void rotate(view<U> x, const real_positions& at) const {
    apply<Arch>("rope::rotate", view<const U>(x), x, at, magnitude_, 1);
  }
  /// Undoes `rotate`: turns back and divides by the magnitude. @throws std::invalid_argument for vjepa2_mixed.
  template <class U, class Arch = simd::default_arch>
  void inverse(view<U> x, const positions& at = {}) const {
    detail::require(layout_ != vjepa2_mixed, "rope::inverse", "layout", "must be orthogonal", "vjepa2_mixed");
    apply<Arch>("rope::inverse", view<const U>(x), x, at, 1 / magnitude_, -1);
  }
  /// The transpose of `rotate`, for gradients: turns back and keeps the magnitude.
  template <class U, class Arch = simd::default_arch>
  void adjoint(view<U> x, const positions& at = {}) const {
    apply<Arch>("rope::adjoint", view<const U>(x), x, at, magnitude_, -1);
  }
  /// Moves cached keys by `delta` positions on every axis: turned by the difference with magnitude 1, since they
  /// already carry it. The angle of a shift is exact, so repeated shifts add up to one: what grows is the rounding of
  /// the keys.
  /// @throws std::invalid_argument with the reason of `shift_refusal`.
  template <class U, class Arch = simd::default_arch>
  void shift(view<U> keys, std::int64_t delta) const {
    const auto refusal = shift_refusal();
    detail::require(refusal.empty(), "rope::shift", "encoder", "must turn keys by their position alone",
                    std::string(refusal));
    apply<Arch>("rope::shift", view<const U>(keys), keys, detail::constant_position{delta}, 1, 1,
                frame().of_stored_keys());
  }
  /// Moves cached keys whose axes move by different amounts; only the case where they agree is a shift.
  /// @throws std::invalid_argument if two axes that turn pairs move by different amounts.
  template <class U, class Arch = simd::default_arch>
  void shift(view<U> keys, const position& delta) const {
    const detail::rope_frame f = frame();
    const std::int64_t move = delta[f.axis(0)];
    const auto check_axis = [&](int a) {
      detail::require(delta[a] == move, "rope::shift", "delta",
                      "must be the same on every axis that turns pairs, another is", delta[a]);
    };
    for (std::int64_t i = 0; i < pairs(); ++i) check_axis(f.axis(i));
    for (int a = 0; a < frequency_axes_; ++a) check_axis(frequency_axes_ > 1 ? a : f.axis(0));
    shift<U, Arch>(keys, move);
  }
  /// Why cached keys cannot be shifted; empty where they can.
  [[nodiscard]] std::string_view shift_refusal() const noexcept {
    if (angles_ != angle_mode::exact) return "float32 angles do not add up";
    if (layout_ == vjepa2_mixed) return "the pairs of vjepa2_mixed are not turned orthogonally";
    return {};
  }

  /// Hooks of the attention kernels: one row of head_dim channels in compute type, in place.
  template <class C, class Arch = simd::default_arch>
  void transform_q(C* x, std::int64_t, const position& at, std::int64_t head) const {
    const detail::rope_frame f = frame();
    detail::rotate_heads<Arch>(f, detail::row_span<const C>{x, 0, 1}, detail::row_span<C>{x, 0, 1}, head, 1, true,
                               detail::rows_of_position<Arch, position>{f, at, magnitude_, 1});
  }
  template <class C, class Arch = simd::default_arch>
  void transform_k(C* x, std::int64_t dim, const position& at, std::int64_t head) const {
    transform_q<C, Arch>(x, dim, at, head);
  }
  /// Refuses heads of another width or number and positions of other axes, once per call of attention.
  void check(const call& c) const {
    detail::require(c.dim == head_dim_, "rope", "the dim of queries and keys", "must equal head_dim", c.dim);
    detail::require(frequency_heads_ == 1 || (c.heads == frequency_heads_ && c.kv_heads == frequency_heads_), "rope",
                    "the heads of queries and keys", "must equal frequency_heads", c.kv_heads);
    detail::check_cover(c.query_positions, "rope", c.batch, c.queries, axis_count_);
    detail::check_cover(c.key_positions, "rope", c.batch, c.keys, axis_count_);
  }

  /// Rows of the positions first .. first + rows - 1, built once; include posenc/encoders/rope_table.hpp.
  [[nodiscard]] rope_table<T> table(std::int64_t first, std::int64_t rows) const {
    return rope_table<T>(*this, first, rows);
  }

  [[nodiscard]] const std::vector<double>& inv_freq() const& noexcept { return inv_freq_; }
  /// By value from a temporary, so that `for (f : rope{...}.inv_freq())` reads living memory.
  [[nodiscard]] std::vector<double> inv_freq() && noexcept { return std::move(inv_freq_); }
  /// The frequencies of the Hugging Face float32 modes; empty in the others.
  [[nodiscard]] std::vector<float> float32_inv_freq() const { return float32_.inv_freq; }
  /// On cos and sin.
  [[nodiscard]] double magnitude() const noexcept { return magnitude_; }
  /// A factor on 1 / sqrt(dim) that belongs to the scaling and is not in cos and sin (DeepSeek's YaRN). `attention`
  /// does not apply it by itself: pass it as a `logit_scale`.
  [[nodiscard]] double softmax_scale_multiplier() const noexcept { return softmax_scale_; }
  /// Whether the frequencies follow from a length (dynamic NTK, LongRoPE): a cache rotated under another length must be
  /// rotated again (encoders/rerotate.hpp).
  [[nodiscard]] bool depends_on_length() const noexcept { return depends_on_length_; }
  /// Axes that turn pairs.
  [[nodiscard]] int axis_count() const noexcept { return axis_count_; }
  [[nodiscard]] std::int64_t frequency_heads() const noexcept { return frequency_heads_; }
  [[nodiscard]] std::int64_t head_dim() const noexcept { return head_dim_; }
  [[nodiscard]] std::int64_t rotary_dim() const noexcept { return rotary_dim_; }
  [[nodiscard]] std::int64_t offset() const noexcept { return offset_; }
  [[nodiscard]] std::int64_t pairs() const noexcept { return rotary_dim_ / 2; }
  [[nodiscard]] rope_layout layout() const noexcept { return layout_; }
  [[nodiscard]] angle_mode angles() const noexcept { return angles_; }

  /// cos and sin of one position times the magnitude, one per pair, rounded once to R (double, float, half, bfloat16).
  /// @throws std::out_of_range for a head without frequencies.
  template <class R, class Arch = simd::default_arch>
  void cos_sin(const position& at, R* cos, R* sin, std::int64_t head = 0) const {
    row<Arch>(at, cos, sin, head);
  }
  template <class R, class Arch = simd::default_arch>
  void cos_sin(const real_position& at, R* cos, R* sin, std::int64_t head = 0) const {
    row<Arch>(at, cos, sin, head);
  }

  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = 0,
            .table_bytes = static_cast<std::int64_t>(steps_.size() * sizeof(math::turns)),
            .monotone = false,
            .shift = shift_refusal().empty() ? cache_shift::rotate_keys : cache_shift::recompute_keys,
            .shift_reason = shift_refusal()};
  }

 private:
  friend struct detail::rope_access;

  rope(const rope_options& o, detail::rope_rule&& rule)
      : layout_(o.layout),
        head_dim_(o.head_dim),
        rotary_dim_(rule.rotary_dim),
        offset_(o.offset),
        magnitude_(rule.scaled.magnitude),
        softmax_scale_(rule.scaled.softmax_scale),
        angles_(o.angles),
        axis_count_(rule.axis_count),
        frequency_axes_(o.frequency_axes),
        frequency_heads_(o.frequency_heads),
        depends_on_length_(std::visit(
            []<class S>(const S&) {
              return requires { S::depends_on_length; };
            },
            o.scaling)),
        float32_(std::move(rule.float32)),
        axis_of_pair_(std::move(rule.axis_of_pair)) {
    if (layout_ == half_split_in_blocks) block_dims_ = o.axes.block_dims;
    for (const auto& f : rule.scaled.inv_freq) {
      detail::require(std::abs(f.hi) <= 0x1p32, "rope", "inv_freq", "must stay within +-2^32 after scaling", f.hi);
      inv_freq_.push_back(static_cast<double>(f));
      steps_.emplace_back(f);
    }
  }

  [[nodiscard]] detail::rope_frame frame() const noexcept {
    return {layout_,
            offset_,
            rotary_dim_,
            head_dim_,
            steps_.data(),
            float32_.empty() ? nullptr : &float32_,
            axis_of_pair_.empty() ? nullptr : axis_of_pair_.data(),
            frequency_axes_,
            frequency_heads_,
            block_dims_};
  }

  template <class Arch, class R, class At>
  void row(const At& at, R* cos, R* sin, std::int64_t head) const {
    if (head < 0 || head >= frequency_heads_)
      detail::outside("rope::cos_sin", "head", "must lie below frequency_heads", head);
    if constexpr (std::same_as<At, real_position>)
      for (int a = 0; a < axis_count_; ++a)
        detail::require(std::abs(at[a]) <= 1e15, "rope::cos_sin", "position", "must be finite and within +-10^15",
                        at[a]);
    const detail::rope_frame f = frame();
    for (std::int64_t i = 0; i < pairs(); i += detail::rope_block)
      detail::rope_row<Arch, kernels::row_form::separate>(f, head, i, std::min(detail::rope_block, pairs() - i), at,
                                                          magnitude_, 1, cos + i, sin + i);
  }

  template <class Arch, class U, class At>
  void apply(const char* function, const view<const U>& in, const view<U>& out, const At& at, double magnitude,
             double direction) const {
    apply<Arch>(function, in, out, at, magnitude, direction, frame());
  }
  template <class Arch, class U, class At>
  void apply(const char* function, const view<const U>& in, const view<U>& out, const At& at, double magnitude,
             double direction, const detail::rope_frame& f) const {
    detail::require(in.extents() == out.extents(), function, "out", "must have the shape of in", out.dim());
    if (in.empty()) return;
    detail::require(in.dim() == head_dim_, function, "dim", "must equal head_dim", in.dim());
    detail::require(frequency_heads_ == 1 || in.heads() == frequency_heads_, function, "heads",
                    "must equal frequency_heads", in.heads());
    detail::check_apart(in, out, function);
    detail::check_cover(at, function, in.batch(), in.tokens(), axis_count_);
    for (std::int64_t b = 0; b < in.batch(); ++b)
      for (std::int64_t t = 0; t < in.tokens(); ++t) {
        const auto where = detail::position_of(at, b, t);
        detail::rotate_heads<Arch>(
            f, detail::row_span<const U>{in.row(b, t, 0), in.steps().head, in.steps().dim},
            detail::row_span<U>{out.row(b, t, 0), out.steps().head, out.steps().dim}, 0, in.heads(), direction > 0,
            detail::rows_of_position<Arch, std::remove_const_t<decltype(where)>>{f, where, magnitude, direction});
      }
  }

  rope_layout layout_;
  std::int64_t head_dim_;
  std::int64_t rotary_dim_;
  std::int64_t offset_;
  double magnitude_;
  double softmax_scale_;
  angle_mode angles_;
  int axis_count_;
  int frequency_axes_;
  std::int64_t frequency_heads_;
  bool depends_on_length_;
  std::vector<double> inv_freq_;
  std::vector<math::turns> steps_;
  detail::rope_float32 float32_;
  std::vector<std::uint8_t> axis_of_pair_;
  std::vector<std::int64_t> block_dims_;
};

namespace detail {
/// What tables and `rerotate` read of an encoder beside its public answers.
struct rope_access {
  template <class T>
  static rope_frame frame(const rope<T>& r) noexcept {
    return r.frame();
  }
  template <class T>
  static const std::vector<std::uint8_t>& axis_of_pair(const rope<T>& r) noexcept {
    return r.axis_of_pair_;
  }
  template <class T>
  static const std::vector<std::int64_t>& block_dims(const rope<T>& r) noexcept {
    return r.block_dims_;
  }
};
}  // namespace detail
}  // namespace posenc
