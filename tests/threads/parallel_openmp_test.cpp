// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/parallel_openmp.hpp>

#include "support/executor_laws.hpp"

using namespace posenc_test;

TEST_CASE("parallel_openmp: every item once", "[core][parallel]") {
  for (const int workers : {1, 2, 5}) {
    posenc::openmp_executor executor(workers);
    CHECK(executor.concurrency() == workers);
    check_items(executor);
    const auto& constant = executor;
    check_items(constant);
  }
  CHECK(posenc::openmp_executor().concurrency() == omp_get_max_threads());
}

TEST_CASE("parallel_openmp: exceptions, nesting, several callers", "[core][parallel]") {
  posenc::openmp_executor executor(4);
  check_exceptions(executor);
  check_nesting(executor);
  check_callers(executor);
}

TEST_CASE("parallel_openmp: inside a parallel region of the caller's", "[core][parallel]") {
  const posenc::openmp_executor executor(3);
  std::atomic<int> items{0};
#pragma omp parallel num_threads(2)
  executor.parallel_for(10, [&](std::int64_t, std::int64_t) { ++items; });
  CHECK(items == 20);
}

TEST_CASE("parallel_openmp: fewer than one worker is refused", "[core][parallel]") {
  CHECK_THROWS_WITH(posenc::openmp_executor(0), "posenc::openmp_executor: workers must be at least 1, got 0");
}
