// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// T5's buckets of relative positions (Raffel et al. 2020). With rel = key - query:
///   bidirectional: half of the buckets for each sign, offset num_buckets / 2 if rel > 0, n = |rel|
///   causal:        all of them, n = max(-rel, 0)
///   n < e: bucket n, e = half of the side's buckets; else e + floor(ln(n/e) / ln(max_distance/e) * (side - e)), at
///   most side - 1.
/// The borders are decided by logarithms of 106 bits, so exact powers (n = 16, 32, 64 for 32 buckets, 128) fall where
/// integer arithmetic puts them.

#include <posenc/core/error.hpp>
#include <posenc/math/double_double.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace posenc::math {

/// Buckets of the distances 0 .. max_distance of one side; larger distances share the last one.
/// Domain: side >= 2, max_distance > side / 2.
[[nodiscard]] inline std::vector<std::int32_t> t5_side(std::int64_t side, std::int64_t max_distance) {
  const std::int64_t exact = side / 2;
  std::vector<std::int32_t> out(static_cast<std::size_t>(max_distance + 1));
  const double_double span =
      log(double_double(static_cast<double>(max_distance)) / double_double(static_cast<double>(exact)));
  for (std::int64_t n = 0; n <= max_distance; ++n) {
    std::int64_t bucket = n;
    if (n >= exact) {
      const double_double ratio = double_double(static_cast<double>(n)) / double_double(static_cast<double>(exact));
      const double_double step = log(ratio) / span * double_double(static_cast<double>(side - exact));
      // 1e-20 is far above the error of the quotient and far below the gap of any value that is not an integer.
      const double_double nudged = step + double_double(1e-20);
      const double whole = std::floor(nudged.hi);
      const bool below = whole == nudged.hi && nudged.lo < 0;
      bucket = std::min(exact + static_cast<std::int64_t>(whole) - (below ? 1 : 0), side - 1);
    }
    out[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(bucket);
  }
  return out;
}

/// The bucket function as a table over one side.
class t5_buckets {
 public:
  /// @throws std::invalid_argument unless num_buckets splits into sides of at least 2 buckets (half of a side, rounded
  /// down, is its exact part) and max_distance exceeds the exact part.
  t5_buckets(std::int64_t num_buckets, std::int64_t max_distance, bool bidirectional)
      : bidirectional_(bidirectional), side_(bidirectional ? num_buckets / 2 : num_buckets) {
    posenc::detail::require(num_buckets >= (bidirectional ? 4 : 2), "relative_bucket", "num_buckets",
                            bidirectional ? "must be at least 4 when bidirectional" : "must be at least 2",
                            num_buckets);
    posenc::detail::require(!bidirectional || num_buckets % 2 == 0, "relative_bucket", "num_buckets",
                            "must be even when bidirectional", num_buckets);
    posenc::detail::require(max_distance > side_ / 2, "relative_bucket", "max_distance",
                            "must exceed the distances that have a bucket of their own", max_distance);
    table_ = t5_side(side_, max_distance);
  }

  [[nodiscard]] std::int64_t operator()(std::int64_t relative) const noexcept {
    const bool later = relative > 0;
    if (!bidirectional_ && later) relative = 0;
    const std::uint64_t n = later && bidirectional_ ? static_cast<std::uint64_t>(relative)
                                                    : std::uint64_t{0} - static_cast<std::uint64_t>(relative);
    const std::int64_t bucket = table_[std::min(static_cast<std::size_t>(n), table_.size() - 1)];
    return bucket + (later && bidirectional_ ? side_ : 0);
  }
  [[nodiscard]] std::int64_t max_distance() const noexcept { return static_cast<std::int64_t>(table_.size()) - 1; }

 private:
  bool bidirectional_;
  std::int64_t side_;
  std::vector<std::int32_t> table_;
};

}  // namespace posenc::math
