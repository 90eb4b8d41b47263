// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/math/angle.hpp>
#include <posenc/math/buckets.hpp>
#include <posenc/math/double_double.hpp>
#include <posenc/math/frequencies.hpp>
#include <posenc/math/slopes.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace {

using namespace posenc::math;

static_assert(std::is_convertible_v<double, double_double> && !std::is_convertible_v<double_double, double>);
static_assert(static_cast<double>(double_double(1, 0x1p-60)) == 1);
static_assert(two_pi.hi == 6.283185307179586 && inverse_two_pi.hi == 0.15915494309189535 &&
              ln2.hi == 0.6931471805599453);
// A parameter given in radians is not a step by accident.
static_assert(!std::is_convertible_v<double, turns> && std::is_constructible_v<turns, double_double>);

constexpr turns quarter() noexcept {
  turns t;
  t.fraction = std::uint64_t{1} << 62;
  return t;
}
static_assert(phase(quarter(), std::int64_t{1}) == std::uint64_t{1} << 62);
static_assert(phase(quarter(), std::int64_t{-1}) == std::uint64_t{3} << 62);
static_assert(phase(quarter(), std::int64_t{4}) == 0 &&
              phase(quarter(), std::numeric_limits<std::int64_t>::min()) == 0);
static_assert(noexcept(phase(quarter(), std::int64_t{0})) && noexcept(phase(quarter(), 0.5)) && noexcept(cos_sin(0)));
static_assert(std::is_same_v<decltype(alibi_slopes(8, posenc::slope_rule::paper, 8.0)), std::vector<double>>);
static_assert(std::is_same_v<decltype(t5_buckets(32, 128, true)(0)), std::int64_t>);

}  // namespace
