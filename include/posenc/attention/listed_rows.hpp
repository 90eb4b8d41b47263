// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The ids of listed keys as the kernels of attention read them, made once per call: int64 for masks, offsets for
/// lanes, and whether they are sorted.
/// Cost     some 40 instructions a key; 12 bytes a key and 32 a batch row in the workspace.

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

}  // namespace posenc::detail
