// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// An executor over oneTBB, in an arena of its own. Not part of posenc.hpp: it needs the headers and library of oneTBB.
///   posenc::tbb_executor threads(4);      // an arena of four
/// Domain   workers >= 1. Several threads may call at once and share the arena. Items run isolated: a thread that waits
///          takes no task from outside the call, so a caller's workspace serves one call at a time.
/// Order    one item per task: which worker takes which item is open.
/// Throws   std::invalid_argument for workers < 1; what an item throws, after every item that was started has ended;
///          items that were not started may be left out.
/// Cost     one arena per executor, started by its first call; a task per item. A single worker works without TBB.

#if !__has_include(<oneapi/tbb/task_arena.h>)
#error "posenc: parallel_tbb.hpp needs oneTBB (libtbb-dev); link TBB::tbb in CMake"
#endif

#include <posenc/core/error.hpp>
#include <posenc/core/parallel.hpp>

#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <cstdint>

namespace posenc {

/// See the file comment.
class tbb_executor {
 public:
  tbb_executor() : tbb_executor(oneapi::tbb::info::default_concurrency()) {}
  explicit tbb_executor(int workers) : workers_(checked(workers)), arena_(workers) {}
  [[nodiscard]] std::int64_t concurrency() const noexcept { return workers_; }

  template <class F>
  void parallel_for(std::int64_t n, F&& f) {
    // An arena of one may have a second slot, for what is enqueued; without it the index stays below concurrency().
    if (workers_ == 1 || n <= 1) return serial_executor{}.parallel_for(n, f);
    arena_.execute([&] {
      oneapi::tbb::this_task_arena::isolate([&] {
        oneapi::tbb::parallel_for(
            std::int64_t{0}, n,
            [&f](std::int64_t item) { f(item, std::int64_t{oneapi::tbb::this_task_arena::current_thread_index()}); },
            oneapi::tbb::simple_partitioner{});
      });
    });
  }

 private:
  static int checked(int workers) {
    detail::require(workers >= 1, "tbb_executor", "workers", "must be at least 1", workers);
    return workers;
  }

  int workers_;
  oneapi::tbb::task_arena arena_;
};

}  // namespace posenc
