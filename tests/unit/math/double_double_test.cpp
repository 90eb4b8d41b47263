// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/math/double_double.hpp>

#include "reference/angle.hpp"
#include "reference/constants.hpp"
#include "reference/natural.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"

#include <cmath>
#include <cstdint>

using posenc::math::double_double;
using reference::binary;

namespace {

binary exact(const double_double& x) { return binary(x.hi) + binary(x.lo); }
/// 106 bits, either sign, exponents -60 .. 60.
double_double any(posenc_test::random_source& source) {
  const double hi = std::ldexp(source.uniform(0.5, 1), static_cast<int>(source.integer(-60, 60)));
  const double lo = hi * 0x1p-54 * source.uniform(-1, 1);
  return source.bits() & 1 ? double_double(hi, lo) : double_double(-hi, -lo);
}
bool normalised(const double_double& x) { return x.hi + x.lo == x.hi; }

}  // namespace

TEST_CASE("double_double: the error-free transformations lose nothing", "[math][double_double]") {
  posenc_test::random_source source(21);
  int wrong = 0;
  for (int i = 0; i < 2000; ++i) {
    const double a = any(source).hi;
    const double b = any(source).hi;
    wrong += !(exact(posenc::math::detail::two_sum(a, b)) - (binary(a) + binary(b))).zero();
    wrong += !(exact(posenc::math::detail::two_product(a, b)) - binary(a) * binary(b)).zero();
    const bool ordered = std::fabs(a) >= std::fabs(b);
    wrong +=
        !(exact(posenc::math::detail::quick_sum(ordered ? a : b, ordered ? b : a)) - (binary(a) + binary(b))).zero();
  }
  CHECK(wrong == 0);
}

TEST_CASE("double_double: add, subtract, multiply and divide to a few 2^-104", "[math][double_double]") {
  posenc_test::random_source source(22);
  int worst_sum = -1000;
  int worst_product = -1000;
  int worst_quotient = -1000;
  int loose = 0;
  for (int i = 0; i < 3000; ++i) {
    double_double a = any(source);
    double_double b = any(source);
    if (i % 3 == 0) b = double_double(-a.hi, a.lo * 0.5);  // heavy cancellation
    const binary sum = exact(a) + exact(b);
    const binary minus = exact(a) - exact(b);
    if (!sum.zero()) worst_sum = std::max(worst_sum, reference::relative_error_log2(exact(a + b), sum));
    if (!minus.zero()) worst_sum = std::max(worst_sum, reference::relative_error_log2(exact(a - b), minus));
    worst_product = std::max(worst_product, reference::relative_error_log2(exact(a * b), exact(a) * exact(b)));
    // q b against a: the same relative error as q against a / b.
    worst_quotient = std::max(worst_quotient, reference::relative_error_log2(exact(a / b) * exact(b), exact(a)));
    loose += !normalised(a + b) + !normalised(a * b) + !normalised(a / b);
  }
  CHECK(worst_sum <= -102);
  CHECK(worst_product <= -102);
  CHECK(worst_quotient <= -102);
  CHECK(loose == 0);
}

TEST_CASE("double_double: constants to 106 bits", "[math][double_double]") {
  CHECK(reference::relative_error_log2(exact(posenc::math::ln2), reference::wide(reference::ln2)) <= -106);
  CHECK(reference::relative_error_log2(exact(posenc::math::two_pi), reference::wide(reference::two_pi)) <= -106);
  CHECK(reference::relative_error_log2(exact(posenc::math::inverse_two_pi),
                                       reference::wide(reference::inverse_two_pi_value)) <= -106);
}

TEST_CASE("double_double: exp and log below 2^-95", "[math][double_double]") {
  for (const reference::wide_value& v : reference::exponentials) {
    const double_double got = posenc::math::exp(double_double(v.x));
    CAPTURE(v.x);
    CHECK(reference::relative_error_log2(exact(got), reference::wide(v)) <= -95);
  }
  for (const reference::wide_value& v : reference::logarithms) {
    const double_double got = posenc::math::log(double_double(v.x));
    const binary error = exact(got) - reference::wide(v);
    CAPTURE(v.x);
    CHECK((error.zero() || error.log2_above() <= -95));  // absolute for log
  }
  const double_double one = posenc::math::log(double_double(1));
  CHECK((exact(one).zero() || exact(one).log2_above() <= -95));
  CHECK(posenc::math::exp(double_double(0)).hi == 1);
}

TEST_CASE("double_double: exp and log undo each other, powers are powers", "[math][double_double]") {
  posenc_test::random_source source(23);
  int worst_back = -1000;
  int worst_power = -1000;
  for (int i = 0; i < 100; ++i) {
    const double x = std::ldexp(source.uniform(0.5, 1), static_cast<int>(source.integer(-60, 60)));
    const double_double back = posenc::math::exp(posenc::math::log(double_double(x)));
    worst_back = std::max(worst_back, reference::relative_error_log2(exact(back), binary(x)));
    // (x^(1/7))^7 = x
    const double_double root = posenc::math::power(double_double(x), 1, 7);
    binary product = exact(root);
    for (int k = 1; k < 7; ++k) product = product * exact(root);
    worst_power = std::max(worst_power, reference::relative_error_log2(product, binary(x)));
  }
  // The absolute error of log, 2^-95, is the relative one of exp of it.
  CHECK(worst_back <= -94);
  CHECK(worst_power <= -94);
  CHECK(static_cast<double>(posenc::math::power(double_double(10000), -1, 2)) == 0.01);
}
