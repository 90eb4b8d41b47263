// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What a GGUF file says through its architecture's name alone: where positions enter, how pairs lie, which layers have
/// a window or no rotation, norms of queries and keys. Engines keep these facts in code, so a reader must too.
/// Source   llama.cpp's table of rotary types and its loaders.

#include <array>
#include <cstdint>
#include <string_view>

namespace posenc::models {

/// Where positions enter a model.
enum class gguf_positions : std::uint8_t {
  /// Not at all (recurrent layers carry order).
  none,
  /// A table of learned embeddings.
  learned,
  alibi,
  /// T5's relative buckets.
  buckets,
  /// Rotation of pairs (2i, 2i + 1); the converter permutes Llama's weights for it.
  normal,
  /// Rotation of pairs (i, i + r / 2).
  neox,
  /// The same, with axes by consecutive sections.
  mrope,
  /// The same, with axes dealt out in turn.
  imrope
};

enum class gguf_norm : std::uint8_t {
  none,
  /// RMS over each head, with gain, before the rotation.
  before,
  /// The same after it.
  after,
  /// RMS over all heads at once, with gain, before the rotation.
  over_all_heads,
  /// RMS over each head without gain, after the rotation and only on layers that have one.
  plain_after
};

/// Layers with a window among layers without.
struct gguf_window {
  /// Every n-th layer sees everything; 0: all layers have the window.
  std::int64_t full_every = 0;
  /// The full layer is the first of its n, not the last.
  bool full_first = false;
  /// Width where the key is absent; 0: no window.
  std::int64_t width = 0;
  /// Frequencies of layers with a window are not scaled, and have this base where the key is absent (0: the base of
  /// the others).
  bool unscaled = false;
  double base = 0;
  /// Only layers with a window are rotated.
  bool rotated_only = false;
};

struct gguf_architecture {
  std::string_view name;
  gguf_positions positions = gguf_positions::none;
  gguf_norm norm = gguf_norm::none;
  gguf_window window{};
  /// Every n-th layer has no rotation; 0: all have one.
  std::int64_t no_rope_every = 0;
  bool encoder = false;
};

namespace detail {

inline constexpr auto gguf_architectures = [] {
  using enum gguf_positions;
  using a = gguf_architecture;
  constexpr auto before = gguf_norm::before;
  constexpr gguf_window gemma3{.full_every = 6, .unscaled = true, .base = 10000};
  constexpr gguf_window gemma3n{.full_every = 5, .unscaled = true, .base = 10000};
  constexpr gguf_window modern_bert{.full_every = 3, .full_first = true, .width = 128, .unscaled = true, .base = 10000};
  return std::array{
      // A table, a bias, or nothing.
      a{"gpt2", learned}, a{"starcoder", learned}, a{.name = "bert", .positions = learned, .encoder = true},
      a{"bloom", alibi}, a{"mpt", alibi}, a{"refact", alibi}, a{"jais", alibi},
      a{.name = "jina-bert-v2", .positions = alibi, .encoder = true}, a{"t5", buckets},
      a{.name = "t5encoder", .positions = buckets, .encoder = true}, a{"jamba"}, a{"nemotron_h"},
      // Pairs of neighbours.
      a{"llama", normal}, a{"llama4", normal, gguf_norm::plain_after, {.full_every = 4, .width = 8192}, 4},
      a{"deci", normal}, a{"baichuan", normal}, a{"internlm2", normal}, a{"minicpm", normal}, a{"xverse", normal},
      a{"command-r", normal}, a{"cohere2", normal, {}, {.full_every = 4, .width = 4096, .rotated_only = true}},
      a{"olmo", normal}, a{"arctic", normal}, a{"deepseek", normal}, a{"deepseek2", normal}, a{"plm", normal},
      a{"chatglm", normal}, a{"glm4", normal}, a{"granite", normal}, a{"granitemoe", normal},
      a{"granitehybrid", normal}, a{"bailingmoe", normal}, a{.name = "neo-bert", .positions = normal, .encoder = true},
      a{.name = "smollm3", .positions = normal, .no_rope_every = 4}, a{"arcee", normal}, a{"ernie4_5", normal},
      a{"ernie4_5-moe", normal}, a{"mistral3", normal}, a{"llada", normal}, a{"gptj", normal},
      // Halves.
      a{"falcon", neox}, a{"falcon-h1", neox}, a{"dbrx", neox},
      a{.name = "nomic-bert", .positions = neox, .encoder = true},
      a{.name = "nomic-bert-moe", .positions = neox, .encoder = true},
      a{.name = "jina-bert-v3", .positions = neox, .encoder = true},
      a{.name = "eurobert", .positions = neox, .encoder = true},
      a{.name = "modern-bert", .positions = neox, .window = modern_bert, .encoder = true}, a{"stablelm", neox},
      a{"bitnet", neox}, a{"qwen", neox}, a{"qwen2", neox}, a{"dream", neox}, a{"qwen2moe", neox},
      a{"qwen3", neox, before}, a{"qwen3moe", neox, before}, a{"rnd1", neox, before}, a{"llada-moe", neox, before},
      a{"olmo2", neox, gguf_norm::over_all_heads, {.full_every = 4, .unscaled = true}},
      a{"olmoe", neox, gguf_norm::over_all_heads}, a{"phi2", neox}, a{"phi3", neox}, a{"phimoe", neox},
      a{"plamo", neox}, a{"gemma", neox}, a{"gemma2", neox, {}, {.full_every = 2, .width = 4096}},
      a{"gemma3", neox, before, gemma3}, a{"gemma3n", neox, before, gemma3n}, a{"gemma4", neox, before, gemma3},
      a{.name = "gemma-embedding", .positions = neox, .norm = before, .window = gemma3, .encoder = true},
      a{"starcoder2", neox}, a{"openelm", neox, before}, a{"gptneox", neox}, a{"codeshell", neox}, a{"orion", neox},
      a{"nemotron", neox}, a{"exaone", neox}, a{"exaone4", neox, before, {.full_every = 4, .rotated_only = true}},
      a{"minicpm3", neox}, a{"bailingmoe2", neox, before}, a{"dots1", neox, before},
      a{"hunyuan-moe", neox, gguf_norm::after}, a{"hunyuan-dense", neox, gguf_norm::after},
      a{"gpt-oss", neox, {}, {.full_every = 2}},
      a{"smallthinker", neox, {}, {.full_every = 4, .full_first = true, .width = 4096}, 4}, a{"glm4moe", neox},
      a{"seed_oss", neox}, a{"grovemoe", neox, before}, a{"apertus", neox, before}, a{"lfm2", neox, before},
      a{"minimax-m2", neox, gguf_norm::over_all_heads},
      // Several axes.
      a{"qwen2vl", mrope}, a{"paddleocr", mrope}, a{"qwen3vl", imrope, before}, a{"qwen3vlmoe", imrope, before},
      a{"qwen35", imrope, before}, a{"qwen35moe", imrope, before}};
}();

}  // namespace detail

/// Null for a name that is not in the table.
[[nodiscard]] inline const gguf_architecture* find_gguf_architecture(std::string_view name) noexcept {
  for (const gguf_architecture& a : detail::gguf_architectures)
    if (a.name == name) return &a;
  return nullptr;
}

}  // namespace posenc::models
