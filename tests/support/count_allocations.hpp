// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Replaces the global operator new of the program to count what is taken. Included by one file of a program.

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace posenc_test {
inline std::atomic<std::size_t> allocations{0};
inline std::atomic<std::size_t> allocated_bytes{0};

struct counts {
  std::size_t number;
  std::size_t bytes;
};
/// What f takes.
template <class F>
counts count(F&& f) {
  const std::size_t number = allocations;
  const std::size_t bytes = allocated_bytes;
  std::forward<F>(f)();
  return {allocations - number, allocated_bytes - bytes};
}

inline void* counted_or_null(std::size_t size, std::size_t alignment) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  allocated_bytes.fetch_add(size, std::memory_order_relaxed);
  return alignment <= alignof(std::max_align_t)
             ? std::malloc(size == 0 ? 1 : size)
             : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
inline void* counted(std::size_t size, std::size_t alignment) {
  if (void* p = counted_or_null(size, alignment)) return p;
  throw std::bad_alloc();
}
}  // namespace posenc_test

// Not inlined: g++ warns of new and free where it sees both sides of a pair.
[[gnu::noinline]] void* operator new(std::size_t size) { return posenc_test::counted(size, 1); }
[[gnu::noinline]] void* operator new[](std::size_t size) { return posenc_test::counted(size, 1); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t a) {
  return posenc_test::counted(size, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void* operator new[](std::size_t size, std::align_val_t a) {
  return posenc_test::counted(size, static_cast<std::size_t>(a));
}
// Temporary buffers of the standard library come from these; under a sanitizer its own ones would not match free.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return posenc_test::counted_or_null(size, 1);
}
[[gnu::noinline]] void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return posenc_test::counted_or_null(size, 1);
}
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
