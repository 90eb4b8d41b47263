// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/resize.hpp>

#include <optional>

using posenc::resize_mode;
using posenc::resize_options;
using posenc::table_extent;
using posenc::table_resize;
using posenc_test::largest_difference;
using posenc_test::refusal;
using posenc_test::values;

namespace {

long double keys_kernel(long double t, long double a) {
  t = std::fabs(t);
  if (t <= 1) return (a + 2) * t * t * t - (a + 3) * t * t + 1;
  if (t < 2) return a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a;
  return 0;
}

/// What input j weighs in output o, by asking every tap of the formula whether it lands on j.
long double weight(std::int64_t j, std::int64_t o, std::int64_t n, std::int64_t m, const resize_options& how,
                   std::optional<double> factor) {
  const auto wide = [](auto x) { return static_cast<long double>(x); };
  const long double step =
      how.align_corners ? (m > 1 ? wide(n - 1) / wide(m - 1) : 0) : (factor ? 1 / wide(*factor) : wide(n) / wide(m));
  const bool cubic = how.mode == resize_mode::bicubic;
  const long double centre = (wide(o) + 0.5L) * step;
  if (how.antialias) {
    const long double unit = std::max(step, 1.0L);
    const long double reach = (cubic ? 2 : 1) * unit;
    const auto value = [&](std::int64_t i) {
      const long double t = (wide(i) - centre + 0.5L) / unit;
      return cubic ? keys_kernel(t, -0.5L) : std::max(0.0L, 1 - std::fabs(t));
    };
    const auto first = std::max<std::int64_t>(static_cast<std::int64_t>(centre - reach + 0.5L), 0);
    const auto end = std::min<std::int64_t>(static_cast<std::int64_t>(centre + reach + 0.5L), n);
    long double sum = 0;
    for (std::int64_t i = first; i < end; ++i) sum += value(i);
    return j >= first && j < end ? value(j) / sum : 0;
  }
  long double s = how.align_corners ? wide(o) * step : centre - 0.5L;
  long double total = 0;
  if (!cubic) {
    if (!how.align_corners) s = std::max(s, 0.0L);
    const long double f = std::min(std::floor(s), wide(n - 1));
    if (static_cast<std::int64_t>(f) == j) total += 1 - (s - f);
    if (std::min<std::int64_t>(static_cast<std::int64_t>(f) + 1, n - 1) == j) total += s - f;
    return total;
  }
  for (int i = -1; i <= 2; ++i) {
    const long double tap = std::floor(s) + i;
    if (std::clamp<std::int64_t>(static_cast<std::int64_t>(tap), 0, n - 1) == j) total += keys_kernel(s - tap, -0.75L);
  }
  return total;
}

std::vector<double> dense(const std::vector<double>& table, const resize_options& o, const table_extent& to) {
  const std::int64_t cells = o.from.rows * o.from.columns;
  const std::int64_t channels = static_cast<std::int64_t>(table.size()) / (o.prefix_rows + cells + o.suffix_rows);
  const auto at = [&](std::int64_t row, std::int64_t c) { return table[static_cast<std::size_t>(row * channels + c)]; };
  std::vector<double> out;
  for (std::int64_t r = 0; r < o.prefix_rows; ++r)
    for (std::int64_t c = 0; c < channels; ++c) out.push_back(at(r, c));
  const auto factor = [&](std::size_t axis) {
    return o.scale_factor ? std::optional<double>((*o.scale_factor)[axis]) : std::nullopt;
  };
  for (std::int64_t y = 0; y < to.rows; ++y)
    for (std::int64_t x = 0; x < to.columns; ++x)
      for (std::int64_t c = 0; c < channels; ++c) {
        long double sum = 0;
        for (std::int64_t i = 0; i < o.from.rows; ++i)
          for (std::int64_t j = 0; j < o.from.columns; ++j)
            sum += weight(i, y, o.from.rows, to.rows, o, factor(0)) *
                   weight(j, x, o.from.columns, to.columns, o, factor(1)) *
                   static_cast<long double>(at(o.prefix_rows + i * o.from.columns + j, c));
        out.push_back(static_cast<double>(sum));
      }
  for (std::int64_t r = 0; r < o.suffix_rows; ++r)
    for (std::int64_t c = 0; c < channels; ++c) out.push_back(at(o.prefix_rows + cells + r, c));
  return out;
}

std::vector<double> table_of(const resize_options& o, std::int64_t channels) {
  return values<double>((o.prefix_rows + o.from.rows * o.from.columns + o.suffix_rows) * channels);
}

}  // namespace

TEST_CASE("resize: every mode against the dense formula", "[resize]") {
  const table_extent sizes[] = {{1, 1}, {1, 5}, {2, 3}, {4, 4}, {7, 5}, {3, 9}};
  for (const auto mode : {resize_mode::bilinear, resize_mode::bicubic})
    for (const int way : {0, 1, 2})
      for (const table_extent& from : sizes)
        for (const table_extent& to : sizes) {
          const resize_options o{
              .from = from, .to = to, .mode = mode, .align_corners = way == 1, .antialias = way == 2};
          const auto table = table_of(o, 3);
          CAPTURE(static_cast<int>(mode), way, from.rows, from.columns, to.rows, to.columns);
          CHECK(largest_difference(table_resize(o)(table), dense(table, o, to)) < 1e-14);
        }
}

TEST_CASE("resize: a scale factor sets the step and, without sizes, the sizes", "[resize]") {
  for (const auto mode : {resize_mode::bilinear, resize_mode::bicubic})
    for (const bool antialias : {false, true}) {
      // As the original DINO asks for 6 x 5 from 4 x 4.
      const resize_options o{
          .from = {4, 4}, .mode = mode, .antialias = antialias, .scale_factor = {{(6 + 0.1) / 4, (5 + 0.1) / 4}}};
      const table_resize resize(o);
      CHECK(resize.to() == table_extent{6, 5});
      const auto table = table_of(o, 2);
      CHECK(largest_difference(resize(table), dense(table, o, {6, 5})) < 1e-14);
      resize_options by_size = o;
      by_size.scale_factor.reset();
      by_size.to = table_extent{6, 5};
      CHECK(largest_difference(resize(table), table_resize(by_size)(table)) > 1e-3);
    }
}

TEST_CASE("resize: rows before and after the grid stay as they are", "[resize]") {
  const resize_options o{.from = {3, 3}, .to = table_extent{5, 4}, .prefix_rows = 2, .suffix_rows = 3};
  const table_resize resize(o);
  CHECK(resize.rows_before() == 14);
  CHECK(resize.rows_after() == 25);
  const auto table = table_of(o, 4);
  const auto out = resize(table);
  CHECK(largest_difference(out, dense(table, o, {5, 4})) < 1e-14);
  CHECK(std::equal(table.begin(), table.begin() + 8, out.begin()));
  CHECK(std::equal(table.end() - 12, table.end(), out.end() - 12));
  const auto back = resize.adjoint(out);
  CHECK(back.size() == table.size());
  CHECK(std::equal(out.begin(), out.begin() + 8, back.begin()));
  CHECK(std::equal(out.end() - 12, out.end(), back.end() - 12));
}

TEST_CASE("resize: the same size changes no value", "[resize]") {
  const auto table = values<float>(5 * 7 * 6);
  for (const auto mode : {resize_mode::bilinear, resize_mode::bicubic})
    for (const bool align : {false, true}) {
      const table_resize resize({.from = {5, 7}, .to = table_extent{5, 7}, .mode = mode, .align_corners = align});
      CHECK(resize(table) == table);
      CHECK(resize.adjoint(table) == table);
    }
  const table_resize smooth({.from = {5, 7}, .to = table_extent{5, 7}, .antialias = true});
  CHECK(smooth(table) == table);  // the kernel with a = -0.5 is 0 at 1, so even it leaves samples alone
}

TEST_CASE("resize: one axis is a grid of one column", "[resize]") {
  // SAM: 27 rows of relative positions become 2 * 10 - 1.
  const resize_options o{.from = {.rows = 27}, .to = table_extent{.rows = 19}, .mode = resize_mode::bilinear};
  const auto table = values<double>(27 * 8);
  const auto out = table_resize(o)(table);
  std::vector<double> expected;
  for (int r = 0; r < 19; ++r) {
    const double s = std::max((r + 0.5) * 27 / 19 - 0.5, 0.0);
    const auto f = static_cast<std::size_t>(s);
    const double w = s - static_cast<double>(f);
    for (std::size_t c = 0; c < 8; ++c)
      expected.push_back((1 - w) * table[f * 8 + c] + w * table[std::min<std::size_t>(f + 1, 26) * 8 + c]);
  }
  CHECK(largest_difference(out, expected) < 1e-14);
}

TEST_CASE("resize: sums are double, rounded once to the table's type", "[resize]") {
  const resize_options o{.from = {6, 5}, .to = table_extent{9, 4}, .antialias = true};
  const auto wide = table_of(o, 3);
  std::vector<float> single;
  std::vector<Eigen::half> half;
  for (const double v : wide) {
    single.push_back(static_cast<float>(v));
    half.push_back(posenc::narrow<Eigen::half>(v));
  }
  const table_resize resize(o);
  const auto from_double = [&](const auto& table) {
    std::vector<double> exact;
    for (const auto& v : table) exact.push_back(static_cast<double>(posenc::widen(v)));
    using T = typename std::remove_cvref_t<decltype(table)>::value_type;
    std::vector<T> rounded;
    for (const double v : resize(exact)) rounded.push_back(posenc::narrow<T>(v));
    return rounded;
  };
  CHECK(resize(single) == from_double(single));
  CHECK(resize(half) == from_double(half));
  std::vector<long double> longer(wide.begin(), wide.end());
  CHECK(largest_difference(resize(longer), resize(wide)) < 1e-15);
}

TEST_CASE("resize: the adjoint is the transpose of the dense matrix", "[resize]") {
  const resize_options o{.from = {4, 3}, .to = table_extent{5, 7}, .mode = resize_mode::bicubic};
  const table_resize resize(o);
  // Column k of the matrix is the resize of the k-th unit table; row k of its transpose is what the adjoint gives.
  const auto upstream = values<double>(35);
  const auto back = resize.adjoint(upstream);
  for (std::size_t k = 0; k < 12; ++k) {
    std::vector<double> unit(12, 0.0);
    unit[k] = 1;
    const auto column = dense(unit, o, {5, 7});
    double sum = 0;
    for (std::size_t i = 0; i < 35; ++i) sum += column[i] * upstream[i];
    CHECK(back[k] == Approx(sum).epsilon(0).margin(1e-14));
  }
}

TEST_CASE("resize: Keys' kernel with a = -0.5 keeps straight lines, with a = -0.75 it does not", "[resize]") {
  std::vector<double> line;
  for (int i = 0; i < 14; ++i) line.push_back(i);
  const auto bend = [&](bool antialias) {
    const auto out = table_resize({.from = {.rows = 14}, .to = table_extent{.rows = 16}, .antialias = antialias})(line);
    double most = 0;  // away from the ends, where indices are clamped
    for (std::size_t o = 3; o < 13; ++o)
      most = std::max(most, std::abs(out[o] - ((static_cast<double>(o) + 0.5) * 14 / 16 - 0.5)));
    return most;
  };
  CHECK(bend(true) < 1e-13);
  CHECK(bend(false) == Approx(0.046875).epsilon(0.1));
}

TEST_CASE("resize: an input that no output reads is not touched by the work", "[resize]") {
  // 1000 x 1000 to 1 x 1: four taps on each axis, none of them zero.
  const table_resize resize({.from = {1000, 1000}, .to = table_extent{1, 1}});
  CHECK(resize.row_axis().taps(0).size() == 4);
  std::vector<float> table(1000 * 1000, std::nanf(""));
  for (std::size_t y = 498; y <= 501; ++y)
    for (std::size_t x = 498; x <= 501; ++x) table[y * 1000 + x] = 3;
  CHECK(resize(table)[0] == 3);
}

TEST_CASE("resize: what is refused", "[resize]") {
  const auto made = [](const resize_options& o) { return refusal([&] { table_resize r(o); }); };
  CHECK(made({.from = {0, 4}, .to = table_extent{2, 2}}) ==
        "posenc::table_resize: from.rows must lie in 1..2^31, got 0");
  CHECK(made({.from = {4, 4}, .to = table_extent{2, -1}}) ==
        "posenc::table_resize: to.columns must lie in 1..2^31, got -1");
  CHECK(made({.from = {4, 4}}) == "posenc::table_resize: to or scale_factor must be given, got neither");
  CHECK(made({.from = {4, 4}, .to = table_extent{6, 6}, .align_corners = true, .antialias = true}) ==
        "posenc::table_resize: antialias must not go with align_corners, got true");
  CHECK(made({.from = {4, 4}, .to = table_extent{7, 6}, .scale_factor = {{1.525, 1.525}}}) ==
        "posenc::table_resize: to.rows must be floor(from * scale_factor), got 7");
  CHECK(made({.from = {4, 4}, .scale_factor = {{-1.0, 1.0}}}) ==
        "posenc::table_resize: scale_factor must be positive and leave at most 2^31 rows, got -1");
  CHECK(made({.from = {4, 4}, .scale_factor = {{std::nan(""), 1.0}}}).find("scale_factor") != std::string::npos);
  CHECK(made({.from = {4, 4}, .scale_factor = {{0.1, 1.0}}}) ==
        "posenc::table_resize: to.rows must lie in 1..2^31, got 0");
  CHECK(made({.from = {4, 4}, .to = table_extent{6, 6}, .prefix_rows = -1}) ==
        "posenc::table_resize: prefix_rows must not be negative, got -1");
  const table_resize resize({.from = {4, 4}, .to = table_extent{6, 6}, .prefix_rows = 1});
  CHECK(refusal([&] { (void)resize(std::vector<float>(16)); }) ==
        "posenc::table_resize: table must hold a multiple of the 17 rows of the table, got 16");
  CHECK(refusal([&] { (void)resize.adjoint(std::vector<float>(17)); }) ==
        "posenc::table_resize::adjoint: upstream must hold a multiple of the 37 rows of the new table, got 17");
}
