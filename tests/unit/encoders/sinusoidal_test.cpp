// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/rotation.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include <unsupported/Eigen/AutoDiff>

#include <limits>

using posenc::positions;
using posenc::sinusoidal_denominator;
using posenc::sinusoidal_layout;
using posenc::sinusoidal_odd;
using posenc_test::largest_difference;
using posenc_test::refusal;
using posenc_test::values;

namespace {

/// The row by its definition, channel by channel.
std::vector<double> expected_row(const posenc::sinusoidal_options& o, double position) {
  const std::int64_t d = o.dim;
  const bool odd = d % 2 != 0;
  std::int64_t sines = d / 2;
  std::int64_t cosines = d / 2;
  double den = static_cast<double>(d / 2);
  if (odd && o.odd == sinusoidal_odd::split) {
    ++sines;
    den = static_cast<double>(d) / 2;
  } else {
    if (odd && o.odd == sinusoidal_odd::truncate) den = static_cast<double>(sines = cosines = (d + 1) / 2);
    if (o.denominator == sinusoidal_denominator::half_minus_1) den -= 1;
  }
  std::vector<double> row;
  const auto sine = [&](std::int64_t i) {
    return o.scale * oracle::turn_by(position + static_cast<double>(o.start), oracle::frequency(o.base, i, den)).sin;
  };
  const auto cosine = [&](std::int64_t i) {
    return o.scale * oracle::turn_by(position + static_cast<double>(o.start), oracle::frequency(o.base, i, den)).cos;
  };
  switch (o.layout) {
    case sinusoidal_layout::concat_sin_cos:
      for (std::int64_t i = 0; i < sines; ++i) row.push_back(sine(i));
      for (std::int64_t i = 0; i < cosines; ++i) row.push_back(cosine(i));
      break;
    case sinusoidal_layout::concat_cos_sin:
      for (std::int64_t i = 0; i < cosines; ++i) row.push_back(cosine(i));
      for (std::int64_t i = 0; i < sines; ++i) row.push_back(sine(i));
      break;
    case sinusoidal_layout::interleaved_sin_cos:
      for (std::int64_t i = 0; i < sines; ++i) row.insert(row.end(), {sine(i), cosine(i)});
      break;
    default:
      for (std::int64_t i = 0; i < sines; ++i) row.insert(row.end(), {cosine(i), sine(i)});
  }
  row.resize(static_cast<std::size_t>(d));
  return row;
}

std::vector<double> row_at(const posenc::sinusoidal_options& o, std::int64_t position) {
  std::vector<double> row(static_cast<std::size_t>(o.dim), 99.0);
  posenc::sinusoidal<double>{o}.table(posenc::view{row.data(), {.tokens = 1, .dim = o.dim}}, positions::from(position));
  return row;
}

}  // namespace

TEST_CASE("sinusoidal: every layout, denominator, odd rule and dim", "[sinusoidal]") {
  // 300 channels take more than one block of frequencies.
  for (const std::int64_t dim : {1, 2, 3, 4, 5, 7, 8, 64, 129, 131, 300})
    for (const auto layout : {sinusoidal_layout::interleaved_sin_cos, sinusoidal_layout::interleaved_cos_sin,
                              sinusoidal_layout::concat_sin_cos, sinusoidal_layout::concat_cos_sin})
      for (const auto denominator : {sinusoidal_denominator::half, sinusoidal_denominator::half_minus_1})
        for (const auto odd : {sinusoidal_odd::zero_pad, sinusoidal_odd::truncate, sinusoidal_odd::split}) {
          const posenc::sinusoidal_options o{.dim = dim,
                                             .base = 500,
                                             .layout = layout,
                                             .denominator = denominator,
                                             .odd = odd,
                                             .start = 2,
                                             .scale = 0.75};
          CAPTURE(dim, layout, denominator, odd);
          posenc_test::worst worst;
          for (const std::int64_t p : {-7, 0, 1, 511})
            worst.see(largest_difference(row_at(o, p), expected_row(o, static_cast<double>(p))), p);
          CHECK(worst.error < 1e-13);
        }
}

TEST_CASE("sinusoidal: rows known by hand", "[sinusoidal]") {
  const double s1 = std::sin(1.0);
  const double c1 = std::cos(1.0);
  CHECK(row_at({.dim = 1}, 1)[0] == Approx(s1).epsilon(0).margin(2e-15));
  CHECK(row_at({.dim = 1, .odd = sinusoidal_odd::zero_pad}, 1) == std::vector<double>{0});
  CHECK(row_at({.dim = 2}, 0) == std::vector<double>{0, 1});
  CHECK(row_at({.dim = 3, .odd = sinusoidal_odd::zero_pad}, 0) == std::vector<double>{0, 1, 0});
  // h - 1 = 0: the one frequency is 1.
  const auto three =
      row_at({.dim = 3, .denominator = sinusoidal_denominator::half_minus_1, .odd = sinusoidal_odd::zero_pad}, 1);
  CHECK(largest_difference(three, std::vector<double>{s1, c1, 0}) < 1e-15);
  // dim 8: frequencies 1, 0.1, 0.01, 0.001.
  const auto eight = row_at({.dim = 8, .layout = sinusoidal_layout::concat_sin_cos}, 3);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(eight[i] == Approx(std::sin(3 * std::pow(10, -static_cast<double>(i)))).epsilon(0).margin(2e-15));
    CHECK(eight[4 + i] == Approx(std::cos(3 * std::pow(10, -static_cast<double>(i)))).epsilon(0).margin(2e-15));
  }
  // Hugging Face Marian's odd row: 3 sines then 2 cosines of base^(-2k/5).
  const auto five = row_at({.dim = 5, .layout = sinusoidal_layout::concat_sin_cos}, 1);
  CHECK(five[1] == Approx(std::sin(std::pow(10000, -0.4))).epsilon(0).margin(2e-15));
  CHECK(five[2] == Approx(std::sin(std::pow(10000, -0.8))).epsilon(0).margin(2e-15));
  CHECK(five[3] == Approx(c1).epsilon(0).margin(2e-15));
  CHECK(five[4] == Approx(std::cos(std::pow(10000, -0.4))).epsilon(0).margin(2e-15));
}

TEST_CASE("sinusoidal: embed adds the row to every head, padding and start", "[sinusoidal]") {
  const posenc::sinusoidal<float> e{{.dim = 6, .start = 2, .scale = 0.5, .padding_idx = 1}};
  CHECK(e.dim() == 6);
  CHECK(e.options().start == 2);
  const posenc::shape s{.batch = 2, .tokens = 3, .heads = 2, .dim = 6};
  const auto x = values<float>(s.elements());
  const std::vector<std::int64_t> ids{0, 1, 5, 1, 2, 100};
  auto sum = x;
  e.embed(posenc::view{sum.data(), s}, positions::listed(ids, 2));
  std::vector<float> rows(x.size(), 99.0f);
  e.table(posenc::view{rows.data(), s}, positions::listed(ids, 2));
  posenc_test::worst worst;
  for (std::size_t t = 0; t < 6; ++t)
    for (std::size_t h = 0; h < 2; ++h)
      for (std::size_t d = 0; d < 6; ++d) {
        const std::size_t i = (2 * t + h) * 6 + d;
        // Position 1 is padding although 1 + start is a position like any other.
        const double want =
            ids[t] == 1 ? 0 : expected_row({.dim = 6, .start = 2, .scale = 0.5}, static_cast<double>(ids[t]))[d];
        worst.see(std::abs(static_cast<double>(rows[i]) - want), static_cast<long double>(i));
        worst.see(std::abs(static_cast<double>(sum[i]) - static_cast<double>(x[i]) - want),
                  static_cast<long double>(i));
      }
  CHECK(worst.error < 2e-7);
  for (std::size_t d = 0; d < 12; ++d) CHECK(sum[12 + d] == x[12 + d]);
}

TEST_CASE("sinusoidal: real positions, far positions, other storage and strides", "[sinusoidal]") {
  const posenc::sinusoidal_options o{.dim = 10, .layout = sinusoidal_layout::concat_cos_sin};
  const posenc::sinusoidal<double> e{o};
  const std::vector<double> at{0.5, -2.25, 999.875};
  std::vector<double> rows(30);
  e.table(posenc::view{rows.data(), {.tokens = 3, .dim = 10}}, posenc::real_positions{at});
  for (std::size_t t = 0; t < 3; ++t)
    CHECK(largest_difference(std::vector(rows.begin() + 10 * static_cast<std::ptrdiff_t>(t),
                                         rows.begin() + 10 * static_cast<std::ptrdiff_t>(t + 1)),
                             expected_row(o, at[t])) < 3e-13);
  // No table, so no limit: every row has the norm of the first.
  for (const std::int64_t far :
       {std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    const auto row = row_at(o, far);
    double norm = 0;
    for (const double v : row) norm += v * v;
    CHECK(norm == Approx(5).epsilon(1e-14));
  }
  CHECK(!e.describe().position_limit);
  CHECK(e.describe().parameters == 0);
  CHECK(e.describe().table_bytes == 5 * static_cast<std::int64_t>(sizeof(posenc::math::turns)));

  const auto exact = row_at(o, 37);
  std::vector<Eigen::half> narrow(10);
  e.table(posenc::view{narrow.data(), {.tokens = 1, .dim = 10}}, positions::from(37));
  for (std::size_t i = 0; i < 10; ++i) CHECK(narrow[i] == Eigen::half(static_cast<float>(exact[i])));
  std::vector<Eigen::bfloat16> sum(10, Eigen::bfloat16(1.0f));
  e.embed(posenc::view{sum.data(), {.tokens = 1, .dim = 10}}, positions::from(37));
  CHECK(largest_difference(
            sum, std::vector<double>{1 + exact[0], 1 + exact[1], 1 + exact[2], 1 + exact[3], 1 + exact[4], 1 + exact[5],
                                     1 + exact[6], 1 + exact[7], 1 + exact[8], 1 + exact[9]}) <= 0x1p-8);
  std::vector<long double> wide(10);
  e.table(posenc::view{wide.data(), {.tokens = 1, .dim = 10}}, positions::from(37));
  CHECK(largest_difference(wide, exact) == 0);
  std::vector<float> strided(30, 1.0f);
  e.embed(posenc::view{strided.data(), {.tokens = 1, .dim = 10}, {.dim = 3}}, positions::from(37));
  for (std::size_t i = 0; i < 10; ++i) {
    CHECK(static_cast<double>(strided[3 * i]) == Approx(1 + exact[i]).epsilon(0).margin(1.2e-7));
    CHECK((strided[3 * i + 1] == 1 && strided[3 * i + 2] == 1));
  }
  // Embedding an autodiff scalar passes derivatives through.
  using dual = Eigen::AutoDiffScalar<Eigen::Vector2d>;
  std::vector<dual> x(10, dual(0.25, 2, 1));
  e.embed(posenc::view{x.data(), {.tokens = 1, .dim = 10}}, positions::from(37));
  CHECK(x[3].value() == Approx(0.25 + exact[3]).epsilon(0).margin(2e-15));
  CHECK(x[3].derivatives() == Eigen::Vector2d(0, 1));
}

TEST_CASE("sinusoidal: a table of its own", "[sinusoidal]") {
  const posenc::sinusoidal_options o{.dim = 5, .layout = sinusoidal_layout::concat_sin_cos, .start = 1};
  const auto table = posenc::sinusoidal<double>{o}.table(-2, 4);
  REQUIRE(table.size() == 20);
  for (std::int64_t t = 0; t < 4; ++t)
    CHECK(std::vector(table.begin() + 5 * t, table.begin() + 5 * (t + 1)) == row_at(o, t - 2));
  const auto single = posenc::sinusoidal<float>{o}.table(-2, 4);
  bool rounded = true;
  for (std::size_t i = 0; i < 20; ++i) rounded = rounded && single[i] == static_cast<float>(table[i]);
  CHECK(rounded);
  const auto half = posenc::sinusoidal<Eigen::half>{o}.table(-2, 4);
  CHECK(largest_difference(half, table) <= 0x1p-12);
  CHECK(posenc::sinusoidal<double>{o}.table(7, 0).empty());
  CHECK(refusal([&] { (void)posenc::sinusoidal<double>{o}.table(0, -1); }) ==
        "posenc::sinusoidal::table: rows must not be negative, got -1");
}

TEST_CASE("sinusoidal refuses before it writes", "[sinusoidal]") {
  const auto make = [](const posenc::sinusoidal_options& o) { return refusal([&] { posenc::sinusoidal<float>{o}; }); };
  constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
  CHECK(make({.dim = 0}) == "posenc::sinusoidal: dim must be at least 1, got 0");
  CHECK(make({.dim = -2}) == "posenc::sinusoidal: dim must be at least 1, got -2");
  for (const double bad : {0.0, -1.0, not_a_number, HUGE_VAL})
    CHECK(make({.dim = 4, .base = bad}).find("base must be positive and finite") != std::string::npos);
  for (const double bad : {not_a_number, HUGE_VAL})
    CHECK(make({.dim = 4, .scale = bad}).find("scale must be finite") != std::string::npos);

  const posenc::sinusoidal<float> e{{.dim = 4}};
  auto x = values<float>(16);
  const auto before = x;
  const posenc::view v{x.data(), {.tokens = 2, .heads = 2, .dim = 4}};
  CHECK(refusal([&] {
          e.embed(posenc::view{x.data(), {.tokens = 2, .dim = 6}});
        }) == "posenc::sinusoidal::embed: dim must equal the encoder's, got 6");
  CHECK(refusal([&] {
          e.table(posenc::view{x.data(), {.tokens = 2, .dim = 6}});
        }) == "posenc::sinusoidal::table: dim must equal the encoder's, got 6");
  CHECK(refusal([&] {
          e.embed(posenc::view{x.data(), {.tokens = 2, .heads = 2, .dim = 4}, {.token = 4, .head = 0}});
        }) == "posenc::sinusoidal::embed: x must not repeat elements through a stride of 0, got a stride of 0");
  const std::vector<std::int64_t> ids{1, 2, 3};
  CHECK(refusal([&] { e.embed(v, positions::listed(ids)); }) ==
        "posenc::sinusoidal::embed: positions must list one id per token, batch row and axis, got 3");
  CHECK(refusal([&] {
          e.embed(v, positions::axes(std::vector<std::int64_t>{1, 2, 3, 4}, 2));
        }) == "posenc::sinusoidal::embed: positions must have one axis, got 2");
  const std::vector<double> reals{1, HUGE_VAL};
  CHECK(refusal([&] { e.embed(v, posenc::real_positions{reals}); }).find("positions must be finite") !=
        std::string::npos);
  CHECK(refusal([&] { e.embed(v, posenc::real_positions{std::span(reals).first(1)}); }) ==
        "posenc::sinusoidal::embed: positions must list one position per token, got 1");
  CHECK(x == before);
}
