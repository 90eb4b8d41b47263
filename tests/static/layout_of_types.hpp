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
static_assert(is_plain<posenc::timestep_options, 40>);
static_assert(is_plain<posenc::grid_block, 16>);
static_assert(is_plain<posenc::grid_detr_options, 48>);
static_assert(is_plain<posenc::nerf_options, 24>);
static_assert(is_plain<posenc::segment_options, 16>);
static_assert(is_plain<posenc::tiled_options, 32>);
static_assert(is_plain<posenc::hierarchical_options<>, 24>);
static_assert(is_plain<posenc::complex_order_options, 16>);
static_assert(is_plain<posenc::table_extent, 16>);
static_assert(is_plain<posenc::runge_kutta_options, 16>);
static_assert(is_plain<posenc::window_shape, 16>);
static_assert(is_plain<posenc::page_strides, 32>);
static_assert(is_plain<posenc::shaw_options, 56>);
static_assert(is_plain<posenc::deberta_options, 40>);
static_assert(is_plain<posenc::transformer_xl_options, 48>);
static_assert(is_plain<posenc::relative_segments_options, 16>);
static_assert(is_plain<posenc::cope_options, 24>);

// What holds pointers and containers depends on their width, and on nothing else.
static_assert(sizeof(void*) != 8 || is_plain<posenc::view<float>, 72>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::view<const double>, 72>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::paged_view<float>, 152>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::page_table, 64>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::listed_keys, 24>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::positions, 48>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::real_positions, 24>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::call, 152>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::content_tile<float>, 88>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::logit_row<float>, 88>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::axial_table<float>, 32>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::complex_order_tables<float>, 48>);
static_assert(sizeof(void*) != 8 || is_plain<posenc::complex_order<float>, 64>);

template <class T>
inline constexpr bool same_as_parts = alignof(T) == alignof(std::max_align_t) / 2 || alignof(T) == alignof(void*);
static_assert(same_as_parts<posenc::rope<float>> && sizeof(posenc::rope<float>) == sizeof(posenc::rope<double>));
static_assert(same_as_parts<posenc::rope_table<float>>);
static_assert(same_as_parts<posenc::alibi<float>>);
static_assert(same_as_parts<posenc::sinusoidal<float>>);
static_assert(same_as_parts<posenc::learned<float>>);
static_assert(same_as_parts<posenc::relative_bucket<float>>);
static_assert(same_as_parts<posenc::toeplitz<float>>);
static_assert(same_as_parts<posenc::timestep<float>>);
static_assert(same_as_parts<posenc::grid_sinusoidal<float>>);
static_assert(same_as_parts<posenc::grid_detr>);
static_assert(same_as_parts<posenc::fourier_features>);
static_assert(same_as_parts<posenc::segment<float>>);
static_assert(same_as_parts<posenc::axial<float>>);
static_assert(same_as_parts<posenc::tiled<float>>);
static_assert(same_as_parts<posenc::hierarchical<float>>);
static_assert(same_as_parts<posenc::scaled_sinusoidal<float>>);
static_assert(same_as_parts<posenc::table_resize>);
static_assert(same_as_parts<posenc::recursive<double>>);
static_assert(same_as_parts<posenc::position_convolution<float>>);
static_assert(same_as_parts<posenc::layer_pattern>);
static_assert(same_as_parts<posenc::kerple<float>>);
static_assert(same_as_parts<posenc::sandwich<float>>);
static_assert(same_as_parts<posenc::dynamic_bias<float>>);
static_assert(same_as_parts<posenc::fire<float>>);
static_assert(same_as_parts<posenc::alibi_split<float>>);
static_assert(same_as_parts<posenc::alibi_two_sided<float>>);
static_assert(same_as_parts<posenc::alibi_grid<float>>);
static_assert(same_as_parts<posenc::window_bias<float>>);
static_assert(same_as_parts<posenc::continuous_bias<float>>);
static_assert(same_as_parts<posenc::decomposed_bias<float>>);
static_assert(same_as_parts<posenc::tupe<float>>);
static_assert(same_as_parts<posenc::tupe_bucket<float>>);
static_assert(same_as_parts<posenc::gated_bias<posenc::alibi<float>>>);
static_assert(same_as_parts<posenc::forget_sums<float>>);
static_assert(same_as_parts<posenc::projected_bank<float>>);
static_assert(same_as_parts<posenc::shaw<float>>);
static_assert(same_as_parts<posenc::deberta<float>>);
static_assert(same_as_parts<posenc::transformer_xl<float>>);
static_assert(same_as_parts<posenc::relative_segments<float>>);
static_assert(same_as_parts<posenc::cope<float>>);
static_assert(same_as_parts<posenc::rope_schedule>);
static_assert(same_as_parts<posenc::attention_options<float>>);
#if defined(__GLIBCXX__) && defined(__LP64__)
// Numbers for one standard library pin the rest.
static_assert(sizeof(posenc::rope<float>) == 280 && sizeof(posenc::alibi<float>) == 32);
static_assert(sizeof(posenc::sinusoidal<float>) == 104 && sizeof(posenc::learned<float>) == 72);
static_assert(sizeof(posenc::relative_bucket<float>) == 120 && sizeof(posenc::toeplitz<float>) == 40);
static_assert(sizeof(posenc::rope_table<float>) == 128 && sizeof(posenc::rope_schedule) == 40);
static_assert(sizeof(posenc::attention_options<float>) == 288 && sizeof(posenc::attention_options<double>) == 288);
static_assert(sizeof(posenc::timestep<float>) == 64 && sizeof(posenc::grid_sinusoidal<float>) == 112);
static_assert(sizeof(posenc::grid_detr) == 72 && sizeof(posenc::fourier_features) == 64);
static_assert(sizeof(posenc::segment<float>) == 72 && sizeof(posenc::axial<float>) == 40);
static_assert(sizeof(posenc::tiled<float>) == 104 && sizeof(posenc::hierarchical<float>) == 96);
static_assert(sizeof(posenc::scaled_sinusoidal<float>) == 112);
static_assert(sizeof(posenc::table_resize) == 272 && sizeof(posenc::recursive<double>) == 72);
static_assert(sizeof(posenc::position_convolution<float>) == 136 && sizeof(posenc::layer_pattern) == 24);
static_assert(sizeof(posenc::window_bias<float>) == 56 && sizeof(posenc::continuous_bias<float>) == 64);
static_assert(sizeof(posenc::decomposed_bias<float>) == 104 && sizeof(posenc::tupe<float>) == 16);
static_assert(sizeof(posenc::tupe_bucket<float>) == 176 && sizeof(posenc::gated_bias<posenc::alibi<float>>) == 80);
static_assert(sizeof(posenc::forget_sums<float>) == 56 && sizeof(posenc::forgetting<float>) == 16);
static_assert(sizeof(posenc::projected_bank<float>) == 40 && sizeof(posenc::projected_bias<float>) == 80);
static_assert(sizeof(posenc::kerple<float>) == 64 && sizeof(posenc::kerple_weight<float>) == 64);
static_assert(sizeof(posenc::sandwich<float>) == 64 && sizeof(posenc::dynamic_bias<float>) == 32);
static_assert(sizeof(posenc::fire<float>) == 200 && sizeof(posenc::fire<double>) == 208);
static_assert(sizeof(posenc::alibi_split<float>) == 32 && sizeof(posenc::alibi_two_sided<float>) == 48);
static_assert(sizeof(posenc::alibi_grid<float>) == 40);
#endif

}  // namespace posenc_test
