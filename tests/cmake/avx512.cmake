# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
# Target posenc_avx512: the tests of SIMD code, and those of attention that make its kernels, compiled, code generation included, for a CPU with AVX-512. Not part of
# `all`, and not run: few machines could.
file(GLOB_RECURSE sources CONFIGURE_DEPENDS unit/simd/*_test.cpp unit/kernels/*_test.cpp unit/attention/fused_test.cpp
     unit/attention/storage_test.cpp unit/attention/content_test.cpp unit/attention/two_pass_test.cpp)
if(posenc_is_x86 AND sources)
  add_library(posenc_avx512 OBJECT EXCLUDE_FROM_ALL ${sources})
  posenc_test_target(posenc_avx512 skylake-avx512)
  target_compile_options(posenc_avx512 PRIVATE -O0 -g0)
else()
  add_custom_target(posenc_avx512)
endif()
