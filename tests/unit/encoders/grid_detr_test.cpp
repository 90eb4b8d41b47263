// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/rotation.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/grid_detr.hpp>

#include <array>

using posenc_test::largest_difference;
using posenc_test::refusal;
using posenc_test::values;

namespace {

/// Channel by channel from the definition; counts are taken anew for every cell.
std::vector<double> expected(const posenc::grid_detr_options& o, const std::vector<int>& valid, std::int64_t rows,
                             std::int64_t columns) {
  const auto at = [&](std::int64_t r, std::int64_t c) { return valid[static_cast<std::size_t>(r * columns + c)] != 0; };
  const auto count_y = [&](std::int64_t r, std::int64_t c) {
    double n = 0;
    for (std::int64_t i = 0; i <= r; ++i) n += at(i, c) ? 1 : 0;
    return n;
  };
  const auto count_x = [&](std::int64_t r, std::int64_t c) {
    double n = 0;
    for (std::int64_t i = 0; i <= c; ++i) n += at(r, i) ? 1 : 0;
    return n;
  };
  std::vector<double> out;
  const std::int64_t f = o.num_pos_feats;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      double y = count_y(r, c);
      double x = count_x(r, c);
      if (o.normalize) {
        y = (y + o.shift) / (count_y(rows - 1, c) + o.eps) * o.scale;
        x = (x + o.shift) / (count_x(r, columns - 1) + o.eps) * o.scale;
      }
      for (std::int64_t ch = 0; ch < 2 * f; ++ch) {
        const std::int64_t k = ch % f;
        const auto turn =
            oracle::turn_by(ch < f ? y : x, oracle::frequency(o.temperature, 2 * (k / 2), static_cast<double>(f)));
        out.push_back(k % 2 == 0 ? turn.sin : turn.cos);
      }
    }
  return out;
}

}  // namespace

TEST_CASE("grid_detr: counts, normalisation, shift, odd widths, padded rows and columns", "[grid_detr]") {
  const std::vector<int> full(12, 1);
  const std::vector<int> padded{1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0};
  const std::vector<int> holes{0, 1, 0, 7, 1, 0, 0, 1, 0, 0, 1, 1};
  for (const auto& valid : {full, padded, holes, std::vector<int>(12, 0)})
    for (const std::int64_t f : {1, 2, 7, 8, 130})
      for (const bool normalize : {false, true})
        for (const double shift : {0.0, -0.5}) {
          if (shift != 0 && !normalize) continue;
          const posenc::grid_detr_options o{
              .num_pos_feats = f, .temperature = 20, .normalize = normalize, .shift = shift};
          CAPTURE(f, normalize, shift);
          const posenc::grid_detr e{o};
          REQUIRE(e.dim() == 2 * f);
          std::vector<double> rows(static_cast<std::size_t>(24 * f), 99.0);
          e.table(posenc::view{rows.data(), {.tokens = 12, .dim = 2 * f}}, valid, 3, 4);
          // A padded line divides the shift by eps: the angle is 3e6, and the oracle rounds the position to 2^-31.
          const bool empty_line = normalize && shift != 0 && valid != full;
          CHECK(largest_difference(rows, expected(o, valid, 3, 4)) < (empty_line ? 2e-9 : 1e-14));
        }
}

TEST_CASE("grid_detr: known by hand, y first, channel-first memory", "[grid_detr]") {
  const posenc::grid_detr e{{.num_pos_feats = 2}};
  const std::vector<int> valid(6, 1);
  std::vector<double> rows(24);
  // [2 F, rows, columns]: the view says so.
  e.table(posenc::view{rows.data(), {.tokens = 6, .dim = 4}, {.token = 1, .dim = 6}}, valid, 2, 3);
  constexpr double bound = 0x1p-52 + 0x1p-53 * 1.58;  // of a sine, and of a quarter turn in double
  for (std::size_t cell = 0; cell < 6; ++cell) {
    const double y = static_cast<double>(cell / 3 + 1);
    const double x = static_cast<double>(cell % 3 + 1);
    CHECK(rows[cell] == Approx(std::sin(y)).epsilon(0).margin(bound));
    CHECK(rows[6 + cell] == Approx(std::cos(y)).epsilon(0).margin(bound));
    CHECK(rows[12 + cell] == Approx(std::sin(x)).epsilon(0).margin(bound));
    CHECK(rows[18 + cell] == Approx(std::cos(x)).epsilon(0).margin(bound));
  }
}

TEST_CASE("grid_detr: one mask for all batch rows or one for each; kinds of masks; embed", "[grid_detr]") {
  const posenc::grid_detr e{{.num_pos_feats = 4, .normalize = true}};
  const posenc::shape s{.batch = 2, .tokens = 6, .heads = 2, .dim = 8};
  const std::vector<std::uint8_t> masks{1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1};
  const auto x = values<float>(s.elements());
  auto sum = x;
  std::vector<float> rows(x.size(), 99.0f);
  e.embed(posenc::view{sum.data(), s}, masks, 2, 3);
  e.table(posenc::view{rows.data(), s}, masks, 2, 3);
  std::size_t different = 0;
  for (std::size_t i = 0; i < x.size(); ++i) different += sum[i] != x[i] + rows[i];
  CHECK(different == 0);
  for (std::size_t b = 0; b < 2; ++b) {
    const auto want = expected(
        e.options(), {masks.begin() + static_cast<int>(6 * b), masks.begin() + static_cast<int>(6 * b + 6)}, 2, 3);
    posenc_test::worst worst;
    for (std::size_t t = 0; t < 6; ++t)
      for (std::size_t i = 0; i < 16; ++i)
        worst.see(std::abs(static_cast<double>(rows[(b * 6 + t) * 16 + i]) - want[t * 8 + i % 8]), 0);
    CHECK(worst.error < 3.1e-8);
  }
  const std::array<bool, 6> one{true, true, false, true, true, false};
  std::vector<float> shared(x.size(), 99.0f);
  e.table(posenc::view{shared.data(), s}, one, 2, 3);
  CHECK(std::equal(shared.begin(), shared.begin() + 96, rows.begin()));
  CHECK(std::equal(shared.begin() + 96, shared.end(), rows.begin()));
  CHECK(e.describe().parameters == 0);
}

TEST_CASE("grid_detr refuses before it writes", "[grid_detr]") {
  const auto make = [](const posenc::grid_detr_options& o) { return refusal([&] { posenc::grid_detr{o}; }); };
  CHECK(make({}) == "posenc::grid_detr: num_pos_feats must be at least 1, got 0");
  CHECK(make({.num_pos_feats = 2, .temperature = 0}).find("temperature must be positive") != std::string::npos);
  CHECK(make({.num_pos_feats = 2, .scale = HUGE_VAL}).find("scale must be finite") != std::string::npos);
  CHECK(make({.num_pos_feats = 2, .eps = 0}).find("eps must be positive") != std::string::npos);
  CHECK(make({.num_pos_feats = 2, .shift = -0.5}) == "posenc::grid_detr: shift must be 0 without normalize, got -0.5");
  CHECK(make({.num_pos_feats = 2, .normalize = true, .shift = std::nan("")}).find("shift must lie in -1..1") !=
        std::string::npos);
  const posenc::grid_detr e{{.num_pos_feats = 2}};
  auto x = values<float>(24);
  const auto before = x;
  const posenc::view v{x.data(), {.tokens = 6, .dim = 4}};
  const std::vector<int> six(6, 1);
  CHECK(refusal([&] { e.table(v, six, 2, 2); }) == "posenc::grid_detr::table: tokens must be rows * columns, got 6");
  CHECK(refusal([&] { e.table(v, std::vector<int>(7, 1), 2, 3); }) ==
        "posenc::grid_detr::table: valid must have rows * columns cells, once or for each batch row, got 7");
  CHECK(refusal([&] { e.embed(v, six, -2, -3); }).find("rows must lie in 0..2^24") != std::string::npos);
  CHECK(refusal([&] {
          e.embed(posenc::view{x.data(), {.tokens = 6, .dim = 2}}, six, 2, 3);
        }) == "posenc::grid_detr::embed: dim must equal the encoder's, got 2");
  CHECK(x == before);
}
