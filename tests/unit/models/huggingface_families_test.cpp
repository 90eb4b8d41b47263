// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/models/huggingface_families.hpp>

#include "support/catch.hpp"

#include <set>

using namespace posenc::models::detail;

TEST_CASE("families: each name stands once, is found, and has defaults that are an object") {
  std::set<std::string_view> names;
  for (const family& f : families) {
    REQUIRE(f.names[0]);
    CAPTURE(f.names[0]);
    for (const char* name : f.names) {
      if (!name) continue;
      CHECK(names.insert(name).second);
      CHECK(family_of(name) == &f);
    }
    CHECK(json::parse(f.defaults).is_object());
    // Sections and trailing blocks are said of families that rotate.
    CHECK((f.rotation != rotates::no || (f.rope.axes == axis_rule::none && !f.trailing_block)));
  }
  for (const char* none : {"", "llam", "LLAMA", "llama5"}) CHECK(family_of(none) == nullptr);
}

TEST_CASE("families: layouts and axes of well-known models") {
  using posenc::half_split;
  using posenc::interleaved;
  for (const char* name :
       {"llama", "mistral", "qwen2", "qwen3", "gemma3", "phi", "phi3", "gpt_neox", "gpt_oss", "stablelm"})
    CHECK(family_of(name)->rope.layout == half_split);
  for (const char* name : {"llama4", "gptj", "cohere", "cohere2", "glm4", "deepseek_v2", "deepseek_v3", "ernie4_5"})
    CHECK(family_of(name)->rope.layout == interleaved);
  CHECK(family_of("qwen2_5_vl")->rope.axes == axis_rule::chunked);
  CHECK(family_of("qwen3_vl")->rope.axes == axis_rule::interleaved);
  CHECK(family_of("ernie4_5_vl")->rope.axes == axis_rule::alternating_hw);
}
