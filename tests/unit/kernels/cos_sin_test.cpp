// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/eigen.hpp>
#include <posenc/kernels/cos_sin.hpp>
#include <posenc/math/frequencies.hpp>

#include "reference/angle.hpp"
#include "reference/rounding.hpp"
#include "support/archs.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "support/tolerance.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace kernels = posenc::kernels;
using kernels::row_form;
using posenc::math::turns;
using posenc_test::archs;
using posenc_test::guarded;
using posenc_test::same_bits;
using posenc_test::worst;

namespace {

std::vector<turns> steps_of(const reference::ladder_values& l) {
  std::vector<turns> out;
  for (const auto& f : posenc::math::ladder(l.base, l.dim / 2, l.dim / 2)) out.emplace_back(f);
  return out;
}

std::vector<std::int64_t> positions_up_to(std::int64_t limit) {
  std::vector<std::int64_t> out{0, 1, -1, 7, -100};
  for (const std::int64_t p : {1000, 4095, 8191, 131071, 1000000, 16777217, 123456789, 1000000000})
    if (p <= limit) out.insert(out.end(), {p, -p});
  posenc_test::random_source source(51);
  for (int i = 0; i < 12; ++i) out.push_back(source.integer(-limit, limit));
  return out;
}

/// Largest error of rows of C against exact angles.
template <class C, class Arch>
worst row_error(std::int64_t limit, double magnitude) {
  worst error;
  for (const reference::ladder_values& l : reference::ladders) {
    const std::vector<turns> steps = steps_of(l);
    std::vector<C> cos(steps.size());
    std::vector<C> sin(steps.size());
    for (const std::int64_t p : positions_up_to(limit)) {
      kernels::cos_sin_row<Arch, row_form::separate>(steps.data(), static_cast<std::int64_t>(steps.size()), p,
                                                     magnitude, 1.0, cos.data(), sin.data());
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const auto right =
            reference::cosine_sine_of(reference::phase_of(reference::wide(l.values[i]), reference::integer(p)));
        error.see(std::fabs(cos[i] - magnitude * right.cos), static_cast<long double>(p));
        error.see(std::fabs(sin[i] - magnitude * right.sin), static_cast<long double>(p));
      }
    }
  }
  return error;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("cos_sin: float rows are off by at most 3.0e-8 at every position up to 10^9",
                        "[kernels][cos_sin]", archs) {
  for (const double magnitude : {1.0, 0.5, 0.1}) {
    const worst error = row_error<float, TestType>(1000000000, magnitude);
    CAPTURE(magnitude, error);
    CHECK(error.error <= 3.0e-8L);
  }
  // Above 1 a float is the coarser: half a step of the largest value, and what the angle is off by at 10^9.
  for (const double magnitude : {1.1385, 1.9, 2.0, 8.5}) {
    const worst error = row_error<float, TestType>(1000000000, magnitude);
    CAPTURE(magnitude, error);
    CHECK(error.error <= std::exp2(std::ceil(std::log2(magnitude)) - 25) + 2e-10 * magnitude);
  }
}

TEMPLATE_LIST_TEST_CASE("cos_sin: double rows are off by at most 1e-12 at 10^6 and 1e-9 at 10^9", "[kernels][cos_sin]",
                        archs) {
  const worst near = row_error<double, TestType>(1000000, 1);
  const worst far = row_error<double, TestType>(1000000000, 1);
  CAPTURE(near, far);
  CHECK(near.error <= 1e-12L);
  CHECK(far.error <= 1e-9L);
  // Times the magnitude above 1.
  CHECK(row_error<double, TestType>(1000000, 2.5).error <= 2.5e-12L);
  CHECK(row_error<double, TestType>(1000000000, 2.5).error <= 2.5e-9L);
}

namespace {

template <class Arch>
struct double_row {
  std::vector<double> cos;
  std::vector<double> sin;
  double_row(const std::vector<turns>& steps, std::int64_t p, double magnitude) : cos(steps.size()), sin(steps.size()) {
    kernels::cos_sin_row<Arch, row_form::separate>(steps.data(), static_cast<std::int64_t>(steps.size()), p, magnitude,
                                                   1.0, cos.data(), sin.data());
  }
};

template <class S>
std::uint16_t rounded_once(double value) {
  return reference::encode(posenc::format_of<S> == posenc::format::binary16 ? reference::binary16 : reference::bfloat16,
                           value);
}

/// 16-bit rows against double rows rounded by integer arithmetic. Returns how many differ; `twice` counts the elements
/// that rounding through float would have changed.
template <class S, class Arch>
int wrong_16bit_rows(int& twice) {
  int wrong = 0;
  for (const reference::ladder_values& l : reference::ladders) {
    const std::vector<turns> steps = steps_of(l);
    std::vector<S> cos(steps.size());
    std::vector<S> sin(steps.size());
    for (std::int64_t p = -50; p < 3000; p += 7) {
      const double magnitude = p % 2 ? 1.0 : 1.1385;
      const double_row<Arch> right(steps, p, magnitude);
      kernels::cos_sin_row<Arch, row_form::separate>(steps.data(), static_cast<std::int64_t>(steps.size()), p,
                                                     magnitude, 1.0, cos.data(), sin.data());
      for (std::size_t i = 0; i < steps.size(); ++i) {
        wrong += std::bit_cast<std::uint16_t>(cos[i]) != rounded_once<S>(right.cos[i]);
        wrong += std::bit_cast<std::uint16_t>(sin[i]) != rounded_once<S>(right.sin[i]);
        twice +=
            rounded_once<S>(right.cos[i]) != rounded_once<S>(static_cast<double>(static_cast<float>(right.cos[i])));
      }
    }
  }
  return wrong;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("cos_sin: 16-bit rows are the double rows rounded once", "[kernels][cos_sin]", archs) {
  int twice = 0;
  CHECK(wrong_16bit_rows<Eigen::half, TestType>(twice) == 0);
  CHECK(wrong_16bit_rows<Eigen::bfloat16, TestType>(twice) == 0);
  CHECK(twice > 0);  // rounding through float would be seen
}

TEMPLATE_LIST_TEST_CASE("cos_sin: float rows are the double rows rounded once", "[kernels][cos_sin]", archs) {
  int wrong = 0;
  for (const reference::ladder_values& l : reference::ladders) {
    const std::vector<turns> steps = steps_of(l);
    std::vector<float> cos(steps.size());
    std::vector<float> sin(steps.size());
    for (const std::int64_t p : positions_up_to(1000000000)) {
      const double_row<TestType> right(steps, p, 1.25);
      kernels::cos_sin_row<TestType, row_form::separate>(steps.data(), static_cast<std::int64_t>(steps.size()), p, 1.25,
                                                         1.0, cos.data(), sin.data());
      for (std::size_t i = 0; i < steps.size(); ++i)
        wrong += cos[i] != static_cast<float>(right.cos[i]) || sin[i] != static_cast<float>(right.sin[i]);
    }
  }
  CHECK(wrong == 0);
}

namespace {

/// Both forms, both directions, every number of pairs; nothing outside the rows is written.
template <class C, class Arch>
void check_shapes() {
  const std::vector<turns> steps = [] {
    std::vector<turns> out;
    for (const auto& f : posenc::math::ladder(1e4, 150, 150)) out.emplace_back(f);
    return out;
  }();
  const double_row<Arch> all(steps, 777, 1.0);
  int wrong = 0;
  int spilled = 0;
  for (std::size_t pairs = 0; pairs <= 140; pairs = pairs < 70 ? pairs + 1 : pairs + 7) {
    for (const double direction : {1.0, -1.0}) {
      guarded<C> cos(pairs, pairs % 5);
      guarded<C> sin(pairs, pairs % 3);
      guarded<C> cos2(2 * pairs, 1);
      guarded<C> sin2(2 * pairs, 2);
      const auto n = static_cast<std::int64_t>(pairs);
      kernels::cos_sin_row<Arch, row_form::separate>(steps.data(), n, std::int64_t{777}, 1.0, direction, cos.data(),
                                                     sin.data());
      kernels::cos_sin_row<Arch, row_form::neighbours>(steps.data(), n, std::int64_t{777}, 1.0, direction, cos2.data(),
                                                       sin2.data());
      for (std::size_t i = 0; i < pairs; ++i) {
        const C c = posenc::narrow<C>(all.cos[i]);
        const C s = posenc::narrow<C>(direction * all.sin[i]);
        const C minus = posenc::narrow<C>(-direction * all.sin[i]);
        wrong += !same_bits(cos[i], c) || !same_bits(sin[i], s);
        wrong += !same_bits(cos2[2 * i], c) || !same_bits(cos2[2 * i + 1], c);
        wrong += !same_bits(sin2[2 * i], minus) || !same_bits(sin2[2 * i + 1], s);
      }
      spilled += !cos.intact() || !sin.intact() || !cos2.intact() || !sin2.intact();
    }
  }
  CHECK(wrong == 0);
  CHECK(spilled == 0);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("cos_sin: every number of pairs, both forms, both directions", "[kernels][cos_sin]", archs) {
  check_shapes<float, TestType>();
  check_shapes<double, TestType>();
  check_shapes<Eigen::half, TestType>();
  check_shapes<Eigen::bfloat16, TestType>();
}

TEMPLATE_LIST_TEST_CASE("cos_sin: position 0 is exactly (1, 0), the negative position the mirror image",
                        "[kernels][cos_sin]", archs) {
  const std::vector<turns> steps = steps_of(reference::ladders[0]);
  const double_row<TestType> zero(steps, 0, 1.0);
  int wrong = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) wrong += zero.cos[i] != 1 || zero.sin[i] != 0;
  CHECK(wrong == 0);
  for (const std::int64_t p : {std::int64_t{1}, std::int64_t{131071}, std::int64_t{999999937}}) {
    const double_row<TestType> there(steps, p, 1.0);
    const double_row<TestType> mirror(steps, -p, 1.0);
    worst cos_error;
    worst sin_error;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      cos_error.see(std::fabs(there.cos[i] - mirror.cos[i]), i);
      sin_error.see(std::fabs(there.sin[i] + mirror.sin[i]), i);
    }
    // Not bit for bit: the lowest bits of a phase are dropped towards one side.
    CHECK(cos_error.error <= 9e-16L);
    CHECK(sin_error.error <= 9e-16L);
  }
}

TEMPLATE_LIST_TEST_CASE("cos_sin: rows of real-valued positions", "[kernels][cos_sin]", archs) {
  posenc_test::random_source source(52);
  worst error;
  const reference::ladder_values& l = reference::ladders[0];
  const std::vector<turns> steps = steps_of(l);
  std::vector<float> cos(steps.size());
  std::vector<float> sin(steps.size());
  std::vector<double> at{0.5, -0.25, 1e9, 1e9 + 0.125, 3.0, 1e-3};
  for (int i = 0; i < 20; ++i) at.push_back(source.uniform(-1e6, 1e6));
  for (const double p : at) {
    kernels::cos_sin_row<TestType, row_form::separate>(steps.data(), static_cast<std::int64_t>(steps.size()), p, 1.0,
                                                       1.0, cos.data(), sin.data());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto right =
          reference::cosine_sine_of(reference::phase_of(reference::wide(l.values[i]), reference::binary(p)));
      error.see(std::fabs(cos[i] - right.cos), static_cast<long double>(p));
      error.see(std::fabs(sin[i] - right.sin), static_cast<long double>(p));
    }
  }
  CAPTURE(error);
  CHECK(error.error <= 3.0e-8L);
}

TEST_CASE("cos_sin: the float32 mode has the bits of float angles", "[kernels][cos_sin]") {
  const std::vector<float> inv_freq = posenc::math::float32_ladder(10000.0f, 128);
  const auto pairs = static_cast<std::int64_t>(inv_freq.size());
  std::vector<float> angles(inv_freq.size());
  std::vector<float> cos(inv_freq.size());
  std::vector<float> sin(inv_freq.size());
  std::vector<float> cos2(2 * inv_freq.size());
  std::vector<float> sin2(2 * inv_freq.size());
  int wrong = 0;
  for (const std::int64_t p : positions_up_to(16777217)) {
    for (std::size_t i = 0; i < inv_freq.size(); ++i) {
      angles[i] = posenc::math::float32_angle(static_cast<double>(p), inv_freq[i]);
      // 48 bits of product rounded once.
      wrong += !same_bits(
          angles[i], static_cast<float>(static_cast<double>(static_cast<float>(p)) * static_cast<double>(inv_freq[i])));
    }
    for (const float magnitude : {1.0f, 1.1385f}) {
      kernels::cos_sin_row_float32<row_form::separate>(angles.data(), pairs, magnitude, 1.0, cos.data(), sin.data());
      kernels::cos_sin_row_float32<row_form::neighbours>(angles.data(), pairs, magnitude, -1.0, cos2.data(),
                                                         sin2.data());
      for (std::size_t i = 0; i < inv_freq.size(); ++i) {
        // The functions of the float angle rounded to float; one float product.
        const auto c = static_cast<float>(std::cos(static_cast<long double>(angles[i])));
        const auto s = static_cast<float>(std::sin(static_cast<long double>(angles[i])));
        const auto right_cos = static_cast<float>(static_cast<double>(c) * static_cast<double>(magnitude));
        const auto right_sin = static_cast<float>(static_cast<double>(s) * static_cast<double>(magnitude));
        wrong += !same_bits(cos[i], right_cos) || !same_bits(sin[i], right_sin);
        wrong += cos2[2 * i] != right_cos || cos2[2 * i + 1] != right_cos;
        wrong += sin2[2 * i] != right_sin || sin2[2 * i + 1] != -right_sin;
      }
    }
  }
  CHECK(wrong == 0);
}

TEMPLATE_LIST_TEST_CASE("cos_sin: a row of phases is a row of the positions they come from", "[kernels][cos_sin]",
                        archs) {
  const std::vector<turns> steps = steps_of(reference::ladders[0]);
  // Every pair at a position of its own, as encoders of several axes have it; more than one block.
  std::vector<std::int64_t> at;
  posenc_test::random_source source(53);
  for (std::size_t i = 0; i < 150; ++i) at.push_back(source.integer(-1000000000, 1000000000));
  const auto phase_of = [&](std::int64_t i) {
    const auto k = static_cast<std::size_t>(i);
    return posenc::math::phase(steps[k % steps.size()], at[k]);
  };
  std::vector<float> cos(at.size());
  std::vector<float> sin(at.size());
  std::vector<float> cos2(2 * at.size());
  std::vector<float> sin2(2 * at.size());
  const auto n = static_cast<std::int64_t>(at.size());
  kernels::cos_sin_row_of<TestType, row_form::separate>(phase_of, n, 1.25, -1.0, cos.data(), sin.data());
  kernels::cos_sin_row_of<TestType, row_form::neighbours>(phase_of, n, 1.25, -1.0, cos2.data(), sin2.data());
  int wrong = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    float c = 0;
    float s = 0;
    kernels::cos_sin_row<TestType, row_form::separate>(&steps[i % steps.size()], 1, at[i], 1.25, -1.0, &c, &s);
    wrong += !same_bits(cos[i], c) || !same_bits(sin[i], s);
    wrong += !same_bits(cos2[2 * i], c) || !same_bits(cos2[2 * i + 1], c);
    wrong += sin2[2 * i] != -s || sin2[2 * i + 1] != s;
  }
  CHECK(wrong == 0);
}
