// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Faults of one encoding that the others can have too: F22, F45, F46, F49 and F60 for the encodings beyond RoPE, ALiBi
// and T5.
#include "support/catch.hpp"

#include <posenc/attention/masks.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/cope.hpp>
#include <posenc/encoders/deberta.hpp>
#include <posenc/encoders/fire.hpp>
#include <posenc/encoders/kerple.hpp>
#include <posenc/encoders/sandwich.hpp>
#include <posenc/encoders/shaw.hpp>
#include <posenc/encoders/transformer_xl.hpp>

#include "unit/encoders/refusal.hpp"

#include <limits>

namespace {

using namespace posenc_test;

constexpr std::int64_t dim = 4;

/// f(name, encoder) for one encoder of every family, one head each.
template <class F>
void for_encodings(const F& f) {
  f("kerple", posenc::kerple<double>(posenc::kerple_options<double>{.scale = {0.5}, .shape = {2}}));
  f("sandwich", posenc::sandwich<double>({.heads = 1, .dim = 8}));
  f("fire", posenc::fire<double>(posenc::fire_options<double>{
                .threshold = 3, .weight1 = {1, -2}, .bias1 = {0.5, 1}, .weight2 = {1, 3}, .bias2 = {0.25}}));
  f("shaw", posenc::shaw<double>({.head_dim = dim, .left = 3, .right = 2}, values<double>(6 * dim),
                                 values<double>(6 * dim, 1)));
  f("deberta",
    posenc::deberta<double>({.heads = 1, .head_dim = dim, .position_buckets = 4, .max_relative_positions = 8},
                            values<double>(8 * dim, 2), values<double>(8 * dim, 3)));
  f("transformer_xl",
    posenc::transformer_xl<double>({.heads = 1, .head_dim = dim, .past = 20, .future = 20}, values<double>(dim, 4),
                                   values<double>(dim, 5), values<double>(dim * 6, 6)));
  f("cope", posenc::cope<double>({.head_dim = dim}, values<double>(4 * dim, 7)));
}

struct result {
  std::vector<double> logits, out;
};
/// Queries first .. first + queries - 1 of a sequence over its first `keys` tokens, moved by `by`.
template <class Policy>
result attend(const Policy& policy, std::int64_t first, std::int64_t queries, std::int64_t keys, std::int64_t by = 0) {
  const auto q = values<double>(12 * dim, 8), k = values<double>(12 * dim, 9), v = values<double>(12 * dim, 10);
  result r{std::vector<double>(static_cast<std::size_t>(queries * keys)),
           std::vector<double>(static_cast<std::size_t>(queries * dim))};
  posenc::attention_reference(posenc::view(q.data() + first * dim, {.tokens = queries, .dim = dim}),
                              posenc::view(k.data(), {.tokens = keys, .dim = dim}),
                              posenc::view(v.data(), {.tokens = keys, .dim = dim}),
                              posenc::view(r.out.data(), {.tokens = queries, .dim = dim}), policy,
                              {.query_positions = posenc::positions::from(first + by),
                               .key_positions = posenc::positions::from(by),
                               .logits = posenc::view(r.logits.data(), {.tokens = queries, .dim = keys})});
  return r;
}

}  // namespace

TEST_CASE("F46, F49: a cached step is the last row of the whole, in every family") {
  for_encodings([](const char* name, const auto& encoder) {
    CAPTURE(name);
    const auto policy = posenc::compose(encoder, posenc::causal{});
    const result whole = attend(policy, 0, 9, 9);
    const result step = attend(policy, 8, 1, 9);
    CHECK(std::equal(step.logits.begin(), step.logits.end(), whole.logits.end() - 9));
    CHECK(std::equal(step.out.begin(), step.out.end(), whole.out.end() - dim));
    // A bias that was lost would leave the plain products.
    CHECK(step.logits != attend(posenc::compose(posenc::causal{}), 8, 1, 9).logits);
  });
}

TEST_CASE("F22: relative families keep their keys when a cache is shifted; FIRE alone reads the place itself") {
  for_encodings([](const char* name, const auto& encoder) {
    CAPTURE(name);
    CHECK(encoder.describe().shift == posenc::cache_shift::keep_keys);
    const auto policy = posenc::compose(encoder, posenc::causal{});
    const bool same = attend(policy, 6, 1, 7).logits == attend(policy, 6, 1, 7, -3).logits;
    CHECK(same == (std::string(name) != "fire"));
    CHECK(std::remove_cvref_t<decltype(encoder)>::traits.translation_invariant == same);
  });
}

TEST_CASE("F45: a position that cross attention does not have is refused, not made up") {
  const posenc::cope<double> encoder({.head_dim = dim}, values<double>(4 * dim));
  CHECK_THAT(refusal([&] { attend(encoder, 0, 3, 5); }), contains("cross attention"));
  CHECK_THAT(refusal([&] { attend(encoder, 0, 7, 5); }), contains("cross attention"));
}

TEST_CASE("F60: a row without a legal key is zero in every family") {
  for_encodings([](const char* name, const auto& encoder) {
    CAPTURE(name);
    const auto policy = posenc::compose(encoder, posenc::before{-5});
    const result nothing = attend(policy, 0, 9, 9);
    for (const double x : nothing.out) CHECK(x == 0);
    for (const double x : nothing.logits) CHECK(x == -std::numeric_limits<double>::infinity());
  });
}
