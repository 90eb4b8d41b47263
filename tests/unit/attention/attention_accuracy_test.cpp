// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

namespace {

using namespace posenc_test;

constexpr std::int64_t dim = 128;
constexpr std::int64_t value_dim = 32;  // the oracle has less to do
constexpr std::int64_t keys = 16384;

/// How keys lie: all along one direction, so that many keys share the weight of a row and logits fill [-bound, bound],
/// or anywhere, so that few keys have it all where logits are large.
enum class spread { along_one_direction, anywhere };

struct error {
  double out;
  double lse;
};

/// Causal rows, query i at at[i], one key head for `heads` query heads. Logits reach +-bound. Values are around `mean`:
/// around 0 their sum loses digits to its terms.
error error_of(double bound, std::int64_t heads, const std::vector<std::int64_t>& at, spread how, float mean) {
  std::mt19937 random(3);
  const auto queries = static_cast<std::int64_t>(at.size());
  const double own = how == spread::anywhere ? 1 : 0.2;
  auto q = random_stored<float>(random, {1, queries, heads, dim}, own);
  auto k = random_stored<float>(random, {1, keys, 1, dim}, own);
  auto v = random_stored<float>(random, {1, keys, 1, value_dim});
  for (float& x : v.data) x += mean;
  if (how == spread::along_one_direction) {
    std::uniform_real_distribution<float> along(-1, 1);
    const auto direction = random_stored<float>(random, {1, 1, 1, dim});
    for (std::size_t i = 0; i < q.data.size(); ++i) q.data[i] += direction.data[i % dim];
    for (std::int64_t j = 0; j < keys; ++j) {
      const float a = along(random);
      for (std::int64_t d = 0; d < dim; ++d) k(0, j, 0, d) += a * direction.data[static_cast<std::size_t>(d)];
    }
  }
  dense::problem products;
  products.q = to_dense(q);
  products.k = to_dense(k);
  products.v = dense::tensor(1, keys, 1, 0);
  products.visible = [&](auto, auto, auto i, auto j) { return j <= at[static_cast<std::size_t>(i)]; };
  const dense::tensor logits = dense::attention(products).logits;
  double highest = 0;
  for (const double s : logits.data)
    if (std::isfinite(s)) highest = std::max(highest, std::abs(s));
  const double scale = bound / highest;
  dense::problem problem = products;  // the products are known by now
  problem.q.dim = 0;
  problem.v = to_dense(v);
  problem.logit = [&](auto b, auto h, auto i, auto j, double) { return scale * logits(b, i, h, j); };
  const dense::answer expected = dense::attention(problem);

  stored<float> out({1, queries, heads, value_dim});
  stored<float> lse({1, queries, heads, 1});
  posenc::attention(q.view(), k.view(), v.view(), out.view(), posenc::compose(posenc::causal{}),
                    {.query_positions = posenc::positions::listed(at), .scale = scale, .lse = lse.view()});
  if (how == spread::along_one_direction && at == std::vector<std::int64_t>{keys - 1})
    CHECK(largest(expected.weights.data) < 0.2);
  return {relative_error(out.data, expected.out.data), relative_error(lse.data, expected.lse.data)};
}

struct form {
  const char* name;
  std::int64_t heads;
  std::vector<std::int64_t> at;
};

void check(double bound, double allowed) {
  std::vector<form> forms{{"one query of one head", 1, {keys - 1}},
                          {"one query of a group of 4 heads", 4, {keys - 1}},
                          {"26 rows of every length", 1, {}},
                          {"the last 26 rows of a group of 4 heads", 4, {}}};
  for (std::int64_t i = 0; i < 26; ++i) {
    forms[2].at.push_back(i * i * i + i * 29 + 3);
    forms[3].at.push_back(keys - 26 + i);
  }
  for (const spread how : {spread::along_one_direction, spread::anywhere})
    for (const float mean : {0.0f, 1.0f})
      for (const form& f : forms) {
        if (mean != 0 && &f == &forms.back()) continue;  // the long one, once
        INFO("logits up to " << bound << ", " << f.name << ", values around " << mean
                             << (how == spread::anywhere ? ", keys anywhere" : ", keys along one direction"));
        const error e = error_of(bound, f.heads, f.at, how, mean);
        CHECK(e.out <= allowed);
        CHECK(e.lse <= allowed);
      }
}

}  // namespace

TEST_CASE("over 16384 keys of width 128 the error is below 2e-6 for logits up to 5") { check(5, 2e-6); }

TEST_CASE("over 16384 keys of width 128 the error is below 2e-5 for logits up to 50") { check(50, 2e-5); }
