// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

namespace {

using namespace posenc_test;

/// Queries and keys of width 128 of which the largest |logit| is `bound`.
void run(double bound, std::int64_t queries, std::int64_t keys, double tolerance) {
  constexpr std::int64_t dim = 128;
  std::mt19937 random(3);
  auto q = random_stored<float>(random, {1, queries, 1, dim});
  auto k = random_stored<float>(random, {1, keys, 1, dim});
  auto v = random_stored<float>(random, {1, keys, 1, dim});
  // Every query meets a key that is parallel to it, near the front and near the back.
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t d = 0; d < dim; ++d) k(0, i % 2 == 0 ? 5 + i : keys - 5 - i, 0, d) = q(0, i, 0, d);
  dense::problem problem{.q = to_dense(q), .k = to_dense(k), .v = to_dense(v), .scale = 1};
  double largest_logit = 0;
  for (const double s : dense::attention(problem).logits.data) largest_logit = std::max(largest_logit, std::abs(s));
  problem.scale = bound / largest_logit;
  const dense::answer expected = dense::attention(problem);
  stored<float> out({1, queries, 1, dim});
  stored<float> lse({1, queries, 1, 1});
  posenc::attention(q.view(), k.view(), v.view(), out.view(), posenc::compose(),
                    {.scale = problem.scale, .lse = lse.view()});
  INFO("logits up to " << bound << ", " << queries << " queries, " << keys << " keys");
  CHECK(largest(expected.logits.data) == Approx(bound));
  CHECK(relative_error(out.data, expected.out.data) <= tolerance);
  CHECK(relative_error(lse.data, expected.lse.data) <= 2e-6);
}

}  // namespace

// Two queries read keys and values in place, fourteen go through packed panels.
TEST_CASE("the error over 16384 keys of width 128 stays below 2e-5 for logits up to 50") {
  for (const std::int64_t queries : {2, 14})
    for (const double bound : {5.0, 50.0}) run(bound, queries, 16384, 2e-5);
}

TEST_CASE("the error over 1024 keys of width 128 stays below 2e-6 for logits up to 5") {
  for (const std::int64_t queries : {2, 14}) run(5, queries, 1024, 2e-6);
}
