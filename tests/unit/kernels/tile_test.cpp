// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/eigen.hpp>
#include <posenc/kernels/tile.hpp>

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
using posenc_test::same_bits;
using posenc_test::worst;

namespace {

/// Every number of rows and many inner lengths: out (+)= a * panel, against the plain triple loop.
template <class C, class Arch, bool Accumulate>
void check_multiply() {
  constexpr auto p = static_cast<std::size_t>(kernels::panel_width<C, Arch>);
  worst error;
  int spilled = 0;
  for (std::size_t rows = 1; rows <= static_cast<std::size_t>(kernels::block_rows<Arch>); ++rows) {
    for (const std::size_t inner : {0u, 1u, 2u, 3u, 7u, 16u, 33u, 64u, 127u}) {
      const std::size_t a_step = inner + rows % 3;
      const std::size_t out_step = p + 3;
      const std::vector<C> a = posenc_test::random_values<C>(rows * a_step + 1, 10 * rows + inner);
      const std::vector<C> panel = posenc_test::random_values<C>(inner * p + 1, 77 + inner);
      const std::vector<C> start = posenc_test::random_values<C>(rows * p, 5);
      guarded<C> out((rows - 1) * out_step + p, rows);
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t j = 0; j < p; ++j) out[r * out_step + j] = start[r * p + j];
      kernels::multiply_rows<Arch, Accumulate>(static_cast<std::int64_t>(rows), a.data(),
                                               static_cast<std::int64_t>(a_step), panel.data(), out.data(),
                                               static_cast<std::int64_t>(out_step), static_cast<std::int64_t>(inner));
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t j = 0; j < p; ++j) {
          long double right = Accumulate ? static_cast<long double>(start[r * p + j]) : 0;
          double terms = std::fabs(static_cast<double>(right));
          for (std::size_t k = 0; k < inner; ++k) {
            const long double term = static_cast<long double>(a[r * a_step + k]) * panel[k * p + j];
            right += term;
            terms += std::fabs(static_cast<double>(term));
          }
          const double allowed = posenc_test::reduction<C>(static_cast<std::int64_t>(inner), terms);
          const long double off = std::fabs(out[r * out_step + j] - right);
          error.see(off == 0 ? 0 : off / allowed, static_cast<long double>(inner));
        }
        if (r + 1 < rows)
          for (std::size_t g = p; g < out_step; ++g) spilled += !out.untouched(r * out_step + g);
      }
      spilled += !out.intact();
    }
  }
  CAPTURE(error);
  CHECK(error.error <= 1);
  CHECK(spilled == 0);
}

template <class C, class S, class Arch>
void check_dot_and_add() {
  worst dot_error;
  worst add_error;
  int spilled = 0;
  for (std::size_t n = 0; n <= 140; ++n) {
    const std::vector<C> x = posenc_test::random_values<C>(n, n + 1);
    guarded<S> y(n, n % (64 / sizeof(S)));
    y.fill(posenc_test::random_values<S>(n, n + 2));
    long double right = 0;
    double terms = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const long double term = static_cast<long double>(x[i]) * static_cast<long double>(posenc::widen(y[i]));
      right += term;
      terms += std::fabs(static_cast<double>(term));
    }
    const auto length = static_cast<std::int64_t>(n);
    const C got = kernels::dot<Arch>(x.data(), static_cast<const S*>(y.data()), length);
    const long double off = std::fabs(got - right);
    dot_error.see(off == 0 ? 0 : off / posenc_test::reduction<C>(length, terms), static_cast<long double>(n));
    guarded<C> out(n, 3);
    out.fill(x);
    const C weight = C(0.7);
    kernels::add_scaled<Arch>(out.data(), weight, static_cast<const S*>(y.data()), length);
    for (std::size_t i = 0; i < n; ++i) {
      const long double product = static_cast<long double>(weight) * static_cast<long double>(posenc::widen(y[i]));
      const double scale = std::fabs(static_cast<double>(x[i])) + 2 * std::fabs(static_cast<double>(product));
      add_error.see(
          std::fabs(out[i] - (static_cast<long double>(x[i]) + product)) / posenc_test::elementwise<C>(1, scale),
          static_cast<long double>(n));
    }
    spilled += !out.intact();
  }
  CAPTURE(dot_error, add_error);
  CHECK(dot_error.error <= 1);
  CHECK(add_error.error <= 1);
  CHECK(spilled == 0);
}

template <class C, class Arch>
void check_scale() {
  int wrong = 0;
  for (std::size_t n = 0; n <= 70; ++n) {
    const std::vector<C> x = posenc_test::random_values<C>(n, n);
    guarded<C> out(n, n % 7);
    out.fill(x);
    kernels::scale_row<Arch>(out.data(), C(0.3), static_cast<std::int64_t>(n));
    for (std::size_t i = 0; i < n; ++i) wrong += out[i] != x[i] * C(0.3);
    wrong += !out.intact();
  }
  CHECK(wrong == 0);
}

template <class C, class S, class Arch>
void check_widen() {
  int wrong = 0;
  const std::vector<S> x = posenc_test::random_values<S>(400, 8, -50, 50);
  for (std::size_t n = 0; n <= 70; ++n) {
    for (const std::int64_t step : {1, 2, 5, -1, 0}) {
      const S* const from = x.data() + (step < 0 ? 70 : 1);
      guarded<C> out(n, n % 5);
      kernels::widen_row<Arch>(out.data(), from, step, static_cast<std::int64_t>(n));
      for (std::size_t i = 0; i < n; ++i)
        wrong += !same_bits(out[i], static_cast<C>(from[static_cast<std::int64_t>(i) * step]));
      wrong += !out.intact();
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("tile: a register block is the plain product, for every number of rows", "[kernels][tile]",
                        archs) {
  check_multiply<float, TestType, false>();
  check_multiply<float, TestType, true>();
  check_multiply<double, TestType, false>();
  check_multiply<double, TestType, true>();
}

TEMPLATE_LIST_TEST_CASE("tile: dot and add_scaled for every length, storage and alignment", "[kernels][tile]", archs) {
  check_dot_and_add<float, float, TestType>();
  check_dot_and_add<double, double, TestType>();
  check_dot_and_add<float, Eigen::half, TestType>();
  check_dot_and_add<float, Eigen::bfloat16, TestType>();
}

TEMPLATE_LIST_TEST_CASE("tile: scale_row and widen_row", "[kernels][tile]", archs) {
  check_scale<float, TestType>();
  check_scale<double, TestType>();
  check_widen<float, float, TestType>();
  check_widen<double, double, TestType>();
  check_widen<float, Eigen::half, TestType>();
  check_widen<float, Eigen::bfloat16, TestType>();
  check_widen<double, float, TestType>();
}

TEMPLATE_LIST_TEST_CASE("tile: whole panels", "[kernels][tile]", archs) {
  constexpr std::int64_t p = kernels::panel_width<float, TestType>;
  CHECK(p == 2 * posenc::simd::width<float, TestType>);
  CHECK(kernels::padded<float, TestType>(0) == 0);
  CHECK(kernels::padded<float, TestType>(1) == p);
  CHECK(kernels::padded<float, TestType>(p) == p);
  CHECK(kernels::padded<float, TestType>(p + 1) == 2 * p);
}
