// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Attention over sequences of different lengths that lie one after the other, without padding:
///   out[cu_queries[s] .. cu_queries[s + 1]) = attention of those queries over k, v[cu_keys[s] .. cu_keys[s + 1])
/// Shapes   q, out [1, all queries, head, dim], k, v [1, all keys, kv_head, dim]. cu_queries and cu_keys list int32 or
///          int64: 0, then the end of each sequence, never less than the one before; the last is the number of tokens.
///          Sequences of no queries or no keys are allowed.
/// Positions  sequence s stands at query_firsts[s], query_firsts[s] + 1, ..., its keys at key_firsts[s], ...; each from
///          0 where not given. Nothing is concluded from the lengths: cached decode names its first queries.
/// Rules    those of attention.hpp, per sequence; a part that is asked about tokens by index (gates, tensors of masks)
///          counts within the sequence, and refuses the call if its length does not fit.
/// Error    bitwise that of one `attention` call per sequence, for every executor.
/// Cost     that of those calls, one after the other: each is split over the workers by itself. Memory: the workspace
///          of the largest.
/// Throws   std::invalid_argument for lengths that do not fit, and what attention.hpp refuses in any sequence, before
///          anything is written.
/// Example  examples/threads_example.cpp

#include <posenc/attention/attention.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace posenc {

/// The ends of packed sequences, 0 first. The list stays the caller's memory.
class sequence_ends {
 public:
  template <class List>
    requires std::convertible_to<const List&, std::span<const std::int64_t>>
  constexpr sequence_ends(const List& ends)  // NOLINT: a list of ends is what it is
      : wide_(std::span<const std::int64_t>(ends).data()), size_(std::span<const std::int64_t>(ends).size()) {}
  template <class List>
    requires std::convertible_to<const List&, std::span<const std::int32_t>>
  constexpr sequence_ends(const List& ends)  // NOLINT: the same
      : narrow_(std::span<const std::int32_t>(ends).data()), size_(std::span<const std::int32_t>(ends).size()) {}

  /// Sequences.
  [[nodiscard]] constexpr std::int64_t count() const noexcept { return static_cast<std::int64_t>(size_) - 1; }
  /// The first token of sequence s, and that of s + 1.
  [[nodiscard]] constexpr std::int64_t operator[](std::int64_t s) const noexcept {
    return wide_ ? wide_[s] : std::int64_t{narrow_[s]};
  }
  [[nodiscard]] constexpr std::int64_t length(std::int64_t s) const noexcept { return (*this)[s + 1] - (*this)[s]; }

  /// @throws std::invalid_argument unless 0 comes first, nothing descends, and `tokens` comes last.
  void check(const char* function, const char* name, std::int64_t tokens) const {
    detail::require(size_ >= 1, function, name, "must list 0 and the end of each sequence", "an empty list");
    detail::require((*this)[0] == 0, function, name, "must start with 0", (*this)[0]);
    for (std::int64_t s = 0; s < count(); ++s)
      detail::require((*this)[s] <= (*this)[s + 1], function, name, "must not descend", (*this)[s + 1]);
    detail::require((*this)[count()] == tokens, function, name, "must end with the number of tokens", (*this)[count()]);
  }

 private:
  const std::int64_t* wide_ = nullptr;
  const std::int32_t* narrow_ = nullptr;
  std::size_t size_ = 0;
};

/// C is the compute type, as in attention_options.
template <class C>
struct ragged_options {
  /// Position of the first query, and of the first key, of each sequence; empty: 0.
  std::span<const std::int64_t> query_firsts{};
  std::span<const std::int64_t> key_firsts{};
  /// Factor on q.k; 1 / sqrt(dim) unless given.
  std::optional<double> scale{};
  key_state keys = key_state::rotated;
  /// Receives the log-sum-exp of every row, [1, all queries, head, 1].
  view<C> lse{};
  /// At least `attention_ragged_workspace(...)` bytes; empty: the call allocates that much once and frees it.
  std::span<std::byte> workspace{};
};

namespace detail {

/// Tokens first .. first + n - 1.
template <class T>
view<T> tokens_of(const view<T>& x, std::int64_t first, std::int64_t n) {
  shape s = x.extents();
  s.tokens = n;
  return x.data() ? view<T>(n == 0 ? x.data() : x.row(0, first, 0), s, x.steps()) : view<T>(nullptr, s, x.steps());
}

/// Calls f(q, k, v, out, options) for each sequence with queries.
template <class Q, class K, class V, class O, class C, class F>
void for_sequences(const view<Q>& q, const view<K>& k, const view<V>& v, const view<O>& out,
                   const sequence_ends& cu_queries, const sequence_ends& cu_keys, const ragged_options<C>& options,
                   F&& f) {
  for (std::int64_t s = 0; s < cu_queries.count(); ++s) {
    const std::int64_t first = cu_queries[s];
    const std::int64_t n = cu_queries.length(s);
    if (n == 0) continue;
    const auto at = [s](std::span<const std::int64_t> firsts) {
      return positions::from(firsts.empty() ? 0 : firsts[static_cast<std::size_t>(s)]);
    };
    const attention_options<C> one{.query_positions = at(options.query_firsts),
                                   .key_positions = at(options.key_firsts),
                                   .scale = options.scale,
                                   .keys = options.keys,
                                   .lse = options.lse.data() ? tokens_of(options.lse, first, n) : view<C>{},
                                   .workspace = options.workspace};
    f(tokens_of(q, first, n), tokens_of(k, cu_keys[s], cu_keys.length(s)), tokens_of(v, cu_keys[s], cu_keys.length(s)),
      tokens_of(out, first, n), one);
  }
}

/// Checks the whole call and every sequence of it; the bytes of the largest.
template <class Arch, class Q, class K, class V, class O, class Policy, class C>
std::size_t ragged_bytes(const char* function, const view<Q>& q, const view<K>& k, const view<V>& v, const view<O>& out,
                         const Policy& policy, const sequence_ends& cu_queries, const sequence_ends& cu_keys,
                         const ragged_options<C>& options, std::int64_t workers) {
  require(q.batch() == 1, function, "q batch", "must be 1: sequences lie one after the other", q.batch());
  call whole = checked_call(function, q, k, v, out, {}, {});
  check_lse(function, options.lse, whole);
  check_written(function, "lse", options.lse, q, k, v, out);
  check_scale(function, options.scale);
  require(workers >= 1, function, "workers", "must be at least 1", workers);
  cu_queries.check(function, "cu_queries", q.tokens());
  cu_keys.check(function, "cu_keys", k.tokens());
  const std::int64_t count = cu_queries.count();
  require(cu_keys.count() == count, function, "cu_keys", "must list as many sequences as cu_queries", cu_keys.count());
  const auto check_firsts = [&](const char* name, std::span<const std::int64_t> firsts) {
    require(firsts.empty() || static_cast<std::int64_t>(firsts.size()) == count, function, name,
            "must list one position per sequence", firsts.size());
  };
  check_firsts("query_firsts", options.query_firsts);
  check_firsts("key_firsts", options.key_firsts);
  std::size_t bytes = 0;
  for_sequences(q, k, v, out, cu_queries, cu_keys, options,
                [&](auto q_s, auto k_s, auto v_s, auto out_s, const attention_options<C>& one) {
                  check_policy(function, policy,
                               checked_call(function, q_s, k_s, v_s, out_s, one.query_positions, one.key_positions));
                  bytes = std::max(bytes, attention_workspace<Q, view<K>, view<V>, O, Policy, Arch>(
                                              q_s, k_s, v_s, out_s, policy, one, workers));
                });
  return bytes;
}

}  // namespace detail

/// Bytes of workspace that the same call of `attention_ragged` takes on an executor of `workers` workers.
template <class Q, class K, class V, class O, class Policy, class Arch = simd::default_arch>
[[nodiscard]] std::size_t attention_ragged_workspace(
    view<Q> q, view<K> k, view<V> v, view<O> out, const Policy& policy, const sequence_ends& cu_queries,
    const sequence_ends& cu_keys,
    const std::type_identity_t<ragged_options<detail::attention_compute_t<Q, K, V, O>>>& options = {},
    std::int64_t workers = 1) {
  return detail::ragged_bytes<Arch>("attention_ragged_workspace", q, k, v, out, policy, cu_queries, cu_keys, options,
                                    workers);
}

/// See the file comment.
template <class Q, class K, class V, class O, class Policy, class Executor = serial_executor,
          class Arch = simd::default_arch>
  requires simd_storage<Q> && simd_storage<K> && simd_storage<V> && simd_storage<O>
void attention_ragged(view<Q> q, view<K> k, view<V> v, view<O> out, const Policy& policy,
                      const sequence_ends& cu_queries, const sequence_ends& cu_keys,
                      const std::type_identity_t<ragged_options<detail::attention_compute_t<Q, K, V, O>>>& options = {},
                      Executor&& executor = {}) {
  constexpr const char* function = "attention_ragged";
  const std::size_t bytes =
      detail::ragged_bytes<Arch>(function, q, k, v, out, policy, cu_queries, cu_keys, options, executor.concurrency());
  auto given = options;
  std::unique_ptr<std::byte[]> own;
  if (options.workspace.empty()) {
    own = std::make_unique_for_overwrite<std::byte[]>(bytes);
    given.workspace = {own.get(), bytes};
  } else if (options.workspace.size() < bytes) {
    detail::invalid(function, "workspace", "must hold attention_ragged_workspace(...) bytes, " + std::to_string(bytes),
                    options.workspace.size());
  }
  using C = detail::attention_compute_t<Q, K, V, O>;
  detail::for_sequences(q, k, v, out, cu_queries, cu_keys, given,
                        [&](auto q_s, auto k_s, auto v_s, auto out_s, const attention_options<C>& one) {
                          attention<Q, view<K>, view<V>, O, Policy, Executor&, Arch>(q_s, k_s, v_s, out_s, policy, one,
                                                                                     executor);
                        });
}

}  // namespace posenc
