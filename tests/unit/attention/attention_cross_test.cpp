// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Every bias under every mask, for every order of the keys and every kind of call, against the dense oracle.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/relative_bucket.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

#include <array>
#include <numeric>
#include <string>
#include <utility>

namespace {

using namespace posenc_test;
using dense::extent;

constexpr extent batch = 2;
constexpr extent heads = 4;
constexpr extent kv_heads = 2;
constexpr extent dim = 10;
constexpr extent value_dim = 13;
constexpr extent keys = 137;  // one whole tile of keys and a part of one

enum class mask { none, causal, window, chunked, symmetric, prefix, documents, padding };
constexpr std::array all_masks{mask::none,      mask::causal, mask::window,    mask::chunked,
                               mask::symmetric, mask::prefix, mask::documents, mask::padding};
enum class order { contiguous, listed, ring };
enum class kind { prefill, decode, cross };

struct where {
  std::vector<std::int64_t> query;
  std::vector<std::int64_t> key;
  posenc::positions query_positions;
  posenc::positions key_positions;
};

/// Positions of a call. Key 0 stands at -7 where keys are contiguous; listed keys leave gaps; a ring cache has wrapped.
void place(where& at, kind call, order keys_in) {
  const extent queries = call == kind::prefill ? keys : call == kind::decode ? 1 : 13;
  at.key.resize(static_cast<std::size_t>(keys));
  for (extent j = 0; j < keys; ++j) {
    const extent p = keys_in == order::contiguous ? j - 7 : keys_in == order::listed ? j + j / 3 - 7 : (j + 61) % keys;
    at.key[static_cast<std::size_t>(j)] = p;
  }
  at.query.resize(static_cast<std::size_t>(queries));
  for (extent i = 0; i < queries; ++i)
    at.query[static_cast<std::size_t>(i)] = call == kind::prefill  ? at.key[static_cast<std::size_t>(i)]
                                            : call == kind::decode ? keys - 8
                                                                   : 20 + 3 * i;
  if (keys_in == order::contiguous) {
    at.key_positions = posenc::positions::from(-7);
  } else {
    at.key_positions = posenc::positions::listed(at.key);
  }
  if (call == kind::prefill && keys_in == order::contiguous) {
    at.query_positions = posenc::positions::from(-7);
  } else {
    at.query_positions = posenc::positions::listed(at.query);
  }
}

template <class Bias, class Formula>
void run(const Bias& bias, const Formula& formula) {
  std::mt19937 random(5);
  const std::vector<std::int64_t> begin{3, 40};
  const std::vector<std::int64_t> end{keys, 121};
  for (const kind call : {kind::prefill, kind::decode, kind::cross})
    for (const order keys_in : {order::contiguous, order::listed, order::ring}) {
      where at;
      place(at, call, keys_in);
      const auto queries = static_cast<extent>(at.query.size());
      const std::vector<std::int64_t> query_starts{0, queries / 3, queries / 3, queries};
      const std::vector<std::int64_t> key_starts{0, 50, 90, keys};
      auto q = random_stored<float>(random, {batch, queries, heads, dim});
      auto k = random_stored<float>(random, {batch, keys, kv_heads, dim});
      auto v = random_stored<float>(random, {batch, keys, kv_heads, value_dim});
      dense::problem problem{.q = to_dense(q), .k = to_dense(k), .v = to_dense(v), .scale = 0.5};
      problem.logit = [&](extent, extent h, extent i, extent j, double s) {
        return s + formula(h, at.key[static_cast<std::size_t>(j)] - at.query[static_cast<std::size_t>(i)]);
      };
      for (const mask m : all_masks) {
        posenc::run_time_policy<Bias> policy{.bias = bias};
        problem.visible = nullptr;
        const auto by_position = [&](auto rule) {
          problem.visible = [&at, rule](extent, extent, extent i, extent j) {
            return rule(at.query[static_cast<std::size_t>(i)], at.key[static_cast<std::size_t>(j)]);
          };
        };
        switch (m) {
          case mask::none: break;
          case mask::causal:
            policy.masks.causal = true;
            by_position([](extent pq, extent pk) { return pk <= pq; });
            break;
          case mask::window:
            policy.masks.window = posenc::sliding_window(17);
            by_position([](extent pq, extent pk) { return pk <= pq && pq - pk < 17; });
            break;
          case mask::chunked:
            policy.masks.chunk = posenc::chunked(20);
            by_position([](extent pq, extent pk) {
              return pk <= pq && dense::floor_divide(pq, 20) == dense::floor_divide(pk, 20);
            });
            break;
          case mask::symmetric:
            policy.masks.both_sides = posenc::symmetric_window(9);
            by_position([](extent pq, extent pk) { return pk - pq < 9 && pq - pk < 9; });
            break;
          case mask::prefix:
            policy.masks.prefix = posenc::prefix_lm(30);
            by_position([](extent pq, extent pk) { return pk < 30 || pk <= pq; });
            break;
          case mask::documents:
            policy.masks.documents = posenc::documents(query_starts, key_starts);
            problem.visible = [&](extent, extent, extent i, extent j) { return i < queries / 3 ? j < 50 : j >= 90; };
            break;
          case mask::padding:
            policy.masks.padding = posenc::padding{begin, end};
            problem.visible = [&](extent b, extent, extent, extent j) {
              return begin[static_cast<std::size_t>(b)] <= j && j < end[static_cast<std::size_t>(b)];
            };
            break;
        }
        const dense::answer expected = dense::attention(problem);
        stored<float> out({batch, queries, heads, value_dim}, 7);
        stored<float> lse({batch, queries, heads, 1}, 7);
        posenc::attention(q.view(), k.view(), v.view(), out.view(), policy,
                          {.query_positions = at.query_positions,
                           .key_positions = at.key_positions,
                           .scale = 0.5,
                           .lse = lse.view()});
        INFO("call " << static_cast<int>(call) << ", order " << static_cast<int>(keys_in) << ", mask "
                     << static_cast<int>(m));
        CHECK(relative_error(out.data, expected.out.data) <= 2e-6);
        CHECK(relative_error(lse.data, expected.lse.data) <= 2e-6);
      }
    }
}

}  // namespace

TEST_CASE("attention without a bias is that of the dense oracle under every mask") {
  run(posenc::nope{}, [](extent, extent) { return 0.0; });
}

TEST_CASE("attention with ALiBi is that of the dense oracle under every mask") {
  run(posenc::alibi<float>(heads), [](extent h, extent distance) {
    return -dense::alibi_slope(h, heads) * std::abs(static_cast<double>(distance));
  });
}

TEST_CASE("attention with T5 buckets is that of the dense oracle under every mask") {
  std::mt19937 random(8);
  std::vector<float> table(32 * heads);
  std::uniform_real_distribution<float> draw(-1, 1);
  for (float& x : table) x = draw(random);
  run(posenc::relative_bucket<float>({.heads = heads}, table), [&](extent h, extent distance) {
    return static_cast<double>(table[static_cast<std::size_t>(dense::t5_bucket(distance, true, 32, 128) * heads + h)]);
  });
}
