// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/segment.hpp>

#include <array>

using posenc_test::refusal;
using posenc_test::values;

TEST_CASE("segment: rows by id, for one batch row or for each, in every head", "[segment]") {
  const auto table = values<float>(3 * 5);
  const posenc::segment<float> e{{.segments = 3, .dim = 5}, std::span(table)};
  CHECK(e.segments() == 3);
  CHECK(e.dim() == 5);
  CHECK(e.table().data() == table.data());
  const posenc::shape s{.batch = 2, .tokens = 3, .heads = 2, .dim = 5};
  const auto x = values<float>(s.elements(), 2);
  const auto check = [&](const auto& ids, bool shared) {
    auto sum = x;
    std::vector<float> rows(x.size(), 99.0f);
    e.embed(posenc::view{sum.data(), s}, ids);
    e.lookup(posenc::view{rows.data(), s}, ids);
    std::size_t different = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t token = i / 10;
      const auto id = static_cast<std::size_t>(ids[shared ? token % 3 : token]);
      different += rows[i] != table[5 * id + i % 5];
      different += sum[i] != x[i] + table[5 * id + i % 5];
    }
    CHECK(different == 0);
  };
  check(std::vector<std::int64_t>{0, 2, 1}, true);
  check(std::vector<std::int32_t>{0, 2, 1, 1, 1, 0}, false);
  check(std::vector<std::uint8_t>{2, 2, 0}, true);
  check(std::array<bool, 3>{true, false, true}, true);
}

TEST_CASE("segment: rows are counted along the tokens, not along the channels", "[segment]") {
  // [2, 3, 8]: three ids, not eight.
  const posenc::segment<double> e{{.dim = 8}, values<double>(16)};
  std::vector<double> x(48, 0.0);
  const posenc::view v{x.data(), {.batch = 2, .tokens = 3, .dim = 8}};
  e.embed(v, std::vector<int>{0, 1, 0});
  CHECK(v(1, 1, 0, 7) == e.table()[15]);
  CHECK(refusal([&] { e.embed(v, std::vector<int>(8, 0)); }) ==
        "posenc::segment::embed: ids must list one id per token, for one batch row or for each, got 8");
}

TEST_CASE("segment: without ids every token is in segment 0", "[segment]") {
  const posenc::segment<float> e{{.dim = 4}, values<float>(8)};
  const auto x = values<float>(24, 1);
  auto none = x;
  auto zeros = x;
  e.embed(posenc::view{none.data(), {.tokens = 6, .dim = 4}});
  e.embed(posenc::view{zeros.data(), {.tokens = 6, .dim = 4}}, std::vector<int>(6, 0));
  CHECK(none == zeros);
  CHECK(none != x);
}

TEST_CASE("segment: 16-bit tables and data, description", "[segment]") {
  std::vector<Eigen::half> table;
  for (const float v : values<float>(8)) table.emplace_back(v);
  const posenc::segment<Eigen::half> e{{.dim = 4}, std::span<const Eigen::half>(table)};
  std::vector<float> x(4, 1.0f);
  e.embed(posenc::view{x.data(), {.tokens = 1, .dim = 4}}, std::vector<int>{1});
  for (std::size_t d = 0; d < 4; ++d) CHECK(x[d] == 1 + static_cast<float>(table[4 + d]));
  CHECK(e.describe().parameters == 8);
  CHECK(e.describe().table_bytes == 16);
  CHECK(!e.describe().position_limit);
}

TEST_CASE("segment refuses before it writes", "[segment]") {
  CHECK(refusal([] {
          posenc::segment<float>{{.segments = 0, .dim = 1}, std::vector<float>(1)};
        }) == "posenc::segment: segments must be at least 1, got 0");
  CHECK(refusal([] {
          posenc::segment<float>{{}, std::vector<float>(1)};
        }) == "posenc::segment: dim must be at least 1, got 0");
  CHECK(refusal([] {
          posenc::segment<float>{{.dim = 3}, std::vector<float>(5)};
        }).find("must hold rows * dim") != std::string::npos);
  const posenc::segment<float> e{{.dim = 4}, values<float>(8)};
  auto x = values<float>(8);
  const auto before = x;
  const posenc::view v{x.data(), {.tokens = 2, .dim = 4}};
  for (const int bad : {-1, 2})
    CHECK(refusal<std::out_of_range>([&] {
            e.embed(v, std::vector<int>{0, bad});
          }) == "posenc::segment::embed: id must lie in 0..1, got " + std::to_string(bad));
  CHECK(refusal([&] {
          e.lookup(posenc::view{x.data(), {.tokens = 2, .dim = 3}}, std::vector<int>{0, 0});
        }) == "posenc::segment::lookup: dim must equal the encoder's, got 3");
  CHECK(x == before);
}
