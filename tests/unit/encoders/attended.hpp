// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What the tests of the bias encoders compare attention with.

#include "reference/dense_attention.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace posenc_test {

/// Plain attention of two heads over packed arrays.
template <class Logit>
std::vector<double> attended(const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v,
                             std::int64_t tokens, std::int64_t dim, const Logit& logit) {
  const auto tensor = [&](const std::vector<double>& x) {
    dense::tensor t(1, tokens, 2, dim);
    t.data = x;
    return t;
  };
  return dense::attention({.q = tensor(q),
                           .k = tensor(k),
                           .v = tensor(v),
                           .scale = 1 / std::sqrt(static_cast<double>(dim)),
                           .logit = logit})
      .out.data;
}

}  // namespace posenc_test
