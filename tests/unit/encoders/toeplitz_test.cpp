// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/encoders/toeplitz.hpp>

using posenc::positions;
using posenc_test::refusal;
using posenc_test::values;

namespace {
double entry(const std::vector<double>& table, std::int64_t reach, std::int64_t head, std::int64_t distance) {
  return table[static_cast<std::size_t>(head * (2 * reach + 1) + std::clamp(distance, -reach, reach) + reach)];
}
}  // namespace

TEST_CASE("toeplitz: a value per distance, constant beyond the ends", "[toeplitz]") {
  for (const std::int64_t reach : {0, 1, 3, 40}) {
    const auto table = values<double>(2 * (2 * reach + 1));
    const posenc::toeplitz<double> e{2, reach, std::span<const double>(table)};
    CHECK(e.heads() == 2);
    CHECK(e.max_distance() == reach);
    CHECK(e.line(1)[-reach] == entry(table, reach, 1, -reach));
    CHECK(e.line(1)[reach] == entry(table, reach, 1, reach));
    // Contiguous keys on lanes, far before, around and far after the query.
    for (const std::int64_t first : {-1000, -30, 0, 17, 5000}) {
      std::vector<double> logits(61, 1.0);
      posenc::add_bias_row(e, {.head = 1, .query_position = 20}, first, std::span<double>(logits));
      bool same = true;
      for (std::int64_t j = 0; j < 61; ++j)
        same = same && logits[static_cast<std::size_t>(j)] == 1.0 + entry(table, reach, 1, first + j - 20);
      CAPTURE(reach, first);
      CHECK(same);
    }
    // Listed ids in no order.
    const std::vector<std::int64_t> at{20, -7, 21, 19, std::int64_t{1} << 60, -(std::int64_t{1} << 60), 20};
    std::vector<double> bias(14);
    posenc::fill_bias(e, 2, positions::from(20), 1, positions::listed(at), 7, std::span<double>(bias));
    bool same = true;
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t j = 0; j < 7; ++j)
        same = same && bias[static_cast<std::size_t>(7 * h + j)] ==
                           entry(table, reach, h, at[static_cast<std::size_t>(j)] - 20);
    CHECK(same);
  }
}

TEST_CASE("toeplitz: from a function, and a copy of the table", "[toeplitz]") {
  const posenc::toeplitz<float> e{3, 5, [](std::int64_t head, std::int64_t distance) {
                                    REQUIRE(std::abs(distance) <= 5);
                                    return static_cast<float>(100 * head + distance);
                                  }};
  for (std::int64_t h = 0; h < 3; ++h)
    for (std::int64_t d = -5; d <= 5; ++d) CHECK(e.line(h)[d] == static_cast<float>(100 * h + d));
  std::vector<float> table{1, 2, 3};
  const posenc::toeplitz<float> copy{1, 1, std::span<const float>(table)};
  table[1] = 9;
  CHECK(copy.line(0)[0] == 2);
}

TEST_CASE("toeplitz: refusals and description", "[toeplitz]") {
  const auto table = values<float>(10);
  const auto make = [&](std::int64_t heads, std::int64_t reach, std::size_t size) {
    return refusal([&] { posenc::toeplitz<float>{heads, reach, std::span<const float>(table).first(size)}; });
  };
  CHECK(make(0, 2, 10) == "posenc::toeplitz: heads must be at least 1, got 0");
  CHECK(make(2, -1, 10) == "posenc::toeplitz: max_distance must lie in 0..2^40, got -1");
  CHECK(make(2, (std::int64_t{1} << 40) + 1, 10) ==
        "posenc::toeplitz: max_distance must lie in 0..2^40, got 1099511627777");
  CHECK(make(2, 2, 9) == "posenc::toeplitz: table must hold heads * (2 * max_distance + 1) values, got 9");
  CHECK(make(2, 1, 10) == "posenc::toeplitz: table must hold heads * (2 * max_distance + 1) values, got 10");
  CHECK(make(2, 2, 10) == "nothing thrown");

  const posenc::toeplitz<float> e{2, 2, std::span<const float>(table)};
  CHECK(e.describe().parameters == 10);
  CHECK(e.describe().table_bytes == 2 * (5 + 2 * posenc::lane_slack) * 4);
  CHECK(!e.describe().position_limit);
  CHECK(e.describe().shift == posenc::cache_shift::keep_keys);
}
