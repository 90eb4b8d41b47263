// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Any bias that depends on the distance alone: one line of values per head,
///   bias(h, i, j) = table[h][clamp(pos_k(j) - pos_q(i), -m, m) + m].
/// On contiguous keys a row of the score matrix is a contiguous slice of the line; beyond +-m the line is constant, and
/// `lane_slack` copies of its ends let the slice run over them.
/// Domain   every int64 position. Error: none beyond the addition.
/// Cost     heads * (2 m + 1 + 2 * lane_slack) * sizeof(T) bytes; one load and one addition per batch of logits.
///          Listed ids gather.
/// Example  examples/relative_bucket_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/traits.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace posenc {

template <class T = float>
class toeplitz {
 public:
  static constexpr encoder_traits traits{.name = "toeplitz",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};

  /// `table` is [heads, 2 * max_distance + 1], the distance -max_distance first. It is copied.
  /// @throws std::invalid_argument if its size does not fit.
  toeplitz(std::int64_t heads, std::int64_t max_distance, std::span<const T> table)
      : toeplitz(checked_heads(heads, max_distance, table.size()), max_distance,
                 [&](std::int64_t h, std::int64_t distance) {
                   return table[static_cast<std::size_t>(h * (2 * max_distance + 1) + distance + max_distance)];
                 }) {}

  /// From a function value(head, distance), called for distances in -max_distance .. max_distance (the two
  /// ends more than once).
  template <class F>
    requires std::invocable<F&, std::int64_t, std::int64_t> toeplitz(std::int64_t heads, std::int64_t max_distance,
                                                                     F&& value)
        : heads_(heads), reach_(max_distance) {
      detail::require(heads >= 1, "toeplitz", "heads", "must be at least 1", heads);
      detail::require(max_distance >= 0 && max_distance <= (std::int64_t{1} << 40), "toeplitz", "max_distance",
                      "must lie in 0..2^40", max_distance);
      lines_.reserve(static_cast<std::size_t>(heads * length()));
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < length(); ++i)
          lines_.push_back(value(h, std::clamp(i - lane_slack - reach_, -reach_, reach_)));
    }

    template <class B, class Keys>
    [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
      const T* zero = line(r.head);
      const std::int64_t reach = reach_;
      if constexpr (Keys::contiguous) {
        const std::int64_t start = position_difference(keys.first, r.query_position);
        return [zero, start, reach](const B& s, std::int64_t k) {
          return B(s + lanes<B>::load(zero + std::clamp(start + k, -reach - lane_slack, reach)));
        };
      } else {
        return [value = listed_look_up<B, T>(keys, r, zero - reach, -reach, reach)](const B& s, std::int64_t k)
                   POSENC_LAMBDA_INLINE { return B(s + value(k)); };
      }
    }

    /// The value at distance 0 of a head's line; distances -max_distance .. max_distance may be read around it.
    [[nodiscard]] const T* line(std::int64_t head) const noexcept {
      return lines_.data() + head * length() + lane_slack + reach_;
    }
    [[nodiscard]] std::int64_t heads() const noexcept { return heads_; }
    [[nodiscard]] std::int64_t max_distance() const noexcept { return reach_; }

    [[nodiscard]] encoder_description describe() const {
      return {.position_limit = std::nullopt,
              .parameters = heads_ * (2 * reach_ + 1),
              .table_bytes = static_cast<std::int64_t>(lines_.size() * sizeof(T)),
              .monotone = false,
              .shift = cache_shift::keep_keys};
    }

   private:
    static std::int64_t checked_heads(std::int64_t heads, std::int64_t max_distance, std::size_t values) {
      const bool sane = heads >= 1 && max_distance >= 0 && max_distance <= (std::int64_t{1} << 40);
      const auto length = static_cast<std::size_t>(sane ? 2 * max_distance + 1 : 1);
      detail::require(!sane || (values % length == 0 && values / length == static_cast<std::size_t>(heads)), "toeplitz",
                      "table", "must hold heads * (2 * max_distance + 1) values", values);
      return heads;
    }

    [[nodiscard]] std::int64_t length() const noexcept { return 2 * reach_ + 1 + 2 * lane_slack; }

    std::int64_t heads_;
    std::int64_t reach_;
    std::vector<T> lines_;
};

}  // namespace posenc
