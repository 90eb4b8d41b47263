// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Faults that were reported against the comparisons of other test programs.
#include "support/catch.hpp"
#include "support/tolerance.hpp"
#include "unit/attention/tensors.hpp"

#include <limits>
#include <vector>

TEST_CASE("F80: infinities compare by pattern, NaN equals nothing, the rest by tolerance") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto error = [](double found, double right) {
    return posenc_test::relative_error(std::vector<double>{1, found}, std::vector<double>{1, right});
  };
  CHECK(error(-inf, -inf) == 0);
  CHECK(error(inf, inf) == 0);
  CHECK(error(inf, -inf) == inf);
  CHECK(error(1e300, inf) == inf);
  CHECK(error(-inf, -1e300) == inf);
  CHECK(error(nan, nan) == inf);
  CHECK(error(nan, 1) == inf);
  CHECK(error(1, nan) == inf);
  CHECK(error(2 + 1e-9, 2) == Approx(0.5e-9).epsilon(1e-6));
  CHECK(posenc_test::relative_error(std::vector<double>{1}, {1, 2}) == inf);
  CHECK(posenc_test::ulp_error(-std::numeric_limits<float>::infinity(), -inf) == 0);
  CHECK(posenc_test::ulp_error(std::numeric_limits<float>::infinity(), -inf) == inf);
  CHECK(posenc_test::ulp_error(std::numeric_limits<float>::max(), inf) == inf);
  CHECK(posenc_test::ulp_error(static_cast<float>(nan), 1) == inf);
}
