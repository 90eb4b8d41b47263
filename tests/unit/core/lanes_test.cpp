// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/lanes.hpp>

#include "support/catch.hpp"

#include <cmath>
#include <limits>

namespace {

/// A scalar that is no built-in type: hooks meet such ones in the reference path.
struct dual {
  double value = 0;
  double slope = 0;
  dual() = default;
  explicit dual(double v, double s = 0) : value(v), slope(s) {}
  friend bool operator>(const dual& a, const dual& b) { return a.value > b.value; }
  friend dual abs(const dual& x) { return x.value < 0 ? dual(-x.value, -x.slope) : x; }
  friend dual exp(const dual& x) { return dual(std::exp(x.value), std::exp(x.value) * x.slope); }
  friend dual sqrt(const dual& x) { return dual(std::sqrt(x.value), x.slope / (2 * std::sqrt(x.value))); }
  friend dual tanh(const dual& x) {
    const double t = std::tanh(x.value);
    return dual(t, (1 - t * t) * x.slope);
  }
};

}  // namespace

TEMPLATE_TEST_CASE("lanes: a scalar is a batch of one", "[core][lanes]", float, double, long double) {
  using L = posenc::lanes<TestType>;
  STATIC_REQUIRE(L::size == 1);
  STATIC_REQUIRE(std::is_same_v<typename L::scalar, TestType>);
  STATIC_REQUIRE(std::is_same_v<typename L::mask, bool>);
  const TestType x = TestType(-2.5);
  CHECK(L::load(&x) == x);
  const float single = 0.25f;
  CHECK(L::load(&single) == TestType(0.25));
  TestType stored = 0;
  L::store(&stored, x);
  CHECK(stored == x);
  CHECK(L::broadcast(3) == TestType(3));
  CHECK(L::iota() == TestType(0));
  CHECK(L::select(true, TestType(1), TestType(2)) == TestType(1));
  CHECK(L::select(false, TestType(1), TestType(2)) == TestType(2));
  CHECK(L::greater(TestType(2), TestType(1)));
  CHECK(!L::greater(TestType(1), TestType(1)));
  CHECK(!L::greater(std::numeric_limits<TestType>::quiet_NaN(), TestType(1)));
  CHECK(L::any(L::greater(TestType(2), TestType(1))));
  CHECK(!L::any(L::greater(TestType(1), TestType(2))));
  const bool truths[] = {true, false};
  CHECK(L::mask_from(truths));
  CHECK(!L::mask_from(truths + 1));
  CHECK(L::abs(x) == TestType(2.5));
  CHECK(L::exp(x) == std::exp(x));
  CHECK(L::tanh(x) == std::tanh(x));
  CHECK(L::sqrt(TestType(2)) == std::sqrt(TestType(2)));
}

TEST_CASE("lanes: functions of a scalar type of one's own are found beside it", "[core][lanes]") {
  using L = posenc::lanes<dual>;
  const dual x(-0.5, 1);
  CHECK(L::abs(x).slope == -1.0);
  CHECK(L::exp(x).slope == std::exp(-0.5));
  CHECK(L::tanh(x).slope == 1 - std::tanh(-0.5) * std::tanh(-0.5));
  CHECK(L::sqrt(dual(4, 1)).slope == 0.25);
  CHECK(L::select(L::greater(x, dual(0)), x, dual(7)).value == 7);
  CHECK(L::broadcast(4.0).value == 4);
}
