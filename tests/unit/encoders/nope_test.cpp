// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/policy.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/rope.hpp>

#include <cstring>
#include <limits>
#include <type_traits>

using posenc::positions;

TEST_CASE("nope has no hook and no state", "[nope]") {
  using posenc::nope;
  STATIC_REQUIRE(std::is_empty_v<nope>);
  STATIC_REQUIRE(!posenc::has_row<nope, float, posenc::contiguous_keys>);
  STATIC_REQUIRE(!posenc::has_transform_q<nope, float>);
  STATIC_REQUIRE(!posenc::has_transform_k<nope, float>);
  STATIC_REQUIRE(!posenc::has_query_scale<nope>);
  STATIC_REQUIRE(!posenc::has_allow_positions<nope>);
  STATIC_REQUIRE(!posenc::has_allow_index<nope>);
  STATIC_REQUIRE(!posenc::has_sink<nope>);
  STATIC_REQUIRE(!posenc::has_bind<nope>);
  STATIC_REQUIRE(nope::traits.site == posenc::site::none);
  STATIC_REQUIRE(nope::traits.relation == posenc::relation::none);
  CHECK(nope::describe().parameters == 0);
  CHECK(nope::describe().table_bytes == 0);
  CHECK(nope::describe().shift == posenc::cache_shift::keep_keys);
}

TEST_CASE("rotate leaves every bit alone where the encoder does not rotate", "[nope]") {
  constexpr float odd_values[] = {0.0f,
                                  -0.0f,
                                  std::numeric_limits<float>::denorm_min(),
                                  std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::quiet_NaN(),
                                  1e30f};
  std::vector<float> x(std::begin(odd_values), std::end(odd_values));
  const auto before = x;
  const posenc::view v{x.data(), {.tokens = 3, .dim = 2}};
  posenc::rotate(posenc::nope{}, v, positions::from(77));
  CHECK(std::memcmp(x.data(), before.data(), sizeof odd_values) == 0);
  posenc::rotate(posenc::alibi<float>{4}, v, positions::from(77));
  CHECK(std::memcmp(x.data(), before.data(), sizeof odd_values) == 0);
}

TEST_CASE("rotate turns by an encoder that rotates", "[nope]") {
  const posenc::rope<float> r{{.head_dim = 4}};
  auto x = posenc_test::values<float>(12);
  auto y = x;
  posenc::rotate(r, posenc::view{x.data(), {.tokens = 3, .dim = 4}}, positions::from(5));
  r.rotate(posenc::view{y.data(), {.tokens = 3, .dim = 4}}, positions::from(5));
  CHECK(x == y);
  CHECK(x != posenc_test::values<float>(12));
  // Without positions: from 0.
  auto z = posenc_test::values<float>(12);
  posenc::rotate(r, posenc::view{z.data(), {.tokens = 3, .dim = 4}});
  CHECK(std::equal(z.begin(), z.begin() + 4, posenc_test::values<float>(12).begin()));
}
