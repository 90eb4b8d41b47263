// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/dense_attention.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/bias.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/encoders/projected_bias.hpp>

using posenc::positions;
using posenc::view;
using posenc_test::refusal;
using posenc_test::values;

namespace {

/// From the definition; weights [query, head, functions].
double expected(const std::vector<double>& weights, std::int64_t heads, std::int64_t functions,
                const std::vector<double>& bank, std::int64_t reach, std::int64_t i, std::int64_t h,
                std::int64_t distance) {
  double sum = 0;
  for (std::int64_t m = 0; m < functions && distance >= 0 && distance < reach; ++m)
    sum += weights[static_cast<std::size_t>((i * heads + h) * functions + m)] *
           bank[static_cast<std::size_t>(m * reach + distance)];
  return sum;
}

}  // namespace

TEST_CASE("projected_bias: weights times a bank, 0 outside its reach", "[projected_bias]") {
  for (const std::int64_t reach : {1, 3, 17, 100}) {
    const auto bank = values<double>(5 * reach, 1);
    const auto weights = values<double>(4 * 2 * 5, 2);
    const posenc::projected_bank<double> held(5, reach, bank);
    const posenc::projected_bias e(held, view{weights.data(), {.tokens = 4, .heads = 2, .dim = 5}});
    CHECK(e.heads() == 2);
    double worst = 0;
    // Slices of the bank that begin and end at every lane.
    for (std::int64_t first = -reach - 40; first <= 5; ++first) {
      std::vector<double> line(45, 1.0);
      posenc::add_bias_row(e, {.head = 1, .query_index = 3, .query_position = 2}, first, std::span<double>(line));
      for (std::int64_t j = 0; j < 45; ++j)
        worst = std::max(worst, std::abs(line[static_cast<std::size_t>(j)] - 1 -
                                         expected(weights, 2, 5, bank, reach, 3, 1, 2 - first - j)));
    }
    const std::vector<std::int64_t> at{4, 2, 3, 2, -100, std::int64_t{1} << 60, -(std::int64_t{1} << 62)};
    std::vector<double> bias(2 * 4 * 7);
    posenc::fill_bias<double>(e, 2, positions::from(1), 4, positions::listed(at), 7, bias);
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 4; ++i)
        for (std::size_t j = 0; j < 7; ++j)
          worst = std::max(worst, std::abs(bias[static_cast<std::size_t>((h * 4 + i) * 7) + j] -
                                           expected(weights, 2, 5, bank, reach, i, h, i + 1 - at[j])));
    CAPTURE(reach);
    CHECK(worst < 1e-15 * 10);
  }
}

TEST_CASE("projected_bias: attention with weights projected from the input, strided", "[projected_bias]") {
  constexpr std::int64_t n = 33;
  const auto x = values<float>(n * 6, 1);
  const auto w = values<float>(2 * 3 * 6, 2);
  const auto bank = values<float>(3 * 10, 3);
  // Weights in head-major memory.
  std::vector<float> weights(n * 6);
  const posenc::shape shape{.tokens = n, .heads = 2, .dim = 3};
  const view out_weights{weights.data(), shape, posenc::head_major(shape)};
  posenc::project_weights<float>(view{x.data(), {.tokens = n, .dim = 6}}, w, {}, out_weights);
  const posenc::projected_bank<float> held(3, 10, bank);
  const auto policy = posenc::compose(posenc::projected_bias(held, out_weights), posenc::causal{});
  const auto q = values<float>(n * 2 * 8, 4);
  const posenc::shape s{.tokens = n, .heads = 2, .dim = 8};
  std::vector<float> out(q.size());
  posenc::attention(view{q.data(), s}, view{q.data(), s}, view{q.data(), s}, view{out.data(), s}, policy);

  std::vector<double> mixed;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t o = 0; o < 6; ++o) {
      double sum = 0;
      for (std::size_t d = 0; d < 6; ++d) sum += static_cast<double>(w[o * 6 + d]) * static_cast<double>(x[i * 6 + d]);
      mixed.push_back(sum);
    }
  dense::tensor tensor(1, n, 2, 8);
  tensor.data.assign(q.begin(), q.end());
  const std::vector<double> wide(bank.begin(), bank.end());
  const auto right =
      dense::attention({.q = tensor,
                        .k = tensor,
                        .v = tensor,
                        .scale = 1 / std::sqrt(8.0),
                        .logit = [&](std::int64_t, std::int64_t h, std::int64_t i, std::int64_t j,
                                     double score) { return score + expected(mixed, 2, 3, wide, 10, i, h, i - j); },
                        .visible = [](std::int64_t, std::int64_t, std::int64_t i, std::int64_t j) { return j <= i; }})
          .out.data;
  CHECK(posenc_test::largest_difference(out, right) < 2e-6);
}

TEST_CASE("projected_bias: refusals and description", "[projected_bias]") {
  const auto bank = values<float>(12);
  const auto make = [&](std::int64_t functions, std::int64_t reach, std::size_t size) {
    return refusal([&] { posenc::projected_bank<float>(functions, reach, std::span<const float>(bank).first(size)); });
  };
  CHECK(make(3, 4, 12) == "nothing thrown");
  CHECK(make(0, 4, 12) == "posenc::projected_bank: functions must be at least 1, got 0");
  CHECK(make(3, 0, 0) == "posenc::projected_bank: reach must be at least 1, got 0");
  CHECK(make(3, 4, 11) == "posenc::projected_bank: bank must hold functions * reach values, got 11");
  const posenc::projected_bank<float> held(3, 4, bank);
  const std::vector<float> weights(2 * 2 * 3);
  CHECK(refusal([&] {
          posenc::projected_bias(held, view{weights.data(), {.tokens = 2, .heads = 3, .dim = 2}});
        }) == "posenc::projected_bias: weights must hold one value per function of the bank, got 2");
  const posenc::projected_bias e(held, view{weights.data(), {.tokens = 2, .heads = 2, .dim = 3}});
  std::vector<float> out(6);
  CHECK(refusal([&] { posenc::fill_bias<float>(e, 2, {}, 1, {}, 3, out); }) ==
        "posenc::projected_bias: weights must have the batch, queries and heads of the call, tokens, got 2");
  CHECK(refusal<std::out_of_range>([&] { posenc::add_bias_row(e, {.query_index = 2}, 0, std::span<float>(out)); }) ==
        "posenc::projected_bias: query must lie inside the weights, query index, got 2");
  CHECK(e.describe().parameters == 12);
  CHECK(e.describe().table_bytes == 3 * (4 + 2 * posenc::lane_slack) * 4);
}
