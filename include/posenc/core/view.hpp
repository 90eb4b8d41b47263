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

  /// Whether two index tuples may name the same element: sorted by stride, some axis does not step over the ones below
  /// it.
  [[nodiscard]] constexpr bool overlaps_itself() const noexcept {
    std::int64_t step[4] = {strides_.batch, strides_.token, strides_.head, strides_.dim};
    std::int64_t extent[4] = {shape_.batch, shape_.tokens, shape_.heads, shape_.dim};
    std::int64_t reach = 0;
    // Most views are nested in this order already.
    int nested = 3;
    for (; nested >= 0; --nested) {
      if (extent[nested] <= 1) continue;
      if (step[nested] <= reach) break;
      reach += (extent[nested] - 1) * step[nested];
    }
    if (nested < 0) return false;
    reach = 0;
    for (int taken = 0; taken < 4; ++taken) {
      int next = -1;
      for (int i = 0; i < 4; ++i) {
        if (extent[i] <= 1) continue;
        if (next < 0 || magnitude(step[i]) < magnitude(step[next])) next = i;
      }
      if (next < 0) break;
      if (magnitude(step[next]) <= reach) return !empty();
      reach += (extent[next] - 1) * magnitude(step[next]);
      extent[next] = 1;
    }
    return false;
  }

  /// The first element of one row.
  [[nodiscard]] constexpr T* row(std::int64_t b, std::int64_t t, std::int64_t h) const noexcept {
    return data_ + b * strides_.batch + t * strides_.token + h * strides_.head;
  }
  [[nodiscard]] constexpr T& operator()(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) const noexcept {
    return row(b, t, h)[d * strides_.dim];
  }
  /// How many tokens from t on have rows steps().token apart: all of them. A `paged_view` has shorter runs.
  [[nodiscard]] constexpr std::int64_t run(std::int64_t, std::int64_t t) const noexcept { return shape_.tokens - t; }

 private:
  static constexpr std::int64_t magnitude(std::int64_t x) noexcept { return x < 0 ? -x : x; }

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

/// Whether two views share no byte: their address ranges lie apart, or both repeat per token with the same period and
/// take different parts of it, as q and k in one packed buffer do.
template <class A, class B>
[[nodiscard]] bool separate(const view<A>& a, const view<B>& b) noexcept {
  const address_range ra = addresses(a);
  const address_range rb = addresses(b);
  if (ra.hi <= rb.lo || rb.hi <= ra.lo) return true;
  const auto bytes = [](const auto& v) {
    return static_cast<std::int64_t>(sizeof(*v.data())) *
           ((v.heads() - 1) * v.steps().head + (v.dim() - 1) * v.steps().dim + 1);
  };
  const std::int64_t period = a.steps().token * static_cast<std::int64_t>(sizeof(A));
  const bool alike = period > 0 && period == b.steps().token * static_cast<std::int64_t>(sizeof(B)) &&
                     a.steps().head >= 0 && a.steps().dim >= 0 && b.steps().head >= 0 && b.steps().dim >= 0 &&
                     (a.batch() == 1 || a.steps().batch % a.steps().token == 0) &&
                     (b.batch() == 1 || b.steps().batch % b.steps().token == 0);
  if (!alike) return false;
  const std::int64_t between = reinterpret_cast<std::intptr_t>(b.data()) - reinterpret_cast<std::intptr_t>(a.data());
  const std::int64_t offset = ((between % period) + period) % period;
  return offset >= bytes(a) && offset + bytes(b) <= period;
}

/// An output names every element once.
template <class T>
void check_output(const view<T>& out, std::string_view function, std::string_view name = "out") {
  static_assert(!std::is_const_v<T>, "posenc: what is written to must be a view of elements that are not const");
  require(!out.repeats(), function, name, "must not repeat elements through a stride of 0", "a stride of 0");
  require(!out.overlaps_itself(), function, name, "must not overlap itself",
          "strides shorter than what they step over");
}

/// Refuses an output that cannot be written in one pass over `in`: it must be `in` itself, or lie apart from it.
template <class A, class B>
void check_apart(const view<A>& in, const view<B>& out, std::string_view function) {
  check_output(out, function);
  if (in.empty() || out.empty()) return;
  const bool same = static_cast<const void*>(in.data()) == static_cast<const void*>(out.data()) &&
                    in.steps() == out.steps() && in.extents() == out.extents() && sizeof(A) == sizeof(B);
  require(same || separate(in, out), function, "out", "must be in itself or not overlap it", "overlapping memory");
}

/// Refuses an output that reaches into memory which is read until the end.
template <class A, class B>
void check_outside(const view<A>& in, const view<B>& out, std::string_view function, std::string_view name) {
  if (in.empty() || out.empty()) return;
  require(separate(in, out), function, "out", "must not overlap what is read to the end", name);
}

}  // namespace detail

template <class T>
view(T*, const shape&) -> view<T>;
template <class T>
view(T*, const shape&, const strides&) -> view<T>;

}  // namespace posenc
