// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/rotation.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/grid_sinusoidal.hpp>

using options = posenc::grid_sinusoidal_options;
using posenc::grid_block;
using posenc::positions;
using posenc::sinusoidal_denominator;
using posenc::sinusoidal_layout;
using posenc_test::largest_difference;
using posenc_test::refusal;
using posenc_test::values;

namespace {

/// The row of one cell by its definition: block by block, pair by pair.
std::vector<double> expected_row(const options& o, const std::vector<double>& at) {
  std::vector<double> row;
  for (const grid_block& block : o.blocks) {
    const auto axis = static_cast<std::size_t>(block.axis);
    const std::int64_t n = block.channels / 2;
    const double den = static_cast<double>(o.denominator == sinusoidal_denominator::half ? n : n - 1);
    const long double stretch = o.coordinate_scale.empty() ? 1 : static_cast<long double>(o.coordinate_scale[axis]);
    std::vector<double> part(static_cast<std::size_t>(block.channels));
    for (std::int64_t k = 0; k < n; ++k) {
      const auto turn = oracle::turn_by(at[axis], stretch * oracle::frequency(o.base, k, den));
      const bool concat =
          o.layout == sinusoidal_layout::concat_sin_cos || o.layout == sinusoidal_layout::concat_cos_sin;
      const bool sine_first =
          o.layout == sinusoidal_layout::concat_sin_cos || o.layout == sinusoidal_layout::interleaved_sin_cos;
      part[static_cast<std::size_t>(concat ? k : 2 * k)] = sine_first ? turn.sin : turn.cos;
      part[static_cast<std::size_t>(concat ? n + k : 2 * k + 1)] = sine_first ? turn.cos : turn.sin;
    }
    row.insert(row.end(), part.begin(), part.end());
  }
  row.resize(static_cast<std::size_t>(o.dim));
  return row;
}

}  // namespace

TEST_CASE("grid_sinusoidal: whole grids and listed cells, every layout, denominator and order of blocks",
          "[grid_sinusoidal]") {
  const std::vector<std::int64_t> extents{2, 3, 4};
  // The last block is cut, or zeros follow it.
  const std::vector<std::vector<grid_block>> orders{
      {{2, 4}, {0, 6}, {1, 2}}, {{0, 2}, {1, 140}, {2, 2}}, {{2, 2}, {2, 4}}};
  for (const auto& blocks : orders)
    for (const std::int64_t dim : {9, 20, 300})
      for (const auto layout : {sinusoidal_layout::interleaved_sin_cos, sinusoidal_layout::interleaved_cos_sin,
                                sinusoidal_layout::concat_sin_cos, sinusoidal_layout::concat_cos_sin})
        for (const auto denominator : {sinusoidal_denominator::half, sinusoidal_denominator::half_minus_1}) {
          const options o{.dim = dim,
                          .base = 300,
                          .layout = layout,
                          .denominator = denominator,
                          .blocks = blocks,
                          .prefix_rows = 2,
                          .coordinate_scale = {1, 0.5, -3}};
          CAPTURE(blocks.size(), dim, layout, denominator);
          const posenc::grid_sinusoidal<double> e{o};
          REQUIRE(e.axes() == 3);
          std::vector<double> rows(static_cast<std::size_t>(26 * dim), 99.0);
          e.table(posenc::view{rows.data(), {.tokens = 26, .dim = dim}}, extents);
          std::vector<double> want(static_cast<std::size_t>(2 * dim), 0.0);
          std::vector<std::int64_t> ids;
          for (std::int64_t t = 0; t < 24; ++t) {
            const auto row = expected_row(
                o, {static_cast<double>(t / 12), static_cast<double>(t / 4 % 3), static_cast<double>(t % 4)});
            want.insert(want.end(), row.begin(), row.end());
          }
          CHECK(largest_difference(rows, want) < 1e-14);
          for (std::int64_t t = 0; t < 24; ++t) ids.push_back(t / 12);
          for (std::int64_t t = 0; t < 24; ++t) ids.push_back(t / 4 % 3);
          for (std::int64_t t = 0; t < 24; ++t) ids.push_back(t % 4);
          std::vector<double> listed(static_cast<std::size_t>(24 * dim), 99.0);
          e.table(posenc::view{listed.data(), {.tokens = 24, .dim = dim}}, positions::axes(ids, 3));
          CHECK(std::vector(rows.begin() + 2 * dim, rows.end()) == listed);
          CHECK(e.table(extents) == rows);
        }
}

TEST_CASE("grid_sinusoidal: the makers by name", "[grid_sinusoidal]") {
  // MAE: x before y, although its code calls the first half emb_h.
  const auto mae = options::mae(8, 1);
  CHECK(mae.blocks == std::vector<grid_block>{{1, 4}, {0, 4}});
  const std::vector<std::int64_t> square{2, 2};
  const auto rows = posenc::grid_sinusoidal<double>{mae}.table(square);
  const double s = std::sin(1.0);
  const double c = std::cos(1.0);
  const double s2 = std::sin(0.01);
  const double c2 = std::cos(0.01);
  CHECK(std::vector(rows.begin(), rows.begin() + 8) == std::vector<double>(8, 0.0));
  // Cell (y 0, x 1).
  CHECK(largest_difference(std::vector(rows.begin() + 16, rows.begin() + 24),
                           std::vector<double>{s, s2, c, c2, 0, 0, 1, 1}) < 2e-16);
  // Cell (y 1, x 0).
  CHECK(largest_difference(std::vector(rows.begin() + 24, rows.begin() + 32),
                           std::vector<double>{0, 0, 1, 1, s, s2, c, c2}) < 2e-16);
  const auto two = options::diffusers_2d(16, 3, 5, 4, 2);
  CHECK(two.blocks == std::vector<grid_block>{{1, 8}, {0, 8}});
  CHECK(largest_difference(two.coordinate_scale, std::vector<double>{2.0 / 3, 0.4}) < 1e-16);
  const auto three = options::diffusers_3d(32, 2, 4);
  CHECK(three.blocks == std::vector<grid_block>{{0, 8}, {2, 12}, {1, 12}});
  CHECK(three.coordinate_scale == std::vector<double>{0.25, 0.5, 0.5});
  const auto multidim = options::multidim(10, 2);
  CHECK(multidim.blocks == std::vector<grid_block>{{0, 6}, {1, 6}});
  CHECK(multidim.layout == sinusoidal_layout::interleaved_sin_cos);
  CHECK(options::multidim(12, 3).blocks == std::vector<grid_block>{{0, 4}, {1, 4}, {2, 4}});
  CHECK(options::multidim(13, 3).blocks == std::vector<grid_block>{{0, 6}, {1, 6}, {2, 6}});
  const auto t2t = options::tensor2tensor(11, 2);
  CHECK(t2t.blocks == std::vector<grid_block>{{0, 4}, {1, 4}});
  CHECK(t2t.denominator == sinusoidal_denominator::half_minus_1);
  const auto last = posenc::grid_sinusoidal<double>{t2t}.table(square);
  CHECK(std::vector(last.end() - 3, last.end()) == std::vector<double>(3, 0.0));
}

TEST_CASE("grid_sinusoidal: embed adds to every head and batch row; class tokens stay", "[grid_sinusoidal]") {
  const posenc::grid_sinusoidal<float> e{options::mae(8, 1)};
  const std::vector<std::int64_t> extents{2, 3};
  const posenc::shape s{.batch = 2, .tokens = 7, .heads = 2, .dim = 8};
  const auto x = values<float>(s.elements());
  for (const bool head_major : {false, true}) {
    const posenc::strides step = head_major ? posenc::head_major(s) : posenc::token_major(s);
    auto sum = x;
    std::vector<float> rows(x.size(), 99.0f);
    e.embed(posenc::view{sum.data(), s, step}, extents);
    e.table(posenc::view{rows.data(), s, step}, extents);
    std::size_t different = 0;
    for (std::size_t i = 0; i < x.size(); ++i) different += sum[i] != x[i] + rows[i];
    CHECK(different == 0);
    const posenc::view table{rows.data(), s, step};
    for (std::int64_t d = 0; d < 8; ++d) {
      CHECK(table(1, 0, 1, d) == 0);
      CHECK(static_cast<double>(table(1, 6, 1, d)) ==
            Approx(expected_row(e.options(), {1, 2})[static_cast<std::size_t>(d)]).epsilon(0).margin(3.1e-8));
    }
  }
  std::vector<Eigen::half> narrow(7 * 8);
  e.table(posenc::view{narrow.data(), {.tokens = 7, .dim = 8}}, extents);
  const auto exact = posenc::grid_sinusoidal<double>{options::mae(8, 1)}.table(extents);
  bool rounded = true;
  for (std::size_t i = 0; i < 56; ++i) rounded = rounded && narrow[i] == posenc::narrow<Eigen::half>(exact[i]);
  CHECK(rounded);
  const std::vector<double> reals{0.5, 1.25, -2, 7};
  std::vector<double> real_rows(16, 99.0);
  e.table(posenc::view{real_rows.data(), {.tokens = 2, .dim = 8}}, posenc::real_positions::axes(reals, 2));
  CHECK(largest_difference(std::vector(real_rows.begin() + 8, real_rows.end()), expected_row(e.options(), {1.25, 7})) <
        1e-14);
  CHECK(e.describe().parameters == 0);
  CHECK(e.describe().table_bytes == 4 * static_cast<std::int64_t>(sizeof(posenc::math::turns)));
}

TEST_CASE("grid_sinusoidal refuses before it writes", "[grid_sinusoidal]") {
  const auto make = [](const options& o) { return refusal([&] { posenc::grid_sinusoidal<float>{o}; }); };
  CHECK(make({.dim = 0, .blocks = {{0, 2}}}) == "posenc::grid_sinusoidal: dim must be at least 1, got 0");
  CHECK(make({.dim = 4}) == "posenc::grid_sinusoidal: blocks must not be empty, got 0");
  CHECK(make({.dim = 4, .blocks = {{4, 2}}}) == "posenc::grid_sinusoidal: axis of a block must lie in 0..3, got 4");
  CHECK(make({.dim = 4, .blocks = {{-1, 2}}}) == "posenc::grid_sinusoidal: axis of a block must lie in 0..3, got -1");
  for (const std::int64_t bad : {0, 3, -2})
    CHECK(make({.dim = 4, .blocks = {{0, bad}}}).find("channels of a block must be even and at least 2") !=
          std::string::npos);
  CHECK(make({.dim = 4, .base = -1, .blocks = {{0, 2}}}).find("base must be positive") != std::string::npos);
  CHECK(make({.dim = 4, .blocks = {{0, 2}}, .prefix_rows = -1}).find("prefix_rows must not be negative") !=
        std::string::npos);
  CHECK(make({.dim = 4, .blocks = {{1, 2}}, .coordinate_scale = {1}}) ==
        "posenc::grid_sinusoidal: coordinate_scale must list one factor per axis, got 1");
  CHECK(make({.dim = 4, .blocks = {{0, 2}}, .coordinate_scale = {std::nan("")}})
            .find("coordinate_scale must be finite") != std::string::npos);
  CHECK(refusal([] { (void)options::mae(6); }) ==
        "posenc::grid_sinusoidal_options::mae: dim must be a multiple of 4, got 6");
  CHECK(refusal([] { (void)options::diffusers_3d(8); }).find("dim must be a multiple of 16") != std::string::npos);
  CHECK(refusal([] { (void)options::diffusers_3d(16, 0); }).find("spatial_interpolation_scale") != std::string::npos);
  CHECK(refusal([] { (void)options::diffusers_2d(16, 0, 1, 1); }).find("rows must be at least 1") != std::string::npos);
  CHECK(refusal([] { (void)options::multidim(16, 5); }).find("axes must lie in 1..4") != std::string::npos);
  CHECK(refusal([] { (void)options::tensor2tensor(3, 2); }).find("at least twice") != std::string::npos);

  const posenc::grid_sinusoidal<float> e{options::mae(4)};
  auto x = values<float>(24);
  const auto before = x;
  const posenc::view v{x.data(), {.tokens = 6, .dim = 4}};
  const auto whole = [&](const std::vector<std::int64_t>& extents) { return refusal([&] { e.table(v, extents); }); };
  CHECK(whole({2, 4}) ==
        "posenc::grid_sinusoidal::table: tokens must be prefix_rows and the product of the extents, got 6");
  CHECK(whole({6}) == "posenc::grid_sinusoidal::table: extents must list one extent per axis, got 1");
  CHECK(whole({0, 3}).find("extents must lie in 1..2^31") != std::string::npos);
  CHECK(whole({std::int64_t{1} << 31, std::int64_t{1} << 31}).find("must not exceed 2^38 cells") != std::string::npos);
  CHECK(refusal([&] { e.embed(v, positions{}); }) ==
        "posenc::grid_sinusoidal::embed: positions must have as many axes as the encoder, got 1");
  CHECK(refusal([&] {
          e.embed(posenc::view{x.data(), {.tokens = 4, .dim = 6}}, std::vector<std::int64_t>{2, 2});
        }) == "posenc::grid_sinusoidal::embed: dim must equal the encoder's, got 6");
  CHECK(x == before);
}
