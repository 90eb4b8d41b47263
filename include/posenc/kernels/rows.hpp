// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Row kernels of the absolute encodings: x += row, and a strided form for any scalar.

#include <posenc/simd/loop.hpp>

#include <cstdint>

namespace posenc::kernels {

/// x[i] += row[i], in the compute type of x, rounded once. `row` has the compute type of x or is storage of it.
template <class Arch, simd_storage S, simd_storage R>
void add_row(S* x, const R* row, std::int64_t n) noexcept {
  static_assert(std::same_as<compute_t<S>, compute_t<R>>);
  simd::for_lanes<Arch, compute_t<S>>(
      n, [&](std::int64_t i, auto at) POSENC_LAMBDA_INLINE { at.store(x + i, at.load(x + i) + at.load(row + i)); });
}

/// The same one element at a time, for strided rows and any scalar.
template <class S, class R>
void add_row_strided(S* x, std::int64_t step, const R* row, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i * step] = narrow<S>(widen(x[i * step]) + widen(row[i]));
}

}  // namespace posenc::kernels
