// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <posenc/attention/mask_tensor.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/cope.hpp>

#include <algorithm>
#include <limits>

namespace {

constexpr std::uint64_t cases = 40;

/// One head: q and k of n tokens, and what they give.
struct sequence {
  std::int64_t n;
  std::int64_t dim;
  std::vector<double> q, k, v;
  sequence(laws::random_case& any)
      : n(any.whole(1, 40)), dim(any.whole(1, 8)), q(any.vector(n * dim)), k(any.vector(n * dim)), v(any.vector(n)) {
    for (double& x : q) x *= 3;
  }
  template <class Policy>
  std::vector<double> logits(const Policy& policy, const posenc::positions& at = {}) const {
    std::vector<double> out(static_cast<std::size_t>(n)), l(static_cast<std::size_t>(n * n));
    posenc::attention_reference(
        posenc::view(q.data(), {.tokens = n, .dim = dim}), posenc::view(k.data(), {.tokens = n, .dim = dim}),
        posenc::view(v.data(), {.tokens = n, .dim = 1}), posenc::view(out.data(), {.tokens = n, .dim = 1}), policy,
        {.query_positions = at, .key_positions = at, .logits = posenc::view(l.data(), {.tokens = n, .dim = n})});
    return l;
  }
};

}  // namespace

TEST_CASE("contextual positions of one constant row add q.e to every logit") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const sequence s(any);
    const auto e = any.vector(s.dim);
    std::vector<double> table;
    for (std::int64_t n = any.whole(1, 9); n > 0; --n) table.insert(table.end(), e.begin(), e.end());
    auto plain = s.logits(posenc::compose());
    for (std::int64_t i = 0; i < s.n; ++i)
      for (std::int64_t j = 0; j < s.n; ++j)
        plain[static_cast<std::size_t>(i * s.n + j)] += laws::dot(s.q.data() + i * s.dim, e.data(), s.dim);
    CHECK(laws::difference(s.logits(posenc::cope<double>({.head_dim = s.dim}, table)), plain) <= 1e-13);
  }
}

TEST_CASE("a table that grows by one row per position counts gates, as far as it reaches") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const sequence s(any);
    const auto e = any.vector(s.dim);
    const std::int64_t rows = any.whole(1, 50);
    std::vector<double> table;
    for (std::int64_t n = 0; n < rows; ++n)
      for (const double x : e) table.push_back(x * static_cast<double>(n));
    auto expected = s.logits(posenc::compose());
    for (std::int64_t i = 0; i < s.n; ++i) {
      double gates = 0;
      for (std::int64_t j = s.n - 1; j >= 0; --j) {
        double& logit = expected[static_cast<std::size_t>(i * s.n + j)];
        gates += 1 / (1 + std::exp(-logit));
        logit += std::min(gates, static_cast<double>(rows - 1)) * laws::dot(s.q.data() + i * s.dim, e.data(), s.dim);
      }
    }
    CHECK(laws::difference(s.logits(posenc::cope<double>({.head_dim = s.dim}, table)), expected) <= 1e-11);
  }
}

TEST_CASE("positions say nothing to contextual positions, and a hidden column is as good as none") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const sequence s(any);
    const auto table = any.vector(any.whole(1, 12) * s.dim);
    const posenc::cope<double> encoder({.head_dim = s.dim}, table);
    std::vector<std::int64_t> ids;
    for (std::int64_t t = 0; t < s.n; ++t) ids.push_back(any.whole(-1000, 1000));
    CHECK(s.logits(encoder, posenc::positions::listed(ids)) == s.logits(encoder));

    // Row by row: the columns that the row sees, moved together, give the same logits.
    std::vector<std::uint8_t> sees;
    for (std::int64_t x = 0; x < s.n * s.n; ++x) sees.push_back(any.coin());
    const auto masked = s.logits(
        posenc::compose(encoder, posenc::boolean_mask<std::uint8_t>(sees.data(), {.queries = s.n, .keys = s.n})));
    for (std::int64_t i = 0; i < s.n; ++i) {
      // Every key that row i does not see is moved behind a key of minus infinity: a gate of 0.
      sequence moved = s;
      std::vector<double> kept;
      std::int64_t to = 0;
      for (std::int64_t j = 0; j < s.n; ++j) {
        if (sees[static_cast<std::size_t>(i * s.n + j)] == 0) continue;
        kept.push_back(masked[static_cast<std::size_t>(i * s.n + j)]);
        std::copy_n(s.k.begin() + j * s.dim, s.dim, moved.k.begin() + to++ * s.dim);
      }
      std::vector<std::uint8_t> first(static_cast<std::size_t>(s.n * s.n));
      for (std::int64_t j = 0; j < to; ++j) first[static_cast<std::size_t>(i * s.n + j)] = 1;
      auto row = moved.logits(
          posenc::compose(encoder, posenc::boolean_mask<std::uint8_t>(first.data(), {.queries = s.n, .keys = s.n})));
      CHECK(std::equal(kept.begin(), kept.end(), row.begin() + i * s.n));
    }
  }
}

TEST_CASE("scalable softmax over equal logits leaves every row uniform") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t n = any.whole(1, 30);
    const double s = any.real(-2, 2);
    const std::vector<double> ones(static_cast<std::size_t>(n), 1.0);
    std::vector<double> out(ones.size()), lse(ones.size());
    const posenc::view x(ones.data(), {.tokens = n, .dim = 1});
    posenc::attention_reference(x, x, x, posenc::view(out.data(), {.tokens = n, .dim = 1}),
                                posenc::compose(posenc::ssmax(s)),
                                {.lse = posenc::view(lse.data(), {.tokens = n, .dim = 1})});
    // ln(n e^(s ln n)) = (1 + s) ln n
    for (const double l : lse) CHECK(std::abs(l - (1 + s) * std::log(static_cast<double>(n))) <= 1e-13);
  }
}
