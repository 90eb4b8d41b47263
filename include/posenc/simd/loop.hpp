// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// One body for whole batches and tail. The body gets an index and an access object whose `load` and `store` move a
/// whole batch, or the elements that are left; the arithmetic between them is the same code, so an element's result
/// does not depend on where it falls in the array. Nothing outside [0, n) is read or written.
///   for_lanes<Arch, float>(n, [&](std::int64_t i, auto access) { access.store(y + i, access.load(x + i) * a); });

#include <posenc/simd/memory.hpp>

#include <cstdint>

namespace posenc::simd {

/// A whole batch of C.
template <class Arch, class C>
struct whole {
  static constexpr bool count_is_static = true;
  static constexpr int count = width<C, Arch>;
  template <simd_storage S>
  [[nodiscard]] POSENC_ALWAYS_INLINE batch<C, Arch> load(const S* p) const noexcept {
    return simd::load<Arch>(p);
  }
  template <simd_storage S>
  POSENC_ALWAYS_INLINE void store(S* p, const batch<C, Arch>& x) const noexcept {
    simd::store<Arch>(p, x);
  }
};

/// The first `count` lanes of a batch of C; the others are zero when loaded and dropped when stored.
template <class Arch, class C>
struct part {
  static constexpr bool count_is_static = false;
  std::int64_t count;
  template <simd_storage S>
  [[nodiscard]] POSENC_ALWAYS_INLINE batch<C, Arch> load(const S* p) const noexcept {
    alignas(64) std::remove_cv_t<S> lane[width<C, Arch>] = {};
    for (std::int64_t i = 0; i < count; ++i) lane[i] = p[i];
    return simd::load<Arch>(static_cast<const std::remove_cv_t<S>*>(lane));
  }
  template <simd_storage S>
  POSENC_ALWAYS_INLINE void store(S* p, const batch<C, Arch>& x) const noexcept {
    alignas(64) S lane[width<C, Arch>];
    simd::store<Arch>(static_cast<S*>(lane), x);
    for (std::int64_t i = 0; i < count; ++i) p[i] = lane[i];
  }
};

template <class Arch, class C, class Body>
POSENC_ALWAYS_INLINE void for_lanes(std::int64_t n, Body&& body) noexcept {
  constexpr std::int64_t step = width<C, Arch>;
  std::int64_t i = 0;
  for (; i + step <= n; i += step) body(i, whole<Arch, C>{});
  if (i < n) body(i, part<Arch, C>{n - i});
}

}  // namespace posenc::simd
