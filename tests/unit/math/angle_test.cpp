// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/math/angle.hpp>
#include <posenc/math/frequencies.hpp>

#include "reference/angle.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "support/tolerance.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

using posenc::math::double_double;
using posenc::math::phase;
using posenc::math::turns;
using reference::binary;

namespace {

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

/// Signed distance of two phases around the circle, in units of 2^-64 turns.
long double apart(std::uint64_t got, const reference::exact_phase& right) {
  return static_cast<long double>(static_cast<std::int64_t>(got - right.units)) -
         std::ldexp(static_cast<long double>(right.below), -64);
}

std::vector<std::int64_t> test_positions() {
  std::vector<std::int64_t> out{0,
                                1,
                                -1,
                                2,
                                3,
                                1000,
                                4095,
                                131071,
                                1000000,
                                (1 << 24) + 1,
                                1000000000,
                                -1000000000,
                                std::int64_t{1} << 40,
                                lowest,
                                highest,
                                lowest + 1};
  posenc_test::random_source source(31);
  for (int i = 0; i < 20; ++i) out.push_back(source.integer(-1000000000, 1000000000));
  for (int i = 0; i < 6; ++i) out.push_back(source.integer(lowest, highest));
  return out;
}

}  // namespace

TEST_CASE("angle: a phase is off by at most |p| 2^-65 turns, at every int64", "[math][angle]") {
  posenc_test::worst worst;  // in units of what is allowed
  for (const reference::ladder_values& l : reference::ladders) {
    const auto f = posenc::math::ladder(l.base, l.dim / 2, l.dim / 2);
    for (std::size_t i = 0; i < f.size(); ++i) {
      const turns t(f[i]);
      const binary right = reference::wide(l.values[i]);
      for (const std::int64_t p : test_positions()) {
        const long double allowed = 0.5L * std::fabs(static_cast<long double>(p)) * (1 + 0x1p-20L);
        // Half a turn, 2^63 units, is as far apart as phases get: extremes of int64 say nothing here.
        const long double error = std::fabs(apart(phase(t, p), reference::phase_of(right, reference::integer(p))));
        worst.see(allowed == 0 ? (error == 0 ? 0.0L : INFINITY) : error / allowed, static_cast<long double>(p));
      }
    }
  }
  CAPTURE(worst);
  CHECK(worst.error <= 1);
}

TEST_CASE("angle: the step is the nearest multiple of 2^-64 turns", "[math][angle]") {
  posenc_test::random_source source(32);
  posenc_test::worst worst;
  std::vector<double> frequencies{1,
                                  1e-4,
                                  2e-6,
                                  0.5,
                                  6.283185307179586,
                                  6.283185307179587,
                                  3.141592653589793,
                                  100,
                                  1e6,
                                  -1,
                                  -0.001,
                                  -6.283185307179586,
                                  1e-15,
                                  0x1p-70,
                                  0};
  for (int i = 0; i < 3000; ++i)
    frequencies.push_back((source.bits() & 1 ? 1 : -1) * std::exp2(source.uniform(-40, 10)));
  for (const double f : frequencies) {
    const turns t{double_double(f)};
    worst.see(std::fabs(apart(t.fraction, reference::phase_of(binary(f), binary(1)))), static_cast<long double>(f));
  }
  CAPTURE(worst);
  // Half a unit, and what 106 bits of f / (2 pi) leave below one unit when f is large.
  CHECK(worst.error <= 0.5L + 0x1p-20L);
}

TEST_CASE("angle: phases add up and wrap", "[math][angle]") {
  posenc_test::random_source source(33);
  const turns t{double_double(0.7)};
  int wrong = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t a = source.integer(-(std::int64_t{1} << 61), std::int64_t{1} << 61);
    const std::int64_t b = source.integer(-(std::int64_t{1} << 61), std::int64_t{1} << 61);
    wrong += phase(t, a) + phase(t, b) != phase(t, a + b);
    wrong += phase(t, -a) != std::uint64_t{0} - phase(t, a);
    wrong += phase(t, a + 1) != phase(t, a) + t.fraction;
  }
  CHECK(wrong == 0);
  CHECK(phase(t, std::int64_t{0}) == 0);
}

TEST_CASE("angle: real positions are reduced from 106 bits", "[math][angle]") {
  posenc_test::random_source source(34);
  posenc_test::worst small;
  posenc_test::worst large;
  const auto error = [](double f, double p) {
    return std::fabs(apart(phase(turns(double_double(f)), p), reference::phase_of(binary(f), binary(p))));
  };
  for (int i = 0; i < 3000; ++i) {
    const double f = std::exp2(source.uniform(-20, 1));
    small.see(error(f, source.uniform(-4096, 4096)), i);
    large.see(error(f, source.uniform(-1e9, 1e9)), i);
    large.see(error(f, std::nearbyint(source.uniform(-1e9, 1e9))), i);
  }
  for (const double p : {0.0, -0.0, 0.5, -0.5, 1e-12, 1e9, -1e9, 1e-300})
    large.see(error(1.0, p), static_cast<long double>(p));
  CAPTURE(small, large);
  // Units of 2^-64 turns: the result is even, so up to 2; the product keeps 2^-104 of up to 3e8 turns.
  CHECK(small.error <= 2.5L);
  CHECK(large.error <= 2.5L);
}

TEST_CASE("angle: a whole real position is the integer one", "[math][angle]") {
  posenc_test::random_source source(35);
  posenc_test::worst worst;
  for (const double f : {1.0, 0.1, 1e-4, 0.0031622776601683794}) {
    const turns t{double_double(f)};
    for (int i = 0; i < 500; ++i) {
      const std::int64_t p = source.integer(-1000000, 1000000);
      const auto gap = static_cast<std::int64_t>(phase(t, p) - phase(t, static_cast<double>(p)));
      worst.see(std::fabs(static_cast<long double>(gap)), static_cast<long double>(p));
    }
  }
  CAPTURE(worst);
  CHECK(worst.error <= 500003);  // |p| / 2 units from the rounded step, 2 from the real one
}

TEST_CASE("angle: radians of a phase", "[math][angle]") {
  posenc_test::random_source source(36);
  constexpr double pi = 3.141592653589793;
  CHECK(posenc::math::radians(0) == 0);
  CHECK(posenc::math::radians(std::uint64_t{1} << 63) == -pi);
  CHECK(posenc::math::radians(std::uint64_t{1} << 62) == pi / 2);
  CHECK(posenc::math::radians(std::uint64_t{3} << 62) == -pi / 2);
  posenc_test::worst worst;
  int outside = 0;
  for (int i = 0; i < 10000; ++i) {
    const std::uint64_t p = source.bits() >> (i % 60);
    const double got = posenc::math::radians(p);
    outside += got < -pi || got > pi;
    const long double right = std::ldexp(static_cast<long double>(static_cast<std::int64_t>(p)), -64) *
                              6.283185307179586476925286766559005768L;
    worst.see(posenc_test::ulp_error(got, right), static_cast<long double>(p));
  }
  CHECK(outside == 0);
  CAPTURE(worst);
  CHECK(worst.error <= 2);
}

TEST_CASE("angle: cos and sin of a phase are off by at most 2^-52", "[math][angle]") {
  posenc_test::random_source source(37);
  posenc_test::worst worst;
  for (int i = 0; i < 100000; ++i) {
    std::uint64_t p = source.bits();
    if (i % 4 == 0) p = (static_cast<std::uint64_t>(i) << 61) + (source.bits() >> 50) - (source.bits() >> 50);
    const auto got = posenc::math::cos_sin(p);
    const auto right = reference::cosine_sine_of({p, 0});
    worst.see(std::fabs(got.cos - right.cos), static_cast<long double>(p));
    worst.see(std::fabs(got.sin - right.sin), static_cast<long double>(p));
  }
  CAPTURE(worst);
  CHECK(worst.error <= 0x1p-52L);
  for (std::uint64_t quarter = 0; quarter < 4; ++quarter) {
    const auto got = posenc::math::cos_sin(quarter << 62);
    CHECK(got.cos == (quarter == 0 ? 1.0 : quarter == 2 ? -1.0 : 0.0));
    CHECK(got.sin == (quarter == 1 ? 1.0 : quarter == 3 ? -1.0 : 0.0));
  }
}

TEST_CASE("angle: the float32 angle is one float product of two floats", "[math][angle]") {
  posenc_test::random_source source(38);
  int wrong = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto p = static_cast<double>(source.integer(-200000000, 200000000));
    const auto f = static_cast<float>(source.uniform(0, 1));
    // The exact product has 48 bits: one rounding from double.
    const auto right = static_cast<float>(static_cast<double>(static_cast<float>(p)) * static_cast<double>(f));
    wrong += !posenc_test::same_bits(posenc::math::float32_angle(p, f), right);
  }
  CHECK(wrong == 0);
  // 2^24 + 1 is no float.
  CHECK(posenc::math::float32_angle(16777217.0, 1.0f) == 16777216.0f);
  CHECK(std::bit_cast<std::uint32_t>(posenc::math::float32_angle(131071.0, 0.1f)) == 0x464ccc67u);
}
