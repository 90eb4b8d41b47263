// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The one header that includes xsimd. It absorbs the API from version 8.1 to 14 and the gaps that posenc needs filled
/// (16-bit lanes, pair swap), and gives hooks their SIMD form through `lanes`. Everything above speaks of
/// `batch<T, Arch>`; every kernel is a template keyed by Arch, so that translation units built with different flags
/// share no symbol.

#include <posenc/config.hpp>
#include <posenc/core/lanes.hpp>
#include <posenc/core/scalar.hpp>

#include <xsimd/xsimd.hpp>

#if defined(__SSE2__) || defined(_M_X64)
#include <immintrin.h>
#endif

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace posenc::simd {

/// An instruction set as a type: xsimd's architecture and whether F16C converts half precision.
template <class Instructions, bool HalfConversion>
struct arch {
  using instructions = Instructions;
  static constexpr bool half_conversion = HalfConversion;
};

#ifdef __F16C__
using default_arch = arch<xsimd::default_arch, true>;
#else
using default_arch = arch<xsimd::default_arch, false>;
#endif

template <class T, class Arch = default_arch>
using batch = xsimd::batch<T, typename Arch::instructions>;

/// Lanes of a batch.
template <class T, class Arch = default_arch>
inline constexpr int width = static_cast<int>(batch<T, Arch>::size);

namespace detail {
struct swap_neighbours {
  static constexpr unsigned get(unsigned i, unsigned) { return i ^ 1u; }
};
template <class U, class A>
constexpr auto neighbour_indices() {
  if constexpr (requires { xsimd::make_batch_constant<xsimd::batch<U, A>, swap_neighbours>(); }) {
    return xsimd::make_batch_constant<xsimd::batch<U, A>, swap_neighbours>();
  } else if constexpr (requires { xsimd::make_batch_constant<U, swap_neighbours, A>(); }) {
    return xsimd::make_batch_constant<U, swap_neighbours, A>();
  } else {
    return xsimd::make_batch_constant<U, A, swap_neighbours>();
  }
}
}  // namespace detail

/// (x1, x0, x3, x2, ...): the partners of interleaved pairs. Where the lanes of a pair share 128 bits the exchange
/// stays inside them; the general permutation is several times slower on some processors.
template <class T, class A>
[[nodiscard]] POSENC_ALWAYS_INLINE xsimd::batch<T, A> swap_pairs(const xsimd::batch<T, A>& x) noexcept {
  using B [[maybe_unused]] = xsimd::batch<T, A>;
#if defined(__AVX512F__)
  if constexpr (std::same_as<T, float> && B::size == 16) return B(_mm512_permute_ps(static_cast<__m512>(x), 0xB1));
  if constexpr (std::same_as<T, double> && B::size == 8) return B(_mm512_permute_pd(static_cast<__m512d>(x), 0x55));
#endif
#if defined(__AVX__)
  if constexpr (std::same_as<T, float> && B::size == 8) return B(_mm256_permute_ps(static_cast<__m256>(x), 0xB1));
  if constexpr (std::same_as<T, double> && B::size == 4) return B(_mm256_permute_pd(static_cast<__m256d>(x), 0x5));
#endif
  return xsimd::swizzle(x, detail::neighbour_indices<xsimd::as_unsigned_integer_t<T>, A>());
}

/// The bits of x read as lanes of T, a type of the same size.
template <class T, class U, class A>
[[nodiscard]] POSENC_ALWAYS_INLINE xsimd::batch<T, A> bits_as(const xsimd::batch<U, A>& x) noexcept {
  using B = xsimd::batch<T, A>;
  if constexpr (requires {
                  { xsimd::bitwise_cast<B>(x) } -> std::same_as<B>;
                }) {
    return xsimd::bitwise_cast<B>(x);
  } else {
    return xsimd::bitwise_cast<T>(x);
  }
}

/// x in a register: a compiler that folds its load into every use of it would read it from memory each time.
template <class T, class A>
[[nodiscard]] POSENC_ALWAYS_INLINE xsimd::batch<T, A> held(const xsimd::batch<T, A>& x) noexcept {
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
  auto in_register = static_cast<typename xsimd::batch<T, A>::register_type>(x);
  asm("" : "+v"(in_register));
  return xsimd::batch<T, A>(in_register);
#else
  return x;
#endif
}

/// The sum of the lanes.
template <class T, class A>
[[nodiscard]] POSENC_ALWAYS_INLINE T sum(const xsimd::batch<T, A>& x) noexcept {
#if XSIMD_VERSION_MAJOR >= 10
  return xsimd::reduce_add(x);
#else
  return xsimd::hadd(x);
#endif
}

/// The greatest lane, by halves; which of NaN and a number counts is open.
template <class T, class A>
[[nodiscard]] POSENC_ALWAYS_INLINE T greatest(const xsimd::batch<T, A>& x) noexcept {
  constexpr std::size_t n = xsimd::batch<T, A>::size;
#if defined(__AVX__)
  if constexpr (std::same_as<T, float> && n == 8) {
    const auto whole = static_cast<__m256>(x);
    __m128 best = _mm_max_ps(_mm256_castps256_ps128(whole), _mm256_extractf128_ps(whole, 1));
    best = _mm_max_ps(best, _mm_movehl_ps(best, best));
    return _mm_cvtss_f32(_mm_max_ss(best, _mm_movehdup_ps(best)));
  }
#endif
  alignas(A::alignment()) T lane[n];
  x.store_aligned(lane);
  T best = lane[0];
  for (std::size_t i = 1; i < n; ++i) best = lane[i] > best ? lane[i] : best;
  return best;
}

/// (a0, b0, a1, b1, ...) over both halves: the lower lanes into a, the upper into b. Written out where xsimd 8 stays
/// inside 128 bits.
template <class T, class A>
POSENC_ALWAYS_INLINE void interleave(xsimd::batch<T, A>& a, xsimd::batch<T, A>& b) noexcept {
  using B = xsimd::batch<T, A>;
#if defined(__AVX512F__)
  if constexpr (std::same_as<T, float> && B::size == 16) {
    const __m512i lower = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512 low = _mm512_permutex2var_ps(a, lower, b);
    b = B(_mm512_permutex2var_ps(a, _mm512_add_epi32(lower, _mm512_set1_epi32(8)), b));
    a = B(low);
    return;
  }
  if constexpr (std::same_as<T, double> && B::size == 8) {
    const __m512i lower = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
    const __m512d low = _mm512_permutex2var_pd(a, lower, b);
    b = B(_mm512_permutex2var_pd(a, _mm512_add_epi64(lower, _mm512_set1_epi64(4)), b));
    a = B(low);
    return;
  }
#endif
#if defined(__AVX__)
  if constexpr (std::same_as<T, float> && B::size == 8) {
    const __m256 low = _mm256_unpacklo_ps(a, b);
    const __m256 high = _mm256_unpackhi_ps(a, b);
    a = B(_mm256_permute2f128_ps(low, high, 0x20));
    b = B(_mm256_permute2f128_ps(low, high, 0x31));
    return;
  }
  if constexpr (std::same_as<T, double> && B::size == 4) {
    const __m256d low = _mm256_unpacklo_pd(a, b);
    const __m256d high = _mm256_unpackhi_pd(a, b);
    a = B(_mm256_permute2f128_pd(low, high, 0x20));
    b = B(_mm256_permute2f128_pd(low, high, 0x31));
    return;
  }
#endif
  const B low = xsimd::zip_lo(a, b);
  b = xsimd::zip_hi(a, b);
  a = low;
}

/// A square of lanes turned: lane j of row i becomes lane i of row j. Each of log2(n) passes interleaves the rows of
/// the upper half with those of the lower.
template <class B, std::size_t N>
POSENC_ALWAYS_INLINE void transpose(std::array<B, N>& rows) noexcept {
  static_assert(N == B::size);
  for (std::size_t pass = 1; pass < N; pass *= 2) {
    std::array<B, N> turned;
    for (std::size_t i = 0; i < N / 2; ++i) {
      turned[2 * i] = rows[i];
      turned[2 * i + 1] = rows[i + N / 2];
      interleave(turned[2 * i], turned[2 * i + 1]);
    }
    rows = turned;
  }
}

}  // namespace posenc::simd

namespace posenc {

/// The SIMD form of the hook vocabulary.
template <class T, class A>
struct lanes<xsimd::batch<T, A>> {
  using B = xsimd::batch<T, A>;
  using scalar = T;
  using mask = xsimd::batch_bool<T, A>;
  static constexpr int size = static_cast<int>(B::size);
  alignas(64) static constexpr std::array<T, B::size> counted = [] {
    std::array<T, B::size> values{};
    for (std::size_t i = 0; i < B::size; ++i) values[i] = static_cast<T>(i);
    return values;
  }();

  /// Lanes from memory of any scalar type; T itself is one unaligned load.
  template <class S>
  static POSENC_ALWAYS_INLINE B load(const S* p) {
    if constexpr (std::same_as<S, T>) {
      return B::load_unaligned(p);
    } else {
      alignas(A::alignment()) T lane[B::size];
      for (std::size_t i = 0; i < B::size; ++i) lane[i] = static_cast<T>(widen(p[i]));
      return B::load_aligned(lane);
    }
  }
  static POSENC_ALWAYS_INLINE void store(T* p, const B& x) { x.store_unaligned(p); }
  /// table[x] on each lane, where x is an integer from 0 to 2^24.
  template <class S>
  static POSENC_ALWAYS_INLINE B gather(const S* table, const B& x) {
#if defined(__AVX512F__)
    if constexpr (std::same_as<S, float> && std::same_as<T, float> && B::size == 16)
      return B(_mm512_i32gather_ps(_mm512_cvttps_epi32(x), table, 4));
#endif
#if defined(__AVX2__)
    if constexpr (std::same_as<S, float> && std::same_as<T, float> && B::size == 8)
      return B(_mm256_i32gather_ps(table, _mm256_cvttps_epi32(x), 4));
#endif
    alignas(A::alignment()) T lane[B::size];
    x.store_aligned(lane);
    for (std::size_t i = 0; i < B::size; ++i)
      lane[i] = static_cast<T>(widen(table[static_cast<std::int32_t>(lane[i])]));
    return B::load_aligned(lane);
  }
  template <class S>
  static POSENC_ALWAYS_INLINE B broadcast(const S& x) {
    return B(static_cast<T>(x));
  }
  static POSENC_ALWAYS_INLINE B iota() { return B::load_aligned(counted.data()); }
  static POSENC_ALWAYS_INLINE B select(const mask& m, const B& yes, const B& no) { return xsimd::select(m, yes, no); }
  static POSENC_ALWAYS_INLINE mask greater(const B& a, const B& b) { return a > b; }
  static POSENC_ALWAYS_INLINE bool any(const mask& m) { return xsimd::any(m); }
  static POSENC_ALWAYS_INLINE mask mask_from(const bool* truth) {
    alignas(A::alignment()) T lane[B::size];
    for (std::size_t i = 0; i < B::size; ++i) lane[i] = truth[i] ? T(1) : T(0);
    return B::load_aligned(lane) > B(T(0));
  }
  static POSENC_ALWAYS_INLINE B abs(const B& x) { return xsimd::abs(x); }
  static POSENC_ALWAYS_INLINE B tanh(const B& x) { return xsimd::tanh(x); }
  static POSENC_ALWAYS_INLINE B exp(const B& x) { return xsimd::exp(x); }
  static POSENC_ALWAYS_INLINE B sqrt(const B& x) { return xsimd::sqrt(x); }
};

}  // namespace posenc
