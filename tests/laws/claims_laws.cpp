// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What every encoder claims of itself in `traits` and `describe()`, measured: the tables of the documentation are made
// from these claims.
#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <posenc/attention/irope.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/sinusoidal.hpp>
#include <posenc/encoders/toeplitz.hpp>

using posenc::positions;
using posenc::view;

namespace {

constexpr std::int64_t heads = 2;
constexpr std::int64_t dim = 16;
constexpr std::int64_t width = heads * dim;
constexpr std::int64_t rows = 256;

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
sample content(std::uint64_t seed) {
  laws::random_case any(seed);
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
      moved.see(laws::difference(weights(e, s.q, s.k, positions::from(3 + t), positions::from(1 + t)), here),
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
    laws::random_case any(seed);
    const auto q = any.vector(width);
    const auto k = any.vector(5 * width);
    const std::vector<std::int64_t> ahead{100, 101, 103, 110, 160};
    const std::vector<std::int64_t> behind{100, 99, 97, 90, 40};
    moved.see(laws::difference(weights(e, q, k, positions::from(100), positions::listed(ahead)),
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
    moved.see(laws::difference(weights(e, s.q, s.k, positions::from(0), positions::from(0)),
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
    laws::random_case any(seed);
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
  const double kept = laws::difference(with(cached), fresh);
  switch (e.describe().shift) {
    case posenc::cache_shift::keep_keys: CHECK(kept < 1e-12); break;
    case posenc::cache_shift::rotate_keys:
      CHECK(kept > 1e-4);
      if constexpr (requires { e.shift(view{cached.data(), keys}, delta); }) {
        e.shift(view{cached.data(), keys}, delta);
        CHECK(laws::difference(with(cached), fresh) < 1e-12);
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
  laws::random_case any(3);
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
      if (Encoder::traits.translation_invariant) CHECK(laws::difference(w, near) < 1e-12);
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
  constexpr bool at_logit = posenc::has_row<Encoder, B, posenc::contiguous_keys>;
  constexpr bool at_query = posenc::has_transform_q<Encoder, B> && posenc::has_transform_k<Encoder, B>;
  CHECK(at_input == (claims.site == posenc::site::input));
  CHECK(at_logit == (claims.site == posenc::site::logit));
  CHECK(at_query == (claims.site == posenc::site::query_key));
  // Learned encoders have parameters, and only they.
  CHECK((e.describe().parameters > 0) == (claims.origin == posenc::origin::learned));
  check_cache_shift(e);
  check_position_limit(e);
}

}  // namespace

TEST_CASE("claims: nope", "[laws][claims]") {
  check_claims(posenc::nope{});
  CHECK(posenc::nope::describe().table_bytes == 0);
}

TEST_CASE("claims: sinusoidal", "[laws][claims]") {
  const posenc::sinusoidal<double> e{{.dim = width}};
  check_claims(e);
}

TEST_CASE("claims: learned", "[laws][claims]") {
  laws::random_case any(11);
  const auto table = any.vector(rows * width);
  const posenc::learned<double> e{{.rows = rows, .dim = width}, std::span<const double>(table)};
  check_claims(e);
  CHECK(e.describe().parameters == static_cast<std::int64_t>(table.size()));
  CHECK(e.describe().table_bytes == static_cast<std::int64_t>(table.size() * sizeof(double)));
  // Under the other rules no position is refused.
  for (const auto rule : {posenc::out_of_range::clamp, posenc::out_of_range::repeat})
    check_position_limit(
        posenc::learned<double>{{.rows = rows, .dim = width, .out_of_range = rule}, std::span<const double>(table)});
}

TEST_CASE("claims: rope", "[laws][claims]") {
  for (const auto layout : {posenc::half_split, posenc::interleaved})
    check_claims(posenc::rope<double>{{.head_dim = dim, .layout = layout, .attention_factor = 1.2}});
}

TEST_CASE("claims: alibi", "[laws][claims]") {
  const posenc::alibi<double> e{heads};
  check_claims(e);
  CHECK(e.describe().table_bytes == static_cast<std::int64_t>(e.slopes().size() * sizeof(double)));
  // Every form is monotone or not as it says, and invariant after softmax; key_only too.
  for (const auto form : {posenc::alibi_form::causal, posenc::alibi_form::key_only}) {
    const posenc::alibi<double> other{{.heads = heads, .form = form}};
    CHECK(monotone(other) == other.describe().monotone);
    CHECK(translation_invariant(other));
    check_cache_shift(other);
  }
  const posenc::alibi<double> reward{std::vector<double>{0.1, -0.1}};
  CHECK(monotone(reward) == reward.describe().monotone);
  CHECK(reward.describe().parameters == heads);
}

TEST_CASE("claims: relative_bucket and toeplitz", "[laws][claims]") {
  laws::random_case any(12);
  const auto table = any.vector(32 * heads);
  for (const bool bidirectional : {true, false}) {
    const posenc::relative_bucket<double> e{{.heads = heads, .bidirectional = bidirectional},
                                            std::span<const double>(table)};
    check_claims(e);
    CHECK(e.describe().parameters == static_cast<std::int64_t>(table.size()));
  }
  const auto lines = any.vector(heads * 41);
  const posenc::toeplitz<double> t{heads, 20, std::span<const double>(lines)};
  check_claims(t);
  CHECK(t.describe().parameters == static_cast<std::int64_t>(lines.size()));
}

TEST_CASE("claims: irope, layer by layer", "[laws][claims]") {
  using model = posenc::irope<double>;
  const model m{{.layers = 4, .chunk = 64, .rope = {.head_dim = dim}}};
  constexpr auto claims = model::traits;
  CHECK(claims.site == posenc::site::query_key);
  CHECK(m.describe().parameters == 0);
  CHECK(!m.describe().position_limit);
  // Chunk borders lie at absolute positions, so that a shift of all of them moves weights; on the NoPE layer it does
  // not until the temperature steps.
  const auto moved = [&](std::int64_t layer) {
    return m.visit_layer(layer, [&](const auto& policy) {
      const auto s = content(1);
      const posenc::shape shape{.tokens = s.tokens, .heads = heads, .dim = dim};
      const auto run = [&](std::int64_t from) {
        std::vector<double> out(s.q.size());
        posenc::attention_reference(view{s.q.data(), shape}, view{s.k.data(), shape}, view{s.k.data(), shape},
                                    view{out.data(), shape}, policy,
                                    {.query_positions = positions::from(from),
                                     .key_positions = positions::from(from),
                                     .keys = posenc::key_state::unrotated});
        return out;
      };
      return laws::difference(run(0), run(62));
    });
  };
  CHECK(moved(0) > 1e-4);
  CHECK(claims.relation == posenc::relation::absolute);
  CHECK(!claims.translation_invariant);
  CHECK(!claims.symmetric);
  CHECK(!m.describe().monotone);
  CHECK(moved(3) < 1e-15);
  CHECK(m.describe().shift == posenc::cache_shift::rotate_keys);
}
