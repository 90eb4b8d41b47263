// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/ragged.hpp>

#include <posenc/attention/masks.hpp>
#include <posenc/core/parallel_threads.hpp>
#include <posenc/encoders/alibi.hpp>

#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "support/tolerance.hpp"
#include "unit/attention/tensors.hpp"

#include <array>

namespace {

using namespace posenc_test;

constexpr std::int64_t heads = 4, kv_heads = 2, dim = 20, value_dim = 12;

// A long sequence, a single token, one without queries, decode, one without keys, one of several tiles.
const std::vector<std::int64_t> queries{0, 40, 41, 41, 42, 47, 77};
const std::vector<std::int64_t> keys{0, 40, 41, 60, 260, 260, 600};
const std::vector<std::int64_t> query_firsts{0, 0, 5, 199, 3, 310};
const std::vector<std::int64_t> key_firsts{0, 0, 0, 0, 0, -10};

auto policy() { return posenc::compose(posenc::alibi<float>(heads), posenc::causal{}); }

struct tensors {
  stored<float> q, k, v;
  tensors() {
    std::mt19937 random(5);
    q = random_stored<float>(random, {1, queries.back(), heads, dim});
    k = random_stored<float>(random, {1, keys.back(), kv_heads, dim});
    v = random_stored<float>(random, {1, keys.back(), kv_heads, value_dim});
  }
};

/// One call per sequence, on copies of its own.
void separately(const tensors& all, stored<float>& out, stored<float>& lse, bool with_firsts) {
  const auto part = [](const stored<float>& x, std::int64_t first, std::int64_t last) {
    posenc::shape s = x.extents;
    s.tokens = last - first;
    stored<float> y(s);
    std::copy_n(x.data.begin() + first * s.heads * s.dim, s.elements(), y.data.begin());
    return y;
  };
  for (std::size_t s = 0; s + 1 < queries.size(); ++s) {
    auto q = part(all.q, queries[s], queries[s + 1]);
    auto k = part(all.k, keys[s], keys[s + 1]);
    auto v = part(all.v, keys[s], keys[s + 1]);
    auto o = part(out, queries[s], queries[s + 1]);
    auto l = part(lse, queries[s], queries[s + 1]);
    posenc::attention(q.view(), k.view(), v.view(), o.view(), policy(),
                      {.query_positions = posenc::positions::from(with_firsts ? query_firsts[s] : 0),
                       .key_positions = posenc::positions::from(with_firsts ? key_firsts[s] : 0),
                       .lse = l.view()});
    std::copy(o.data.begin(), o.data.end(), out.data.begin() + queries[s] * heads * value_dim);
    std::copy(l.data.begin(), l.data.end(), lse.data.begin() + queries[s] * heads);
  }
}

bool same(const stored<float>& a, const stored<float>& b) {
  return a.data.size() == b.data.size() && same_bits(a.data.data(), b.data.data(), a.data.size());
}

}  // namespace

TEST_CASE("ragged: packed sequences have the bits of separate calls") {
  tensors all;
  stored<float> expected({1, queries.back(), heads, value_dim}, 7), expected_lse({1, queries.back(), heads, 1}, 7);
  stored<float> out = expected, lse = expected_lse;

  SECTION("with first positions, lengths in int64") {
    separately(all, expected, expected_lse, true);
    posenc::attention_ragged(all.q.view(), all.k.view(), all.v.view(), out.view(), policy(), queries, keys,
                             {.query_firsts = query_firsts, .key_firsts = key_firsts, .lse = lse.view()});
    CHECK(same(out, expected));
    CHECK(same(lse, expected_lse));
    // The row without keys.
    CHECK(lse(0, 42, 0, 0) == -inf_f);
    CHECK(out(0, 42, 0, 0) == 0);
    // Decode sees all of its 200 keys: the first weighs in.
    CHECK(lse(0, 41, 3, 0) > 3);
  }
  SECTION("from 0, lengths in int32: nothing is concluded from the lengths") {
    separately(all, expected, expected_lse, false);
    const std::vector<std::int32_t> queries32(queries.begin(), queries.end()), keys32(keys.begin(), keys.end());
    posenc::attention_ragged(all.q.view(), all.k.view(), all.v.view(), out.view(), policy(), queries32, keys32,
                             {.lse = lse.view()});
    CHECK(same(out, expected));
    CHECK(same(lse, expected_lse));
    // The query of the decode stands at 0 and sees the first of its keys alone.
    for (std::int64_t d = 0; d < value_dim; ++d) CHECK(out(0, 41, 0, d) == Approx(all.v(0, 60, 0, d)).epsilon(1e-6));
  }
  SECTION("on threads, in a workspace of the caller's, and no byte more") {
    separately(all, expected, expected_lse, true);
    posenc::thread_executor threads(3);
    const posenc::ragged_options<float> options{
        .query_firsts = query_firsts, .key_firsts = key_firsts, .lse = lse.view()};
    const std::size_t bytes = posenc::attention_ragged_workspace(all.q.view(), all.k.view(), all.v.view(), out.view(),
                                                                 policy(), queries, keys, options, 3);
    guarded<std::byte> workspace(bytes, 3);
    auto given = options;
    given.workspace = {workspace.data(), bytes};
    posenc::attention_ragged(all.q.view(), all.k.view(), all.v.view(), out.view(), policy(), queries, keys, given,
                             threads);
    CHECK(workspace.intact());
    CHECK(same(out, expected));
    CHECK(same(lse, expected_lse));
    given.workspace = {workspace.data(), bytes - 1};
    CHECK_THROWS_AS(posenc::attention_ragged(all.q.view(), all.k.view(), all.v.view(), out.view(), policy(), queries,
                                             keys, given, threads),
                    std::invalid_argument);
  }
}

TEST_CASE("ragged: sequences do not see each other") {
  tensors all;
  stored<float> out({1, queries.back(), heads, value_dim}), other = out;
  const posenc::ragged_options<float> options{.query_firsts = query_firsts, .key_firsts = key_firsts};
  posenc::attention_ragged(all.q.view(), all.k.view(), all.v.view(), out.view(), policy(), queries, keys, options);
  // NaN in the keys and values of the first sequence and of the one that nobody asks about.
  for (const auto& [first, last] : {std::array<std::int64_t, 2>{0, 40}, {41, 60}})
    for (std::int64_t t = first; t < last; ++t)
      for (std::int64_t d = 0; d < value_dim; ++d) all.k(0, t, 0, d) = all.v(0, t, 1, d) = nan_f;
  posenc::attention_ragged(all.q.view(), all.k.view(), all.v.view(), other.view(), policy(), queries, keys, options);
  const std::size_t kept = 40 * heads * value_dim;
  CHECK(std::isnan(other.data[0]));
  CHECK(same_bits(out.data.data() + kept, other.data.data() + kept, out.data.size() - kept));
}

TEST_CASE("ragged: no sequences, and sequences of nothing") {
  stored<float> none({1, 0, heads, dim}), out({1, 0, heads, dim}), some({1, 3, kv_heads, dim});
  const std::vector<std::int64_t> zero{0}, zeros{0, 0, 0}, three{0, 1, 3};
  posenc::attention_ragged(none.view(), none.view(), none.view(), out.view(), policy(), zero, zero);
  posenc::attention_ragged(none.view(), some.view(), some.view(), out.view(), policy(), zeros, three);
  CHECK(posenc::attention_ragged_workspace(none.view(), some.view(), some.view(), out.view(), policy(), zeros, three) ==
        0);
  // No key in any sequence.
  stored<float> q({1, 3, heads, dim}, 1), result({1, 3, heads, dim}, 7);
  stored<float> no_keys({1, 0, kv_heads, dim});
  posenc::attention_ragged(q.view(), no_keys.view(), no_keys.view(), result.view(), policy(), three, zeros);
  CHECK(result.data == std::vector<float>(result.data.size(), 0));
}

TEST_CASE("ragged: what does not fit is refused before anything is written") {
  tensors all;
  stored<float> out({1, queries.back(), heads, value_dim}, 7);
  const auto refused = [&](const std::vector<std::int64_t>& cu_q, const std::vector<std::int64_t>& cu_k,
                           const posenc::ragged_options<float>& options, const std::string& text) {
    CHECK_THROWS_WITH(
        posenc::attention_ragged(all.q.view(), all.k.view(), all.v.view(), out.view(), policy(), cu_q, cu_k, options),
        "posenc::attention_ragged: " + text);
    CHECK(out.data == std::vector<float>(out.data.size(), 7));
  };
  refused({}, keys, {}, "cu_queries must list 0 and the end of each sequence, got an empty list");
  refused({1, 77}, {0, 600}, {}, "cu_queries must start with 0, got 1");
  refused({0, 50, 40, 77}, {0, 1, 2, 600}, {}, "cu_queries must not descend, got 40");
  refused({0, 76}, {0, 600}, {}, "cu_queries must end with the number of tokens, got 76");
  refused({0, 77}, {0, 601}, {}, "cu_keys must end with the number of tokens, got 601");
  refused({0, 77}, {0, 6, 600}, {}, "cu_keys must list as many sequences as cu_queries, got 2");
  const std::vector<std::int64_t> two{0, 1};
  refused(queries, keys, {.query_firsts = two}, "query_firsts must list one position per sequence, got 2");
  refused(queries, keys, {.key_firsts = two}, "key_firsts must list one position per sequence, got 2");
  refused(queries, keys, {.scale = NAN}, "scale must be finite, got nan");
  stored<float> lse({1, queries.back() - 1, heads, 1});
  refused(queries, keys, {.lse = lse.view()}, "lse must have the shape [batch, query, head, 1], got 1");
  // The last sequence alone is at fault; the ones before are not written.
  auto firsts = query_firsts;
  firsts.back() = std::numeric_limits<std::int64_t>::max() - 3;
  refused(queries, keys, {.query_firsts = firsts},
          "query_positions must leave room for the tokens below 2^63, first at, got 9223372036854775804");

  stored<float> two_rows({2, 5, heads, dim});
  CHECK_THROWS_WITH(
      posenc::attention_ragged(two_rows.view(), two_rows.view(), two_rows.view(), two_rows.view(), policy(),
                               std::vector<std::int64_t>{0, 5}, std::vector<std::int64_t>{0, 5}),
      "posenc::attention_ragged: q batch must be 1: sequences lie one after the other, got 2");
}
