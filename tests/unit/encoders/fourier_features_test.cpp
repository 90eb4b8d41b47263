// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/rotation.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/fourier_features.hpp>

#include <numbers>

using posenc::fourier_features;
using posenc::fourier_order;
using posenc::real_positions;
using posenc_test::largest_difference;
using posenc_test::refusal;
using posenc_test::values;

namespace {

constexpr long double pi = std::numbers::pi_v<long double>;

/// The features of one token in the order of the definition; bands[a][m] in radians per unit.
std::vector<double> expected(const std::vector<double>& x, const std::vector<std::vector<long double>>& bands,
                             bool concat_pos, bool sine_only, fourier_order order) {
  std::vector<double> out;
  if (concat_pos) out = x;
  const std::size_t n = bands[0].size();
  const auto sine = [&](std::size_t a, std::size_t m) { out.push_back(oracle::turn_by(x[a], bands[a][m]).sin); };
  const auto cosine = [&](std::size_t a, std::size_t m) {
    if (!sine_only) out.push_back(oracle::turn_by(x[a], bands[a][m]).cos);
  };
  if (order == fourier_order::by_function) {
    for (std::size_t a = 0; a < x.size(); ++a)
      for (std::size_t m = 0; m < n; ++m) sine(a, m);
    for (std::size_t a = 0; a < x.size(); ++a)
      for (std::size_t m = 0; m < n; ++m) cosine(a, m);
  } else if (order == fourier_order::by_band) {
    for (std::size_t m = 0; m < n; ++m) {
      for (std::size_t a = 0; a < x.size(); ++a) sine(a, m);
      for (std::size_t a = 0; a < x.size(); ++a) cosine(a, m);
    }
  } else {
    for (std::size_t a = 0; a < x.size(); ++a)
      for (std::size_t m = 0; m < n; ++m) {
        sine(a, m);
        cosine(a, m);
      }
  }
  return out;
}

constexpr fourier_order orders[] = {fourier_order::by_function, fourier_order::by_band, fourier_order::by_axis};

}  // namespace

TEST_CASE("fourier_features: bands, axes, orders, options", "[fourier_features]") {
  for (const std::size_t axes : {1u, 2u, 3u})
    for (const std::int64_t n : {1, 2, 5, 70})
      for (const bool concat_pos : {false, true})
        for (const bool sine_only : {false, true})
          for (const auto order : orders) {
            CAPTURE(axes, n, concat_pos, sine_only, order);
            posenc::fourier_features_options o{
                .num_bands = n, .concat_pos = concat_pos, .sine_only = sine_only, .order = order};
            std::vector<std::vector<long double>> bands(axes);
            for (std::size_t a = 0; a < axes; ++a) {
              o.max_resolution.push_back(16.0 * static_cast<double>(a + 1));
              const long double last = 8.0L * static_cast<long double>(a + 1);
              for (std::int64_t m = 0; m < n; ++m)
                bands[a].push_back(
                    pi *
                    (n == 1 ? 1.0L : 1 + (last - 1) * static_cast<long double>(m) / static_cast<long double>(n - 1)));
            }
            const fourier_features e{o};
            const std::vector<double> at{0.25, -1, 0.75, -0.3, 0.1, 1};  // [axis][token]
            std::vector<double> rows(static_cast<std::size_t>(2 * e.dim()), 99.0);
            std::vector<double> coordinates(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(2 * axes));
            e.table(posenc::view{rows.data(), {.tokens = 2, .dim = e.dim()}},
                    real_positions::axes(coordinates, static_cast<int>(axes)));
            std::vector<double> want;
            for (std::size_t t = 0; t < 2; ++t) {
              std::vector<double> x;
              for (std::size_t a = 0; a < axes; ++a) x.push_back(at[2 * a + t]);
              const auto row = expected(x, bands, concat_pos, sine_only, order);
              want.insert(want.end(), row.begin(), row.end());
            }
            CHECK(largest_difference(rows, want) < 2e-14);
          }
}

TEST_CASE("fourier_features: NeRF's powers of two, with and without pi", "[fourier_features]") {
  for (const bool times_pi : {false, true})
    for (const auto order : orders) {
      const auto e = fourier_features::nerf({.axes = 3, .num_freqs = 10, .times_pi = times_pi, .order = order});
      CHECK(e.dim() == 63);
      std::vector<std::vector<long double>> bands(3);
      for (auto& b : bands)
        for (int k = 0; k < 10; ++k) b.push_back(std::ldexp(times_pi ? pi : 1.0L, k));
      const std::vector<double> x{0.3, -0.7, 0.125};
      std::vector<double> row(63, 99.0);
      e.table(posenc::view{row.data(), {.tokens = 1, .dim = 63}}, real_positions::axes(x, 3));
      CHECK(largest_difference(row, expected(x, bands, true, false, order)) < 2e-14);
    }
  // 2^k pi / 8 are exact fractions of a turn.
  const auto one = fourier_features::nerf({.axes = 1, .num_freqs = 4, .include_input = false});
  std::vector<double> row(8);
  const std::vector<double> eighth{0.125};
  one.table(posenc::view{row.data(), {.tokens = 1, .dim = 8}}, real_positions{eighth});
  CHECK(row[4] == 1);   // sin(pi / 2)
  CHECK(row[7] == -1);  // cos(pi)
}

TEST_CASE("fourier_features: embed, storage, description", "[fourier_features]") {
  const fourier_features e{{.num_bands = 3, .max_resolution = {8, 4}}};
  CHECK(e.axes() == 2);
  CHECK(e.dim() == 14);
  CHECK(e.describe().table_bytes == 6 * static_cast<std::int64_t>(sizeof(posenc::math::turns)));
  const posenc::shape s{.batch = 2, .tokens = 2, .heads = 2, .dim = 14};
  const std::vector<double> at{0.1, 0.2, -0.5, 0.9};
  const auto x = values<float>(s.elements());
  auto sum = x;
  std::vector<float> rows(x.size(), 99.0f);
  e.embed(posenc::view{sum.data(), s}, real_positions::axes(at, 2));
  e.table(posenc::view{rows.data(), s}, real_positions::axes(at, 2));
  posenc_test::worst worst;
  for (std::size_t i = 0; i < x.size(); ++i)
    worst.see(std::abs(static_cast<double>(sum[i]) - static_cast<double>(x[i]) - static_cast<double>(rows[i])), 0);
  CHECK(worst.error < 1.3e-7);
  CHECK(rows[0] == 0.1f);
  CHECK(rows[1] == -0.5f);
  std::vector<double> exact(28);
  e.table(posenc::view{exact.data(), {.tokens = 2, .dim = 14}}, real_positions::axes(at, 2));
  std::vector<Eigen::bfloat16> narrow(28);
  e.table(posenc::view{narrow.data(), {.tokens = 2, .dim = 14}}, real_positions::axes(at, 2));
  bool rounded = true;
  for (std::size_t i = 0; i < 28; ++i) rounded = rounded && narrow[i] == posenc::narrow<Eigen::bfloat16>(exact[i]);
  CHECK(rounded);
}

TEST_CASE("fourier_features refuses before it writes", "[fourier_features]") {
  const auto make = [](const posenc::fourier_features_options& o) { return refusal([&] { fourier_features{o}; }); };
  CHECK(make({.num_bands = 0, .max_resolution = {1}}) ==
        "posenc::fourier_features: num_bands must lie in 1..2^24, got 0");
  CHECK(make({.num_bands = 1}) == "posenc::fourier_features: max_resolution must list one to four axes, got 0");
  CHECK(make({.num_bands = 1, .max_resolution = {HUGE_VAL}}).find("max_resolution must be finite") !=
        std::string::npos);
  CHECK(refusal([] { (void)fourier_features::nerf({.axes = 5}); }) ==
        "posenc::fourier_features::nerf: axes must lie in 1..4, got 5");
  CHECK(refusal([] { (void)fourier_features::nerf({.num_freqs = 31}); }) ==
        "posenc::fourier_features::nerf: num_freqs must lie in 1..30, got 31");
  const fourier_features e{{.num_bands = 1, .max_resolution = {4, 4}}};
  auto x = values<float>(12);
  const auto before = x;
  const posenc::view v{x.data(), {.tokens = 2, .dim = 6}};
  const std::vector<double> at{1, 2, 3, HUGE_VAL};
  CHECK(refusal([&] { e.table(v, real_positions::axes(at, 2)); }).find("positions must be finite") !=
        std::string::npos);
  CHECK(refusal([&] {
          e.table(v, real_positions{std::span(at).first(2)});
        }).find("positions must have as many axes as the encoder") != std::string::npos);
  CHECK(refusal([&] {
          e.embed(posenc::view{x.data(), {.tokens = 2, .dim = 5}}, real_positions::axes(at, 2));
        }) == "posenc::fourier_features::embed: dim must equal the encoder's, got 5");
  CHECK(x == before);
}
