// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/encoders/relative_values.hpp>

#include "support/catch.hpp"

#include <vector>

namespace {

/// sum_j w(j) row(distance j) by the state, and pair by pair.
template <class B, class Keys>
void check(const Keys& keys, std::int64_t query, std::int64_t n) {
  using C = typename posenc::lanes<B>::scalar;
  std::vector<C> rows;
  for (int i = 0; i < 9 * 5; ++i) rows.push_back(static_cast<C>((i * 7) % 11) / C(8));
  const posenc::relative_rows<C> table(1, 5, -3, 5, rows);
  std::vector<C> weights;
  for (std::int64_t j = 0; j < n; ++j) weights.push_back(C(1) / static_cast<C>(1 + j));
  const posenc::row r{.query_position = query};
  std::vector<C> state(9, C(0)), sum(5, C(1));
  // In two pieces, as tiles come.
  posenc::detail::add_weights_by_place<B>(table, state.data(), r, keys, 0, weights.data(), n / 3);
  posenc::detail::add_weights_by_place<B>(table, state.data(), r, keys, n / 3, weights.data() + n / 3, n - n / 3);
  posenc::detail::add_rows_by_weight<B>(table, state.data(), 0, sum.data(), 5);
  for (std::int64_t d = 0; d < 5; ++d) {
    double expected = 1;
    for (std::int64_t j = 0; j < n; ++j)
      expected += static_cast<double>(weights[static_cast<std::size_t>(j)]) *
                  static_cast<double>(table.row(0, keys.position(j) - query)[d]);
    CHECK(static_cast<double>(sum[static_cast<std::size_t>(d)]) ==
          Approx(expected).epsilon(std::same_as<C, float> ? 1e-6 : 1e-14));
  }
}

}  // namespace

TEST_CASE("weights added by distance, then the rows once, is the sum over pairs") {
  std::vector<std::int64_t> ids(40 + posenc::lane_slack);
  for (std::size_t j = 0; j < ids.size(); ++j) ids[j] = static_cast<std::int64_t>((j * 17) % 40);
  for (const std::int64_t query : {-30, 0, 20, 90}) {
    check<posenc::simd::batch<float>>(posenc::contiguous_keys{0}, query, 40);
    check<posenc::simd::batch<double>>(posenc::listed_keys{ids.data()}, query, 40);
    check<double>(posenc::contiguous_keys{-5}, query, 17);
    check<double>(posenc::listed_keys{ids.data()}, query, 40);
  }
}
