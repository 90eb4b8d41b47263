// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Masks by position: which keys a query sees, told from the two positions alone, as one or two half-open intervals.
///   causal               pk <= pq
///   sliding_window{W}    pq - W < pk <= pq: W keys with the query's own, W = 1 sees only itself
///   chunked{c}           floor(pk / c) = floor(pq / c) and pk <= pq (Llama 4); chunk borders lie at multiples of c,
///                        also below 0
///   symmetric_window{W}  |pk - pq| < W
///   block_diagonal{c}    floor(pk / c) = floor(pq / c)
///   prefix_lm{n}         pk < n, or pk <= pq
///   any_of{a, b}         the union of two masks of one interval each, e.g. the first keys and a window
/// Each counts the query's own position as visible. Throws std::invalid_argument for a width below 1.

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>

namespace posenc {

namespace detail {
/// How far p lies behind the start of its chunk.
[[nodiscard]] constexpr std::int64_t within_chunk(std::int64_t p, std::int64_t size) noexcept {
  const std::int64_t remainder = p % size;
  return remainder < 0 ? remainder + size : remainder;
}
/// The first position of the chunk that p lies in.
[[nodiscard]] constexpr std::int64_t chunk_start(std::int64_t p, std::int64_t size) noexcept {
  return saturating_add(p, -within_chunk(p, size));
}
}  // namespace detail

struct causal {
  [[nodiscard]] constexpr interval allow_positions(const row& r) const noexcept {
    return {interval::lowest, detail::saturating_add(r.query_position, 1)};
  }
};

struct sliding_window {
  std::int64_t width;
  constexpr explicit sliding_window(std::int64_t w) : width(w) {
    detail::require(w >= 1, "sliding_window", "width", "must be at least 1", w);
  }
  [[nodiscard]] constexpr interval allow_positions(const row& r) const noexcept {
    return {detail::saturating_add(r.query_position, 1 - width), detail::saturating_add(r.query_position, 1)};
  }
};

struct chunked {
  std::int64_t size;
  constexpr explicit chunked(std::int64_t c) : size(c) {
    detail::require(c >= 1, "chunked", "size", "must be at least 1", c);
  }
  [[nodiscard]] constexpr interval allow_positions(const row& r) const noexcept {
    return {detail::chunk_start(r.query_position, size), detail::saturating_add(r.query_position, 1)};
  }
};

struct symmetric_window {
  std::int64_t width;
  constexpr explicit symmetric_window(std::int64_t w) : width(w) {
    detail::require(w >= 1, "symmetric_window", "width", "must be at least 1", w);
  }
  [[nodiscard]] constexpr interval allow_positions(const row& r) const noexcept {
    return {detail::saturating_add(r.query_position, 1 - width), detail::saturating_add(r.query_position, width)};
  }
};

struct block_diagonal {
  std::int64_t size;
  constexpr explicit block_diagonal(std::int64_t c) : size(c) {
    detail::require(c >= 1, "block_diagonal", "size", "must be at least 1", c);
  }
  [[nodiscard]] constexpr interval allow_positions(const row& r) const noexcept {
    return {detail::chunk_start(r.query_position, size),
            detail::saturating_add(r.query_position, size - detail::within_chunk(r.query_position, size))};
  }
};

struct prefix_lm {
  std::int64_t prefix;
  constexpr explicit prefix_lm(std::int64_t n) : prefix(n) {}
  [[nodiscard]] constexpr interval_pair allow_positions(const row& r) const noexcept {
    return {interval{interval::lowest, prefix},
            interval{interval::lowest, detail::saturating_add(r.query_position, 1)}};
  }
};

/// Keys at positions below `end`, e.g. the first tokens that every query keeps seeing.
struct before {
  std::int64_t end;
  constexpr explicit before(std::int64_t e) : end(e) {}
  [[nodiscard]] constexpr interval allow_positions(const row&) const noexcept { return {interval::lowest, end}; }
};

template <class A, class B>
struct any_of {
  A first;
  B second;
  constexpr any_of(A a, B b) : first(a), second(b) {}
  [[nodiscard]] constexpr interval_pair allow_positions(const row& r) const {
    return {interval(first.allow_positions(r)), interval(second.allow_positions(r))};
  }
};

}  // namespace posenc
