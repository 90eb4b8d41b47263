// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The worker of `attention`: one block of query rows of one key head, tile after tile of keys, with online softmax.
/// The rows of a GQA group lie in one block, so they share every tile. From `packed_rows` on a tile's keys and values
/// are packed once for all rows of the block, which go through it band by band; fewer rows read them as they lie.
/// Nothing of size queries x keys exists: a tile of scores (`Whole`: a row of all, see two_pass.hpp) is transformed,
/// exponentiated and multiplied in place.

#include <posenc/attention/row_softmax.hpp>
#include <posenc/attention/tile_reader.hpp>
#include <posenc/kernels/few_rows.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace posenc::detail {

template <class Arch, class C, class Inputs, class Keys, bool Whole>
class fused_block {
 public:
  fused_block(const Inputs& in, std::byte* memory)
      : in_(in), rows_(in, memory), read_{in.k,
                                          in.v,
                                          in.c,
                                          in.pack,
                                          in.options.keys,
                                          rows_.my.key,
                                          rows_.my.value,
                                          rows_.my.line,
                                          rows_.layout.line_step} {}

  /// Rows first .. first + n - 1 of (query, head of the group) of one key head, over the keys inside `within`.
  void run(std::int64_t b, std::int64_t kv_head, std::int64_t first, std::int64_t n, const Keys& keys, bool sorted,
           const interval& within, bool with_sink) {
    b_ = b;
    kv_head_ = kv_head;
    keys_ = &keys;
    count_ = n;
    interval all{in_.c.keys, 0};
    for (std::int64_t r = 0; r < n; ++r) {
      rows_.start_row(b, kv_head, first + r, r, keys, sorted, with_sink);
      rows_.my.state[r].keys.intersect(within);
      const interval_list& list = rows_.my.state[r].keys;
      if (list.size() == 0) continue;
      all.lo = std::min(all.lo, list[0].lo);
      all.hi = std::max(all.hi, list[list.size() - 1].hi);
    }
    const std::int64_t width = rows_.layout.tile;
    for (std::int64_t tile = all.lo / width * width; tile < all.hi; tile += width)
      run_tile({std::max(tile, all.lo), std::min(tile + width, all.hi)});
  }

  void finish() {
    for (std::int64_t r = 0; r < count_; ++r) rows_.finish_row(r);
  }

  /// Elements of one row that waits to be merged: its sum, maximum and total.
  [[nodiscard]] static std::int64_t saved_step(const scratch_layout<C, Arch>& layout) noexcept {
    return layout.value_step + 2;
  }
  void save(C* to) const {
    const std::int64_t step = rows_.layout.value_step;
    for (std::int64_t r = 0; r < count_; ++r, to += saved_step(rows_.layout)) {
      std::copy_n(rows_.my.sum + r * step, step, to);
      to[step] = rows_.my.highest[r];
      to[step + 1] = rows_.my.total[r];
    }
  }

 private:
  static constexpr std::int64_t panel_ = kernels::panel_width<C, Arch>;
  static constexpr std::int64_t block_ = kernels::block_rows<Arch>;

  void run_tile(const interval& tile) {
    rows_.tile = tile;
    bool packed = false;
    bool finite = true;
    for (std::int64_t from = 0; from < count_; from += rows_.layout.band) {
      const std::int64_t n = std::min(rows_.layout.band, count_ - from);
      const interval seen = rows_.range(from, n);
      if (seen.empty()) continue;  // beside the intervals of these rows
      if (!rows_.layout.packed) {
        score_few_rows(n, seen);
      } else {
        if (!packed) finite = read_.pack_tile(b_, kv_head_, tile);
        packed = true;
        score_band(from, n);
      }
      if constexpr (decltype(rows_)::work::terms) {
        const tile_source source{read_, b_, kv_head_};
        rows_.content.prepare(from, n, rows_.my.query + from * in_.c.dim, tile.lo, tile.hi - tile.lo, *keys_, &source,
                              &decltype(source)::template copy<C>, [&](std::int64_t r) { return rows_.range(r, 1); });
      }
      for (std::int64_t r = 0; r < n; ++r)
        rows_.score_row(from + r, score(r), rows_.layout.packed ? seen_[static_cast<std::size_t>(r / block_)] : seen);
      if (!rows_.layout.packed) {
        add_few_rows(n, seen);
      } else if (finite) {
        add_band(from, n);
      } else {
        for (std::int64_t r = from; r < from + n; ++r) add_visible(r, score(r - from), sum(r), {0, tile.hi - tile.lo});
      }
    }
  }

  /// Row r of the band in the tile of scores.
  [[nodiscard]] C* score(std::int64_t r) const noexcept { return rows_.my.score + r * rows_.layout.tile; }
  [[nodiscard]] C* sum(std::int64_t r) const noexcept { return rows_.my.sum + r * rows_.layout.value_step; }

  /// Panel by panel, so that one stays in the first-level cache while the rows pass.
  void score_band(std::int64_t from, std::int64_t n) {
    const std::int64_t dim = in_.c.dim;
    interval all{rows_.layout.tile, 0};
    for (std::int64_t r = 0; r < n; r += block_) {
      interval& seen = seen_[static_cast<std::size_t>(r / block_)];
      seen = rows_.range(from + r, std::min(block_, n - r));
      all = {std::min(all.lo, seen.lo), std::max(all.hi, seen.hi)};
    }
    for (std::int64_t j = all.lo / panel_ * panel_; j < all.hi; j += panel_)
      for (std::int64_t r = 0; r < n; r += block_) {
        const std::int64_t some = std::min(block_, n - r);
        const interval& seen = seen_[static_cast<std::size_t>(r / block_)];
        if (j >= seen.hi || j + panel_ <= seen.lo) continue;
        kernels::multiply_rows<Arch, false>(some, rows_.my.query + (from + r) * dim, dim, read_.keys + j * dim,
                                            score(r) + j, rows_.layout.tile, dim);
      }
  }

  /// Sums of at most tile_keys products, whatever the tile.
  void add_band(std::int64_t from, std::int64_t n) {
    const std::int64_t keys = rows_.tile.hi - rows_.tile.lo;
    for (std::int64_t d = 0; d < rows_.layout.value_step; d += panel_)
      for (std::int64_t r = 0; r < n; r += block_) {
        const std::int64_t some = std::min(block_, n - r);
        const interval& seen = seen_[static_cast<std::size_t>(r / block_)];
        for (std::int64_t j = seen.lo; j < seen.hi; j += tile_keys)
          kernels::multiply_rows<Arch, true>(some, score(r) + j, rows_.layout.tile,
                                             read_.values + d * keys + j * panel_, sum(from + r) + d,
                                             rows_.layout.value_step, std::min(tile_keys, seen.hi - j));
      }
  }

  void score_few_rows(std::int64_t n, const interval& seen) {
    const std::int64_t lo = rows_.tile.lo;
    read_.for_key_runs(b_, kv_head_, lo + seen.lo, lo + seen.hi, [&](std::int64_t j, const auto& keys) {
      kernels::score_keys<Arch>(n, rows_.my.query, in_.c.dim, keys, in_.c.dim, score(0) + (j - lo), rows_.layout.tile);
    });
  }

  /// A stretch has a sum of its own, as the register blocks have. Where that is not finite, a value that a row does not
  /// see may be the cause: the stretch is added again, value by value.
  void add_few_rows(std::int64_t n, const interval& all) {
    const std::int64_t step = rows_.layout.value_step;
    C* partial = rows_.my.partial;
    for (std::int64_t from = all.lo; from < all.hi; from += tile_keys) {
      const interval seen{from, std::min(from + tile_keys, all.hi)};
      const std::int64_t lo = rows_.tile.lo;
      std::fill_n(partial, n * step, C(0));
      read_.for_value_runs(b_, kv_head_, lo + seen.lo, lo + seen.hi, [&](std::int64_t j, const auto& values) {
        kernels::add_values<Arch>(n, score(0) + (j - lo), rows_.layout.tile, values, in_.c.value_dim, partial, step);
      });
      if (!kernels::all_finite<Arch>(partial, n * step)) {
        std::fill_n(partial, n * step, C(0));
        for (std::int64_t r = 0; r < n; ++r) add_visible(r, score(r), partial + r * step, seen);
      }
      kernels::add_scaled<Arch>(rows_.my.sum, C(1), static_cast<const C*>(partial), n * step);
    }
  }

  /// Only values that row r sees and whose weight is not 0: what hidden keys hold never reaches a sum.
  void add_visible(std::int64_t r, const C* weight, C* to, const interval& seen) {
    const std::int64_t lo = rows_.tile.lo;
    read_.for_value_runs(b_, kv_head_, lo + seen.lo, lo + seen.hi, [&](std::int64_t j, const auto& values) {
      for (std::int64_t i = j; i < j + values.n; ++i)
        if (rows_.my.state[r].keys.contains(i) && weight[i - lo] != 0)
          kernels::add_scaled<Arch>(to, weight[i - lo], values.first + (i - j) * values.step, in_.c.value_dim);
    });
  }

  const Inputs& in_;
  row_softmax<Arch, C, Inputs, Keys, Whole> rows_;
  tile_reader<Arch, C, typename Inputs::key_rows, typename Inputs::value_rows, typename Inputs::pack_type> read_;
  const Keys* keys_ = nullptr;
  std::int64_t b_ = 0;
  std::int64_t kv_head_ = 0;
  std::int64_t count_ = 0;
  /// The columns that each register block of the band sees.
  std::array<interval, (band_rows + block_ - 1) / block_> seen_{};
};

/// Rows whose keys were split: the parts of one row lie `apart` elements from each other, in the order of their keys.
template <class Arch, class Inputs, class C>
void merge_splits(const Inputs& in, const row& at, C* saved, std::int64_t splits, std::int64_t apart,
                  std::int64_t value_step) {
  C highest = -std::numeric_limits<C>::infinity();
  for (std::int64_t s = 0; s < splits; ++s) {
    const C h = saved[s * apart + value_step];
    highest = h != h ? h : std::max(highest, h);
  }
  C total = 0;
  for (std::int64_t s = 0; s < splits && highest != -std::numeric_limits<C>::infinity(); ++s) {
    C* part = saved + s * apart;
    const C factor = std::exp(part[value_step] - highest);
    total += factor * part[value_step + 1];
    if (s == 0) {
      kernels::scale_row<Arch>(part, factor, value_step);
    } else if (factor != 0) {
      kernels::add_scaled<Arch>(saved, factor, static_cast<const C*>(part), value_step);
    }
  }
  write_row<Arch>(in, at, highest, total, saved);
}

}  // namespace posenc::detail
