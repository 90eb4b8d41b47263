// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Where queries and keys of a call stand, and their distances on lanes.
///   distance = key position - query position
/// Domain   every int64; differences are held at +-2^62.
/// Error    formed in int64 or from exact offsets: exact in float up to 2^24 and in double up to 2^53, within one step
///          beyond. Lanes of contiguous keys count from a first one that may be rounded: exact 16 less far, then two
///          steps.
/// Cost     2 to 4 instructions a batch of lanes where keys are contiguous or listed with offsets, else some 20 a key.

#include <posenc/config.hpp>
#include <posenc/core/lanes.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace posenc {

/// Elements that every array read by a row op has past its last one, whatever the Arch.
inline constexpr int lane_slack = 16;

/// One line of the score matrix: what a hook knows about the query.
struct row {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t kv_head = 0;
  std::int64_t query_index = 0;
  std::int64_t query_position = 0;
};

/// Key k stands at first + k.
struct contiguous_keys {
  static constexpr bool contiguous = true;
  std::int64_t first = 0;
  [[nodiscard]] constexpr std::int64_t position(std::int64_t k) const noexcept {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(first) + static_cast<std::uint64_t>(k));
  }
};

/// Key k stands at ids[k]; `ids` has `lane_slack` readable elements past its end. Where ids lie close together they are
/// also known as offsets[k] = ids[k] - base (offsets_to_base), from which lanes have distances without an integer.
struct listed_keys {
  static constexpr bool contiguous = false;
  const std::int64_t* ids = nullptr;
  /// One per id, at most 2^23 in size, and `lane_slack` more; null: there are none.
  const float* offsets = nullptr;
  std::int64_t base = 0;
  [[nodiscard]] constexpr std::int64_t position(std::int64_t k) const noexcept { return ids[k]; }
};

/// a - b, held at +-2^62, so that an index can be added to it.
[[nodiscard]] constexpr std::int64_t position_difference(std::int64_t a, std::int64_t b) noexcept {
  constexpr std::int64_t bound = std::int64_t{1} << 62;
  const auto wrapped = static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
  if ((a < b) != (wrapped < 0)) return a < b ? -bound : bound;
  return std::clamp(wrapped, -bound, bound);
}

namespace detail {
/// a + b, held at the ends of int64.
[[nodiscard]] constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b) noexcept {
  if (b > 0 && a > std::numeric_limits<std::int64_t>::max() - b) return std::numeric_limits<std::int64_t>::max();
  if (b < 0 && a < std::numeric_limits<std::int64_t>::min() - b) return std::numeric_limits<std::int64_t>::min();
  return a + b;
}
}  // namespace detail

/// Keys listed by n ids (slack included), with their offsets from the middle, which go to offsets[0 .. n - 1]; without
/// any where ids span more than 2^24, since a float would not tell them apart.
[[nodiscard]] inline listed_keys offsets_to_base(const std::int64_t* ids, std::int64_t n, float* offsets) noexcept {
  if (n == 0) return {ids};
  std::int64_t least = ids[0];
  std::int64_t greatest = ids[0];
  for (std::int64_t i = 1; i < n; ++i) {
    least = std::min(least, ids[i]);
    greatest = std::max(greatest, ids[i]);
  }
  const std::int64_t span = position_difference(greatest, least);
  if (span > std::int64_t{1} << 24) return {ids};
  const std::int64_t base = least + span / 2;
  for (std::int64_t i = 0; i < n; ++i) offsets[i] = static_cast<float>(static_cast<std::int32_t>(ids[i] - base));
  return {ids, offsets, base};
}

/// key position - query position on the lanes of the keys of one row: what does not depend on the key is done once.
template <class B, class Keys>
class row_distances {
  using L = lanes<B>;
  using scalar = typename L::scalar;
  static constexpr bool arithmetic_ = std::is_arithmetic_v<scalar>;
  // Autodiff scalars convert from double, arithmetic ones straight from the integer.
  using number = std::conditional_t<arithmetic_, scalar, double>;

 public:
  row_distances(const Keys& keys, const row& r) : keys_(keys), query_(r.query_position) {
    if constexpr (Keys::contiguous) {
      start_ = position_difference(keys.first, query_);
    } else {
      // The base may lie anywhere: the multiple of 2^24 in its distance is added last, so that sums are exact.
      const std::int64_t all = position_difference(keys.base, query_);
      const std::int64_t multiple = (all + (std::int64_t{1} << 23)) >> 24 << 24;
      near_ = static_cast<number>(all - multiple);
      far_ = static_cast<number>(multiple);
    }
  }

  /// For the lanes k, k + 1, ...
  [[nodiscard]] POSENC_ALWAYS_INLINE B operator()(std::int64_t k) const {
    if constexpr (Keys::contiguous) {
      return L::iota() + L::broadcast(static_cast<number>(start_ + k));
    } else {
      if constexpr (arithmetic_)
        if (keys_.offsets) [[likely]]
          return from_offsets(k);
      return from_ids(k);
    }
  }

  /// The same where there are offsets.
  [[nodiscard]] POSENC_ALWAYS_INLINE B from_offsets(std::int64_t k) const {
    return (L::load(keys_.offsets + k) + L::broadcast(near_)) + L::broadcast(far_);
  }

 private:
  [[nodiscard]] B from_ids(std::int64_t k) const {
    double difference[L::size];
    for (int i = 0; i < L::size; ++i)
      difference[i] = static_cast<double>(position_difference(keys_.position(k + i), query_));
    return L::load(difference);
  }

  Keys keys_;
  std::int64_t query_;
  std::int64_t start_ = 0;
  number near_ = 0;
  number far_ = 0;
};

/// A table over the distances lo .. hi on the lanes of listed keys, held at its ends: table[0] is that of lo.
template <class B, class S>
class listed_look_up {
  using L = lanes<B>;
  using scalar = typename L::scalar;
  static constexpr bool arithmetic_ = std::is_arithmetic_v<scalar> && std::is_arithmetic_v<S>;

 public:
  listed_look_up(const listed_keys& keys, const row& r, const S* table, std::int64_t lo, std::int64_t hi)
      : keys_(keys), query_(r.query_position), distance_(keys, r), table_(table), lo_(lo), hi_(hi) {
    constexpr std::int64_t bound = std::int64_t{1} << 23;
    if constexpr (arithmetic_)
      if (keys.offsets && lo >= -bound && hi <= bound) {
        on_lanes_ = true;
        least_ = static_cast<scalar>(lo);
        greatest_ = static_cast<scalar>(hi);
      }
  }
  [[nodiscard]] POSENC_ALWAYS_INLINE B operator()(std::int64_t k) const {
    if constexpr (arithmetic_)
      if (on_lanes_) [[likely]] {
        const B least = L::broadcast(least_);
        const B greatest = L::broadcast(greatest_);
        B d = distance_.from_offsets(k);
        d = L::select(L::greater(d, least), d, least);
        d = L::select(L::greater(greatest, d), d, greatest);
        return L::gather(table_, d - least);
      }
    return one_by_one(k);
  }

 private:
  [[nodiscard]] B one_by_one(std::int64_t k) const {
    S value[L::size];
    for (int i = 0; i < L::size; ++i)
      value[i] = table_[std::clamp(position_difference(keys_.position(k + i), query_), lo_, hi_) - lo_];
    return L::load(static_cast<const S*>(value));
  }

  listed_keys keys_;
  std::int64_t query_;
  row_distances<B, listed_keys> distance_;
  const S* table_;
  std::int64_t lo_;
  std::int64_t hi_;
  bool on_lanes_ = false;
  std::conditional_t<arithmetic_, scalar, double> least_ = 0;
  std::conditional_t<arithmetic_, scalar, double> greatest_ = 0;
};

/// row_distances for one place.
template <class B, class Keys>
[[nodiscard]] B distance(const Keys& keys, const row& r, std::int64_t k) {
  return row_distances<B, Keys>(keys, r)(k);
}

}  // namespace posenc
