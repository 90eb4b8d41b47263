// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The instruction sets that tests of SIMD code run on, given the flags of their translation unit: the best one, the
/// same without half-precision conversions, and the smallest of the platform where it is another one.

#include <posenc/simd/batch.hpp>

#include <tuple>

namespace posenc_test {

using best_arch = posenc::simd::default_arch;
using plain_arch = posenc::simd::arch<best_arch::instructions, false>;
#if defined(__SSE2__)
using small_arch = posenc::simd::arch<xsimd::sse2, best_arch::half_conversion>;
#else
using small_arch = plain_arch;
#endif

using archs = std::tuple<best_arch, plain_arch, small_arch>;

}  // namespace posenc_test
