// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/models/gguf_keys.hpp>

#include "support/catch.hpp"
#include "unit/models/gguf_file.hpp"

using posenc::models::gguf_keys;
using posenc::models::gguf_value;
using posenc_test::contains;
using posenc_test::gguf_file;

TEST_CASE("gguf keys: values of every kind, below the architecture's name") {
  const gguf_keys k(
      gguf_file("llama", {{"a", 7}, {"b", 0.5}, {"c", true}, {"d", "yarn"}, {"e", std::vector<int>{4, 8}}}));
  CHECK(k.architecture() == "llama");
  CHECK(k.full("rope.freq_base") == "llama.rope.freq_base");
  CHECK((k.has("a") && !k.has("z")));
  CHECK((k.integer("a") == 7 && k.number("a") == 7.0 && k.integer("c") == 1));
  CHECK((k.number("b", 3) == 0.5 && k.number("z", 3) == 3 && k.integer("z", -1) == -1));
  CHECK((!k.number("z") && !k.integer("z") && !k.text("z")));
  CHECK((k.required("a") == 7 && k.text("d") == "yarn"));
  CHECK(k.array("e") == std::vector<std::int64_t>{4, 8});
  CHECK((k.array("a").empty() && k.array("z").empty()));
  CHECK(k.per_layer("a", 3, 0) == std::vector<std::int64_t>{7, 7, 7});
  CHECK(k.per_layer("z", 2, 5) == std::vector<std::int64_t>{5, 5});
  CHECK(k.per_layer("e", 1, 0) == std::vector<std::int64_t>{4});
}

TEST_CASE("gguf keys: every refusal names the key in full") {
  const gguf_keys k(gguf_file("t", {{"half", 0.5},
                                    {"huge", 1e17},
                                    {"nan", std::nan("")},
                                    {"text", "x"},
                                    {"list", std::vector<double>{1, 2.5}},
                                    {"two", std::vector<int>{1, 2}}}));
  CHECK_THROWS_WITH(k.integer("half"), contains("posenc::models::from_gguf: t.half must be an integer, got 0.5"));
  CHECK_THROWS_WITH(k.integer("huge"), contains("t.huge must be an integer"));
  CHECK_THROWS_WITH(k.number("nan"), contains("t.nan must be a finite number"));
  CHECK_THROWS_WITH(k.number("text"), contains("t.text must be a finite number"));
  CHECK_THROWS_WITH(k.text("half"), contains("t.half must be a text"));
  CHECK_THROWS_WITH(k.array("text"), contains("t.text must be an array of integers, got a text"));
  CHECK_THROWS_WITH(k.array("list"), contains("t.list must be an integer, got 2.5"));
  CHECK_THROWS_WITH(k.per_layer("two", 3, 0), contains("t.two must list every layer, got 2"));
  CHECK_THROWS_WITH(k.required("z"), contains("t.z must be given, got nothing"));
  using nothing = std::optional<gguf_value>;
  CHECK_THROWS_WITH(gguf_keys([](const std::string&) { return nothing{}; }),
                    contains("general.architecture must be a text, got nothing"));
  CHECK_THROWS_WITH(gguf_keys([](const std::string&) { return nothing{3}; }), contains("got another value"));
}
