// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Attention from its definition, in double: a dense matrix of logits, a dense matrix of truth values, a plain softmax.
/// Nothing is shared with the library: the standard library only. Formulas of the biases of the cross tests are here
/// too, written from their papers.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace dense {

using extent = std::int64_t;

/// [batch, token, head, dim], packed in that order.
struct tensor {
  extent batch = 1;
  extent tokens = 0;
  extent heads = 1;
  extent dim = 0;
  std::vector<double> data;

  tensor() = default;
  tensor(extent b, extent t, extent h, extent d)
      : batch(b), tokens(t), heads(h), dim(d), data(static_cast<std::size_t>(b * t * h * d)) {}
  [[nodiscard]] std::size_t at(extent b, extent t, extent h, extent d) const {
    return static_cast<std::size_t>(((b * tokens + t) * heads + h) * dim + d);
  }
  double& operator()(extent b, extent t, extent h, extent d) { return data[at(b, t, h, d)]; }
  const double& operator()(extent b, extent t, extent h, extent d) const { return data[at(b, t, h, d)]; }
};

struct problem {
  tensor q;
  tensor k;
  tensor v;
  double scale = 1;
  /// The logit from the scaled product; absent: the product itself.
  std::function<double(extent b, extent h, extent i, extent j, double s)> logit{};
  /// Whether query i may see key j; absent: always.
  std::function<bool(extent b, extent h, extent i, extent j)> visible{};
  /// A factor on the products of one row; absent: 1.
  std::function<double(extent b, extent h, extent i)> row_factor{};
  /// The logit of a key without a value; absent: there is none.
  std::function<double(extent h)> sink{};
};

struct answer {
  tensor out;
  tensor logits;   // [batch, query, head, key], -inf where hidden
  tensor weights;  // the same
  tensor lse;      // [batch, query, head, 1]
};

inline answer attention(const problem& p) {
  const double lowest = -std::numeric_limits<double>::infinity();
  answer a{tensor(p.q.batch, p.q.tokens, p.q.heads, p.v.dim), tensor(p.q.batch, p.q.tokens, p.q.heads, p.k.tokens),
           tensor(p.q.batch, p.q.tokens, p.q.heads, p.k.tokens), tensor(p.q.batch, p.q.tokens, p.q.heads, 1)};
  for (extent b = 0; b < p.q.batch; ++b)
    for (extent h = 0; h < p.q.heads; ++h)
      for (extent i = 0; i < p.q.tokens; ++i) {
        double highest = p.sink ? p.sink(h) : lowest;
        for (extent j = 0; j < p.k.tokens; ++j) {
          const extent shared = h * p.k.heads / p.q.heads;
          double& s = a.logits(b, i, h, j);
          s = lowest;
          if (p.visible && !p.visible(b, h, i, j)) continue;
          double product = 0;
          for (extent d = 0; d < p.q.dim; ++d) product += p.q(b, i, h, d) * p.k(b, j, shared, d);
          product *= p.scale * (p.row_factor ? p.row_factor(b, h, i) : 1.0);
          s = p.logit ? p.logit(b, h, i, j, product) : product;
          highest = std::max(highest, s);
        }
        if (highest == lowest) {  // nothing to see: zeros
          a.lse(b, i, h, 0) = lowest;
          continue;
        }
        double total = p.sink ? std::exp(p.sink(h) - highest) : 0.0;
        for (extent j = 0; j < p.k.tokens; ++j) total += std::exp(a.logits(b, i, h, j) - highest);
        a.lse(b, i, h, 0) = highest + std::log(total);
        for (extent j = 0; j < p.k.tokens; ++j) {
          const double weight = std::exp(a.logits(b, i, h, j) - highest) / total;
          a.weights(b, i, h, j) = weight;
          if (weight == 0) continue;
          for (extent d = 0; d < p.v.dim; ++d) a.out(b, i, h, d) += weight * p.v(b, j, h * p.k.heads / p.q.heads, d);
        }
      }
  return a;
}

/// Press et al. 2022 for any number of heads.
inline double alibi_slope(extent head, extent heads) {
  extent power = 1;
  while (2 * power <= heads) power *= 2;
  if (head < power) return std::exp2(-8.0 * static_cast<double>(head + 1) / static_cast<double>(power));
  return std::exp2(-4.0 * static_cast<double>(2 * (head - power) + 1) / static_cast<double>(power));
}

/// Raffel et al. 2020. The border of logarithmic bucket e is the least n with (n / exact)^b >= (max / exact)^e, where b
/// is the number of those buckets; in long double with a guard, which is exact for the sizes of the tests.
inline extent t5_bucket(extent relative, bool bidirectional, extent buckets, extent max_distance) {
  extent first = 0;
  extent n = -relative;
  if (bidirectional) {
    buckets /= 2;
    if (relative > 0) first = buckets;
    n = n < 0 ? -n : n;
  } else {
    n = n < 0 ? 0 : n;
  }
  const extent exact = buckets / 2;
  if (n < exact) return first + n;
  const long double place = std::log(static_cast<long double>(n) / static_cast<long double>(exact)) /
                            std::log(static_cast<long double>(max_distance) / static_cast<long double>(exact)) *
                            static_cast<long double>(buckets - exact);
  return first + std::min(buckets - 1, exact + static_cast<extent>(std::floor(place + 1e-12L)));
}

/// Rounds towards minus infinity.
inline extent floor_divide(extent a, extent b) {
  extent q = a / b;
  if (a % b != 0 && (a < 0) != (b < 0)) --q;
  return q;
}

}  // namespace dense
