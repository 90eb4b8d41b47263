// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The layout of the contiguous cache, and the same tokens through it in every way they can be fed.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/contiguous_cache.hpp>
#include <posenc/attention/index_masks.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/encoders/rope.hpp>

#include "support/catch.hpp"
#include "unit/attention/cache_model.hpp"

namespace {

using namespace posenc_test;
using posenc::key_state;

constexpr std::int64_t heads = 4;
constexpr std::int64_t kv_heads = 2;
constexpr std::int64_t dim = 8;
constexpr std::int64_t tokens = 24;

struct text {
  std::mt19937 random{41};
  stored<float> q = random_stored<float>(random, {.batch = 2, .tokens = tokens, .heads = heads, .dim = dim});
  stored<float> k = random_stored<float>(random, {.batch = 2, .tokens = tokens, .heads = kv_heads, .dim = dim});
  stored<float> v = random_stored<float>(random, {.batch = 2, .tokens = tokens, .heads = kv_heads, .dim = dim});
  stored<float> whole{{.batch = 2, .tokens = tokens, .heads = heads, .dim = dim}};
  decltype(posenc::compose(posenc::rope<float>({.head_dim = dim}), posenc::causal{})) policy =
      posenc::compose(posenc::rope<float>({.head_dim = dim}), posenc::causal{});

  text() { posenc::attention(q.view(), k.view(), v.view(), whole.view(), policy, {.keys = key_state::unrotated}); }
  static posenc::view<const float> part(const stored<float>& x, std::int64_t from, std::int64_t n) {
    posenc::shape s = x.extents;
    s.tokens = n;
    return {x.read().row(0, from, 0), s, x.read().steps()};
  }
  /// Appends the tokens from .. from + n - 1 and attends from them; the outputs go to their place in `out`.
  void step(posenc::contiguous_cache<float>& cache, stored<float>& out, std::int64_t from, std::int64_t n) const {
    cache.append(part(k, from, n), part(v, from, n), policy);
    posenc::shape s = out.extents;
    s.tokens = n;
    posenc::attention(
        part(q, from, n), cache.keys(), cache.values(),
        posenc::view<float>(out.view().row(0, from, 0), s, out.view().steps()), policy,
        {.query_positions = cache.last_positions(n), .key_positions = cache.positions(), .keys = cache.state()});
  }
  [[nodiscard]] posenc::contiguous_cache<float> cache(key_state state, std::int64_t first = 0) const {
    return posenc::contiguous_cache<float>(
        {.batch = 2, .capacity = tokens, .kv_heads = kv_heads, .dim = dim, .keys = state, .first_position = first});
  }
  [[nodiscard]] double error(const stored<float>& out, std::int64_t from = 0) const {
    double worst = 0;
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t t = from; t < tokens; ++t)
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t d = 0; d < dim; ++d)
            worst = std::max(worst, std::abs(static_cast<double>(out.read()(b, t, h, d)) -
                                             static_cast<double>(whole.read()(b, t, h, d))));
    return worst;
  }
};

}  // namespace

TEST_CASE("contiguous_cache: the keys of a head are one stream that starts at a cache line") {
  const text all;
  auto cache = all.cache(key_state::rotated);
  cache.append(all.k.read(), all.v.read(), all.policy);
  const posenc::view keys = cache.keys();
  CHECK(keys.steps() == posenc::strides{.batch = kv_heads * tokens * dim, .token = dim, .head = tokens * dim});
  CHECK(keys.run(0, 0) == tokens);
  CHECK(reinterpret_cast<std::uintptr_t>(keys.data()) % 64 == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(cache.values().data()) % 64 == 0);
}

TEST_CASE("contiguous_cache: whole, in chunks, token by token, continued, truncated: the same outputs") {
  const text all;
  for (const key_state state : {key_state::rotated, key_state::unrotated})
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{-11}, std::int64_t{1000}}) {
      for (const std::int64_t chunk : {1, 5, 24}) {
        auto cache = all.cache(state, first);
        stored<float> out(all.whole.extents, 7);
        for (std::int64_t t = 0; t < tokens; t += chunk) all.step(cache, out, t, std::min(chunk, tokens - t));
        INFO("chunk " << chunk << ", first " << first);
        CHECK(all.error(out) <= 2e-6);
      }
      // A turn that is taken back and told again, and a copy that shares the prefix.
      auto cache = all.cache(state, first);
      stored<float> out(all.whole.extents, 7);
      all.step(cache, out, 0, 10);
      stored<float> other(all.whole.extents);
      all.step(cache, other, 3, 9);  // other tokens at the positions 10 ..
      cache.truncate(10);
      auto copy = cache;
      all.step(cache, out, 10, 14);
      CHECK(all.error(out) <= 2e-6);
      copy.truncate(6);
      stored<float> again = all.whole;
      all.step(copy, again, 6, 18);
      CHECK(all.error(again) <= 2e-6);
    }
}

TEST_CASE("contiguous_cache: a later turn whose positions start at 0 again gives other numbers") {
  const text all;
  // Queries and keys of the second turn stand at start, start + 1, ...; the order of storage decides what is seen.
  const auto error_of_turn_at = [&](std::int64_t start) {
    auto cache = all.cache(key_state::rotated);
    stored<float> out(all.whole.extents);
    all.step(cache, out, 0, 12);
    stored<float> turned = gathered(text::part(all.k, 12, 12));
    posenc::rotate(all.policy, turned.view(), posenc::positions::from(start));
    cache.append_rotated(turned.read(), text::part(all.v, 12, 12));
    posenc::shape s = out.extents;
    s.tokens = 12;
    posenc::attention(text::part(all.q, 12, 12), cache.keys(), cache.values(),
                      posenc::view<float>(out.view().row(0, 12, 0), s, out.view().steps()),
                      posenc::compose(posenc::rope<float>({.head_dim = dim}), posenc::causal_by_index{12}),
                      {.query_positions = posenc::positions::from(start)});
    return all.error(out);
  };
  CHECK(error_of_turn_at(12) <= 2e-6);
  CHECK(error_of_turn_at(0) > 0.01);
}

TEST_CASE("contiguous_cache: one batch row is given to all, rows differ where they are given") {
  const text all;
  posenc::contiguous_cache<float> same({.batch = 3, .capacity = tokens, .kv_heads = kv_heads, .dim = dim});
  const auto one = [&](const stored<float>& x) {
    return posenc::view<const float>(x.data.data(), {.tokens = tokens, .heads = kv_heads, .dim = dim});
  };
  same.append(one(all.k), one(all.v), all.policy);
  auto two = all.cache(key_state::rotated);
  two.append(all.k.read(), all.v.read(), all.policy);
  int wrong = 0;
  int differ = 0;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t h = 0; h < kv_heads; ++h)
      for (std::int64_t d = 0; d < dim; ++d) {
        for (std::int64_t b = 0; b < 3; ++b) wrong += same.keys()(b, t, h, d) != two.keys()(0, t, h, d);
        wrong += same.values()(2, t, h, d) != two.values()(0, t, h, d);
        differ += two.keys()(0, t, h, d) != two.keys()(1, t, h, d);
      }
  CHECK(wrong == 0);
  CHECK(differ > 100);
  CHECK_THROWS_WITH(two.append(one(all.k), one(all.v), all.policy),
                    "posenc::contiguous_cache: tokens must fit the capacity, room for 0, got 24");
  CHECK_THROWS_AS(two.append(one(all.k), one(all.v), all.policy), std::out_of_range);
  CHECK(two.size() == tokens);
}

TEST_CASE("contiguous_cache: erasing the middle and moving the rest up leaves the keys of a text without it") {
  const text all;
  auto cache = all.cache(key_state::rotated);
  cache.append(all.k.read(), all.v.read(), all.policy);
  cache.erase(4, 7, all.policy);
  auto without = all.cache(key_state::rotated);
  without.append(text::part(all.k, 0, 4), text::part(all.v, 0, 4), all.policy);
  without.append(text::part(all.k, 11, 13), text::part(all.v, 11, 13), all.policy);
  CHECK(cache.size() == 17);
  CHECK(same_bits(gathered(cache.values()), gathered(without.values())));
  double worst = 0;
  const auto a = gathered(cache.keys());
  const auto b = gathered(without.keys());
  for (std::size_t i = 0; i < a.data.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(a.data[i]) - static_cast<double>(b.data[i])));
  CHECK(worst <= 5e-7);
}
