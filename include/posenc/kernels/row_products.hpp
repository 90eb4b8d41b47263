// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Products of rows with a stretch of a table's rows, for content terms: out(r, x) = a(r) . table(x).
/// SIMD lanes: the stretch is packed into panels once and shared by all rows; scalars and few rows: one dot each.
/// Cost     2 rows * n * dim flops; packing moves each element once.

#include <posenc/kernels/panels.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>

namespace posenc::kernels {

/// The Arch whose batches B are; void for a scalar.
template <class B>
struct arch_of {
  using type = void;
};
template <class T, class A>
struct arch_of<xsimd::batch<T, A>> {
  using type = simd::arch<A, false>;
};

/// Columns that `pack_rows` rounds to.
template <class B>
inline constexpr std::int64_t product_width = lanes<B>::size == 1 ? 1 : 2 * lanes<B>::size;

/// x . y over n channels, y of any scalar type.
template <class B, class C, class T>
[[nodiscard]] C product(const C* x, const T* y, std::int64_t n) {
  using Arch = typename arch_of<B>::type;
  if constexpr (!std::same_as<Arch, void> && std::same_as<T, C>) {
    return dot<Arch>(x, y, n);
  } else {
    C sum = C(0);
    for (std::int64_t d = 0; d < n; ++d) sum = C(sum + x[d] * C(y[d]));
    return sum;
  }
}

/// x[0] + ... + x[n - 1].
template <class B, class C>
[[nodiscard]] C sum(const C* x, std::int64_t n) {
  using Arch = typename arch_of<B>::type;
  if constexpr (!std::same_as<Arch, void>) {
    B total(C(0));
    simd::for_lanes<Arch, C>(n, [&](std::int64_t i, auto at) POSENC_LAMBDA_INLINE { total += at.load(x + i); });
    return simd::sum(total);
  } else {
    C total = C(0);
    for (std::int64_t i = 0; i < n; ++i) total = C(total + x[i]);
    return total;
  }
}

/// out[i] += factor * x[i].
template <class B, class C>
void add_multiple(C* out, const C& factor, const C* x, std::int64_t n) {
  using Arch = typename arch_of<B>::type;
  if constexpr (!std::same_as<Arch, void>) {
    add_scaled<Arch>(out, factor, x, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i] = C(out[i] + factor * x[i]);
  }
}

/// Rows 0 .. n - 1 of a table as panels [n / width][dim][width], zeros past the last row.
template <class B, class C, class T>
void pack_rows(C* panels, const T* table, std::int64_t n, std::int64_t dim) {
  using Arch = typename arch_of<B>::type;
  if constexpr (std::same_as<Arch, void>) {
    for (std::int64_t i = 0; i < n * dim; ++i) panels[i] = C(table[i]);
  } else {
    constexpr std::int64_t w = product_width<B>;
    for (std::int64_t x = 0; x < n; x += w)
      pack_panel<Arch>(panels + x * dim, std::min(w, n - x), dim,
                       [&](std::int64_t i) { return table + (x + i) * dim; });
  }
}

/// out[r * out_step + x] = a[r * a_step ..] . row x of the packed rows, for x = 0 .. n - 1 rounded up to the width.
template <class B, class C>
void multiply_packed(std::int64_t rows, const C* a, std::int64_t a_step, const C* panels, std::int64_t n,
                     std::int64_t dim, C* out, std::int64_t out_step) {
  using Arch = typename arch_of<B>::type;
  constexpr std::int64_t w = product_width<B>;
  if constexpr (std::same_as<Arch, void>) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t x = 0; x < n; ++x) out[r * out_step + x] = product<B>(a + r * a_step, panels + x * dim, dim);
  } else {
    for (std::int64_t r = 0; r < rows; r += block_rows<Arch>)
      for (std::int64_t x = 0; x < n; x += w)
        multiply_rows<Arch, false>(std::min(block_rows<Arch>, rows - r), a + r * a_step, a_step, panels + x * dim,
                                   out + r * out_step + x, out_step, dim);
  }
}

}  // namespace posenc::kernels
