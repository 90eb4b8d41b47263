// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Where tokens stand. Encoders see positions given by the caller, never array indices: a cached step, left padding,
/// packed documents and arbitrary ids need no special case. A closed choice, looked at once per call:
///   positions::from(past)              past, past + 1, ... in every batch row
///   positions::per_row(firsts)         firsts[b], firsts[b] + 1, ... in batch row b
///   positions::listed(ids)             ids[t] in every batch row
///   positions::listed(ids, batch)      ids[b * tokens + t]
///   positions::axes(ids, n)            n coordinates per token: ids[axis * tokens + t]
/// Positions are int64 and may be negative. Lists stay the caller's memory and must outlive the call.

#include <posenc/core/error.hpp>

#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

namespace posenc {

/// Coordinates of one token: one number, or up to four axes (time, height, width, ...). A token that has one
/// coordinate has it on every axis, which makes multi-axis encoders agree with one-axis ones on text.
struct position {
  static constexpr int max_axes = 4;
  std::array<std::int64_t, max_axes> axis{};

  constexpr position() = default;
  template <std::integral I>
  constexpr position(I p) noexcept {  // NOLINT: a number is a position
    axis.fill(static_cast<std::int64_t>(p));
  }
  [[nodiscard]] constexpr std::int64_t operator[](int a) const noexcept { return axis[static_cast<std::size_t>(a)]; }
  [[nodiscard]] constexpr std::int64_t value() const noexcept { return axis[0]; }
  friend constexpr bool operator==(const position&, const position&) = default;
};

/// See the file comment.
class positions {
 public:
  /// Contiguous from 0.
  constexpr positions() = default;

  [[nodiscard]] static constexpr positions from(std::int64_t first) noexcept {
    positions p;
    p.first_ = first;
    return p;
  }
  [[nodiscard]] static constexpr positions per_row(std::span<const std::int64_t> firsts) noexcept {
    positions p;
    p.kind_ = kind::per_row;
    p.wide_ = firsts.data();
    p.count_ = static_cast<std::int64_t>(firsts.size());
    return p;
  }
  [[nodiscard]] static constexpr positions listed(std::span<const std::int64_t> ids, std::int64_t batch = 1) {
    return list(ids.data(), nullptr, static_cast<std::int64_t>(ids.size()), batch, 1);
  }
  [[nodiscard]] static constexpr positions listed(std::span<const std::int32_t> ids, std::int64_t batch = 1) {
    return list(nullptr, ids.data(), static_cast<std::int64_t>(ids.size()), batch, 1);
  }
  [[nodiscard]] static constexpr positions axes(std::span<const std::int64_t> ids, int axes, std::int64_t batch = 1) {
    detail::require(axes >= 1 && axes <= position::max_axes, "positions::axes", "axes", "must lie in 1..4", axes);
    return list(ids.data(), nullptr, static_cast<std::int64_t>(ids.size()), batch, axes);
  }

  /// Whether the tokens of a batch row have consecutive positions.
  [[nodiscard]] constexpr bool contiguous() const noexcept { return kind_ != kind::listed; }
  /// Position of the first token of a batch row; only for contiguous positions.
  [[nodiscard]] constexpr std::int64_t first(std::int64_t b) const noexcept {
    return kind_ == kind::contiguous ? first_ : wide_[b];
  }
  [[nodiscard]] constexpr int axis_count() const noexcept { return axes_; }

  /// Position of token t of batch row b (its first axis).
  [[nodiscard]] constexpr std::int64_t operator()(std::int64_t b, std::int64_t t) const noexcept {
    return kind_ == kind::listed ? id(0, b, t) : first(b) + t;
  }
  /// All axes of token t of batch row b.
  [[nodiscard]] constexpr position at(std::int64_t b, std::int64_t t) const noexcept {
    if (axes_ == 1) return {(*this)(b, t)};
    position p;
    for (int a = 0; a < position::max_axes; ++a) p.axis[static_cast<std::size_t>(a)] = a < axes_ ? id(a, b, t) : 0;
    return p;
  }

  /// Refuses positions that do not cover `batch` rows of `tokens` tokens, in the name of `function`.
  /// @throws std::invalid_argument
  constexpr void check(std::string_view function, std::string_view argument, std::int64_t batch,
                       std::int64_t tokens) const {
    if (kind_ == kind::per_row) {
      detail::require(count_ == batch, function, argument, "must list one first position per batch row", count_);
    } else if (kind_ == kind::listed) {
      detail::require(batch_ == 1 || batch_ == batch, function, argument,
                      "must be listed for one batch row or for each of them", batch_);
      detail::require(count_ == tokens * batch_ * axes_, function, argument,
                      "must list one id per token, batch row and axis", count_);
    }
    if (contiguous() && tokens > 1)
      for (std::int64_t b = 0; b < (kind_ == kind::per_row ? batch : 1); ++b)
        detail::require(first(b) <= std::numeric_limits<std::int64_t>::max() - (tokens - 1), function, argument,
                        "must leave room for the tokens below 2^63, first at", first(b));
  }

 private:
  enum class kind { contiguous, per_row, listed };

  static constexpr positions list(const std::int64_t* wide, const std::int32_t* narrow, std::int64_t count,
                                  std::int64_t batch, int axes) {
    detail::require(batch >= 1, "positions", "batch", "must be at least 1", batch);
    detail::require(count % (batch * axes) == 0, "positions", "ids", "must fill batch * axes rows of equal length",
                    count);
    positions p;
    p.kind_ = kind::listed;
    p.wide_ = wide;
    p.narrow_ = narrow;
    p.count_ = count;
    p.batch_ = batch;
    p.axes_ = axes;
    return p;
  }
  [[nodiscard]] constexpr std::int64_t id(int axis, std::int64_t b, std::int64_t t) const noexcept {
    const std::int64_t tokens = count_ / (batch_ * axes_);
    const std::int64_t i = ((batch_ == 1 ? 0 : b) * axes_ + axis) * tokens + t;
    return wide_ ? wide_[i] : narrow_[i];
  }

  kind kind_ = kind::contiguous;
  int axes_ = 1;
  std::int64_t first_ = 0;
  std::int64_t count_ = 0;
  std::int64_t batch_ = 1;
  const std::int64_t* wide_ = nullptr;
  const std::int32_t* narrow_ = nullptr;
};

/// Real-valued coordinates of one token; a single one stands on every axis.
struct real_position {
  std::array<double, position::max_axes> axis{};

  constexpr real_position() = default;
  template <std::floating_point F>
  constexpr real_position(F p) noexcept {  // NOLINT: a number is a position
    axis.fill(static_cast<double>(p));
  }
  [[nodiscard]] constexpr double operator[](int a) const noexcept { return axis[static_cast<std::size_t>(a)]; }
};

/// Real-valued positions for encodings whose mathematics allows them (sinusoidal, rope): one per token, or
/// `axes(values, n)`, n coordinates per token in the order values[axis * tokens + t]; shared by the batch rows.
/// A type of its own, so that a feature tensor is never taken for integer positions by accident.
class real_positions {
 public:
  explicit constexpr real_positions(std::span<const double> values) noexcept : values_(values) {}
  [[nodiscard]] static constexpr real_positions axes(std::span<const double> values, int axes) {
    detail::require(axes >= 1 && axes <= position::max_axes, "real_positions::axes", "axes", "must lie in 1..4", axes);
    detail::require(values.size() % static_cast<std::size_t>(axes) == 0, "real_positions::axes", "values",
                    "must fill axes of equal length", values.size());
    real_positions p(values);
    p.axes_ = axes;
    return p;
  }
  [[nodiscard]] constexpr double operator[](std::int64_t t) const noexcept {
    return values_[static_cast<std::size_t>(t)];
  }
  /// All axes of token t.
  [[nodiscard]] constexpr real_position at(std::int64_t t) const noexcept {
    if (axes_ == 1) return {(*this)[t]};
    real_position p;
    for (int a = 0; a < axes_; ++a) p.axis[static_cast<std::size_t>(a)] = (*this)[a * size() + t];
    return p;
  }
  /// Tokens.
  [[nodiscard]] constexpr std::int64_t size() const noexcept {
    return static_cast<std::int64_t>(values_.size()) / axes_;
  }
  [[nodiscard]] constexpr int axis_count() const noexcept { return axes_; }

 private:
  std::span<const double> values_;
  int axes_ = 1;
};

}  // namespace posenc
