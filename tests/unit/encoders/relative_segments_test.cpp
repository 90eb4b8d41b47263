// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/encoders/relative_segments.hpp>

#include "support/catch.hpp"
#include "unit/encoders/content_case.hpp"

namespace {
using dense::extent;
}

TEMPLATE_TEST_CASE("a segment term depends on whether two tokens share a segment", "", float, double) {
  using C = TestType;
  const content_case::sizes s{.heads = 4, .kv_heads = 2, .queries = 20, .keys = 140, .dim = 6};
  std::mt19937 random(5);
  const auto vectors = posenc_test::random_stored<C>(random, {1, s.heads, 2, s.dim});
  const auto bias = posenc_test::random_stored<C>(random, {1, 1, s.heads, s.dim});
  std::vector<std::int64_t> queries, keys;
  for (extent i = 0; i < s.queries; ++i) queries.push_back(i / 7);
  for (extent j = 0; j < s.keys; ++j) keys.push_back(j % 3);
  const posenc::relative_segments<C> encoder({.heads = s.heads, .head_dim = s.dim}, vectors.data, bias.data, {},
                                             queries, keys);
  content_case::check<C>(
      s, encoder,
      [&](extent h, extent i, extent j, const double* q, const double*, extent) {
        const extent other = queries[static_cast<std::size_t>(i)] == keys[static_cast<std::size_t>(j)] ? 0 : 1;
        double sum = 0;
        for (extent d = 0; d < s.dim; ++d)
          sum += (q[d] + static_cast<double>(bias.data[static_cast<std::size_t>(h * s.dim + d)])) *
                 static_cast<double>(vectors.data[static_cast<std::size_t>((h * 2 + other) * s.dim + d)]);
        return sum;
      },
      std::same_as<C, float> ? 2e-6 : 1e-13);
}

TEST_CASE("relative_segments refuses sizes that do not fit") {
  using posenc::relative_segments;
  const std::vector<std::int64_t> ids{0, 1};
  const std::vector<float> vectors(16), bias(8);
  CHECK_THROWS_AS(relative_segments<float>({.heads = 2, .head_dim = 4}, bias, bias, {}, ids, ids),
                  std::invalid_argument);
  CHECK_THROWS_AS(relative_segments<float>({.heads = 2, .head_dim = 4}, vectors, vectors, {}, ids, ids),
                  std::invalid_argument);
  const relative_segments<float> part({.heads = 2, .head_dim = 4}, vectors, bias, bias, ids, ids);
  CHECK_THROWS_AS(part.check({.heads = 2, .queries = 3, .keys = 2, .dim = 4}), std::invalid_argument);
  CHECK_THROWS_AS(part.check({.heads = 2, .queries = 2, .keys = 2, .dim = 5}), std::invalid_argument);
  CHECK_NOTHROW(part.check({.heads = 2, .queries = 2, .keys = 2, .dim = 4}));
}
