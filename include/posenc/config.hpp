// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The only home of macros: inlining, exceptions, and the guard against value-changing floating-point modes.

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__) || defined(__ASSOCIATIVE_MATH__)
#error \
    "posenc: exact angles and masks need strict floating point; no -ffast-math, -ffinite-math-only, -fassociative-math"
#endif

#if defined(__GNUC__) || defined(__clang__)
#define POSENC_ALWAYS_INLINE inline __attribute__((always_inline))
#define POSENC_LAMBDA_INLINE __attribute__((always_inline))
#elif defined(_MSC_VER)
#define POSENC_ALWAYS_INLINE __forceinline
#define POSENC_LAMBDA_INLINE
#else
#define POSENC_ALWAYS_INLINE inline
#define POSENC_LAMBDA_INLINE
#endif

/// Unrolls the loop that follows, so that arrays indexed by it live in registers at every optimisation level.
#if defined(__clang__)
#define POSENC_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define POSENC_UNROLL _Pragma("GCC unroll 16")
#else
#define POSENC_UNROLL
#endif

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define POSENC_EXCEPTIONS 1
#else
#define POSENC_EXCEPTIONS 0
#endif
