// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/rotation.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/timestep.hpp>

#include <unsupported/Eigen/AutoDiff>

#include <limits>
#include <numbers>

using posenc::positions;
using posenc_test::largest_difference;
using posenc_test::refusal;
using posenc_test::values;

namespace {

std::vector<double> expected_row(const posenc::timestep_options& o, double t) {
  const std::int64_t h = o.dim / 2;
  std::vector<double> row(static_cast<std::size_t>(o.dim), 0.0);
  for (std::int64_t k = 0; k < h; ++k) {
    const auto turn =
        oracle::turn_by(t, static_cast<long double>(o.scale) *
                               oracle::frequency(o.max_period, k, static_cast<double>(h) - o.downscale_freq_shift));
    row[static_cast<std::size_t>(o.flip_sin_to_cos ? h + k : k)] = turn.sin;
    row[static_cast<std::size_t>(o.flip_sin_to_cos ? k : h + k)] = turn.cos;
  }
  return row;
}

}  // namespace

TEST_CASE("timestep: every dim, order, shift and scale, at integer and real timesteps", "[timestep]") {
  const std::vector<double> at{0, 1, 17, 0.5, -3.25, 999};
  for (const std::int64_t dim : {2, 3, 4, 5, 8, 9, 129, 260})
    for (const bool flip : {false, true})
      for (const double shift : {0.0, 1.0, 0.5, -2.0})
        for (const double scale : {1.0, 0.25, 1000.0}) {
          if (shift == 1 && (dim == 2 || dim == 3) && scale == 0.25) continue;  // by hand below
          const posenc::timestep_options o{
              .dim = dim, .flip_sin_to_cos = flip, .downscale_freq_shift = shift, .scale = scale, .max_period = 5000};
          CAPTURE(dim, flip, shift, scale);
          const posenc::timestep<double> e{o};
          const auto rows = e.table(at);
          std::vector<double> whole(static_cast<std::size_t>(3 * dim), 99.0);
          const std::vector<std::int64_t> ids{0, 1, 17};
          e.table(posenc::view{whole.data(), {.tokens = 3, .dim = dim}}, positions::listed(ids));
          posenc_test::worst worst;
          for (std::size_t t = 0; t < at.size(); ++t) {
            const auto want = expected_row(o, at[t]);
            const auto from = static_cast<std::ptrdiff_t>(t) * dim;
            worst.see(largest_difference(std::vector(rows.begin() + from, rows.begin() + from + dim), want), at[t]);
            if (t < 3)
              worst.see(largest_difference(std::vector(whole.begin() + from, whole.begin() + from + dim), want), at[t]);
          }
          INFO(worst);
          CHECK(worst.error < 1e-12 * std::max(1.0, scale));
        }
}

TEST_CASE("timestep: rows known by hand", "[timestep]") {
  const std::vector<double> one{1};
  const double s = std::sin(1.0);
  const double c = std::cos(1.0);
  // h - shift is 0 for one frequency: f(0) = 1.
  CHECK(largest_difference(posenc::timestep<double>{{.dim = 2}}.table(one), std::vector<double>{s, c}) < 2e-16);
  CHECK(largest_difference(posenc::timestep<double>{{.dim = 3, .flip_sin_to_cos = true}}.table(one),
                           std::vector<double>{c, s, 0}) < 2e-16);
  CHECK(largest_difference(posenc::timestep<double>{{.dim = 2, .scale = 0.25}}.table(one),
                           std::vector<double>{std::sin(0.25), std::cos(0.25)}) < 2e-16);
  // The two conventions of diffusers differ in the last frequency: 1/100 with shift 0, 1/10000 with shift 1.
  const auto shifted = posenc::timestep<double>{{.dim = 4}}.table(one);
  CHECK(shifted[1] == Approx(std::sin(1e-4)).epsilon(0).margin(3e-16));
  const auto plain = posenc::timestep<double>{{.dim = 4, .downscale_freq_shift = 0}}.table(one);
  CHECK(plain[1] == Approx(std::sin(1e-2)).epsilon(0).margin(3e-16));
}

TEST_CASE("timestep: Gaussian Fourier features take their own frequencies", "[timestep]") {
  const std::vector<double> weights{0.25, -1.5, 16.3};
  const std::vector<double> at{0, 1, 0.37, -2};
  for (const bool flip : {false, true}) {
    const auto e = posenc::timestep<double>::gaussian_fourier(weights, flip);
    CHECK(e.dim() == 6);
    CHECK(e.flip_sin_to_cos() == flip);
    const auto rows = e.table(at);
    posenc_test::worst worst;
    for (std::size_t t = 0; t < at.size(); ++t)
      for (std::size_t k = 0; k < 3; ++k) {
        const auto turn =
            oracle::turn_by(at[t], 2 * std::numbers::pi_v<long double> * static_cast<long double>(weights[k]));
        worst.see(std::abs(rows[6 * t + (flip ? 3 + k : k)] - turn.sin), at[t]);
        worst.see(std::abs(rows[6 * t + (flip ? k : 3 + k)] - turn.cos), at[t]);
      }
    CHECK(worst.error < 1e-14);
    // A quarter turn is exact.
    CHECK(rows[6 + (flip ? 3 : 0)] == 1);
    CHECK(rows[6 + (flip ? 0 : 3)] == 0);
  }
  CHECK(refusal([] { (void)posenc::timestep<double>::gaussian_fourier({}); }) ==
        "posenc::timestep::gaussian_fourier: weights must not be empty, got 0");
  const std::vector<double> bad{1, HUGE_VAL};
  CHECK(refusal([&] { (void)posenc::timestep<double>::gaussian_fourier(bad); }).find("weights must be finite") !=
        std::string::npos);
}

TEST_CASE("timestep: embed adds to every head; storage types, far timesteps", "[timestep]") {
  const posenc::timestep_options o{.dim = 7, .flip_sin_to_cos = true};
  const posenc::timestep<float> e{o};
  const posenc::shape s{.batch = 2, .tokens = 2, .heads = 3, .dim = 7};
  const auto x = values<float>(s.elements());
  auto sum = x;
  std::vector<float> rows(x.size(), 99.0f);
  const std::vector<std::int64_t> ids{3, 500, 0, 12};
  e.embed(posenc::view{sum.data(), s}, positions::listed(ids, 2));
  e.table(posenc::view{rows.data(), s}, positions::listed(ids, 2));
  std::size_t different = 0;
  for (std::size_t i = 0; i < x.size(); ++i) different += sum[i] != x[i] + rows[i];
  CHECK(different == 0);
  posenc_test::worst worst;
  for (std::size_t i = 0; i < x.size(); ++i)
    worst.see(std::abs(static_cast<double>(rows[i]) - expected_row(o, static_cast<double>(ids[i / 21]))[i % 7]), 0);
  CHECK(worst.error < 3.1e-8);

  const auto exact = posenc::timestep<double>{o}.table(std::vector<double>{12});
  std::vector<Eigen::half> narrow(7);
  e.table(posenc::view{narrow.data(), {.tokens = 1, .dim = 7}}, positions::from(12));
  bool rounded = true;
  for (std::size_t i = 0; i < 7; ++i) rounded = rounded && narrow[i] == posenc::narrow<Eigen::half>(exact[i]);
  CHECK(rounded);
  using dual = Eigen::AutoDiffScalar<Eigen::Vector2d>;
  std::vector<dual> d(7, dual(0.25, 2, 1));
  e.embed(posenc::view{d.data(), {.tokens = 1, .dim = 7}}, positions::from(12));
  CHECK(d[1].value() == Approx(0.25 + exact[1]).epsilon(0).margin(1e-15));
  CHECK(d[1].derivatives() == Eigen::Vector2d(0, 1));

  std::vector<double> far(7);
  e.table(posenc::view{far.data(), {.tokens = 1, .dim = 7}}, positions::from(std::numeric_limits<std::int64_t>::max()));
  double norm = 0;
  for (const double v : far) norm += v * v;
  CHECK(norm == Approx(3).epsilon(1e-14));
  CHECK(e.describe().parameters == 0);
  CHECK(!e.describe().position_limit);
  CHECK(e.describe().table_bytes == 3 * static_cast<std::int64_t>(sizeof(posenc::math::turns)));
  CHECK(posenc::timestep<float>{o}.table(std::vector<double>{}).empty());
}

TEST_CASE("timestep refuses before it writes", "[timestep]") {
  const auto make = [](const posenc::timestep_options& o) { return refusal([&] { posenc::timestep<float>{o}; }); };
  CHECK(make({.dim = 1}) == "posenc::timestep: dim must be at least 2, got 1");
  CHECK(make({.dim = 4, .downscale_freq_shift = 2}) ==
        "posenc::timestep: downscale_freq_shift must be less than dim / 2, or 1 for one frequency, got 2");
  CHECK(make({.dim = 4, .downscale_freq_shift = std::nan("")}).find("downscale_freq_shift") != std::string::npos);
  CHECK(make({.dim = 4, .scale = HUGE_VAL}).find("scale must be finite") != std::string::npos);
  CHECK(make({.dim = 4, .scale = 1e10}).find("scale must keep every frequency within 2^32") != std::string::npos);
  for (const double bad : {0.0, -1.0, HUGE_VAL, std::nan("")})
    CHECK(make({.dim = 4, .max_period = bad}).find("max_period must be positive and finite") != std::string::npos);
  const posenc::timestep<float> e{{.dim = 4}};
  auto x = values<float>(16);
  const auto before = x;
  const posenc::view v{x.data(), {.tokens = 4, .dim = 4}};
  CHECK(refusal([&] {
          e.embed(posenc::view{x.data(), {.tokens = 2, .dim = 6}}, positions{});
        }) == "posenc::timestep::embed: dim must equal the encoder's, got 6");
  const std::vector<double> reals{1, 2, 3, HUGE_VAL};
  CHECK(refusal([&] { e.table(v, posenc::real_positions{reals}); }).find("positions must be finite") !=
        std::string::npos);
  CHECK(refusal([&] {
          e.table(v, positions::listed(std::vector<std::int64_t>{1}));
        }).find("must list one id per token") != std::string::npos);
  CHECK(x == before);
}
