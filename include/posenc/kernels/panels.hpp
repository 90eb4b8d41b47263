// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Rows of any storage into panels for the register kernel of tile.hpp: one side of a product turned (channels become
/// rows: keys, tables), the other copied (values). Squares of lanes are turned in registers.
/// Cost     each element is read once and written once.

#include <posenc/kernels/tile.hpp>

#include <array>
#include <concepts>
#include <cstdint>

namespace posenc::kernels {

/// Rows row(0) .. row(n - 1), n <= panel_width, of unit stride as one panel [dim][panel], zeros past the last row.
template <class Arch, class C, class Row>
void pack_panel(C* panel, std::int64_t n, std::int64_t dim, const Row& row) {
  using B = simd::batch<C, Arch>;
  constexpr std::int64_t w = simd::width<C, Arch>;
  using S = std::remove_cvref_t<decltype(*row(0))>;
  std::int64_t done = 0;
  if constexpr (simd_storage<S> && std::same_as<compute_t<S>, C>) {
    if (n == 2 * w) {
      std::array<const S*, 2 * w> rows;
      for (std::int64_t i = 0; i < 2 * w; ++i) rows[static_cast<std::size_t>(i)] = row(i);
      for (; done + w <= dim; done += w)
        for (std::int64_t half = 0; half < 2; ++half) {
          std::array<B, w> square;
          for (std::int64_t i = 0; i < w; ++i)
            square[static_cast<std::size_t>(i)] = simd::load<Arch>(rows[static_cast<std::size_t>(half * w + i)] + done);
          simd::transpose(square);
          for (std::int64_t i = 0; i < w; ++i)
            square[static_cast<std::size_t>(i)].store_unaligned(panel + (done + i) * 2 * w + half * w);
        }
    }
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const S* from = row(i);
    for (std::int64_t d = done; d < dim; ++d) panel[d * 2 * w + i] = static_cast<C>(widen(from[d]));
  }
  for (std::int64_t i = n; i < 2 * w; ++i)
    for (std::int64_t d = 0; d < dim; ++d) panel[d * 2 * w + i] = C(0);
}

/// Value j of `keys` into the panels [padded dim / panel][keys][panel], zeros past the last channel. `differences`
/// stays 0 in every lane where all that was packed is finite.
template <class Arch, class C, simd_storage S>
POSENC_ALWAYS_INLINE void pack_value(C* panels, const S* value, std::int64_t j, std::int64_t keys, std::int64_t dim,
                                     simd::batch<C, Arch>& differences) noexcept {
  using B = simd::batch<C, Arch>;
  constexpr std::int64_t w = simd::width<C, Arch>;
  constexpr std::int64_t p = panel_width<C, Arch>;
  C* to = panels + j * p;
  std::int64_t d = 0;
  for (; d + p <= dim; d += p) {  // x - x is 0 for finite x, NaN otherwise
    const B left = simd::load<Arch>(value + d);
    const B right = simd::load<Arch>(value + d + w);
    left.store_unaligned(to + d * keys);
    right.store_unaligned(to + d * keys + w);
    differences += (left - left) + (right - right);
  }
  if (d == dim) return;
  C* last = to + d * keys;
  for (std::int64_t i = 0; i < p; ++i) last[i] = d + i < dim ? static_cast<C>(widen(value[d + i])) : C(0);
  const B left = B::load_unaligned(last);
  const B right = B::load_unaligned(last + w);
  differences += (left - left) + (right - right);
}

}  // namespace posenc::kernels
