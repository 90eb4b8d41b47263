// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// An executor over the threads of OpenMP. Not part of posenc.hpp: it needs -fopenmp.
///   posenc::openmp_executor threads;      // omp_get_max_threads() of them
/// Domain   workers >= 1. Several threads may call at once; inside a parallel region, where OpenMP grants one thread,
///          that one does all items.
/// Order    schedule(dynamic, 1): which worker takes which item is open.
/// Throws   std::invalid_argument for workers < 1; what an item throws, after every item that was started has ended;
///          items that were not started are left out.
/// Cost     one parallel region per call; the threads are those OpenMP keeps. Nothing is allocated here.

#ifndef _OPENMP
#error "posenc: parallel_openmp.hpp needs OpenMP; compile with -fopenmp, or link OpenMP::OpenMP_CXX in CMake"
#endif

#include <posenc/core/error.hpp>
#include <posenc/core/parallel.hpp>

#include <omp.h>

#include <atomic>
#include <cstdint>
#include <exception>

namespace posenc {

/// See the file comment.
class openmp_executor {
 public:
  openmp_executor() : openmp_executor(omp_get_max_threads()) {}
  explicit openmp_executor(int workers) : workers_(workers) {
    detail::require(workers >= 1, "openmp_executor", "workers", "must be at least 1", workers);
  }
  [[nodiscard]] std::int64_t concurrency() const noexcept { return workers_; }

  template <class F>
  void parallel_for(std::int64_t n, F&& f) const {
    std::exception_ptr error;
    std::atomic<bool> failed{false};
#pragma omp parallel num_threads(workers_)
    {
      const std::int64_t worker = omp_get_thread_num();
#pragma omp for schedule(dynamic, 1)
      for (std::int64_t item = 0; item < n; ++item) {
        if (failed.load()) continue;
#if POSENC_EXCEPTIONS
        try {
          f(item, worker);
        } catch (...) {
          if (!failed.exchange(true)) error = std::current_exception();
        }
#else
        f(item, worker);
#endif
      }
    }
    if (error) std::rethrow_exception(error);
  }

 private:
  int workers_;
};

}  // namespace posenc
