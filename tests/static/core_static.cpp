// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/eigen.hpp>
#include <posenc/core/lanes.hpp>
#include <posenc/core/parallel.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/positions.hpp>
#include <posenc/core/scalar.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>

#include <complex>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using namespace posenc;

// Storage and compute types.
static_assert(simd_scalar<float> && simd_scalar<double> && simd_scalar<const float>);
static_assert(!simd_scalar<long double> && !simd_scalar<int> && !simd_scalar<Eigen::half>);
static_assert(simd_storage<float> && simd_storage<double> && simd_storage<Eigen::half> &&
              simd_storage<const Eigen::bfloat16>);
static_assert(!simd_storage<int> && !simd_storage<long double> && !simd_storage<std::uint16_t> &&
              !simd_storage<std::complex<float>>);
static_assert(std::is_same_v<compute_t<Eigen::half>, float> && std::is_same_v<compute_t<const Eigen::bfloat16>, float>);
static_assert(std::is_same_v<compute_t<double>, double> && std::is_same_v<compute_t<const float>, float>);
static_assert(std::is_same_v<compute_t<long double>, long double>);

// Conversions at compile time.
static_assert(detail::binary16_from_float(1.0f) == 0x3c00 && detail::binary16_from_float(-2.0f) == 0xc000);
static_assert(detail::binary16_from_float(65519.0f) == 0x7bff && detail::binary16_from_float(65520.0f) == 0x7c00);
static_assert(detail::binary16_from_float(0x1p-24f) == 1 && detail::binary16_from_float(0x1p-25f) == 0);
static_assert(detail::float_from_binary16(0x0001) == 0x1p-24f && detail::float_from_binary16(0x3555) == 0x1.554p-2f);
static_assert(detail::bfloat16_from_float(1.00390625f) == 0x3f80 && detail::bfloat16_from_float(1.01171875f) == 0x3f82);
static_assert(detail::float_from_bfloat16(0xbf80) == -1.0f);
static_assert(narrow<float>(0.5) == 0.5f && widen(2.0) == 2.0);

// Views: const follows from mutable, not the other way; nothing is a view by accident.
static_assert(std::is_convertible_v<view<float>, view<const float>>);
static_assert(!std::is_convertible_v<view<const float>, view<float>>);
static_assert(!std::is_convertible_v<view<float>, view<double>> &&
              !std::is_convertible_v<view<float>, view<const double>>);
static_assert(!std::is_convertible_v<float*, view<float>> && !std::is_convertible_v<std::vector<float>, view<float>>);
static_assert(std::is_nothrow_default_constructible_v<view<float>> ==
              std::is_nothrow_default_constructible_v<view<const float>>);
static_assert(shape{.batch = 2, .tokens = 3, .heads = 4, .dim = 5}.elements() == 120);
static_assert(token_major({.batch = 2, .tokens = 3, .heads = 4, .dim = 5}) ==
              strides{.batch = 60, .token = 20, .head = 5, .dim = 1});
static_assert(head_major({.batch = 2, .tokens = 3, .heads = 4, .dim = 5}) ==
              strides{.batch = 60, .token = 5, .head = 15, .dim = 1});
constexpr float four[4] = {1, 2, 3, 4};
static_assert(view(four, {.tokens = 2, .dim = 2})(0, 1, 0, 0) == 3);
static_assert(view(four + 3, {.tokens = 4, .dim = 1}, {.token = -1})(0, 2, 0, 0) == 2);
static_assert(noexcept(view<float>().row(0, 0, 0)) && noexcept(view<float>()(0, 0, 0, 0)));

// Positions: made by name only. Neither a number, a pointer, a view nor a feature tensor becomes positions by itself.
static_assert(!std::is_convertible_v<int, positions> && !std::is_convertible_v<std::int64_t, positions>);
static_assert(!std::is_constructible_v<positions, std::int64_t> && !std::is_constructible_v<positions, double>);
static_assert(!std::is_constructible_v<positions, view<float>> &&
              !std::is_constructible_v<positions, view<std::int64_t>>);
static_assert(!std::is_constructible_v<positions, std::vector<std::int64_t>> &&
              !std::is_constructible_v<positions, float*>);
static_assert(!std::is_constructible_v<positions, Eigen::MatrixXf> &&
              !std::is_constructible_v<real_positions, Eigen::MatrixXd>);
static_assert(!std::is_convertible_v<std::vector<double>, real_positions> &&
              !std::is_convertible_v<std::span<const double>, real_positions>);
static_assert(!std::is_constructible_v<real_positions, std::vector<float>> &&
              !std::is_constructible_v<real_positions, view<double>>);
static_assert(std::is_constructible_v<real_positions, std::span<const double>>);
template <class... Ids>
concept can_list = requires(Ids... ids) {
  positions::listed(ids...);
};
static_assert(can_list<std::vector<std::int64_t>> && can_list<std::vector<std::int32_t>, int>);
static_assert(!can_list<std::vector<float>> && !can_list<std::vector<double>> && !can_list<view<const float>>);
static_assert(positions::from(-3)(4, 5) == 2);
static_assert(positions()(0, 7) == 7 && positions().contiguous());
static_assert(position(5)[3] == 5 && position(5) == position(5));
static_assert(noexcept(positions::from(1)) && noexcept(positions()(0, 0)));

// Intervals.
static_assert(interval{3, 3}.empty() && !interval{3, 4}.empty() && interval{3, 4}.contains(3) &&
              !interval{3, 4}.contains(4));
constexpr interval_list cut() {
  interval_list list{interval{0, 100}};
  list.intersect(interval_pair{interval{50, 200}, interval{-5, 10}});
  list.intersect(interval{5, 60});
  return list;
}
static_assert(cut().size() == 2 && cut()[0] == interval{5, 10} && cut()[1] == interval{50, 60} && cut().total() == 15);

// Lanes of a scalar; executors; names.
static_assert(lanes<float>::size == 1 && std::is_same_v<lanes<double>::mask, bool>);
static_assert(executor<serial_executor> && !executor<std::string>);
static_assert(to_string(site::logit) == "logit" && to_string(origin::learned) == "learned");

}  // namespace
