// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/simd/exp.hpp>

#include "support/archs.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "support/tolerance.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace simd = posenc::simd;
using posenc_test::archs;
using posenc_test::worst;

namespace {

template <class T, class Arch, class F>
std::vector<T> over(std::vector<T> x, F f) {
  using B = simd::batch<T, Arch>;
  const std::size_t n = x.size();
  while (x.size() % B::size) x.push_back(0);
  for (std::size_t i = 0; i < x.size(); i += B::size) f(B::load_unaligned(x.data() + i)).store_unaligned(x.data() + i);
  x.resize(n);
  return x;
}
template <class T, class Arch>
std::vector<T> exp_of(const std::vector<T>& x) {
  return over<T, Arch>(x, [](const auto& b) { return simd::exp(b); });
}
template <class T, class Arch>
std::vector<T> tanh_of(const std::vector<T>& x) {
  return over<T, Arch>(x, [](const auto& b) { return simd::tanh(b); });
}

/// n values across lo .. hi and as many with small exponents.
template <class T>
std::vector<T> sweep(std::size_t n, double lo, double hi) {
  posenc_test::random_source source(45);
  std::vector<T> x;
  for (std::size_t i = 0; i < n; ++i) {
    const double t = (static_cast<double>(i) + source.uniform(0, 1)) / static_cast<double>(n);
    x.push_back(static_cast<T>(lo + t * (hi - lo)));
    x.push_back(static_cast<T>(std::ldexp(source.uniform(-1, 1), -static_cast<int>(source.integer(0, 30)))));
  }
  return x;
}

template <class T>
constexpr double greatest_argument = std::is_same_v<T, float> ? 88.37 : 709.43;

template <class T, class Arch>
void check_exp() {
  const double lowest = std::log(static_cast<double>(std::numeric_limits<T>::min()));
  const std::vector<T> x = sweep<T>(60000, lowest - 40, greatest_argument<T>);
  const std::vector<T> got = exp_of<T, Arch>(x);
  worst normal;
  worst below;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double right = std::exp(static_cast<long double>(x[i]));
    if (right >= static_cast<long double>(std::numeric_limits<T>::min())) {
      normal.see(posenc_test::ulp_error(got[i], right), x[i]);
    } else {
      below.see(std::fabs(got[i] - right) / static_cast<long double>(std::numeric_limits<T>::min()), x[i]);
    }
  }
  CAPTURE(normal, below);
  CHECK(normal.error <= 2);
  CHECK(below.error < 1);
  constexpr T inf = std::numeric_limits<T>::infinity();
  const std::vector<T> special =
      exp_of<T, Arch>({T(0), -inf, inf, std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::lowest(),
                       std::numeric_limits<T>::max(), T(-0.0), T(greatest_argument<T> + 0.4)});
  CHECK(special[0] == 1);
  CHECK(special[1] == 0);
  CHECK(special[2] == inf);
  CHECK(std::isnan(special[3]));
  CHECK(special[4] == 0);
  CHECK(special[5] == inf);
  CHECK(special[6] == 1);
  CHECK(special[7] > std::numeric_limits<T>::max() / 4);  // infinity, or right
}

template <class T>
constexpr double cut = std::is_same_v<T, float> ? -86.99 : -708.05;

/// Checks exp_nonpositive at x <= 0: within 1.5 ulp above the cut, 0 below, and either of the two in a step around it.
template <class T>
struct nonpositive_errors {
  worst above;
  int not_zero_below = 0;
  int zero_above = 0;
  int subnormal = 0;
  void see(T x, T got, long double right) noexcept {
    const double at = static_cast<double>(x);
    if (at < cut<T> - 0.005) not_zero_below += got != 0 || std::signbit(got);
    if (at > cut<T> + 0.005) zero_above += got == 0;
    if (got == 0) return;
    subnormal += got < std::numeric_limits<T>::min();
    above.see(posenc_test::ulp_error(got, right), static_cast<long double>(x));
  }
  void check() const {
    CAPTURE(above);
    CHECK(above.error <= 1.5L);
    CHECK(not_zero_below == 0);
    CHECK(zero_above == 0);
    CHECK(subnormal == 0);
  }
};

template <class T, class Arch>
std::vector<T> exp_nonpositive_of(const std::vector<T>& x) {
  return over<T, Arch>(x, [](const auto& b) { return simd::exp_nonpositive(b); });
}

/// Every 61st float from -0 down to -104; the exp of double is exact enough to judge them.
template <class Arch>
void check_every_float() {
  constexpr std::uint32_t stride = 61;
  const auto last = std::bit_cast<std::uint32_t>(-104.0f);
  nonpositive_errors<float> errors;
  std::vector<float> x;
  for (std::uint32_t bits = 0x80000000u; bits <= last;) {
    x.clear();
    for (; x.size() < 4096 && bits <= last; bits += stride) x.push_back(std::bit_cast<float>(bits));
    const std::vector<float> got = exp_nonpositive_of<float, Arch>(x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double right = std::exp(static_cast<double>(x[i]));
      // What is normal and rounded right needs no closer look.
      if (got[i] >= std::numeric_limits<float>::min() && got[i] == static_cast<float>(right)) continue;
      errors.see(x[i], got[i], static_cast<long double>(right));
    }
  }
  errors.check();
}

template <class T, class Arch>
void check_nonpositive() {
  nonpositive_errors<T> errors;
  const std::vector<T> x = [] {
    std::vector<T> values = sweep<T>(60000, cut<T> - 40, 0);
    for (T& v : values) v = -std::fabs(v);
    return values;
  }();
  const std::vector<T> got = exp_nonpositive_of<T, Arch>(x);
  for (std::size_t i = 0; i < x.size(); ++i) errors.see(x[i], got[i], std::exp(static_cast<long double>(x[i])));
  errors.check();

  // What rounding may leave above 0 is as exact.
  worst positive;
  const std::vector<T> up = sweep<T>(20000, 0, std::is_same_v<T, float> ? 88 : 709);
  const std::vector<T> raised = exp_nonpositive_of<T, Arch>(up);
  for (std::size_t i = 0; i < up.size(); ++i)
    positive.see(posenc_test::ulp_error(raised[i], std::exp(static_cast<long double>(up[i]))), up[i]);
  CAPTURE(positive);
  CHECK(positive.error <= 1.5L);

  constexpr T inf = std::numeric_limits<T>::infinity();
  const std::vector<T> special = exp_nonpositive_of<T, Arch>(
      {T(-0.0), T(0), -inf, std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::denorm_min(),
       -std::numeric_limits<T>::min(), std::numeric_limits<T>::lowest(), -std::numeric_limits<T>::quiet_NaN(),
       static_cast<T>(cut<T> - 0.005), static_cast<T>(cut<T> + 0.005), T(-1e5), T(-1e10)});
  CHECK(special[0] == 1);
  CHECK(special[1] == 1);
  CHECK(posenc_test::same_bits(special[2], T(0)));
  CHECK(std::isnan(special[3]));
  CHECK(special[4] == 1);
  CHECK(special[5] == 1);
  CHECK(posenc_test::same_bits(special[6], T(0)));
  CHECK(std::isnan(special[7]));
  CHECK(posenc_test::same_bits(special[8], T(0)));
  CHECK(special[9] >= std::numeric_limits<T>::min());
  CHECK(special[9] < T(1.5) * std::numeric_limits<T>::min());
  CHECK(posenc_test::same_bits(special[10], T(0)));
  CHECK(posenc_test::same_bits(special[11], T(0)));
}

template <class T, class Arch>
void check_tanh() {
  const std::vector<T> x = sweep<T>(60000, -25, 25);
  const std::vector<T> got = tanh_of<T, Arch>(x);
  worst w;
  int outside = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    w.see(posenc_test::ulp_error(got[i], std::tanh(static_cast<long double>(x[i]))), x[i]);
    outside += std::fabs(got[i]) > 1;
  }
  CAPTURE(w);
  CHECK(w.error <= 2);
  CHECK(outside == 0);
  constexpr T inf = std::numeric_limits<T>::infinity();
  const std::vector<T> special =
      tanh_of<T, Arch>({T(0), -inf, inf, std::numeric_limits<T>::quiet_NaN(), T(1e30), T(-1e30),
                        std::numeric_limits<T>::denorm_min(), std::numeric_limits<T>::min()});
  CHECK(special[0] == 0);
  CHECK(special[1] == -1);
  CHECK(special[2] == 1);
  CHECK(std::isnan(special[3]));
  CHECK(special[4] == 1);
  CHECK(special[5] == -1);
  CHECK(std::fabs(special[6]) <= 2 * std::numeric_limits<T>::denorm_min());
  CHECK(posenc_test::ulp_error(special[7], static_cast<long double>(std::numeric_limits<T>::min())) <= 2);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("exp: at most 2 ulp where the result is normal", "[simd][exp]", archs) {
  check_exp<float, TestType>();
  check_exp<double, TestType>();
}

TEMPLATE_LIST_TEST_CASE("exp: of x <= 0 at most 1.5 ulp, then exactly 0", "[simd][exp]", archs) {
  check_nonpositive<float, TestType>();
  check_nonpositive<double, TestType>();
}

TEMPLATE_LIST_TEST_CASE("exp: of x <= 0, every 61st float", "[simd][exp]", archs) { check_every_float<TestType>(); }

TEMPLATE_LIST_TEST_CASE("exp: tanh is off by at most 2 ulp", "[simd][exp]", archs) {
  check_tanh<float, TestType>();
  check_tanh<double, TestType>();
}
