// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The claims of encoders at the logit, beside those of claims_laws.cpp.
#include "laws/claims.hpp"

#include <posenc/encoders/alibi_asymmetric.hpp>
#include <posenc/encoders/deberta.hpp>
#include <posenc/encoders/dynamic_bias.hpp>
#include <posenc/encoders/fire.hpp>
#include <posenc/encoders/kerple.hpp>
#include <posenc/encoders/sandwich.hpp>
#include <posenc/encoders/shaw.hpp>
#include <posenc/encoders/transformer_xl.hpp>

using namespace laws;

TEST_CASE("claims: kerple, monotone where it looks both ways", "[laws][claims]") {
  for (const auto kernel : {posenc::kerple_kernel::log, posenc::kerple_kernel::power})
    for (const auto distance : {posenc::kerple_distance::absolute, posenc::kerple_distance::past}) {
      const posenc::kerple<double> e(
          {.kernel = kernel, .distance = distance, .scale = {0.5, 1.5}, .shape = {0.7, 1.2}});
      INFO("kernel " << static_cast<int>(kernel) << ", distance " << static_cast<int>(distance));
      // Where later keys cost nothing, one further away is preferred to a nearer one before the query.
      CHECK(monotone(e));
      CHECK(e.describe().monotone == (distance == posenc::kerple_distance::absolute));
      CHECK(translation_invariant(e) == e.traits.translation_invariant);
      check_cache_shift(e);
    }
}

TEST_CASE("claims: sandwich and dynamic_bias", "[laws][claims]") {
  check_claims(posenc::sandwich<double>({.heads = heads}));
  random_case any(3);
  check_claims(posenc::dynamic_bias<double>(
      {.layers = {{any.vector(8), any.vector(8)}, {any.vector(8 * heads), any.vector(heads)}}, .log_distance = true}));
}

TEST_CASE("claims: fire counts from absolute positions", "[laws][claims]") {
  const posenc::fire<double> e({.c = 0.5,
                                .threshold = 4,
                                .weight1 = {2.0, -1.0},
                                .bias1 = {0.1, 0.5},
                                .weight2 = {3, -2, -4, 1},
                                .bias2 = {0, 1}});
  CHECK(relation(e) == e.traits.relation);
  CHECK(translation_invariant(e) == e.traits.translation_invariant);
  CHECK(symmetric(e) == e.traits.symmetric);
}

TEST_CASE("claims: alibi with two sides", "[laws][claims]") {
  const posenc::alibi_two_sided<double> e(std::vector<double>{0.1, 0.2}, std::vector<double>{0.3, 0.05});
  check_claims(e);
  const posenc::alibi_two_sided<double> reward(std::vector<double>{0.1, 0.2}, std::vector<double>{0.3, -0.05});
  CHECK(monotone(reward) == reward.describe().monotone);
}

TEST_CASE("claims: shaw, transformer_xl, deberta", "[laws][claims]") {
  random_case any(4);
  const auto table = any.vector(21 * dim), value = any.vector(21 * dim);
  const posenc::shaw<double> e({.head_dim = dim, .left = 10, .right = 10}, table, value);
  check_claims(e);
  CHECK(e.describe().parameters == static_cast<std::int64_t>(table.size() + value.size()));
  const auto tables = any.vector(heads * 32 * dim);
  const posenc::deberta<double> d(
      {.heads = heads, .head_dim = dim, .position_buckets = 16, .max_relative_positions = 40}, tables, tables);
  check_claims(d);
  CHECK(d.describe().parameters == static_cast<std::int64_t>(2 * tables.size()));
  // u stands on q, so it has a q transform too; what it claims is the site of the distance.
  const auto u = any.vector(width), w = any.vector(heads * dim * 6);
  const posenc::transformer_xl<double> t({.heads = heads, .head_dim = dim, .past = 300, .future = 300}, u, u, w);
  CHECK(translation_invariant(t) == t.traits.translation_invariant);
  CHECK(symmetric(t) == t.traits.symmetric);
  CHECK(relation(t) == t.traits.relation);
  CHECK(monotone(t) == t.describe().monotone);
  check_cache_shift(t);
  CHECK(t.describe().parameters == static_cast<std::int64_t>(2 * u.size() + w.size()));
}
