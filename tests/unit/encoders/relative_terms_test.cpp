// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/encoders/relative_terms.hpp>

#include "support/catch.hpp"

#include <limits>
#include <random>
#include <vector>
namespace {

using posenc::relative_rows;

/// A tile of `rows` queries from position `first_query` on against keys from `first_key` on; row r sees [0, sees(r)).
template <class B, class Keys, class Table>
void check_tile(const Table& table, std::int64_t heads, std::int64_t rows, std::int64_t keys_count, const Keys& keys,
                const std::vector<std::int64_t>& query_positions, bool dense) {
  using C = typename posenc::lanes<B>::scalar;
  const std::int64_t dim = table.dim();
  std::mt19937 random(4);
  std::uniform_real_distribution<double> draw(-1, 1);
  std::vector<posenc::row> at;
  std::vector<posenc::interval> seen;
  std::vector<C> query(static_cast<std::size_t>(rows * dim)), factor, key(static_cast<std::size_t>(keys_count * dim));
  for (C& x : query) x = static_cast<C>(draw(random));
  for (C& x : key) x = static_cast<C>(draw(random));
  for (std::int64_t r = 0; r < rows; ++r) {
    at.push_back({.head = r % heads,
                  .query_index = r / heads,
                  .query_position = query_positions[static_cast<std::size_t>(r / heads)]});
    factor.push_back(static_cast<C>(0.5 + 0.1 * static_cast<double>(r % 3)));
    seen.push_back(r % 5 == 4 ? posenc::interval{3, 3} : posenc::interval{r % 3, keys_count - r % 4});
  }
  struct source {
    const std::vector<C>* key;
    std::int64_t dim;
  } from{&key, dim};
  const posenc::content_tile<C> tile{rows,
                                     keys_count,
                                     0,
                                     dim,
                                     at.data(),
                                     query.data(),
                                     nullptr,
                                     factor.data(),
                                     seen.data(),
                                     &from,
                                     [](const void* s, std::int64_t j, C* to) {
                                       const auto& f = *static_cast<const source*>(s);
                                       std::copy_n(f.key->data() + j * f.dim, f.dim, to);
                                     }};
  std::vector<C> scratch(static_cast<std::size_t>(posenc::detail::relative_scratch(rows, keys_count, dim).total));
  std::vector<const C*> lines(static_cast<std::size_t>(rows), nullptr);
  posenc::detail::relative_terms<B, double, Keys> terms(table, tile, keys, scratch.data());
  terms.query_terms(query.data(), lines.data(), dense);
  if (dense) posenc::detail::relative_terms<B, double, Keys>(table, tile, keys, scratch.data()).key_terms();
  double worst = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = seen[static_cast<std::size_t>(r)].lo; j < seen[static_cast<std::size_t>(r)].hi; ++j) {
      const std::int64_t d =
          posenc::position_difference(keys.position(j), at[static_cast<std::size_t>(r)].query_position);
      const double* row = table.row(at[static_cast<std::size_t>(r)].head, d);
      double sum = 0;
      for (std::int64_t x = 0; x < dim; ++x) {
        sum += static_cast<double>(query[static_cast<std::size_t>(r * dim + x)]) * row[x];
        if (dense)
          sum += static_cast<double>(factor[static_cast<std::size_t>(r)]) *
                 static_cast<double>(key[static_cast<std::size_t>(j * dim + x)]) * row[x];
      }
      worst = std::max(worst, std::abs(static_cast<double>(lines[static_cast<std::size_t>(r)][j]) - sum));
    }
  CAPTURE(heads, rows, keys_count, dense);
  CHECK(worst <= (std::same_as<C, float> ? 1e-4 : 1e-12));
}

}  // namespace

TEMPLATE_TEST_CASE("terms of a tile: slices, clipped ends, listed ids and far positions", "", double,
                   posenc::simd::batch<double>) {
  using B = TestType;
  std::vector<double> random(3 * 41 * 7);
  std::mt19937 engine(1);
  std::uniform_real_distribution<double> draw(-1, 1);
  for (double& x : random) x = draw(engine);
  const relative_rows<double> clipped(1, 7, -20, 20, std::vector<double>(random.begin(), random.begin() + 41 * 7));
  const relative_rows<double> wide(1, 7, -200, 200, 41, random.data(), [](std::int64_t d) { return (d + 200) / 10; });
  const relative_rows<double> per_head(3, 7, -20, 20, random);
  std::vector<std::int64_t> near, apart;
  for (std::int64_t i = 0; i < 60; ++i) {
    near.push_back(40 + i);
    apart.push_back((i * 37) % 60 * 1000 - 7);
  }
  std::vector<std::int64_t> ids(64 + posenc::lane_slack);
  for (std::size_t j = 0; j < ids.size(); ++j) ids[j] = static_cast<std::int64_t>((j * 29) % 64);
  for (const bool dense : {false, true})
    for (const std::int64_t rows : {1, 3, 50}) {
      check_tile<B>(clipped, 1, rows, 64, posenc::contiguous_keys{30}, near, dense);
      check_tile<B>(wide, 1, rows, 64, posenc::contiguous_keys{30}, near, dense);
      check_tile<B>(per_head, 3, rows, 64, posenc::contiguous_keys{30}, near, dense);
      check_tile<B>(clipped, 1, rows, 64, posenc::contiguous_keys{0}, apart, dense);
      check_tile<B>(per_head, 3, rows, 64, posenc::listed_keys{ids.data()}, near, dense);
    }
  constexpr std::int64_t far = std::numeric_limits<std::int64_t>::max() - 200;
  check_tile<B>(clipped, 1, 20, 64, posenc::contiguous_keys{-far}, std::vector<std::int64_t>(20, far), true);
}
