// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/bias.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/relative_bucket.hpp>

#include "reference/dense_attention.hpp"
#include "support/catch.hpp"

#include <random>

namespace {

using posenc::positions;
using posenc_test::contains;

std::vector<float> table_of(std::int64_t values) {
  std::vector<float> table(static_cast<std::size_t>(values));
  std::mt19937 random(3);
  std::uniform_real_distribution<float> draw(-1, 1);
  for (float& x : table) x = draw(random);
  return table;
}

}  // namespace

TEST_CASE("fill_bias writes the bias of every head, query and key, from positions of any kind") {
  const posenc::alibi<double> alibi(6);
  const std::vector<std::int64_t> ids{9, 2, 2, -5, 100};
  std::vector<double> bias(6 * 3 * 5, 7);
  posenc::fill_bias<double>(alibi, 6, positions::from(4), 3, positions::listed(ids), 5, bias);
  for (std::int64_t h = 0; h < 6; ++h)
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < 5; ++j)
        CHECK(bias[static_cast<std::size_t>((h * 3 + i) * 5 + j)] ==
              Approx(-dense::alibi_slope(h, 6) *
                     std::abs(static_cast<double>(ids[static_cast<std::size_t>(j)] - 4 - i))));
}

TEST_CASE("add_bias_row adds one row on lanes, in float and double, for every length") {
  const std::vector<float> table = table_of(32 * 4);
  const posenc::relative_bucket<float> t5({.heads = 4}, table);
  for (std::int64_t n = 0; n < 40; ++n)
    for (const std::int64_t first : {-30, 0, 170}) {
      const posenc::row r{.head = 2, .query_index = 3, .query_position = 11};
      std::vector<float> logits(static_cast<std::size_t>(n), 0.25f);
      std::vector<double> wide(static_cast<std::size_t>(n), 0.25);
      posenc::add_bias_row<float>(t5, r, first, logits);
      posenc::add_bias_row<double>(posenc::compose(t5, posenc::softcap(2)), r, first, wide);
      for (std::int64_t j = 0; j < n; ++j) {
        const auto right = static_cast<double>(
            table[static_cast<std::size_t>(dense::t5_bucket(first + j - 11, true, 32, 128) * 4 + 2)]);
        CHECK(logits[static_cast<std::size_t>(j)] == Approx(0.25 + right).epsilon(1e-6));
        CHECK(wide[static_cast<std::size_t>(j)] == Approx(2 * std::tanh((0.25 + right) / 2)).epsilon(1e-12));
      }
    }
}

TEST_CASE("distance_line gives one head's value at every distance") {
  std::vector<double> line(21, 7);
  posenc::distance_line<double>(posenc::compose(posenc::alibi<double>(3)), 2, -10, line);
  for (std::int64_t d = -10; d <= 10; ++d)
    CHECK(line[static_cast<std::size_t>(d + 10)] == -dense::alibi_slope(2, 3) * std::abs(static_cast<double>(d)));
}

TEST_CASE("a policy without a logit transform has a bias of zero, masks take no part") {
  std::vector<float> bias(12, 7);
  posenc::fill_bias<float>(posenc::compose(posenc::nope{}, posenc::causal{}), 1, positions::from(0), 3,
                           positions::from(0), 4, bias);
  for (const float x : bias) CHECK(x == 0);
}

TEST_CASE("sizes that do not fit are refused") {
  std::vector<double> bias(6 * 3 * 5, 7);
  const posenc::alibi<double> alibi(6);
  const std::vector<std::int64_t> ids(4);
  CHECK_THROWS_WITH(posenc::fill_bias<double>(alibi, 6, positions::from(0), 3, positions::from(0), 4, bias),
                    contains("posenc::fill_bias: out must hold heads * queries * keys values, got 90"));
  CHECK_THROWS_WITH(posenc::fill_bias<double>(alibi, 6, positions::from(0), 3, positions::listed(ids), 5, bias),
                    contains("posenc::fill_bias: key_positions must list"));
  CHECK_THROWS_WITH(posenc::fill_bias<double>(alibi, 6, positions::listed(ids), 3, positions::from(0), 5, bias),
                    contains("posenc::fill_bias: query_positions must list"));
  for (const double x : bias) CHECK(x == 7);
}

TEST_CASE("a head that the encoder does not have is refused") {
  const posenc::alibi<double> two(2);
  std::vector<double> bias(6 * 3 * 5, 7);
  std::vector<double> line(4, 7);
  CHECK_THROWS_AS(posenc::fill_bias<double>(two, 6, positions::from(0), 3, positions::from(0), 5, bias),
                  std::invalid_argument);
  CHECK_THROWS_AS(posenc::distance_line<double>(two, 2, 0, line), std::invalid_argument);
  CHECK_THROWS_AS(posenc::add_bias_row<double>(two, {.head = 2}, 0, line), std::invalid_argument);
  for (const double x : bias) CHECK(x == 7);
  for (const double x : line) CHECK(x == 7);
}
