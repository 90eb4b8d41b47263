// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/hierarchical.hpp>

#include <unsupported/Eigen/AutoDiff>

#include <limits>

using posenc::hierarchical;
using posenc::positions;
using posenc_test::largest_difference;
using posenc_test::refusal;
using posenc_test::values;

namespace {

/// alpha u(t div n) + (1 - alpha) u(t mod n), by the definition.
std::vector<double> expected_row(const std::vector<double>& table, std::int64_t n, std::int64_t dim, double alpha,
                                 std::int64_t t) {
  std::vector<double> row;
  for (std::int64_t d = 0; d < dim; ++d) {
    const auto u = [&](std::int64_t k) {
      return (table[static_cast<std::size_t>(k * dim + d)] - alpha * table[static_cast<std::size_t>(d)]) / (1 - alpha);
    };
    row.push_back(alpha * u(t / n) + (1 - alpha) * u(t % n));
  }
  return row;
}

}  // namespace

TEST_CASE("hierarchical: every position of small tables, every alpha; the first rows bit for bit", "[hierarchical]") {
  for (const std::int64_t n : {1, 2, 3, 7})
    for (const std::int64_t dim : {1, 5, 130})
      for (const double alpha : {0.4, 0.1, 0.75, 0.999}) {
        CAPTURE(n, dim, alpha);
        const auto table = values<double>(n * dim);
        const hierarchical<double> e{{.rows = n, .dim = dim, .alpha = alpha}, std::span(table)};
        REQUIRE(e.length() == n * n);
        std::vector<double> rows(static_cast<std::size_t>(n * n * dim), 99.0);
        e.lookup(posenc::view{rows.data(), {.tokens = n * n, .dim = dim}});
        std::vector<double> want;
        for (std::int64_t t = 0; t < n * n; ++t) {
          const auto row = expected_row(table, n, dim, alpha, t);
          want.insert(want.end(), row.begin(), row.end());
        }
        CHECK(largest_difference(rows, want) < 1e-14 / (1 - alpha));
        CHECK(std::equal(table.begin(), table.end(), rows.begin()));
      }
}

TEST_CASE("hierarchical: float and 16-bit tables, embed in every head", "[hierarchical]") {
  const auto table = values<float>(4 * 6);
  const hierarchical<float> e{{.rows = 4, .dim = 6}, std::span(table)};
  CHECK(e.alpha() == 0.4);
  CHECK(e.table().data() == table.data());
  const posenc::shape s{.batch = 2, .tokens = 2, .heads = 2, .dim = 6};
  const std::vector<std::int64_t> ids{3, 15, 6, 4};
  const auto x = values<float>(s.elements(), 1);
  auto sum = x;
  std::vector<float> rows(x.size(), 99.0f);
  e.embed(posenc::view{sum.data(), s}, positions::listed(ids, 2));
  e.lookup(posenc::view{rows.data(), s}, positions::listed(ids, 2));
  const std::vector<double> wide(table.begin(), table.end());
  std::size_t different = 0;
  posenc_test::worst worst;
  for (std::size_t i = 0; i < x.size(); ++i) {
    different += sum[i] != x[i] + rows[i];
    worst.see(std::abs(static_cast<double>(rows[i]) - expected_row(wide, 4, 6, 0.4, ids[i / 12])[i % 6]), 0);
  }
  CHECK(different == 0);
  CHECK(worst.error < 1.2e-7);  // half a step of float below 4
  std::vector<Eigen::half> narrow_table;
  for (const float v : table) narrow_table.emplace_back(v);
  const hierarchical<Eigen::half> h{{.rows = 4, .dim = 6}, std::span<const Eigen::half>(narrow_table)};
  std::vector<Eigen::half> first(24);
  h.lookup(posenc::view{first.data(), {.tokens = 4, .dim = 6}});
  CHECK(first == narrow_table);
  CHECK(e.describe().parameters == 24);
  CHECK(e.describe().position_limit == 16);
}

TEST_CASE("hierarchical: derivatives by the table and by alpha", "[hierarchical]") {
  // p = (p0, p1), dim 1; seeds: d/dp0, d/dp1, d/dalpha.
  using dual = Eigen::AutoDiffScalar<Eigen::Vector3d>;
  const double alpha = 0.3;
  const double p0 = 0.7;
  const double p1 = -0.2;
  const std::vector<dual> table{dual(p0, 3, 0), dual(p1, 3, 1)};
  const hierarchical<dual, dual> e{{.rows = 2, .dim = 1, .alpha = dual(alpha, 3, 2)}, std::span(table)};
  std::vector<dual> rows(4);
  e.lookup(posenc::view{rows.data(), {.tokens = 4, .dim = 1}});
  std::vector<dual> sum(4, dual(1));
  for (dual& v : sum) v.derivatives().setZero();
  e.embed(posenc::view{sum.data(), {.tokens = 4, .dim = 1}});
  const double ratio = alpha / (1 - alpha);
  const double slope = 1 / ((1 - alpha) * (1 - alpha));
  for (std::size_t t = 0; t < 4; ++t) {
    const double at_fine[2] = {t % 2 == 0 ? 1.0 : 0.0, t % 2 == 1 ? 1.0 : 0.0};
    const double coarse = t / 2 == 1 ? 1 : 0;
    CHECK(std::abs(rows[t].derivatives()[0] - (at_fine[0] - coarse * ratio)) < 1e-15);
    CHECK(std::abs(rows[t].derivatives()[1] - (at_fine[1] + coarse * ratio)) < 1e-15);
    CHECK(std::abs(rows[t].derivatives()[2] - coarse * slope * (p1 - p0)) < 3e-15);
    CHECK(std::abs(sum[t].value() - 1 - rows[t].value()) < 3e-16);
    CHECK(sum[t].derivatives() == rows[t].derivatives());
  }
}

TEST_CASE("hierarchical refuses before it writes", "[hierarchical]") {
  const auto make = [](const posenc::hierarchical_options<>& o) {
    return refusal([&] { hierarchical<float>{o, std::vector<float>(4)}; });
  };
  CHECK(make({.rows = 0, .dim = 1}) == "posenc::hierarchical: rows must lie in 1..2^31, got 0");
  CHECK(make({.rows = 4, .dim = 0}) == "posenc::hierarchical: dim must be at least 1, got 0");
  for (const double bad : {0.0, 0.5, 1.0, -0.1, 1.5, std::nan("")})
    CHECK(make({.rows = 4, .dim = 1, .alpha = bad}).find("alpha must lie between 0 and 1 and not be 0.5") !=
          std::string::npos);
  CHECK(make({.rows = 3, .dim = 1}).find("table must hold rows * dim elements") != std::string::npos);
  const hierarchical<float> e{{.rows = 2, .dim = 2}, std::vector<float>(4, 1.0f)};
  auto x = values<float>(8);
  const auto before = x;
  // n^2 is the first position without a row.
  for (const std::int64_t bad : {std::int64_t{1}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()})
    CHECK(refusal<std::out_of_range>([&] {
            e.embed(posenc::view{x.data(), {.tokens = 4, .dim = 2}}, positions::from(bad));
          }).find("posenc::hierarchical::embed: position must lie in 0..3, got ") == 0);
  CHECK(refusal([&] {
          e.lookup(posenc::view{x.data(), {.tokens = 2, .dim = 3}});
        }) == "posenc::hierarchical::lookup: dim must equal the encoder's, got 3");
  CHECK(x == before);
}
