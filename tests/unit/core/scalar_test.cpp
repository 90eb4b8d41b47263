// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/eigen.hpp>
#include <posenc/core/scalar.hpp>

#include "reference/rounding.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "support/tolerance.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

using posenc_test::same_bits;

namespace {

template <class T>
constexpr reference::small_format format_of_type =
    posenc::format_of<T> == posenc::format::binary16 ? reference::binary16 : reference::bfloat16;

template <class T>
T from_bits(std::uint16_t bits) {
  return std::bit_cast<T>(bits);
}
template <class T>
std::uint16_t bits_of(const T& x) {
  return std::bit_cast<std::uint16_t>(x);
}

}  // namespace

TEMPLATE_TEST_CASE("scalar: all 65536 patterns widen exactly and narrow back to themselves", "[core][scalar]",
                   Eigen::half, Eigen::bfloat16) {
  int wrong_values = 0;
  int differ_from_eigen = 0;
  int wrong_round_trips = 0;
  int wrong_from_double = 0;
  for (std::uint32_t b = 0; b < 65536; ++b) {
    const auto bits = static_cast<std::uint16_t>(b);
    const auto stored = from_bits<TestType>(bits);
    const float wide = posenc::widen(stored);
    const double right = reference::decode(format_of_type<TestType>, bits);
    if (std::isnan(right)) {
      wrong_values += !std::isnan(wide);
      wrong_round_trips += !std::isnan(posenc::widen(posenc::narrow<TestType>(wide)));
      wrong_from_double += !std::isnan(posenc::widen(posenc::narrow<TestType>(right)));
      continue;
    }
    wrong_values += !same_bits(static_cast<double>(wide), right);
    differ_from_eigen += !same_bits(wide, static_cast<float>(stored));
    wrong_round_trips += bits_of(posenc::narrow<TestType>(wide)) != bits;
    wrong_from_double += bits_of(posenc::narrow<TestType>(right)) != bits;
  }
  CHECK(wrong_values == 0);
  CHECK(differ_from_eigen == 0);
  CHECK(wrong_round_trips == 0);
  CHECK(wrong_from_double == 0);
}

TEMPLATE_TEST_CASE("scalar: narrow of a float is the nearest pattern, ties to even", "[core][scalar]", Eigen::half,
                   Eigen::bfloat16) {
  const auto f = format_of_type<TestType>;
  int wrong = 0;
  int differ_from_eigen = 0;
  const auto see = [&](float x) {
    const std::uint16_t got = bits_of(posenc::narrow<TestType>(x));
    wrong += got != reference::encode(f, static_cast<double>(x));
    differ_from_eigen += got != bits_of(static_cast<TestType>(x));
  };
  // Every midpoint between neighbours, and the floats on both sides of it.
  for (std::uint32_t b = 0; b < 0x7fff; ++b) {
    const double low = reference::decode(f, static_cast<std::uint16_t>(b));
    const double high = reference::decode(f, static_cast<std::uint16_t>(b + 1));
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const auto middle = static_cast<float>((low + high) / 2);
    for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)}) {
      see(x);
      see(-x);
    }
  }
  posenc_test::random_source source(5);
  for (int i = 0; i < 200000; ++i) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(source.bits()));
    if (!std::isnan(x)) see(x);
  }
  see(65519.0f);
  see(65520.0f);
  see(std::numeric_limits<float>::max());
  see(std::numeric_limits<float>::denorm_min());
  CHECK(wrong == 0);
  CHECK(differ_from_eigen == 0);
}

TEMPLATE_TEST_CASE("scalar: narrow of a double rounds once, also where two roundings go wrong", "[core][scalar]",
                   Eigen::half, Eigen::bfloat16) {
  const auto f = format_of_type<TestType>;
  int wrong = 0;
  int twice_goes_wrong = 0;
  const auto see = [&](double x) {
    const std::uint16_t right = reference::encode(f, x);
    wrong += bits_of(posenc::narrow<TestType>(x)) != right;
    twice_goes_wrong += bits_of(posenc::narrow<TestType>(static_cast<float>(x))) != right;
  };
  // Doubles a little off the midpoint between two neighbours: as floats they are the midpoint itself.
  for (std::uint32_t b = 0; b < 0x7fff; ++b) {
    const double low = reference::decode(f, static_cast<std::uint16_t>(b));
    const double high = reference::decode(f, static_cast<std::uint16_t>(b + 1));
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const double middle = (low + high) / 2;
    for (const double x : {middle, std::nextafter(middle, 0.0), std::nextafter(middle, INFINITY),
                           middle * (1 + 0x1p-40), middle * (1 - 0x1p-40)}) {
      see(x);
      see(-x);
    }
  }
  posenc_test::random_source source(6);
  for (int i = 0; i < 200000; ++i) {
    const auto x = std::bit_cast<double>(source.bits());
    if (!std::isnan(x)) see(x);
    see(std::ldexp(source.uniform(-2, 2), static_cast<int>(source.integer(-30, 18))));
  }
  // Beyond the range of float, on both sides.
  for (const double x : {1e39, 1e308, 0x1.fffffefp127, 0x1.fefp127, 1e-46, 1e-308, 5e-324, 0x1p-25, 0x1.0000001p-25,
                         0x1p-134, 0x1.0000001p-134, 65519.999, 65520.0}) {
    see(x);
    see(-x);
  }
  CHECK(wrong == 0);
  // The cases are hard: rounding to float first gets thousands of them wrong.
  CHECK(twice_goes_wrong > 10000);
}

TEST_CASE("scalar: zero keeps its sign, infinities stay, integers are exact", "[core][scalar]") {
  CHECK(bits_of(posenc::narrow<Eigen::half>(-0.0)) == 0x8000);
  CHECK(bits_of(posenc::narrow<Eigen::half>(-0.0f)) == 0x8000);
  CHECK(bits_of(posenc::narrow<Eigen::bfloat16>(-INFINITY)) == 0xff80);
  CHECK(bits_of(posenc::narrow<Eigen::half>(2048)) == 0x6800);
  CHECK(posenc::narrow<float>(0.1) == 0.1f);
  CHECK(posenc::narrow<double>(0.1f) == static_cast<double>(0.1f));
  CHECK(posenc::narrow<long double>(0.5) == 0.5L);
  CHECK(posenc::widen(2.5f) == 2.5f);
}

namespace {
struct my_half {
  std::uint16_t bits;
};
}  // namespace
template <>
struct posenc::storage_traits<my_half> {
  static constexpr auto kind = posenc::format::binary16;
};

TEST_CASE("scalar: a 16-bit type of one's own takes part through storage_traits", "[core][scalar]") {
  STATIC_REQUIRE(posenc::simd_storage<my_half>);
  STATIC_REQUIRE(std::is_same_v<posenc::compute_t<my_half>, float>);
  CHECK(posenc::widen(my_half{0x3c00}) == 1.0f);
  CHECK(posenc::narrow<my_half>(-2.0).bits == 0xc000);
}
