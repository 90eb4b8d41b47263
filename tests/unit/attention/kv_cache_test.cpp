// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What the three caches have in common: tokens, positions, moves and refusals against a plain list of tokens.
#include <posenc/attention/contiguous_cache.hpp>
#include <posenc/attention/kv_cache.hpp>
#include <posenc/attention/paged_cache.hpp>
#include <posenc/attention/ring_cache.hpp>

#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/rope.hpp>

#include "support/catch.hpp"
#include "unit/attention/cache_model.hpp"

#include <functional>
#include <string>

namespace {

using namespace posenc_test;

constexpr std::int64_t kv_heads = 2;
constexpr std::int64_t dim = 8;
constexpr std::int64_t value_dim = 5;
constexpr std::int64_t capacity = 29;

const posenc::rope<float> encoder{{.head_dim = dim}};
constexpr std::int64_t interval_end = std::numeric_limits<std::int64_t>::max();

/// The three caches of one storage type, empty, with room for `capacity` tokens.
template <class S>
struct three_caches {
  posenc::page_pool<S> pool;
  posenc::contiguous_cache<S> contiguous;
  posenc::ring_cache<S> ring;
  posenc::paged_cache<S> paged;

  explicit three_caches(posenc::key_state state = posenc::key_state::rotated, std::int64_t first = 0)
      : three_caches(posenc::cache_options{.capacity = capacity,
                                           .kv_heads = kv_heads,
                                           .dim = dim,
                                           .value_dim = value_dim,
                                           .keys = state,
                                           .first_position = first}) {}
  explicit three_caches(const posenc::cache_options& o)
      : pool({.pages = 12, .page_tokens = 3, .kv_heads = kv_heads, .dim = dim, .value_dim = value_dim}),
        contiguous(o),
        ring(o),
        paged(pool, {.capacity = capacity, .keys = o.keys, .first_position = o.first_position}) {}

  template <class F>
  void each(F&& f) {
    f(contiguous);
    f(ring);
    f(paged);
  }
  bool agree() const { return same_content(contiguous, ring) && same_content(contiguous, paged); }
};

cache_model model_of(bool rotated, std::int64_t first = 0) {
  return {.extents = {.tokens = capacity, .heads = kv_heads, .dim = dim},
          .value_dim = value_dim,
          .rotated = rotated,
          .first = first};
}

/// Chunks of keys in type K and values in type V into storage S.
template <class S, class K, class V>
void append_chunks(double bound) {
  std::mt19937 random(3);
  three_caches<S> caches(posenc::key_state::rotated, -7);
  cache_model model = model_of(true, -7);
  for (const std::int64_t n : {1, 0, 6, 3, 1, 17, 1}) {
    auto k = exact_values<K>(random, {.tokens = n, .heads = kv_heads, .dim = dim});
    auto v = exact_values<V>(random, {.tokens = n, .heads = kv_heads, .dim = value_dim});
    model.append(k.read(), v.read());
    caches.each([&](auto& cache) { cache.append(k.read(), v.view(), encoder); });
  }
  CHECK(caches.contiguous.size() == capacity);
  caches.each([&](const auto& cache) { CHECK(model.error(cache) <= bound); });
  CHECK(caches.agree());
}

/// One random change after another, the same in the model and in the caches.
template <class S>
void change_at_random(bool rotated, double bound, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(random);
  };
  three_caches<S> caches(rotated ? posenc::key_state::rotated : posenc::key_state::unrotated, 40);
  cache_model model = model_of(rotated, 40);
  double worst = 0;
  bool agree = true;
  for (int step = 0; step < 60; ++step) {
    const std::int64_t size = model.size();
    switch (draw(0, 6)) {
      case 0: {
        const std::int64_t n = draw(0, size);
        model.truncate(n);
        caches.each([&](auto& cache) { cache.truncate(n); });
        break;
      }
      case 1: {
        const std::int64_t n = draw(0, std::min<std::int64_t>(size, 6));
        model.drop_first(n);
        caches.each([&](auto& cache) { cache.drop_first(n); });
        break;
      }
      case 2: {
        const std::int64_t delta = draw(-50, 50);
        model.first += delta;
        caches.each([&](auto& cache) { cache.shift(delta, encoder); });
        break;
      }
      case 3: {
        const std::int64_t from = draw(0, size);
        const std::int64_t n = draw(0, std::min<std::int64_t>(size - from, 5));
        model.erase(from, n);
        caches.each([&](auto& cache) { cache.erase(from, n, encoder); });
        break;
      }
      default: {
        const std::int64_t n = draw(0, std::min<std::int64_t>(capacity - size, 9));
        auto k = exact_values<float>(random, {.tokens = n, .heads = kv_heads, .dim = dim});
        auto v = exact_values<float>(random, {.tokens = n, .heads = kv_heads, .dim = value_dim});
        model.append(k.view(), v.view());
        caches.each([&](auto& cache) { cache.append(k.view(), v.view(), encoder); });
      }
    }
    caches.each([&](const auto& cache) { worst = std::max(worst, model.error(cache)); });
    agree = agree && caches.agree();
  }
  INFO("seed " << seed);
  CHECK(worst <= bound);
  CHECK(agree);
}

}  // namespace

TEST_CASE("kv_cache: keys are turned for the positions that come next, values are stored as they are") {
  append_chunks<float, float, float>(5e-7);
  append_chunks<double, double, double>(1e-14);
  append_chunks<double, float, float>(1e-14);
  append_chunks<Eigen::half, float, double>(0x1p-11);
  append_chunks<Eigen::bfloat16, Eigen::half, float>(0x1p-8);
  append_chunks<float, Eigen::bfloat16, Eigen::half>(5e-7);
}

TEST_CASE("kv_cache: a turned key is rounded to storage once") {
  std::mt19937 random(4);
  const auto k = random_stored<double>(random, {.tokens = 20, .heads = kv_heads, .dim = dim});
  const auto v = random_stored<float>(random, {.tokens = 20, .heads = kv_heads, .dim = value_dim});
  three_caches<Eigen::half> caches;
  caches.each([&](auto& cache) { cache.append(k.read(), v.read(), encoder); });
  int wrong = 0;
  for (std::int64_t t = 0; t < 20; ++t)
    for (std::int64_t h = 0; h < kv_heads; ++h) {
      std::vector<double> key(k.read().row(0, t, h), k.read().row(0, t, h) + dim);
      oracle::rope(key.data(), {.rotary_dim = dim}, static_cast<double>(t));
      for (std::int64_t d = 0; d < dim; ++d) {
        const auto right = posenc::narrow<Eigen::half>(key[static_cast<std::size_t>(d)]);
        wrong += caches.contiguous.keys()(0, t, h, d) != right;
      }
      for (std::int64_t d = 0; d < value_dim; ++d)
        wrong += caches.ring.values()(0, t, h, d) != posenc::narrow<Eigen::half>(v.read()(0, t, h, d));
    }
  CHECK(wrong == 0);
  CHECK(caches.agree());
}

TEST_CASE("kv_cache: append, truncate, drop, shift and erase in any order") {
  // Each turn of a shift rounds once more; at most 60 of them meet here.
  for (const std::uint32_t seed : {1u, 2u, 3u, 4u}) change_at_random<float>(true, 3e-6, seed);
  for (const std::uint32_t seed : {5u, 6u}) change_at_random<float>(false, 0, seed);
  change_at_random<double>(true, 1e-13, 7);
  change_at_random<Eigen::half>(false, 0, 8);
}

TEST_CASE("kv_cache: positions say where the next and the last tokens stand") {
  three_caches<float> caches(posenc::key_state::rotated, 100);
  std::mt19937 random(5);
  const auto k = exact_values<float>(random, {.tokens = 6, .heads = kv_heads, .dim = dim});
  const auto v = exact_values<float>(random, {.tokens = 6, .heads = kv_heads, .dim = value_dim});
  caches.each([&](auto& cache) {
    CHECK(cache.empty());
    CHECK(cache.next_position() == 100);
    CHECK(cache.keys().tokens() == 0);
    // A prompt of 6 and three steps: 100, 106, 107, 108.
    cache.append(k.read(), v.read(), encoder);
    CHECK(cache.last_positions(6)(0, 0) == 100);
    for (std::int64_t t = 0; t < 3; ++t) {
      cache.append(posenc::view(k.data.data(), {.tokens = 1, .heads = kv_heads, .dim = dim}),
                   posenc::view(v.data.data(), {.tokens = 1, .heads = kv_heads, .dim = value_dim}), encoder);
      CHECK(cache.last_positions(1)(0, 0) == 106 + t);
    }
    CHECK(cache.size() == 9);
    CHECK(cache.positions()(0, 8) == 108);
    CHECK(cache.capacity() == capacity);
    CHECK(cache.bytes_per_token() == kv_heads * (dim + value_dim) * 4);
    CHECK_THROWS_WITH(cache.last_positions(10), contains("n must lie in 0..size, got 10"));
  });
}

TEST_CASE("kv_cache: keys that carry their positions are stored bit by bit") {
  std::mt19937 random(6);
  const auto k = random_stored<float>(random, {.tokens = 5, .heads = kv_heads, .dim = dim});
  const auto v = random_stored<float>(random, {.tokens = 5, .heads = kv_heads, .dim = value_dim});
  three_caches<float> caches;
  caches.each([&](auto& cache) { cache.append_rotated(k.read(), v.read()); });
  CHECK(same_bits(gathered(caches.contiguous.keys()), k));
  CHECK(same_bits(gathered(caches.contiguous.values()), v));
  CHECK(caches.agree());
  // alibi turns nothing.
  three_caches<float> others;
  others.each([&](auto& cache) { cache.append(k.read(), v.read(), posenc::alibi<float>(4)); });
  CHECK(same_bits(gathered(others.ring.keys()), k));
  three_caches<float> raw(posenc::key_state::unrotated);
  raw.each([&](auto& cache) {
    CHECK_THROWS_WITH(cache.append_rotated(k.read(), v.read()), contains("state must not be unrotated"));
    cache.append(k.read(), v.read(), encoder);
    CHECK(cache.state() == posenc::key_state::unrotated);
  });
  CHECK(same_bits(gathered(raw.paged.keys()), k));
}

TEST_CASE("kv_cache: new tokens of any strides") {
  std::mt19937 random(7);
  const auto k = exact_values<float>(random, {.tokens = 7, .heads = kv_heads, .dim = dim});
  const auto v = exact_values<float>(random, {.tokens = 7, .heads = kv_heads, .dim = value_dim});
  // The same numbers with channels 3 apart, backwards in time.
  std::vector<float> wide(7 * kv_heads * dim * 3, nan_f);
  const posenc::view strided(wide.data() + 6 * kv_heads * dim * 3, {.tokens = 7, .heads = kv_heads, .dim = dim},
                             {.token = -kv_heads * dim * 3, .head = dim * 3, .dim = 3});
  for (std::int64_t t = 0; t < 7; ++t)
    for (std::int64_t h = 0; h < kv_heads; ++h)
      for (std::int64_t d = 0; d < dim; ++d) strided(0, t, h, d) = k.read()(0, t, h, d);
  for (const posenc::key_state state : {posenc::key_state::rotated, posenc::key_state::unrotated}) {
    three_caches<float> plain(state);
    three_caches<float> other(state);
    plain.contiguous.append(k.read(), v.read(), encoder);
    other.each([&](auto& cache) { cache.append(strided, v.read(), encoder); });
    CHECK(same_content(plain.contiguous, other.contiguous));
    CHECK(other.agree());
  }
}

TEST_CASE("kv_cache: what does not fit is refused and changes nothing") {
  std::mt19937 random(8);
  three_caches<float> caches(posenc::key_state::rotated, 5);
  const auto k = exact_values<float>(random, {.tokens = 4, .heads = kv_heads, .dim = dim});
  const auto v = exact_values<float>(random, {.tokens = 4, .heads = kv_heads, .dim = value_dim});
  caches.each([&](auto& cache) { cache.append(k.read(), v.read(), encoder); });
  const auto before = gathered(caches.contiguous.keys());
  const auto keys = [&](const posenc::shape& s) { return posenc::view<const float>(k.data.data(), s, {.token = 1}); };
  const auto values = [&](const posenc::shape& s) { return posenc::view<const float>(v.data.data(), s, {.token = 1}); };
  caches.each([&](auto& cache) {
    const auto refuses = [&](const posenc::shape& ks, const posenc::shape& vs, const std::string& text) {
      INFO(text);
      CHECK_THROWS_WITH(cache.append(keys(ks), values(vs), encoder), contains(text));
    };
    const posenc::shape ok{.tokens = 2, .heads = kv_heads, .dim = dim};
    const posenc::shape fine{.tokens = 2, .heads = kv_heads, .dim = value_dim};
    refuses({.batch = 2, .tokens = 2, .heads = 2, .dim = dim}, fine, "k batch must be 1 or that of the cache, got 2");
    refuses(ok, {.batch = 2, .tokens = 2, .heads = 2, .dim = value_dim}, "v batch must equal that of k, got 2");
    refuses(ok, {.tokens = 1, .heads = 2, .dim = value_dim}, "v tokens must equal those of k, got 1");
    refuses({.tokens = 2, .heads = 3, .dim = dim}, fine, "k heads must equal kv_heads, got 3");
    refuses(ok, {.tokens = 2, .heads = 1, .dim = value_dim}, "v heads must equal kv_heads, got 1");
    refuses({.tokens = 2, .heads = kv_heads, .dim = 6}, fine, "k dim must equal dim, got 6");
    refuses(ok, {.tokens = 2, .heads = kv_heads, .dim = dim}, "v dim must equal value_dim, got 8");
    // An encoder of another width.
    CHECK_THROWS_WITH(cache.append(k.read(), v.read(), posenc::rope<float>({.head_dim = 4})), contains("head_dim"));
    CHECK_THROWS_WITH(cache.append(cache.keys().run(0, 0) > 0 ? posenc::view(cache.keys().row(0, 0, 0), ok) : keys(ok),
                                   values(fine), encoder),
                      contains("k must lie outside the memory of the cache"));
    CHECK_THROWS_WITH(cache.truncate(5), contains("the tokens to keep must lie in 0..size, got 5"));
    CHECK_THROWS_WITH(cache.truncate(-1), contains("must lie in 0..size, got -1"));
    CHECK_THROWS_WITH(cache.drop_first(5), contains("the tokens to drop must lie in 0..size, got 5"));
    CHECK_THROWS_WITH(cache.erase(5, 0, encoder), contains("from must lie in 0..size, got 5"));
    CHECK_THROWS_WITH(cache.erase(2, 3, encoder), contains("n must end inside the tokens, got 3"));
    CHECK_THROWS_WITH(cache.shift(interval_end, encoder), contains("delta must keep positions inside int64"));
    CHECK_THROWS_WITH(cache.shift(interval_end - 8, encoder), contains("delta must keep positions inside int64"));
    CHECK(cache.size() == 4);
    CHECK(cache.first_position() == 5);
    CHECK(same_bits(gathered(cache.keys()), before));
    // The last position is 2^63 - 2.
    cache.shift(interval_end - 9, posenc::nope{});
    CHECK(cache.next_position() == interval_end);
    CHECK_THROWS_WITH(cache.append(k.read(), v.read(), posenc::nope{}), contains("must leave positions below 2^63"));
  });
  const auto make = [](const posenc::cache_options& o) { return posenc::ring_cache<float>(o); };
  CHECK_THROWS_WITH(make({.batch = 0, .capacity = 1, .dim = 1}), contains("ring_cache: batch must be at least 1"));
  CHECK_THROWS_WITH(make({.capacity = 0, .dim = 1}), contains("capacity must be at least 1, got 0"));
  CHECK_THROWS_WITH(make({.capacity = 1, .kv_heads = 0, .dim = 1}), contains("kv_heads must be at least 1"));
  CHECK_THROWS_WITH(make({.capacity = 1, .dim = 0}), contains("dim and value_dim must be at least 1"));
  CHECK_THROWS_WITH(make({.capacity = 1, .dim = 4, .value_dim = -1}), contains("dim and value_dim must be"));
  CHECK_THROWS_WITH(make({.capacity = INT64_MAX, .dim = 4}), contains("must not exceed 2^56"));
  CHECK_THROWS_WITH(make({.capacity = 1, .dim = 4, .first_position = INT64_MAX}), contains("must lie below 2^63 - 1"));
}
