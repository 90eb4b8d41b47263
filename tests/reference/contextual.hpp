// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Contextual positions (Golovneva et al. 2024) from their definition, in double: gates, their sums to the end of the
/// row, the table at a place between two of its rows. Standard library only.

#include "reference/dense_attention.hpp"

namespace dense {

struct contextual {
  /// [rows][dim]
  std::vector<double> table;
  double bias_scale = 1;
  /// The bias is divided as the products are (RAM).
  bool inside_scale = false;
};

/// The bias [batch, query, head, key] that the table gives to the logits of p, hidden keys having gates of 0.
inline tensor contextual_bias(const problem& p, const contextual& e) {
  const answer plain = attention(p);
  const extent keys = p.k.tokens;
  const extent rows = static_cast<extent>(e.table.size()) / p.q.dim;
  tensor bias(p.q.batch, p.q.tokens, p.q.heads, keys);
  for (extent b = 0; b < p.q.batch; ++b)
    for (extent i = 0; i < p.q.tokens; ++i)
      for (extent h = 0; h < p.q.heads; ++h) {
        const auto z = [&](extent n) {
          double sum = 0;
          for (extent d = 0; d < p.q.dim; ++d)
            sum += p.q(b, i, h, d) * e.table[static_cast<std::size_t>(n * p.q.dim + d)];
          return sum;
        };
        const double factor =
            e.bias_scale * (e.inside_scale ? p.scale * (p.row_factor ? p.row_factor(b, h, i) : 1.0) : 1.0);
        double place = 0;
        for (extent j = keys - 1; j >= 0; --j) {
          place += 1 / (1 + std::exp(-plain.logits(b, i, h, j)));
          const double at = std::min(place, static_cast<double>(rows - 1));
          const double upper = at - std::floor(at);
          bias(b, i, h, j) = factor * ((1 - upper) * z(static_cast<extent>(std::floor(at))) +
                                       upper * z(static_cast<extent>(std::ceil(at))));
        }
      }
  return bias;
}

/// p with that bias added last.
inline problem with_contextual(const problem& p, const contextual& e) {
  problem out = p;
  out.logit = [before = p.logit, bias = contextual_bias(p, e)](extent b, extent h, extent i, extent j, double s) {
    return (before ? before(b, h, i, j, s) : s) + bias(b, i, h, j);
  };
  return out;
}

}  // namespace dense
