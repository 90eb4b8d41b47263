// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/encoders/rope.hpp>
#include <posenc/models/gguf_rope.hpp>

#include "support/catch.hpp"
#include "unit/models/gguf_file.hpp"

#include <variant>

using namespace posenc::models;
using posenc_test::contains;
using posenc_test::gguf_file;

namespace {
posenc::rope_options read(const gguf_file& file, const gguf_options& options = {}, bool window = false,
                          std::int64_t dim = 64) {
  const gguf_keys keys(file);
  return posenc::models::detail::gguf_rotation(keys, *find_gguf_architecture(keys.architecture()), options)
      .options(dim, window);
}
}  // namespace

TEST_CASE("gguf rope: the block and its base") {
  const auto o = read(gguf_file("llama", {{"rope.dimension_count", 32}, {"rope.freq_base", 5e5}}));
  CHECK((o.head_dim == 64 && o.rotary_dim == 32 && o.offset == 0 && o.base == 5e5));
  CHECK(o.layout == posenc::interleaved);
  CHECK(std::holds_alternative<posenc::no_scaling>(o.scaling));
  CHECK((read(gguf_file("qwen2", {})).rotary_dim == 64 && read(gguf_file("qwen2", {})).base == 10000));
  // Latent attention rotates the channels behind the others.
  CHECK(read(gguf_file("deepseek2", {{"attention.kv_lora_rank", 512}, {"rope.dimension_count", 16}})).offset == 48);
  const gguf_file gemma("gemma3",
                        {{"rope.freq_base", 1e6}, {"rope.scaling.type", "linear"}, {"rope.scaling.factor", 8}});
  CHECK((read(gemma).base == 1e6 && std::get<posenc::linear>(read(gemma).scaling).factor == 8));
  CHECK((read(gemma, {}, true).base == 10000 && read(gemma, {}, true).scaling.index() == 0));
  for (const int bad : {0, 3, 66})
    CHECK_THROWS_WITH(
        read(gguf_file("llama", {{"rope.dimension_count", bad}})),
        contains("llama.rope.dimension_count must be even and within the head, got " + std::to_string(bad)));
  CHECK_THROWS_WITH(read(gguf_file("llama", {{"rope.freq_base", 0}})),
                    contains("llama.rope.freq_base must be positive"));
}

TEST_CASE("gguf rope: YaRN, its magnitudes, and where llama.cpp departs") {
  const gguf_file file(
      "qwen2",
      {{"rope.scaling.type", "yarn"}, {"rope.scaling.factor", 4}, {"rope.scaling.original_context_length", 32768}});
  const auto y = std::get<posenc::yarn>(read(file).scaling);
  CHECK((y.factor == 4 && y.original_max_position_embeddings == 32768 && y.beta_fast == 32 && y.beta_slow == 1));
  CHECK((y.truncate && y.inverted_range == posenc::yarn_inverted_range::hugging_face));
  CHECK(std::get<posenc::yarn>(read(file, {.meaning = gguf_meaning::llama_cpp}).scaling).inverted_range ==
        posenc::yarn_inverted_range::ggml);
  const double own = 1 + 0.1 * std::log(4.0);
  CHECK(posenc::rope<double>(read(file)).magnitude() == Approx(own));
  CHECK(posenc::rope<double>(read(file.with("rope.scaling.attn_factor", 0.5))).magnitude() == Approx(own / 2));
  CHECK(posenc::rope<double>(read(file.with("rope.scaling.yarn_attn_factor", 0.75))).magnitude() == 0.75);
  CHECK_THROWS_WITH(read(file.with("rope.scaling.type", "ntk")),
                    contains("qwen2.rope.scaling.type must be none, linear, yarn or longrope, got ntk"));
  CHECK_THROWS_WITH(read(file.with("rope.scaling.factor", -1)),
                    contains("qwen2.rope.scaling.factor must not be negative"));
}

TEST_CASE("gguf rope: tensors of factors and sections of axes") {
  const std::vector<float> divisors(32, 2.0f);
  const std::vector<float> few(3, 2.0f);
  CHECK(read(gguf_file("llama", {}), {.rope_freqs = divisors}).freq_factors == std::vector<double>(32, 2.0));
  CHECK_THROWS_WITH(read(gguf_file("llama", {}), {.rope_freqs = few}),
                    contains("rope_freqs.weight must list one divisor per pair, got 3"));
  const gguf_file phi("phi3", {{"context_length", 131072}, {"rope.scaling.original_context_length", 4096}});
  const auto l =
      std::get<posenc::longrope>(read(phi, {.rope_factors_short = divisors, .rope_factors_long = divisors}).scaling);
  CHECK((l.original_max_position_embeddings == 4096 && l.max_position_embeddings == 131072));
  CHECK_THROWS_WITH(read(phi, {.rope_factors_short = few, .rope_factors_long = divisors}),
                    contains("rope_factors_short.weight must list one divisor per pair, got 3"));
  const auto sections = [](std::vector<int> s) { return gguf_file("qwen2vl", {{"rope.dimension_sections", s}}); };
  CHECK(read(sections({8, 12, 12, 0})).axes.pairs == posenc::rope_axes::chunked({8, 12, 12}).pairs);
  for (const auto& bad : {std::vector<int>{8, 12}, {8, 12, 11, 0}, {-8, 28, 12, 0}})
    CHECK_THROWS_WITH(read(sections(bad)), contains("qwen2vl.rope.dimension_sections must"));
}
