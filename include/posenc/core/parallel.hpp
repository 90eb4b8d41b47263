// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Bring your own threads. posenc starts none: where work can be split it takes an executor, and the split depends on
/// shapes only, so results are bitwise the same for every number of workers.

#include <concepts>
#include <cstdint>

namespace posenc {

namespace detail {
struct probe_task {
  void operator()(std::int64_t, std::int64_t) const noexcept {}
};
}  // namespace detail

/// `concurrency()` is how many workers may run at once; `parallel_for(n, f)` calls `f(item, worker)` once for every
/// item in 0..n-1 with worker in 0..concurrency()-1, never two calls with the same worker at once, and returns when all
/// are done.
template <class E>
concept executor = requires(E& e, std::int64_t n) {
  { e.concurrency() } -> std::convertible_to<std::int64_t>;
  e.parallel_for(n, detail::probe_task{});
};

/// Runs everything in the calling thread, in order.
struct serial_executor {
  [[nodiscard]] static constexpr std::int64_t concurrency() noexcept { return 1; }
  template <class F>
  constexpr void parallel_for(std::int64_t n, F&& f) const {
    for (std::int64_t i = 0; i < n; ++i) f(i, std::int64_t{0});
  }
};

}  // namespace posenc
