// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/tiled.hpp>

using posenc::positions;
using posenc::tiled;
using posenc_test::refusal;
using posenc_test::values;

TEST_CASE("tiled: the block after the leading rows is repeated", "[tiled]") {
  const tiled<float> e{{.rows = 5, .dim = 1, .length = 12, .leading = 2}, std::vector<float>{0, 1, 2, 3, 4}};
  std::vector<float> rows(12, 99.0f);
  e.lookup(posenc::view{rows.data(), {.tokens = 12, .dim = 1}});
  CHECK(rows == std::vector<float>{0, 1, 2, 3, 4, 2, 3, 4, 2, 3, 4, 2});
  CHECK(e.row_of(5) == 2);
  const tiled<float> whole{{.rows = 3, .dim = 1, .length = 7}, std::vector<float>{0, 1, 2}};
  std::vector<float> seven(7, 99.0f);
  whole.lookup(posenc::view{seven.data(), {.tokens = 7, .dim = 1}});
  CHECK(seven == std::vector<float>{0, 1, 2, 0, 1, 2, 0});
  // RoBERTa's 514 rows to Longformer's 4098: blocks of 512 follow each other.
  const tiled<float> longformer{{.rows = 514, .dim = 1, .length = 4098, .leading = 2}, std::vector<float>(514)};
  CHECK(longformer.row_of(513) == 513);
  CHECK(longformer.row_of(514) == 2);
  CHECK(longformer.row_of(1025) == 513);
  CHECK(longformer.row_of(4097) == 513);
}

TEST_CASE("tiled: embed adds to every head; description", "[tiled]") {
  const auto table = values<float>(4 * 9);
  const tiled<float> e{{.rows = 4, .dim = 9, .length = 10, .leading = 1}, std::span(table)};
  CHECK(e.table().data() == table.data());
  const posenc::shape s{.batch = 2, .tokens = 2, .heads = 2, .dim = 9};
  const std::vector<std::int64_t> ids{0, 9, 4, 2};
  const std::vector<std::size_t> takes{0, 3, 1, 2};
  const auto x = values<float>(s.elements(), 1);
  auto sum = x;
  e.embed(posenc::view{sum.data(), s}, positions::listed(ids, 2));
  std::size_t different = 0;
  for (std::size_t i = 0; i < x.size(); ++i) different += sum[i] != x[i] + table[9 * takes[i / 18] + i % 9];
  CHECK(different == 0);
  CHECK(e.describe().parameters == 36);
  CHECK(e.describe().table_bytes == 144);
  CHECK(e.describe().position_limit == 10);
  CHECK(e.options().leading == 1);
}

TEST_CASE("tiled refuses before it writes", "[tiled]") {
  const auto make = [](const posenc::tiled_options& o) {
    return refusal([&] { tiled<float>{o, std::vector<float>(4)}; });
  };
  CHECK(make({.rows = 0, .dim = 1, .length = 1}) == "posenc::tiled: rows must be at least 1, got 0");
  CHECK(make({.rows = 4, .dim = 0, .length = 4}) == "posenc::tiled: dim must be at least 1, got 0");
  CHECK(make({.rows = 4, .dim = 1, .length = 3}) == "posenc::tiled: length must be at least rows, got 3");
  CHECK(make({.rows = 4, .dim = 1, .length = 8, .leading = 4}) ==
        "posenc::tiled: leading must be less than rows, got 4");
  CHECK(make({.rows = 3, .dim = 1, .length = 8}).find("table must hold rows * dim elements") != std::string::npos);
  const tiled<float> e{{.rows = 2, .dim = 2, .length = 5}, std::vector<float>(4, 1.0f)};
  auto x = values<float>(8);
  const auto before = x;
  for (const std::int64_t bad : {-1, 2})
    CHECK(refusal<std::out_of_range>([&] {
            e.embed(posenc::view{x.data(), {.tokens = 4, .dim = 2}}, positions::from(bad));
          }).find("posenc::tiled::embed: position must lie in 0..4, got ") == 0);
  CHECK(refusal<std::out_of_range>([&] { (void)e.row_of(5); }) == "posenc::tiled: position must lie in 0..4, got 5");
  CHECK(refusal([&] {
          e.embed(posenc::view{x.data(), {.tokens = 2, .dim = 3}});
        }) == "posenc::tiled::embed: dim must equal the encoder's, got 3");
  CHECK(x == before);
}
