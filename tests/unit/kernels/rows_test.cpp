// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/eigen.hpp>
#include <posenc/kernels/rows.hpp>

#include "reference/rounding.hpp"
#include "support/archs.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "support/tolerance.hpp"

#include <cstdint>
#include <vector>

namespace kernels = posenc::kernels;
using posenc_test::archs;
using posenc_test::guarded;
using posenc_test::same_bits;

namespace {

template <class S, class R, class Arch>
void check_rows() {
  using C = posenc::compute_t<S>;
  int wrong = 0;
  int spilled = 0;
  int strided_differs = 0;
  for (std::size_t n = 0; n <= 70; ++n) {
    const std::size_t shift = n % (64 / sizeof(S));
    const std::vector<S> before = posenc_test::random_values<S>(n, n, -4, 4);
    const std::vector<R> row = posenc_test::random_values<R>(n, n + 100);
    guarded<S> x(n, shift);
    x.fill(before);
    kernels::add_row<Arch>(x.data(), row.data(), static_cast<std::int64_t>(n));
    spilled += !x.intact();
    guarded<S> spread(3 * n);
    for (std::size_t i = 0; i < n; ++i) spread[3 * i] = before[i];
    kernels::add_row_strided(spread.data(), 3, row.data(), static_cast<std::int64_t>(n));
    for (std::size_t i = 0; i < n; ++i) {
      const C sum = static_cast<C>(before[i]) + static_cast<C>(row[i]);
      wrong += !same_bits(x[i], static_cast<S>(sum));
      strided_differs += !same_bits(x[i], spread[3 * i]);
      spilled += !spread.untouched(3 * i + 1) || !spread.untouched(3 * i + 2);
    }
    spilled += !spread.intact();
  }
  CHECK(wrong == 0);
  CHECK(strided_differs == 0);
  CHECK(spilled == 0);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("rows: x += row, one rounding, every length and alignment", "[kernels][rows]", archs) {
  check_rows<float, float, TestType>();
  check_rows<double, double, TestType>();
  check_rows<Eigen::half, float, TestType>();
  check_rows<Eigen::bfloat16, float, TestType>();
  check_rows<Eigen::half, Eigen::half, TestType>();
  check_rows<Eigen::bfloat16, Eigen::half, TestType>();
  check_rows<float, Eigen::bfloat16, TestType>();
}

TEST_CASE("rows: a negative step walks backwards, a row may have other scalars", "[kernels][rows]") {
  std::vector<long double> x{1, 2, 3};
  const std::vector<long double> row{10, 20, 30};
  kernels::add_row_strided(x.data() + 2, -1, row.data(), 3);
  CHECK(x == std::vector<long double>{31, 22, 13});
}
