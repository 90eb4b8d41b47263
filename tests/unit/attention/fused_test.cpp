// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

#include <array>

namespace {

using namespace posenc_test;

/// Causal attention of `queries` over `keys`, in the storages Q, K, V, O, against the oracle on what is stored.
template <class Q, class K, class V, class O>
double error_of(posenc::shape query, posenc::shape key, std::int64_t value_dim) {
  std::mt19937 random(static_cast<unsigned>(query.dim * 71 + value_dim));
  auto q = random_stored<Q>(random, query);
  auto k = random_stored<K>(random, key);
  posenc::shape value = key;
  value.dim = value_dim;
  auto v = random_stored<V>(random, value);
  posenc::shape result = query;
  result.dim = value_dim;
  stored<O> out(result, 7);
  const std::int64_t past = key.tokens - query.tokens;
  dense::problem problem{.q = to_dense(q), .k = to_dense(k), .v = to_dense(v)};
  problem.scale = 1 / std::sqrt(static_cast<double>(query.dim));
  problem.visible = [past](auto, auto, auto i, auto j) { return j <= past + i; };
  posenc::attention(q.view(), k.view(), v.view(), out.view(), posenc::compose(posenc::causal{}),
                    {.query_positions = posenc::positions::from(past)});
  return relative_error(out.data, dense::attention(problem).out.data);
}

}  // namespace

TEST_CASE("every width of q and k and every width of v is right, read in place and packed") {
  for (const std::int64_t queries : {1, 17})
    for (std::int64_t d = 1; d <= 70; ++d) {
      INFO("queries " << queries << ", dim " << d);
      CHECK(error_of<float, float, float, float>({1, queries, 2, d}, {1, 19, 1, d}, 71 - d) <= 2e-6);
    }
}

TEST_CASE("every number of rows and keys around the edges of a tile is right") {
  for (const std::int64_t queries : {1, 2, 5, 6, 7, 11, 12, 13, 95, 96, 97, 98})
    for (const std::int64_t keys : {1, 2, 15, 16, 17, 127, 128, 129, 257}) {
      if (keys < queries) continue;
      INFO("queries " << queries << ", keys " << keys);
      CHECK(error_of<float, float, float, float>({1, queries, 1, 3}, {1, keys, 1, 3}, 5) <= 2e-6);
    }
}

TEST_CASE("query heads share key heads in consecutive groups") {
  for (const auto& [heads, kv_heads] : {std::array<std::int64_t, 2>{6, 6}, {6, 3}, {6, 2}, {6, 1}, {14, 7}})
    for (const std::int64_t queries : {1, 3, 20}) {
      INFO(heads << " heads, " << kv_heads << " key heads, " << queries << " queries");
      CHECK(error_of<float, float, float, float>({2, queries, heads, 8}, {2, 40, kv_heads, 8}, 8) <= 2e-6);
    }
}

TEST_CASE("views of any stride, head-major and reversed ones too, give the bits of packed ones") {
  std::mt19937 random(3);
  constexpr std::int64_t queries = 21;
  constexpr std::int64_t keys = 30;
  auto q = random_stored<float>(random, {2, queries, 4, 10});
  auto k = random_stored<float>(random, {2, keys, 2, 10});
  auto v = random_stored<float>(random, {2, keys, 2, 6});
  stored<float> expected({2, queries, 4, 6});
  const auto policy = posenc::compose(posenc::causal{});
  const posenc::attention_options<float> options{.query_positions = posenc::positions::from(keys - queries)};
  posenc::attention(q.view(), k.view(), v.view(), expected.view(), policy, options);

  const auto copy = [](posenc::view<float> from, posenc::view<float> to) {
    for (std::int64_t b = 0; b < from.batch(); ++b)
      for (std::int64_t t = 0; t < from.tokens(); ++t)
        for (std::int64_t h = 0; h < from.heads(); ++h)
          for (std::int64_t d = 0; d < from.dim(); ++d) to(b, t, h, d) = from(b, t, h, d);
  };
  const auto compare = [&](auto place) {
    std::vector<std::vector<float>> memory;
    const auto placed = [&](posenc::view<float> from) {
      memory.emplace_back(static_cast<std::size_t>(8 * from.extents().elements()), nan_f);
      const posenc::view<float> to = place(memory.back().data(), from.extents());
      copy(from, to);
      return to;
    };
    memory.reserve(4);
    const posenc::view<float> pq = placed(q.view());
    const posenc::view<float> pk = placed(k.view());
    const posenc::view<float> pv = placed(v.view());
    stored<float> blank({2, queries, 4, 6}, 9);
    const posenc::view<float> out = placed(blank.view());
    posenc::attention(pq, pk, pv, out, policy, options);
    stored<float> found({2, queries, 4, 6});
    copy(out, found.view());
    CHECK(relative_error(found.data, to_dense(expected).data) <= 1e-6);
  };
  SECTION("head-major") {
    compare([](float* p, const posenc::shape& s) { return posenc::view<float>(p, s, posenc::head_major(s)); });
  }
  SECTION("channels two apart") {
    compare([](float* p, const posenc::shape& s) {
      return posenc::view<float>(
          p, s, {.batch = 2 * s.tokens * s.heads * s.dim, .token = 2 * s.heads * s.dim, .head = 2 * s.dim, .dim = 2});
    });
  }
  SECTION("channels outermost") {
    compare([](float* p, const posenc::shape& s) {
      return posenc::view<float>(
          p, s, {.batch = s.tokens * s.heads, .token = s.heads, .head = 1, .dim = s.batch * s.tokens * s.heads});
    });
  }
  SECTION("rows padded to an odd width") {
    compare([](float* p, const posenc::shape& s) {
      return posenc::view<float>(
          p, s, {.batch = s.tokens * s.heads * (s.dim + 3), .token = s.heads * (s.dim + 3), .head = s.dim + 3});
    });
  }
  SECTION("every axis reversed") {
    compare([](float* p, const posenc::shape& s) {
      const posenc::strides step = posenc::token_major(s);
      return posenc::view<float>(p + s.elements() - 1, s,
                                 {.batch = -step.batch, .token = -step.token, .head = -step.head, .dim = -1});
    });
  }
  SECTION("tokens reversed, channels in order") {
    compare([](float* p, const posenc::shape& s) {
      const posenc::strides step = posenc::token_major(s);
      return posenc::view<float>(p + (s.tokens - 1) * step.token, s,
                                 {.batch = step.batch, .token = -step.token, .head = step.head});
    });
  }
}

TEST_CASE("one key and value shared by every batch row and token through strides of 0") {
  stored<float> q({2, 15, 2, 4}, 0.5);
  stored<float> one({1, 1, 1, 4});
  for (std::size_t i = 0; i < 4; ++i) one.data[i] = static_cast<float>(i);
  const posenc::view<float> shared(one.data.data(), {2, 20, 1, 4}, {.batch = 0, .token = 0, .head = 0});
  stored<float> out({2, 15, 2, 4});
  posenc::attention(q.view(), shared, shared, out.view(), posenc::compose(posenc::causal{}),
                    {.query_positions = posenc::positions::from(5)});
  for (std::size_t i = 0; i < out.data.size(); ++i) CHECK(out.data[i] == Approx(static_cast<double>(i % 4)));
}
