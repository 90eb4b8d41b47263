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

/// Nothing behind the last element may be touched.
struct no_room {};

/// body(index, access, count) over n elements: whole batches, then the rest, as a whole batch too where `room` elements
/// may be read and written; count is how many of its lanes are elements.
template <class Arch, class C, class Room, class Body>
POSENC_ALWAYS_INLINE void for_scores(std::int64_t n, Room room, const Body& body) noexcept {
  constexpr std::int64_t step = simd::width<C, Arch>;
  std::int64_t j = 0;
  for (; j + step <= n; j += step) body(j, simd::whole<Arch, C>{}, std::integral_constant<std::int64_t, step>{});
  if (j == n) return;
  if constexpr (!std::same_as<Room, no_room>) {
    if (j + step <= room) return body(j, simd::whole<Arch, C>{}, n - j);
  }
  body(j, simd::part<Arch, C>{n - j}, n - j);
}

/// x in the first `count` lanes, `other` in the rest.
template <class B, class Count>
[[nodiscard]] POSENC_ALWAYS_INLINE B first_lanes(const B& x, Count count, const B& other) noexcept {
  using L = lanes<B>;
  if constexpr (!std::is_same_v<Count, std::int64_t>) return x;
  return L::select(L::greater(B(static_cast<typename L::scalar>(std::int64_t{count})), L::iota()), x, other);
}

/// s[j] = op(s[j], first_key + j), -inf where `mask` hides the key; returns the maximum. Of `room` elements those
/// behind the n-th may become -inf.
template <class Arch, class C, class Op, class Mask, class Room = no_room>
POSENC_ALWAYS_INLINE C transform_scores(C* s, std::int64_t n, std::int64_t first_key, const Op& op, const Mask& mask,
                                        Room room = {}) noexcept {
  using B = simd::batch<C, Arch>;
  const B lowest(-std::numeric_limits<C>::infinity());
  B highest = lowest;
  for_scores<Arch, C>(n, room, [&](std::int64_t j, auto at, auto count) POSENC_LAMBDA_INLINE {
    B x = op(at.load(s + j), first_key + j);
    if constexpr (!std::same_as<Mask, no_lane_mask>) x = lanes<B>::select(mask(first_key + j), x, lowest);
    x = first_lanes(x, count, lowest);
    at.store(s + j, x);
    highest = xsimd::max(highest, x);  // the second operand is kept where either is NaN
  });
  return simd::greatest(highest);
}

/// s[j] = exp(s[j] - highest); returns the sum. Of `room` elements those behind the n-th may become 0.
template <class Arch, class C, class Room = no_room>
POSENC_ALWAYS_INLINE C exponentiate(C* s, std::int64_t n, C highest, Room room = {}) noexcept {
  using B = simd::batch<C, Arch>;
  const B shift(highest);
  B sum(C(0));
  for_scores<Arch, C>(n, room, [&](std::int64_t j, auto at, auto count) POSENC_LAMBDA_INLINE {
    const B p = first_lanes(simd::exp_nonpositive(at.load(s + j) - shift), count, B(C(0)));
    at.store(s + j, p);
    sum += p;
  });
  return simd::sum(sum);
}

}  // namespace posenc::detail
