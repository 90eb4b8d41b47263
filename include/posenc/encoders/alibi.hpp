// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// ALiBi (Press et al. 2022): a per-head penalty that grows linearly with distance,
///   bias(h, i, j) = -slope(h) * |pos_k(j) - pos_q(i)|, added after q.k was scaled.
/// Domain   every int64 position. Error: slopes rounded once to T; the distance is formed in int64, exact in the
///          lane type up to 2^24 (float) or 2^53, within one step beyond; one fused multiply-add.
/// Cost     heads * sizeof(T) bytes; one multiply-add per logit, nothing is stored.
/// Throws   std::invalid_argument for impossible options.
/// Who uses it  BLOOM, MPT, Falcon-RW, Baichuan-13B, JAIS (causal); Jina-BERT (symmetric).
/// Example  examples/alibi_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/scalar.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/math/slopes.hpp>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace posenc {

/// symmetric: -m |pk - pq|. causal: m (pk - pq), the same bits for keys that a causal mask lets through, a reward for
/// later ones. key_only: m pk as BLOOM adds it, equal to causal after softmax but not in an exported log-sum-exp, and
/// dependent on where positions start.
enum class alibi_form { symmetric, causal, key_only };

/// Slopes rounded to bfloat16, ties to even, as Falcon holds them.
enum class slope_rounding { none, bfloat16 };

/// Heads first .. first + count - 1 of a model of `of` heads, for tensor parallelism.
struct head_shard {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t of = 0;
};

struct alibi_options {
  /// Heads of the model.
  std::int64_t heads = 0;
  slope_rule rule = slope_rule::paper;
  /// alibi_bias_max of MPT.
  double bias_max = 8;
  alibi_form form = alibi_form::symmetric;
  slope_rounding rounding = slope_rounding::none;
  /// Only the first `biased_heads` heads have a bias, with the slopes of that head count; the rest have slope 0.
  std::optional<std::int64_t> biased_heads{};
  std::optional<head_shard> shard{};
};

template <class T = float>
class alibi {
 public:
  static constexpr encoder_traits traits{.name = "alibi",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::designed,
                                         .translation_invariant = true,
                                         .symmetric = true};

  explicit alibi(std::int64_t heads) : alibi(alibi_options{.heads = heads}) {}
  explicit alibi(const alibi_options& o) : form_(o.form) {
    detail::require(o.heads >= 1, "alibi", "heads", "must be at least 1", o.heads);
    detail::require(std::isfinite(o.bias_max) && o.bias_max > 0, "alibi", "bias_max", "must be positive and finite",
                    o.bias_max);
    const std::int64_t biased = o.biased_heads.value_or(o.heads);
    detail::require(biased >= 1 && biased <= o.heads, "alibi", "biased_heads", "must lie in 1..heads", biased);
    const head_shard s = o.shard.value_or(head_shard{.first = 0, .count = o.heads, .of = o.heads});
    detail::require(s.of == o.heads, "alibi", "shard.of", "must equal heads", s.of);
    detail::require(s.count >= 1 && s.count <= s.of, "alibi", "shard.count", "must lie in 1..heads", s.count);
    detail::require(s.first >= 0 && s.first <= s.of - s.count, "alibi", "shard.first",
                    "must leave room for count heads", s.first);
    const std::vector<double> all = math::alibi_slopes(biased, o.rule, o.bias_max);
    for (std::int64_t h = s.first; h < s.first + s.count; ++h) {
      double slope = h < biased ? all[static_cast<std::size_t>(h)] : 0.0;
      if (o.rounding == slope_rounding::bfloat16)
        slope =
            static_cast<double>(detail::float_from_bfloat16(detail::bfloat16_from_float(detail::round_to_odd(slope))));
      slopes_.push_back(T(slope));
    }
  }
  /// Explicit or learned slopes, one per head.
  explicit alibi(std::vector<T> slopes, alibi_form form = alibi_form::symmetric)
      : form_(form), given_(true), slopes_(std::move(slopes)) {
    detail::require(!slopes_.empty(), "alibi", "slopes", "must not be empty", slopes_.size());
    for (const T& slope : slopes_) detail::require(slope == slope, "alibi", "slopes", "must be numbers", "a NaN");
    if constexpr (std::floating_point<T>)
      for (const T& slope : slopes_) detail::require(std::isfinite(slope), "alibi", "slopes", "must be finite", slope);
  }

  /// The slopes of `o` times a learned scale per head, held at 0 from below (data2vec 2.0's alibi_scale).
  alibi(const alibi_options& o, std::span<const T> scale) : alibi(o) {
    detail::require(scale.size() == slopes_.size(), "alibi", "scale", "must list one factor per head", scale.size());
    given_ = true;
    for (std::size_t h = 0; h < slopes_.size(); ++h) {
      detail::require(scale[h] == scale[h], "alibi", "scale", "must hold numbers", "a NaN");
      if constexpr (std::floating_point<T>)
        detail::require(std::isfinite(scale[h]), "alibi", "scale", "must be finite", scale[h]);
      slopes_[h] = scale[h] < T(0) ? T(0) : T(slopes_[h] * scale[h]);
    }
  }

  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
    using L = lanes<B>;
    const B slope = L::broadcast(slopes_[static_cast<std::size_t>(r.head)]);
    // One op for the three forms: the sign and the reference position are looked at once per row.
    posenc::row from = r;
    if (form_ == alibi_form::key_only) from.query_position = 0;
    const bool absolute = form_ == alibi_form::symmetric;
    return [slope, absolute, distance = row_distances<B, Keys>(keys, from)](const B& s, std::int64_t k) {
      const B d = distance(k);
      const B signed_distance = absolute ? B(-L::abs(d)) : d;
      return B(s + slope * signed_distance);
    };
  }

  [[nodiscard]] const std::vector<T>& slopes() const& noexcept { return slopes_; }
  /// By value from a temporary, so that `for (m : alibi{8}.slopes())` reads living memory.
  [[nodiscard]] std::vector<T> slopes() && noexcept { return std::move(slopes_); }
  [[nodiscard]] std::int64_t heads() const noexcept { return static_cast<std::int64_t>(slopes_.size()); }
  [[nodiscard]] alibi_form form() const noexcept { return form_; }

  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = given_ ? heads() : 0,
            .table_bytes = heads() * static_cast<std::int64_t>(sizeof(T)),
            .monotone = form_ == alibi_form::symmetric &&
                        std::none_of(slopes_.begin(), slopes_.end(), [](const T& slope) { return slope < T(0); }),
            .shift = cache_shift::keep_keys};
  }

 private:
  alibi_form form_;
  bool given_ = false;
  std::vector<T> slopes_;
};

}  // namespace posenc
