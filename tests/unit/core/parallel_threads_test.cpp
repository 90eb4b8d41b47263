// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/parallel_threads.hpp>

#include "support/executor_laws.hpp"

#include <chrono>
#include <set>

using namespace posenc_test;

TEST_CASE("parallel_threads: every item once, again and again", "[core][parallel]") {
  for (const std::int64_t workers : {1, 2, 5}) {
    posenc::thread_executor executor(workers);
    CHECK(executor.concurrency() == workers);
    for (int round = 0; round < 20; ++round) check_items(executor);
  }
}

TEST_CASE("parallel_threads: exceptions, nesting, several callers", "[core][parallel]") {
  posenc::thread_executor executor(4);
  check_exceptions(executor);
  check_nesting(executor);
  check_callers(executor);
}

TEST_CASE("parallel_threads: workers are threads of their own, the caller among them", "[core][parallel]") {
  posenc::thread_executor executor(3);
  // Three items that wait for each other need three threads.
  std::atomic<int> here{0};
  std::vector<std::thread::id> ids(3);
  executor.parallel_for(3, [&](std::int64_t, std::int64_t worker) {
    ids[static_cast<std::size_t>(worker)] = std::this_thread::get_id();
    ++here;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (here < 3 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  });
  CHECK(here == 3);
  CHECK(std::set<std::thread::id>(ids.begin(), ids.end()).size() == 3);
  CHECK(ids[0] == std::this_thread::get_id());
}

TEST_CASE("parallel_threads: executors come and go, used or not", "[core][parallel]") {
  int done = 0;
  for (int i = 0; i < 50; ++i) {
    posenc::thread_executor executor(3);
    if (i % 2 == 0) continue;
    std::atomic<int> items{0};
    executor.parallel_for(2, [&](std::int64_t, std::int64_t) { ++items; });
    done += items;
  }
  CHECK(done == 50);
  STATIC_REQUIRE(!std::is_copy_constructible_v<posenc::thread_executor>);
}

TEST_CASE("parallel_threads: fewer than one worker is refused", "[core][parallel]") {
  CHECK_THROWS_WITH(posenc::thread_executor(-1), "posenc::thread_executor: workers must be at least 1, got -1");
}
