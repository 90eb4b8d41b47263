// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The ids of listed keys as the kernels of attention read them, made once per call: int64 for masks, offsets for
/// lanes, and whether they are sorted; and the masks by position of ids in no order.
/// Cost     some 40 instructions a key; 12 bytes a key and 32 a batch row in the workspace. A mask by position is two
///          comparisons a batch of lanes for each of a row's intervals.

#include <posenc/core/policy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

namespace posenc::detail {

/// The keys of one batch row; where they are sorted masks are intervals of indices.
struct listed_row {
  listed_keys keys;
  bool sorted;
};

/// Bytes that list_rows takes; none where keys are contiguous.
[[nodiscard]] inline std::size_t listed_bytes(const call& c) noexcept {
  if (c.key_positions.contiguous()) return 0;
  const auto batch = static_cast<std::size_t>(c.batch);
  const auto ids = static_cast<std::size_t>(c.keys + lane_slack);
  return batch * (sizeof(listed_row) + ids * (sizeof(std::int64_t) + sizeof(float)));
}

/// Writes ids and offsets of a call with at least one key to `memory`, which is aligned for int64; [batch]. The slack
/// repeats the last id.
[[nodiscard]] inline const listed_row* list_rows(const call& c, std::byte* memory) noexcept {
  const std::int64_t n = c.keys + lane_slack;
  auto* rows = reinterpret_cast<listed_row*>(memory);
  auto* ids = reinterpret_cast<std::int64_t*>(rows + c.batch);
  auto* offsets = reinterpret_cast<float*>(ids + c.batch * n);
  for (std::int64_t b = 0; b < c.batch; ++b, ids += n, offsets += n) {
    for (std::int64_t j = 0; j < c.keys; ++j) ids[j] = c.key_positions(b, j);
    std::fill(ids + c.keys, ids + n, ids[c.keys - 1]);
    ::new (static_cast<void*>(rows + b)) listed_row{offsets_to_base(ids, n, offsets), std::is_sorted(ids, ids + n)};
  }
  return rows;
}

/// Whether the keys of the lanes k, k + 1, ... stand in the intervals of a row.
template <class B>
class listed_mask {
  using L = lanes<B>;
  using scalar = typename L::scalar;

 public:
  listed_mask(const listed_keys& keys, const interval_list& allowed) : keys_(keys), allowed_(&allowed) {
    on_lanes_ = keys.offsets != nullptr && allowed.size() <= most_;
    for (int i = 0; on_lanes_ && i < allowed.size(); ++i) {
      // Offsets lie within 2^23: a bound further off lets all through, or none.
      constexpr std::int64_t bound = (std::int64_t{1} << 23) + 2;
      const auto offset = [&](std::int64_t p) {
        return static_cast<scalar>(std::clamp(position_difference(p, keys.base), -bound, bound));
      };
      below_[i] = offset(allowed[i].lo) - 1;
      end_[i] = allowed[i].hi == interval::highest ? static_cast<scalar>(bound) : offset(allowed[i].hi);
    }
  }
  [[nodiscard]] POSENC_ALWAYS_INLINE typename L::mask operator()(std::int64_t k) const {
    if (on_lanes_ && allowed_->size() > 0) [[likely]] {
      const B at = L::load(keys_.offsets + k);
      auto seen = L::greater(at, L::broadcast(below_[0])) && L::greater(L::broadcast(end_[0]), at);
      if (allowed_->size() == 2)
        seen = seen || (L::greater(at, L::broadcast(below_[1])) && L::greater(L::broadcast(end_[1]), at));
      return seen;
    }
    return one_by_one(k);
  }

 private:
  static constexpr int most_ = 2;  // more of them are rare

  [[nodiscard]] typename L::mask one_by_one(std::int64_t k) const {
    bool seen[L::size];
    for (int i = 0; i < L::size; ++i) seen[i] = allowed_->contains(keys_.position(k + i));
    return L::mask_from(seen);
  }

  listed_keys keys_;
  const interval_list* allowed_;
  bool on_lanes_ = false;
  scalar below_[most_]{};
  scalar end_[most_]{};
};

}  // namespace posenc::detail
