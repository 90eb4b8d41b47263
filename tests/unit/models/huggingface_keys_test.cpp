// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/models/huggingface_keys.hpp>

#include "support/catch.hpp"

#include <cstdint>

using posenc::models::detail::config_object;
using posenc::models::detail::json;
using posenc_test::contains;

TEST_CASE("huggingface keys: the first name that is present, defaults last") {
  const json given = {{"a", 4}, {"null", nullptr}, {"in", {{"x", 1.5}}}};
  const json defaults = {{"b", 7}, {"null", 9}, {"a", 1}, {"in", {{"y", 2.0}}}};
  const config_object c(&given, &defaults, "");
  CHECK((c.integer({"z", "a"}) == 4 && c.integer({"b"}) == 7 && !c.integer({"z"})));
  // null says that there is none: the default stays away.
  CHECK((!c.integer({"null"}) && !c.says("null") && c.says("a") && !c.says("b")));
  const auto in = c.object("in");
  REQUIRE(in);
  CHECK((in->path() == "in." && in->number({"x"}) == 1.5 && in->number({"y"}) == 2.0));
  CHECK(!c.object("none"));
}

TEST_CASE("huggingface keys: names of one thing must agree") {
  const json given = {{"n_head", 4}, {"num_heads", 4}, {"n_layer", 2}, {"num_layers", 3}};
  const config_object c(&given, nullptr, "text_config.");
  CHECK(c.count({"n_head", "num_heads"}) == 4);
  CHECK_THROWS_WITH(c.count({"n_layer", "num_layers"}),
                    contains("text_config.num_layers must agree with text_config.n_layer = 2, got 3"));
}

TEST_CASE("huggingface keys: types and ranges, by path") {
  const json given = {{"i", 3},           {"f", 2.5},           {"s", "text"},    {"yes", true},
                      {"zero", 0},        {"far", 1e300},       {"list", {1, 2}}, {"mixed", {1, "two"}},
                      {"part", {1, 2.5}}, {"names", {"u", "v"}}};
  const config_object c(&given, nullptr, "rope_scaling.");
  CHECK((c.number({"i"}) == 3.0 && c.positive("f") == 2.5 && c.text({"s"}) == "text"));
  CHECK((c.flag({"yes"}) && !c.flag({"zero"}) && c.flag({"i"}) && c.flag({"none"}, true)));
  CHECK(c.list<std::int64_t>({"list"}) == std::vector<std::int64_t>{1, 2});
  CHECK(c.list<std::string>({"names"}) == std::vector<std::string>{"u", "v"});
  CHECK(c.list<double>({"part"}) == std::vector<double>{1, 2.5});
  CHECK_THROWS_WITH(c.integer({"f"}),
                    contains("posenc::models::from_huggingface: rope_scaling.f must be a whole number"));
  CHECK_THROWS_WITH(c.integer({"far"}), contains("rope_scaling.far must be a whole number"));
  CHECK_THROWS_WITH(c.number({"s"}), contains("rope_scaling.s must be a number"));
  CHECK_THROWS_WITH(c.positive("zero"), contains("rope_scaling.zero must be positive"));
  CHECK_THROWS_WITH(c.flag({"s"}), contains("rope_scaling.s must be true or false"));
  CHECK_THROWS_WITH(c.text({"i"}), contains("rope_scaling.i must be a string"));
  CHECK_THROWS_WITH(c.object("i"), contains("rope_scaling.i must be an object"));
  CHECK_THROWS_WITH(c.list<double>({"i"}), contains("rope_scaling.i must be a list"));
  CHECK_THROWS_WITH(c.list<double>({"mixed"}), contains("rope_scaling.mixed must list numbers"));
  CHECK_THROWS_WITH(c.list<int>({"part"}), contains("rope_scaling.part must list whole numbers"));
  CHECK_THROWS_WITH(c.list<std::string>({"list"}), contains("rope_scaling.list must list strings"));
  CHECK_THROWS_WITH(c.count({"none"}), contains("rope_scaling.none must be given"));
  CHECK_THROWS_WITH(c.count({"zero"}), contains("rope_scaling.zero must be at least 1"));
  CHECK_THROWS_WITH(c.count({"i"}, 2), contains("rope_scaling.i must be at most 2"));
}
