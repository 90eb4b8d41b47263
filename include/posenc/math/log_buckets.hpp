// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// DeBERTa's signed logarithmic buckets: with mid = position_buckets / 2 and M = max_relative_positions,
///   |r| <= mid: r; else sign(r) (mid + ceil(ln(|r| / mid) / ln((M - 1) / mid) (mid - 1)))
/// The ceiling is that of the exact real number: 1e-9 is taken off before it, less than any gap of a value that is no
/// integer for the sizes in use.

#include <posenc/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace posenc {

/// What lies beyond M - 1: Microsoft's code holds r there first; Hugging Face's lets the bucket grow until the table
/// ends, which reaches row 0 of the table for far keys after the query.
enum class deberta_far_rule { microsoft, hf };

namespace math {

class log_buckets {
 public:
  /// position_buckets of -1: every distance has a bucket of its own.
  log_buckets(std::int64_t position_buckets, std::int64_t max_relative_positions, deberta_far_rule far_rule)
      : buckets_(position_buckets), most_(max_relative_positions), far_(far_rule) {
    posenc::detail::require(max_relative_positions >= 2 && max_relative_positions <= (std::int64_t{1} << 30), "deberta",
                            "max_relative_positions", "must lie in 2..2^30", max_relative_positions);
    posenc::detail::require(position_buckets == -1 || position_buckets >= 2, "deberta", "position_buckets",
                            "must be -1 (none) or at least 2", position_buckets);
    posenc::detail::require(position_buckets == -1 || max_relative_positions - 1 > position_buckets / 2, "deberta",
                            "max_relative_positions", "must exceed position_buckets / 2 + 1", max_relative_positions);
  }

  /// Rows on either side of distance 0.
  [[nodiscard]] std::int64_t span() const noexcept { return buckets_ > 0 ? buckets_ : most_; }
  /// The bucket of r = query - key. Domain: |r| < 2^53.
  [[nodiscard]] std::int64_t operator()(std::int64_t r) const noexcept {
    if (buckets_ <= 0) return r;
    if (far_ == deberta_far_rule::microsoft) r = std::clamp(r, -(most_ - 1), most_ - 1);
    const std::int64_t mid = buckets_ / 2;
    if (r >= -mid && r <= mid) return r;
    const double n = std::abs(static_cast<double>(r));
    const auto half = static_cast<double>(mid);
    const double place = std::log(n / half) / std::log(static_cast<double>(most_ - 1) / half) * (half - 1);
    const std::int64_t bucket = mid + static_cast<std::int64_t>(std::ceil(place - 1e-9));
    return r < 0 ? -bucket : bucket;
  }
  /// The row of the table for r: clamp(bucket + span, 0, 2 span - 1).
  [[nodiscard]] std::int64_t row(std::int64_t r) const noexcept {
    return std::clamp((*this)(r) + span(), std::int64_t{0}, 2 * span() - 1);
  }
  [[nodiscard]] std::int64_t max_relative_positions() const noexcept { return most_; }

 private:
  std::int64_t buckets_;
  std::int64_t most_;
  deberta_far_rule far_;
};

}  // namespace math
}  // namespace posenc
