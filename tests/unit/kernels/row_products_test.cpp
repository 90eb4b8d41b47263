// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/kernels/row_products.hpp>

#include "support/catch.hpp"
#include "support/inputs.hpp"

#include <cmath>
#include <random>
#include <vector>

namespace {

template <class B, class T>
void check(std::int64_t rows, std::int64_t n, std::int64_t dim) {
  using C = typename posenc::lanes<B>::scalar;
  std::mt19937 random(2);
  std::uniform_real_distribution<double> draw(-1, 1);
  const std::int64_t step = dim + 3;
  const std::int64_t padded = (n + posenc::kernels::product_width<B> - 1) / posenc::kernels::product_width<B> *
                              posenc::kernels::product_width<B>;
  std::vector<C> a(static_cast<std::size_t>(rows * step)), panels(static_cast<std::size_t>(padded * dim), C(9));
  std::vector<C> out(static_cast<std::size_t>(rows * (padded + 1)), C(7));
  std::vector<T> table(static_cast<std::size_t>(n * dim));
  for (C& x : a) x = static_cast<C>(draw(random));
  for (T& x : table) x = static_cast<T>(draw(random));
  posenc::kernels::pack_rows<B>(panels.data(), table.data(), n, dim);
  posenc::kernels::multiply_packed<B>(rows, a.data(), step, panels.data(), n, dim, out.data(), padded + 1);
  CAPTURE(rows, n, dim);
  double worst = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t x = 0; x < n; ++x) {
      double sum = 0;
      for (std::int64_t d = 0; d < dim; ++d)
        sum += static_cast<double>(a[static_cast<std::size_t>(r * step + d)]) *
               static_cast<double>(table[static_cast<std::size_t>(x * dim + d)]);
      const C one = posenc::kernels::product<B>(a.data() + r * step, table.data() + x * dim, dim);
      worst = std::max(worst, std::abs(static_cast<double>(one) - sum));
      worst = std::max(worst, std::abs(static_cast<double>(out[static_cast<std::size_t>(r * (padded + 1) + x)]) - sum));
    }
  CHECK(worst <= (std::same_as<C, float> ? 1e-6 : 1e-15) * static_cast<double>(dim));
  for (std::int64_t r = 0; r < rows; ++r) CHECK(out[static_cast<std::size_t>(r * (padded + 1) + padded)] == C(7));
}

}  // namespace

TEST_CASE("products with packed rows are the dots, for every size and lane type") {
  for (const std::int64_t rows : {1, 5, 6, 13})
    for (const std::int64_t n : {1, 15, 16, 33})
      for (const std::int64_t dim : {1, 8, 19}) {
        check<posenc::simd::batch<float>, float>(rows, n, dim);
        check<posenc::simd::batch<double>, double>(rows, n, dim);
        check<posenc::simd::batch<double>, float>(rows, n, dim);
        check<double, double>(rows, n, dim);
        check<float, float>(rows, n, dim);
      }
}
