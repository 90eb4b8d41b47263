// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>
#include <posenc/attention/index_masks.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/alibi_asymmetric.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/rope.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

namespace {

using namespace posenc_test;
using posenc::shape;

struct shapes {
  shape q{1, 3, 4, 8};
  shape k{1, 5, 2, 8};
  shape v{1, 5, 2, 6};
  shape out{1, 3, 4, 6};
  shape lse{1, 3, 4, 1};
};

/// Runs a call that must be refused, fused and in the reference, and looks at every output afterwards.
template <class Policy = posenc::policy<>>
void refused(const shapes& s, const std::string& words, const Policy& policy = {},
             posenc::attention_options<float> options = {}) {
  stored<float> q(s.q);
  stored<float> k(s.k);
  stored<float> v(s.v);
  stored<float> out(s.out, 9);
  stored<float> lse(s.lse, 9);
  options.lse = lse.view();
  const auto fused = [&] { posenc::attention(q.view(), k.view(), v.view(), out.view(), policy, options); };
  const auto reference = [&] {
    posenc::attention_reference(
        q.view(), k.view(), v.view(), out.view(), policy,
        {.query_positions = options.query_positions, .key_positions = options.key_positions, .lse = lse.view()});
  };
  INFO(words);
  CHECK_THROWS_AS(fused(), std::invalid_argument);
  CHECK_THROWS_WITH(fused(), contains("posenc::attention: ") && contains(words));
  CHECK_THROWS_AS(reference(), std::invalid_argument);
  CHECK_THROWS_WITH(reference(), contains("posenc::attention_reference: ") && contains(words));
  for (const float x : out.data) CHECK(x == 9);
  for (const float x : lse.data) CHECK(x == 9);
}

}  // namespace

TEST_CASE("shapes that do not fit are refused by name, rule and value before anything is written") {
  shapes s;
  SECTION("batch of k") {
    s.k.batch = 2;
    refused(s, "k batch must equal that of q, got 2");
  }
  SECTION("batch of v") {
    s.v.batch = 3;
    refused(s, "v batch must equal that of q, got 3");
  }
  SECTION("tokens of v") {
    s.v.tokens = 4;
    refused(s, "v tokens must equal those of k, got 4");
  }
  SECTION("heads of v") {
    s.v.heads = 1;
    refused(s, "v heads must equal those of k, got 1");
  }
  SECTION("width of k") {
    s.k.dim = 7;
    refused(s, "k dim must equal that of q, got 7");
  }
  SECTION("head groups") {
    s.k.heads = s.v.heads = 3;
    refused(s, "q heads must be a multiple of the heads of k, got 4");
  }
  SECTION("more key heads than query heads") {
    s.k.heads = s.v.heads = 8;
    refused(s, "q heads must be a multiple of the heads of k, got 4");
  }
  SECTION("no key heads") {
    s.k.heads = s.v.heads = 0;
    refused(s, "q heads must be a multiple of the heads of k, got 4");
  }
  SECTION("rows of out") {
    s.out.tokens = 2;
    refused(s, "out must have the batch, tokens and heads of q");
  }
  SECTION("width of out") {
    s.out.dim = 8;
    refused(s, "out dim must equal that of v, got 8");
  }
  SECTION("shape of the log-sum-exp") {
    s.lse.dim = 2;
    refused(s, "lse must have the shape [batch, query, head, 1], got 2");
  }
}

TEST_CASE("positions that do not cover the call are refused") {
  const std::vector<std::int64_t> four(4);
  const std::vector<std::int64_t> two(2);
  refused({}, "query_positions must list one id per token, batch row and axis, got 4", {},
          posenc::attention_options<float>{.query_positions = posenc::positions::listed(four)});
  refused({}, "key_positions must list one id per token, batch row and axis, got 4", {},
          posenc::attention_options<float>{.key_positions = posenc::positions::listed(four)});
  refused({}, "key_positions must list one first position per batch row, got 2", {},
          posenc::attention_options<float>{.key_positions = posenc::positions::per_row(two)});
  refused({}, "query_positions must be listed for one batch row or for each of them, got 2", {},
          posenc::attention_options<float>{.query_positions = posenc::positions::listed(two, 2)});
}

TEST_CASE("a policy that does not fit the call is refused") {
  refused({}, "the heads of an encoder of the policy must equal those of q, got 3",
          posenc::compose(posenc::alibi<float>(3)));
  shapes s;
  const auto run = [&](const auto& policy) {
    stored<float> q(s.q);
    stored<float> k(s.k);
    stored<float> v(s.v);
    stored<float> out(s.out, 9);
    posenc::attention_reference(q.view(), k.view(), v.view(), out.view(), policy);
  };
  CHECK_THROWS_WITH(run(posenc::compose(posenc::rope<float>({.head_dim = 16}))),
                    contains("posenc::rope: the dim of queries and keys must equal head_dim, got 8"));
  CHECK_THROWS_WITH(run(posenc::logit_scale(std::vector<double>{1, 2})),
                    contains("posenc::logit_scale: per_head must list one factor per head, got 2"));
  CHECK_THROWS_WITH(run(posenc::sinks<float>(std::vector<float>{1, 2, 3})),
                    contains("posenc::sinks: per_head must list one sink per head, got 3"));
  CHECK_THROWS_WITH(run(posenc::query_temperature{.floor_scale = -1}),
                    contains("posenc::query_temperature: floor_scale must be positive, got -1"));
}

TEST_CASE("an output that repeats elements is refused") {
  stored<float> q({1, 3, 4, 8});
  stored<float> k({1, 5, 2, 8});
  std::vector<float> out(64, 9);
  const posenc::view<float> repeats(out.data(), {1, 3, 4, 8}, {.token = 0, .head = 8});
  const auto run = [&] { posenc::attention(q.view(), k.view(), k.view(), repeats, posenc::compose()); };
  CHECK_THROWS_WITH(run(), contains("posenc::attention: out must not repeat elements through a stride of 0"));
  stored<float> right({1, 3, 4, 8}, 9);
  const posenc::view<float> lse(out.data(), {1, 3, 4, 1}, {.token = 1, .head = 0});
  const auto other = [&] {
    posenc::attention(q.view(), k.view(), k.view(), right.view(), posenc::compose(), {.lse = lse});
  };
  CHECK_THROWS_WITH(other(), contains("posenc::attention: lse must not repeat elements"));
  for (const float x : out) CHECK(x == 9);
  for (const float x : right.data) CHECK(x == 9);
}

TEST_CASE("an output over the memory of k or v is refused, one that is q itself is not") {
  std::vector<float> memory(256, 1);
  const posenc::view<float> q(memory.data(), {1, 3, 4, 8});
  stored<float> k({1, 5, 2, 8}, 0.5);
  const auto run = [](posenc::view<float> a, posenc::view<float> b, posenc::view<float> c, posenc::view<float> out) {
    posenc::attention(a, b, c, out, posenc::compose());
  };
  const posenc::view<float> keys(memory.data() + 90, {1, 5, 2, 8});
  stored<float> query({1, 3, 4, 8}, 1);
  CHECK_THROWS_AS(run(query.view(), keys, k.view(), q), std::invalid_argument);
  CHECK_THROWS_AS(run(query.view(), k.view(), keys, q), std::invalid_argument);
  const posenc::view<float> shifted(memory.data() + 1, {1, 3, 4, 8});
  CHECK_THROWS_AS(run(q, k.view(), k.view(), shifted), std::invalid_argument);
  CHECK(memory == std::vector<float>(256, 1));
  run(q, k.view(), k.view(), q);
  for (std::size_t i = 0; i < 96; ++i) CHECK(memory[i] == Approx(0.5));
  CHECK(memory[96] == 1);
}

TEST_CASE("a workspace that is too small is refused with the number of bytes it needs") {
  stored<float> q({1, 3, 4, 8});
  stored<float> k({1, 5, 2, 8});
  stored<float> out({1, 3, 4, 8}, 9);
  posenc::attention_options<float> options;
  const std::size_t needed =
      posenc::attention_workspace(q.view(), k.view(), k.view(), out.view(), posenc::compose(), options);
  std::vector<std::byte> memory(needed - 1);
  options.workspace = memory;
  const auto run = [&] { posenc::attention(q.view(), k.view(), k.view(), out.view(), posenc::compose(), options); };
  CHECK_THROWS_WITH(run(), contains("posenc::attention: workspace must hold attention_workspace(...) bytes, " +
                                    std::to_string(needed) + ", got " + std::to_string(needed - 1)));
  for (const float x : out.data) CHECK(x == 9);
}

TEST_CASE("the extra outputs of the reference must have the shape of the scores") {
  stored<float> q({1, 3, 4, 8});
  stored<float> k({1, 5, 2, 8});
  stored<float> out({1, 3, 4, 8}, 9);
  stored<float> scores({1, 3, 4, 6}, 9);
  const auto run = [&](posenc::reference_options<float> options) {
    posenc::attention_reference(q.view(), k.view(), k.view(), out.view(), posenc::compose(), options);
  };
  CHECK_THROWS_WITH(run({.logits = scores.view()}),
                    contains("attention_reference: logits must have the shape [batch, query, head, keys], got 6"));
  CHECK_THROWS_WITH(run({.weights = scores.view()}), contains("attention_reference: weights must have the shape"));
  for (const float x : out.data) CHECK(x == 9);
}

TEST_CASE("the row of a call knows its key head and its position") {
  const std::vector<std::int64_t> ids{5, 9};
  const posenc::call c{
      .batch = 1, .heads = 6, .kv_heads = 2, .queries = 2, .query_positions = posenc::positions::listed(ids)};
  const posenc::row r = posenc::detail::row_of(c, 0, 4, 1);
  CHECK(r.kv_head == 1);
  CHECK(r.query_index == 1);
  CHECK(r.query_position == 9);
  CHECK(posenc::detail::scale_of({}, 16) == 0.25);
  CHECK(posenc::detail::scale_of({}, 0) == 1);
  CHECK(posenc::detail::scale_of(0.3, 16) == 0.3);
}

TEST_CASE("the distances that masks let through are the ends of what is visible") {
  using posenc::positions;
  const auto seen = [](const auto& policy, const positions& q, std::int64_t queries, const positions& k,
                       std::int64_t keys) {
    return posenc::detail::visible_distances(posenc::detail::as_references(policy), {.batch = 1,
                                                                                     .heads = 1,
                                                                                     .kv_heads = 1,
                                                                                     .queries = queries,
                                                                                     .keys = keys,
                                                                                     .query_positions = q,
                                                                                     .key_positions = k});
  };
  CHECK(seen(posenc::nope{}, positions::from(0), 4, positions::from(0), 4) == posenc::interval{-3, 3});
  CHECK(seen(posenc::causal{}, positions::from(0), 4, positions::from(0), 4) == posenc::interval{-3, 0});
  CHECK(seen(posenc::sliding_window(2), positions::from(10), 4, positions::from(0), 14) == posenc::interval{-1, 0});
  CHECK(seen(posenc::compose(posenc::causal{}, posenc::cache_length(3)), positions::from(9), 1, positions::from(0),
             14) == posenc::interval{-9, -7});
  const std::vector<std::int64_t> ids{7, 2, 9, 4};
  CHECK(seen(posenc::causal{}, positions::from(6), 1, positions::listed(ids), 4) == posenc::interval{-4, 0});
  // A mask that lets the second head alone see what comes.
  const auto split = posenc::detail::visible_distances(
      posenc::detail::as_references(posenc::alibi_split<float>(2)),
      {.batch = 1, .heads = 2, .kv_heads = 2, .queries = 3, .keys = 5, .query_positions = {}, .key_positions = {}});
  CHECK(split == posenc::interval{-2, 4});
  const auto none = seen(posenc::cache_length(0), positions::from(6), 1, positions::from(0), 4);
  CHECK(none.lo > none.hi);
}
