// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "counts.hpp"

#include <xsimd/xsimd.hpp>

extern "C" [[gnu::noinline]] void posenc_counted(counts::work_function work_of, const void* work) {
  work_of(work);
  asm volatile("" : : : "memory");  // no tail call: the function is left when the work is done
}

int main() {
#if defined(__clang__)
  std::printf("toolchain clang %d xsimd %d\n", __clang_major__, XSIMD_VERSION_MAJOR);
#else
  std::printf("toolchain g++ %d xsimd %d\n", __GNUC__, XSIMD_VERSION_MAJOR);
#endif
  counts::prefill_biases();
  counts::prefill_modifiers();
  counts::decode();
  counts::rotation();
}
