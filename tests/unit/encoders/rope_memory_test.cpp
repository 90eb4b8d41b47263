// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// This file replaces the global operator new of the program to count what rotations take: nothing.
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rerotate.hpp>
#include <posenc/encoders/rope_table.hpp>
#include <posenc/encoders/xpos.hpp>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::size_t> allocations{0};

void* counted(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
}  // namespace

// Not inlined: g++ warns of new and free where it sees both sides of a pair.
[[gnu::noinline]] void* operator new(std::size_t size) { return counted(size); }
[[gnu::noinline]] void* operator new[](std::size_t size) { return counted(size); }
// Temporary buffers of the standard library come from these; under a sanitizer its own ones would not match free.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

namespace {

using posenc::positions;
using posenc::view;

/// Allocations of every verb on data of type T.
template <class T>
std::size_t taken(posenc::rope_layout layout, posenc::angle_mode mode) {
  posenc::rope_options o{.head_dim = 300, .layout = layout, .angles = mode};
  if (layout == posenc::half_split_in_blocks) o.axes.block_dims = {100, 200};
  const posenc::rope<float> r{o};
  const auto table = r.table(0, 16);
  std::vector<T> x;
  for (const float value : posenc_test::values<float>(3 * 2 * 300)) x.emplace_back(value);
  auto y = x;
  const view in{x.data(), {.tokens = 3, .heads = 2, .dim = 300}};
  const view out{y.data(), in.extents()};
  const std::size_t before = allocations;
  r.rotate(in, positions::from(5));
  r.rotate_to(in, out, positions::from(5));
  r.adjoint(in, positions::from(5));
  table.rotate(in, positions::from(5));
  if (r.shift_refusal().empty()) {
    r.inverse(in, positions::from(5));
    r.shift(in, 7);
    posenc::rerotate(in, positions::from(5), r, positions::from(9), r);
  }
  return allocations - before;
}

}  // namespace

TEMPLATE_TEST_CASE("rope allocates nothing once it is made", "[rope][memory]", float, double, Eigen::half) {
  for (const auto mode : {posenc::angle_mode::exact, posenc::angle_mode::float32, posenc::angle_mode::ggml_recurrence})
    for (const auto layout : {posenc::half_split, posenc::interleaved, posenc::interleaved_in_half_out,
                              posenc::vjepa2_mixed, posenc::half_split_in_blocks}) {
      CAPTURE(mode, layout);
      CHECK(taken<TestType>(layout, mode) == 0);
    }
}

TEST_CASE("xpos allocates nothing once it is made", "[xpos][memory]") {
  const posenc::xpos<float> e{{.head_dim = 300}};
  auto x = posenc_test::values<float>(3 * 300);
  const view v{x.data(), {.tokens = 3, .dim = 300}};
  const std::size_t before = allocations;
  e.rotate_queries(v, positions::from(5));
  e.rotate_keys(v, positions::from(5));
  e.shift(v, 7);
  CHECK(allocations == before);
  // The count counts.
  const std::vector<float> more(3);
  CHECK(allocations == before + 1);
}
