// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What every form of attention is given beside q, k, v, out and a policy, and the checks it makes once at the edge.

#include <posenc/attention/compose.hpp>
#include <posenc/core/error.hpp>
#include <posenc/core/paged_view.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/scalar.hpp>
#include <posenc/core/view.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>

namespace posenc {

/// Whether cached keys carry their rotation. `rotated` (keys were rotated when they were appended) leaves them alone;
/// `unrotated` applies the policy's key transforms while reading.
enum class key_state { rotated, unrotated };

/// C is the compute type: float, or double where q, k, v or out is double.
template <class C>
struct attention_options {
  positions query_positions{};
  positions key_positions{};
  /// Factor on q.k; 1 / sqrt(dim) unless given.
  std::optional<double> scale{};
  key_state keys = key_state::rotated;
  /// Receives the log-sum-exp of every row, [batch, query, head, 1]: the natural logarithm of the softmax denominator,
  /// biases and sink included; -inf for a row without a visible key.
  view<C> lse{};
  /// Of calls that each hold a part of a sequence's keys (merge.hpp), one counts the sink.
  bool count_sink = true;
  /// How many keys a row sees in all such calls, [batch, query, head, 1], for query scales that ask (ssmax); empty: as
  /// many as it sees here.
  view<const std::int64_t> visible_keys{};
  /// At least `attention_workspace(...)` bytes; empty: the call allocates that much once and frees it.
  std::span<std::byte> workspace{};
};

namespace detail {

/// What an element is stored as: of rows of tokens, or of the type itself.
template <class T>
struct stored_as {
  using type = T;
};
template <token_rows T>
struct stored_as<T> {
  using type = typename T::value_type;
};

/// double where one of the arguments is stored so, else float.
template <class... T>
using attention_compute_t =
    std::conditional_t<(std::same_as<compute_t<typename stored_as<T>::type>, double> || ...), double, float>;

/// The last int64 is no position here: the end of an interval lies one above.
inline void check_below_last(const char* function, const char* name, const positions& at, std::int64_t batch,
                             std::int64_t tokens) {
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = at.contiguous() ? std::max<std::int64_t>(tokens - 1, 0) : 0; t < tokens; ++t)
      require(at(b, t) != interval::highest, function, name, "must lie below 2^63 - 1", at(b, t));
}

template <class Q, class K, class V, class O>
call checked_call(const char* function, const view<Q>& q, const K& k, const V& v, const view<O>& out,
                  const positions& query_at, const positions& key_at) {
  require(k.batch() == q.batch(), function, "k batch", "must equal that of q", k.batch());
  require(v.batch() == q.batch(), function, "v batch", "must equal that of q", v.batch());
  require(v.tokens() == k.tokens(), function, "v tokens", "must equal those of k", v.tokens());
  require(v.heads() == k.heads(), function, "v heads", "must equal those of k", v.heads());
  require(k.dim() == q.dim() || k.tokens() == 0, function, "k dim", "must equal that of q", k.dim());
  require(q.heads() == 0 || (k.heads() >= 1 && q.heads() % k.heads() == 0) || k.tokens() == 0, function, "q heads",
          "must be a multiple of the heads of k", q.heads());
  require(out.batch() == q.batch() && out.tokens() == q.tokens() && out.heads() == q.heads(), function, "out",
          "must have the batch, tokens and heads of q", out.heads());
  require(out.dim() == v.dim() || k.tokens() == 0, function, "out dim", "must equal that of v", out.dim());
  check_apart(q, out, function);
  if (k.tokens() != 0 && !out.empty()) {
    check_outside(k, out, function, "k");
    check_outside(v, out, function, "v");
  }
  query_at.check(function, "query_positions", q.batch(), q.tokens());
  key_at.check(function, "key_positions", k.batch(), k.tokens());
  check_below_last(function, "query_positions", query_at, q.batch(), q.tokens());
  check_below_last(function, "key_positions", key_at, k.batch(), k.tokens());
  return {.batch = q.batch(),
          .heads = q.heads(),
          .kv_heads = k.tokens() == 0 || k.heads() == 0 ? 1 : k.heads(),  // groups may be formed of any call
          .queries = q.tokens(),
          .keys = k.tokens(),
          .dim = q.dim(),
          .value_dim = out.dim(),
          .query_positions = query_at,
          .key_positions = key_at};
}

template <class P>
concept rotates_outside_only = requires(const P& p, view<float> x, const positions& at) {
  p.rotate(x, at);
}
&&!has_transform_q<P, float>;

inline row row_of(const call& c, std::int64_t b, std::int64_t head, std::int64_t query) {
  return {.batch = b,
          .head = head,
          .kv_head = head / (c.heads / c.kv_heads),
          .query_index = query,
          .query_position = c.query_positions(b, query)};
}

/// The distances key - query that masks let through, lo > hi if none; a mask over lists of ids is taken at its ends.
template <class Pack>
interval visible_distances(const Pack& pack, const call& c) {
  interval all{interval::highest, interval::lowest};
  for (std::int64_t b = 0; b < c.batch && c.keys > 0; ++b) {
    interval keys{c.key_positions(b, 0), c.key_positions(b, c.keys - 1)};
    if (!c.key_positions.contiguous())
      for (std::int64_t j = 0; j < c.keys; ++j)
        keys = {std::min(keys.lo, c.key_positions(b, j)), std::max(keys.hi, c.key_positions(b, j))};
    for (std::int64_t n = 0; n < c.queries * c.heads; ++n) {  // a mask may go by the head
      const row r = row_of(c, b, n % c.heads, n / c.heads);
      const interval_list seen = positions_allowed(pack, r);
      interval_list indices({0, c.keys});
      allow_by_index(pack, r, indices);
      if (seen.size() == 0 || indices.size() == 0) continue;
      interval cut{std::max(keys.lo, seen[0].lo), std::min(keys.hi, seen[seen.size() - 1].hi - 1)};
      if (c.key_positions.contiguous()) {
        const std::int64_t first = c.key_positions.first(b);
        cut = {std::max(cut.lo, first + indices[0].lo), std::min(cut.hi, first + indices[indices.size() - 1].hi - 1)};
      }
      if (cut.lo > cut.hi) continue;
      all = {std::min(all.lo, position_difference(cut.lo, r.query_position)),
             std::max(all.hi, position_difference(cut.hi, r.query_position))};
    }
  }
  return all;
}

/// Asks every part whether it fits the call.
template <class Policy>
void check_policy(const char* function, const Policy& p, const call& c) {
  const auto check_part = [&]<class P>(const P& part) {
    static_assert(
        !rotates_outside_only<P>,
        "posenc: this part rotates keys by `rotate` but has no transform_q, so queries would stay unrotated; a "
        "policy holds `rope`, not a table of it");
    if constexpr (requires { part.check(c); }) part.check(c);
    if constexpr (requires(const interval& v) { part.check_distances(v); }) {
      const interval seen = visible_distances(as_references(p), c);
      if (seen.lo <= seen.hi) part.check_distances(seen);
    }
    if constexpr (requires {
                    { part.heads() } -> std::convertible_to<std::int64_t>;
                  })
      require(part.heads() == c.heads, function, "the heads of an encoder of the policy", "must equal those of q",
              part.heads());
  };
  const int axes = std::max(c.query_positions.axis_count(), c.key_positions.axis_count());
  bool several = false;
  bool by_position = false;
  bool ordered = false;
  const auto takes_axes = [&]<class P>(const P&) {
    constexpr bool takes = requires { P::several_axes; };
    several = several || takes;
    by_position = by_position || (has_allow_positions<P> && !takes);
    ordered = ordered || requires { P::orders_tokens; };
  };
  if constexpr (is_policy<Policy>::value) {
    for_parts(p.parts, check_part);
    for_parts(p.parts, takes_axes);
  } else {
    check_part(p);
    takes_axes(p);
  }
  require(axes == 1 || several, function, "positions", "must have one axis: no part of the policy takes several", axes);
  // The tokens of an image share their first coordinate and would see each other.
  require(axes == 1 || !by_position || ordered, function, "positions",
          "must have one axis where a mask goes by position, unless causal_by_index orders the tokens", axes);
}

template <class C>
void check_lse(const char* function, const view<C>& lse, const call& c) {
  if (!lse.data()) return;
  require(lse.extents() == shape{c.batch, c.queries, c.heads, 1}, function, "lse",
          "must have the shape [batch, query, head, 1]", lse.dim());
  check_output(lse, function, "lse");
}

/// What beside out is written to lies apart from what is read.
template <class W, class Q, class K, class V, class O>
void check_written(const char* function, const char* name, const view<W>& written, const view<Q>& q, const K& k,
                   const V& v, const view<O>& out) {
  if (!written.data() || written.empty()) return;
  const auto apart = [&](const auto& other) { return other.empty() || separate(other, written); };
  require(apart(q) && apart(k) && apart(v) && apart(out), function, name, "must not overlap q, k, v or out",
          "overlapping memory");
}

template <class O, class C>
void check_visible_keys(const char* function, const view<const std::int64_t>& visible, const view<O>& out,
                        const view<C>& lse, const call& c) {
  if (!visible.data() || visible.empty()) return;
  require(visible.extents() == shape{c.batch, c.queries, c.heads, 1}, function, "visible_keys",
          "must have the shape [batch, query, head, 1]", visible.dim());
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t t = 0; t < c.queries; ++t)
      for (std::int64_t h = 0; h < c.heads; ++h)
        require(visible(b, t, h, 0) >= 0, function, "visible_keys", "must not be negative", visible(b, t, h, 0));
  require((out.empty() || separate(visible, out)) && (!lse.data() || lse.empty() || separate(visible, lse)), function,
          "visible_keys", "must not overlap out or lse", "overlapping memory");
}

inline void check_scale(const char* function, const std::optional<double>& scale) {
  require(!scale || std::isfinite(*scale), function, "scale", "must be finite", scale.value_or(0));
}
inline double scale_of(const std::optional<double>& scale, std::int64_t dim) {
  return scale.value_or(dim > 0 ? 1 / std::sqrt(static_cast<double>(dim)) : 1.0);
}

/// The product of every query scale of the pack.
template <class Pack>
double pack_query_scale(const Pack& pack, std::int64_t head, const position& at, std::int64_t visible) {
  double product = 1;
  for_parts(pack, [&]<class P>(const P& part) {
    if constexpr (has_query_scale<P>) product *= static_cast<double>(part.query_scale(head, at, visible));
  });
  return product;
}

template <class Pack, class C>
void transform_query(const Pack& pack, C* x, std::int64_t dim, const position& at, std::int64_t head) {
  for_parts(pack, [&]<class P>(const P& part) {
    if constexpr (has_transform_q<P, C>) part.transform_q(x, dim, at, head);
  });
}
template <class Pack, class C>
void transform_key(const Pack& pack, C* x, std::int64_t dim, const position& at, std::int64_t kv_head) {
  for_parts(pack, [&]<class P>(const P& part) {
    if constexpr (has_transform_k<P, C>) part.transform_k(x, dim, at, kv_head);
  });
}

}  // namespace detail
}  // namespace posenc
