// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/shaw.hpp>

#include "reference/content_attention.hpp"
#include "unit/attention/tensors.hpp"

#include <algorithm>

namespace {

using namespace posenc_test;
using dense::extent;

struct setting {
  extent left, right, tables, heads, kv_heads, queries, keys, first_query, first_key, dim, value_dim;
  posenc::relative_beyond beyond;
  bool values;
};

template <class C>
void check(const setting& s, bool listed, bool causal) {
  std::mt19937 random(7);
  auto q = random_stored<C>(random, {1, s.queries, s.heads, s.dim});
  auto k = random_stored<C>(random, {1, s.keys, s.kv_heads, s.dim});
  auto v = random_stored<C>(random, {1, s.keys, s.kv_heads, s.value_dim});
  const extent rows = s.left + s.right + 1;
  auto key_table = random_stored<C>(random, {s.tables, rows, 1, s.dim});
  auto value_table = random_stored<C>(random, {s.tables, rows, 1, s.value_dim});
  const posenc::shaw<C> encoder({.head_dim = s.dim,
                                 .value_dim = s.value_dim,
                                 .left = s.left,
                                 .right = s.right,
                                 .out_of_range = s.beyond,
                                 .tables = s.tables},
                                key_table.data, s.values ? std::span<const C>(value_table.data) : std::span<const C>());
  std::vector<std::int64_t> ids(static_cast<std::size_t>(s.keys));
  for (extent j = 0; j < s.keys; ++j)
    ids[static_cast<std::size_t>(j)] = s.first_key + (listed ? (j * 7) % s.keys : j);  // 7 is coprime to the sizes
  dense::content_problem p;
  p.base = {.q = to_dense(q), .k = to_dense(k), .v = to_dense(v), .scale = 0.3};
  const auto row_of = [&](extent i, extent j) -> extent {
    const extent d = ids[static_cast<std::size_t>(j)] - (s.first_query + i);
    if (s.beyond == posenc::relative_beyond::zero && (d < -s.left || d > s.right)) return -1;
    return std::clamp(d, -s.left, s.right) + s.left;
  };
  p.key_vector = [&](extent, extent h, extent i, extent j, extent d) {
    const extent r = row_of(i, j);
    return r < 0 ? 0.0
                 : static_cast<double>(
                       key_table.data[static_cast<std::size_t>(((s.tables == 1 ? 0 : h) * rows + r) * s.dim + d)]);
  };
  if (s.values)
    p.value_vector = [&](extent, extent h, extent i, extent j, extent d) {
      const extent r = row_of(i, j);
      return r < 0 ? 0.0
                   : static_cast<double>(
                         value_table
                             .data[static_cast<std::size_t>(((s.tables == 1 ? 0 : h) * rows + r) * s.value_dim + d)]);
    };
  if (causal)
    p.base.visible = [&](extent, extent, extent i, extent j) {
      return ids[static_cast<std::size_t>(j)] <= s.first_query + i;
    };
  const dense::answer expected = dense::content_attention(p);
  stored<C> out({1, s.queries, s.heads, s.value_dim}, 5);
  stored<C> lse({1, s.queries, s.heads, 1}, 5);
  const auto keys_at = listed ? posenc::positions::listed(ids) : posenc::positions::from(s.first_key);
  const auto policy = posenc::compose(encoder, posenc::run_time_policy<>{.masks = {.causal = causal}});
  posenc::attention(q.view(), k.view(), v.view(), out.view(), policy,
                    {.query_positions = posenc::positions::from(s.first_query),
                     .key_positions = keys_at,
                     .scale = 0.3,
                     .lse = lse.view()});
  const double bound = std::same_as<C, float> ? 2e-6 : 1e-13;
  INFO("queries " << s.queries << " keys " << s.keys << " left " << s.left << " right " << s.right << " tables "
                  << s.tables << " listed " << listed << " causal " << causal);
  CHECK(relative_error(out.data, expected.out.data) <= bound);
  CHECK(relative_error(lse.data, expected.lse.data) <= bound);
  stored<C> plain({1, s.queries, s.heads, s.value_dim}, 5);
  posenc::attention_reference(
      q.view(), k.view(), v.view(), plain.view(), policy,
      {.query_positions = posenc::positions::from(s.first_query), .key_positions = keys_at, .scale = 0.3});
  CHECK(relative_error(plain.data, expected.out.data) <= bound);
}

}  // namespace

TEMPLATE_TEST_CASE("Shaw's keys and values are those of the definition", "", float, double) {
  using posenc::relative_beyond;
  for (const bool listed : {false, true})
    for (const bool causal : {false, true})
      for (const setting& s : {
               setting{16, 16, 1, 2, 1, 150, 150, 0, 0, 24, 20, relative_beyond::clip, true},
               setting{4, 3, 2, 2, 1, 131, 137, -3, -9, 16, 16, relative_beyond::zero, true},
               setting{200, 200, 4, 4, 2, 97, 261, 100, 0, 10, 10, relative_beyond::clip, false},
               setting{64, 8, 1, 4, 2, 1, 300, 299, 0, 12, 12, relative_beyond::clip, true},
               setting{5, 0, 3, 3, 3, 7, 9, 2, 0, 3, 5, relative_beyond::zero, true},
               setting{0, 0, 1, 1, 1, 20, 20, 0, 0, 8, 8, relative_beyond::clip, true},
           })
        check<TestType>(s, listed, causal);
}
