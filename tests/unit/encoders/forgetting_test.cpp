// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/dense_attention.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/bias.hpp>
#include <posenc/attention/index_masks.hpp>
#include <posenc/encoders/forgetting.hpp>

#include <limits>

using posenc::positions;
using posenc::view;
using posenc_test::refusal;
using posenc_test::values;

namespace {

/// The bias from the definition: what every token between two columns keeps, multiplied up.
double expected(const std::vector<double>& gates, std::int64_t count, std::int64_t heads, std::int64_t head,
                std::int64_t i, std::int64_t j) {
  if (j > i && count == heads) return 0;
  const std::int64_t g = j > i ? heads + head : head;
  long double sum = 0;
  for (std::int64_t t = std::min(i, j) + 1; t <= std::max(i, j); ++t)
    sum -= std::log1p(std::exp(-static_cast<long double>(gates[static_cast<std::size_t>(t * count + g)])));
  return static_cast<double>(sum);
}

}  // namespace

TEST_CASE("forgetting: both forms, at once and token by token", "[forgetting]") {
  constexpr std::int64_t n = 50;
  for (const bool both : {false, true}) {
    const std::int64_t count = both ? 6 : 3;
    auto gates = values<double>(n * count);
    for (double& g : gates) g *= 9;
    for (const std::int64_t step : {n, std::int64_t{1}, std::int64_t{7}}) {
      CAPTURE(both, step);
      posenc::forget_sums<double> sums({.heads = 3, .bidirectional = both});
      for (std::int64_t t = 0; t < n; t += step)
        sums.append(view{gates.data() + t * count, {.tokens = std::min(step, n - t), .heads = count, .dim = 1}});
      REQUIRE(sums.columns() == n);
      const posenc::forgetting<double> e(sums);
      std::vector<double> bias(3 * n * n);
      posenc::fill_bias<double>(e, 3, positions::from(-5), n, positions::from(1000), n, bias);
      double worst = 0;
      std::size_t rounded_twice = 0;
      for (std::int64_t h = 0; h < 3; ++h)
        for (std::int64_t i = 0; i < n; ++i) {
          // Lanes, onto logits in float that are 0: one rounding of the difference.
          std::vector<float> line(n, 0.0f);
          posenc::add_bias_row(e, {.head = h, .query_index = i}, 0, std::span<float>(line));
          for (std::int64_t j = 0; j < n; ++j) {
            const double right = expected(gates, count, 3, h, i, j);
            worst = std::max(worst, std::abs(bias[static_cast<std::size_t>((h * n + i) * n + j)] - right));
            rounded_twice += std::abs(static_cast<double>(line[static_cast<std::size_t>(j)]) - right) >
                             6e-8 * std::abs(right) + 2e-13;
          }
        }
      CHECK(worst < 2e-13);
      CHECK(rounded_twice == 0);
    }
  }
}

TEST_CASE("forgetting: attention, batch rows, padding and a cached step", "[forgetting]") {
  constexpr std::int64_t n = 23;
  auto gates = values<double>(2 * n * 2);
  // The first five columns of batch row 1 are padding; their gates are not looked at.
  std::vector<std::uint8_t> padded(2 * n, 0);
  for (std::size_t t = 0; t < 5; ++t) padded[n + t] = 1;
  gates[static_cast<std::size_t>(n * 2 + 3)] = std::numeric_limits<double>::quiet_NaN();
  posenc::forget_sums<double> sums({.batch = 2, .heads = 2});
  sums.append(view{gates.data(), {.batch = 2, .tokens = n, .heads = 2, .dim = 1}}, padded);
  const auto q = values<double>(2 * n * 2 * 8, 1);
  const auto k = values<double>(2 * n * 2 * 8, 2);
  const posenc::shape s{.batch = 2, .tokens = n, .heads = 2, .dim = 8};
  std::vector<double> out(q.size());
  posenc::attention(view{q.data(), s}, view{k.data(), s}, view{k.data(), s}, view{out.data(), s},
                    posenc::compose(posenc::forgetting<double>(sums), posenc::causal_by_index{}));
  const auto tensor = [&](const std::vector<double>& x) {
    dense::tensor t(2, n, 2, 8);
    t.data = x;
    return t;
  };
  const auto right =
      dense::attention({.q = tensor(q),
                        .k = tensor(k),
                        .v = tensor(k),
                        .scale = 1 / std::sqrt(8.0),
                        .logit =
                            [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, double score) {
                              for (std::int64_t t = j + 1; t <= i; ++t)
                                if (padded[static_cast<std::size_t>(b * n + t)] == 0)
                                  score -= std::log1p(std::exp(-gates[static_cast<std::size_t>((b * n + t) * 2 + h)]));
                              return score;
                            },
                        .visible = [](std::int64_t, std::int64_t, std::int64_t i, std::int64_t j) { return j <= i; }})
          .out.data;
  CHECK(posenc_test::largest_difference(out, right) < 1e-13);

  // The last two tokens of both rows against all keys.
  std::vector<double> last(2 * 2 * 16);
  const posenc::shape two{.batch = 2, .tokens = 2, .heads = 2, .dim = 8};
  posenc::attention(view{q.data() + (n - 2) * 16, two, {.batch = n * 16, .token = 16, .head = 8}}, view{k.data(), s},
                    view{k.data(), s}, view{last.data(), two},
                    posenc::compose(posenc::forgetting<double>(sums, n - 2), posenc::causal_by_index{n - 2}));
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t x = 0; x < 32; ++x) CHECK(std::abs(last[b * 32 + x] - out[(b * n + n - 2) * 16 + x]) < 1e-14);
}

TEMPLATE_TEST_CASE("forgetting: a long context loses nothing in float, and dropped columns change no difference",
                   "[forgetting]", float, double) {
  // Every token keeps one half: a float sum of -13863 has steps of 0.001.
  constexpr std::int64_t n = 20000;
  const std::vector<float> gates(n, 0.0f);
  posenc::forget_sums<TestType> sums({.heads = 1});
  sums.append(view{gates.data(), {.tokens = n, .dim = 1}});
  // The largest error of the last row, in units of 2^-23 of the difference and 2^-47 of the sum.
  const auto worst = [&](std::int64_t columns) {
    std::vector<float> line(static_cast<std::size_t>(columns));
    posenc::add_bias_row(posenc::forgetting<TestType>(sums), {.query_index = columns - 1}, 0, std::span<float>(line));
    double most = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      const double right = -std::log(2.0) * static_cast<double>(columns - 1 - j);
      const double error = std::abs(static_cast<double>(line[static_cast<std::size_t>(j)]) - right);
      most = std::max(most, error / (std::ldexp(-right, -23) + std::ldexp(13863.0, -47)));
    }
    return most;
  };
  CHECK(worst(n) <= 1);
  sums.drop_first(15000);
  CHECK(sums.columns() == 5000);
  CHECK(worst(5000) <= 1);
  sums.append(view{gates.data(), {.tokens = 3, .dim = 1}});
  CHECK(worst(5003) <= 1);
}

TEST_CASE("forgetting: float sums, both directions, on float and double lanes", "[forgetting]") {
  constexpr std::int64_t n = 70;
  const auto gates = values<double>(n * 2);
  posenc::forget_sums<> sums({.heads = 1, .bidirectional = true});
  sums.append(view{gates.data(), {.tokens = n, .heads = 2, .dim = 1}});
  const posenc::forgetting<> e(sums);
  double narrow = 0, wide = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    std::vector<float> line(n);
    std::vector<double> twice(n);
    posenc::add_bias_row(e, {.query_index = i}, 0, std::span<float>(line));
    posenc::add_bias_row(e, {.query_index = i}, 0, std::span<double>(twice));
    for (std::int64_t j = 0; j < n; ++j) {
      const double right = expected(gates, 2, 1, 0, i, j);
      narrow = std::max(narrow, std::abs(static_cast<double>(line[static_cast<std::size_t>(j)]) - right) /
                                    (std::ldexp(std::abs(right), -23) + 1e-12));
      wide = std::max(wide, std::abs(twice[static_cast<std::size_t>(j)] - right));
    }
  }
  CHECK(narrow <= 1);
  CHECK(wide < 1e-12);
}

TEST_CASE("forget_gates: a projection of the input", "[forgetting]") {
  const std::vector<double> x{1, 2, 3, 4};
  const std::vector<double> w{1, 1, 0, 1, 2, 0};
  const std::vector<double> b{5, 0, -1};
  std::vector<double> gates(6);
  posenc::forget_gates<double>(view{x.data(), {.tokens = 2, .dim = 2}}, w, b,
                               view{gates.data(), {.tokens = 2, .heads = 3, .dim = 1}});
  CHECK(gates == std::vector<double>{8, 2, 1, 12, 4, 5});
  CHECK(refusal([&] {
          posenc::forget_gates<double>(view{x.data(), {.tokens = 2, .dim = 2}}, w, b,
                                       view{gates.data(), {.tokens = 2, .dim = 3}});
        }) == "posenc::forget_gates: gates must have the shape [batch, token, gate, 1], got 3");
}

TEST_CASE("forgetting: refusals and description", "[forgetting]") {
  CHECK(refusal([] { posenc::forget_sums<double>({.batch = 0, .heads = 1}); }) ==
        "posenc::forget_sums: batch must be at least 1, got 0");
  CHECK(refusal([] { posenc::forget_sums<double>({.heads = 0}); }) ==
        "posenc::forget_sums: heads must be at least 1, got 0");
  posenc::forget_sums<double> sums({.heads = 2});
  std::vector<double> gates{0, 1, 2, 3, 4, std::numeric_limits<double>::infinity()};
  const auto append = [&](std::int64_t tokens, std::int64_t heads, std::size_t padding) {
    const std::vector<std::uint8_t> padded(padding, 0);
    return refusal([&] { sums.append(view{gates.data(), {.tokens = tokens, .heads = heads, .dim = 1}}, padded); });
  };
  CHECK(append(3, 1, 0) ==
        "posenc::forget_sums::append: gates must have the shape [batch, token, gate, 1], gates, got 1");
  CHECK(append(2, 2, 3) == "posenc::forget_sums::append: padded must hold one value per batch row and token, got 3");
  CHECK(append(3, 2, 0) == "posenc::forget_sums::append: gates must be finite, token, got 2");
  CHECK(sums.columns() == 0);  // nothing of a refused call was taken
  CHECK(append(2, 2, 2) == "nothing thrown");
  CHECK(refusal([&] { sums.drop_first(3); }) == "posenc::forget_sums::drop_first: n must lie in 0..columns, got 3");

  CHECK(refusal([&] { posenc::forgetting<double>(sums, -1); }) ==
        "posenc::forgetting: first_query must not be negative, got -1");
  const posenc::forgetting<double> e(sums, 1);
  std::vector<double> out(12);
  CHECK(refusal([&] { posenc::fill_bias<double>(e, 2, {}, 2, {}, 2, std::span(out).first(8)); }) ==
        "posenc::forgetting: queries must be columns of the same sequence from first_query on, got 2");
  CHECK(refusal([&] { posenc::fill_bias<double>(e, 2, {}, 1, {}, 3, std::span(out).first(6)); }) ==
        "posenc::forgetting: keys must be the columns of the sums, got 3");
  CHECK(refusal<std::out_of_range>([&] {
          posenc::add_bias_row(e, {.query_index = 1}, 0, std::span<double>(out).first(2));
        }) == "posenc::forgetting: query must be a column of the sums, column, got 2");
  CHECK(e.describe().table_bytes == 2 * (2 + posenc::lane_slack) * 8);
  posenc::forget_sums<> floats({.heads = 2});
  CHECK(posenc::forgetting<>(floats).describe().table_bytes == 2 * posenc::lane_slack * 8);
  CHECK(e.heads() == 2);
}
