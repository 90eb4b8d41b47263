// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What rotations allocate: nothing.
#include "support/catch.hpp"
#include "support/count_allocations.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rerotate.hpp>
#include <posenc/encoders/rope_table.hpp>
#include <posenc/encoders/xpos.hpp>

namespace {

using posenc::positions;
using posenc::view;
using posenc_test::allocations;

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
  // Checks allocate too, so nothing is checked before the count ends.
  const auto rotations = posenc_test::count([&] {
    e.rotate_queries(v, positions::from(5));
    e.rotate_keys(v, positions::from(5));
    e.shift(v, 7);
  });
  CHECK(rotations.number == 0);
  // The count counts. (A compiler may leave out the memory of a container, but not this call.)
  CHECK(posenc_test::count([] { ::operator delete(::operator new(16)); }).number == 1);
}
