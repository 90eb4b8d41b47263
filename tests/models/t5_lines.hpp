// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// T5 with any biases in place of its own, for the tests of T5 models: each of its three kinds of attention gets a bias
/// that is a function of head and distance.

#include "t5_reverse/t5.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/toeplitz.hpp>

#include <functional>

namespace posenc_test {

using posenc::models::stack;
using posenc_examples::t5;

/// (head, key - query) -> bias.
using bias_function = std::function<double(std::int64_t, std::int64_t)>;
using line_policy = posenc::run_time_policy<posenc::toeplitz<double>>;
using line_policies = posenc_examples::attention_policies<line_policy, line_policy, line_policy>;

/// No distance of these tests is longer.
inline constexpr std::int64_t longest = 64;

inline double none(std::int64_t, std::int64_t) { return 0; }

/// The table of a side through buckets that may be those of other options.
inline bias_function bucketed(const t5<double>& m, stack table, const posenc::relative_bucket_options& o) {
  const auto values = m.table(table);
  return [values, heads = o.heads, buckets = posenc::math::t5_buckets(o.num_buckets, o.max_distance, o.bidirectional)](
             std::int64_t h, std::int64_t relative) {
    return values[static_cast<std::size_t>(buckets(relative) * heads + h)];
  };
}
inline bias_function own(const t5<double>& m, stack side) { return bucketed(m, side, m.options(side)); }
/// `bias` at another distance.
inline bias_function at_distance(bias_function bias, std::int64_t (*of)(std::int64_t)) {
  return [bias = std::move(bias), of](std::int64_t h, std::int64_t relative) { return bias(h, of(relative)); };
}
inline std::int64_t turned(std::int64_t relative) { return -relative; }
inline std::int64_t one_further(std::int64_t relative) { return relative + (relative > 0) - (relative < 0); }

inline line_policies with_biases(const t5<double>& m, const bias_function& encoder, const bias_function& decoder,
                                 const bias_function& cross = none) {
  const auto policy = [&](const bias_function& f, bool causal) {
    return line_policy{.bias = posenc::toeplitz<double>(m.net().heads, longest, f), .masks = {.causal = causal}};
  };
  return {policy(encoder, false), policy(decoder, true), policy(cross, false)};
}

/// The memory of a source, and the logits of every step of a target.
template <class T>
struct t5_outputs {
  posenc_examples::matrix<T> memory;
  posenc_examples::matrix<T> logits;
  template <class Policies>
  t5_outputs(const t5<T>& m, const posenc_examples::token_ids& source, const posenc_examples::token_ids& target,
             const Policies& policies, const posenc::positions& at = {})
      : memory(m.encode(source, policies.encoder, at)) {
    auto remembered = m.net().remember(memory);
    auto cache = m.net().make_cache(static_cast<std::int64_t>(target.size()));
    logits = m.decode(target, policies, remembered, cache, at, at);
  }
};

/// The largest difference of logits between targets cut into pieces of n tokens, and whole.
template <class T, class Policies>
double largest_cached_difference(const t5<T>& m, const posenc_examples::token_ids& source,
                                 const posenc_examples::token_ids& target, const Policies& policies, std::size_t n) {
  const t5_outputs<T> whole(m, source, target, policies);
  auto remembered = m.net().remember(whole.memory);
  auto cache = m.net().make_cache(static_cast<std::int64_t>(target.size()));
  double worst = 0;
  for (std::size_t t = 0; t < target.size(); t += n) {
    const auto piece = std::span(target).subspan(t, std::min(n, target.size() - t));
    const auto step = m.decode(piece, policies, remembered, cache, posenc::positions::from(cache.size()));
    worst = std::max(worst, posenc_examples::largest_difference(
                                step, whole.logits.middleRows(static_cast<Eigen::Index>(t), step.rows())));
  }
  return worst;
}

/// A bias [head, query, key] of n tokens, one row per head and query.
inline posenc_examples::matrix<double> dense(const t5<double>& m, stack side, std::int64_t n) {
  posenc_examples::matrix<double> b(m.net().heads * n, n);
  posenc::fill_bias<double>(m.bias(side), m.net().heads, {}, n, {}, n,
                            std::span(b.data(), static_cast<std::size_t>(b.size())));
  return b;
}

}  // namespace posenc_test
