// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The logit transforms of a policy on their own: for tests, pictures, and engines with an attention of their own.
///   fill_bias       out[h][i][j] = op(0): a materialised bias [heads, queries, keys]
///   add_bias_row    logits[j] = op(logits[j]) for one head and one query, on SIMD lanes, nothing materialised
///   distance_line   the bias at key - query = first .. first + n - 1 of one head
/// Masks take no part. Throws std::invalid_argument for sizes that do not fit and for heads that an encoder lacks.

#include <posenc/attention/compose.hpp>
#include <posenc/simd/loop.hpp>

#include <span>
#include <vector>

namespace posenc {

namespace detail {
/// Refuses a policy of which some part has fewer heads than are asked for.
template <class Policy>
void check_bias_heads(const char* function, const Policy& policy, std::int64_t heads) {
  require(heads >= 0, function, "head", "must not be negative", heads - 1);
  const auto check_part = [&]<class P>(const P& part) {
    if constexpr (requires {
                    { part.heads() } -> std::convertible_to<std::int64_t>;
                  })
      require(part.heads() >= heads, function, "the heads of an encoder of the policy",
              "must reach the head that is asked for", part.heads());
  };
  if constexpr (is_policy<Policy>::value) {
    for_parts(policy.parts, check_part);
  } else {
    check_part(policy);
  }
}
}  // namespace detail

namespace detail {
/// Asks the parts that transform logits whether they fit the call; masks and rotations take no part here.
template <class T, class Policy>
void check_logit_parts(const Policy& policy, const call& c) {
  const auto check_part = [&]<class P>(const P& part) {
    if constexpr ((has_row<P, T, listed_keys> || has_bind<P>)&&!has_transform_q<P, T> && requires { part.check(c); })
      part.check(c);
  };
  if constexpr (is_policy<Policy>::value) {
    for_parts(policy.parts, check_part);
  } else {
    check_part(policy);
  }
}
}  // namespace detail

/// Any scalar.
template <class T, class Policy>
void fill_bias(const Policy& policy, std::int64_t heads, const positions& query_at, std::int64_t queries,
               const positions& key_at, std::int64_t keys, std::span<T> out) {
  detail::require(
      heads >= 0 && queries >= 0 && keys >= 0 && static_cast<std::int64_t>(out.size()) == heads * queries * keys,
      "fill_bias", "out", "must hold heads * queries * keys values", out.size());
  detail::check_bias_heads("fill_bias", policy, heads);
  query_at.check("fill_bias", "query_positions", 1, queries);
  key_at.check("fill_bias", "key_positions", 1, keys);
  const call c{.batch = 1,
               .heads = heads,
               .kv_heads = heads,
               .queries = queries,
               .keys = keys,
               .dim = 0,
               .value_dim = 0,
               .query_positions = query_at,
               .key_positions = key_at};
  detail::check_logit_parts<T>(policy, c);
  std::vector<std::byte> memory(detail::bound_bytes(policy, c) + 64);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
  const auto pack = detail::bind_policy<void>(policy, aligned, c);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(keys + lane_slack));
  for (std::int64_t j = 0; j < keys; ++j) ids[static_cast<std::size_t>(j)] = key_at(0, j);
  const listed_keys where{ids.data()};
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < queries; ++i) {
      const row r{.batch = 0, .head = h, .kv_head = h, .query_index = i, .query_position = query_at(0, i)};
      const auto op = detail::make_logit_op<T>(pack, r, where);
      for (std::int64_t j = 0; j < keys; ++j) out[static_cast<std::size_t>((h * queries + i) * keys + j)] = op(T(0), j);
    }
}

/// float or double logits of `logits.size()` contiguous keys from position `first_key` on.
template <simd_scalar C, class Policy, class Arch = simd::default_arch>
void add_bias_row(const Policy& policy, const row& r, std::int64_t first_key, std::span<C> logits) {
  detail::require(r.head >= 0 && r.kv_head >= 0 && r.query_index >= 0, "add_bias_row", "row",
                  "must not hold a negative index, head", r.head);
  detail::check_bias_heads("add_bias_row", policy, r.head + 1);
  const auto n = static_cast<std::int64_t>(logits.size());
  const call c{.batch = 1,
               .heads = r.head + 1,
               .kv_heads = r.kv_head + 1,
               .queries = r.query_index + 1,
               .keys = n,
               .dim = 0,
               .value_dim = 0,
               .query_positions = positions::from(r.query_position - r.query_index),
               .key_positions = positions::from(first_key)};
  const std::size_t bytes = detail::bound_bytes(policy, c);
  std::vector<std::byte> memory(bytes == 0 ? 0 : bytes + 64);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
  const auto pack = detail::bind_policy<Arch>(policy, aligned, c);
  const contiguous_keys keys{first_key};
  const auto op = detail::make_logit_op<simd::batch<C, Arch>>(pack, r, keys);
  simd::for_lanes<Arch, C>(n, [&](std::int64_t j, auto at) POSENC_LAMBDA_INLINE {
    at.store(logits.data() + j, op(at.load(logits.data() + j), j));
  });
}

/// One head's values at the distances first .. first + out.size() - 1 of key from query, the query standing at 0.
template <class T, class Policy>
void distance_line(const Policy& policy, std::int64_t head, std::int64_t first, std::span<T> out) {
  detail::require(head >= 0, "distance_line", "head", "must not be negative", head);
  detail::check_bias_heads("distance_line", policy, head + 1);
  const contiguous_keys keys{first};
  const row r{.batch = 0, .head = head, .kv_head = head, .query_index = 0, .query_position = 0};
  const call c{.batch = 1,
               .heads = head + 1,
               .kv_heads = head + 1,
               .queries = 1,
               .keys = static_cast<std::int64_t>(out.size()),
               .dim = 0,
               .value_dim = 0,
               .query_positions = positions::from(0),
               .key_positions = positions::from(first)};
  std::vector<std::byte> memory(detail::bound_bytes(policy, c) + 64);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
  const auto pack = detail::bind_policy<void>(policy, aligned, c);
  const auto op = detail::make_logit_op<T>(pack, r, keys);
  for (std::size_t j = 0; j < out.size(); ++j) out[j] = op(T(0), static_cast<std::int64_t>(j));
}

}  // namespace posenc
