// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The two passes over a stretch of one row of scores, on lanes of consecutive keys: (logit transforms, mask, maximum)
/// in one, (exponential, sum) in the other. With an empty policy the first is the plain maximum loop.

#include <posenc/simd/exp.hpp>
#include <posenc/simd/loop.hpp>

#include <cstdint>
#include <limits>

namespace posenc::detail {

/// Lets every lane through; tells the passes that there is no free-form mask.
struct no_lane_mask {};

/// s[j] = op(s[j], first_key + j), -inf where `mask` hides the key; returns the maximum.
template <class Arch, class C, class Op, class Mask>
POSENC_ALWAYS_INLINE C transform_scores(C* s, std::int64_t n, std::int64_t first_key, const Op& op,
                                        const Mask& mask) noexcept {
  using B = simd::batch<C, Arch>;
  using L = lanes<B>;
  const B lowest(-std::numeric_limits<C>::infinity());
  B highest = lowest;
  simd::for_lanes<Arch, C>(n, [&](std::int64_t j, auto at) POSENC_LAMBDA_INLINE {
    B x = op(at.load(s + j), first_key + j);
    if constexpr (!std::same_as<Mask, no_lane_mask>) x = L::select(mask(first_key + j), x, lowest);
    at.store(s + j, x);
    // The second operand is kept where either is NaN; lanes past the end are -inf.
    if constexpr (at.count_is_static) {
      highest = xsimd::max(highest, x);
    } else {
      highest = xsimd::max(highest, L::select(L::greater(B(static_cast<C>(at.count)), L::iota()), x, lowest));
    }
  });
  return simd::greatest(highest);
}

/// s[j] = exp(s[j] - highest), highest the greatest s[j] or above; returns the sum.
template <class Arch, class C>
POSENC_ALWAYS_INLINE C exponentiate(C* s, std::int64_t n, C highest) noexcept {
  using B = simd::batch<C, Arch>;
  using L = lanes<B>;
  const B shift(highest);
  B sum(C(0));
  simd::for_lanes<Arch, C>(n, [&](std::int64_t j, auto at) POSENC_LAMBDA_INLINE {
    B p = simd::exp_nonpositive(at.load(s + j) - shift);
    if constexpr (!at.count_is_static) p = L::select(L::greater(B(static_cast<C>(at.count)), L::iota()), p, B(C(0)));
    at.store(s + j, p);
    sum += p;
  });
  return simd::sum(sum);
}

}  // namespace posenc::detail
