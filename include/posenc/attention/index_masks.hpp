// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Masks by index: what storage holds, whatever positions it stands for.
///   cache_length{n}          keys 0 .. n-1 are filled; or one length per batch row
///   padding{begin, end}      keys begin[b] .. end[b]-1 of batch row b are real (left padding: begin > 0)
///   causal_by_index{past}    key j is seen by query i iff j <= past + i
///   documents{q, k}          packed sequences: document d owns queries q[d] .. q[d+1]-1 and keys k[d] .. k[d+1]-1
///                            (cumulative lengths, cu_seqlens); a query sees the keys of its own document
/// Spans stay the caller's memory and must outlive the call; they are checked once per call.

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>

#include <algorithm>
#include <span>

namespace posenc {

struct cache_length {
  std::int64_t length = 0;
  std::span<const std::int64_t> lengths{};
  bool per_row = false;

  constexpr explicit cache_length(std::int64_t n) : length(n) {
    detail::require(n >= 0, "cache_length", "length", "must not be negative", n);
  }
  constexpr explicit cache_length(std::span<const std::int64_t> per_batch_row) : lengths(per_batch_row), per_row(true) {
    for (const std::int64_t n : per_batch_row)
      detail::require(n >= 0, "cache_length", "length", "must not be negative", n);
  }
  [[nodiscard]] constexpr interval allow_index(const row& r) const noexcept {
    return {0, per_row ? lengths[static_cast<std::size_t>(r.batch)] : length};
  }
  void check(const call& c) const {
    detail::require(!per_row || static_cast<std::int64_t>(lengths.size()) == c.batch, "cache_length", "lengths",
                    "must list one length per batch row", lengths.size());
    const auto fits = [&](std::int64_t n) {
      detail::require(n >= 0 && n <= c.keys, "cache_length", "length", "must lie in 0..keys of the call", n);
    };
    if (!per_row) return fits(length);
    for (const std::int64_t n : lengths) fits(n);
  }
};

/// Keys up to the query's own by their place in storage: key j is seen by query i iff j <= past + i. What tokens that
/// share a position need (the tokens of an image under a rotation of several axes), where `causal` would let them all
/// see each other. `past` counts the keys that lie before those of the call's own tokens.
struct causal_by_index {
  static constexpr bool orders_tokens = true;
  std::int64_t past = 0;
  [[nodiscard]] constexpr interval allow_index(const row& r) const noexcept {
    return {0, detail::saturating_add(detail::saturating_add(past, r.query_index), 1)};
  }
  void check(const call& c) const {
    detail::require(past >= 0 && past <= c.keys - c.queries, "causal_by_index", "past",
                    "must lie in 0..keys - queries of the call", past);
  }
};

struct padding {
  std::span<const std::int64_t> begin;
  std::span<const std::int64_t> end;

  [[nodiscard]] constexpr interval allow_index(const row& r) const noexcept {
    const auto b = static_cast<std::size_t>(r.batch);
    return {begin.empty() ? 0 : begin[b], end.empty() ? interval::highest : end[b]};
  }
  void check(const call& c) const {
    const auto listed = [&](std::span<const std::int64_t> s) {
      return s.empty() || static_cast<std::int64_t>(s.size()) == c.batch;
    };
    detail::require(listed(begin), "padding", "begin", "must list one index per batch row", begin.size());
    detail::require(listed(end), "padding", "end", "must list one index per batch row", end.size());
    for (std::size_t b = 0; b < static_cast<std::size_t>(c.batch); ++b) {
      const std::int64_t first = begin.empty() ? 0 : begin[b];
      const std::int64_t last = end.empty() ? c.keys : end[b];
      detail::require(first >= 0 && first <= last, "padding", "begin", "must lie in 0..end", first);
      detail::require(last <= c.keys, "padding", "end", "must not exceed the keys of the call", last);
    }
  }
};

struct documents {
  std::span<const std::int64_t> query_starts;
  std::span<const std::int64_t> key_starts;

  /// Self-attention: queries and keys are packed alike.
  explicit documents(std::span<const std::int64_t> cu_seqlens) : documents(cu_seqlens, cu_seqlens) {}
  documents(std::span<const std::int64_t> cu_q, std::span<const std::int64_t> cu_k)
      : query_starts(cu_q), key_starts(cu_k) {
    detail::require(cu_q.size() == cu_k.size() && cu_q.size() >= 1, "documents", "cumulative lengths",
                    "must list as many documents for keys as for queries", cu_k.size());
    detail::require(std::is_sorted(cu_q.begin(), cu_q.end()) && std::is_sorted(cu_k.begin(), cu_k.end()), "documents",
                    "cumulative lengths", "must not fall", "a smaller value after a larger one");
  }
  void check(const call& c) const {
    detail::require(query_starts.front() >= 0 && query_starts.back() <= c.queries, "documents", "query_starts",
                    "must lie in 0..queries of the call", query_starts.back());
    detail::require(key_starts.front() >= 0 && key_starts.back() <= c.keys, "documents", "key_starts",
                    "must lie in 0..keys of the call", key_starts.back());
  }
  [[nodiscard]] interval allow_index(const row& r) const noexcept {
    const auto after = std::upper_bound(query_starts.begin(), query_starts.end(), r.query_index);
    if (after == query_starts.begin() || after == query_starts.end()) return {0, 0};
    const auto d = static_cast<std::size_t>(after - query_starts.begin()) - 1;
    return {key_starts[d], key_starts[d + 1]};
  }
};

}  // namespace posenc
