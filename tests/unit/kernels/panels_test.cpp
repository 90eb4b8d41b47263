// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/eigen.hpp>
#include <posenc/kernels/panels.hpp>

#include "support/archs.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

namespace kernels = posenc::kernels;
using posenc_test::archs;
using posenc_test::guarded;

namespace {

template <class C, class S, class Arch>
void check_packing() {
  constexpr std::int64_t p = kernels::panel_width<C, Arch>;
  int wrong = 0;
  for (const std::int64_t keys : {std::int64_t{1}, p - 1, p, p + 1, 2 * p + 3}) {
    for (const std::int64_t dim : {std::int64_t{1}, std::int64_t{7}, p - 1, p, p + 1, std::int64_t{33}}) {
      const std::int64_t key_columns = kernels::padded<C, Arch>(keys);
      const std::int64_t value_columns = kernels::padded<C, Arch>(dim);
      const std::vector<S> rows = posenc_test::random_values<S>(static_cast<std::size_t>(keys * dim), 9);
      guarded<C> k(static_cast<std::size_t>(key_columns * dim));
      guarded<C> v(static_cast<std::size_t>(keys * value_columns));
      posenc::simd::batch<C, Arch> differences(C(0));
      for (std::int64_t x = 0; x < keys; x += p)
        kernels::pack_panel<Arch>(k.data() + x * dim, std::min(p, keys - x), dim,
                                  [&](std::int64_t i) { return rows.data() + (x + i) * dim; });
      for (std::int64_t j = 0; j < keys; ++j)
        kernels::pack_value<Arch>(v.data(), rows.data() + j * dim, j, keys, dim, differences);
      wrong += posenc::simd::sum(differences) != 0;
      for (std::int64_t j = 0; j < key_columns; ++j)
        for (std::int64_t d = 0; d < dim; ++d) {
          const auto at = static_cast<std::size_t>((j / p * dim + d) * p + j % p);
          wrong +=
              k[at] != (j < keys ? static_cast<C>(posenc::widen(rows[static_cast<std::size_t>(j * dim + d)])) : C(0));
        }
      for (std::int64_t j = 0; j < keys; ++j)
        for (std::int64_t d = 0; d < value_columns; ++d) {
          const C right = d < dim ? static_cast<C>(posenc::widen(rows[static_cast<std::size_t>(j * dim + d)])) : C(0);
          wrong += v[static_cast<std::size_t>((d / p * keys + j) * p + d % p)] != right;
        }
      wrong += !k.intact() || !v.intact();
    }
  }
  CHECK(wrong == 0);
}

/// Anything that is not finite is told, wherever it stands.
template <class C, class Arch>
void check_finite() {
  constexpr std::int64_t p = kernels::panel_width<C, Arch>;
  const auto told = [](const std::vector<C>& value) {
    std::vector<C> panels(static_cast<std::size_t>(kernels::padded<C, Arch>(static_cast<std::int64_t>(value.size()))));
    const auto n = static_cast<std::int64_t>(value.size());
    posenc::simd::batch<C, Arch> differences(C(0));
    kernels::pack_value<Arch>(panels.data(), value.data(), 0, 1, n, differences);
    const bool finite = posenc::simd::sum(differences) == 0;
    return finite == kernels::all_finite<Arch>(value.data(), n) ? finite : throw std::logic_error("they differ");
  };
  int missed = 0;
  for (const C bad :
       {std::numeric_limits<C>::infinity(), -std::numeric_limits<C>::infinity(), std::numeric_limits<C>::quiet_NaN()})
    for (std::size_t at = 0; at < p + 3; ++at) {
      std::vector<C> value(static_cast<std::size_t>(p + 3), C(1));
      value[at] = bad;
      missed += told(value);
    }
  CHECK(missed == 0);
  CHECK(told(std::vector<C>(static_cast<std::size_t>(p), std::numeric_limits<C>::max())));
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("panels: every key and value in its place, zeros beside them, nothing outside",
                        "[kernels][panels]", archs) {
  check_packing<float, float, TestType>();
  check_packing<double, double, TestType>();
  check_packing<float, Eigen::half, TestType>();
  check_packing<float, Eigen::bfloat16, TestType>();
}

TEMPLATE_LIST_TEST_CASE("panels: values that are not finite are told", "[kernels][panels]", archs) {
  check_finite<float, TestType>();
  check_finite<double, TestType>();
}
