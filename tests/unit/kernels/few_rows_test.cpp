// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/eigen.hpp>
#include <posenc/kernels/few_rows.hpp>

#include "support/archs.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "support/tolerance.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace kernels = posenc::kernels;
using posenc_test::archs;
using posenc_test::guarded;
using posenc_test::worst;

namespace {

template <class C, class S, class Arch>
void check(std::int64_t rows, std::int64_t n, std::int64_t dim, std::int64_t extra) {
  CAPTURE(rows, n, dim, extra);
  const auto size = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  const std::int64_t step = dim + extra;
  const std::vector<S> keys = posenc_test::random_values<S>(size(n * step), 4);
  const std::vector<C> query = posenc_test::random_values<C>(size(rows * step), 5);
  const std::vector<C> weight = posenc_test::random_values<C>(size(rows * (n + extra)), 6, 0, 1);
  const std::vector<C> start = posenc_test::random_values<C>(size(rows * dim), 7);
  guarded<C> score(size((rows - 1) * (n + extra) + n), 1);
  guarded<C> out(size((rows - 1) * step + dim), 3);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t d = 0; d < dim; ++d) out[size(r * step + d)] = start[size(r * dim + d)];
  // What comes next may be anywhere, or nowhere.
  const kernels::row_run<S> run{keys.data(), step, n, extra == 0 ? nullptr : keys.data()};
  kernels::score_keys<Arch>(rows, query.data(), step, run, dim, score.data(), n + extra);
  kernels::add_values<Arch>(rows, weight.data(), n + extra, run, dim, out.data(), step);
  worst score_error, out_error;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < n; ++j) {
      long double right = 0;
      double terms = 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        const long double term =
            static_cast<long double>(query[size(r * step + d)]) * posenc::widen(keys[size(j * step + d)]);
        right += term;
        terms += std::fabs(static_cast<double>(term));
      }
      const double got = static_cast<double>(score[size(r * (n + extra) + j)]);
      score_error.see(std::fabs(got - right) / posenc_test::reduction<C>(dim, terms), j);
    }
    for (std::int64_t d = 0; d < dim; ++d) {
      long double right = start[size(r * dim + d)];
      double terms = std::fabs(static_cast<double>(right));
      for (std::int64_t j = 0; j < n; ++j) {
        const long double term =
            static_cast<long double>(weight[size(r * (n + extra) + j)]) * posenc::widen(keys[size(j * step + d)]);
        right += term;
        terms += std::fabs(static_cast<double>(term));
      }
      const double got = static_cast<double>(out[size(r * step + d)]);
      out_error.see(std::fabs(got - right) / posenc_test::reduction<C>(n + 1, terms), d);
    }
  }
  CHECK(score_error.error <= 1);
  CHECK(out_error.error <= 1);
  CHECK(score.intact());
  CHECK(out.intact());
  for (std::int64_t r = 0; r + 1 < rows; ++r) {
    for (std::int64_t x = n; x < n + extra; ++x) CHECK(score.untouched(size(r * (n + extra) + x)));
    for (std::int64_t d = dim; d < step; ++d) CHECK(out.untouched(size(r * step + d)));
  }
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("few rows: scores and sums of every number of rows, keys and channels", "[kernels][few_rows]",
                        archs) {
  for (std::int64_t rows = 1; rows <= 11; ++rows)
    for (const std::int64_t n : {1, 2, 3, 4, 5, 31})
      for (const std::int64_t dim : {1, 7, 8, 16, 23, 64}) check<float, float, TestType>(rows, n, dim, rows % 2 * 3);
  for (const std::int64_t rows : {1, 3, 4, 9})
    for (const std::int64_t dim : {5, 16, 40}) {
      check<double, double, TestType>(rows, 6, dim, 1);
      check<float, Eigen::half, TestType>(rows, 7, dim, 1);
      check<float, Eigen::bfloat16, TestType>(rows, 5, dim, 0);
    }
}
