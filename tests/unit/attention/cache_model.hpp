// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What a cache ought to hold, kept the plain way: one entry per token with its raw channels, and the position of the
/// first. Expected keys are turned by the oracle, in pairs (i, i + dim / 2) of the base 10000.

#include <posenc/core/eigen.hpp>
#include <posenc/core/scalar.hpp>
#include <posenc/core/view.hpp>

#include "reference/rotation.hpp"
#include "unit/attention/tensors.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <random>
#include <vector>

namespace posenc_test {

/// Multiples of 1/64 within [-1, 1]: exact in every storage type.
template <class T>
stored<T> exact_values(std::mt19937& random, const posenc::shape& s) {
  stored<T> x(s);
  std::uniform_int_distribution<int> draw(-64, 64);
  for (T& e : x.data) e = posenc::narrow<T>(static_cast<float>(draw(random)) / 64);
  return x;
}

struct cache_model {
  struct token {
    std::vector<double> keys;    // [batch][head][dim]
    std::vector<double> values;  // [batch][head][value_dim]
  };
  posenc::shape extents;
  std::int64_t value_dim;
  bool rotated = true;
  std::int64_t first = 0;
  std::deque<token> tokens{};

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  template <class K, class V>
  void append(posenc::view<K> k, posenc::view<V> v) {
    const auto row = [&](const auto& x, std::int64_t t) {
      std::vector<double> all;
      for (std::int64_t b = 0; b < extents.batch; ++b)
        for (std::int64_t h = 0; h < x.heads(); ++h)
          for (std::int64_t d = 0; d < x.dim(); ++d)
            all.push_back(static_cast<double>(posenc::widen(x(x.batch() == 1 ? 0 : b, t, h, d))));
      return all;
    };
    for (std::int64_t t = 0; t < k.tokens(); ++t) tokens.push_back({row(k, t), row(v, t)});
  }
  void truncate(std::int64_t n) { tokens.resize(static_cast<std::size_t>(n)); }
  void drop_first(std::int64_t n) {
    erase(0, n);
    first += n;
  }
  void erase(std::int64_t from, std::int64_t n) { tokens.erase(tokens.begin() + from, tokens.begin() + from + n); }

  /// The largest error of a key; infinity where a value, the size or a position is wrong.
  template <class Cache>
  [[nodiscard]] double error(const Cache& cache) const {
    constexpr double wrong = std::numeric_limits<double>::infinity();
    if (cache.size() != size() || cache.first_position() != first || cache.next_position() != first + size())
      return wrong;
    const auto keys = cache.keys();
    const auto values = cache.values();
    if (keys.extents() != posenc::shape{extents.batch, size(), extents.heads, extents.dim}) return wrong;
    if (values.extents() != posenc::shape{extents.batch, size(), extents.heads, value_dim}) return wrong;
    double worst = 0;
    for (std::int64_t t = 0; t < size(); ++t) {
      const token& right = tokens[static_cast<std::size_t>(t)];
      if (cache.positions()(0, t) != first + t) return wrong;
      for (std::int64_t b = 0; b < extents.batch; ++b)
        for (std::int64_t h = 0; h < extents.heads; ++h) {
          const std::int64_t row = b * extents.heads + h;
          std::vector<double> key(right.keys.begin() + row * extents.dim, right.keys.begin() + (row + 1) * extents.dim);
          if (rotated) oracle::rope(key.data(), {.rotary_dim = extents.dim}, static_cast<double>(first + t));
          for (std::int64_t d = 0; d < extents.dim; ++d)
            worst = std::max(worst, std::abs(static_cast<double>(posenc::widen(keys(b, t, h, d))) -
                                             key[static_cast<std::size_t>(d)]));
          for (std::int64_t d = 0; d < value_dim; ++d)
            if (static_cast<double>(posenc::widen(values(b, t, h, d))) !=
                right.values[static_cast<std::size_t>(row * value_dim + d)])
              return wrong;
        }
    }
    return worst;
  }
};

/// The rows of a view of any kind, packed, so that bits can be compared.
template <class Rows>
auto gathered(const Rows& rows) {
  stored<typename Rows::value_type> out(rows.extents());
  for (std::int64_t b = 0; b < rows.batch(); ++b)
    for (std::int64_t t = 0; t < rows.tokens(); ++t)
      for (std::int64_t h = 0; h < rows.heads(); ++h)
        for (std::int64_t d = 0; d < rows.dim(); ++d) out(b, t, h, d) = rows(b, t, h, d);
  return out;
}

template <class T>
bool same_bits(const stored<T>& a, const stored<T>& b) {
  if (a.extents != b.extents || a.data.size() != b.data.size()) return false;
  return a.data.empty() || std::memcmp(static_cast<const void*>(a.data.data()), static_cast<const void*>(b.data.data()),
                                       a.data.size() * sizeof(T)) == 0;
}

/// Whether two caches hold the same bits at the same positions.
template <class A, class B>
bool same_content(const A& a, const B& b) {
  return a.first_position() == b.first_position() && same_bits(gathered(a.keys()), gathered(b.keys())) &&
         same_bits(gathered(a.values()), gathered(b.values()));
}

}  // namespace posenc_test
