// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/axial.hpp>

#include <limits>

using posenc::axial;
using posenc::positions;
using posenc_test::refusal;
using posenc_test::values;

TEST_CASE("axial: positions split row-major over the axes, coordinates taken as they are", "[axial]") {
  const auto t = values<float>(2 * 3);
  const auto y = values<float>(3 * 1, 1);
  const auto x = values<float>(4 * 2, 2);
  const axial<float> e{{{2, 3, t}, {3, 1, y}, {4, 2, x}}};
  CHECK(e.axes() == 3);
  CHECK(e.dim() == 6);
  CHECK(e.rows() == 24);
  std::vector<float> rows(24 * 6, 99.0f);
  e.lookup(posenc::view{rows.data(), {.tokens = 24, .dim = 6}});
  std::vector<std::int64_t> ids;
  for (std::size_t p = 0; p < 24; ++p) {
    const std::size_t a = p / 12;
    const std::size_t b = p / 4 % 3;
    const std::size_t c = p % 4;
    const std::vector<float> want{t[3 * a], t[3 * a + 1], t[3 * a + 2], y[b], x[2 * c], x[2 * c + 1]};
    CHECK(std::vector(rows.begin() + static_cast<int>(6 * p), rows.begin() + static_cast<int>(6 * p + 6)) == want);
    ids.push_back(static_cast<std::int64_t>(a));
  }
  for (std::int64_t p = 0; p < 24; ++p) ids.push_back(p / 4 % 3);
  for (std::int64_t p = 0; p < 24; ++p) ids.push_back(p % 4);
  std::vector<float> by_axis(rows.size(), 99.0f);
  e.lookup(posenc::view{by_axis.data(), {.tokens = 24, .dim = 6}}, positions::axes(ids, 3));
  CHECK(by_axis == rows);
}

TEST_CASE("axial: embed adds to every head and batch row, in any layout and storage", "[axial]") {
  const auto a = values<double>(3 * 2);
  const auto b = values<double>(4 * 70, 1);
  const axial<double> e{{{3, 2, a}, {4, 70, b}}};
  const posenc::shape s{.batch = 2, .tokens = 3, .heads = 2, .dim = 72};
  const std::vector<std::int64_t> ids{0, 11, 5, 7, 2, 2};
  const auto x = values<double>(s.elements(), 3);
  for (const bool head_major : {false, true}) {
    const posenc::strides step = head_major ? posenc::head_major(s) : posenc::token_major(s);
    auto sum = x;
    std::vector<double> rows(x.size(), 99.0);
    e.embed(posenc::view{sum.data(), s, step}, positions::listed(ids, 2));
    e.lookup(posenc::view{rows.data(), s, step}, positions::listed(ids, 2));
    std::size_t different = 0;
    for (std::size_t i = 0; i < x.size(); ++i) different += sum[i] != x[i] + rows[i];
    CHECK(different == 0);
    const posenc::view v{rows.data(), s, step};
    CHECK(v(0, 1, 1, 1) == a[2 * 2 + 1]);
    CHECK(v(1, 0, 0, 71) == b[3 * 70 + 69]);
  }
  std::vector<Eigen::bfloat16> narrow(72);
  e.lookup(posenc::view{narrow.data(), {.tokens = 1, .dim = 72}}, positions::from(6));
  CHECK(narrow[5] == posenc::narrow<Eigen::bfloat16>(b[2 * 70 + 3]));
  CHECK(e.describe().parameters == 286);
  CHECK(e.describe().table_bytes == 286 * 8);
  CHECK(e.describe().position_limit == 12);
}

TEST_CASE("axial refuses before it writes", "[axial]") {
  const std::vector<float> six(6);
  CHECK(refusal([] { axial<float>{{}}; }) == "posenc::axial: tables must be one to four, got 0");
  CHECK(refusal([&] { axial<float>{{{0, 6, six}}}; }) == "posenc::axial: rows must be at least 1, got 0");
  CHECK(refusal([&] { axial<float>{{{6, 0, six}}}; }) == "posenc::axial: dim must be at least 1, got 0");
  CHECK(refusal([&] { axial<float>{{{2, 2, six}}}; }) == "posenc::axial: table must hold rows * dim elements, got 6");
  const axial<float> e{{{3, 2, six}, {2, 3, six}}};
  auto x = values<float>(10);
  const auto before = x;
  const posenc::view v{x.data(), {.tokens = 2, .dim = 5}};
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{5}, std::numeric_limits<std::int64_t>::min()})
    CHECK(refusal<std::out_of_range>([&] {
            e.embed(v, positions::from(bad));
          }).find("posenc::axial::embed: position must lie in the tables' 0..5, got ") == 0);
  // x 2 is past a table of two rows, although its product with y would lie inside.
  CHECK(refusal<std::out_of_range>([&] {
          e.lookup(v, positions::axes(std::vector<std::int64_t>{0, 0, 0, 2}, 2));
        }) == "posenc::axial::lookup: position must lie in the table's 0..1, got 2");
  CHECK(refusal([&] {
          e.lookup(v, positions::axes(std::vector<std::int64_t>{0, 0, 0, 0, 0, 0}, 3));
        }) == "posenc::axial::lookup: positions must have as many axes as the encoder, got 3");
  CHECK(refusal([&] {
          e.embed(posenc::view{x.data(), {.tokens = 2, .dim = 4}});
        }) == "posenc::axial::embed: dim must equal the encoder's, got 4");
  CHECK(x == before);
}
