// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Rows of cos and sin built once for the positions first .. first + rows - 1: pairs values of each, stored once
/// whatever the layout. For engines that rotate the same positions in every layer.
///   rope_table<T>        owns its rows
///   rope_table_view<T>   the rows of a table, some of them, or a model's own caches in the caller's memory
/// Error    each value of an owned table is rounded once from double to T (float, double, half or bfloat16).
/// Cost     rows * 2 * pairs * sizeof(T) bytes; a few ns per pair to build (bench/table_bench); a rotation then only
///          reads its rows.
/// Throws   std::out_of_range for a position without a row, before anything is written: a table is never read past its
///          end. Use `rope` itself where positions are not bounded.
///          std::invalid_argument for an encoder whose angles are sums over axes or differ by head.
/// Axes     a table has a row per coordinate; a token of several axes reads each pair from the row of its axis, so text
///          is turned by the same bits as from a table of one axis.
/// Example  examples/rope_example.cpp

#include <posenc/encoders/rope.hpp>

#include <cstdint>
#include <limits>
#include <vector>

namespace posenc {

/// Where the rows of a table lie: row r of cos at cos + r * step, r = 0 being the position `first`.
template <class T>
struct rope_rows {
  const T* cos = nullptr;
  const T* sin = nullptr;
  std::int64_t step = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Rotates by rows that somebody else keeps alive.
template <class T = float>
class rope_table_view {
 public:
  /// @throws std::invalid_argument for an impossible block or missing rows.
  rope_table_view(rope_layout layout, std::int64_t head_dim, std::int64_t rotary_dim, std::int64_t offset,
                  const rope_rows<T>& rows)
      : rope_table_view(detail::rope_frame{layout, offset, rotary_dim, head_dim}, 1, rows) {}

  [[nodiscard]] std::int64_t first() const noexcept { return rows_.first; }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_.count; }
  [[nodiscard]] std::int64_t pairs() const noexcept { return frame_.pairs(); }
  /// cos and sin of a position that has a row.
  [[nodiscard]] const T* cos(std::int64_t at) const noexcept { return rows_.cos + (at - rows_.first) * rows_.step; }
  [[nodiscard]] const T* sin(std::int64_t at) const noexcept { return rows_.sin + (at - rows_.first) * rows_.step; }

  /// The rows of the positions first .. first + count - 1 alone. @throws std::out_of_range if one of them is missing.
  [[nodiscard]] rope_table_view slice(std::int64_t first, std::int64_t count) const {
    detail::require(count >= 0, "rope_table::slice", "count", "must not be negative", count);
    if (count > 0) {
      check_row("rope_table::slice", first);
      detail::require(count <= rows_.count, "rope_table::slice", "count", "must not exceed the rows", count);
      check_row("rope_table::slice", first + (count - 1));
    }
    rope_rows<T> part = rows_;
    part.first = first;
    part.count = count;
    if (count > 0) {
      part.cos = cos(first);
      part.sin = sin(first);
    }
    return {frame_, axes_, part};
  }

  /// Turns every head of every token of x, in place.
  template <class U, class Arch = simd::default_arch>
  void rotate(view<U> x, const positions& at = {}) const {
    if (x.empty()) return;
    detail::require(x.dim() == frame_.head_dim, "rope_table::rotate", "dim", "must equal head_dim", x.dim());
    detail::check_apart(view<const U>(x), x, "rope_table::rotate");
    detail::check_cover(at, "rope_table::rotate", x.batch(), x.tokens(), axes_);
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t)
        for (int a = 0; a < axes_; ++a) check_row("rope_table::rotate", at.at(b, t)[a]);
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) rotate_row<Arch>(x, b, t, at.at(b, t));
  }

 private:
  template <class>
  friend class rope_table;

  rope_table_view(const detail::rope_frame& frame, int axes, const rope_rows<T>& rows)
      : frame_(frame), axes_(axes), rows_(rows) {
    (void)detail::checked_rotary_dim(
        {.head_dim = frame.head_dim, .rotary_dim = frame.rotary_dim, .offset = frame.offset, .layout = frame.layout});
    detail::require(frame.layout != half_split_in_blocks || !frame.block_dims.empty(), "rope_table", "layout",
                    "must come from an encoder that knows its blocks", "half_split_in_blocks");
    detail::require(rows.count >= 0, "rope_table", "rows", "must not be negative", rows.count);
    detail::require(rows.count == 0 || rows.first <= std::numeric_limits<std::int64_t>::max() - (rows.count - 1),
                    "rope_table", "first", "must leave room for the rows", rows.first);
    detail::require(rows.count <= 1 || rows.step >= frame.pairs(), "rope_table", "step", "must not be below the pairs",
                    rows.step);
    detail::require(rows.count == 0 || (rows.cos && rows.sin), "rope_table", "cos and sin", "must not be null",
                    "a null pointer");
  }

  void check_row(const char* function, std::int64_t at) const {
    if (at >= rows_.first && static_cast<std::uint64_t>(at) - static_cast<std::uint64_t>(rows_.first) <
                                 static_cast<std::uint64_t>(rows_.count))
      return;
    const std::string rule = rows_.count == 0 ? std::string("must have a row; the table has none")
                                              : "must lie in " + std::to_string(rows_.first) + ".." +
                                                    std::to_string(rows_.first + (rows_.count - 1));
    detail::outside(function, "positions", rule, at);
  }

  /// Fills rows for `rotate_token`: widened to the compute type, each pair from the row of its axis.
  struct rows_of_table {
    const rope_table_view& table;
    const position& at;

    template <kernels::row_form Form, class C>
    void fill(std::int64_t, std::int64_t first, std::int64_t count, C* cos, C* sin) const {
      C c[detail::rope_block];
      C s[detail::rope_block];
      if (table.frame_.one_axis()) {
        const T* cosines = table.cos(at[0]) + first;
        const T* sines = table.sin(at[0]) + first;
        for (std::int64_t i = 0; i < count; ++i) {
          c[i] = static_cast<C>(widen(cosines[i]));
          s[i] = static_cast<C>(widen(sines[i]));
        }
      } else {
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t row = at[table.frame_.axis(first + i)];
          c[i] = static_cast<C>(widen(table.cos(row)[first + i]));
          s[i] = static_cast<C>(widen(table.sin(row)[first + i]));
        }
      }
      kernels::detail::place<Form>(c, s, count, cos, sin);
    }
  };

  template <class Arch, class U>
  void rotate_row(view<U> x, std::int64_t b, std::int64_t t, const position& at) const {
    const detail::row_span<const U> in{x.row(b, t, 0), x.steps().head, x.steps().dim};
    const detail::row_span<U> out{x.row(b, t, 0), x.steps().head, x.steps().dim};
    if constexpr (std::same_as<T, detail::row_scalar<U>>)
      if (frame_.layout == half_split && frame_.one_axis())
        return detail::rotate_split<Arch>(in, out, x.heads(), frame_.offset, pairs(), pairs(), cos(at[0]), sin(at[0]));
    detail::rotate_token<Arch>(frame_, in, out, x.heads(), 0, true, rows_of_table{*this, at});
  }

  detail::rope_frame frame_;
  int axes_;
  rope_rows<T> rows_;
};

template <class T = float>
class rope_table {
 public:
  /// @throws std::invalid_argument if rows is negative, or for several sets of frequencies.
  template <class U, class Arch = simd::default_arch>
  rope_table(const rope<U>& encoder, std::int64_t first, std::int64_t rows)
      : layout_(encoder.layout()),
        head_dim_(encoder.head_dim()),
        rotary_dim_(encoder.rotary_dim()),
        offset_(encoder.offset()),
        axes_(encoder.axis_count()),
        axis_of_pair_(detail::rope_access::axis_of_pair(encoder)),
        block_dims_(detail::rope_access::block_dims(encoder)),
        first_(first),
        rows_(rows) {
    const detail::rope_frame f = detail::rope_access::frame(encoder);
    detail::require(f.frequency_axes == 1 && f.frequency_heads == 1, "rope_table", "encoder",
                    "must have one set of frequencies: no row holds sums over axes, and none differs by head; sets",
                    f.frequency_axes * f.frequency_heads);
    detail::require(rows >= 0, "rope_table", "rows", "must not be negative", rows);
    detail::require(rows <= (std::int64_t{1} << 56) / rotary_dim_, "rope_table", "rows",
                    "must not exceed 2^56 / rotary_dim", rows);
    detail::require(rows == 0 || first <= std::numeric_limits<std::int64_t>::max() - (rows - 1), "rope_table", "first",
                    "must leave room for the rows", first);
    values_.resize(static_cast<std::size_t>(rows * rotary_dim_));
    for (std::int64_t r = 0; r < rows; ++r) {
      T* row = values_.data() + r * rotary_dim_;
      encoder.template cos_sin<T, Arch>(position(first + r), row, row + pairs());
    }
  }

  /// The rows of a table that outlives the view.
  [[nodiscard]] rope_table_view<T> view_of_rows() const& {
    const T* row = values_.data();  // null where there are no rows
    detail::rope_frame f{layout_, offset_, rotary_dim_, head_dim_};
    if (!axis_of_pair_.empty()) f.axis_of_pair = axis_of_pair_.data();
    f.block_dims = block_dims_;
    return {f, axes_, rope_rows<T>{row, row ? row + pairs() : nullptr, rotary_dim_, first_, rows_}};
  }
  /// The rows of the positions first .. first + count - 1 alone.
  [[nodiscard]] rope_table_view<T> slice(std::int64_t first, std::int64_t count) const& {
    return view_of_rows().slice(first, count);
  }
  rope_table_view<T> view_of_rows() && = delete;
  rope_table_view<T> slice(std::int64_t, std::int64_t) && = delete;
  /// Turns every head of every token of x, in place.
  template <class U, class Arch = simd::default_arch>
  void rotate(view<U> x, const positions& at = {}) const {
    view_of_rows().template rotate<U, Arch>(x, at);
  }

  [[nodiscard]] std::int64_t first() const noexcept { return first_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t pairs() const noexcept { return rotary_dim_ / 2; }
  /// cos and sin of a position that has a row.
  [[nodiscard]] const T* cos(std::int64_t at) const noexcept { return values_.data() + (at - first_) * rotary_dim_; }
  [[nodiscard]] const T* sin(std::int64_t at) const noexcept { return cos(at) + pairs(); }

 private:
  rope_layout layout_;
  std::int64_t head_dim_;
  std::int64_t rotary_dim_;
  std::int64_t offset_;
  int axes_;
  std::vector<std::uint8_t> axis_of_pair_;
  std::vector<std::int64_t> block_dims_;
  std::int64_t first_;
  std::int64_t rows_;
  std::vector<T> values_;
};

}  // namespace posenc
