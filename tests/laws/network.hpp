// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A transformer as small as the theory needs: layers of x + attention(x Wq, x Wk, x Wv), fixed weights per layer,
/// nothing else that could tell positions apart.

#include "laws/random_case.hpp"

#include <posenc/attention/attention.hpp>

#include <vector>

namespace laws {

inline constexpr std::int64_t heads = 2;
inline constexpr std::int64_t head_dim = 8;
inline constexpr std::int64_t width = heads * head_dim;

using tokens = std::vector<double>;  // [token, width]

inline std::int64_t count(const tokens& x) { return static_cast<std::int64_t>(x.size()) / width; }

/// Token order[t] at place t.
inline tokens permuted(const tokens& x, const std::vector<std::int64_t>& order) {
  tokens y;
  for (const std::int64_t from : order) y.insert(y.end(), x.begin() + from * width, x.begin() + (from + 1) * width);
  return y;
}

inline tokens projected(const tokens& x, std::uint64_t weights) {
  random_case any(weights);
  const auto w = any.vector(width * width);
  tokens y(x.size());
  for (std::int64_t t = 0; t < count(x); ++t)
    for (std::int64_t o = 0; o < width; ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < width; ++i)
        sum += x[static_cast<std::size_t>(t * width + i)] * w[static_cast<std::size_t>(i * width + o)];
      y[static_cast<std::size_t>(t * width + o)] = sum;
    }
  return y;
}

/// `layers` layers under one policy. Keys are turned while they are read, if the policy turns them.
template <class Policy>
tokens network(tokens x, const Policy& policy, int layers, const posenc::positions& at = {}) {
  for (int layer = 0; layer < layers; ++layer) {
    const auto q = projected(x, 1000 + 10 * static_cast<std::uint64_t>(layer));
    const auto k = projected(x, 1001 + 10 * static_cast<std::uint64_t>(layer));
    const auto v = projected(x, 1002 + 10 * static_cast<std::uint64_t>(layer));
    tokens out(x.size());
    const posenc::shape s{.tokens = count(x), .heads = heads, .dim = head_dim};
    posenc::attention(posenc::view{q.data(), s}, posenc::view{k.data(), s}, posenc::view{v.data(), s},
                      posenc::view{out.data(), s}, policy,
                      {.query_positions = at, .key_positions = at, .keys = posenc::key_state::unrotated});
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += out[i];
  }
  return x;
}

/// The mean over tokens: what a classifier would read.
inline tokens pooled(const tokens& x) {
  tokens mean(width);
  for (std::size_t i = 0; i < x.size(); ++i) mean[i % width] += x[i] / static_cast<double>(count(x));
  return mean;
}

}  // namespace laws
