// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What the program that callgrind runs is made of. Only posenc_counted is counted, and each call of it makes one line
/// of the output: the name of the case and its work, pairs of query and key or elements.

#include <cstdint>
#include <cstdio>
#include <vector>

namespace counts {

/// Numbers in -1 .. 1, the same everywhere.
inline std::vector<float> numbers(std::int64_t n, std::uint32_t seed = 1) {
  std::vector<float> out;
  std::uint32_t x = seed;
  for (std::int64_t i = 0; i < n; ++i) {
    x = x * 1664525u + 1013904223u;
    out.push_back(static_cast<float>(static_cast<double>(x >> 8) / 8388608.0 - 1));
  }
  return out;
}

using work_function = void (*)(const void* work);

/// Calls work_of(work); its name is what callgrind is told to count.
extern "C" void posenc_counted(work_function work_of, const void* work);

template <class F>
void count(const char* name, std::int64_t work, const F& f) {
  std::printf("%s %lld\n", name, static_cast<long long>(work));
  posenc_counted([](const void* p) { (*static_cast<const F*>(p))(); }, &f);
}

void prefill_biases();
void prefill_modifiers();
void decode();
void rotation();

}  // namespace counts
