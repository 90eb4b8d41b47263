// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Size and alignment of public types are numbers, so every translation unit that includes this agrees on them whatever
/// its flags: memory made under one set of flags may be read under another. Tests that are compiled at every level
/// include it.

#include <posenc/posenc.hpp>

#include <cstddef>
#include <type_traits>

namespace posenc_test {

template <class T, std::size_t Size>
inline constexpr bool has_layout = sizeof(T) == Size && alignof(T) == (Size < 8 ? 1 : 8);
template <class T, std::size_t Size>
inline constexpr bool is_plain = has_layout<T, Size>&& std::is_trivially_copyable_v<T>&& std::is_standard_layout_v<T>;

static_assert(is_plain<posenc::shape, 32>);
static_assert(is_plain<posenc::strides, 32>);
static_assert(is_plain<posenc::position, 32>);
static_assert(is_plain<posenc::real_position, 32>);
static_assert(is_plain<posenc::rope_pair, 24>);
static_assert(is_plain<posenc::row, 40>);
static_assert(is_plain<posenc::interval, 16>);
static_assert(is_plain<posenc::interval_pair, 32>);
static_assert(is_plain<posenc::contiguous_keys, 8>);
static_assert(is_plain<posenc::math::double_double, 16>);
static_assert(is_plain<posenc::math::turns, 24>);
static_assert(is_plain<posenc::serial_executor, 1>);
static_assert(is_plain<posenc::interval_list, 16 * posenc::interval_list::capacity + 8>);
static_assert(is_plain<posenc::sliding_window, 8>);
static_assert(is_plain<posenc::chunked, 8>);
static_assert(is_plain<posenc::prefix_lm, 8>);
static_assert(is_plain<posenc::causal, 1>);
static_assert(is_plain<posenc::nope, 1>);

// What holds pointers and containers depends on their width, and on nothing else.
static_assert(sizeof(void*) != 8 || is_plain<posenc::view<float>, 72>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::view<const double>, 72>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::listed_keys, 8>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::positions, 48>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::real_positions, 24>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::call, 152>);

template <class T>
inline constexpr bool same_as_parts = alignof(T) == alignof(std::max_align_t) / 2 || alignof(T) == alignof(void*);
static_assert(same_as_parts<posenc::rope<float>> && sizeof(posenc::rope<float>) == sizeof(posenc::rope<double>));
static_assert(same_as_parts<posenc::rope_table<float>>);
static_assert(same_as_parts<posenc::alibi<float>>);
static_assert(same_as_parts<posenc::sinusoidal<float>>);
static_assert(same_as_parts<posenc::learned<float>>);
static_assert(same_as_parts<posenc::relative_bucket<float>>);
static_assert(same_as_parts<posenc::toeplitz<float>>);
static_assert(same_as_parts<posenc::rope_schedule>);
static_assert(same_as_parts<posenc::attention_options<float>>);
#if defined(__GLIBCXX__) && defined(__LP64__)
// Numbers for one standard library pin the rest.
static_assert(sizeof(posenc::rope<float>) == 280 && sizeof(posenc::alibi<float>) == 32);
static_assert(sizeof(posenc::sinusoidal<float>) == 104 && sizeof(posenc::learned<float>) == 72);
static_assert(sizeof(posenc::relative_bucket<float>) == 120 && sizeof(posenc::toeplitz<float>) == 40);
static_assert(sizeof(posenc::rope_table<float>) == 128 && sizeof(posenc::rope_schedule) == 40);
static_assert(sizeof(posenc::attention_options<float>) == 208 && sizeof(posenc::attention_options<double>) == 208);
#endif

}  // namespace posenc_test
