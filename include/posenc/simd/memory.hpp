// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Loads that widen and stores that round once: float and double as they are, half through F16C where the Arch has it
/// and by integer arithmetic elsewhere, bfloat16 by shifts. Ties go to even, NaN stays NaN, exactly as `narrow` does
/// one element at a time.

#include <posenc/simd/batch.hpp>

#if defined(__SSE2__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace posenc::simd {
namespace detail {

/// 16-bit words to 32-bit lanes.
template <class Arch>
POSENC_ALWAYS_INLINE batch<std::uint32_t, Arch> widen_words(const std::uint16_t* p) noexcept {
  using B = batch<std::uint32_t, Arch>;
#if defined(__AVX512F__)
  if constexpr (B::size == 16) return B(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#endif
#if defined(__AVX2__)
  if constexpr (B::size == 8) return B(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#endif
#if defined(__SSE2__)
  if constexpr (B::size == 4)
    return B(_mm_unpacklo_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), _mm_setzero_si128()));
#endif
  alignas(64) std::uint32_t lane[B::size];
  for (std::size_t i = 0; i < B::size; ++i) lane[i] = p[i];
  return B::load_unaligned(lane);
}

/// The low halves of 32-bit lanes that hold values below 2^16.
template <class Arch>
POSENC_ALWAYS_INLINE void store_words(std::uint16_t* p, const batch<std::uint32_t, Arch>& x) noexcept {
  using B = batch<std::uint32_t, Arch>;
#if defined(__AVX512F__)
  if constexpr (B::size == 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(static_cast<__m512i>(x)));
    return;
  }
#endif
#if defined(__AVX2__)
  if constexpr (B::size == 8) {
    const __m256i v = static_cast<__m256i>(x);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
    return;
  }
#endif
  alignas(64) std::uint32_t lane[B::size];
  x.store_unaligned(lane);
  for (std::size_t i = 0; i < B::size; ++i) p[i] = static_cast<std::uint16_t>(lane[i]);
}

template <class Arch>
POSENC_ALWAYS_INLINE batch<float, Arch> float_from_halves(const std::uint16_t* p) noexcept {
  using B = batch<float, Arch>;
#if defined(__F16C__)
  if constexpr (Arch::half_conversion) {
#if defined(__AVX512F__)
    if constexpr (B::size == 16) return B(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
#endif
    if constexpr (B::size == 8) return B(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
    if constexpr (B::size == 4) return B(_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
#endif
  // Shift exponent and fraction into place and rescale: subnormals come out right, infinities need their exponent set.
  using U = batch<std::uint32_t, Arch>;
  const U word = widen_words<Arch>(p);
  const U magnitude = (word & U(0x7fffu)) << 13;
  const B scaled = bits_as<float>(magnitude) * B(0x1p112f);
  const U special = bits_as<std::uint32_t>(xsimd::select(scaled >= B(65536.0f), B(-0.0f), B(0.0f)));
  // special holds the sign bit where the exponent was all ones: spread it over the exponent field.
  const U all_ones = U(0u) - (special >> 31);
  const U exponent = all_ones & U(0x7f800000u);
  return bits_as<float>(bits_as<std::uint32_t>(scaled) | exponent | ((word & U(0x8000u)) << 16));
}

template <class Arch>
POSENC_ALWAYS_INLINE void halves_from_float(std::uint16_t* p, const batch<float, Arch>& x) noexcept {
#if defined(__F16C__)
  if constexpr (Arch::half_conversion) {
    using B = batch<float, Arch>;
#if defined(__AVX512F__)
    if constexpr (B::size == 16) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                          _mm512_cvtps_ph(static_cast<__m512>(x), _MM_FROUND_TO_NEAREST_INT));
      return;
    }
#endif
    if constexpr (B::size == 8) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                       _mm256_cvtps_ph(static_cast<__m256>(x), _MM_FROUND_TO_NEAREST_INT));
      return;
    }
    if constexpr (B::size == 4) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_cvtps_ph(static_cast<__m128>(x), _MM_FROUND_TO_NEAREST_INT));
      return;
    }
  }
#endif
  alignas(64) float lane[batch<float, Arch>::size];
  x.store_unaligned(lane);
  for (std::size_t i = 0; i < batch<float, Arch>::size; ++i) p[i] = posenc::detail::binary16_from_float(lane[i]);
}

template <class Arch>
POSENC_ALWAYS_INLINE batch<float, Arch> float_from_bfloat16(const std::uint16_t* p) noexcept {
  return bits_as<float>(widen_words<Arch>(p) << 16);
}

template <class Arch>
POSENC_ALWAYS_INLINE void bfloat16_from_float(std::uint16_t* p, const batch<float, Arch>& x) noexcept {
  using B = batch<float, Arch>;
  using U = batch<std::uint32_t, Arch>;
  const U bits = bits_as<std::uint32_t>(x);
  const U rounded = bits + U(0x7fffu) + ((bits >> 16) & U(1u));
  // A NaN could round to infinity: keep its upper bits and set the quiet bit.
  const U quiet = bits | U(0x400000u);
  const B chosen = xsimd::select(x == x, bits_as<float>(rounded), bits_as<float>(quiet));
  store_words<Arch>(p, bits_as<std::uint32_t>(chosen) >> 16);
}

}  // namespace detail

/// Consecutive elements of storage type S as lanes of their compute type.
template <class Arch, simd_storage S>
[[nodiscard]] POSENC_ALWAYS_INLINE batch<compute_t<S>, Arch> load(const S* p) noexcept {
  if constexpr (format_of<S> == format::native) {
    return batch<S, Arch>::load_unaligned(p);
  } else {
    const auto* words = reinterpret_cast<const std::uint16_t*>(p);
    if constexpr (format_of<S> == format::binary16) {
      return detail::float_from_halves<Arch>(words);
    } else {
      return detail::float_from_bfloat16<Arch>(words);
    }
  }
}

/// Lanes rounded once to storage type S.
template <class Arch, simd_storage S>
POSENC_ALWAYS_INLINE void store(S* p, const batch<compute_t<S>, Arch>& x) noexcept {
  if constexpr (format_of<S> == format::native) {
    x.store_unaligned(p);
  } else {
    auto* words = reinterpret_cast<std::uint16_t*>(p);
    if constexpr (format_of<S> == format::binary16) {
      detail::halves_from_float<Arch>(words, x);
    } else {
      detail::bfloat16_from_float<Arch>(words, x);
    }
  }
}

/// Lanes of double rounded once to float.
template <class Arch>
POSENC_ALWAYS_INLINE void store_rounded(float* p, const batch<double, Arch>& x) noexcept {
  constexpr int n = width<double, Arch>;
#if defined(__AVX512F__)
  if constexpr (n == 8) return _mm256_storeu_ps(p, _mm512_cvtpd_ps(static_cast<__m512d>(x)));
#endif
#if defined(__AVX__)
  if constexpr (n == 4) return _mm_storeu_ps(p, _mm256_cvtpd_ps(static_cast<__m256d>(x)));
#endif
#if defined(__SSE2__)
  if constexpr (n == 2) return _mm_storel_pi(reinterpret_cast<__m64*>(p), _mm_cvtpd_ps(static_cast<__m128d>(x)));
#endif
  alignas(64) double lane[n];
  x.store_unaligned(lane);
  for (int i = 0; i < n; ++i) p[i] = static_cast<float>(lane[i]);
}
template <class Arch>
POSENC_ALWAYS_INLINE void store_rounded(double* p, const batch<double, Arch>& x) noexcept {
  x.store_unaligned(p);
}

}  // namespace posenc::simd
