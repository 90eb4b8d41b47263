// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What every bench needs: honest buffers, keep-alive, and counters with one definition each.
///   ns_per_element   time of one call / elements written by it
///   gflops           4 * heads * visible pairs * dim / time of one call, only pairs that the mask lets through
///   gb_per_s         bytes read and written by one call / its time

#include <benchmark/benchmark.h>

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace bench {

/// Tells the compiler that memory behind p was read and written: the call before it can be neither hoisted nor dropped.
inline void touch(void* p) { asm volatile("" : : "r"(p) : "memory"); }

/// Normal numbers. They come again after 65521 of them, a prime, so that no two rows are the same and a large buffer
/// costs a copy.
template <class T>
std::vector<T> normal(std::size_t n, unsigned seed = 1) {
  constexpr std::size_t period = 65521;
  std::mt19937 engine(seed);
  std::normal_distribution<float> value;
  std::vector<T> out;
  out.reserve(n);
  for (std::size_t i = 0; i < std::min(n, period); ++i) out.push_back(static_cast<T>(value(engine)));
  for (std::size_t i = period; i < n; ++i) out.push_back(out[i - period]);
  return out;
}

/// CPU time of the calling thread, in seconds.
inline double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

inline void per_element(benchmark::State& state, std::int64_t elements) {
  state.counters["ns_per_element"] =
      benchmark::Counter(static_cast<double>(elements) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
inline void flops(benchmark::State& state, double per_call) {
  state.counters["gflops"] = benchmark::Counter(per_call * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}
inline void bytes(benchmark::State& state, double per_call) {
  state.counters["gb_per_s"] = benchmark::Counter(per_call * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace bench
