// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/position_convolution.hpp>

using posenc::convolution_activation;
using posenc::position_convolution;
using posenc::position_convolution_options;
using posenc::table_extent;
using posenc::view;
using posenc_test::largest_difference;
using posenc_test::refusal;
using posenc_test::values;

namespace {

/// The sum of the definition, one output at a time; x is [rows * columns][channels].
std::vector<double> direct(const position_convolution_options& o, const std::vector<double>& x,
                           const std::vector<double>& weight, const std::vector<double>& bias,
                           const table_extent& grid) {
  const std::int64_t depth = o.channels / o.groups;
  const std::int64_t down = o.padding ? (*o.padding)[0] : o.kernel.rows / 2;
  const std::int64_t right = o.padding ? (*o.padding)[1] : o.kernel.columns / 2;
  std::vector<double> out;
  for (std::int64_t y = 0; y < grid.rows; ++y)
    for (std::int64_t c0 = 0; c0 < grid.columns; ++c0)
      for (std::int64_t c = 0; c < o.channels; ++c) {
        long double sum = bias[static_cast<std::size_t>(c)];
        for (std::int64_t n = 0; n < depth; ++n)
          for (std::int64_t i = 0; i < o.kernel.rows; ++i)
            for (std::int64_t j = 0; j < o.kernel.columns; ++j) {
              const std::int64_t from_row = y + i - down;
              const std::int64_t from_column = c0 + j - right;
              if (from_row < 0 || from_row >= grid.rows || from_column < 0 || from_column >= grid.columns) continue;
              const std::int64_t channel = c / depth * depth + n;
              const auto w = static_cast<std::size_t>(((c * depth + n) * o.kernel.rows + i) * o.kernel.columns + j);
              const auto at = static_cast<std::size_t>((from_row * grid.columns + from_column) * o.channels + channel);
              sum += static_cast<long double>(weight[w]) * static_cast<long double>(x[at]);
            }
        if (o.activation == convolution_activation::gelu) sum = sum * (1 + std::erf(sum / std::sqrt(2.0L))) / 2;
        if (o.residual)
          sum += static_cast<long double>(x[static_cast<std::size_t>((y * grid.columns + c0) * o.channels + c)]);
        out.push_back(static_cast<double>(sum));
      }
  return out;
}

}  // namespace

TEST_CASE("position convolution: corners 4, edges 6, inside 9", "[position_convolution]") {
  const position_convolution<float> ones({.channels = 1, .residual = false}, std::vector<float>(9, 1.0f));
  std::vector<float> image(4 * 5, 1.0f);
  ones.embed(view{image.data(), {.tokens = 20, .dim = 1}}, {.rows = 4, .columns = 5});
  CHECK(image == std::vector<float>{4, 6, 6, 6, 4, 6, 9, 9, 9, 6, 6, 9, 9, 9, 6, 4, 6, 6, 6, 4});
}

TEST_CASE("position convolution: grouped, by hand", "[position_convolution]") {
  // Two groups of two channels, kernel 2, padding 1: out(t) = W(0) x(t - 1) + W(1) x(t), the fourth output is dropped.
  const std::vector<double> weight{1, 10, 2, 20,   // channel 0 from channels 0 and 1
                                   3, 30, 4, 40,   // channel 1 from channels 0 and 1
                                   5, 50, 6, 60,   // channel 2 from channels 2 and 3
                                   7, 70, 8, 80};  // channel 3 from channels 2 and 3
  const position_convolution<double> e(
      {.channels = 4, .groups = 2, .kernel = {.rows = 1, .columns = 2}, .residual = false}, weight,
      std::vector<double>{0, 0, 0, 1000});
  std::vector<double> x{1, 2, 3, 4,  //
                        0, 1, 0, 1,  //
                        1, 0, 0, 0};
  e.embed(view{x.data(), {.tokens = 3, .dim = 4}});
  // Channel 0 at t = 1: 1 * 1 + 2 * 2 + 10 * 0 + 20 * 1 = 25.
  CHECK(x == std::vector<double>{50, 110, 390, 1530, 25, 51, 99, 1133, 12, 34, 6, 1008});
}

TEST_CASE("position convolution: every option against the definition", "[position_convolution]") {
  const table_extent grids[] = {{1, 1}, {1, 9}, {4, 5}, {2, 3}};
  const table_extent kernels[] = {{3, 3}, {1, 4}, {1, 11}, {5, 2}};
  for (const std::int64_t groups : {1, 2, 3, 6})
    for (const table_extent& grid : grids)
      for (const table_extent& kernel : kernels)
        for (const bool like_cpvt : {true, false}) {
          const position_convolution_options o{
              .channels = 6,
              .groups = groups,
              .kernel = kernel,
              .activation = like_cpvt ? convolution_activation::identity : convolution_activation::gelu,
              .residual = like_cpvt};
          const std::int64_t cells = grid.rows * grid.columns;
          const auto x = values<double>(cells * 6, 1);
          const auto weight = values<double>(6 * (6 / groups) * kernel.rows * kernel.columns, 2);
          const auto bias = values<double>(6, 3);
          const auto expected = direct(o, x, weight, bias, grid);
          const position_convolution<double> e(o, weight, bias);
          CAPTURE(groups, grid.rows, grid.columns, kernel.rows, kernel.columns);
          auto in_place = x;
          e.embed(view{in_place.data(), {.tokens = cells, .heads = 2, .dim = 3}}, grid);
          CHECK(largest_difference(in_place, expected) < 1e-13);
          std::vector<double> apart(x.size(), -1.0);
          e.apply(view{x.data(), {.tokens = cells, .dim = 6}}, view{apart.data(), {.tokens = cells, .dim = 6}}, grid);
          CHECK(apart == in_place);
        }
  position_convolution_options wide{.channels = 2, .groups = 2, .kernel = {1, 3}, .padding = {{0, 2}}};
  const auto x = values<double>(10);
  const auto weight = values<double>(6, 1);
  auto got = x;
  position_convolution<double>(wide, weight).embed(view{got.data(), {.tokens = 5, .dim = 2}});
  CHECK(largest_difference(got, direct(wide, x, weight, {0, 0}, {1, 5})) < 1e-15);
}

TEST_CASE("position convolution: a class token stays, batch rows do not mix, 16-bit data is rounded once",
          "[position_convolution]") {
  const position_convolution_options o{.channels = 4, .prefix_rows = 1};
  const auto weight = values<float>(4 * 9, 2);
  const auto bias = values<float>(4, 3);
  const position_convolution<float> e(o, weight, bias);
  const posenc::shape two{.batch = 2, .tokens = 7, .dim = 4};
  const auto x = values<float>(two.elements());
  auto both = x;
  e.embed(view{both.data(), two}, {.rows = 2, .columns = 3});
  std::vector<float> copied(x.size(), -1.0f);
  e.apply(view{x.data(), two}, view{copied.data(), two}, {.rows = 2, .columns = 3});
  CHECK(copied == both);
  for (std::size_t b = 0; b < 2; ++b) {
    std::vector<float> alone(x.begin() + static_cast<std::ptrdiff_t>(28 * b),
                             x.begin() + static_cast<std::ptrdiff_t>(28 * b + 28));
    CHECK(std::equal(alone.begin(), alone.begin() + 4, both.begin() + static_cast<std::ptrdiff_t>(28 * b)));
    e.embed(view{alone.data(), {.tokens = 7, .dim = 4}}, {.rows = 2, .columns = 3});
    CHECK(std::equal(alone.begin(), alone.end(), both.begin() + static_cast<std::ptrdiff_t>(28 * b)));
  }
  std::vector<Eigen::bfloat16> narrow;
  std::vector<float> widened;
  for (const float v : x) {
    narrow.push_back(posenc::narrow<Eigen::bfloat16>(v));
    widened.push_back(posenc::widen(narrow.back()));
  }
  e.embed(view{narrow.data(), two}, {.rows = 2, .columns = 3});
  e.embed(view{widened.data(), two}, {.rows = 2, .columns = 3});
  bool same = true;
  for (std::size_t i = 0; i < x.size(); ++i) same = same && narrow[i] == posenc::narrow<Eigen::bfloat16>(widened[i]);
  CHECK(same);
  CHECK(e.describe().parameters == 40);
}

TEST_CASE("position convolution: what is refused", "[position_convolution]") {
  const auto made = [](const position_convolution_options& o, std::size_t weights, std::size_t biases = 0) {
    return refusal([&] { position_convolution<float>(o, std::vector<float>(weights), std::vector<float>(biases)); });
  };
  CHECK(made({.channels = 0}, 0) == "posenc::position_convolution: channels must be at least 1, got 0");
  CHECK(made({.channels = 4, .groups = 3}, 36) == "posenc::position_convolution: groups must divide channels, got 3");
  CHECK(made({.channels = 4, .kernel = {0, 3}}, 0) ==
        "posenc::position_convolution: kernel.rows must be at least 1, got 0");
  CHECK(made({.channels = 4, .padding = {{1, 0}}}, 36) ==
        "posenc::position_convolution: padding of columns must be at least (kernel - 1) / 2, got 0");
  CHECK(made({.channels = 4}, 35) ==
        "posenc::position_convolution: weight must hold channels * channels / groups * kernel values, got 35");
  CHECK(made({.channels = 4}, 36, 3) ==
        "posenc::position_convolution: bias must be empty or list one value per channel, got 3");
  CHECK(made({.channels = 4, .prefix_rows = -1}, 36) ==
        "posenc::position_convolution: prefix_rows must not be negative, got -1");

  const position_convolution<float> e({.channels = 4, .prefix_rows = 1}, std::vector<float>(36, 1.0f));
  std::vector<float> x(28, 2.0f);
  const auto before = x;
  CHECK(refusal([&] {
          e.embed(view{x.data(), {.tokens = 7, .dim = 4}}, {.rows = 2, .columns = 4});
        }) == "posenc::position_convolution::apply: tokens must be prefix_rows + rows * columns, got 7");
  CHECK(refusal([&] {
          e.embed(view{x.data(), {.tokens = 14, .dim = 2}}, {.rows = 1, .columns = 13});
        }) == "posenc::position_convolution::apply: heads * dim must equal the channels, got 2");
  const view whole{x.data(), {.tokens = 6, .dim = 4}};
  const view moved{x.data() + 4, {.tokens = 6, .dim = 4}};
  CHECK(refusal([&] { e.apply(whole, moved, {.rows = 1, .columns = 5}); }) ==
        "posenc::position_convolution::apply: out must be in itself or not overlap it, got overlapping memory");
  CHECK(x == before);
}
