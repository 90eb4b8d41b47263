// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// An executor over any thread pool of the caller's. All it asks of the pool is `submit(task)`: run a copyable task of
/// no arguments on some thread at some time, or never.
///   posenc::pool_executor threads(4, [&](auto task) { pool.post(std::move(task)); });
/// The calling thread is worker 0 and takes items like the others, so a call ends even if no task ever starts: from
/// inside the pool, in a pool that is busy, or in one that has stopped. A task that starts late finds nothing to do and
/// may do so after the call, or after the executor, is gone.
/// Domain   workers >= 1, the calling thread included. Several threads may call at once, and an item may call again.
/// Order    items are handed out one by one through a counter: which worker takes which item is open.
/// Throws   std::invalid_argument for workers < 1; what an item or `submit` throws, after every item that was started
///          has ended; items that were not started are left out.
/// Cost     per call one allocation and at most workers - 1 tasks; per item one atomic addition.
/// Example  examples/threads_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/parallel.hpp>

#include <algorithm>
#include <atomic>
#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace posenc {

namespace detail {

/// What the workers of one call share; tasks that start late keep it alive. `body` is the caller's and is touched only
/// by who holds an item, which the caller waits for.
template <class F>
struct shared_items {
  shared_items(std::int64_t n, F& f) : count(n), body(&f) {}

  /// Takes items until none is left, or one has thrown.
  void work(std::int64_t worker) {
    for (std::int64_t item = next.fetch_add(1); item < count; item = next.fetch_add(1)) {
#if POSENC_EXCEPTIONS
      try {
        (*body)(item, worker);
      } catch (...) {
        fail(std::current_exception());
      }
#else
      (*body)(item, worker);
#endif
    }
  }
  /// A worker that is not the caller. It counts itself in before it asks for an item: who sees the items used up then
  /// sees everybody who holds one.
  void help(std::int64_t worker) {
    helpers.fetch_add(1);
    work(worker);
    const std::lock_guard lock(mutex);
    if (helpers.fetch_sub(1) == 1) idle.notify_all();
  }
  /// Keeps the first error and hands out nothing more.
  void fail(std::exception_ptr e) {
    const std::lock_guard lock(mutex);
    if (!error) error = std::move(e);
    next.exchange(count);
  }
  /// Waits for every worker that holds an item.
  void finish() {
    std::unique_lock lock(mutex);
    idle.wait(lock, [&] { return helpers.load() == 0; });
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }

  std::int64_t count;
  F* body;
  std::atomic<std::int64_t> next{0};
  std::atomic<std::int64_t> helpers{0};
  std::mutex mutex;
  std::condition_variable idle;
  std::exception_ptr error;
};

}  // namespace detail

/// See the file comment. `submit` is called through a const reference, by the thread that calls `parallel_for`.
template <class Submit>
class pool_executor {
 public:
  pool_executor(std::int64_t workers, Submit submit) : workers_(workers), submit_(std::move(submit)) {
    detail::require(workers >= 1, "pool_executor", "workers", "must be at least 1", workers);
  }
  [[nodiscard]] std::int64_t concurrency() const noexcept { return workers_; }

  template <class F>
  void parallel_for(std::int64_t n, F&& f) const {
    const std::int64_t helpers = std::min(workers_, n) - 1;
    if (helpers < 1) return serial_executor{}.parallel_for(n, f);
    const auto items = std::make_shared<detail::shared_items<std::remove_reference_t<F>>>(n, f);
#if POSENC_EXCEPTIONS
    try {
      invite(items, helpers);
    } catch (...) {
      items->fail(std::current_exception());
    }
#else
    invite(items, helpers);
#endif
    items->work(0);
    items->finish();
  }

 private:
  template <class Items>
  void invite(const std::shared_ptr<Items>& items, std::int64_t helpers) const {
    for (std::int64_t worker = 1; worker <= helpers; ++worker) submit_([items, worker] { items->help(worker); });
  }

  std::int64_t workers_;
  Submit submit_;
};

}  // namespace posenc
