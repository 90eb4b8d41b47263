// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The register kernel behind both products of attention: a block of `block_rows` rows runs down a panel of two batches
/// (panels.hpp packs them); and the row operations around it.
/// Cost     2 rows * inner flops per column of the panel.

#include <posenc/simd/loop.hpp>

#include <algorithm>
#include <cstdint>

namespace posenc::kernels {

/// Columns of a panel.
template <class C, class Arch>
inline constexpr std::int64_t panel_width = 2 * simd::width<C, Arch>;
/// Rows of the register block: with two batches each, one broadcast and two panel loads, 6 fill 16 registers; where
/// there are 32 (AVX-512, AArch64), 12 take 27.
#if defined(__aarch64__)
template <class Arch>
inline constexpr std::int64_t block_rows = 12;
#else
template <class Arch>
inline constexpr std::int64_t block_rows = simd::width<float, Arch> >= 16 ? 12 : 6;
#endif

/// n rounded up to whole panels.
template <class C, class Arch>
[[nodiscard]] constexpr std::int64_t padded(std::int64_t n) noexcept {
  return (n + panel_width<C, Arch> - 1) / panel_width<C, Arch> * panel_width<C, Arch>;
}

namespace detail {

/// Two accumulators per row, nested row in row: named members stay in registers at -O2, where arrays would not.
template <int Rows, class B>
struct register_rows {
  B left;
  B right;
  register_rows<Rows - 1, B> below;

  POSENC_ALWAYS_INLINE void clear() noexcept {
    left = right = B(0);
    below.clear();
  }
  template <class C>
  POSENC_ALWAYS_INLINE void store(C* out, std::int64_t step) const noexcept {
    left.store_unaligned(out);
    right.store_unaligned(out + B::size);
    below.store(out + step, step);
  }
  template <class C>
  POSENC_ALWAYS_INLINE void add_to(C* out, std::int64_t step) const noexcept {
    (B::load_unaligned(out) + left).store_unaligned(out);
    (B::load_unaligned(out + B::size) + right).store_unaligned(out + B::size);
    below.add_to(out + step, step);
  }
  template <class C>
  POSENC_ALWAYS_INLINE void add(const C* a, std::int64_t step, const B& p, const B& q) noexcept {
    const B x(*a);
    left = xsimd::fma(x, p, left);
    right = xsimd::fma(x, q, right);
    below.add(a + step, step, p, q);
  }
};
template <class B>
struct register_rows<0, B> {
  POSENC_ALWAYS_INLINE void clear() noexcept {}
  template <class C>
  POSENC_ALWAYS_INLINE void store(C*, std::int64_t) const noexcept {}
  template <class C>
  POSENC_ALWAYS_INLINE void add_to(C*, std::int64_t) const noexcept {}
  template <class C>
  POSENC_ALWAYS_INLINE void add(const C*, std::int64_t, const B&, const B&) noexcept {}
};

}  // namespace detail

/// One register block: out[r][0 .. panel) = (Accumulate ? out : 0) + sum_k a[r][k] * panel[k].
/// Each call sums from zero and adds once, so that the error of a long row grows with its tiles, not its keys.
template <class Arch, int Rows, bool Accumulate, class C>
void multiply_block(const C* a, std::int64_t a_step, const C* panel, C* out, std::int64_t out_step,
                    std::int64_t inner) noexcept {
  using B = simd::batch<C, Arch>;
  constexpr std::int64_t w = simd::width<C, Arch>;
  detail::register_rows<Rows, B> sums;
  sums.clear();
  for (std::int64_t k = 0; k < inner; ++k)
    sums.add(a + k, a_step, B::load_unaligned(panel + k * 2 * w), B::load_unaligned(panel + k * 2 * w + w));
  if constexpr (Accumulate) {
    sums.add_to(out, out_step);
  } else {
    sums.store(out, out_step);
  }
}

/// The same with the number of rows, 1 .. block_rows, known at run time.
template <class Arch, bool Accumulate, int Rows = block_rows<Arch>, class C>
POSENC_ALWAYS_INLINE void multiply_rows(std::int64_t rows, const C* a, std::int64_t a_step, const C* panel, C* out,
                                        std::int64_t out_step, std::int64_t inner) noexcept {
  if constexpr (Rows > 1) {
    if (rows < Rows) return multiply_rows<Arch, Accumulate, Rows - 1>(rows, a, a_step, panel, out, out_step, inner);
  }
  multiply_block<Arch, Rows, Accumulate>(a, a_step, panel, out, out_step, inner);
}

/// The sum of x[i] * y[i], four accumulators.
template <class Arch, class C, simd_storage S>
[[nodiscard]] C dot(const C* x, const S* y, std::int64_t n) noexcept {
  using B = simd::batch<C, Arch>;
  constexpr std::int64_t w = simd::width<C, Arch>;
  B sum0(C(0)), sum1(C(0)), sum2(C(0)), sum3(C(0));
  std::int64_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    sum0 = xsimd::fma(B::load_unaligned(x + i), simd::load<Arch>(y + i), sum0);
    sum1 = xsimd::fma(B::load_unaligned(x + i + w), simd::load<Arch>(y + i + w), sum1);
    sum2 = xsimd::fma(B::load_unaligned(x + i + 2 * w), simd::load<Arch>(y + i + 2 * w), sum2);
    sum3 = xsimd::fma(B::load_unaligned(x + i + 3 * w), simd::load<Arch>(y + i + 3 * w), sum3);
  }
  simd::for_lanes<Arch, C>(n - i, [&](std::int64_t j, auto at) POSENC_LAMBDA_INLINE {
    sum0 = xsimd::fma(at.load(x + i + j), at.load(y + i + j), sum0);
  });
  return simd::sum((sum0 + sum1) + (sum2 + sum3));
}

/// out[i] += weight * y[i].
template <class Arch, class C, simd_storage S>
void add_scaled(C* out, C weight, const S* y, std::int64_t n) noexcept {
  const simd::batch<C, Arch> w(weight);
  simd::for_lanes<Arch, C>(n, [&](std::int64_t i, auto at) POSENC_LAMBDA_INLINE {
    at.store(out + i, xsimd::fma(w, at.load(y + i), at.load(out + i)));
  });
}

/// Whether no element is infinite or NaN.
template <class Arch, class C>
[[nodiscard]] bool all_finite(const C* x, std::int64_t n) noexcept {
  using B = simd::batch<C, Arch>;
  B differences(C(0));  // x - x is 0 for finite x, NaN otherwise
  simd::for_lanes<Arch, C>(n, [&](std::int64_t i, auto at) POSENC_LAMBDA_INLINE {
    const B v = at.load(x + i);
    differences += v - v;
  });
  return simd::sum(differences) == 0;
}

/// out[i] *= factor.
template <class Arch, class C>
void scale_row(C* out, C factor, std::int64_t n) noexcept {
  const simd::batch<C, Arch> f(factor);
  simd::for_lanes<Arch, C>(
      n, [&](std::int64_t i, auto at) POSENC_LAMBDA_INLINE { at.store(out + i, at.load(out + i) * f); });
}

/// Row-major C from rows of any storage and stride.
template <class Arch, class C, class S>
void widen_row(C* out, const S* row, std::int64_t step, std::int64_t n) noexcept {
  if constexpr (simd_storage<S> && std::same_as<compute_t<S>, C>) {
    if (step == 1) {
      simd::for_lanes<Arch, C>(
          n, [&](std::int64_t i, auto at) POSENC_LAMBDA_INLINE { at.store(out + i, at.load(row + i)); });
      return;
    }
  }
  for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<C>(widen(row[i * step]));
}

}  // namespace posenc::kernels
