// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What one worker of `attention` keeps: sizes of blocks and tiles, the state of a row, and where each lies in the
/// worker's part of the workspace. Sizes follow from shapes alone, so the split of work does too.

#include <posenc/core/policy.hpp>
#include <posenc/kernels/tile.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace posenc::detail {

/// Rows of a block and keys of a tile: a score tile of 96 x 128 floats stays in the second-level cache.
inline constexpr std::int64_t tile_rows = 96;
inline constexpr std::int64_t tile_keys = 128;
/// Below this many rows keys and values are read in place instead of packed.
inline constexpr std::int64_t packed_rows = 12;

/// What a row of a block keeps through the tiles.
struct row_state {
  row at;
  interval_list keys;         // visible key indices
  interval_list by_position;  // asked per key where ids are in no order
};

/// Indices of the keys whose positions lie in an interval; ids are contiguous or sorted.
template <class Keys>
[[nodiscard]] interval indices_of(const Keys& keys, std::int64_t count, const interval& positions) noexcept {
  const auto index = [&](std::int64_t p) -> std::int64_t {
    if constexpr (Keys::contiguous) {
      if (p <= keys.first) return 0;
      const std::uint64_t above = static_cast<std::uint64_t>(p) - static_cast<std::uint64_t>(keys.first);
      return static_cast<std::int64_t>(std::min(above, static_cast<std::uint64_t>(count)));
    } else {
      return std::lower_bound(keys.ids, keys.ids + count, p) - keys.ids;
    }
  };
  return {index(positions.lo), positions.hi == interval::highest ? count : index(positions.hi)};
}

/// Offsets into one worker's scratch, in bytes.
template <class C, class Arch>
struct scratch_layout {
  std::int64_t rows;
  std::int64_t dim;
  std::int64_t value_step;
  bool packed;
  std::size_t query, score, sum, partial, highest, total, key, value, line, state, bytes;

  explicit scratch_layout(const call& c) {
    const std::int64_t all = c.queries * (c.heads / c.kv_heads);
    rows = std::min(all, tile_rows);
    packed = all >= packed_rows;
    dim = c.dim;
    value_step = kernels::padded<C, Arch>(c.value_dim);
    std::size_t at = 0;
    const auto take = [&](std::int64_t count, std::size_t size) {
      const std::size_t start = at;
      at += (static_cast<std::size_t>(count) * size + 63) / 64 * 64;
      return start;
    };
    query = take(rows * dim, sizeof(C));
    score = take(rows * tile_keys, sizeof(C));
    sum = take(rows * value_step, sizeof(C));
    partial = take(packed ? 0 : rows * value_step, sizeof(C));
    highest = take(rows, sizeof(C));
    total = take(rows, sizeof(C));
    key = take(packed ? tile_keys * dim : 0, sizeof(C));
    value = take(packed ? tile_keys * value_step : 0, sizeof(C));
    line = take(std::max(dim, c.value_dim), sizeof(C));
    state = take(rows, sizeof(row_state));
    bytes = at;
  }
};

}  // namespace posenc::detail
