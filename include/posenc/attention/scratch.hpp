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

/// Keys of a tile, and rows that go through it together: a score tile of 96 x 128 floats stays in the second-level
/// cache.
inline constexpr std::int64_t tile_keys = 128;
inline constexpr std::int64_t band_rows = 96;
/// Rows of a block, one item of work: its bands share one packing of keys and values.
inline constexpr std::int64_t block_rows = 2 * band_rows;
/// The same where the tile is all keys.
inline constexpr std::int64_t whole_rows = 48;
/// Below this many rows keys and values are read in place instead of packed, ...
inline constexpr std::int64_t packed_rows = 12;
/// ... and more keys than this are items of their own, merged in order.
inline constexpr std::int64_t split_keys = 1024;
static_assert(split_keys % tile_keys == 0);

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

/// Widened (and rotated) rows of keys or values that are held at once.
template <class C, class Arch>
inline constexpr std::int64_t line_rows = kernels::panel_width<C, Arch>;

/// Offsets into one worker's scratch, in bytes. `whole`: the tile is all keys of the call.
template <class C, class Arch>
struct scratch_layout {
  std::int64_t rows;
  std::int64_t band;
  std::int64_t dim;
  std::int64_t value_step;
  std::int64_t tile;
  std::int64_t line_step;
  bool packed;
  std::size_t query, raw, factor, score, sum, partial, highest, total, key, value, line, state, bytes;

  explicit scratch_layout(const call& c, bool whole = false) {
    const std::int64_t all = c.queries * (c.heads / c.kv_heads);
    rows = std::min(all, whole ? whole_rows : block_rows);
    band = std::min(rows, whole ? whole_rows : band_rows);
    tile = whole ? kernels::padded<C, Arch>(c.keys) : tile_keys;
    packed = all >= packed_rows;
    dim = c.dim;
    value_step = kernels::padded<C, Arch>(c.value_dim);
    line_step = std::max(dim, c.value_dim);
    std::size_t at = 0;
    const auto take = [&](std::int64_t count, std::size_t size) {
      const std::size_t start = at;
      at += (static_cast<std::size_t>(count) * size + 63) / 64 * 64;
      return start;
    };
    query = take(rows * dim, sizeof(C));
    raw = take(whole ? rows * dim : 0, sizeof(C));
    factor = take(whole ? rows : 0, sizeof(C));
    score = take(band * tile, sizeof(C));
    sum = take(rows * value_step, sizeof(C));
    partial = take(packed ? 0 : rows * value_step, sizeof(C));
    highest = take(rows, sizeof(C));
    total = take(rows, sizeof(C));
    key = take(packed ? tile * dim : 0, sizeof(C));
    value = take(packed ? tile * value_step : 0, sizeof(C));
    line = take(line_rows<C, Arch> * line_step, sizeof(C));
    state = take(rows, sizeof(row_state));
    bytes = at;
  }
};

/// The arrays of one worker: [rows] or [rows][...] each; `raw` holds the queries before the scale.
template <class C, class Arch>
struct block_arrays {
  C *query, *raw, *factor, *score, *sum, *partial, *highest, *total, *key, *value, *line;
  row_state* state;

  block_arrays(const scratch_layout<C, Arch>& l, std::byte* memory) {
    const auto at = [&](std::size_t offset) { return reinterpret_cast<C*>(memory + offset); };
    query = at(l.query);
    raw = at(l.raw);
    factor = at(l.factor);
    score = at(l.score);
    sum = at(l.sum);
    partial = at(l.partial);
    highest = at(l.highest);
    total = at(l.total);
    key = at(l.key);
    value = at(l.value);
    line = at(l.line);
    state = reinterpret_cast<row_state*>(memory + l.state);
  }
};

}  // namespace posenc::detail
