// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/mask_tensor.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/rope.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

#include <unsupported/Eigen/AutoDiff>

namespace {

using namespace posenc_test;

dense::problem problem_of(const dense::tensor& q, const dense::tensor& k, const dense::tensor& v) {
  dense::problem p{.q = q, .k = k, .v = v, .scale = 0.4};
  p.visible = [](auto, auto, auto i, auto j) { return j <= 4 + i && 4 + i - j < 6; };
  p.logit = [](auto, auto h, auto i, auto j, double s) {
    return 5 * std::tanh(s / 5) - dense::alibi_slope(h, 4) * std::abs(static_cast<double>(j - 4 - i));
  };
  p.sink = [](auto) { return -0.5; };
  return p;
}
template <class T>
auto policy_of() {
  return posenc::compose(posenc::softcap(5), posenc::alibi<T>(4), posenc::sinks<T>(T(-0.5)), posenc::sliding_window(6));
}

/// The reference in scalar C on numbers that double holds.
template <class C>
void run(double tolerance) {
  std::mt19937 random(7);
  auto q = random_stored<double>(random, {2, 5, 4, 6});
  auto k = random_stored<double>(random, {2, 11, 2, 6});
  auto v = random_stored<double>(random, {2, 11, 2, 3});
  const dense::answer expected = dense::attention(problem_of(to_dense(q), to_dense(k), to_dense(v)));
  const auto cast = [](const stored<double>& x) {
    stored<C> y;
    y.extents = x.extents;
    for (const double e : x.data) y.data.push_back(C(e));
    return y;
  };
  stored<C> cq = cast(q);
  stored<C> ck = cast(k);
  stored<C> cv = cast(v);
  const auto blank = [](const posenc::shape& s) {
    stored<C> y;
    y.extents = s;
    y.data.assign(static_cast<std::size_t>(s.elements()), C(9));
    return y;
  };
  stored<C> out = blank({2, 5, 4, 3});
  stored<C> lse = blank({2, 5, 4, 1});
  stored<C> logits = blank({2, 5, 4, 11});
  stored<C> weights = blank({2, 5, 4, 11});
  posenc::attention_reference(cq.view(), ck.view(), cv.view(), out.view(), policy_of<C>(),
                              {.query_positions = posenc::positions::from(4),
                               .scale = 0.4,
                               .lse = lse.view(),
                               .logits = logits.view(),
                               .weights = weights.view()});
  const auto error = [](const stored<C>& found, const dense::tensor& right) {
    std::vector<double> x;
    for (const C& e : found.data) {
      if constexpr (std::is_floating_point_v<C>) {
        x.push_back(static_cast<double>(e));
      } else {
        x.push_back(e.value());
      }
    }
    return relative_error(x, right.data);
  };
  CHECK(error(out, expected.out) <= tolerance);
  CHECK(error(lse, expected.lse) <= tolerance);
  CHECK(error(logits, expected.logits) <= tolerance);
  CHECK(error(weights, expected.weights) <= tolerance);
}

}  // namespace

TEST_CASE("the reference in float, double and long double is the dense oracle, logits and weights included") {
  run<float>(2e-6);
  run<double>(1e-14);
  run<long double>(1e-14);
}

TEST_CASE("the reference takes autodiff scalars, and their derivatives are right") {
  using dual = Eigen::AutoDiffScalar<Eigen::Vector2d>;
  run<dual>(1e-14);
  // d out / d q and d out / d v of one element each, against differences.
  const auto evaluate = [](auto dq, auto dv) {
    using C = decltype(dq);
    std::mt19937 random(7);
    auto q = random_stored<double>(random, {1, 2, 4, 6});
    auto k = random_stored<double>(random, {1, 6, 2, 6});
    auto v = random_stored<double>(random, {1, 6, 2, 3});
    const auto cast = [](const stored<double>& x) {
      std::vector<C> y;
      for (const double e : x.data) y.push_back(C(e));
      return y;
    };
    std::vector<C> cq = cast(q);
    std::vector<C> ck = cast(k);
    std::vector<C> cv = cast(v);
    cq[26] = C(cq[26] + dq);  // query 1, head 0, channel 2
    cv[12] = C(cv[12] + dv);  // key 2, head 0, channel 0
    std::vector<C> out(24, C(0.0));
    posenc::attention_reference(posenc::view(cq.data(), q.extents), posenc::view(ck.data(), k.extents),
                                posenc::view(cv.data(), v.extents), posenc::view(out.data(), {1, 2, 4, 3}),
                                policy_of<C>(), {.query_positions = posenc::positions::from(4), .scale = 0.4});
    return out[12];  // query 1, head 0, channel 0
  };
  const dual at = evaluate(dual(0.0, 2, 0), dual(0.0, 2, 1));
  const double h = 1e-6;
  CHECK(at.derivatives()[0] == Approx((evaluate(h, 0.0) - evaluate(-h, 0.0)) / (2 * h)).epsilon(1e-6));
  CHECK(at.derivatives()[1] == Approx((evaluate(0.0, h) - evaluate(0.0, -h)) / (2 * h)).epsilon(1e-6));
  CHECK(at.derivatives()[1] > 0.01);
}

TEST_CASE("hidden rows, keys and values of the reference follow the rules of masked keys") {
  stored<double> q({1, 3, 1, 2}, 1);
  stored<double> k({1, 4, 1, 2}, 1);
  stored<double> v({1, 4, 1, 2}, 1);
  for (std::int64_t d = 0; d < 2; ++d) {
    k(0, 3, 0, d) = std::numeric_limits<double>::quiet_NaN();
    v(0, 3, 0, d) = std::numeric_limits<double>::infinity();
  }
  v(0, 1, 0, 0) = 3;
  stored<double> out({1, 3, 1, 2}, 9);
  stored<double> lse({1, 3, 1, 1}, 9);
  stored<double> weights({1, 3, 1, 4}, 9);
  posenc::attention_reference(
      q.view(), k.view(), v.view(), out.view(), posenc::causal{},
      {.query_positions = posenc::positions::from(-1), .scale = 1.0, .lse = lse.view(), .weights = weights.view()});
  CHECK(out.data == std::vector<double>{0, 0, 1, 1, 2, 1});
  CHECK(lse(0, 0, 0, 0) == -std::numeric_limits<double>::infinity());
  CHECK(lse(0, 1, 0, 0) == 2);
  CHECK(lse(0, 2, 0, 0) == Approx(2 + std::log(2.0)));
  CHECK(weights.data == std::vector<double>{0, 0, 0, 0, 1, 0, 0, 0, 0.5, 0.5, 0, 0});
}

TEST_CASE("no keys leave the reference zeros, whatever the heads of k") {
  stored<double> q({1, 2, 2, 4}, 1);
  stored<double> out({1, 2, 2, 4}, 9);
  stored<double> lse({1, 2, 2, 1}, 9);
  for (const std::int64_t heads : {0, 1, 2, 3, 5}) {
    const posenc::view<double> none(nullptr, {.tokens = 0, .heads = heads, .dim = 4});
    std::fill(out.data.begin(), out.data.end(), 9.0);
    posenc::attention_reference(q.view(), none, none, out.view(), posenc::compose(), {.lse = lse.view()});
    for (const double x : out.data) CHECK(x == 0);
    for (const double x : lse.data) CHECK(x == -std::numeric_limits<double>::infinity());
  }
}

TEST_CASE("NaN in one query of the reference stays in its row") {
  std::mt19937 random(7);
  auto q = random_stored<double>(random, {1, 4, 2, 4});
  auto k = random_stored<double>(random, {1, 6, 1, 4});
  stored<double> clean({1, 4, 2, 4});
  posenc::attention_reference(q.view(), k.view(), k.view(), clean.view(), posenc::compose());
  q(0, 2, 1, 0) = std::numeric_limits<double>::quiet_NaN();
  stored<double> out({1, 4, 2, 4});
  posenc::attention_reference(q.view(), k.view(), k.view(), out.view(), posenc::compose());
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t d = 0; d < 4; ++d) {
        if (i == 2 && h == 1) {
          CHECK(std::isnan(out(0, i, h, d)));
        } else {
          CHECK(out(0, i, h, d) == clean(0, i, h, d));
        }
      }
}

TEST_CASE("unrotated keys are rotated by the reference as it reads them") {
  std::mt19937 random(7);
  auto q = random_stored<double>(random, {1, 4, 2, 6});
  auto k = random_stored<double>(random, {1, 6, 1, 6});
  const posenc::rope<double> rope({.head_dim = 6});
  stored<double> reading({1, 4, 2, 6});
  stored<double> before({1, 4, 2, 6});
  posenc::reference_options<double> options{.query_positions = posenc::positions::from(3),
                                            .keys = posenc::key_state::unrotated};
  posenc::attention_reference(q.view(), k.view(), k.view(), reading.view(), posenc::compose(rope), options);
  stored<double> rotated_k = k;
  stored<double> rotated_q = q;
  rope.rotate(rotated_k.view(), posenc::positions::from(0));
  rope.rotate(rotated_q.view(), posenc::positions::from(3));
  posenc::attention_reference(rotated_q.view(), rotated_k.view(), k.view(), before.view(), posenc::compose());
  CHECK(relative_error(reading.data, to_dense(before).data) <= 1e-14);
}
