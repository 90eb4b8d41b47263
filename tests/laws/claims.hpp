// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What an encoder claims of itself in `traits` and `describe()`, measured.

#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <posenc/attention/reference.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/encoders/nope.hpp>

#include <cmath>
#include <vector>

namespace laws {

using posenc::positions;
using posenc::view;

inline constexpr std::int64_t heads = 2;
inline constexpr std::int64_t dim = 16;
inline constexpr std::int64_t width = heads * dim;
inline constexpr std::int64_t rows = 256;

/// Softmax weights [query, head, key] of a layer whose query and key tokens have the content given, after the encoder
/// did what it does wherever it does it. Queries and keys are the tokens themselves: no projection hides anything.
/// Without `rotate_keys` the keys are taken as already turned.
template <class Encoder>
std::vector<double> weights(const Encoder& e, std::vector<double> q, std::vector<double> k, const positions& query_at,
                            const positions& key_at, bool rotate_keys = true) {
  const auto nq = static_cast<std::int64_t>(q.size()) / width;
  const auto nk = static_cast<std::int64_t>(k.size()) / width;
  if constexpr (Encoder::traits.site == posenc::site::input) {
    e.embed(view{q.data(), {.tokens = nq, .dim = width}}, query_at);
    e.embed(view{k.data(), {.tokens = nk, .dim = width}}, key_at);
  }
  const posenc::shape sq{.tokens = nq, .heads = heads, .dim = dim};
  const posenc::shape sk{.tokens = nk, .heads = heads, .dim = dim};
  std::vector<double> out(q.size());
  std::vector<double> w(static_cast<std::size_t>(nq * heads * nk));
  const auto run = [&](const auto& policy) {
    posenc::attention_reference(view{q.data(), sq}, view{k.data(), sk}, view{k.data(), sk}, view{out.data(), sq},
                                policy,
                                {.query_positions = query_at,
                                 .key_positions = key_at,
                                 .keys = rotate_keys ? posenc::key_state::unrotated : posenc::key_state::rotated,
                                 .weights = {w.data(), {.tokens = nq, .heads = heads, .dim = nk}}});
  };
  // An encoding of the input is in q and k by now, and the layer itself has none.
  if constexpr (Encoder::traits.site == posenc::site::input) {
    run(posenc::nope{});
  } else {
    run(e);
  }
  return w;
}

struct sample {
  std::vector<double> q;
  std::vector<double> k;
  std::int64_t tokens;
};
inline sample content(std::uint64_t seed) {
  random_case any(seed);
  const std::int64_t n = any.whole(4, 8);
  return {any.vector(n * width), any.vector(n * width), n};
}

/// Whether adding a constant to all positions changes no weight.
template <class Encoder>
bool translation_invariant(const Encoder& e) {
  posenc_test::worst moved;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const auto s = content(seed);
    const auto here = weights(e, s.q, s.k, positions::from(3), positions::from(1));
    for (const std::int64_t t : {1, 50, 200})
      moved.see(difference(weights(e, s.q, s.k, positions::from(3 + t), positions::from(1 + t)), here),
                static_cast<long double>(t));
  }
  INFO(moved);
  REQUIRE(std::isfinite(moved.error));
  // Nothing in between: a claim that is nearly true is false.
  REQUIRE((moved.error < 1e-12 || moved.error > 1e-4));
  return moved.error < 1e-12;
}

/// Whether exchanging the sides of a query (distance r for -r) changes no weight: the keys keep their content.
template <class Encoder>
bool symmetric(const Encoder& e) {
  posenc_test::worst moved;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    random_case any(seed);
    const auto q = any.vector(width);
    const auto k = any.vector(5 * width);
    const std::vector<std::int64_t> ahead{100, 101, 103, 110, 160};
    const std::vector<std::int64_t> behind{100, 99, 97, 90, 40};
    moved.see(difference(weights(e, q, k, positions::from(100), positions::listed(ahead)),
                         weights(e, q, k, positions::from(100), positions::listed(behind))),
              static_cast<long double>(seed));
  }
  INFO(moved);
  REQUIRE(std::isfinite(moved.error));
  REQUIRE((moved.error < 1e-12 || moved.error > 1e-4));
  return moved.error < 1e-12;
}

/// none: no weight depends on positions. relative: weights depend on differences alone. absolute: on more.
template <class Encoder>
posenc::relation relation(const Encoder& e) {
  posenc_test::worst moved;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const auto s = content(seed);
    std::vector<std::int64_t> spread;
    for (std::int64_t t = 0; t < s.tokens; ++t) spread.push_back(t * t);
    moved.see(difference(weights(e, s.q, s.k, positions::from(0), positions::from(0)),
                         weights(e, s.q, s.k, positions::listed(spread), positions::listed(spread))),
              static_cast<long double>(seed));
  }
  REQUIRE(std::isfinite(moved.error));
  if (moved.error < 1e-12) return posenc::relation::none;
  return translation_invariant(e) ? posenc::relation::relative : posenc::relation::absolute;
}

/// Whether equal keys are never preferred for being further away, on either side.
template <class Encoder>
bool monotone(const Encoder& e) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    random_case any(seed);
    const auto q = any.vector(width);
    std::vector<double> k;
    const auto one = any.vector(width);
    for (int j = 0; j < 100; ++j) k.insert(k.end(), one.begin(), one.end());
    for (const int side : {1, -1}) {
      std::vector<std::int64_t> at;
      for (std::int64_t j = 0; j < 100; ++j) at.push_back(120 + side * j);
      const auto w = weights(e, q, k, positions::from(120), positions::listed(at));
      for (std::size_t h = 0; h < heads; ++h)
        for (std::size_t j = 1; j < 100; ++j)
          if (w[h * 100 + j] > w[h * 100 + j - 1] * (1 + 1e-12)) return false;
    }
  }
  return true;
}

/// Whether the rule named for a cache whose tokens all move by delta gives what fresh keys would give, and whether the
/// claim says no more than is needed: keys kept as they are must fail where the rule is another one.
template <class Encoder>
void check_cache_shift(const Encoder& e) {
  constexpr std::int64_t delta = -7;
  const auto s = content(5);
  const auto fresh = weights(e, s.q, s.k, positions::from(30 + delta), positions::from(20 + delta));
  // The cached keys: what was appended at the old positions.
  auto cached = s.k;
  const posenc::shape keys{.tokens = s.tokens, .heads = heads, .dim = dim};
  auto query = s.q;
  if constexpr (Encoder::traits.site == posenc::site::input) {
    e.embed(view{cached.data(), {.tokens = s.tokens, .dim = width}}, positions::from(20));
    e.embed(view{query.data(), {.tokens = s.tokens, .dim = width}}, positions::from(30 + delta));
  }
  posenc::rotate(e, view{cached.data(), keys}, positions::from(20));
  const auto with = [&](const std::vector<double>& k) {
    // Input encodings are inside query and keys by now; the layer itself adds nothing.
    if constexpr (Encoder::traits.site == posenc::site::input) {
      return weights(posenc::nope{}, query, k, positions{}, positions{});
    } else {
      return weights(e, query, k, positions::from(30 + delta), positions::from(20 + delta), false);
    }
  };
  const double kept = difference(with(cached), fresh);
  switch (e.describe().shift) {
    case posenc::cache_shift::keep_keys: CHECK(kept < 1e-12); break;
    case posenc::cache_shift::rotate_keys:
      CHECK(kept > 1e-4);
      if constexpr (requires { e.shift(view{cached.data(), keys}, delta); }) {
        e.shift(view{cached.data(), keys}, delta);
        CHECK(difference(with(cached), fresh) < 1e-12);
      } else {
        FAIL("an encoder that says its keys can be rotated has no shift");
      }
      break;
    case posenc::cache_shift::recompute_keys: CHECK(kept > 1e-4); break;
  }
}

/// Whether position_limit is the first position that is refused. Without a limit, a query and two keys far away still
/// have weights, and where a shift of all positions changes nothing they are those of the same three at 1.
template <class Encoder>
void check_position_limit(const Encoder& e) {
  random_case any(3);
  const auto q = any.vector(width);
  const auto k = any.vector(2 * width);
  const auto at = [&](std::int64_t p) { return weights(e, q, k, positions::from(p), positions::from(p - 1)); };
  if (const auto limit = e.describe().position_limit) {
    CHECK_NOTHROW(at(*limit - 1));
    CHECK_THROWS_AS(at(*limit), std::out_of_range);
  } else {
    const auto near = at(1);
    CHECK(std::abs(near[0] - near[1]) > 1e-3);
    for (const std::int64_t far : {std::int64_t{1000}, std::int64_t{1} << 40, -(std::int64_t{1} << 40)}) {
      const auto w = at(far);
      for (std::size_t h = 0; h < heads; ++h) {
        CHECK((w[2 * h] > 0 && w[2 * h + 1] > 0));
        CHECK(std::abs(w[2 * h] + w[2 * h + 1] - 1) < 1e-15);
      }
      if (Encoder::traits.translation_invariant) CHECK(difference(w, near) < 1e-12);
    }
  }
}

template <class Encoder>
void check_claims(const Encoder& e) {
  constexpr posenc::encoder_traits claims = Encoder::traits;
  INFO(claims.name);
  CHECK(translation_invariant(e) == claims.translation_invariant);
  CHECK(symmetric(e) == claims.symmetric);
  CHECK(relation(e) == claims.relation);
  CHECK(monotone(e) == e.describe().monotone);
  // The site is where the hooks are.
  using B = double;
  constexpr bool at_input = requires(std::vector<double> x) { e.embed(view{x.data(), posenc::shape{}}); };
  constexpr bool at_logit = posenc::has_row<Encoder, B, posenc::contiguous_keys> || posenc::has_bind<Encoder> ||
                            posenc::has_prepare<Encoder, B, posenc::contiguous_keys>;
  constexpr bool at_query = posenc::has_transform_q<Encoder, B> && posenc::has_transform_k<Encoder, B>;
  CHECK(at_input == (claims.site == posenc::site::input));
  CHECK(at_logit == (claims.site == posenc::site::logit));
  CHECK(at_query == (claims.site == posenc::site::query_key));
  // Learned encoders have parameters, and only they.
  CHECK((e.describe().parameters > 0) == (claims.origin == posenc::origin::learned));
  check_cache_shift(e);
  check_position_limit(e);
}

}  // namespace laws
