// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// ALiBi for encoders that tell past from future:
///   alibi_split       the first half of the heads sees keys up to the query, the second half keys from the query on;
///                     -slope(h) |d| for what is seen, the slopes of heads / 2 used twice
///   alibi_two_sided   -past(h) |d| for d <= 0, -future(h) |d| for d > 0
/// with d = pos_k - pos_q.
/// Domain   every int64 position. Error: that of alibi.
/// Cost     that of alibi; two_sided one comparison more per batch of logits. What a head of alibi_split does not see
///          is masked (allow_positions), so it costs no product of the score matrix.
/// Throws   std::invalid_argument for impossible options, and for an odd number of heads of alibi_split.
/// Who uses it  proposals for encoders in the discussion of ALiBi; no published model was checked.
/// Example  examples/distance_bias_example.cpp

#include <posenc/encoders/alibi.hpp>

namespace posenc {

template <class T = float>
class alibi_split {
 public:
  static constexpr encoder_traits traits{.name = "alibi_asymmetric",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::designed,
                                         .translation_invariant = true,
                                         .symmetric = false};

  /// `options.heads` are the heads of the model, both halves.
  explicit alibi_split(std::int64_t heads) : alibi_split(alibi_options{.heads = heads}) {}
  explicit alibi_split(const alibi_options& o) : both_(halves(o)) {}

  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
    return both_.template row<B>(r, keys);
  }
  [[nodiscard]] interval allow_positions(const posenc::row& r) const noexcept {
    return 2 * r.head < heads() ? interval{interval::lowest, r.query_position + 1}
                                : interval{r.query_position, interval::highest};
  }

  [[nodiscard]] const std::vector<T>& slopes() const noexcept { return both_.slopes(); }
  [[nodiscard]] std::int64_t heads() const noexcept { return both_.heads(); }
  [[nodiscard]] encoder_description describe() const {
    encoder_description d = both_.describe();
    d.parameters = 0;
    return d;
  }

 private:
  static alibi<T> halves(alibi_options o) {
    detail::require(o.heads >= 2 && o.heads % 2 == 0, "alibi_split", "heads", "must be even and at least 2", o.heads);
    detail::require(o.form == alibi_form::symmetric, "alibi_split", "form", "must be symmetric", "another form");
    detail::require(!o.shard && !o.biased_heads, "alibi_split", "options", "must have neither shard nor biased_heads",
                    "one of them");
    o.heads /= 2;
    std::vector<T> slopes = alibi<T>(o).slopes();
    slopes.reserve(2 * slopes.size());
    slopes.insert(slopes.end(), slopes.begin(), slopes.end());
    return alibi<T>(std::move(slopes));
  }

  alibi<T> both_;
};

template <class T = float>
class alibi_two_sided {
 public:
  static constexpr encoder_traits traits{.name = "alibi_asymmetric",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};

  /// Explicit or learned slopes, one per head and side.
  alibi_two_sided(std::vector<T> past, std::vector<T> future) : past_(std::move(past)), future_(std::move(future)) {
    detail::require(!past_.empty(), "alibi_two_sided", "past", "must not be empty", past_.size());
    detail::require(past_.size() == future_.size(), "alibi_two_sided", "future", "must list as many slopes as past",
                    future_.size());
    for (const auto* list : {&past_, &future_})
      for (const T& slope : *list) {
        detail::require(slope == slope, "alibi_two_sided", "slopes", "must be numbers", "a NaN");
        if constexpr (std::is_arithmetic_v<T>)
          detail::require(std::isfinite(slope), "alibi_two_sided", "slopes", "must be finite", slope);
      }
  }
  /// The slopes of ALiBi times a scale per head and side.
  alibi_two_sided(const alibi<T>& base, const std::vector<T>& past_scale, const std::vector<T>& future_scale)
      : alibi_two_sided(scaled(base, past_scale, "past_scale"), scaled(base, future_scale, "future_scale")) {}

  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
    using L = lanes<B>;
    const B past = L::broadcast(past_[static_cast<std::size_t>(r.head)]);
    const B future = B(-L::broadcast(future_[static_cast<std::size_t>(r.head)]));
    const B zero = L::broadcast(0);
    return [past, future, zero, distance = row_distances<B, Keys>(keys, r)](const B& s, std::int64_t k) {
      const B d = distance(k);
      return B(s + L::select(L::greater(d, zero), future, past) * d);
    };
  }

  [[nodiscard]] const std::vector<T>& past() const noexcept { return past_; }
  [[nodiscard]] const std::vector<T>& future() const noexcept { return future_; }
  [[nodiscard]] std::int64_t heads() const noexcept { return static_cast<std::int64_t>(past_.size()); }
  [[nodiscard]] encoder_description describe() const {
    const auto falls = [](const std::vector<T>& slopes) {
      return std::none_of(slopes.begin(), slopes.end(), [](const T& slope) { return slope < T(0); });
    };
    return {.position_limit = std::nullopt,
            .parameters = 2 * heads(),
            .table_bytes = 2 * heads() * static_cast<std::int64_t>(sizeof(T)),
            .monotone = falls(past_) && falls(future_),
            .shift = cache_shift::keep_keys};
  }

 private:
  static std::vector<T> scaled(const alibi<T>& base, const std::vector<T>& scale, const char* name) {
    detail::require(static_cast<std::int64_t>(scale.size()) == base.heads(), "alibi_two_sided", name,
                    "must list one scale per head", scale.size());
    detail::require(base.form() == alibi_form::symmetric, "alibi_two_sided", "base", "must be symmetric",
                    "another form");
    std::vector<T> out;
    for (std::size_t h = 0; h < scale.size(); ++h) out.push_back(T(base.slopes()[h] * scale[h]));
    return out;
  }

  std::vector<T> past_;
  std::vector<T> future_;
};

}  // namespace posenc
