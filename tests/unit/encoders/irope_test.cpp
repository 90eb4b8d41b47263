// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/encoders/irope.hpp>

using posenc::rope_schedule;
using posenc_test::refusal;

namespace {
std::vector<std::int64_t> layers_without_rope(const rope_schedule& s) {
  std::vector<std::int64_t> out;
  for (std::int64_t l = 0; l < s.layers(); ++l)
    if (!s.uses_rope(l)) out.push_back(l);
  return out;
}
}  // namespace

TEST_CASE("rope schedule: by interval", "[irope]") {
  CHECK(layers_without_rope(rope_schedule::every(4, 16)) == std::vector<std::int64_t>{3, 7, 11, 15});
  CHECK(layers_without_rope(rope_schedule::every(4, 3)).empty());
  CHECK(layers_without_rope(rope_schedule::every(1, 3)) == std::vector<std::int64_t>{0, 1, 2});
  CHECK(layers_without_rope(rope_schedule::every(2, 5)) == std::vector<std::int64_t>{1, 3});
  CHECK(rope_schedule::every(4, 0).layers() == 0);
  CHECK(refusal([] { (void)rope_schedule::every(0, 4); }) ==
        "posenc::rope_schedule: interval must be at least 1, got 0");
  CHECK(refusal([] { (void)rope_schedule::every(4, -1); }) ==
        "posenc::rope_schedule: layers must not be negative, got -1");
}

TEST_CASE("rope schedule: a list holds 1 where RoPE is used", "[irope]") {
  const std::vector<int> list{0, 1, 1, 0, 2};
  CHECK(layers_without_rope(rope_schedule::listed(list, 5)) == std::vector<std::int64_t>{0, 3});
  // The list wins over the interval; an empty one means the interval.
  CHECK(layers_without_rope(rope_schedule::listed(list, 5, 1)) == std::vector<std::int64_t>{0, 3});
  CHECK(layers_without_rope(rope_schedule::listed({}, 8)) == std::vector<std::int64_t>{3, 7});
  CHECK(layers_without_rope(rope_schedule::listed({}, 6, 3)) == std::vector<std::int64_t>{2, 5});
  CHECK(refusal([&] { (void)rope_schedule::listed(list, 6); }) ==
        "posenc::rope_schedule: uses_rope must list every layer, got 5");
}

TEST_CASE("rope schedule: a layer the model does not have", "[irope]") {
  const auto s = rope_schedule::every(4, 8);
  CHECK(refusal<std::out_of_range>([&] { (void)s.uses_rope(8); }) ==
        "posenc::rope_schedule::uses_rope: layer must lie in 0..7, got 8");
  CHECK(refusal<std::out_of_range>([&] { (void)s.uses_rope(-1); }) ==
        "posenc::rope_schedule::uses_rope: layer must lie in 0..7, got -1");
}
