// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Rows of cos and sin built once for the positions first .. first + rows - 1: pairs values of each, stored once
/// whatever the layout. For engines that rotate the same positions in every layer.
/// Error    each value is rounded once from double to T (float, double, half or bfloat16).
/// Cost     rows * 2 * pairs * sizeof(T) bytes; about 2 ns per value to build; a rotation then only reads its rows.
/// Throws   std::out_of_range for a position without a row, before anything is written: a table is never read past its
///          end. Use `rope` itself where positions are not bounded.
/// Example  examples/rope_example.cpp

#include <posenc/encoders/rope.hpp>

#include <vector>

namespace posenc {

template <class T = float>
class rope_table {
 public:
  /// @throws std::invalid_argument if rows is negative.
  template <class U>
  rope_table(const rope<U>& encoder, std::int64_t first, std::int64_t rows)
      : layout_(encoder.layout()),
        offset_(encoder.offset()),
        rotary_dim_(encoder.rotary_dim()),
        head_dim_(encoder.head_dim()),
        first_(first),
        rows_(rows) {
    detail::require(rows >= 0, "rope_table", "rows", "must not be negative", rows);
    values_.resize(static_cast<std::size_t>(rows * rotary_dim_));
    for (std::int64_t r = 0; r < rows; ++r) encoder.cos_sin(first + r, mutable_cos(r), mutable_cos(r) + pairs());
  }

  [[nodiscard]] std::int64_t first() const noexcept { return first_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t pairs() const noexcept { return rotary_dim_ / 2; }
  /// cos and sin of a position that has a row.
  [[nodiscard]] const T* cos(std::int64_t at) const noexcept { return values_.data() + (at - first_) * rotary_dim_; }
  [[nodiscard]] const T* sin(std::int64_t at) const noexcept { return cos(at) + pairs(); }

  /// Turns every head of every token of x, in place.
  template <class U>
  void rotate(view<U> x, const positions& at = {}) const {
    if (x.empty()) return;
    detail::require(x.dim() == head_dim_, "rope_table::rotate", "dim", "must equal head_dim", x.dim());
    detail::check_apart(view<const U>(x), x, "rope_table::rotate");
    detail::check_cover(at, "rope_table::rotate", x.batch(), x.tokens());
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t)
        // Unsigned, so that no distance overflows and a position below the first row is a large number.
        if (static_cast<std::uint64_t>(at(b, t)) - static_cast<std::uint64_t>(first_) >=
            static_cast<std::uint64_t>(rows_))
          detail::outside("rope_table::rotate", "positions",
                          "must lie in " + std::to_string(first_) + ".." + std::to_string(first_ + rows_ - 1),
                          at(b, t));
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) rotate_row(x, b, t, at(b, t));
  }

 private:
  [[nodiscard]] T* mutable_cos(std::int64_t r) noexcept { return values_.data() + r * rotary_dim_; }

  /// Rows are widened to the compute type of the data, block by block, in the form its kernel reads.
  template <class U>
  void rotate_row(view<U> x, std::int64_t b, std::int64_t t, std::int64_t at) const {
    constexpr std::int64_t block = 128;
    using C = std::conditional_t<simd_storage<U>, compute_t<U>, double>;
    const detail::rope_frame frame{layout_, offset_, rotary_dim_, head_dim_, nullptr, nullptr};
    const detail::row_span<const U> in{x.row(b, t, 0), x.steps().head, x.steps().dim};
    const detail::row_span<U> out{x.row(b, t, 0), x.steps().head, x.steps().dim};
    const bool neighbours = detail::wants_neighbours(frame, in, out);
    if constexpr (std::same_as<T, C>) {
      if (!neighbours) return detail::rotate_block(frame, in, out, x.heads(), 0, pairs(), cos(at), sin(at));
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
      detail::rotate_block(frame, in, out, x.heads(), first, count, c, s);
    }
  }

  rope_layout layout_;
  std::int64_t offset_;
  std::int64_t rotary_dim_;
  std::int64_t head_dim_;
  std::int64_t first_;
  std::int64_t rows_;
  std::vector<T> values_;
};

}  // namespace posenc
