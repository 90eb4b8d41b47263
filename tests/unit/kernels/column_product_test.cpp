// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/kernels/column_product.hpp>
#include <posenc/simd/batch.hpp>

#include "support/catch.hpp"

#include <cmath>
#include <vector>

namespace {

template <class B, class T>
void check(std::int64_t dim) {
  using L = posenc::lanes<B>;
  using C = typename L::scalar;
  const std::int64_t step = L::size + 3;
  std::vector<C> row;
  std::vector<T> columns;
  for (std::int64_t d = 0; d < dim; ++d) row.push_back(static_cast<C>(std::sin(1.0 + static_cast<double>(d))));
  for (std::int64_t i = 0; i < dim * step; ++i) columns.push_back(static_cast<T>(std::cos(static_cast<double>(3 * i))));
  std::vector<C> out(static_cast<std::size_t>(L::size));
  L::store(out.data(), posenc::kernels::column_product<B>(row.data(), columns.data(), step, dim));
  for (std::int64_t lane = 0; lane < L::size; ++lane) {
    double sum = 0;
    for (std::int64_t d = 0; d < dim; ++d)
      sum += static_cast<double>(row[static_cast<std::size_t>(d)]) *
             static_cast<double>(columns[static_cast<std::size_t>(d * step + lane)]);
    CAPTURE(dim, lane);
    CHECK(std::abs(static_cast<double>(out[static_cast<std::size_t>(lane)]) - sum) <=
          (sizeof(C) == 4 ? 1e-6 : 1e-15) * static_cast<double>(dim + 1));
  }
}

}  // namespace

TEST_CASE("column products are the sums over channels, for every number of channels") {
  for (const std::int64_t dim : {0, 1, 3, 4, 7, 64}) {
    check<posenc::simd::batch<float>, float>(dim);
    check<posenc::simd::batch<double>, double>(dim);
    check<posenc::simd::batch<double>, float>(dim);
    check<double, double>(dim);
  }
}
