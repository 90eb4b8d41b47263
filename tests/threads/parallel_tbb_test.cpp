// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/parallel_tbb.hpp>

#include "support/executor_laws.hpp"

using namespace posenc_test;

TEST_CASE("parallel_tbb: every item once", "[core][parallel]") {
  for (const int workers : {1, 2, 5}) {
    posenc::tbb_executor executor(workers);
    CHECK(executor.concurrency() == workers);
    check_items(executor);
  }
  CHECK(posenc::tbb_executor().concurrency() == oneapi::tbb::info::default_concurrency());
}

TEST_CASE("parallel_tbb: exceptions, nesting, several callers", "[core][parallel]") {
  posenc::tbb_executor executor(4);
  check_exceptions(executor);
  check_nesting(executor);
  check_callers(executor);
}

TEST_CASE("parallel_tbb: a thread that waits takes no item of another call", "[core][parallel]") {
  posenc::tbb_executor executor(4);
  thread_local int depth = 0;  // outer items on this thread
  std::atomic<int> deepest{0};
  std::atomic<int> inner{0};
  executor.parallel_for(40, [&](std::int64_t, std::int64_t) {
    ++depth;
    if (depth > deepest) deepest = depth;
    executor.parallel_for(40, [&](std::int64_t, std::int64_t) {
      std::this_thread::yield();
      ++inner;
    });
    --depth;
  });
  CHECK(inner == 1600);
  CHECK(deepest == 1);
}

TEST_CASE("parallel_tbb: fewer than one worker is refused", "[core][parallel]") {
  CHECK_THROWS_WITH(posenc::tbb_executor(0), "posenc::tbb_executor: workers must be at least 1, got 0");
}
