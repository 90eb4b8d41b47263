// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/traits.hpp>

#include "support/catch.hpp"

#include <set>
#include <string_view>

using posenc::to_string;

TEST_CASE("traits: every value has words of its own", "[core][traits]") {
  using posenc::cache_shift;
  using posenc::origin;
  using posenc::relation;
  using posenc::site;
  CHECK(to_string(site::none) == "nowhere");
  CHECK(to_string(site::input) == "input embedding");
  CHECK(to_string(site::query_key) == "query and key");
  CHECK(to_string(site::logit) == "logit");
  CHECK(to_string(relation::none) == "none");
  CHECK(to_string(relation::absolute) == "absolute");
  CHECK(to_string(relation::relative) == "relative");
  CHECK(to_string(origin::designed) == "designed");
  CHECK(to_string(origin::learned) == "learned");
  const std::set<std::string_view> shifts{to_string(cache_shift::rotate_keys), to_string(cache_shift::keep_keys),
                                          to_string(cache_shift::recompute_keys)};
  CHECK(shifts.size() == 3);
  CHECK(!shifts.contains(""));
}

TEST_CASE("traits: a description claims nothing by default", "[core][traits]") {
  constexpr posenc::encoder_description d;
  STATIC_REQUIRE(!d.position_limit.has_value());
  STATIC_REQUIRE(d.parameters == 0);
  STATIC_REQUIRE(d.table_bytes == 0);
  STATIC_REQUIRE(!d.monotone);
  STATIC_REQUIRE(d.shift == posenc::cache_shift::keep_keys);
}
