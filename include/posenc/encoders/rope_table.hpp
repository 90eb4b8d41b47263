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
      : layout_(layout), head_dim_(head_dim), rotary_dim_(rotary_dim), offset_(offset), rows_(rows) {
    (void)detail::checked_rotary_dim({.head_dim = head_dim, .rotary_dim = rotary_dim, .offset = offset});
    detail::require(rows.count >= 0, "rope_table", "rows", "must not be negative", rows.count);
    detail::require(rows.count == 0 || rows.first <= std::numeric_limits<std::int64_t>::max() - (rows.count - 1),
                    "rope_table", "first", "must leave room for the rows", rows.first);
    detail::require(rows.count == 0 || (rows.cos && rows.sin), "rope_table", "cos and sin", "must not be null",
                    "a null pointer");
  }

  [[nodiscard]] std::int64_t first() const noexcept { return rows_.first; }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_.count; }
  [[nodiscard]] std::int64_t pairs() const noexcept { return rotary_dim_ / 2; }
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
    return {layout_, head_dim_, rotary_dim_, offset_, part};
  }

  /// Turns every head of every token of x, in place.
  template <class U, class Arch = simd::default_arch>
  void rotate(view<U> x, const positions& at = {}) const {
    if (x.empty()) return;
    detail::require(x.dim() == head_dim_, "rope_table::rotate", "dim", "must equal head_dim", x.dim());
    detail::check_apart(view<const U>(x), x, "rope_table::rotate");
    detail::check_cover(at, "rope_table::rotate", x.batch(), x.tokens());
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) check_row("rope_table::rotate", at(b, t));
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) rotate_row<Arch>(x, b, t, at(b, t));
  }

 private:
  void check_row(const char* function, std::int64_t at) const {
    if (at >= rows_.first && static_cast<std::uint64_t>(at) - static_cast<std::uint64_t>(rows_.first) <
                                 static_cast<std::uint64_t>(rows_.count))
      return;
    const std::string rule = rows_.count == 0 ? std::string("must have a row; the table has none")
                                              : "must lie in " + std::to_string(rows_.first) + ".." +
                                                    std::to_string(rows_.first + (rows_.count - 1));
    detail::outside(function, "positions", rule, at);
  }

  /// Rows are widened to the compute type of the data, block by block, in the form its kernel reads.
  template <class Arch, class U>
  void rotate_row(view<U> x, std::int64_t b, std::int64_t t, std::int64_t at) const {
    constexpr std::int64_t block = 128;
    using C = std::conditional_t<simd_storage<U>, compute_t<U>, double>;
    const detail::rope_frame frame{layout_, offset_, rotary_dim_, head_dim_, nullptr, nullptr};
    const detail::row_span<const U> in{x.row(b, t, 0), x.steps().head, x.steps().dim};
    const detail::row_span<U> out{x.row(b, t, 0), x.steps().head, x.steps().dim};
    const bool neighbours = detail::wants_neighbours(frame, in, out);
    if constexpr (std::same_as<T, C>) {
      if (!neighbours) return detail::rotate_block<Arch>(frame, in, out, x.heads(), 0, pairs(), cos(at), sin(at));
    }
    alignas(64) C c[2 * block];
    alignas(64) C s[2 * block];
    for (std::int64_t first = 0; first < pairs(); first += block) {
      const std::int64_t count = std::min(block, pairs() - first);
      for (std::int64_t i = 0; i < count; ++i) {
        const auto cosine = static_cast<C>(widen(cos(at)[first + i]));
        const auto sine = static_cast<C>(widen(sin(at)[first + i]));
        if (neighbours) {
          c[2 * i] = c[2 * i + 1] = cosine;
          s[2 * i] = -sine;
          s[2 * i + 1] = sine;
        } else {
          c[i] = cosine;
          s[i] = sine;
        }
      }
      detail::rotate_block<Arch>(frame, in, out, x.heads(), first, count, c, s);
    }
  }

  rope_layout layout_;
  std::int64_t head_dim_;
  std::int64_t rotary_dim_;
  std::int64_t offset_;
  rope_rows<T> rows_;
};

template <class T = float>
class rope_table {
 public:
  /// @throws std::invalid_argument if rows is negative.
  template <class U, class Arch = simd::default_arch>
  rope_table(const rope<U>& encoder, std::int64_t first, std::int64_t rows)
      : layout_(encoder.layout()),
        head_dim_(encoder.head_dim()),
        rotary_dim_(encoder.rotary_dim()),
        offset_(encoder.offset()),
        first_(first),
        rows_(rows) {
    detail::require(rows >= 0, "rope_table", "rows", "must not be negative", rows);
    detail::require(rows == 0 || first <= std::numeric_limits<std::int64_t>::max() - (rows - 1), "rope_table", "first",
                    "must leave room for the rows", first);
    values_.resize(static_cast<std::size_t>(rows * rotary_dim_));
    for (std::int64_t r = 0; r < rows; ++r) {
      T* row = values_.data() + r * rotary_dim_;
      encoder.template cos_sin<T, Arch>(first + r, row, row + pairs());
    }
  }

  [[nodiscard]] rope_table_view<T> view_of_rows() const {
    const T* row = values_.data();  // null where there are no rows
    return {layout_, head_dim_, rotary_dim_, offset_,
            rope_rows<T>{row, row ? row + pairs() : nullptr, rotary_dim_, first_, rows_}};
  }
  /// The rows of the positions first .. first + count - 1 alone.
  [[nodiscard]] rope_table_view<T> slice(std::int64_t first, std::int64_t count) const {
    return view_of_rows().slice(first, count);
  }
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
  std::int64_t first_;
  std::int64_t rows_;
  std::vector<T> values_;
};

}  // namespace posenc
