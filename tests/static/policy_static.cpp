// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "static/layout_of_types.hpp"

#include <posenc/posenc.hpp>

#include <type_traits>

namespace {

using namespace posenc;
using B = simd::batch<float>;

// Which hooks each part has, and which it has not.
static_assert(has_allow_positions<causal> && has_allow_positions<sliding_window> && has_allow_positions<chunked>);
static_assert(has_allow_positions<prefix_lm> && has_allow_positions<symmetric_window> &&
              has_allow_positions<block_diagonal>);
static_assert(!has_allow_index<causal> && !has_row<causal, B, contiguous_keys> && !has_sink<causal>);
static_assert(has_allow_index<cache_length> && !has_allow_positions<cache_length>);
static_assert(has_row<alibi<float>, B, contiguous_keys> && has_row<alibi<float>, B, listed_keys> &&
              has_row<alibi<float>, double, listed_keys>);
static_assert(!has_allow_positions<alibi<float>> && !has_transform_q<alibi<float>, float>);
static_assert(has_row<softcap, B, contiguous_keys> && has_row<softcap, double, contiguous_keys> && !has_sink<softcap>);
static_assert(has_sink<sinks<float>> && !has_row<sinks<float>, B, contiguous_keys>);
static_assert(has_query_scale<query_temperature> && !has_query_scale<softcap>);
static_assert(has_transform_q<rope<float>, float> && has_transform_k<rope<float>, double> &&
              !has_row<rope<float>, B, contiguous_keys>);
static_assert(!has_transform_q<nope, float> && !has_row<nope, B, contiguous_keys> && !has_allow_positions<nope>);
static_assert(has_row<additive_mask<float>, B, contiguous_keys> &&
              has_allow_lanes<boolean_mask<bool>, B, contiguous_keys>);
static_assert(!has_allow_positions<int> && !has_row<int, B, contiguous_keys> && !has_bind<int>);
static_assert(has_prepare<shaw<float>, B, contiguous_keys> && has_values<shaw<float>, B, listed_keys> &&
              !has_row<shaw<float>, B, contiguous_keys>);
static_assert(has_prepare<deberta<float>, B, contiguous_keys> && !has_values<deberta<float>, B, contiguous_keys>);
static_assert(has_prepare<transformer_xl<float>, double, listed_keys> && has_transform_q<transformer_xl<float>, float>);
static_assert(has_transform_logits<cope<float>, B, contiguous_keys> &&
              has_transform_logits<cope<float>, double, listed_keys>);
static_assert(!has_row<cope<float>, B, contiguous_keys> && !has_transform_logits<alibi<float>, B, contiguous_keys>);
static_assert(has_query_scale<ssmax> && ssmax::needs_visible_keys);

// Packs nest flat.
using flat = decltype(compose(alibi<float>{8}, causal{}, softcap{30}));
using nested = decltype(compose(compose(alibi<float>{8}, causal{}), softcap{30}));
static_assert(std::is_same_v<flat, nested> && std::is_same_v<flat, policy<alibi<float>, causal, softcap>>);
static_assert(std::is_same_v<decltype(compose()), policy<>> && std::is_empty_v<causal> && std::is_empty_v<nope>);

// Masks are values of the positions, known at compile time.
static_assert(causal{}.allow_positions({.query_position = 4}) == interval{interval::lowest, 5});
static_assert(sliding_window{3}.allow_positions({.query_position = 4}) == interval{2, 5});
static_assert(chunked{4}.allow_positions({.query_position = -1}) == interval{-4, 0});
static_assert(block_diagonal{4}.allow_positions({.query_position = 5}) == interval{4, 8});
static_assert(symmetric_window{2}.allow_positions({.query_position = 0}) == interval{-1, 2});

// What encoders say of themselves is known at compile time.
static_assert(rope<float>::traits.site == site::query_key && rope<float>::traits.relation == relation::relative);
static_assert(alibi<float>::traits.site == site::logit && sinusoidal<float>::traits.site == site::input);
static_assert(learned<float>::traits.origin == origin::learned && nope::traits.site == site::none);

// Encoders are values: copied and moved, never made from a bare number by accident.
template <class E>
concept value =
    std::is_copy_constructible_v<E> && std::is_copy_assignable_v<E> && std::is_nothrow_move_constructible_v<E>;
static_assert(value<rope<float>> && value<alibi<float>> && value<sinusoidal<float>> && value<relative_bucket<float>>);
static_assert(value<toeplitz<float>> && value<nope> && value<rope_schedule> && value<cope<float>> &&
              value<shaw<float>>);
static_assert(!std::is_convertible_v<int, alibi<float>> && !std::is_convertible_v<rope_options, rope<float>>);

}  // namespace
