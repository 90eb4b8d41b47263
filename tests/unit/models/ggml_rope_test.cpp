// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/encoders/rope.hpp>
#include <posenc/models/ggml_rope.hpp>

#include <algorithm>
#include <array>
#include <cmath>

using posenc::models::ggml_rope_arguments;
using posenc::models::ggml_rope_mode;
using posenc::models::ggml_rope_options;
using posenc_test::refusal;

namespace {

constexpr long double pi = 3.141592653589793238462643383279502884L;

/// The operator as its definition reads, in long double: one token, positions of four axes.
std::vector<double> by_definition(const ggml_rope_arguments& a, const std::vector<double>& x,
                                  const std::array<std::int64_t, 4>& at) {
  const bool vision = a.mode == ggml_rope_mode::vision;
  const std::int64_t pairs = vision ? a.head_dim / 2 : a.n_dims / 2;
  const std::int64_t partner = vision ? a.n_dims : a.n_dims / 2;
  const auto border = [&](double turns, bool up) {
    const double v = static_cast<double>(a.n_dims) *
                     std::log(static_cast<double>(a.n_ctx_orig) / (turns * 2 * static_cast<double>(pi))) /
                     (2 * std::log(a.freq_base));
    return up ? std::min(static_cast<double>(a.n_dims - 1), std::ceil(v)) : std::max(0.0, std::floor(v));
  };
  std::vector<double> y = x;
  for (std::int64_t i = 0; i < pairs; ++i) {
    std::int64_t rung = i;
    std::int64_t axis = 0;
    if (a.mode == ggml_rope_mode::mrope || vision || a.mode == ggml_rope_mode::imrope) {
      const std::int64_t q = i % (a.sections[0] + a.sections[1] + a.sections[2] + a.sections[3]);
      const std::int64_t ends[3] = {a.sections[0], a.sections[0] + a.sections[1],
                                    a.sections[0] + a.sections[1] + a.sections[2]};
      if (a.mode == ggml_rope_mode::imrope) {
        if (q % 3 == 1 && q < 3 * a.sections[1]) {
          axis = 1;
        } else if (q % 3 == 2 && q < 3 * a.sections[2]) {
          axis = 2;
        } else {
          axis = q % 3 == 0 && q < 3 * a.sections[0] ? 0 : 3;
        }
      } else {
        axis = q < ends[0] ? 0 : q < ends[1] ? 1 : q < ends[2] ? 2 : 3;
        if (vision) rung = axis == 0 ? q : q - ends[axis - 1];
      }
    }
    const auto p = static_cast<long double>(at[static_cast<std::size_t>(axis)]);
    const long double power = static_cast<long double>(2 * rung) / static_cast<long double>(a.n_dims);
    long double te = p * std::pow(static_cast<long double>(a.freq_base), -power);
    if (!a.freq_factors.empty()) te /= a.freq_factors[static_cast<std::size_t>(i)];
    long double angle = te * a.freq_scale;
    double magnitude = a.attn_factor;
    if (a.ext_factor != 0) {
      const double lo = border(a.beta_fast, false);
      const double hi = border(a.beta_slow, true);
      const double t = std::clamp((static_cast<double>(i) - lo) / std::max(0.001, hi - lo), 0.0, 1.0);
      const double k = (1 - t) * a.ext_factor;
      angle = angle * (1 - k) + te * k;
      magnitude *= 1 + 0.1 * std::log(1 / a.freq_scale);
    }
    const std::int64_t u = a.offset + (a.mode == ggml_rope_mode::normal ? 2 * i : i);
    const std::int64_t v = a.mode == ggml_rope_mode::normal ? u + 1 : u + partner;
    const auto c = static_cast<double>(std::cos(angle)) * magnitude;
    const auto s = static_cast<double>(std::sin(angle)) * magnitude;
    const double xu = x[static_cast<std::size_t>(u)];
    const double xv = x[static_cast<std::size_t>(v)];
    y[static_cast<std::size_t>(u)] = xu * c - xv * s;
    y[static_cast<std::size_t>(v)] = xu * s + xv * c;
  }
  return y;
}

/// The largest difference to it at one token.
double difference(const ggml_rope_arguments& a, const std::array<std::int64_t, 4>& at) {
  const auto x = posenc_test::values<double>(a.head_dim, 3);
  auto y = x;
  const posenc::rope<double> encoder(ggml_rope_options(a));
  const bool plain = a.mode == ggml_rope_mode::normal || a.mode == ggml_rope_mode::neox;
  encoder.rotate(posenc::view(y.data(), {.tokens = 1, .dim = a.head_dim}),
                 plain ? posenc::positions::from(at[0]) : posenc::positions::axes(at, 4));
  return posenc_test::largest_difference(y, by_definition(a, x, at));
}

}  // namespace

TEST_CASE("ggml rope: random arguments of every mode follow the definition", "[ggml_rope]") {
  posenc_test::random_source random(19);
  for (int n = 0; n < 300; ++n) {
    ggml_rope_arguments a;
    constexpr ggml_rope_mode modes[] = {ggml_rope_mode::normal, ggml_rope_mode::neox, ggml_rope_mode::mrope,
                                        ggml_rope_mode::vision, ggml_rope_mode::imrope};
    a.mode = modes[n % 5];
    a.n_dims = 2 * random.integer(2, 48);
    const bool vision = a.mode == ggml_rope_mode::vision;
    a.offset = vision ? 0 : random.integer(0, 4);
    a.head_dim = vision ? 2 * a.n_dims : a.offset + a.n_dims + random.integer(0, 5);
    const std::int64_t pairs = vision ? a.n_dims : a.n_dims / 2;
    a.freq_base = random.uniform(100, 1e6);
    a.attn_factor = random.uniform(0.5, 1.5);
    if (n % 3 == 1) a.freq_scale = random.uniform(0.02, 1.5);
    if (n % 4 == 3 && !vision) {
      a.freq_scale = random.uniform(0.02, 1);
      a.ext_factor = n % 8 == 3 ? 1 : random.uniform(0.1, 1);
      a.n_ctx_orig = random.integer(4, 40000);
      a.beta_fast = random.uniform(8, 40);
      a.beta_slow = random.uniform(0.5, 4);
    }
    if (n % 7 > 4)
      for (std::int64_t i = 0; i < pairs; ++i) a.freq_factors.push_back(random.uniform(1, 60));
    // Sections that fill the pairs, or that are repeated.
    const std::int64_t period = std::max<std::int64_t>(2, n % 2 ? pairs : random.integer(2, pairs));
    a.sections[0] = random.integer(1, period - 1);
    a.sections[1] = random.integer(0, period - a.sections[0]);
    if (vision) {
      a.sections[1] = period - a.sections[0];
    } else {
      a.sections[2] = period - a.sections[0] - a.sections[1];
    }
    std::array<std::int64_t, 4> at{};
    for (auto& p : at) p = random.integer(0, 2000);
    CAPTURE(n, static_cast<int>(a.mode), a.n_dims, a.head_dim, a.ext_factor, a.freq_scale, a.n_ctx_orig);
    CHECK(difference(a, at) < 3e-12);  // 2000 radians, frequencies to a few ulp of double
  }
}

TEST_CASE("ggml rope: the sections of published models", "[ggml_rope]") {
  ggml_rope_arguments a{.head_dim = 128, .n_dims = 128, .mode = ggml_rope_mode::imrope, .sections = {24, 20, 20, 0}};
  a.freq_base = 5e6;
  const auto axes = ggml_rope_options(a).axes.pairs;
  REQUIRE(axes.size() == 64);
  CHECK(axes == posenc::rope_axes::imrope_ggml({24, 20, 20, 0}).pairs);
  const auto published = posenc::rope_axes::interleaved({24, 20, 20}).pairs;
  for (std::size_t i = 0; i < 64; ++i) CHECK((axes[i] == published[i]) == (i != 61 && i != 62));

  a = {.head_dim = 128, .n_dims = 128, .mode = ggml_rope_mode::mrope, .sections = {16, 24, 24, 0}};
  CHECK(ggml_rope_options(a).axes.pairs == posenc::rope_axes::chunked({16, 24, 24}).pairs);

  a = {.head_dim = 80, .n_dims = 40, .mode = ggml_rope_mode::vision, .sections = {20, 20, 0, 0}};
  CHECK(ggml_rope_options(a).axes.pairs == posenc::rope_axes::blocks({40, 40}).pairs);
  CHECK(ggml_rope_options(a).rotary_dim == 80);
}

TEST_CASE("ggml rope: the magnitude that the operator multiplies in by itself", "[ggml_rope]") {
  ggml_rope_arguments a{.head_dim = 64, .n_dims = 64, .n_ctx_orig = 4096, .freq_scale = 1.0 / 40, .ext_factor = 1};
  CHECK(posenc::rope<float>(ggml_rope_options(a)).magnitude() == Approx(1 + 0.1 * std::log(40.0)).epsilon(1e-15));
  // What a host passes to end at 1.
  a.attn_factor = 1 / (1 + 0.1 * std::log(40.0));
  CHECK(posenc::rope<float>(ggml_rope_options(a)).magnitude() == Approx(1).epsilon(1e-15));
  a = {.head_dim = 64, .n_dims = 64, .freq_scale = 1.0 / 40, .attn_factor = 1.25};
  CHECK(posenc::rope<float>(ggml_rope_options(a)).magnitude() == 1.25);
}

TEST_CASE("ggml rope: a second rotation, the context shift, and the gradient", "[ggml_rope]") {
  const ggml_rope_arguments a{.head_dim = 32,
                              .n_dims = 32,
                              .mode = ggml_rope_mode::neox,
                              .n_ctx_orig = 32768,
                              .freq_base = 1e6,
                              .freq_scale = 0.25,
                              .ext_factor = 1};
  const posenc::rope<double> encoder(ggml_rope_options(a));
  const auto x = posenc_test::values<double>(32, 1);
  const auto turned = [&](auto&&... steps) {
    auto y = x;
    const posenc::view v(y.data(), {.tokens = 1, .dim = 32});
    (steps(v), ...);
    return y;
  };
  const auto at = [](std::int64_t p) { return posenc::positions::from(p); };
  const double magnitude = 1 + 0.1 * std::log(4.0);  // 1.1386294
  auto twice = turned([&](auto v) { encoder.rotate(v, at(100)); }, [&](auto v) { encoder.rotate(v, at(-50)); });
  const auto direct = turned([&](auto v) { encoder.rotate(v, at(50)); });
  const auto shifted = turned([&](auto v) { encoder.rotate(v, at(100)); }, [&](auto v) { encoder.shift(v, -50); });
  CHECK(posenc_test::largest_difference(shifted, direct) < 1e-13);
  for (double& value : twice) value /= magnitude;
  CHECK(posenc_test::largest_difference(twice, direct) < 1e-13);
  auto back = turned([&](auto v) { encoder.rotate(v, at(100)); }, [&](auto v) { encoder.adjoint(v, at(100)); });
  for (double& value : back) value /= 1.2964770;
  CHECK(posenc_test::largest_difference(back, x) < 1e-7);
}

TEST_CASE("ggml rope: what is refused, and how", "[ggml_rope]") {
  const auto refused = [](const ggml_rope_arguments& a) { return refusal([&] { (void)ggml_rope_options(a); }); };
  CHECK(refused({.head_dim = 8, .n_dims = 5}) ==
        "posenc::models::ggml_rope_options: n_dims must be even and at least 2, got 5");
  CHECK(refused({.head_dim = 8, .n_dims = 8, .mode = static_cast<ggml_rope_mode>(1)}) ==
        "posenc::models::ggml_rope_options: mode must be normal, neox, mrope, vision or imrope, got 1");
  CHECK(refused({.head_dim = 8, .n_dims = 8, .mode = ggml_rope_mode::mrope}) ==
        "posenc::models::ggml_rope_options: sections must sum to at least 1, got 0");
  CHECK(refused({.head_dim = 8, .n_dims = 8, .mode = ggml_rope_mode::imrope, .sections = {5, -1, 0, 0}}) ==
        "posenc::models::ggml_rope_options: sections must lie in 0..2^31 - 1, got -1");
  CHECK(refused({.head_dim = 8, .n_dims = 8, .mode = ggml_rope_mode::vision, .sections = {2, 2, 0, 0}}) ==
        "posenc::models::ggml_rope_options: n_dims must be half of head_dim in vision mode, got 8");
  CHECK(refused({.head_dim = 8, .n_dims = 8, .freq_scale = 0}) ==
        "posenc::models::ggml_rope_options: freq_scale must be positive and finite, got 0");
  CHECK(refused({.head_dim = 8, .n_dims = 8, .freq_factors = {1, 1, 1}}) ==
        "posenc::models::ggml_rope_options: freq_factors must list a divisor for every pair, got 3");
  CHECK(refused(
            {.head_dim = 8, .n_dims = 4, .mode = ggml_rope_mode::vision, .sections = {2, 2, 0, 0}, .ext_factor = 1}) ==
        "posenc::models::ggml_rope_options: ext_factor must be 0 in vision mode, got 1");
  // Sizes that no loop may start on, and whose doubles do not fit.
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  for (const auto mode : {ggml_rope_mode::mrope, ggml_rope_mode::imrope})
    CHECK(refused({.head_dim = 8, .n_dims = 8, .mode = mode, .sections = {huge, huge, 2, 2}}) ==
          "posenc::models::ggml_rope_options: sections must lie in 0..2^31 - 1, got 4611686018427387904");
  CHECK_NOTHROW(ggml_rope_options(
      {.head_dim = 8, .n_dims = 8, .mode = ggml_rope_mode::imrope, .sections = {2147483647, 2147483647, 2, 2}}));
  CHECK(refused({.head_dim = 8, .n_dims = 10}) ==
        "posenc::models::ggml_rope_options: n_dims must not exceed head_dim, got 10");
  CHECK(refused({.head_dim = 8, .n_dims = huge, .mode = ggml_rope_mode::vision, .sections = {2, 2, 0, 0}}) ==
        "posenc::models::ggml_rope_options: n_dims must not exceed head_dim, got 4611686018427387904");
  CHECK(refused({.head_dim = huge, .n_dims = huge, .mode = ggml_rope_mode::mrope, .sections = {2, 2, 0, 0}}) ==
        "posenc::models::ggml_rope_options: head_dim must lie in 2..2^20, got 4611686018427387904");
  // What rope itself refuses: a block past the head.
  CHECK(refusal([] { posenc::rope<float>{ggml_rope_options({.head_dim = 8, .n_dims = 8, .offset = 2})}; }) ==
        "posenc::rope: offset + rotary_dim must not exceed head_dim, got 10");
}
