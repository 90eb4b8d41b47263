// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// An executor with threads of its own, for a program that has no pool: they are started once, sleep between calls and
/// are joined by the destructor. A program with a pool hands that one to parallel_pool.hpp instead, or two sets of
/// threads share the same cores.
///   posenc::thread_executor threads(4);   // the calling thread and three more
/// Domain   workers >= 1. Several threads may call at once, and an item may call again; whoever calls works too. The
///          executor outlives its calls.
/// Throws   std::invalid_argument for workers < 1, std::system_error where a thread can not be started (those started
///          before are joined); what an item throws, as in parallel_pool.hpp.
/// Cost     per call what parallel_pool.hpp takes, a lock and a wake-up per worker.
/// Example  examples/threads_example.cpp

#include <posenc/core/parallel_pool.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace posenc {

/// See the file comment.
class thread_executor {
 public:
  explicit thread_executor(std::int64_t workers) : workers_(workers) {
    detail::require(workers >= 1, "thread_executor", "workers", "must be at least 1", workers);
    crew_.threads.reserve(static_cast<std::size_t>(workers - 1));
    for (std::int64_t i = 1; i < workers; ++i) crew_.threads.emplace_back([this] { crew_.run(); });
  }
  thread_executor(const thread_executor&) = delete;
  thread_executor& operator=(const thread_executor&) = delete;

  [[nodiscard]] std::int64_t concurrency() const noexcept { return workers_; }
  template <class F>
  void parallel_for(std::int64_t n, F&& f) {
    const auto submit = [this](auto task) { crew_.add(std::move(task)); };
    pool_executor(workers_, submit).parallel_for(n, f);
  }

 private:
  /// A member of its own, so that threads are joined too where the constructor can not start the next one. std::thread
  /// and a flag, since not every standard library has std::jthread.
  struct crew {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::function<void()>> tasks;
    bool closing = false;
    std::vector<std::thread> threads;

    ~crew() {
      {
        const std::lock_guard lock(mutex);
        closing = true;
      }
      wake.notify_all();
      for (std::thread& t : threads) t.join();
    }
    void add(std::function<void()> task) {
      {
        const std::lock_guard lock(mutex);
        tasks.push_back(std::move(task));
      }
      wake.notify_one();
    }
    void run() {
      std::unique_lock lock(mutex);
      for (;;) {
        wake.wait(lock, [&] { return closing || !tasks.empty(); });
        if (closing) return;  // what is left was started late, and has nothing to do
        const std::function<void()> task = std::move(tasks.front());
        tasks.pop_front();
        lock.unlock();
        task();
        lock.lock();
      }
    }
  };

  std::int64_t workers_;
  crew crew_;
};

}  // namespace posenc
