// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/encoders/relative_rows.hpp>

#include "support/catch.hpp"

#include <numeric>
#include <vector>
namespace {

using posenc::relative_rows;

std::vector<double> counted(std::size_t n) {
  std::vector<double> x(n);
  std::iota(x.begin(), x.end(), 1.0);
  return x;
}

}  // namespace

TEST_CASE("rows by distance: clamped at both ends, unused rows of an index left out") {
  const relative_rows<double> plain(1, 2, -2, 3, counted(12));
  CHECK(plain.exact());
  CHECK(plain.row(0, -9)[0] == 1);
  CHECK(plain.row(0, 0)[0] == 5);
  CHECK(plain.row(0, 99)[1] == 12);
  const auto table = counted(2 * 10 * 1);
  const relative_rows<double> indexed(2, 1, -3, 3, 10, table.data(),
                                      [](std::int64_t d) { return d < 0 ? 9 : 4 * d / 3; });
  CHECK_FALSE(indexed.exact());
  CHECK(indexed.count() == 5);
  CHECK(indexed.row(0, -2)[0] == 10);
  CHECK(indexed.row(1, -2)[0] == 20);
  CHECK(indexed.row(1, 0)[0] == 11);
  CHECK(indexed.row(0, 3)[0] == 5);
}
