// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Rotation of pairs by a row of cos and sin, for all heads of one token:
///   (a, b) -> (a c - b s, a s + b c)
/// with the same bits for both layouts and every stride: b s and a s are rounded, the rest is one fused step where the
/// Arch has it.
/// Storage may be float, double, half or bfloat16; arithmetic is in `compute_t`, results are rounded once. `out` may be
/// `in`; otherwise the two must not overlap.
/// Cost    one load and one store per element and one row of cos and sin per token; two heads share each load of it.

#include <posenc/simd/loop.hpp>

#include <cstdint>

namespace posenc::kernels {

namespace detail {

template <int Heads, class Arch, class S, class C>
POSENC_ALWAYS_INLINE void rotate_half_heads(const S* in, std::int64_t in_step, S* out, std::int64_t out_step,
                                            const C* cos, const C* sin, std::int64_t second,
                                            std::int64_t pairs) noexcept {
  simd::for_lanes<Arch, C>(pairs, [&](std::int64_t i, auto at) POSENC_LAMBDA_INLINE {
    const auto c = at.load(cos + i);
    const auto s = at.load(sin + i);
    POSENC_UNROLL
    for (int h = 0; h < Heads; ++h) {
      const auto a = at.load(in + h * in_step + i);
      const auto b = at.load(in + h * in_step + second + i);
      at.store(out + h * out_step + i, xsimd::fms(a, c, b * s));
      at.store(out + h * out_step + second + i, xsimd::fma(b, c, a * s));
    }
  });
}

template <int Heads, class Arch, class S, class C>
POSENC_ALWAYS_INLINE void rotate_interleaved_heads(const S* in, std::int64_t in_step, S* out, std::int64_t out_step,
                                                   const C* cos, const C* sin, std::int64_t pairs) noexcept {
  simd::for_lanes<Arch, C>(2 * pairs, [&](std::int64_t i, auto at) POSENC_LAMBDA_INLINE {
    const auto c = at.load(cos + i);
    const auto s = at.load(sin + i);
    POSENC_UNROLL
    for (int h = 0; h < Heads; ++h) {
      const auto x = at.load(in + h * in_step + i);
      at.store(out + h * out_step + i, xsimd::fma(x, c, simd::swap_pairs(x) * s));
    }
  });
}

}  // namespace detail

/// Pairs (i, i + second), i < pairs; `cos` and `sin` in the form row_form::separate.
template <class Arch, simd_storage S, class C>
void rotate_half(const S* in, std::int64_t in_step, S* out, std::int64_t out_step, std::int64_t heads, const C* cos,
                 const C* sin, std::int64_t second, std::int64_t pairs) noexcept {
  std::int64_t h = 0;
  for (; h + 2 <= heads; h += 2)
    detail::rotate_half_heads<2, Arch>(in + h * in_step, in_step, out + h * out_step, out_step, cos, sin, second,
                                       pairs);
  for (; h < heads; ++h)
    detail::rotate_half_heads<1, Arch>(in + h * in_step, in_step, out + h * out_step, out_step, cos, sin, second,
                                       pairs);
}

/// Pairs (2i, 2i + 1); `cos` and `sin` in the form row_form::neighbours.
template <class Arch, simd_storage S, class C>
void rotate_interleaved(const S* in, std::int64_t in_step, S* out, std::int64_t out_step, std::int64_t heads,
                        const C* cos, const C* sin, std::int64_t pairs) noexcept {
  std::int64_t h = 0;
  for (; h + 2 <= heads; h += 2)
    detail::rotate_interleaved_heads<2, Arch>(in + h * in_step, in_step, out + h * out_step, out_step, cos, sin, pairs);
  for (; h < heads; ++h)
    detail::rotate_interleaved_heads<1, Arch>(in + h * in_step, in_step, out + h * out_step, out_step, cos, sin, pairs);
}

/// Interleaved channels x[2i], x[2i + 1] (steps of `dim`) to two halves, and back.
template <class Arch, class S>
void split_pairs(const S* in, std::int64_t dim, S* __restrict first, S* __restrict second, std::int64_t pairs) {
  if (dim == 1) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      first[i] = in[2 * i];
      second[i] = in[2 * i + 1];
    }
    return;
  }
  for (std::int64_t i = 0; i < pairs; ++i) {
    first[i] = in[2 * i * dim];
    second[i] = in[(2 * i + 1) * dim];
  }
}
template <class Arch, class S>
void join_pairs(const S* __restrict first, const S* __restrict second, S* out, std::int64_t dim, std::int64_t pairs) {
  if (dim == 1) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      out[2 * i] = first[i];
      out[2 * i + 1] = second[i];
    }
    return;
  }
  for (std::int64_t i = 0; i < pairs; ++i) {
    out[2 * i * dim] = first[i];
    out[(2 * i + 1) * dim] = second[i];
  }
}

/// Pairs anywhere: for strided rows and for scalars without lanes. `second` is the distance from the first channel of a
/// pair to its partner, `next` from one pair to the next, both in elements of the row; `cos` and `sin` in the form
/// row_form::separate. Types with lanes are gathered into them, so that results have the bits of packed rows.
template <class S, class C, class Arch = simd::default_arch>
void rotate_pairs(const S* in, std::int64_t in_dim, S* out, std::int64_t out_dim, std::int64_t second,
                  std::int64_t next, const C* cos, const C* sin, std::int64_t pairs) {
  if constexpr (simd_storage<S> && std::same_as<C, compute_t<S>>) {
    constexpr int width = simd::width<C, Arch>;
    simd::for_lanes<Arch, C>(pairs, [&](std::int64_t i, auto at) POSENC_LAMBDA_INLINE {
      alignas(64) C first[width] = {};
      alignas(64) C partner[width] = {};
      const S* from = in + i * next * in_dim;
      for (std::int64_t j = 0; j < at.count; ++j) {
        first[j] = widen(from[j * next * in_dim]);
        partner[j] = widen(from[(j * next + second) * in_dim]);
      }
      const auto a = simd::load<Arch>(static_cast<const C*>(first));
      const auto b = simd::load<Arch>(static_cast<const C*>(partner));
      const auto c = at.load(cos + i);
      const auto s = at.load(sin + i);
      simd::store<Arch>(static_cast<C*>(first), xsimd::fms(a, c, b * s));
      simd::store<Arch>(static_cast<C*>(partner), xsimd::fma(b, c, a * s));
      S* to = out + i * next * out_dim;
      for (std::int64_t j = 0; j < at.count; ++j) {
        to[j * next * out_dim] = narrow<S>(first[j]);
        to[(j * next + second) * out_dim] = narrow<S>(partner[j]);
      }
    });
  } else {
    for (std::int64_t i = 0; i < pairs; ++i) {
      const std::int64_t first = i * next;
      const compute_t<S> a = widen(in[first * in_dim]);
      const compute_t<S> b = widen(in[(first + second) * in_dim]);
      const compute_t<S> x = a * cos[i] - b * sin[i];
      const compute_t<S> y = a * sin[i] + b * cos[i];
      out[first * out_dim] = narrow<S>(x);
      out[(first + second) * out_dim] = narrow<S>(y);
    }
  }
}

}  // namespace posenc::kernels
