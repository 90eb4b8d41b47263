// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What the keys of a file come to. Calls of the public functions themselves: usage_test.cpp.
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"
#include "unit/models/gguf_file.hpp"
#include "unit/models/readers.hpp"

#include <posenc/models/ggml_rope.hpp>

using posenc::models::gguf_meaning;
using posenc::models::gguf_options;
using posenc_test::from_gguf;
using posenc_test::gguf_file;
using posenc_test::gguf_settings;
using posenc_test::refusal;

namespace {

/// Eight layers of 4 heads with 16 channels, 2 key heads, and what a test adds.
gguf_file small(const std::string& architecture) {
  return {architecture,
          {{"block_count", 8},
           {"context_length", 4096},
           {"embedding_length", 64},
           {"attention.head_count", 4},
           {"attention.head_count_kv", 2}}};
}
std::vector<std::int64_t> layers_with(const gguf_file& file, bool (*has)(const posenc::models::layer_settings&)) {
  std::vector<std::int64_t> out;
  const auto m = gguf_settings(file);
  for (std::size_t l = 0; l < m.layers.size(); ++l)
    if (has(m.layers[l])) out.push_back(static_cast<std::int64_t>(l));
  return out;
}
bool rotates(const posenc::models::layer_settings& l) { return l.rotation.has_value(); }
bool windowed(const posenc::models::layer_settings& l) { return l.window || l.both_sides || l.chunk; }

std::vector<double> inv_freq(const gguf_file& file, const gguf_options& o = {}) {
  return from_gguf(file, o).rotation(0)->inv_freq();
}
double magnitude(const gguf_file& file, const gguf_options& o = {}) {
  return from_gguf(file, o).rotation(0)->magnitude();
}
std::string refused(const gguf_file& file, const gguf_options& o = {}) {
  return refusal([&] { (void)from_gguf(file, o); });
}

using layers = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("gguf: pairs lie as the architecture has them", "[gguf]") {
  for (const char* name : {"llama", "mistral3", "deepseek2", "command-r", "chatglm", "gptj", "smollm3"})
    CHECK(gguf_settings(small(name)).layers[0].rotation->layout == posenc::interleaved);
  for (const char* name : {"qwen2", "qwen3", "gemma2", "phi3", "gptneox", "falcon", "gpt-oss", "stablelm", "olmo2"})
    CHECK(gguf_settings(small(name)).layers[0].rotation->layout == posenc::half_split);
  for (const char* name : {"gpt2", "bloom", "mpt", "jais", "bert", "t5", "jamba"})
    CHECK_FALSE(gguf_settings(small(name).with("attention.relative_buckets_count", 32)).layers[0].rotation.has_value());
  CHECK(posenc::models::find_gguf_architecture("llama5") == nullptr);
}

TEST_CASE("gguf: which layers have a window, which rotate", "[gguf]") {
  CHECK(layers_with(small("llama"), windowed).empty());
  CHECK(layers_with(small("llama").with("attention.sliding_window", 64), windowed).size() == 8);
  CHECK(layers_with(small("gemma2"), windowed) == layers{0, 2, 4, 6});
  CHECK(layers_with(small("gemma3").with("attention.sliding_window", 64), windowed) == layers{0, 1, 2, 3, 4, 6, 7});
  CHECK(layers_with(small("modern-bert"), windowed) == layers{1, 2, 4, 5, 7});
  CHECK(layers_with(small("cohere2"), windowed) == layers{0, 1, 2, 4, 5, 6});
  CHECK(layers_with(small("cohere2"), rotates) == layers{0, 1, 2, 4, 5, 6});
  CHECK(layers_with(small("llama4"), windowed) == layers{0, 1, 2, 4, 5, 6});
  CHECK(layers_with(small("llama4"), rotates) == layers{0, 1, 2, 4, 5, 6});
  CHECK(layers_with(small("smollm3"), rotates) == layers{0, 1, 2, 4, 5, 6});
  CHECK(layers_with(small("smallthinker"), rotates) == layers{1, 2, 3, 5, 6, 7});
  // A file that turns the window off rotates everywhere.
  CHECK(layers_with(small("llama4").with("attention.sliding_window", 0), rotates).size() == 8);
  CHECK(layers_with(small("exaone4"), rotates).size() == 8);
  CHECK(layers_with(small("exaone4").with("attention.sliding_window", 64), rotates) == layers{0, 1, 2, 4, 5, 6});
  // The file's own pattern, as a number or a list.
  const auto gemma = small("gemma3").with("attention.sliding_window", 64);
  CHECK(layers_with(gemma.with("attention.sliding_window_pattern", 2), windowed) == layers{0, 2, 4, 6});
  CHECK(layers_with(gemma.with("attention.sliding_window_pattern", std::vector<bool>{0, 1, 1, 0, 0, 0, 0, 1}),
                    windowed) == layers{1, 2, 7});
}

TEST_CASE("gguf: kinds of windows", "[gguf]") {
  CHECK(gguf_settings(small("gemma2")).layers[0].window == 4096);
  const auto encoder = gguf_settings(small("modern-bert"));
  CHECK_FALSE(encoder.layers[1].causal);
  CHECK(encoder.layers[1].both_sides == 65);  // 64 on each side
  CHECK_FALSE(encoder.layers[1].window.has_value());
  CHECK(gguf_settings(small("llama4")).layers[0].chunk == 8192);
  CHECK(gguf_settings(small("llama").with("attention.causal", false)).layers[0].causal == false);
}

TEST_CASE("gguf: a base of their own for layers with a window, unscaled", "[gguf]") {
  const auto file =
      small("gemma3").with("attention.sliding_window", 64).with("rope.freq_base", 1e6).with("rope.scaling.factor", 8);
  const auto m = from_gguf(file);
  CHECK(m.rotation(0)->inv_freq()[1] == Approx(std::pow(1e4, -1.0 / 8)).epsilon(1e-15));
  CHECK(m.rotation(5)->inv_freq()[1] == Approx(std::pow(1e6, -1.0 / 8) / 8).epsilon(1e-15));
  const auto keyed = from_gguf(file.with("rope.freq_base_swa", 500));
  CHECK(keyed.rotation(0)->inv_freq()[1] == Approx(std::pow(500, -1.0 / 8)).epsilon(1e-15));
  // gpt-oss has windows, but one rotation.
  const auto oss = from_gguf(small("gpt-oss").with("attention.sliding_window", 64).with("rope.scaling.factor", 4));
  CHECK(oss.rotation(0)->inv_freq() == oss.rotation(1)->inv_freq());
  CHECK(oss.rotation(0)->inv_freq()[0] == 0.25);
}

TEST_CASE("gguf: linear scaling by its new and its old key, and none", "[gguf]") {
  CHECK(inv_freq(small("llama"))[0] == 1);
  CHECK(inv_freq(small("llama").with("rope.scaling.factor", 4))[0] == 0.25);
  CHECK(inv_freq(small("llama").with("rope.scale_linear", 2))[0] == 0.5);
  CHECK(inv_freq(small("llama").with("rope.scaling.factor", 0))[0] == 1);
  CHECK(inv_freq(small("llama").with("rope.scaling.factor", 4).with("rope.scaling.type", "none"))[0] == 1);
  CHECK(magnitude(small("llama").with("rope.scaling.attn_factor", 1.25)) == 1.25);
}

TEST_CASE("gguf: YaRN and its magnitude", "[gguf]") {
  const auto yarn = small("qwen2")
                        .with("embedding_length", 512)
                        .with("rope.freq_base", 1e6)
                        .with("rope.scaling.type", "yarn")
                        .with("rope.scaling.factor", 4)
                        .with("rope.scaling.original_context_length", 32768);
  CHECK(magnitude(yarn) == Approx(1.138629436).epsilon(1e-9));
  // The ramp lies between pairs 23 and 40.
  const auto f = inv_freq(yarn);
  const auto plain = [](std::size_t i) { return std::pow(1e6, -static_cast<double>(i) / 64); };
  CHECK(f[23] == Approx(plain(23)).epsilon(1e-15));
  CHECK(f[24] == Approx(plain(24) * (16 + 0.25) / 17).epsilon(1e-15));
  CHECK(f[40] == Approx(plain(40) / 4).epsilon(1e-15));
  CHECK(magnitude(yarn.with("rope.scaling.attn_factor", 2)) == Approx(2.277258872).epsilon(1e-9));
  CHECK(magnitude(yarn.with("rope.scaling.yarn_attn_factor", 1.5)) == 1.5);
  CHECK(magnitude(yarn.with("rope.scaling.yarn_log_multiplier", 1.0)) == 1);
  CHECK(magnitude(yarn.with("rope.scaling.yarn_log_multiplier", 0.5)) ==
        Approx(1.138629436 / 1.069314718).epsilon(1e-9));
  // Without the share of the ramp it is linear, and the magnitude is the file's.
  const auto flat = yarn.with("rope.scaling.yarn_ext_factor", 0);
  CHECK(inv_freq(flat)[1] == Approx(plain(1) / 4).epsilon(1e-15));
  CHECK(magnitude(flat) == 1);
  // Borders from the file, under either spelling.
  CHECK(inv_freq(yarn.with("rope.scaling.yarn_beta_fast", 8)) == inv_freq(yarn.with("rope.scaling.beta_fast", 8)));
  CHECK(inv_freq(yarn.with("rope.scaling.yarn_beta_fast", 8)) != f);
  CHECK(inv_freq(yarn.with("rope.scaling.yarn_beta_slow", 8)) == inv_freq(yarn.with("rope.scaling.beta_slow", 8)));
  // Without the original length the context length counts, which here moves the ramp.
  auto silent = yarn;
  silent.keys.erase("qwen2.rope.scaling.original_context_length");
  CHECK(inv_freq(silent) == inv_freq(yarn.with("rope.scaling.original_context_length", 4096)));
}

TEST_CASE("gguf: gpt-oss as published and as llama.cpp runs it", "[gguf]") {
  const auto file = small("gpt-oss")
                        .with("attention.key_length", 64)
                        .with("rope.freq_base", 150000)
                        .with("rope.scaling.type", "yarn")
                        .with("rope.scaling.factor", 32)
                        .with("rope.scaling.original_context_length", 4096);
  CHECK(magnitude(file) == Approx(1.3465735903).epsilon(1e-10));
  const auto blended = [](int i, double lo, double hi) {
    const double t = (i - lo) / (hi - lo);
    return std::pow(150000, -i / 32.0) * (1 - t + t / 32);
  };
  CHECK(inv_freq(file)[12] == Approx(blended(12, 8.0927791154, 17.3980245015)).epsilon(1e-9));
  CHECK(inv_freq(file, {.meaning = gguf_meaning::llama_cpp})[12] == Approx(blended(12, 8, 18)).epsilon(1e-12));
  CHECK(gguf_settings(file).layers[0].sinks);
  // Its rotation is that of the operator with the arguments which llama.cpp passes.
  const auto passed = posenc::models::ggml_rope_options({.head_dim = 64,
                                                         .n_dims = 64,
                                                         .mode = posenc::models::ggml_rope_mode::neox,
                                                         .n_ctx_orig = 4096,
                                                         .freq_base = 150000,
                                                         .freq_scale = 1.0 / 32,
                                                         .ext_factor = 1});
  const auto own = from_gguf(file, {.meaning = gguf_meaning::llama_cpp, .angles = posenc::angle_mode::ggml_recurrence});
  const posenc::rope<float> operated{passed};
  CHECK(posenc_test::largest_difference(own.rotation(0)->inv_freq(), operated.inv_freq()) < 1e-16);
  CHECK(own.rotation(0)->magnitude() == Approx(operated.magnitude()).epsilon(1e-15));
  auto recurring = passed;
  recurring.angles = posenc::angle_mode::ggml_recurrence;
  const posenc::rope<float> as_run{recurring};
  std::vector<float> row[4];
  for (auto& r : row) r.resize(32);
  own.rotation(0)->cos_sin(1234, row[0].data(), row[1].data());
  as_run.cos_sin(1234, row[2].data(), row[3].data());
  CHECK(row[0] == row[2]);
  CHECK(row[1] == row[3]);
  operated.cos_sin(1234, row[2].data(), row[3].data());
  CHECK(row[0] != row[2]);
}

TEST_CASE("gguf: sections of axes", "[gguf]") {
  const auto vl = small("qwen3vl").with("attention.key_length", 128);
  const auto file = vl.with("rope.dimension_sections", std::vector{24, 20, 20, 0});
  CHECK(gguf_settings(file).layers[0].rotation->axes.pairs == posenc::rope_axes::interleaved({24, 20, 20}).pairs);
  CHECK(gguf_settings(file, {.meaning = gguf_meaning::llama_cpp}).layers[0].rotation->axes.pairs ==
        posenc::rope_axes::imrope_ggml({24, 20, 20, 0}).pairs);
  CHECK(from_gguf(file).rotation(0)->axis_count() == 3);
  CHECK(from_gguf(file, {.meaning = gguf_meaning::llama_cpp}).rotation(0)->axis_count() == 4);
  // GLM-4's vision models under the name of the text model.
  const auto glm = small("glm4").with("attention.key_length", 128).with("rope.dimension_count", 64);
  CHECK(gguf_settings(glm).layers[0].rotation->layout == posenc::interleaved);
  const auto glm4v = gguf_settings(glm.with("rope.dimension_sections", std::vector{8, 12, 12})).layers[0].rotation;
  CHECK(glm4v->layout == posenc::half_split);
  CHECK(glm4v->axes.pairs == posenc::rope_axes::chunked({8, 12, 12}).pairs);
}

TEST_CASE("gguf: biases", "[gguf]") {
  using posenc::models::bias_kind;
  const auto bloom = gguf_settings(small("bloom"));
  CHECK(bloom.bias.kind == bias_kind::alibi);
  CHECK(bloom.bias.alibi.bias_max == 8);
  const auto mpt = gguf_settings(small("mpt").with("attention.max_alibi_bias", 16.0));
  CHECK(mpt.bias.alibi.bias_max == 16);
  CHECK(mpt.embedding.kind == posenc::models::embedding_kind::none);
  CHECK(gguf_settings(small("mpt")).embedding.kind == posenc::models::embedding_kind::learned);
  // Baichuan 7B rotates; 13B, the one of 40 layers, has ALiBi.
  CHECK(gguf_settings(small("baichuan")).bias.kind == bias_kind::none);
  const auto large = gguf_settings(small("baichuan").with("block_count", 40));
  CHECK(large.bias.kind == bias_kind::alibi);
  CHECK_FALSE(large.layers[0].rotation.has_value());
  const auto t5 = gguf_settings(small("t5").with("attention.relative_buckets_count", 16));
  CHECK(t5.bias.relative.num_buckets == 16);
  CHECK_FALSE(t5.bias.relative.bidirectional);
  CHECK(t5.layers[0].logit_multiplier == 4);  // undoes 1 / sqrt(16)
  const auto encoder = gguf_settings(small("t5encoder").with("attention.relative_buckets_count", 16));
  CHECK(encoder.bias.relative.bidirectional);
  CHECK_FALSE(encoder.layers[0].causal);
}

TEST_CASE("gguf: scores", "[gguf]") {
  CHECK(gguf_settings(small("gemma2")).layers[0].softcap == 50);
  CHECK(gguf_settings(small("gemma2").with("attn_logit_softcapping", 20)).layers[0].softcap == 20);
  CHECK(gguf_settings(small("llama")).layers[0].softcap == 0);
  CHECK(gguf_settings(small("granite").with("attention.scale", 0.0625)).layers[0].logit_multiplier == 0.25);
  CHECK(gguf_settings(small("gemma3n")).layers[0].logit_multiplier == 4);

  const auto llama4 = gguf_settings(small("llama4").with("attention.layer_norm_rms_epsilon", 1e-5));
  CHECK_FALSE(llama4.layers[0].temperature.has_value());
  CHECK(llama4.layers[3].temperature->position_offset == 1);
  CHECK(llama4.layers[3].temperature->floor_scale == 8192);
  CHECK(llama4.layers[0].norm.place == posenc::models::norm_place::after_rotation);
  CHECK_FALSE(llama4.layers[0].norm.has_gain);
  CHECK(llama4.layers[0].norm.eps == 1e-5);
  CHECK(llama4.layers[3].norm.place == posenc::models::norm_place::none);
  CHECK(gguf_settings(small("llama4").with("expert_count", 128)).layers[0].norm.place ==
        posenc::models::norm_place::none);

  const auto ministral = small("mistral3").with("attention.temperature_scale", 0.1);
  const auto own = gguf_settings(ministral.with("rope.scaling.original_context_length", 16384)).layers[0].temperature;
  CHECK(own->floor_scale == 16384);
  CHECK(own->position_offset == 0);
  CHECK(gguf_settings(ministral.with("attention.temperature_length", 1024)).layers[0].temperature->floor_scale == 1024);

  CHECK(gguf_settings(small("qwen3")).layers[0].norm.place == posenc::models::norm_place::before_rotation);
  CHECK(gguf_settings(small("hunyuan-dense")).layers[0].norm.place == posenc::models::norm_place::after_rotation);
  CHECK(gguf_settings(small("olmo2")).layers[0].norm.over_all_heads);
}

TEST_CASE("gguf: heads per layer", "[gguf]") {
  const auto m = gguf_settings(small("lfm2")
                                   .with("attention.head_count_kv", std::vector{0, 0, 2, 0, 4, 0, 0, 1})
                                   .with("attention.head_count", std::vector{0, 0, 4, 0, 4, 0, 0, 4}));
  CHECK(m.heads == 4);
  CHECK(m.layers[4].kv_heads == 4);
  CHECK(m.layers[7].kv_heads == 1);
  CHECK_FALSE(m.layers[0].rotation.has_value());  // a layer without attention
  CHECK(m.layers[2].rotation.has_value());
}

TEST_CASE("gguf: latent attention rotates the last channels", "[gguf]") {
  const auto m = gguf_settings(small("minicpm3")
                                   .with("attention.kv_lora_rank", 256)
                                   .with("attention.key_length", 96)
                                   .with("rope.dimension_count", 32));
  CHECK(m.layers[0].rotation->offset == 64);
  CHECK(m.layers[0].rotation->rotary_dim == 32);
  CHECK(m.layers[0].kv_heads == 4);
}

TEST_CASE("gguf: lists of factors", "[gguf]") {
  const std::vector<float> ones(8, 1.0f);
  const std::vector<float> fours(8, 4.0f);
  const auto phi = small("phi3").with("rope.scaling.original_context_length", 1024);
  const gguf_options lists{.rope_factors_short = ones, .rope_factors_long = fours};
  const auto m = from_gguf(phi, lists);
  CHECK(m.depends_on_length());
  CHECK(m.at_length(1024).rotation(0)->inv_freq()[0] == 1);
  CHECK(m.at_length(1025).rotation(0)->inv_freq()[0] == 0.25);
  // The file's magnitude; without one that of the lengths, sqrt(1 + ln 4 / ln 1024).
  CHECK(magnitude(phi.with("rope.scaling.attn_factor", 1.19), lists) == Approx(1.19).epsilon(1e-15));
  CHECK(magnitude(phi, lists) == Approx(std::sqrt(1.2)).epsilon(1e-15));
  CHECK(inv_freq(small("llama"), {.rope_freqs = fours})[0] == 0.25);
}

TEST_CASE("gguf: what is refused, with its key", "[gguf]") {
  const auto nothing = [](const std::string&) { return std::optional<posenc::models::gguf_value>(); };
  CHECK(refusal([&] { (void)from_gguf(nothing); }) ==
        "posenc::models::from_gguf: general.architecture must be a text, got nothing");
  CHECK(refused(small("llama5")) == "posenc::models::from_gguf: general.architecture must be a known one, got llama5");
  CHECK(refused(small("llama").with("rope.scaling.type", "dynamic")) ==
        "posenc::models::from_gguf: llama.rope.scaling.type must be none, linear, yarn or longrope, got dynamic");
  CHECK(refused(small("llama").with("rope.scaling.type", 2)) ==
        "posenc::models::from_gguf: llama.rope.scaling.type must be a text, got another value");
  CHECK(refused(small("llama").with("rope.freq_base", "10000")) ==
        "posenc::models::from_gguf: llama.rope.freq_base must be a finite number, got another value");
  CHECK(refused(small("llama").with("rope.scaling.factor", -2)) ==
        "posenc::models::from_gguf: llama.rope.scaling.factor must not be negative, got -2");
  CHECK(refused(small("llama").with("rope.dimension_count", 15)) ==
        "posenc::models::from_gguf: llama.rope.dimension_count must be even and within the head, got 15");
  CHECK(refused(small("llama").with("rope.dimension_count", 18)) ==
        "posenc::models::from_gguf: llama.rope.dimension_count must be even and within the head, got 18");
  CHECK(refused(small("llama").with("rope.dimension_count", 1.5)) ==
        "posenc::models::from_gguf: llama.rope.dimension_count must be an integer, got 1.5");
  CHECK(refused(small("llama").with("attention.head_count_kv", 3)) ==
        "posenc::models::from_gguf: llama.attention.head_count_kv must divide attention.head_count, got 3");
  CHECK(refused(small("llama").with("attention.head_count_kv", std::vector{2, 2})) ==
        "posenc::models::from_gguf: llama.attention.head_count_kv must list every layer, got 2");
  CHECK(refused(small("llama").with("attention.head_count", std::vector{4, 4, 2, 4, 4, 4, 4, 4})) ==
        "posenc::models::from_gguf: llama.attention.head_count must be the same in all layers that have attention, "
        "got 2");
  CHECK(refused(small("llama").with("attention.head_count", 0)) ==
        "posenc::models::from_gguf: llama.attention.head_count must be at least 1, got 0");
  CHECK(refused(small("llama").with("embedding_length", 66)) ==
        "posenc::models::from_gguf: llama.embedding_length must be a multiple of attention.head_count, got 66");
  CHECK(refused(small("llama").with("block_count", 0)) ==
        "posenc::models::from_gguf: llama.block_count must be at least 1, got 0");
  CHECK(refused(small("llama").with("attention.sliding_window", -1)) ==
        "posenc::models::from_gguf: llama.attention.sliding_window must not be negative, got -1");
  CHECK(refused(small("gemma2").with("attention.sliding_window_pattern", std::vector{1, 0})) ==
        "posenc::models::from_gguf: gemma2.attention.sliding_window_pattern must list every layer, got 2");
  CHECK(refused(small("qwen2vl")) ==
        "posenc::models::from_gguf: qwen2vl.rope.dimension_sections must list three or four sections, got 0");
  CHECK(refused(small("qwen2vl").with("rope.dimension_sections", std::vector{2, 2, 2})) ==
        "posenc::models::from_gguf: qwen2vl.rope.dimension_sections must sum to the rotated pairs, got 6");
  CHECK(refused(small("qwen2vl").with("rope.dimension_sections", std::vector{9, -1, 0, 0})) ==
        "posenc::models::from_gguf: qwen2vl.rope.dimension_sections must lie between 0 and the rotated pairs, got 9");
  CHECK(refused(small("t5")) ==
        "posenc::models::from_gguf: t5.attention.relative_buckets_count must be given, got nothing");
  const auto yarn = small("llama").with("rope.scaling.type", "yarn").with("rope.scaling.factor", 4);
  CHECK(refused(yarn.with("rope.scaling.original_context_length", 0)) ==
        "posenc::models::from_gguf: llama.rope.scaling.original_context_length must be at least 1, got 0");
  CHECK(refused(yarn.with("context_length", 0)) ==
        "posenc::models::from_gguf: llama.context_length must be at least 1, got 0");
  const std::vector<float> seven(7, 1.0f);
  const std::vector<float> eight(8, 1.0f);
  CHECK(refused(small("llama"), {.rope_freqs = seven}) ==
        "posenc::models::from_gguf: rope_freqs.weight must list one divisor per pair, got 7");
  CHECK(refused(small("phi3"), {.rope_factors_long = eight}) ==
        "posenc::models::from_gguf: rope_factors_short.weight must list one divisor per pair, got 0");
  CHECK(refused(small("phi3").with("rope.scaling.type", "longrope")) ==
        "posenc::models::from_gguf: rope_factors_short.weight must list one divisor per pair, got 0");
  auto silent = small("llama");
  silent.keys.erase("llama.embedding_length");
  CHECK(refused(silent) == "posenc::models::from_gguf: llama.embedding_length must be given, got nothing");
}
