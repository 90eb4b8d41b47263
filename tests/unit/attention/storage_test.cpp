// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

namespace {

using namespace posenc_test;

/// Attention in storages Q, K, V, O on `queries` rows; O is rounded once, so the error is half a unit of O on top of
/// that of the compute type.
template <class Q, class K, class V, class O>
void run(double tolerance) {
  for (const std::int64_t queries : {1, 14})
    for (const std::int64_t dim : {5, 32, 33}) {
      std::mt19937 random(static_cast<unsigned>(dim));
      auto q = random_stored<Q>(random, {2, queries, 4, dim});
      auto k = random_stored<K>(random, {2, 140, 2, dim});
      auto v = random_stored<V>(random, {2, 140, 2, dim + 1});
      stored<O> out({2, queries, 4, dim + 1}, 7);
      dense::problem problem{.q = to_dense(q), .k = to_dense(k), .v = to_dense(v), .scale = 0.3};
      problem.visible = [](auto, auto, auto i, auto j) { return j <= 100 + i; };
      posenc::attention(q.view(), k.view(), v.view(), out.view(), posenc::causal{},
                        {.query_positions = posenc::positions::from(100), .scale = 0.3});
      INFO("queries " << queries << ", dim " << dim);
      CHECK(relative_error(out.data, dense::attention(problem).out.data) <= tolerance);
    }
}

}  // namespace

TEST_CASE("double is computed in double") { run<double, double, double, double>(1e-14); }

TEST_CASE("one argument of double makes the arithmetic double") {
  run<float, float, float, double>(1e-14);
  static_assert(std::is_same_v<posenc::detail::attention_compute_t<float, Eigen::half, double, float>, double>);
  static_assert(std::is_same_v<posenc::detail::attention_compute_t<Eigen::half, Eigen::half>, float>);
}

TEST_CASE("half is widened to float and rounded once") {
  run<Eigen::half, Eigen::half, Eigen::half, Eigen::half>(0x1p-11 + 2e-6);
}

TEST_CASE("bfloat16 is widened to float and rounded once") {
  run<Eigen::bfloat16, Eigen::bfloat16, Eigen::bfloat16, Eigen::bfloat16>(0x1p-8 + 2e-6);
}

TEST_CASE("storages mix") { run<float, Eigen::half, Eigen::bfloat16, float>(2e-6); }

TEST_CASE("the half result is the float result on the same numbers, rounded once") {
  std::mt19937 random(2);
  for (const std::int64_t queries : {1, 20}) {
    auto q = random_stored<Eigen::half>(random, {1, queries, 2, 32});
    auto k = random_stored<Eigen::half>(random, {1, 50, 2, 32});
    auto v = random_stored<Eigen::half>(random, {1, 50, 2, 32});
    const auto widened = [](const stored<Eigen::half>& x) {
      stored<float> y(x.extents);
      for (std::size_t i = 0; i < x.data.size(); ++i) y.data[i] = posenc::widen(x.data[i]);
      return y;
    };
    stored<float> wq = widened(q);
    stored<float> wk = widened(k);
    stored<float> wv = widened(v);
    stored<Eigen::half> out({1, queries, 2, 32});
    stored<float> expected({1, queries, 2, 32});
    const posenc::attention_options<float> options{.query_positions = posenc::positions::from(30)};
    posenc::attention(q.view(), k.view(), v.view(), out.view(), posenc::causal{}, options);
    posenc::attention(wq.view(), wk.view(), wv.view(), expected.view(), posenc::causal{}, options);
    std::int64_t different = 0;
    for (std::size_t i = 0; i < out.data.size(); ++i)
      if (out.data[i].x != posenc::narrow<Eigen::half>(expected.data[i]).x) ++different;
    CHECK(different == 0);
  }
}
