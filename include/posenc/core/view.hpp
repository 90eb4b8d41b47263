// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A strided [batch, token, head, dim] window over the caller's memory. It owns nothing and is passed by value.
///   posenc::view q{pointer, {.tokens = 7, .heads = 32, .dim = 128}};                    // [token, head, dim] packed
///   posenc::view k{pointer, {.tokens = 7, .heads = 8, .dim = 128}, {.token = 128, .head = 7 * 128}};  // head-major
/// Strides count elements and may be anything, negative or zero included; SIMD kernels run where the dim stride is 1,
/// every other stride is handled one element at a time. Offsets are 64 bits wide.

#include <posenc/core/error.hpp>

#include <cstdint>
#include <type_traits>

namespace posenc {

/// Extents of a view. `batch` and `heads` default to 1.
struct shape {
  std::int64_t batch = 1;
  std::int64_t tokens = 0;
  std::int64_t heads = 1;
  std::int64_t dim = 0;

  friend constexpr bool operator==(const shape&, const shape&) = default;
  [[nodiscard]] constexpr std::int64_t elements() const noexcept { return batch * tokens * heads * dim; }
};

/// Distances in elements between neighbours along each axis.
struct strides {
  std::int64_t batch = 0;
  std::int64_t token = 0;
  std::int64_t head = 0;
  std::int64_t dim = 1;

  friend constexpr bool operator==(const strides&, const strides&) = default;
};

/// Strides of memory packed in the order [batch, token, head, dim].
[[nodiscard]] constexpr strides token_major(const shape& s) noexcept {
  return {.batch = s.tokens * s.heads * s.dim, .token = s.heads * s.dim, .head = s.dim, .dim = 1};
}

/// Strides of memory packed in the order [batch, head, token, dim].
[[nodiscard]] constexpr strides head_major(const shape& s) noexcept {
  return {.batch = s.tokens * s.heads * s.dim, .token = s.dim, .head = s.tokens * s.dim, .dim = 1};
}

/// See the file comment. @throws std::invalid_argument for a negative extent, or a null pointer to a non-empty shape.
template <class T>
class view {
 public:
  using value_type = std::remove_cv_t<T>;

  constexpr view() = default;
  constexpr view(T* data, const shape& s) : view(data, s, token_major(s)) {}
  constexpr view(T* data, const shape& s, const strides& step) : data_(data), shape_(s), strides_(step) {
    detail::require(s.batch >= 0, "view", "batch", "must not be negative", s.batch);
    detail::require(s.tokens >= 0, "view", "tokens", "must not be negative", s.tokens);
    detail::require(s.heads >= 0, "view", "heads", "must not be negative", s.heads);
    detail::require(s.dim >= 0, "view", "dim", "must not be negative", s.dim);
    detail::require(data != nullptr || empty(), "view", "data", "must not be null for a shape with elements",
                    "a null pointer");
  }
  /// A view of const elements from a view of mutable ones.
  constexpr operator view<const T>() const noexcept  // NOLINT: the conversion loses nothing
      requires(!std::is_const_v<T>) {
    return view<const T>(data_, shape_, strides_);
  }

  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr const shape& extents() const noexcept { return shape_; }
  [[nodiscard]] constexpr const strides& steps() const noexcept { return strides_; }
  [[nodiscard]] constexpr std::int64_t batch() const noexcept { return shape_.batch; }
  [[nodiscard]] constexpr std::int64_t tokens() const noexcept { return shape_.tokens; }
  [[nodiscard]] constexpr std::int64_t heads() const noexcept { return shape_.heads; }
  [[nodiscard]] constexpr std::int64_t dim() const noexcept { return shape_.dim; }
  [[nodiscard]] constexpr bool empty() const noexcept {
    return shape_.batch == 0 || shape_.tokens == 0 || shape_.heads == 0 || shape_.dim == 0;
  }
  /// Whether rows are contiguous, so that SIMD kernels may run.
  [[nodiscard]] constexpr bool unit_dim_stride() const noexcept { return strides_.dim == 1 || shape_.dim <= 1; }

  /// Whether two index tuples name the same element because a stride is 0: such a view may be read, not written.
  [[nodiscard]] constexpr bool repeats() const noexcept {
    return !empty() && ((shape_.batch > 1 && strides_.batch == 0) || (shape_.tokens > 1 && strides_.token == 0) ||
                        (shape_.heads > 1 && strides_.head == 0) || (shape_.dim > 1 && strides_.dim == 0));
  }

  /// The first element of one row.
  [[nodiscard]] constexpr T* row(std::int64_t b, std::int64_t t, std::int64_t h) const noexcept {
    return data_ + b * strides_.batch + t * strides_.token + h * strides_.head;
  }
  [[nodiscard]] constexpr T& operator()(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) const noexcept {
    return row(b, t, h)[d * strides_.dim];
  }

 private:
  T* data_ = nullptr;
  shape shape_{.batch = 0, .tokens = 0, .heads = 0, .dim = 0};
  strides strides_{};
};

namespace detail {

/// Lowest and one past the highest address of a view's elements.
struct address_range {
  std::uintptr_t lo;
  std::uintptr_t hi;
};
template <class T>
[[nodiscard]] address_range addresses(const view<T>& v) noexcept {
  std::int64_t lo = 0;
  std::int64_t hi = 0;
  const auto reach = [&](std::int64_t extent, std::int64_t step) { (step < 0 ? lo : hi) += (extent - 1) * step; };
  reach(v.batch(), v.steps().batch);
  reach(v.tokens(), v.steps().token);
  reach(v.heads(), v.steps().head);
  reach(v.dim(), v.steps().dim);
  const auto base = reinterpret_cast<std::uintptr_t>(v.data());
  const auto size = static_cast<std::int64_t>(sizeof(T));
  return {base + static_cast<std::uintptr_t>(lo * size), base + static_cast<std::uintptr_t>((hi + 1) * size)};
}

/// Refuses an output that cannot be written in one pass over `in`: it must be `in` itself, or lie apart from it.
template <class A, class B>
void check_apart(const view<A>& in, const view<B>& out, std::string_view function) {
  require(!out.repeats(), function, "out", "must not repeat elements through a stride of 0", "a stride of 0");
  if (in.empty()) return;
  const bool same = static_cast<const void*>(in.data()) == static_cast<const void*>(out.data()) &&
                    in.steps() == out.steps() && sizeof(A) == sizeof(B);
  const address_range a = addresses(in);
  const address_range b = addresses(out);
  require(same || a.hi <= b.lo || b.hi <= a.lo, function, "out", "must be in itself or not overlap it",
          "overlapping memory");
}

/// Refuses an output that reaches into memory which is read until the end.
template <class A, class B>
void check_outside(const view<A>& in, const view<B>& out, std::string_view function, std::string_view name) {
  if (in.empty() || out.empty()) return;
  const address_range a = addresses(in);
  const address_range b = addresses(out);
  require(a.hi <= b.lo || b.hi <= a.lo, function, "out", "must not overlap what is read to the end", name);
}

}  // namespace detail

template <class T>
view(T*, const shape&) -> view<T>;
template <class T>
view(T*, const shape&, const strides&) -> view<T>;

}  // namespace posenc
