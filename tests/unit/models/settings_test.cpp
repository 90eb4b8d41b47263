// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/models/settings.hpp>

#include "support/catch.hpp"

using namespace posenc::models;

TEST_CASE("settings: what is left out means plain causal attention without positions") {
  const layer_settings l;
  CHECK((l.causal && !l.rotation && !l.window && !l.both_sides && !l.chunk && !l.temperature && !l.log_scaled_from));
  CHECK((l.softcap == 0 && l.logit_multiplier == 1 && !l.sinks && l.norm.place == norm_place::none));
  const model_settings m;
  CHECK((m.layers.empty() && m.bias.kind == bias_kind::none && m.bias.scale == 1 && !m.stepped));
  CHECK((m.embedding.kind == embedding_kind::none && m.embedding.ids == id_rule::sequential));
}

TEST_CASE("settings: a refusal gets the key in front, a result passes through") {
  CHECK(posenc::models::detail::named("f", "key", [] { return 7; }) == 7);
  int seven = 7;
  CHECK(&posenc::models::detail::named("f", "key", [&]() -> int& { return seven; }) == &seven);
  const auto refuse = [] { posenc::detail::invalid("rope", "base", "must be positive", 0); };
  CHECK_THROWS_AS(posenc::models::detail::named("models::f", "llama.rope", refuse), std::invalid_argument);
  CHECK_THROWS_WITH(posenc::models::detail::named("models::f", "llama.rope", refuse),
                    "posenc::models::f: llama.rope: posenc::rope: base must be positive, got 0");
  // What is no refusal is left alone.
  CHECK_THROWS_AS(posenc::models::detail::named("f", "key", [] { throw std::out_of_range("x"); }), std::out_of_range);
}
