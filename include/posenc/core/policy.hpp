// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The hook vocabulary. An encoder is a plain value type that implements the hooks of the sites it uses and nothing
/// else; the attention kernels find them with `requires`, and an absent hook costs no instruction.
///
///   site             hook
///   input embedding  embed(view x, positions)
///   q and k          transform_q(x, dim, position, head), transform_k(x, dim, position, kv_head): in place, in order
///   q scale          query_scale(head, position, visible_keys)
///   logit            row<B>(row, keys) -> op, op(B logits, int64 k) -> B on the lanes of keys k, k + 1, ...
///   logit, content   scratch_size(rows, keys, dim), prepare<B>(content_tile, keys, scratch, lines): terms that need
///                    q or k, for one tile of scores at once
///   logit, whole row scratch_size(1, keys, dim), transform_logits<B>(logit_row, keys, scratch): at the part's place,
///                    for a part to which no logit is final before the others are known; `attention_two_pass` alone
///                    (and the reference) has whole rows
///   value sum        state_size(value_dim), add_weights<B>(state, row, keys, first, weights, n) and
///                    add_values<B>(state, row, sum, n): values that depend on the position of key and query
///   visible keys     allow_positions(row), allow_index(row) -> interval or interval_pair;
///                    allow_lanes<B>(row, keys) -> op, op(int64 k) -> lanes<B>::mask
///   softmax start    sink(head)
///   once per call    check(call): refuses a call that the part does not fit; heads(): must equal those of q;
///                    check_distances(interval): the same for the distances key - query that masks let through;
///                    workspace_bytes(call), bind(std::byte*, call) -> the closure that the hooks are taken from
///   A part that takes positions of several axes says so: static constexpr bool several_axes = true.
///   A query scale that uses visible_keys says so: static constexpr bool needs_visible_keys = true.
///
/// A row op may be evaluated on lanes past the last key; those lanes are discarded. Id arrays and lines carry
/// `lane_slack` elements past their end so that such reads stay in bounds.

#include <posenc/core/distances.hpp>
#include <posenc/core/lanes.hpp>
#include <posenc/core/positions.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

namespace posenc {

/// The integers lo <= x < hi; hi = `highest` leaves the upper end open, so that the last int64 is inside too.
struct interval {
  static constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();
  std::int64_t lo = lowest;
  std::int64_t hi = highest;

  [[nodiscard]] constexpr bool empty() const noexcept { return lo > hi || (lo == hi && hi != highest); }
  [[nodiscard]] constexpr bool contains(std::int64_t x) const noexcept { return lo <= x && (x < hi || hi == highest); }
  friend constexpr bool operator==(const interval&, const interval&) = default;
};

/// A union of two intervals, in any order, overlapping or not.
using interval_pair = std::array<interval, 2>;

/// A sorted list of disjoint, non-empty intervals: what remains after every mask of a policy has been heard.
/// n masks of up to two intervals leave at most n + 1; `capacity` bounds the masks of one policy.
class interval_list {
 public:
  static constexpr int capacity = 12;

  constexpr interval_list() noexcept { items_[0] = {}; }
  constexpr explicit interval_list(interval all) noexcept : count_(all.empty() ? 0 : 1) { items_[0] = all; }

  [[nodiscard]] constexpr int size() const noexcept { return count_; }
  [[nodiscard]] constexpr const interval& operator[](int i) const noexcept {
    return items_[static_cast<std::size_t>(i)];
  }
  /// How many integers there are, for a list that was cut to less than 2^63 of them.
  [[nodiscard]] constexpr std::int64_t total() const noexcept {
    std::int64_t n = 0;
    for (int i = 0; i < count_; ++i) n += (*this)[i].hi - (*this)[i].lo;
    return n;
  }
  [[nodiscard]] constexpr bool contains(std::int64_t x) const noexcept {
    for (int i = 0; i < count_; ++i)
      if ((*this)[i].contains(x)) return true;
    return false;
  }

  /// Adds an interval that lies above all others; an empty one adds nothing, one that touches the last extends it.
  constexpr void append(interval next) noexcept {
    if (next.empty()) return;
    if (count_ > 0 && items_[static_cast<std::size_t>(count_ - 1)].hi >= next.lo) {
      items_[static_cast<std::size_t>(count_ - 1)].hi =
          std::max(items_[static_cast<std::size_t>(count_ - 1)].hi, next.hi);
    } else if (count_ < capacity) {
      items_[static_cast<std::size_t>(count_++)] = next;
    }
  }

  constexpr void intersect(interval other) noexcept {
    int kept = 0;
    for (int i = 0; i < count_; ++i) {
      const interval cut{std::max((*this)[i].lo, other.lo), std::min((*this)[i].hi, other.hi)};
      if (!cut.empty()) items_[static_cast<std::size_t>(kept++)] = cut;
    }
    count_ = kept;
  }
  constexpr void intersect(const interval_pair& pair) noexcept {
    interval a = pair[0];
    interval b = pair[1];
    if (b.lo < a.lo) std::swap(a, b);
    if (a.empty()) return intersect(b);
    if (b.empty()) return intersect(a);
    if (b.lo <= a.hi) return intersect(interval{a.lo, std::max(a.hi, b.hi)});
    const interval_list before = *this;
    intersect(a);
    interval_list second = before;
    second.intersect(b);
    for (int i = 0; i < second.count_ && count_ < capacity; ++i) items_[static_cast<std::size_t>(count_++)] = second[i];
  }

 private:
  std::array<interval, capacity> items_{};
  int count_ = 1;
};

/// What a call looks like, for encoders that prepare lines or scratch once per call.
struct call {
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t dim = 0;
  std::int64_t value_dim = 0;
  posenc::positions query_positions{};
  posenc::positions key_positions{};
};

/// One tile of scores, as a part with content terms sees it: `rows` queries that share a key head (every head of its
/// group) against the keys first .. first + keys - 1. `prepare` sets lines[r] for each row that sees a key: lines[r][j]
/// is what is added to the logit of key first + j at the part's place in the pack, for j inside seen[r]; `lane_slack`
/// elements beyond may be read, and are not used.
template <class C>
struct content_tile {
  std::int64_t rows = 0;
  std::int64_t keys = 0;
  std::int64_t first = 0;
  std::int64_t dim = 0;
  /// [rows]
  const posenc::row* at = nullptr;
  /// [rows][dim]: after every transform, times factor.
  const C* query = nullptr;
  /// [rows][dim]: the same before the factor.
  const C* unscaled = nullptr;
  /// [rows]: the scale of the scores times every query scale.
  const C* factor = nullptr;
  /// [rows]: the least interval that holds the keys that a row sees, counted from `first`; empty where it sees none.
  const interval* seen = nullptr;
  /// Key j of the call as the products see it, dim channels, into `to`.
  const void* source = nullptr;
  void (*copy)(const void* source, std::int64_t j, C* to) = nullptr;

  void copy_key(std::int64_t j, C* to) const { copy(source, j, to); }
};

/// One row of logits, as a part that needs all of them sees it: logits[j] is that of key j of the call after the parts
/// before it, for j inside `seen`, the least interval that holds the keys that the row sees. A hidden key among them
/// has -inf, and what the part makes of that is not used.
template <class C>
struct logit_row {
  posenc::row at{};
  std::int64_t dim = 0;
  /// [dim]: after every transform, before the scale.
  const C* query = nullptr;
  /// The scale of the scores times every query scale.
  C factor{};
  interval seen{};
  C* logits = nullptr;
};

// The concepts by which hooks are found, also for use in your own constraints and tests.
template <class P>
concept has_allow_positions = requires(const P& p, const row& r) {
  p.allow_positions(r);
};
template <class P>
concept has_allow_index = requires(const P& p, const row& r) {
  p.allow_index(r);
};
template <class P, class B, class Keys>
concept has_allow_lanes = requires(const P& p, const row& r, const Keys& keys) {
  p.template allow_lanes<B>(r, keys);
};
template <class P, class B, class Keys>
concept has_row = requires(const P& p, const row& r, const Keys& keys) {
  p.template row<B>(r, keys);
};
template <class P, class B, class Keys>
concept has_prepare = requires(const P& p, const content_tile<typename lanes<B>::scalar>& tile, const Keys& keys,
                               typename lanes<B>::scalar* scratch, const typename lanes<B>::scalar** lines,
                               std::int64_t n) {
  { p.scratch_size(n, n, n) } -> std::convertible_to<std::int64_t>;
  p.template prepare<B>(tile, keys, scratch, lines);
};
template <class P, class B, class Keys>
concept has_transform_logits = requires(const P& p, const logit_row<typename lanes<B>::scalar>& line, const Keys& keys,
                                        typename lanes<B>::scalar* scratch, std::int64_t n) {
  { p.scratch_size(n, n, n) } -> std::convertible_to<std::int64_t>;
  p.template transform_logits<B>(line, keys, scratch);
};
template <class P, class B, class Keys>
concept has_values = requires(const P& p, const row& r, const Keys& keys, typename lanes<B>::scalar* state,
                              std::int64_t n) {
  { p.state_size(n) } -> std::convertible_to<std::int64_t>;
  p.template add_weights<B>(state, r, keys, n, state, n);
  p.template add_values<B>(state, r, state, n);
};
template <class P>
concept has_sink = requires(const P& p, std::int64_t head) {
  p.sink(head);
};
template <class P>
concept has_query_scale = requires(const P& p, std::int64_t n, const position& at) {
  p.query_scale(n, at, n);
};
template <class P, class T>
concept has_transform_q = requires(const P& p, T* x, std::int64_t n, const position& at) {
  p.transform_q(x, n, at, n);
};
template <class P, class T>
concept has_transform_k = requires(const P& p, T* x, std::int64_t n, const position& at) {
  p.transform_k(x, n, at, n);
};
template <class P>
concept has_bind = requires(const P& p, std::byte* memory, const call& c) {
  { p.workspace_bytes(c) } -> std::convertible_to<std::size_t>;
  p.bind(memory, c);
};

}  // namespace posenc
