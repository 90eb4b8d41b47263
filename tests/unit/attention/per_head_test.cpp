// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/bias.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/per_head.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/rope.hpp>

#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

namespace {

using namespace posenc_test;

const auto first_two = [](std::int64_t h) { return h < 2; };

}  // namespace

TEST_CASE("each head follows the part that was chosen for it") {
  const posenc::alibi<double> near(4);
  const posenc::alibi<double> far(std::vector<double>{1, 2, 3, 4});
  const posenc::per_head part(first_two, near, far);
  std::vector<double> both(4 * 3 * 5), one(both.size()), two(both.size());
  posenc::fill_bias<double>(part, 4, {}, 3, {}, 5, both);
  posenc::fill_bias<double>(near, 4, {}, 3, {}, 5, one);
  posenc::fill_bias<double>(far, 4, {}, 3, {}, 5, two);
  for (std::size_t x = 0; x < both.size(); ++x) CHECK(both[x] == (x < 2 * 15 ? one[x] : two[x]));
  CHECK(part.heads() == 4);
}

TEST_CASE("masks, query scales and transforms are those of the chosen part") {
  const posenc::per_head masks(first_two, posenc::sliding_window(2), posenc::nope{});
  CHECK(masks.allow_positions({.head = 1, .query_position = 7})[0] == posenc::interval{6, 8});
  CHECK(masks.allow_positions({.head = 2, .query_position = 7})[0] == posenc::interval{});
  const posenc::per_head prefix(first_two, posenc::prefix_lm(3), posenc::causal{});
  CHECK(prefix.allow_positions({.head = 0, .query_position = 1})[0].hi == 3);
  CHECK(prefix.allow_positions({.head = 3, .query_position = 1})[0].hi == 2);
  const posenc::per_head scales(first_two, posenc::logit_scale(3), posenc::ssmax(2));
  CHECK(scales.query_scale(0, 0, 10) == 3);
  CHECK(scales.query_scale(3, 0, 1) == 0);
  STATIC_REQUIRE(decltype(scales)::needs_visible_keys);
  STATIC_REQUIRE(!decltype(masks)::needs_visible_keys);
  const posenc::rope<float> rope({.head_dim = 4});
  const posenc::per_head turns(first_two, posenc::nope{}, rope, 2);
  std::vector<float> x{1, 2, 3, 4}, y = x, z = x;
  turns.transform_q(x.data(), 4, 5, 1);
  CHECK(x == z);
  turns.transform_q(x.data(), 4, 5, 2);
  rope.transform_q(y.data(), 4, 5, 2);
  CHECK(x == y);
  x = z;
  turns.transform_k(x.data(), 4, 5, 0);  // key head 0 serves heads 0 and 1
  CHECK(x == z);
  turns.transform_k(x.data(), 4, 5, 1);
  CHECK(x == y);
}

TEST_CASE("per_head refuses what it cannot choose between") {
  const posenc::alibi<float> four(4);
  CHECK_THAT(refusal([&] { posenc::per_head(first_two, four, posenc::alibi<float>(8)); }), contains("heads"));
  CHECK_THAT(refusal([&] { posenc::per_head(first_two, four, posenc::nope{}, 0); }), contains("group"));
  const std::vector<float> x(4 * 4);
  std::vector<float> out(4 * 4);
  const auto attend = [&](const auto& part, std::int64_t kv_heads) {
    return refusal([&] {
      const posenc::view<const float> q(x.data(), {.tokens = 1, .heads = 4, .dim = 4});
      const posenc::view<const float> k(x.data(), {.tokens = 1, .heads = kv_heads, .dim = 4});
      posenc::attention_reference(q, k, k, posenc::view<float>(out.data(), {.tokens = 1, .heads = 4, .dim = 4}), part);
    });
  };
  const posenc::rope<float> rope({.head_dim = 4});
  CHECK(attend(posenc::per_head(first_two, four, rope, 2), 2) == "nothing thrown");
  CHECK_THAT(attend(posenc::per_head(first_two, four, rope, 2), 4), contains("group"));
  CHECK_THAT(attend(posenc::per_head(first_two, four, rope, 4), 1), contains("share a key head"));
  CHECK_THAT(attend(posenc::per_head(first_two, posenc::nope{}, posenc::alibi<float>(3)), 4), contains("heads"));
}
