// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The cross product: one encoding under every mask, for every order of the keys and every kind of call, against the
/// dense oracle. Masks are fields of run_time_policy, so an encoding is one instantiation of attention.

#include <posenc/attention/attention.hpp>
#include <posenc/attention/run_time.hpp>

#include "reference/content_attention.hpp"
#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace cross {

using namespace posenc_test;
using dense::extent;

inline constexpr extent batch = 2;
inline constexpr extent heads = 4;
inline constexpr extent kv_heads = 2;
inline constexpr extent dim = 10;
inline constexpr extent value_dim = 13;
inline constexpr extent keys = 137;  // one whole tile of keys and a part of one
inline constexpr double scale = 0.5;

enum class mask { none, causal, window, chunked, symmetric, prefix, documents, padding };
inline constexpr std::array all_masks{mask::none,      mask::causal, mask::window,    mask::chunked,
                                      mask::symmetric, mask::prefix, mask::documents, mask::padding};
enum class order { contiguous, listed, ring };
enum class kind { prefill, decode, cross };

struct where {
  kind call = kind::prefill;
  order keys_in = order::contiguous;
  std::vector<std::int64_t> query;
  std::vector<std::int64_t> key;
  posenc::positions query_positions;
  posenc::positions key_positions;
  [[nodiscard]] extent q(extent i) const { return query[static_cast<std::size_t>(i)]; }
  [[nodiscard]] extent k(extent j) const { return key[static_cast<std::size_t>(j)]; }
  [[nodiscard]] extent distance(extent i, extent j) const { return k(j) - q(i); }
};

/// What attention is given, after `prepare` has had its turn.
struct tensors {
  stored<float> q, k, v;
};

struct setting {
  double bound = 2e-6;
  std::vector<kind> calls{kind::prefill, kind::decode, kind::cross};
  std::vector<order> orders{order::contiguous, order::listed, order::ring};
  posenc::key_state keys = posenc::key_state::rotated;
  /// The first key where keys are contiguous, the least where they are not.
  extent first_key = -7;
  /// Changes q and k before attention, e.g. adds an absolute encoding; the oracle does the same for itself.
  std::function<void(tensors&, const where&)> prepare{};
};

/// Listed keys leave gaps; a ring cache has wrapped. A decoded query stands at the last contiguous key.
inline void place(where& at, kind call, order keys_in, extent first_key) {
  const extent queries = call == kind::prefill ? keys : call == kind::decode ? 1 : 13;
  at.call = call;
  at.keys_in = keys_in;
  at.key.resize(static_cast<std::size_t>(keys));
  for (extent j = 0; j < keys; ++j)
    at.key[static_cast<std::size_t>(j)] = keys_in == order::contiguous ? first_key + j
                                          : keys_in == order::listed   ? first_key + j + j / 3
                                                                       : first_key + 7 + (j + 61) % keys;
  at.query.resize(static_cast<std::size_t>(queries));
  for (extent i = 0; i < queries; ++i)
    at.query[static_cast<std::size_t>(i)] = call == kind::prefill  ? at.k(i)
                                            : call == kind::decode ? first_key + keys - 1
                                                                   : first_key + 27 + 3 * i;
  at.key_positions =
      keys_in == order::contiguous ? posenc::positions::from(first_key) : posenc::positions::listed(at.key);
  at.query_positions = call == kind::prefill && keys_in == order::contiguous ? posenc::positions::from(first_key)
                                                                             : posenc::positions::listed(at.query);
}

/// What the masks of a call refer to.
struct borders {
  std::vector<std::int64_t> begin{3, 40};
  std::vector<std::int64_t> end{keys, 121};
  std::vector<std::int64_t> query_starts;
  std::vector<std::int64_t> key_starts{0, 50, 90, keys};
  explicit borders(extent queries) : query_starts{0, queries / 3, queries / 3, queries} {}
};

inline posenc::run_time_masks masks_of(mask m, const borders& b) {
  posenc::run_time_masks out;
  switch (m) {
    case mask::none: break;
    case mask::causal: out.causal = true; break;
    case mask::window: out.window = posenc::sliding_window(17); break;
    case mask::chunked: out.chunk = posenc::chunked(20); break;
    case mask::symmetric: out.both_sides = posenc::symmetric_window(9); break;
    case mask::prefix: out.prefix = posenc::prefix_lm(30); break;
    case mask::documents: out.documents = posenc::documents(b.query_starts, b.key_starts); break;
    case mask::padding: out.padding = posenc::padding{b.begin, b.end}; break;
  }
  return out;
}

/// The same from its definition.
inline bool visible(mask m, const where& at, const borders& border, extent b, extent i, extent j) {
  const extent pq = at.q(i);
  const extent pk = at.k(j);
  const auto row = static_cast<std::size_t>(b);
  switch (m) {
    case mask::none: return true;
    case mask::causal: return pk <= pq;
    case mask::window: return pk <= pq && pq - pk < 17;
    case mask::chunked: return pk <= pq && dense::floor_divide(pq, 20) == dense::floor_divide(pk, 20);
    case mask::symmetric: return pk - pq < 9 && pq - pk < 9;
    case mask::prefix: return pk < 30 || pk <= pq;
    case mask::documents: return i < border.query_starts[1] ? j < 50 : j >= 90;
    case mask::padding: return border.begin[row] <= j && j < border.end[row];
  }
  return false;
}

/// How a call is made: attention itself, unless a test takes another path.
struct fused {
  template <class... A>
  void operator()(A&&... arguments) const {
    posenc::attention(std::forward<A>(arguments)...);
  }
};

/// `make(masks, where)` is the policy; `oracle(problem, where)` adds its meaning to a problem that holds q, k, v, the
/// scale and the mask.
template <class Make, class Oracle, class Path = fused>
void run(const Make& make, const Oracle& oracle, const setting& s = {}, const Path& path = {}) {
  std::mt19937 random(5);
  for (const kind call : s.calls)
    for (const order keys_in : s.orders) {
      where at;
      place(at, call, keys_in, s.first_key);
      const auto queries = static_cast<extent>(at.query.size());
      const borders border(queries);
      tensors t;
      t.q = random_stored<float>(random, {batch, queries, heads, dim});
      t.k = random_stored<float>(random, {batch, keys, kv_heads, dim});
      t.v = random_stored<float>(random, {batch, keys, kv_heads, value_dim});
      const dense::problem raw{.q = to_dense(t.q), .k = to_dense(t.k), .v = to_dense(t.v), .scale = scale};
      if (s.prepare) s.prepare(t, at);
      for (const mask m : all_masks) {
        dense::content_problem problem{.base = raw};
        problem.base.visible = [&](extent b, extent, extent i, extent j) { return visible(m, at, border, b, i, j); };
        oracle(problem, at);
        const dense::answer expected = dense::content_attention(problem);
        stored<float> out({batch, queries, heads, value_dim}, 7);
        stored<float> lse({batch, queries, heads, 1}, 7);
        path(t.q.view(), t.k.view(), t.v.view(), out.view(), make(masks_of(m, border), at),
             posenc::attention_options<float>{.query_positions = at.query_positions,
                                              .key_positions = at.key_positions,
                                              .scale = scale,
                                              .keys = s.keys,
                                              .lse = lse.view()});
        INFO("call " << static_cast<int>(call) << ", order " << static_cast<int>(keys_in) << ", mask "
                     << static_cast<int>(m));
        CHECK(relative_error(out.data, expected.out.data) <= s.bound);
        CHECK(relative_error(lse.data, expected.lse.data) <= s.bound);
      }
    }
}

/// A part beside the masks.
template <class Part>
auto beside_masks(const Part& part) {
  return [&part](const posenc::run_time_masks& masks, const where&) {
    return posenc::compose(part, posenc::run_time_policy<>{.masks = masks});
  };
}

/// formula(head, query position, key position) is added to the logit. The masks of one call share its values.
template <class Formula>
auto adds(const Formula& formula) {
  using matrix = std::vector<double>;
  auto kept = std::make_shared<std::map<std::pair<kind, order>, matrix>>();
  return [&formula, kept](dense::content_problem& p, const where& at) {
    matrix& bias = (*kept)[{at.call, at.keys_in}];
    const auto queries = static_cast<extent>(at.query.size());
    for (extent h = 0; h < heads && static_cast<extent>(bias.size()) < heads * queries * keys; ++h)
      for (extent i = 0; i < queries; ++i)
        for (extent j = 0; j < keys; ++j) bias.push_back(static_cast<double>(formula(h, at.q(i), at.k(j))));
    p.base.logit = [&bias, queries](extent, extent h, extent i, extent j, double x) {
      return x + bias[static_cast<std::size_t>((h * queries + i) * keys + j)];
    };
  };
}

/// n values in [-amplitude, amplitude].
inline std::vector<float> numbers(extent n, unsigned seed, double amplitude = 1) {
  std::mt19937 random(seed);
  return random_stored<float>(random, {1, n, 1, 1}, amplitude).data;
}
inline std::vector<double> wide(const std::vector<float>& x) { return {x.begin(), x.end()}; }

}  // namespace cross
