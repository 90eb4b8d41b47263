// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What every encoder claims of itself in `traits` and `describe()`, measured: the tables of the documentation are made
// from these claims.
#include "laws/claims.hpp"

#include <posenc/attention/irope.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/sinusoidal.hpp>
#include <posenc/encoders/toeplitz.hpp>

using namespace laws;

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
