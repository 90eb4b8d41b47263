// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/policy.hpp>
#include <posenc/kernels/cos_sin.hpp>
#include <posenc/kernels/rotate.hpp>
#include <posenc/kernels/rows.hpp>
#include <posenc/kernels/tile.hpp>
#include <posenc/simd/loop.hpp>

#include <type_traits>

namespace {

using namespace posenc;

template <class T>
inline constexpr int width = simd::width<T>;
static_assert(width<float> == 2 * width<double> && width<float> <= lane_slack);
static_assert(lanes<simd::batch<float>>::size == width<float>);
static_assert(std::is_same_v<lanes<simd::batch<double>>::scalar, double>);
static_assert(simd::whole<simd::default_arch, float>::count == width<float>);
static_assert(simd::whole<simd::default_arch, float>::count_is_static &&
              !simd::part<simd::default_arch, float>::count_is_static);

// An Arch is a type: kernels of two of them are two functions.
using plain = simd::arch<simd::default_arch::instructions, false>;
using converting = simd::arch<simd::default_arch::instructions, true>;
static_assert(!std::is_same_v<plain, converting> &&
              std::is_same_v<simd::batch<float, plain>, simd::batch<float, converting>>);
static_assert(&kernels::scale_row<plain, float> != &kernels::scale_row<converting, float>);

// Kernels do not throw.
static_assert(noexcept(kernels::rotate_half<plain, float, float>(nullptr, 0, nullptr, 0, 0, nullptr, nullptr, 0, 0)));
static_assert(noexcept(kernels::rotate_interleaved<plain, float, float>(nullptr, 0, nullptr, 0, 0, nullptr, nullptr,
                                                                        0)));
static_assert(noexcept(kernels::add_row<plain, float, float>(nullptr, nullptr, 0)));
static_assert(noexcept(kernels::dot<plain, float, float>(nullptr, nullptr, 0)));

static_assert(kernels::padded<float, simd::default_arch>(0) == 0);
static_assert(kernels::padded<float, simd::default_arch>(1) == kernels::panel_width<float, simd::default_arch>);
static_assert(kernels::panel_width<double, simd::default_arch> == 2 * width<double>);

}  // namespace
