// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/parallel_pool.hpp>

#include "support/executor_laws.hpp"

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace {

using namespace posenc_test;

/// A pool as a program may have it: one thread more per worker, tasks in order.
class pool {
 public:
  explicit pool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~pool() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  void post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return closing_ || !tasks_.empty(); });
      if (tasks_.empty()) return;  // runs what is left
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

auto over(pool& p, std::int64_t workers) {
  return posenc::pool_executor(workers, [&p](auto task) { p.post(std::move(task)); });
}

}  // namespace

TEST_CASE("parallel_pool: every item once, whatever the pool", "[core][parallel]") {
  for (const int threads : {1, 3}) {
    pool p(threads);
    for (const std::int64_t workers : {1, 2, 3, 8}) {
      auto executor = over(p, workers);
      CHECK(executor.concurrency() == workers);
      check_items(executor);
      const auto& constant = executor;
      check_items(constant);
    }
  }
}

TEST_CASE("parallel_pool: exceptions, nesting, several callers", "[core][parallel]") {
  pool p(3);
  auto executor = over(p, 4);
  check_exceptions(executor);
  check_nesting(executor);
  check_callers(executor);
}

TEST_CASE("parallel_pool: a call from inside a pool of one thread ends", "[core][parallel]") {
  pool p(1);
  auto executor = over(p, 4);
  std::atomic<int> done{0};
  std::atomic<bool> over_now{false};
  p.post([&] {
    executor.parallel_for(9, [&](std::int64_t, std::int64_t worker) { done += worker == 0 ? 1 : 100; });
    over_now = true;
  });
  while (!over_now) std::this_thread::yield();
  CHECK(done == 9);
}

TEST_CASE("parallel_pool: tasks that start late, or never, are of no consequence", "[core][parallel]") {
  std::vector<std::function<void()>> kept;
  std::vector<int> done(7);
  {
    const posenc::pool_executor executor(4, [&](auto task) { kept.push_back(std::move(task)); });
    const auto once = std::make_unique<std::vector<int>*>(&done);  // gone when the tasks run
    executor.parallel_for(7, [&](std::int64_t item, std::int64_t worker) {
      CHECK(worker == 0);
      ++(**once)[static_cast<std::size_t>(item)];
    });
  }
  CHECK(kept.size() == 3);
  for (const auto& task : kept) task();
  CHECK(done == std::vector<int>(7, 1));

  // Fewer items than workers: no more tasks than can find one.
  kept.clear();
  const posenc::pool_executor executor(8, [&](auto task) { kept.push_back(std::move(task)); });
  executor.parallel_for(3, [](std::int64_t, std::int64_t) {});
  CHECK(kept.size() == 2);
  executor.parallel_for(1, [](std::int64_t, std::int64_t) {});
  executor.parallel_for(0, [](std::int64_t, std::int64_t) {});
  CHECK(kept.size() == 2);
}

TEST_CASE("parallel_pool: a pool may run a task at once, in the thread that submits it", "[core][parallel]") {
  std::set<std::int64_t> workers;
  std::vector<int> done(5);
  const posenc::pool_executor executor(3, [](auto task) { task(); });
  executor.parallel_for(5, [&](std::int64_t item, std::int64_t worker) {
    workers.insert(worker);
    ++done[static_cast<std::size_t>(item)];
  });
  CHECK(done == std::vector<int>(5, 1));
  CHECK(workers == std::set<std::int64_t>{1});
}

TEST_CASE("parallel_pool: what submit throws comes out once the items that were started have ended",
          "[core][parallel]") {
  pool p(2);
  for (const int good : {0, 1, 2}) {
    int submitted = 0;
    std::atomic<int> running{0};
    const posenc::pool_executor executor(4, [&](auto task) {
      if (submitted++ == good) throw std::length_error("queue is full");
      p.post(std::move(task));
    });
    CHECK_THROWS_AS(executor.parallel_for(200,
                                          [&](std::int64_t, std::int64_t) {
                                            ++running;
                                            std::this_thread::yield();
                                            --running;
                                          }),
                    std::length_error);
    CHECK(running == 0);
  }
}

TEST_CASE("parallel_pool: fewer than one worker is refused", "[core][parallel]") {
  const auto submit = [](auto task) { task(); };
  CHECK_THROWS_WITH(posenc::pool_executor(0, submit), "posenc::pool_executor: workers must be at least 1, got 0");
}
