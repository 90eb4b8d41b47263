// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Attention whose keys and values carry a vector of the pair (Shaw's form), from its definition: the vectors are made
/// real for every pair. Standard library only.

#include "reference/dense_attention.hpp"

namespace dense {

struct content_problem {
  problem base;
  /// Channel d of the vector that is added to key j for query i of head h; absent: none.
  std::function<double(extent b, extent h, extent i, extent j, extent d)> key_vector{};
  /// The same for values.
  std::function<double(extent b, extent h, extent i, extent j, extent d)> value_vector{};
};

inline answer content_attention(const content_problem& p) {
  problem with = p.base;
  if (p.key_vector) {
    const auto before = p.base.logit;
    with.logit = [&p, before](extent b, extent h, extent i, extent j, double s) {
      double more = 0;
      for (extent d = 0; d < p.base.q.dim; ++d) more += p.base.q(b, i, h, d) * p.key_vector(b, h, i, j, d);
      s += more * p.base.scale * (p.base.row_factor ? p.base.row_factor(b, h, i) : 1.0);
      return before ? before(b, h, i, j, s) : s;
    };
  }
  answer a = attention(with);
  if (!p.value_vector) return a;
  for (extent b = 0; b < p.base.q.batch; ++b)
    for (extent i = 0; i < p.base.q.tokens; ++i)
      for (extent h = 0; h < p.base.q.heads; ++h)
        for (extent j = 0; j < p.base.k.tokens; ++j)
          for (extent d = 0; d < p.base.v.dim; ++d)
            if (a.weights(b, i, h, j) != 0) a.out(b, i, h, d) += a.weights(b, i, h, j) * p.value_vector(b, h, i, j, d);
  return a;
}

}  // namespace dense
