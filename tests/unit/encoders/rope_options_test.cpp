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
  CHECK(!o.attention_factor);
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
    CHECK(refused({.head_dim = 8, .scaling = posenc::linear{bad}})
              .find("posenc::linear: factor must be positive and finite") != std::string::npos);
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
        "posenc::rope: inv_freq must list one frequency per pair (rotary_dim / 2) of each set, got 3");
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
  CHECK(s[0] == Approx(std::sin(3.0)).epsilon(0).margin(2e-15));
  CHECK(c[1] == 1);
  CHECK(s[1] == 0);
  CHECK(s[2] == Approx(std::sin(-0.25)).epsilon(0).margin(2e-15));
}

TEST_CASE("rope options: float32 frequencies", "[rope]") {
  using posenc::angle_mode;
  const posenc::rope<float> trained{
      {.head_dim = 128, .base = 5e5, .scaling = posenc::linear{3}, .angles = angle_mode::float32}};
  const auto f = trained.float32_inv_freq();
  REQUIRE(f.size() == 64);
  for (std::size_t i = 0; i < 64; ++i) {
    const float exponent = static_cast<float>(2 * i) / 128.0f;
    const float power = static_cast<float>(std::pow(5e5, static_cast<double>(exponent)));
    CHECK(f[i] == (1.0f / power) / 3.0f);
  }
  // Rounded once from the exact ones.
  const posenc::rope<float> once{{.head_dim = 128, .angles = angle_mode::float32_rounded_inv_freq}};
  for (std::size_t i = 0; i < 64; ++i)
    CHECK(once.float32_inv_freq()[i] == static_cast<float>(std::pow(10000.0L, -static_cast<long double>(i) / 64)));
  // A given list is rounded to float in either mode.
  for (const auto mode : {angle_mode::float32, angle_mode::float32_rounded_inv_freq}) {
    const posenc::rope<float> given{{.head_dim = 4, .inv_freq = {0.1, 0.3}, .angles = mode}};
    CHECK(given.float32_inv_freq() == std::vector<float>{0.1f, 0.3f});
  }
  CHECK(posenc::rope<float>{{.head_dim = 4}}.float32_inv_freq().empty());
  CHECK(posenc::rope<float>{{.head_dim = 4, .angles = angle_mode::ggml_recurrence}}.float32_inv_freq().empty());
}

TEST_CASE("rope options: divisors and multipliers reach every kind of frequency", "[rope]") {
  const std::vector<double> divisors{1, 2, 4, 8};
  const posenc::rope<double> plain{{.head_dim = 8}};
  const posenc::rope<double> divided{{.head_dim = 8, .freq_factors = divisors}};
  for (std::size_t i = 0; i < 4; ++i) CHECK(divided.inv_freq()[i] == plain.inv_freq()[i] / divisors[i]);
  // Before the scaling: linear commutes, the ramp by wavelength of llama3 does not.
  const posenc::rope<double> both{{.head_dim = 8, .scaling = posenc::linear{4}, .freq_factors = divisors}};
  for (std::size_t i = 0; i < 4; ++i) CHECK(both.inv_freq()[i] == plain.inv_freq()[i] / divisors[i] / 4);
  // Pair 2 turns 0.01 * 1000 / (2 pi) = 1.6 times in 1000 positions, divided by 4 less than once.
  const posenc::llama3 by_wave{
      .factor = 8, .low_freq_factor = 1, .high_freq_factor = 1, .original_max_position_embeddings = 1000};
  CHECK(posenc::rope<double>{{.head_dim = 8, .scaling = by_wave}}.inv_freq()[2] == plain.inv_freq()[2]);
  CHECK(posenc::rope<double>{{.head_dim = 8, .scaling = by_wave, .freq_factors = divisors}}.inv_freq()[2] ==
        plain.inv_freq()[2] / 32);
  // Frequencies given outright are divided and multiplied too.
  const posenc::rope<double> given{
      {.head_dim = 8, .axes = {.multiplier = 0.5}, .inv_freq = {3, 1, 8, -4}, .freq_factors = divisors}};
  CHECK(given.inv_freq() == std::vector<double>{1.5, 0.25, 1, -0.25});
  // What would be dropped without a word is refused.
  const std::string none = "posenc::pixel: freq_factors and axes.multiplier must be absent";
  CHECK(refused({.head_dim = 8, .scaling = posenc::pixel{10}, .freq_factors = divisors}).find(none) == 0);
  CHECK(refused({.head_dim = 8, .scaling = posenc::pixel{10}, .axes = {.multiplier = 2}}).find(none) == 0);
  CHECK(refused({.head_dim = 8, .axes = {.multiplier = 2}, .angles = posenc::angle_mode::ggml_recurrence}) ==
        "posenc::rope: axes.multiplier must be 1: the recurrence of ggml knows no other, got 2");
}

TEST_CASE("rope options: axes, sets and divisors that do not fit are refused", "[rope]") {
  const auto starts = [](const std::string& text, const std::string& with) {
    return text.substr(0, with.size()) == with;
  };
  CHECK(refused({.head_dim = 8, .axes = posenc::rope_axes::chunked({1, 1, 1})}) ==
        "posenc::rope: axes must hold one entry per pair (rotary_dim / 2), got 3");
  CHECK(refused({.head_dim = 2, .axes = {.pairs = {{4, 0, 1}}}}) == "posenc::rope: axes must name axes 0..3, got 4");
  CHECK(refused({.head_dim = 2, .axes = {.pairs = {{-1, 0, 1}}}}) == "posenc::rope: axes must name axes 0..3, got -1");
  CHECK(refused({.head_dim = 2, .axes = {.pairs = {{0, 0, 0}}}}) ==
        "posenc::rope: axes must have at least one rung per ladder, got 0");
  for (const double bad : {0.0, -1.0, not_a_number, infinity})
    CHECK(starts(refused({.head_dim = 4, .axes = {.multiplier = bad}}),
                 "posenc::rope: axes.multiplier must be positive and finite"));
  CHECK(refused({.head_dim = 8, .layout = posenc::half_split_in_blocks}) ==
        "posenc::rope: axes.block_dims must sum to rotary_dim in the layout half_split_in_blocks, got 0");
  CHECK(refused({.head_dim = 8, .layout = posenc::half_split_in_blocks, .axes = {.block_dims = {3, 5}}}) ==
        "posenc::rope: axes.block_dims must be even, got 3");
  CHECK(refused({.head_dim = 8, .layout = posenc::half_split_in_blocks, .axes = {.block_dims = {4, 6}}}) ==
        "posenc::rope: axes.block_dims must sum to rotary_dim in the layout half_split_in_blocks, got 10");
  CHECK(refused({.head_dim = 514, .layout = posenc::interleaved_in_half_out}) ==
        "posenc::rope: rotary_dim must not exceed 512 in the layout interleaved_in_half_out, got 514");
  CHECK(refused({.head_dim = 512, .layout = posenc::interleaved_in_half_out}) == "nothing thrown");
  for (const int bad : {0, 5, -1})
    CHECK(refused({.head_dim = 4, .frequency_axes = bad}) ==
          "posenc::rope: frequency_axes must lie in 1..4, got " + std::to_string(bad));
  CHECK(refused({.head_dim = 4, .frequency_heads = 0}) == "posenc::rope: frequency_heads must be at least 1, got 0");
  CHECK(refused({.head_dim = 4, .frequency_heads = 3}) ==
        "posenc::rope: inv_freq must be given for several sets of frequencies, got 3");
  CHECK(refused({.head_dim = 4, .inv_freq = {1, 2, 3}, .frequency_axes = 2}) ==
        "posenc::rope: inv_freq must list one frequency per pair (rotary_dim / 2) of each set, got 3");
  CHECK(starts(
      refused(
          {.head_dim = 4, .axes = posenc::rope_axes::chunked({1, 1}), .inv_freq = {1, 2, 3, 4}, .frequency_axes = 2}),
      "posenc::rope: axes must be absent where angles are sums over axes"));
  CHECK(refused({.head_dim = 4, .freq_factors = {1}}) ==
        "posenc::rope: freq_factors must list one divisor per pair (rotary_dim / 2), got 1");
  for (const double bad : {0.0, -2.0, not_a_number, infinity})
    CHECK(starts(refused({.head_dim = 4, .freq_factors = {1, bad}}),
                 "posenc::rope: freq_factors must be positive and finite"));
  CHECK(starts(refused({.head_dim = 4, .inv_freq = {1, 2, 3, 4}, .frequency_heads = 2, .freq_factors = {1, 1}}),
               "posenc::rope: freq_factors must list"));
  CHECK(refused({.head_dim = 4, .inv_freq = {1, 1e10}}) ==
        "posenc::rope: inv_freq must stay within +-2^32 after scaling, got 1e+10");
  CHECK(refused({.head_dim = 4, .inv_freq = {1, 2}, .angles = posenc::angle_mode::ggml_recurrence}) ==
        "posenc::rope: inv_freq must be absent: the recurrence of ggml climbs a ladder, got 2");
}

TEST_CASE("rope options: numbers that would overflow and enumerators that do not exist are refused", "[rope]") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(refused({.head_dim = most, .rotary_dim = 8}) ==
        "posenc::rope: head_dim must not exceed 2^24, got 9223372036854775807");
  CHECK(refused({.head_dim = 8, .rotary_dim = most - 1}) ==
        "posenc::rope: offset and rotary_dim must not exceed head_dim, got 9223372036854775806");
  CHECK(refused({.head_dim = 8, .rotary_dim = 4, .offset = most}) ==
        "posenc::rope: offset and rotary_dim must not exceed head_dim, got 9223372036854775807");
  // The sum of these wraps to 8.
  CHECK(
      refused(
          {.head_dim = 8, .layout = posenc::half_split_in_blocks, .axes = {.block_dims = {most - 1, most - 1, 12}}}) ==
      "posenc::rope: axes.block_dims must not exceed rotary_dim, got 9223372036854775806");
  CHECK(refused({.head_dim = 4, .inv_freq = {1, 2}, .frequency_axes = 4, .frequency_heads = most / 2}) ==
        "posenc::rope: frequency_heads must not exceed 2^24, got 4611686018427387903");
  CHECK(refused({.head_dim = 4, .layout = static_cast<posenc::rope_layout>(77)}) ==
        "posenc::rope: layout must be one of rope_layout, got 77");
  CHECK(refused({.head_dim = 4, .angles = static_cast<posenc::angle_mode>(77)}) ==
        "posenc::rope: angles must be one of angle_mode, got 77");
  double c[1];
  double s[1];
  const posenc::rope<double> two{{.head_dim = 2}};
  for (const double bad : {not_a_number, infinity, 1e300})
    CHECK(refusal([&] { two.cos_sin(posenc::real_position(bad), c, s); }).find("must be finite and within +-10^15") !=
          std::string::npos);
}

TEST_CASE("rope options: a given attention_factor replaces the scaling's own", "[rope]") {
  const posenc::yarn long_yarn{.factor = 4, .original_max_position_embeddings = 4096};
  CHECK(posenc::rope<float>{{.head_dim = 64, .scaling = long_yarn}}.magnitude() == Approx(1.1386294361));
  CHECK(posenc::rope<float>{{.head_dim = 64, .scaling = long_yarn, .attention_factor = 0.75}}.magnitude() == 0.75);
  // It touches neither frequencies nor the softmax factor.
  posenc::yarn with_all_dim = long_yarn;
  with_all_dim.mscale = with_all_dim.mscale_all_dim = 1;
  const posenc::rope<float> own{{.head_dim = 64, .scaling = with_all_dim}};
  const posenc::rope<float> given{{.head_dim = 64, .scaling = with_all_dim, .attention_factor = 3}};
  CHECK(own.inv_freq() == given.inv_freq());
  CHECK(own.softmax_scale_multiplier() == given.softmax_scale_multiplier());
  CHECK(own.softmax_scale_multiplier() == Approx(1.1386294361 * 1.1386294361));
}
