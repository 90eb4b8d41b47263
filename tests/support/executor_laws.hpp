// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What every executor keeps to, whatever threads it runs on.

#include <posenc/core/parallel.hpp>

#include "support/catch.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace posenc_test {

/// Every item once; workers below concurrency(), none in two items at once; what items wrote is seen afterwards.
template <class E>
void check_items(E& executor) {
  STATIC_REQUIRE(posenc::executor<E>);
  const auto workers = static_cast<std::size_t>(executor.concurrency());
  for (const std::int64_t n : {0, 1, 2, 3, 17, 500}) {
    INFO(n << " items, " << workers << " workers");
    std::vector<int> done(static_cast<std::size_t>(n));
    std::vector<std::atomic<int>> busy(workers);
    std::atomic<int> wrong{0};
    executor.parallel_for(n, [&](std::int64_t item, std::int64_t worker) {
      if (item < 0 || item >= n || worker < 0 || worker >= executor.concurrency()) {
        ++wrong;
        return;
      }
      if (busy[static_cast<std::size_t>(worker)].exchange(1) != 0) ++wrong;
      std::this_thread::yield();
      ++done[static_cast<std::size_t>(item)];
      busy[static_cast<std::size_t>(worker)] = 0;
    });
    CHECK(wrong == 0);
    CHECK(done == std::vector<int>(static_cast<std::size_t>(n), 1));
  }
}

/// The exception of an item reaches the caller, after the last item has ended; the executor works afterwards.
template <class E>
void check_exceptions(E& executor) {
  for (const std::int64_t bad : {0, 5, 49}) {
    std::atomic<int> running{0};
    std::string text;
    try {
      executor.parallel_for(50, [&](std::int64_t item, std::int64_t) {
        ++running;
        std::this_thread::yield();
        --running;
        if (item == bad) throw std::runtime_error("item " + std::to_string(item));
      });
    } catch (const std::runtime_error& e) {
      text = e.what();
    }
    CHECK(running == 0);
    CHECK(text == "item " + std::to_string(bad));
  }
  // Several at once: one of them.
  CHECK_THROWS_AS(executor.parallel_for(50, [](std::int64_t, std::int64_t) { throw std::out_of_range("each"); }),
                  std::out_of_range);
  check_items(executor);
}

/// An item may itself call the executor.
template <class E>
void check_nesting(E& executor) {
  std::atomic<int> inner{0};
  executor.parallel_for(
      6, [&](std::int64_t, std::int64_t) { executor.parallel_for(5, [&](std::int64_t, std::int64_t) { ++inner; }); });
  CHECK(inner == 30);
}

/// Several threads may call at once.
template <class E>
void check_callers(E& executor) {
  std::vector<std::int64_t> sums(4);
  {
    std::vector<std::thread> callers;
    for (std::size_t c = 0; c < sums.size(); ++c)
      callers.emplace_back([&, c] {
        for (int round = 0; round < 50; ++round) {
          std::vector<std::int64_t> part(20);
          executor.parallel_for(20,
                                [&](std::int64_t item, std::int64_t) { part[static_cast<std::size_t>(item)] = item; });
          for (const std::int64_t p : part) sums[c] += p;
        }
      });
    for (std::thread& t : callers) t.join();
  }
  for (const std::int64_t sum : sums) CHECK(sum == 50 * 190);
}

}  // namespace posenc_test
