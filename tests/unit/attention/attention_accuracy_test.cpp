// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

namespace {

using namespace posenc_test;

/// Error over `keys` keys of width 128 whose logits fill [-bound, bound]: many keys share the weight of a row, so that
/// both the rounding of large logits and the length of the sums are seen.
double error_of(double bound, std::int64_t queries, std::int64_t keys) {
  constexpr std::int64_t dim = 128;
  std::mt19937 random(3);
  std::uniform_real_distribution<float> along(-1, 1);
  const auto direction = random_stored<float>(random, {1, 1, 1, dim});
  auto q = random_stored<float>(random, {1, queries, 1, dim}, 0.2);
  auto k = random_stored<float>(random, {1, keys, 1, dim}, 0.2);
  auto v = random_stored<float>(random, {1, keys, 1, dim});
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t d = 0; d < dim; ++d) q(0, i, 0, d) += direction.data[static_cast<std::size_t>(d)];
  for (std::int64_t j = 0; j < keys; ++j) {
    const float a = along(random);
    for (std::int64_t d = 0; d < dim; ++d) k(0, j, 0, d) += a * direction.data[static_cast<std::size_t>(d)];
  }
  dense::problem problem{.q = to_dense(q), .k = to_dense(k), .v = to_dense(v), .scale = 1};
  problem.scale = bound / largest(dense::attention(problem).logits.data);
  const dense::answer expected = dense::attention(problem);
  stored<float> out({1, queries, 1, dim});
  stored<float> lse({1, queries, 1, 1});
  posenc::attention(q.view(), k.view(), v.view(), out.view(), posenc::compose(),
                    {.scale = problem.scale, .lse = lse.view()});
  CHECK(largest(expected.logits.data) == Approx(bound));
  CHECK(largest(expected.weights.data) < 0.2);
  CHECK(relative_error(lse.data, expected.lse.data) <= 2e-6);
  return relative_error(out.data, expected.out.data);
}

}  // namespace

// Two queries read keys and values in place, fourteen go through packed panels.
TEST_CASE("the error over 16384 keys of width 128 stays below 2e-5 for logits up to 50") {
  for (const std::int64_t queries : {2, 14})
    for (const double bound : {5.0, 50.0}) {
      INFO("logits up to " << bound << ", " << queries << " queries");
      CHECK(error_of(bound, queries, 16384) <= 2e-5);
    }
}

TEST_CASE("the error over 512 keys of width 128 stays below 2e-6 for logits up to 5") {
  for (const std::int64_t queries : {2, 14}) {
    INFO(queries << " queries");
    CHECK(error_of(5, queries, 512) <= 2e-6);
  }
}
