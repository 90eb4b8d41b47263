// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/attended.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/bias.hpp>
#include <posenc/attention/mask_tensor.hpp>
#include <posenc/encoders/window_bias.hpp>

#include <limits>

using posenc::positions;
using posenc::view;
using posenc_test::refusal;
using posenc_test::values;

namespace {

/// From the definition: the offset of two tokens of a window of width w.
double swin_entry(const std::vector<double>& table, std::int64_t heads, std::int64_t height, std::int64_t width,
                  std::int64_t head, std::int64_t i, std::int64_t j) {
  const std::int64_t down = i / width - j / width;
  const std::int64_t right = i % width - j % width;
  return table[static_cast<std::size_t>(((down + height - 1) * (2 * width - 1) + right + width - 1) * heads + head)];
}

}  // namespace

TEST_CASE("window_bias: rows on lanes and one by one, at every place of the window", "[window_bias]") {
  const auto table = values<double>(3 * 5 * 9);
  const posenc::window_bias<double> e({.heads = 3, .window = {3, 5}}, table);
  REQUIRE(e.heads() == 3);
  REQUIRE(e.queries() == 15);
  REQUIRE(e.keys() == 15);
  std::vector<double> bias(3 * 15 * 15);
  posenc::fill_bias<double>(e, 3, positions::from(7), 15, positions::from(-40), 15, bias);
  bool same = true;
  for (std::int64_t h = 0; h < 3; ++h)
    for (std::int64_t i = 0; i < 15; ++i) {
      std::vector<double> line(15, 2.0);
      posenc::add_bias_row(e, {.head = h, .query_index = i, .query_position = 99}, 1000, std::span<double>(line));
      for (std::int64_t j = 0; j < 15; ++j) {
        const double right = swin_entry(table, 3, 3, 5, h, i, j);
        same = same && line[static_cast<std::size_t>(j)] == 2.0 + right && e.line(h, i)[j] == right &&
               bias[static_cast<std::size_t>((h * 15 + i) * 15 + j)] == right;
      }
    }
  CHECK(same);
}

TEST_CASE("window_bias: the layouts of Swin and LeViT, and a whole matrix", "[window_bias]") {
  const std::vector<float> by_head{0, 1, 2, 3, 10, 11, 12, 13};
  const posenc::window_bias<float> e(
      {.heads = 2, .kind = posenc::window_kind::levit, .window = {2, 2}, .layout = posenc::table_layout::head_bucket},
      by_head);
  CHECK(std::vector<float>(e.line(1, 2), e.line(1, 2) + 4) == std::vector<float>{12, 13, 10, 11});
  const std::vector<float> by_entry{0, 10, 1, 11, 2, 12, 3, 13};
  const posenc::window_bias<float> same({.heads = 2, .kind = posenc::window_kind::levit, .window = {2, 2}}, by_entry);
  for (std::int64_t i = 0; i < 4; ++i)
    CHECK(std::vector<float>(e.line(1, i), e.line(1, i) + 4) ==
          std::vector<float>(same.line(1, i), same.line(1, i) + 4));
  // Two queries of a coarser grid over three keys.
  const posenc::window_bias<float> whole(1, 2, 3, std::vector<float>{1, 2, 3, 4, 5, 6});
  std::vector<float> bias(6);
  posenc::fill_bias<float>(whole, 1, {}, 2, {}, 3, bias);
  CHECK(bias == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(whole.describe().parameters == 6);
}

TEST_CASE("window_bias: attention over windows, one of them shifted", "[window_bias]") {
  // Windows of 4 x 4 are the batch rows; the second is cut in two halves that do not see each other.
  constexpr std::int64_t tokens = 16;
  constexpr std::int64_t dim = 8;
  const auto table = values<double>(2 * 49);
  const posenc::window_bias<double> e({.heads = 2, .window = {4, 4}}, table);
  std::vector<double> mask(2 * tokens * tokens, 0.0);
  for (std::int64_t i = 0; i < tokens; ++i)
    for (std::int64_t j = 0; j < tokens; ++j)
      if ((i % 4 < 2) != (j % 4 < 2))
        mask[static_cast<std::size_t>((tokens + i) * tokens + j)] = -std::numeric_limits<double>::infinity();
  const auto q = values<double>(2 * tokens * 2 * dim, 1);
  const auto k = values<double>(2 * tokens * 2 * dim, 2);
  const auto v = values<double>(2 * tokens * 2 * dim, 3);
  std::vector<double> out(q.size());
  const posenc::shape s{.batch = 2, .tokens = tokens, .heads = 2, .dim = dim};
  posenc::attention(
      view{q.data(), s}, view{k.data(), s}, view{v.data(), s}, view{out.data(), s},
      posenc::compose(e, posenc::additive_mask<double>(mask.data(), {.batch = 2, .queries = tokens, .keys = tokens})));
  for (std::int64_t b = 0; b < 2; ++b) {
    const auto part = [&](const std::vector<double>& x) {
      const auto n = static_cast<std::ptrdiff_t>(tokens * 2 * dim);
      return std::vector<double>(x.begin() + b * n, x.begin() + (b + 1) * n);
    };
    const auto right =
        posenc_test::attended(part(q), part(k), part(v), tokens, dim,
                              [&](std::int64_t, std::int64_t h, std::int64_t i, std::int64_t j, double score) {
                                return score + swin_entry(table, 2, 4, 4, h, i, j) +
                                       mask[static_cast<std::size_t>((b * tokens + i) * tokens + j)];
                              });
    CHECK(posenc_test::largest_difference(part(out), right) < 1e-14);
  }
}

TEST_CASE("resize_window_table: the grid of offsets is resampled, the class token's entries are copied",
          "[window_bias]") {
  // Offsets that grow by 1 per column and 10 per row stay a plane under linear resampling, away from the ends.
  std::vector<double> table;
  for (int y = -3; y <= 3; ++y)
    for (int x = -2; x <= 2; ++x) {
      table.push_back(10.0 * y + x);
      table.push_back(-10.0 * y - x);
    }
  for (int extra = 0; extra < 6; ++extra) table.push_back(1000 + extra);
  const auto wide = posenc::resize_window_table<double>(posenc::window_kind::beit, {4, 3}, {7, 5}, table,
                                                        posenc::resize_mode::bilinear);
  REQUIRE(wide.size() == 2 * (13 * 9 + 3));
  for (int y = -5; y <= 5; ++y)
    for (int x = -3; x <= 3; ++x) {
      const auto at = static_cast<std::size_t>(2 * ((y + 6) * 9 + x + 4));
      CAPTURE(y, x);
      CHECK(wide[at] == Approx(10.0 * y * 7 / 13 + x * 5.0 / 9).epsilon(0).margin(1e-12));
      CHECK(wide[at + 1] == -wide[at]);
    }
  CHECK(std::vector<double>(wide.end() - 6, wide.end()) == std::vector<double>{1000, 1001, 1002, 1003, 1004, 1005});
  // The same window: the same bits.
  const auto swin = std::vector<double>(table.begin(), table.end() - 6);
  CHECK(posenc::resize_window_table<double>(posenc::window_kind::swin, {4, 3}, {4, 3}, swin) == swin);
  CHECK(refusal([&] {
          (void)posenc::resize_window_table<double>(posenc::window_kind::levit, {4, 3}, {4, 3}, swin);
        }) == "posenc::resize_window_table: kind must be swin or beit, got levit");
  CHECK(refusal([&] {
          (void)posenc::resize_window_table<double>(posenc::window_kind::swin, {4, 3}, {0, 3}, swin);
        }) == "posenc::resize_window_table: to must have sides of at least 1 and at most 32768 tokens, got 0 x 3");
  CHECK(refusal([&] {
          (void)posenc::resize_window_table<double>(posenc::window_kind::swin, {4, 3}, {5, 3},
                                                    std::span<const double>(swin).first(34));
        }).find("table must hold a multiple of the 35") != std::string::npos);
}

TEST_CASE("window_bias: refusals and description", "[window_bias]") {
  const auto table = values<float>(50);
  const auto make = [&](std::int64_t heads, std::size_t size) {
    return refusal([&] {
      posenc::window_bias<float>({.heads = heads, .window = {2, 3}}, std::span<const float>(table).first(size));
    });
  };
  CHECK(make(0, 15) == "posenc::window_bias: heads must be at least 1, got 0");
  CHECK(make(2, 31) == "posenc::window_bias: table must hold one value per head and entry, got 31");
  CHECK(make(2, 15) == "posenc::window_bias: table must hold one value per head and entry, got 15");
  CHECK(make(2, 30) == "nothing thrown");
  CHECK(refusal([&] { posenc::window_bias<float>(1, 2, 3, std::span<const float>(table).first(5)); }) ==
        "posenc::window_bias: bias must hold heads * queries * keys values, got 5");
  CHECK(refusal([&] { posenc::window_bias<float>(1, 0, 3, std::span<const float>(table).first(0)); }) ==
        "posenc::window_bias: queries must lie in 1..2^20, got 0");
  CHECK(refusal([&] { posenc::window_bias<float>(1, 1, 1 << 21, std::span<const float>(table)); }) ==
        "posenc::window_bias: keys must lie in 1..2^20, got 2097152");

  const posenc::window_bias<float> e({.heads = 2, .window = {2, 3}}, std::span<const float>(table).first(30));
  std::vector<float> out(2 * 6 * 7);
  CHECK(refusal([&] { posenc::fill_bias<float>(e, 2, {}, 6, {}, 7, out); }) ==
        "posenc::window_bias: keys must be the window's tokens, got 7");
  CHECK(refusal([&] { posenc::fill_bias<float>(e, 2, {}, 7, {}, 6, out); }) ==
        "posenc::window_bias: queries must be the window's tokens, got 7");
  CHECK(refusal<std::out_of_range>([&] {
          posenc::add_bias_row(e, {.query_index = 6}, 0, std::span<float>(out).first(6));
        }) == "posenc::window_bias: query index must lie in the window's 0..5, got 6");
  CHECK(e.describe().parameters == 30);
  CHECK(e.describe().table_bytes == (2 * 36 + posenc::lane_slack) * 4);
  CHECK(e.describe().position_limit == 6);
  // The numbers of the header: 16 heads in float.
  CHECK(16 * 100 * 100 * 4 / 1048576.0 == Approx(0.61).epsilon(0.01));
  CHECK(16 * 256 * 256 * 4 == 4 << 20);
}
