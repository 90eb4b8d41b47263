// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/encoders/rope.hpp>

#include <limits>

using posenc::rope_options;
using posenc_test::refusal;

namespace {
std::string refused(const rope_options& o) {
  return refusal([&] { posenc::rope<float>{o}; });
}
std::int64_t rotary_dim(const rope_options& o) { return posenc::rope<float>{o}.rotary_dim(); }
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();
}  // namespace

TEST_CASE("rope options: defaults", "[rope]") {
  const rope_options o;
  CHECK(o.partial_rotary_factor == 1);
  CHECK(o.offset == 0);
  CHECK(o.base == 10000);
  CHECK(o.layout == posenc::half_split);
  CHECK(std::holds_alternative<posenc::no_scaling>(o.scaling));
  CHECK(o.attention_factor == 1);
  CHECK(o.angles == posenc::angle_mode::exact);
  CHECK(rotary_dim({.head_dim = 128}) == 128);
}

TEST_CASE("rope options: the factor's product is truncated, not rounded", "[rope]") {
  CHECK(100 * 0.29 < 29);  // 28.999999999999996: a truncation gives 28, a rounding 29
  CHECK(rotary_dim({.head_dim = 100, .partial_rotary_factor = 0.29}) == 28);
  CHECK(refused({.head_dim = 200, .partial_rotary_factor = 0.57}) ==
        "posenc::rope: rotary_dim must be even and at least 2, got 113");
}

TEST_CASE("rope options: rotary dims in the wild", "[rope]") {
  CHECK(rotary_dim({.head_dim = 96, .partial_rotary_factor = 0.25}) == 24);  // GPT-NeoX 20B
  CHECK(rotary_dim({.head_dim = 256, .rotary_dim = 64}) == 64);              // GPT-J
  CHECK(rotary_dim({.head_dim = 128, .partial_rotary_factor = 0.5}) == 64);  // GLM
  // rotary_dim, where given, wins.
  CHECK(rotary_dim({.head_dim = 128, .rotary_dim = 32, .partial_rotary_factor = 0.5}) == 32);
  CHECK(rotary_dim({.head_dim = 5, .rotary_dim = 2, .offset = 3}) == 2);
}

TEST_CASE("rope options: what is refused, and how", "[rope]") {
  CHECK(refused({.head_dim = 0}) == "posenc::rope: head_dim must be at least 1, got 0");
  CHECK(refused({.head_dim = -8}) == "posenc::rope: head_dim must be at least 1, got -8");
  // Odd and too small dims.
  CHECK(refused({.head_dim = 1}) == "posenc::rope: rotary_dim must be even and at least 2, got 1");
  CHECK(refused({.head_dim = 3}) == "posenc::rope: rotary_dim must be even and at least 2, got 3");
  CHECK(refused({.head_dim = 25}) == "posenc::rope: rotary_dim must be even and at least 2, got 25");
  CHECK(refused({.head_dim = 8, .rotary_dim = 0}) == "posenc::rope: rotary_dim must be even and at least 2, got 0");
  CHECK(refused({.head_dim = 8, .rotary_dim = -2}) == "posenc::rope: rotary_dim must be even and at least 2, got -2");
  CHECK(refused({.head_dim = 8, .partial_rotary_factor = 0.1}) ==
        "posenc::rope: rotary_dim must be even and at least 2, got 0");
  // Factors.
  for (const double bad : {0.0, -0.5, 1.5, not_a_number, infinity})
    CHECK(refused({.head_dim = 8, .partial_rotary_factor = bad}).find("partial_rotary_factor must lie in (0, 1]") !=
          std::string::npos);
  for (const double bad : {0.0, -1.0, not_a_number, infinity}) {
    CHECK(refused({.head_dim = 8, .attention_factor = bad}).find("attention_factor must be positive and finite") !=
          std::string::npos);
    CHECK(refused({.head_dim = 8, .scaling = posenc::linear{bad}}).find("scaling.factor must be positive and finite") !=
          std::string::npos);
  }
  for (const double bad : {0.0, 1.0, -1e4, not_a_number, infinity})
    CHECK(refused({.head_dim = 8, .base = bad}).find("base must be positive, finite and not 1") != std::string::npos);
  // The block.
  CHECK(refused({.head_dim = 8, .rotary_dim = 4, .offset = -1}) == "posenc::rope: offset must not be negative, got -1");
  CHECK(refused({.head_dim = 8, .rotary_dim = 4, .offset = 5}) ==
        "posenc::rope: offset + rotary_dim must not exceed head_dim, got 9");
  CHECK(refused({.head_dim = 8, .rotary_dim = 10}) ==
        "posenc::rope: offset + rotary_dim must not exceed head_dim, got 10");
  CHECK(refused({.head_dim = 8, .inv_freq = {1, 2, 3}}) ==
        "posenc::rope: inv_freq must list one frequency per pair (rotary_dim / 2), got 3");
  CHECK(refused({.head_dim = 4, .inv_freq = {1, not_a_number}}).find("inv_freq must be finite") != std::string::npos);
}

TEST_CASE("rope options: frequencies", "[rope]") {
  const posenc::rope<float> plain{{.head_dim = 8}};
  CHECK(plain.inv_freq()[1] == Approx(0.1).epsilon(1e-16));
  CHECK(plain.inv_freq()[3] == Approx(0.001).epsilon(1e-16));
  // Exponents follow rotary_dim, not head_dim.
  CHECK(posenc::rope<float>{{.head_dim = 32, .rotary_dim = 8}}.inv_freq() == plain.inv_freq());
  const posenc::rope<float> slower{{.head_dim = 8, .scaling = posenc::linear{4}}};
  for (std::size_t i = 0; i < 4; ++i) CHECK(slower.inv_freq()[i] == plain.inv_freq()[i] / 4);

  const posenc::rope<float> given{{.head_dim = 8, .scaling = posenc::linear{2}, .inv_freq = {3, 0, -0.25, 1e-9}}};
  CHECK(given.inv_freq() == std::vector<double>{1.5, 0, -0.125, 5e-10});
  double c[4];
  double s[4];
  given.cos_sin(2, c, s);
  CHECK(s[0] == Approx(std::sin(3.0)).margin(2e-15));
  CHECK(c[1] == 1);
  CHECK(s[1] == 0);
  CHECK(s[2] == Approx(std::sin(-0.25)).margin(2e-15));
}

TEST_CASE("rope options: float32 frequencies", "[rope]") {
  using posenc::angle_mode;
  using posenc::detail::rope_float32_frequencies;
  const rope_options trained{.head_dim = 128, .base = 5e5, .scaling = posenc::linear{3}, .angles = angle_mode::float32};
  const auto f = rope_float32_frequencies(trained, 128);
  REQUIRE(f.size() == 64);
  for (std::size_t i = 0; i < 64; ++i) {
    const float exponent = static_cast<float>(2 * i) / 128.0f;
    const float power = static_cast<float>(std::pow(5e5, static_cast<double>(exponent)));
    CHECK(f[i] == (1.0f / power) / 3.0f);
  }
  // Rounded once from the exact ones.
  const auto rounded = rope_float32_frequencies({.head_dim = 128, .angles = angle_mode::float32_rounded_inv_freq}, 128);
  for (std::size_t i = 0; i < 64; ++i)
    CHECK(rounded[i] == static_cast<float>(std::pow(10000.0L, -static_cast<long double>(i) / 64)));
  // A given list is rounded to float in either mode.
  const auto given =
      rope_float32_frequencies({.head_dim = 4, .inv_freq = {0.1, 0.3}, .angles = angle_mode::float32}, 4);
  CHECK(given == std::vector<float>{0.1f, 0.3f});
}
