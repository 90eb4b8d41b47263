// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/eigen.hpp>
#include <posenc/simd/memory.hpp>

#include "reference/rounding.hpp"
#include "support/archs.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "support/tolerance.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace simd = posenc::simd;
using posenc_test::archs;
using posenc_test::same_bits;

namespace {

template <class S>
constexpr reference::small_format format_of_type =
    posenc::format_of<S> == posenc::format::binary16 ? reference::binary16 : reference::bfloat16;

/// Every pattern, wherever it stands in a batch.
template <class S, class Arch>
void check_every_pattern() {
  constexpr std::uint32_t w = simd::width<float, Arch>;
  int wrong_loads = 0;
  int wrong_stores = 0;
  int lost_nans = 0;
  for (std::uint32_t first = 0; first < 65536; first += w) {
    S in[posenc_test::best_arch::instructions::alignment()];
    for (std::uint32_t i = 0; i < w; ++i) in[i] = std::bit_cast<S>(static_cast<std::uint16_t>(first + i));
    const auto x = simd::load<Arch>(static_cast<const S*>(in));
    float wide[w];
    x.store_unaligned(wide);
    S out[w];
    simd::store<Arch>(static_cast<S*>(out), x);
    for (std::uint32_t i = 0; i < w; ++i) {
      const double right = reference::decode(format_of_type<S>, static_cast<std::uint16_t>(first + i));
      if (std::isnan(right)) {
        lost_nans += !std::isnan(wide[i]) || !std::isnan(posenc::widen(out[i]));
      } else {
        wrong_loads += !same_bits(static_cast<double>(wide[i]), right);
        wrong_stores += !same_bits(out[i], in[i]);
      }
    }
  }
  CHECK(wrong_loads == 0);
  CHECK(wrong_stores == 0);
  CHECK(lost_nans == 0);
}

/// Midpoints of all neighbours and the floats around them, and random bits.
template <class S, class Arch>
void check_rounding() {
  constexpr std::size_t w = simd::width<float, Arch>;
  std::vector<float> inputs;
  for (std::uint32_t b = 0; b < 0x7fff; b += 3) {
    const double low = reference::decode(format_of_type<S>, static_cast<std::uint16_t>(b));
    const double high = reference::decode(format_of_type<S>, static_cast<std::uint16_t>(b + 1));
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const auto middle = static_cast<float>((low + high) / 2);
    for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)}) {
      inputs.push_back(x);
      inputs.push_back(-x);
    }
  }
  posenc_test::random_source source(43);
  for (int i = 0; i < 100000; ++i) inputs.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(source.bits())));
  for (const float x : {65519.99f, 65520.0f, 3.4e38f, 1e-45f, 0x1p-25f, 0x1.000002p-25f, INFINITY}) {
    inputs.push_back(x);
    inputs.push_back(-x);
  }
  while (inputs.size() % w) inputs.push_back(0);
  int wrong = 0;
  int differ_from_narrow = 0;
  for (std::size_t i = 0; i < inputs.size(); i += w) {
    S out[w];
    simd::store<Arch>(static_cast<S*>(out), simd::batch<float, Arch>::load_unaligned(inputs.data() + i));
    for (std::size_t j = 0; j < w; ++j) {
      const float x = inputs[i + j];
      if (std::isnan(x)) {
        wrong += !std::isnan(posenc::widen(out[j]));
        continue;
      }
      wrong += std::bit_cast<std::uint16_t>(out[j]) != reference::encode(format_of_type<S>, static_cast<double>(x));
      differ_from_narrow += !same_bits(out[j], posenc::narrow<S>(x));
    }
  }
  CHECK(wrong == 0);
  CHECK(differ_from_narrow == 0);
}

/// A batch at every misalignment; nothing outside it is written.
template <class S, class Arch>
void check_misaligned() {
  constexpr std::size_t w = static_cast<std::size_t>(simd::width<posenc::compute_t<S>, Arch>);
  int wrong = 0;
  for (std::size_t shift = 0; shift < 64 / sizeof(S); ++shift) {
    posenc_test::guarded<S> in(w, shift);
    posenc_test::guarded<S> out(w, (shift + 5) % 11);
    in.fill(posenc_test::random_values<S>(w, shift + 1));
    simd::store<Arch>(out.data(), simd::load<Arch>(static_cast<const S*>(in.data())));
    wrong += !same_bits(in.data(), out.data(), w) || !out.intact() || !in.intact();
  }
  CHECK(wrong == 0);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("memory: every 16-bit pattern loads exactly and stores back", "[simd][memory]", archs) {
  check_every_pattern<Eigen::half, TestType>();
  check_every_pattern<Eigen::bfloat16, TestType>();
}

TEMPLATE_LIST_TEST_CASE("memory: stores round once, ties to even, like narrow", "[simd][memory]", archs) {
  check_rounding<Eigen::half, TestType>();
  check_rounding<Eigen::bfloat16, TestType>();
}

TEMPLATE_LIST_TEST_CASE("memory: any alignment will do", "[simd][memory]", archs) {
  check_misaligned<float, TestType>();
  check_misaligned<double, TestType>();
  check_misaligned<Eigen::half, TestType>();
  check_misaligned<Eigen::bfloat16, TestType>();
}

TEMPLATE_LIST_TEST_CASE("memory: doubles are rounded once to float", "[simd][memory]", archs) {
  constexpr std::size_t w = simd::width<double, TestType>;
  posenc_test::random_source source(44);
  int wrong = 0;
  for (int round = 0; round < 2000; ++round) {
    double x[w];
    for (double& v : x) v = std::bit_cast<double>(source.bits() & ~(std::uint64_t{3} << 61));
    if (round % 2)
      for (double& v : x) v = std::ldexp(source.uniform(-1, 1), static_cast<int>(source.integer(-150, 128)));
    const auto b = simd::batch<double, TestType>::load_unaligned(static_cast<const double*>(x));
    posenc_test::guarded<float> rounded(w, static_cast<std::size_t>(round % 16));
    posenc_test::guarded<double> same(w, static_cast<std::size_t>(round % 8));
    simd::store_rounded<TestType>(rounded.data(), b);
    simd::store_rounded<TestType>(same.data(), b);
    for (std::size_t i = 0; i < w; ++i) wrong += rounded[i] != static_cast<float>(x[i]) || same[i] != x[i];
    wrong += !rounded.intact() || !same.intact();
  }
  CHECK(wrong == 0);
}
