// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// One case for encoders with content terms: random q, k, v, positions of every kind, the fused kernel and the
/// reference against the dense oracle.

#include <posenc/attention/attention.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/attention/run_time.hpp>

#include "reference/content_attention.hpp"
#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

#include <functional>
#include <vector>

namespace content_case {

using dense::extent;

struct sizes {
  extent heads = 2, kv_heads = 1, queries = 1, keys = 1, first_query = 0, first_key = 0, dim = 8, value_dim = 8;
};

/// Term of (head, query, key), before the scale, from raw q and k in double.
using term = std::function<double(extent h, extent i, extent j, const double* q, const double* k, extent distance)>;

/// Runs `part` on contiguous and on listed keys, causal and not.
template <class C, class Part>
void check(const sizes& s, const Part& part, const term& formula, double bound) {
  using namespace posenc_test;
  std::mt19937 random(11);
  auto q = random_stored<C>(random, {1, s.queries, s.heads, s.dim});
  auto k = random_stored<C>(random, {1, s.keys, s.kv_heads, s.dim});
  auto v = random_stored<C>(random, {1, s.keys, s.kv_heads, s.value_dim});
  for (const bool listed : {false, true})
    for (const bool causal : {false, true}) {
      std::vector<std::int64_t> ids(static_cast<std::size_t>(s.keys));
      for (extent j = 0; j < s.keys; ++j)
        ids[static_cast<std::size_t>(j)] = s.first_key + (listed ? s.keys - 1 - j : j);
      dense::problem p{.q = to_dense(q), .k = to_dense(k), .v = to_dense(v), .scale = 0.3};
      p.logit = [&](extent, extent h, extent i, extent j, double x) {
        const extent shared = h * s.kv_heads / s.heads;
        return x + 0.3 * formula(h, i, j, p.q.data.data() + p.q.at(0, i, h, 0),
                                 p.k.data.data() + p.k.at(0, j, shared, 0),
                                 ids[static_cast<std::size_t>(j)] - (s.first_query + i));
      };
      if (causal)
        p.visible = [&](extent, extent, extent i, extent j) {
          return ids[static_cast<std::size_t>(j)] <= s.first_query + i;
        };
      const dense::answer expected = dense::attention(p);
      const auto policy = posenc::compose(part, posenc::run_time_policy<>{.masks = {.causal = causal}});
      const auto keys_at = listed ? posenc::positions::listed(ids) : posenc::positions::from(s.first_key);
      const auto query_at = posenc::positions::from(s.first_query);
      stored<C> out({1, s.queries, s.heads, s.value_dim}, 5);
      stored<C> lse({1, s.queries, s.heads, 1}, 5);
      posenc::attention(q.view(), k.view(), v.view(), out.view(), policy,
                        {.query_positions = query_at, .key_positions = keys_at, .scale = 0.3, .lse = lse.view()});
      INFO("queries " << s.queries << " keys " << s.keys << " heads " << s.heads << " kv_heads " << s.kv_heads
                      << " listed " << listed << " causal " << causal);
      CHECK(relative_error(out.data, expected.out.data) <= bound);
      CHECK(relative_error(lse.data, expected.lse.data) <= bound);
      stored<C> plain({1, s.queries, s.heads, s.value_dim}, 5);
      posenc::attention_reference(q.view(), k.view(), v.view(), plain.view(), policy,
                                  {.query_positions = query_at, .key_positions = keys_at, .scale = 0.3});
      CHECK(relative_error(plain.data, expected.out.data) <= bound);
    }
}

}  // namespace content_case
