// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/simd/sincos.hpp>

#include "reference/angle.hpp"
#include "support/archs.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "support/tolerance.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace simd = posenc::simd;
using posenc_test::archs;
using posenc_test::worst;

namespace {

template <class Arch>
struct values {
  static constexpr std::size_t width = simd::batch<std::uint64_t, Arch>::size;
  double cos[width];
  double sin[width];
  explicit values(const std::uint64_t* phases) {
    const auto [c, s] = simd::cos_sin_of_phase(simd::batch<std::uint64_t, Arch>::load_unaligned(phases));
    c.store_unaligned(cos);
    s.store_unaligned(sin);
  }
};

}  // namespace

TEMPLATE_LIST_TEST_CASE("sincos: of a phase, 4.5e-16 over the whole circle", "[simd][sincos]", archs) {
  constexpr std::size_t w = values<TestType>::width;
  posenc_test::random_source source(46);
  worst error;
  for (int round = 0; round < 30000; ++round) {
    std::uint64_t phases[w];
    for (std::size_t i = 0; i < w; ++i) {
      phases[i] = source.bits();
      // Close to the borders of the octants, where the polynomials end.
      if (round % 3 == 0) phases[i] = (source.bits() << 61) + (source.bits() >> 48) - (source.bits() >> 48);
      if (round % 3 == 1) phases[i] = source.bits() >> source.integer(0, 63);
    }
    const values<TestType> got(phases);
    for (std::size_t i = 0; i < w; ++i) {
      const auto right = reference::cosine_sine_of({phases[i], 0});
      error.see(std::fabs(got.cos[i] - right.cos), static_cast<long double>(phases[i]));
      error.see(std::fabs(got.sin[i] - right.sin), static_cast<long double>(phases[i]));
    }
  }
  CAPTURE(error);
  CHECK(error.error <= 4.5e-16L);
}

TEMPLATE_LIST_TEST_CASE("sincos: multiples of a quarter turn are exact", "[simd][sincos]", archs) {
  for (std::uint64_t quarter = 0; quarter < 4; ++quarter) {
    const std::vector<std::uint64_t> phases(values<TestType>::width, quarter << 62);
    const values<TestType> got(phases.data());
    CHECK(got.cos[0] == (quarter == 0 ? 1.0 : quarter == 2 ? -1.0 : 0.0));
    CHECK(got.sin[0] == (quarter == 1 ? 1.0 : quarter == 3 ? -1.0 : 0.0));
  }
}

TEMPLATE_LIST_TEST_CASE("sincos: every lane gets its own quadrant", "[simd][sincos]", archs) {
  constexpr std::size_t w = values<TestType>::width;
  posenc_test::random_source source(47);
  worst error;
  for (std::uint64_t start = 0; start < 8; ++start) {
    std::uint64_t phases[w];
    for (std::size_t i = 0; i < w; ++i) phases[i] = ((start + 3 * i) << 61) + (source.bits() >> 4);
    const values<TestType> got(phases);
    for (std::size_t i = 0; i < w; ++i) {
      const auto right = reference::cosine_sine_of({phases[i], 0});
      error.see(std::fabs(got.cos[i] - right.cos), i);
      error.see(std::fabs(got.sin[i] - right.sin), i);
    }
  }
  CHECK(error.error <= 4.5e-16L);
}

namespace {

template <class T, class Arch>
worst facade_error() {
  using B = simd::batch<T, Arch>;
  posenc_test::random_source source(48);
  worst error;
  T x[B::size];
  T sine[B::size];
  T cosine[B::size];
  for (int round = 0; round < 20000; ++round) {
    for (T& v : x) {
      v = static_cast<T>(source.uniform(-8192, 8192));
      if (round % 4 == 0) v = static_cast<T>(std::nearbyint(source.uniform(-5215, 5215)) * 1.5707963267948966);
      if (round % 4 == 1) v = static_cast<T>(source.uniform(-1, 1));
    }
    const auto [s, c] = simd::sincos(B::load_unaligned(x));
    s.store_unaligned(sine);
    c.store_unaligned(cosine);
    for (std::size_t i = 0; i < B::size; ++i) {
      error.see(std::fabs(sine[i] - std::sin(static_cast<long double>(x[i]))), x[i]);
      error.see(std::fabs(cosine[i] - std::cos(static_cast<long double>(x[i]))), x[i]);
    }
  }
  return error;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("sincos: of radians, on its domain", "[simd][sincos]", archs) {
  const worst single = facade_error<float, TestType>();
  const worst wide = facade_error<double, TestType>();
  CAPTURE(single, wide);
  CHECK(single.error <= 1e-7L);
  CHECK(wide.error <= 2.5e-16L);
}
