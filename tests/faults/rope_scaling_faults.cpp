// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Faults that were reported against other code of rotary embeddings: axes, lengths, scalings, magnitudes.
#include <posenc/encoders/rerotate.hpp>
#include <posenc/encoders/rope_table.hpp>
#include <posenc/encoders/xpos.hpp>

#include "support/catch.hpp"
#include "support/tolerance.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

namespace {

using posenc::positions;
using posenc::rope;
using posenc::view;
using posenc_test::contains;
using posenc_test::largest_difference;

const std::vector<double> x4{1, 2, 3, 4};
const std::vector<double> k4{0.5, -1, 2, 0.25};

std::vector<double> inv_freq(std::int64_t r, double base, const posenc::rope_scaling& s) {
  return rope<double>({.head_dim = r, .base = base, .scaling = s}).inv_freq();
}
double magnitude(const posenc::rope_scaling& s, std::int64_t r = 64) {
  return rope<double>({.head_dim = r, .scaling = s}).magnitude();
}
/// The base that a ladder of r / 2 rungs stands on.
double base_of(const std::vector<double>& f) { return std::pow(f[1], -static_cast<double>(f.size())); }
double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
std::vector<double> turned(const rope<double>& r, std::vector<double> x, std::int64_t at) {
  r.rotate(view(x.data(), {.tokens = 1, .dim = r.head_dim()}), positions::from(at));
  return x;
}

}  // namespace

TEST_CASE("F11: one split of the channels over the axes, every part even") {
  const auto axes = posenc::rope_axes::blocks({24, 20, 20});
  CHECK(std::count_if(axes.pairs.begin(), axes.pairs.end(), [](const auto& p) { return p.axis == 0; }) == 12);
  CHECK(std::count_if(axes.pairs.begin(), axes.pairs.end(), [](const auto& p) { return p.axis == 1; }) == 10);
  CHECK(std::count_if(axes.pairs.begin(), axes.pairs.end(), [](const auto& p) { return p.axis == 2; }) == 10);
  CHECK_THROWS_WITH(posenc::rope_axes::blocks({22, 21, 21}), contains("dims must be even, got 21"));
  CHECK_THROWS_WITH(rope<float>({.head_dim = 62, .axes = axes}), contains("axes must hold one entry per pair"));
}

TEST_CASE("F12: ids of three axes turn the pairs of three axes") {
  const rope<double> r({.head_dim = 8, .axes = posenc::rope_axes::chunked({1, 1, 2})});
  const std::array<std::int64_t, 3> ids{5, 2, 3};
  const std::vector<double> right{1.242586460,  0.781397247, 0.969554534, 0.996995505,
                                  -0.675262089, 1.178735909, 1.029545534, 1.002995496};
  std::vector<double> x(8, 1);
  r.rotate(view(x.data(), {.tokens = 1, .dim = 8}), positions::axes(ids, 3));
  CHECK(largest_difference(x, right) < 1e-9);
  std::vector<double> by_table(8, 1);
  posenc::rope_table<double>(r, 0, 6).rotate(view(by_table.data(), {.tokens = 1, .dim = 8}), positions::axes(ids, 3));
  CHECK(by_table == x);
  std::vector<double> hooked(8, 1);
  posenc::position at;
  at.axis = {5, 2, 3, 0};
  r.transform_q(hooked.data(), 8, at, 0);
  CHECK(hooked == x);
  // One number for all of them is plain RoPE, bit for bit.
  for (const std::int64_t p : {0, 5, -3, 100000}) {
    const std::array<std::int64_t, 3> same{p, p, p};
    std::vector<double> text(8, 1);
    r.rotate(view(text.data(), {.tokens = 1, .dim = 8}), positions::axes(same, 3));
    CHECK(text == turned(rope<double>({.head_dim = 8}), std::vector<double>(8, 1), p));
  }
  CHECK_THROWS_WITH(rope<double>({.head_dim = 8, .axes = posenc::rope_axes::chunked({1, 1, 1})}),
                    contains("axes must hold one entry per pair (rotary_dim / 2), got 3"));
}

TEST_CASE("F13: the scale of xPos has one centre, whatever the length") {
  const posenc::xpos<double> e({.head_dim = 4, .centre = 2});
  // The same five tokens alone and padded to nine.
  std::vector<double> alone;
  for (int t = 0; t < 5; ++t)
    for (const double x : x4) alone.push_back(x + t);
  auto padded = alone;
  padded.resize(36, 0.5);
  e.rotate_keys(view(alone.data(), {.tokens = 5, .dim = 4}));
  e.rotate_keys(view(padded.data(), {.tokens = 9, .dim = 4}));
  CHECK(std::equal(alone.begin(), alone.end(), padded.begin()));
  // A score does not depend on where the centre is, only on it being one.
  std::vector<double> scores;
  for (const std::int64_t centre : {0, 2, 4, 4096}) {
    const posenc::xpos<double> other({.head_dim = 4, .centre = centre});
    auto q = x4;
    auto k = k4;
    other.rotate_queries(view(q.data(), {.tokens = 1, .dim = 4}), positions::from(7));
    other.rotate_keys(view(k.data(), {.tokens = 1, .dim = 4}), positions::from(5));
    scores.push_back(dot(q, k));
  }
  for (const double s : scores) CHECK(s == Approx(scores[0]).epsilon(1e-12));
}

TEST_CASE("F22: keys of several axes move where every axis moves by the same amount, and nowhere else") {
  const rope<double> r({.head_dim = 8, .axes = posenc::rope_axes::chunked({1, 1, 2})});
  const std::array<std::int64_t, 3> ids{5, 2, 3};
  const std::array<std::int64_t, 3> moved{105, 102, 103};
  std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8};
  auto right = x;
  const view<double> v(x.data(), {.tokens = 1, .dim = 8});
  r.rotate(v, positions::axes(ids, 3));
  r.rotate(view(right.data(), {.tokens = 1, .dim = 8}), positions::axes(moved, 3));
  r.shift(v, 100);
  CHECK(largest_difference(x, right) < 1e-14);
  posenc::position uneven = 100;
  uneven.axis[2] = 99;
  CHECK_THROWS_WITH(r.shift(v, uneven),
                    contains("delta must be the same on every axis that turns pairs, another is, got 99"));
  CHECK(largest_difference(x, right) < 1e-14);
  // What is no shift is still a rotation: one coordinate elsewhere.
  const std::array<std::int64_t, 3> elsewhere{105, 102, 7};
  posenc::rerotate(v, positions::axes(moved, 3), r, positions::axes(elsewhere, 3), r);
  right = {1, 2, 3, 4, 5, 6, 7, 8};
  r.rotate(view(right.data(), {.tokens = 1, .dim = 8}), positions::axes(elsewhere, 3));
  CHECK(largest_difference(x, right) < 1e-14);
  // The magnitude is in the keys already and is not applied once more.
  const rope<double> y({.head_dim = 4, .scaling = posenc::yarn{.factor = 4, .original_max_position_embeddings = 4096}});
  REQUIRE(y.magnitude() > 1.13);
  auto k = turned(y, x4, 10);
  y.shift(view(k.data(), {.tokens = 1, .dim = 4}), 90);
  CHECK(largest_difference(k, turned(y, x4, 100)) < 1e-14);
  // Pairs that are not turned orthogonally and float angles are refused with the reason.
  CHECK(rope<double>({.head_dim = 4, .layout = posenc::vjepa2_mixed}).describe().shift ==
        posenc::cache_shift::recompute_keys);
  CHECK(rope<double>({.head_dim = 4, .angles = posenc::angle_mode::float32}).describe().shift ==
        posenc::cache_shift::recompute_keys);
}

TEST_CASE("F23: a dynamic base changes under cached keys, and they can be turned again") {
  const auto at_length = [](std::int64_t n) {
    return rope<double>({.head_dim = 64, .scaling = posenc::dynamic_ntk{2, 8, n}});
  };
  CHECK(base_of(at_length(8).inv_freq()) == Approx(10000).epsilon(1e-12));
  CHECK(base_of(at_length(9).inv_freq()) == Approx(12590.301853).epsilon(1e-10));
  CHECK(base_of(at_length(16).inv_freq()) == Approx(31082.236667).epsilon(1e-10));
  CHECK(at_length(9).depends_on_length());
  // Step by step with keys turned again equals the full pass; with keys left as they are it does not.
  std::vector<double> raw(64);
  for (std::size_t i = 0; i < 64; ++i) raw[i] = std::sin(1.0 + static_cast<double>(i));
  const auto full = turned(at_length(16), raw, 3);
  auto cached = turned(at_length(4), raw, 3);
  CHECK(largest_difference(cached, full) > 1e-3);
  std::int64_t length = 4;
  for (const std::int64_t next : {8, 9, 12, 16}) {
    posenc::rerotate(view(cached.data(), {.tokens = 1, .dim = 64}), positions::from(3), at_length(length),
                     at_length(next));
    length = next;
  }
  CHECK(largest_difference(cached, full) < 1e-14);
}

TEST_CASE("F24: a long input leaves nothing behind") {
  const auto at_length = [](std::int64_t n) {
    return rope<double>({.head_dim = 64, .scaling = posenc::dynamic_ntk{2, 8, n}}).inv_freq();
  };
  const auto plain = rope<double>({.head_dim = 64}).inv_freq();
  CHECK(at_length(16) != plain);
  CHECK(at_length(4) == plain);
}

TEST_CASE("F25: dynamic scaling below its length changes no position") {
  const rope<double> r({.head_dim = 4, .scaling = posenc::dynamic_ntk{6, 2048, 100}});
  double c[2];
  double s[2];
  r.cos_sin(3, c, s);
  CHECK(std::atan2(s[0], c[0]) == Approx(3).epsilon(0).margin(1e-15));
  CHECK(turned(r, x4, 3) == turned(rope<double>({.head_dim = 4}), x4, 3));
}

TEST_CASE("F26: the exponent of the stretched base is r / (r - 2)") {
  CHECK(base_of(inv_freq(128, 1e4, posenc::ntk_aware{4})) == Approx(40889.942432).epsilon(1e-10));
  CHECK(base_of(inv_freq(128, 1e4, posenc::ntk_aware{8})) == Approx(82684.622641).epsilon(1e-10));
  CHECK(base_of(inv_freq(64, 1e4, posenc::ntk_aware{4})) == Approx(41829.365929).epsilon(1e-10));
  CHECK_THROWS_WITH(inv_freq(2, 1e4, posenc::ntk_aware{4}),
                    contains("posenc::ntk_aware: rotary_dim must exceed 2: the exponent divides by rotary_dim - 2"));
}

TEST_CASE("F27: a magnitude that is given is the magnitude") {
  posenc::yarn y{.factor = 64, .original_max_position_embeddings = 4096};
  CHECK(magnitude(y) == Approx(1.4158883083).epsilon(1e-10));
  y.attention_factor = 1.0;
  CHECK(magnitude(y) == 1.0);
}

TEST_CASE("F28: magnitude and score scale are two numbers") {
  posenc::yarn y{.factor = 16, .original_max_position_embeddings = 4096};
  CHECK(magnitude(y) == Approx(1.2772588722).epsilon(1e-10));
  y.mscale = y.mscale_all_dim = 1;
  CHECK(magnitude(y) == 1.0);
  CHECK(rope<double>({.head_dim = 64, .scaling = y}).softmax_scale_multiplier() ==
        Approx(1.2772588722 * 1.2772588722).epsilon(1e-10));
  y.factor = 40;
  CHECK(magnitude(y) == 1.0);
  CHECK(rope<double>({.head_dim = 64, .scaling = y}).softmax_scale_multiplier() == Approx(1.8738542071).epsilon(1e-10));
  y.mscale = 2;
  CHECK(magnitude(y) == Approx((0.2 * std::log(40) + 1) / 1.3688879454).epsilon(1e-10));
  // Not stretched: neither.
  y.factor = 1;
  CHECK(magnitude(y) == 1.0);
  CHECK(rope<double>({.head_dim = 64, .scaling = y}).softmax_scale_multiplier() == 1.0);
}

TEST_CASE("F29: the ramp of YaRN runs from beta_fast to beta_slow") {
  posenc::yarn y{.factor = 4, .original_max_position_embeddings = 2048};
  const auto plain = rope<double>({.head_dim = 64}).inv_freq();
  const auto f = inv_freq(64, 1e4, y);
  const auto ratio = [&](std::size_t i) { return plain[i] / f[i]; };
  for (std::size_t i = 0; i <= 8; ++i) CHECK(ratio(i) == 1);
  CHECK(ratio(9) == Approx(1.061224).epsilon(1e-6));
  CHECK(ratio(12) == Approx(1.3).epsilon(1e-12));
  CHECK(ratio(16) == Approx(1.857143).epsilon(1e-6));
  CHECK(ratio(20) == Approx(3.25).epsilon(1e-12));
  for (std::size_t i = 21; i < 32; ++i) CHECK(ratio(i) == 4);
  CHECK(magnitude(y) == Approx(1.1386294361).epsilon(1e-10));
  std::swap(y.beta_fast, y.beta_slow);
  CHECK_THROWS_WITH(inv_freq(64, 1e4, y), contains("beta_fast must exceed beta_slow"));
  y.beta_slow = y.beta_fast;
  CHECK_THROWS_WITH(inv_freq(64, 1e4, y), contains("beta_fast must exceed beta_slow"));
}

TEST_CASE("F30: the frequencies that are computed are those that are used") {
  const posenc::llama3 s{
      .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 8192};
  const auto plain = rope<double>({.head_dim = 128, .base = 5e5}).inv_freq();
  const auto f = inv_freq(128, 5e5, s);
  for (std::size_t i = 0; i <= 28; ++i) CHECK(f[i] == plain[i]);
  const double between[] = {1.207484, 1.553415, 2.026313, 2.694530, 3.684253, 5.257327};
  for (std::size_t i = 0; i < 6; ++i) CHECK(plain[29 + i] / f[29 + i] == Approx(between[i]).epsilon(1e-6));
  for (std::size_t i = 35; i < 64; ++i) CHECK(f[i] == plain[i] / 8);
  CHECK(f[63] == Approx(3.068925989e-07).epsilon(1e-9));
  for (std::size_t i = 1; i < 64; ++i) CHECK(plain[i] / f[i] >= plain[i - 1] / f[i - 1]);
  // In the rows, too.
  const rope<double> r({.head_dim = 128, .base = 5e5, .scaling = s});
  std::vector<double> c(64);
  std::vector<double> sine(64);
  r.cos_sin(100000, c.data(), sine.data());
  for (std::size_t i = 40; i < 64; ++i) CHECK(sine[i] == Approx(std::sin(100000 * f[i])).epsilon(0).margin(1e-11));
}

TEST_CASE("F31: settings act, and a kind that does not exist can not be named") {
  const rope<double> r({.head_dim = 128, .base = 5e5, .scaling = posenc::llama3{}});
  std::vector<double> c(64);
  std::vector<double> s(64);
  r.cos_sin(5000, c.data(), s.data());
  CHECK(std::atan2(s[40], c[40]) == Approx(0.171405110).epsilon(0).margin(1e-9));
  rope<double>({.head_dim = 128, .base = 5e5}).cos_sin(5000, c.data(), s.data());
  CHECK(std::atan2(s[40], c[40]) == Approx(1.371240878).epsilon(0).margin(1e-9));
  static_assert(!std::is_constructible_v<posenc::rope_scaling, const char*>);
  static_assert(!std::is_constructible_v<posenc::rope_scaling, int>);
  static_assert(!std::is_constructible_v<posenc::rope_scaling, double>);
}

TEST_CASE("F32: the long factors begin one behind the original length") {
  const auto at_length = [](std::int64_t n) {
    return posenc::longrope{.short_factor = {1, 1, 1, 1},
                            .long_factor = {1, 2, 4, 8},
                            .original_max_position_embeddings = 4096,
                            .factor = 32,
                            .length = n};
  };
  const auto check = [&](std::int64_t n, const std::vector<double>& right) {
    const auto f = inv_freq(8, 1e4, at_length(n));
    for (std::size_t i = 0; i < 4; ++i) CHECK(f[i] == Approx(right[i]).epsilon(1e-15));
    CHECK(magnitude(at_length(n), 8) == Approx(1.1902380714).epsilon(1e-10));
  };
  check(4096, {1, 0.1, 0.01, 0.001});
  check(4097, {1, 0.05, 0.0025, 0.000125});
}

TEST_CASE("F33: the length served chooses the factors, and a capacity only where it is handed over as the length") {
  posenc::longrope s{.short_factor = {1, 1, 1, 1},
                     .long_factor = {1, 2, 4, 8},
                     .original_max_position_embeddings = 4096,
                     .factor = 32,
                     .length = 100};
  // A table of 8192 rows is capacity: it changes nothing.
  const rope<double> r({.head_dim = 8, .scaling = s});
  const posenc::rope_table<double> table(r, 0, 8192);
  double c[4];
  double sine[4];
  rope<double>({.head_dim = 8}).cos_sin(99, c, sine);
  for (std::size_t i = 0; i < 4; ++i) CHECK(table.cos(99)[i] == Approx(r.magnitude() * c[i]).epsilon(0).margin(2e-15));
  s.length = 8192;
  CHECK(inv_freq(8, 1e4, s)[3] == Approx(0.000125).epsilon(1e-15));
}
