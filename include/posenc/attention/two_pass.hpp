// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Attention in two passes over a row, for policies to which no logit is final before the others are known (a part with
/// `transform_logits`, such as cope). The first pass makes every logit of a row and takes it through the pack in order,
/// a part that needs the whole row getting it at its place; the second is softmax and values.
///   out(i) = sum_j softmax_j(op_i(scale * q(i).k)_j) v(j)
/// Shapes, rules for masks, sinks, empty rows, key states and positions, options and what is thrown: those of
/// `attention`, whose worker this is with one tile of all keys. Any policy is taken; one that `attention` takes gives
/// the same result here up to the order of its sums.
/// Cost     the products of `attention`; every tile outside a block's rows is skipped, but the keys of a block are
///          packed as one. Memory: a worker holds up to 48 rows of logits and, from 12 rows on, its keys and values:
///          keys * (48 + dim + value dim) elements. Results are bitwise the same for every executor.
/// Example  examples/cope_example.cpp

#include <posenc/attention/attention.hpp>

namespace posenc {

/// Bytes of workspace that the same call of `attention_two_pass` takes on an executor of `workers` workers.
template <class Q, token_rows K, token_rows V, class O, class Policy, class Arch = simd::default_arch>
[[nodiscard]] std::size_t attention_two_pass_workspace(
    view<Q> q, K k, V v, view<O> out, const Policy& policy,
    const std::type_identity_t<attention_options<detail::attention_compute_t<Q, K, V, O>>>& options = {},
    std::int64_t workers = 1) {
  const char* function = "attention_two_pass_workspace";
  const call c = detail::checked_call(function, q, k, v, out, options.query_positions, options.key_positions);
  detail::require(workers >= 1, function, "workers", "must be at least 1", workers);
  return detail::workspace_bytes<detail::attention_compute_t<Q, K, V, O>, Arch, true>(policy, c, workers);
}

/// See the file comment.
template <class Q, token_rows K, token_rows V, class O, class Policy, class Executor = serial_executor,
          class Arch = simd::default_arch>
  requires simd_storage<Q> && simd_storage<typename K::value_type> && simd_storage<typename V::value_type> &&
      simd_storage<O>
void attention_two_pass(
    view<Q> q, K k, V v, view<O> out, const Policy& policy,
    const std::type_identity_t<attention_options<detail::attention_compute_t<Q, K, V, O>>>& options = {},
    Executor&& executor = {}) {
  detail::attend<Arch, true>("attention_two_pass", q, k, v, out, policy, options, executor);
}

}  // namespace posenc
