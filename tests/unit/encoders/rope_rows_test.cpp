// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/angle.hpp"
#include "reference/rotation.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/encoders/rope_rows.hpp>

namespace detail = posenc::detail;
using posenc::position;
using posenc::positions;
using posenc::real_position;
using posenc::real_positions;
using posenc::kernels::row_form;
using posenc_test::refusal;
using arch = posenc::simd::default_arch;

namespace {
std::vector<posenc::math::turns> steps_of(std::int64_t rotary_dim) {
  std::vector<posenc::math::turns> steps;
  for (const auto& f : detail::rope_rule({.head_dim = rotary_dim}).scaled.inv_freq) steps.emplace_back(f);
  return steps;
}
}  // namespace

TEST_CASE("rope rows: separate and neighbouring forms hold the same numbers", "[rope]") {
  const auto steps = steps_of(20);
  const detail::rope_frame frame{.rotary_dim = 20, .head_dim = 20, .steps = steps.data()};
  const position at = 77;
  float c[10];
  float s[10];
  float cc[20];
  float ss[20];
  detail::rope_row<arch, row_form::separate>(frame, 0, 0, 10, at, 1.5, -1.0, c, s);
  detail::rope_row<arch, row_form::neighbours>(frame, 0, 0, 10, at, 1.5, -1.0, cc, ss);
  for (int i = 0; i < 10; ++i) {
    const auto t = oracle::turn_by(77, oracle::frequency(10000, i, 10));
    CHECK(c[i] == static_cast<float>(1.5 * t.cos));
    CHECK(s[i] == static_cast<float>(-1.5 * t.sin));
    CHECK((cc[2 * i] == c[i] && cc[2 * i + 1] == c[i]));
    CHECK((ss[2 * i] == -s[i] && ss[2 * i + 1] == s[i]));
  }
  // A part of the row is that part of the whole.
  float part_c[3];
  float part_s[3];
  detail::rope_row<arch, row_form::separate>(frame, 0, 4, 3, at, 1.5, -1.0, part_c, part_s);
  CHECK(std::equal(part_c, part_c + 3, c + 4));
  CHECK(std::equal(part_s, part_s + 3, s + 4));
  // So it is from whoever fills rows for the kernels.
  const detail::rows_of_position<arch, position> rows{frame, at, 1.5, -1.0};
  rows.fill<row_form::separate>(0, 4, 3, part_c, part_s);
  CHECK(std::equal(part_c, part_c + 3, c + 4));
  CHECK(std::equal(part_s, part_s + 3, s + 4));
}

TEST_CASE("rope rows: a pair is turned by its axis", "[rope]") {
  const auto steps = steps_of(8);
  const std::vector<std::uint8_t> axis{0, 3, 1, 1};
  const detail::rope_frame frame{.rotary_dim = 8, .head_dim = 8, .steps = steps.data(), .axis_of_pair = axis.data()};
  CHECK(!frame.one_axis());
  position at;
  at.axis = {5, -70, 900, 12345};
  real_position real;
  real.axis = {5, -70, 900, 12345};
  double c[4];
  double s[4];
  double rc[4];
  double rs[4];
  detail::rope_row<arch, row_form::separate>(frame, 0, 0, 4, at, 1, 1, c, s);
  detail::rope_row<arch, row_form::separate>(frame, 0, 0, 4, real, 1, 1, rc, rs);
  for (int i = 0; i < 4; ++i) {
    const auto t =
        oracle::turn_by(static_cast<double>(at[axis[static_cast<std::size_t>(i)]]), oracle::frequency(10000, i, 4));
    CHECK(c[i] == Approx(t.cos).epsilon(0).margin(2e-15));
    CHECK(s[i] == Approx(t.sin).epsilon(0).margin(2e-15));
    CHECK(rc[i] == Approx(c[i]).epsilon(0).margin(2e-15));
    CHECK(rs[i] == Approx(s[i]).epsilon(0).margin(2e-15));
  }
  // A part of the row keeps the axes of its own pairs.
  double part_c[2];
  double part_s[2];
  detail::rope_row<arch, row_form::separate>(frame, 0, 1, 2, at, 1, 1, part_c, part_s);
  CHECK((part_c[0] == c[1] && part_c[1] == c[2] && part_s[0] == s[1] && part_s[1] == s[2]));
}

TEST_CASE("rope rows: sums over axes, and a set of frequencies per head", "[rope]") {
  // Two heads, two axes, three pairs: frequency of pair i, axis a, head h.
  const auto f = [](int h, int a, int i) { return 0.1 * (1 + h) + 0.01 * (2 * a - 1) * (i + 1); };
  std::vector<posenc::math::turns> steps;
  for (int h = 0; h < 2; ++h)
    for (int a = 0; a < 2; ++a)
      for (int i = 0; i < 3; ++i) steps.emplace_back(posenc::math::double_double(f(h, a, i)));
  const detail::rope_frame frame{
      .rotary_dim = 6, .head_dim = 6, .steps = steps.data(), .frequency_axes = 2, .frequency_heads = 2};
  CHECK(!frame.one_axis());
  position at;
  at.axis = {17, -40, 0, 0};
  real_position real;
  real.axis = {17.25, -40.5, 0, 0};
  for (int h = 0; h < 2; ++h) {
    double c[3];
    double s[3];
    detail::rope_row<arch, row_form::separate>(frame, h, 0, 3, at, 2, 1, c, s);
    for (int i = 0; i < 3; ++i) {
      CHECK(c[i] == Approx(2 * std::cos(17 * f(h, 0, i) - 40 * f(h, 1, i))).epsilon(0).margin(1e-14));
      CHECK(s[i] == Approx(2 * std::sin(17 * f(h, 0, i) - 40 * f(h, 1, i))).epsilon(0).margin(1e-14));
    }
    detail::rope_row<arch, row_form::separate>(frame, h, 1, 2, real, 1, -1, c, s);
    for (int i = 0; i < 2; ++i) {
      CHECK(c[i] == Approx(std::cos(17.25 * f(h, 0, i + 1) - 40.5 * f(h, 1, i + 1))).epsilon(0).margin(1e-14));
      CHECK(s[i] == Approx(-std::sin(17.25 * f(h, 0, i + 1) - 40.5 * f(h, 1, i + 1))).epsilon(0).margin(1e-14));
    }
  }
}

TEST_CASE("rope rows: phases of real positions agree with those of whole ones", "[rope]") {
  const auto steps = steps_of(64);
  const detail::rope_frame frame{.rotary_dim = 64, .head_dim = 64, .steps = steps.data()};
  for (const std::int64_t p : {std::int64_t{0}, std::int64_t{1}, std::int64_t{-3}, std::int64_t{100000}}) {
    posenc_test::worst apart;
    for (std::int64_t i = 0; i < 32; ++i) {
      const auto whole = detail::pair_phase(frame, 0, i, position(p));
      const auto real = detail::pair_phase(frame, 0, i, real_position(static_cast<double>(p)));
      apart.see(std::abs(static_cast<double>(static_cast<std::int64_t>(whole - real))), static_cast<long double>(i));
    }
    // A step of an integer position is rounded to half a unit, so p of them are off by p / 2 units.
    CHECK(apart.error <= static_cast<long double>(std::abs(p)) / 2 + 2);
  }
}

TEST_CASE("rope rows: real positions of very many turns", "[rope]") {
  for (const double f : {1.0, 100.0, 1e6, 4e9, -3e9, 0.1})
    for (const double p : {1e12, 1e15, -1e15, 123456789012345.625, 0x1p-1}) {
      CAPTURE(f, p);
      const posenc::math::turns step{posenc::math::double_double(f)};
      const detail::rope_frame frame{.rotary_dim = 2, .head_dim = 2, .steps = &step};
      const auto exact = reference::phase_of(reference::binary(f), reference::binary(p)).units;
      const auto off = static_cast<std::int64_t>(detail::pair_phase(frame, 0, 0, real_position(p)) - exact);
      // 2^-102 of the turns, and the rounding of the phase itself, in units of 2^-64 turns.
      CHECK(std::abs(static_cast<double>(off)) <= std::abs(f * p) / 6.28 * 0x1p-38 + 3);
    }
}

TEST_CASE("rope rows: float32 angles", "[rope]") {
  const std::vector<std::uint8_t> axis{0, 1, 0};
  detail::rope_float32 rule;
  rule.inv_freq = {1.0f, 0.3f, 0.07f};
  const detail::rope_frame frame{.rotary_dim = 6, .head_dim = 6, .float32 = &rule, .axis_of_pair = axis.data()};
  position at;
  at.axis = {16777217, 333333, 0, 0};
  float angles[3];
  detail::float32_angles(frame, 0, 0, 3, at, angles);
  const volatile float products[3] = {16777216.0f * 1.0f, 333333.0f * 0.3f, 16777216.0f * 0.07f};
  for (int i = 0; i < 3; ++i) CHECK(angles[i] == products[i]);
  detail::float32_angles(frame, 0, 1, 2, at, angles);
  CHECK((angles[0] == products[1] && angles[1] == products[2]));
  float c[3];
  float s[3];
  detail::rope_row<arch, row_form::separate>(frame, 0, 0, 3, at, 1.0, -1.0, c, s);
  for (int i = 0; i < 3; ++i) {
    CHECK(c[i] == static_cast<float>(std::cos(static_cast<double>(products[i]))));
    CHECK(s[i] == -static_cast<float>(std::sin(static_cast<double>(products[i]))));
  }
}

TEST_CASE("rope rows: where a token stands", "[rope]") {
  CHECK(detail::position_of(detail::constant_position{-4}, 1, 2) == position(-4));
  CHECK(detail::position_of(positions::from(10), 1, 2) == position(12));
  const std::vector<double> at{0.5, 1.5};
  CHECK(detail::position_of(real_positions{at}, 1, 1)[0] == 1.5);
  CHECK(detail::position_of(real_positions{at}, 1, 1)[3] == 1.5);
  CHECK(detail::position_of(real_positions::axes(at, 2), 1, 0)[1] == 1.5);
}

TEST_CASE("rope rows: positions must have one axis or all that the pairs name", "[rope]") {
  const std::vector<std::int64_t> ids{1, 2, 3, 4, 5, 6};
  const std::vector<double> reals{1, 2, 3, 4, 5, 6};
  const auto refused = [&](const auto& at, std::int64_t tokens, int axes) {
    return refusal([&] { detail::check_cover(at, "f", 1, tokens, axes); });
  };
  const std::string fine = "nothing thrown";
  CHECK(refused(positions::listed(ids), 6, 1) == fine);
  CHECK(refused(positions::listed(ids), 6, 3) == fine);
  CHECK(refused(positions::axes(ids, 3), 2, 3) == fine);
  CHECK(refused(positions::axes(ids, 3), 2, 2) == fine);
  CHECK(refused(positions::axes(ids, 2), 3, 3) ==
        "posenc::f: positions must have one axis or those that the pairs name, got 2");
  CHECK(refused(positions::axes(ids, 2), 3, 1) == "posenc::f: positions must have one axis, got 2");
  CHECK(refused(real_positions{reals}, 6, 1) == fine);
  CHECK(refused(real_positions{reals}, 6, 4) == fine);
  CHECK(refused(real_positions::axes(reals, 3), 2, 3) == fine);
  CHECK(refused(real_positions::axes(reals, 3), 2, 4) ==
        "posenc::f: positions must have one axis or those that the pairs name, got 3");
  CHECK(refused(real_positions::axes(reals, 3), 2, 1) == "posenc::f: positions must have one axis, got 3");
  CHECK(refused(real_positions{reals}, 5, 1) == "posenc::f: positions must list one position per token, got 6");
  // Real positions are checked on every axis.
  for (const double bad : {1.1e15, -1.1e15, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    const std::vector<double> far{1, 2, 3, bad};
    CHECK(refused(real_positions::axes(far, 2), 2, 2).find("must be finite and within +-10^15") != std::string::npos);
  }
}

TEST_CASE("rope rows: keys are cached in the order they are written in", "[rope]") {
  detail::rope_frame frame{.layout = posenc::interleaved_in_half_out, .rotary_dim = 4, .head_dim = 4};
  CHECK(frame.of_stored_keys().layout == posenc::half_split);
  for (const auto layout :
       {posenc::half_split, posenc::interleaved, posenc::vjepa2_mixed, posenc::half_split_in_blocks}) {
    frame.layout = layout;
    CHECK(frame.of_stored_keys().layout == layout);
  }
}
