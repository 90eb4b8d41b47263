// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/models/gguf_architectures.hpp>

#include "support/catch.hpp"

#include <set>

using namespace posenc::models;

TEST_CASE("gguf architectures: each stands once, and is found by its whole name") {
  std::set<std::string_view> names;
  for (const gguf_architecture& a : posenc::models::detail::gguf_architectures) {
    CAPTURE(a.name);
    CHECK(names.insert(a.name).second);
    CHECK(find_gguf_architecture(a.name) == &a);
  }
  for (const char* none : {"", "llam", "llama5", "Llama"}) CHECK(find_gguf_architecture(none) == nullptr);
}

TEST_CASE("gguf architectures: facts that hold together") {
  for (const gguf_architecture& a : posenc::models::detail::gguf_architectures) {
    CAPTURE(a.name);
    const bool rotates = a.positions >= gguf_positions::normal;
    // Norms, bases and layers without rotation are said of models that rotate.
    CHECK((rotates || (a.norm == gguf_norm::none && a.no_rope_every == 0 && a.window.base == 0)));
    CHECK((a.window.full_every >= 0 && a.window.full_every != 1 && a.no_rope_every != 1));
    CHECK((!a.window.rotated_only || a.window.full_every > 1));
    CHECK((!a.window.full_first || a.window.full_every > 1));
  }
}

TEST_CASE("gguf architectures: how pairs of well-known models lie") {
  const auto positions = [](const char* name) { return find_gguf_architecture(name)->positions; };
  for (const char* name : {"llama", "llama4", "deepseek2", "cohere2", "command-r", "gptj", "smollm3"})
    CHECK(positions(name) == gguf_positions::normal);
  for (const char* name :
       {"qwen2", "qwen3", "gemma2", "gemma3", "phi2", "phi3", "gptneox", "falcon", "stablelm", "gpt-oss"})
    CHECK(positions(name) == gguf_positions::neox);
  CHECK((positions("qwen2vl") == gguf_positions::mrope && positions("qwen3vl") == gguf_positions::imrope));
  CHECK((positions("bloom") == gguf_positions::alibi && positions("mpt") == gguf_positions::alibi));
  CHECK((positions("gpt2") == gguf_positions::learned && positions("t5") == gguf_positions::buckets));
}
