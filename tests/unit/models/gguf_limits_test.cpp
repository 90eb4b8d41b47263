// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Values a file may not hold, each refused with its key, and the fourth coordinate of IMROPE.
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"
#include "unit/models/gguf_file.hpp"
#include "unit/models/readers.hpp"

#include <array>
#include <string>
#include <vector>

namespace {

using posenc_test::contains;
using posenc_test::from_gguf;
using posenc_test::gguf_file;
using posenc_test::refusal;

gguf_file small(const std::string& architecture) {
  return {architecture,
          {{"block_count", 2},
           {"context_length", 4096},
           {"embedding_length", 64},
           {"attention.head_count", 4},
           {"attention.head_count_kv", 2}}};
}
std::string refused(const gguf_file& file) {
  return refusal([&] { (void)from_gguf(file); });
}

}  // namespace

TEST_CASE("gguf: what the rotation refuses is refused by key and layer", "[gguf]") {
  const auto yarn = small("llama").with("rope.scaling.type", "yarn").with("rope.scaling.factor", 4);
  CHECK(contains("posenc::models::from_gguf: llama.rope.* (layer 0): posenc::")
            .match(refused(yarn.with("rope.scaling.yarn_beta_fast", -1))));
  CHECK(contains("llama.rope.* (layer 0): posenc::rope: attention_factor")
            .match(refused(small("llama").with("rope.scaling.attn_factor", -1))));
  CHECK(refused(small("llama").with("rope.freq_base", 0)) ==
        "posenc::models::from_gguf: llama.rope.freq_base must be positive, got 0");
  CHECK(refused(small("gemma3").with("attention.sliding_window", 8).with("rope.freq_base_swa", -5)) ==
        "posenc::models::from_gguf: gemma3.rope.freq_base_swa must be positive, got -5");
}

TEST_CASE("gguf: scores, norms and sizes have their ranges", "[gguf]") {
  CHECK(refused(small("llama").with("attn_logit_softcapping", -1)) ==
        "posenc::models::from_gguf: llama.attn_logit_softcapping must not be negative, got -1");
  CHECK(refused(small("qwen3").with("attention.layer_norm_rms_epsilon", 0)) ==
        "posenc::models::from_gguf: qwen3.attention.layer_norm_rms_epsilon must be positive, got 0");
  CHECK(refused(small("llama").with("attention.scale", -0.5)) ==
        "posenc::models::from_gguf: llama.attention.scale must be positive, got -0.5");
  CHECK(refused(small("bloom").with("attention.max_alibi_bias", -8)) ==
        "posenc::models::from_gguf: bloom.attention.max_alibi_bias must be positive, got -8");
  CHECK(refused(small("llama").with("block_count", 100001)) ==
        "posenc::models::from_gguf: llama.block_count must be at most 100000, got 100001");
  CHECK(refused(small("bloom").with("attention.head_count", 1e12)) ==
        "posenc::models::from_gguf: bloom.attention.head_count must be at most 100000, got 1000000000000");
  CHECK(refused(small("llama").with("attention.key_length", 1e12)) ==
        "posenc::models::from_gguf: llama.attention.key_length must be at most 1048576, got 1000000000000");
  CHECK(refused(small("llama").with("embedding_length", 4e12)) ==
        "posenc::models::from_gguf: llama.embedding_length must be at most 2^20 per head, got 4000000000000");
  // 2^62 twice and more: their sum does not fit.
  CHECK(contains("qwen2vl.rope.dimension_sections must")
            .match(refused(small("qwen2vl").with("rope.dimension_sections", std::vector<double>(4, 0x1p53)))));
}

TEST_CASE("gguf: pairs of IMROPE beyond the sections take a fourth coordinate, which text gives as 0", "[gguf]") {
  auto file = small("qwen3vl");
  file = file.with("attention.key_length", 128).with("rope.dimension_sections", std::vector{24, 20, 20, 0});
  const auto turned = [](const posenc::models::model& m, const posenc::positions& at) {
    std::vector<float> x(128, 1.0f);
    m.rotation(0)->rotate(posenc::view(x.data(), {.tokens = 1, .dim = 128}), at);
    return x;
  };
  const std::array<std::int64_t, 4> text{3000, 3000, 3000, 0};
  const auto four = posenc::positions::axes(text, 4);
  const auto run = from_gguf(file, {.meaning = posenc::models::gguf_meaning::llama_cpp});
  const auto published = from_gguf(file);
  const auto as_run = turned(run, four);
  // Channels 61, 62 and their partners 125, 126 stay; the other pairs are those of the published model.
  const auto plain = turned(published, posenc::positions::from(3000));
  for (std::size_t i = 0; i < 128; ++i) CHECK(as_run[i] == (i % 64 == 61 || i % 64 == 62 ? 1.0f : plain[i]));
  // One coordinate stands on all four axes and turns those pairs, too.
  CHECK(turned(run, posenc::positions::from(3000)) == plain);
  CHECK(plain[61] != 1.0f);
}
