// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The same model by its config.json and by the keys of its GGUF file: the same settings, layer by layer.
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"
#include "unit/models/gguf_file.hpp"
#include "unit/models/readers.hpp"

using posenc::models::gguf_options;
using posenc::models::layer_settings;
using posenc_test::from_gguf;
using posenc_test::from_huggingface;
using posenc_test::gguf_file;
using posenc_test::stack;

namespace {

/// The GGUF file of some families holds query and key rows in interleaved order.
enum class order { same, permuted };

void same_rotation(const posenc::rope_options& hf, const posenc::rope_options& gguf, double relative) {
  const posenc::rope<float> a(hf);
  const posenc::rope<float> b(gguf);
  REQUIRE(a.pairs() == b.pairs());
  CHECK(a.offset() == b.offset());
  CHECK(a.head_dim() == b.head_dim());
  CHECK(a.axis_count() == b.axis_count());
  CHECK(a.magnitude() == Approx(b.magnitude()).epsilon(1e-6));
  CHECK(a.depends_on_length() == b.depends_on_length());
  double worst = 0;
  for (std::size_t i = 0; i < a.inv_freq().size(); ++i)
    worst = std::max(worst, std::abs(a.inv_freq()[i] - b.inv_freq()[i]) / std::max(a.inv_freq()[i], 1e-30));
  CHECK(worst <= relative);
  REQUIRE(hf.axes.pairs.size() == gguf.axes.pairs.size());
  CHECK(hf.axes.pairs == gguf.axes.pairs);
}

void same_layer(const layer_settings& hf, const layer_settings& gguf, order rows, double relative) {
  CHECK(hf.head_dim == gguf.head_dim);
  CHECK(hf.kv_heads == gguf.kv_heads);
  REQUIRE(hf.rotation.has_value() == gguf.rotation.has_value());
  if (hf.rotation) {
    same_rotation(*hf.rotation, *gguf.rotation, relative);
    CHECK((hf.rotation->layout == gguf.rotation->layout) == (rows == order::same));
  }
  CHECK(hf.causal == gguf.causal);
  CHECK(hf.window == gguf.window);
  CHECK(hf.both_sides == gguf.both_sides);
  CHECK(hf.chunk == gguf.chunk);
  CHECK(hf.softcap == gguf.softcap);
  CHECK(hf.logit_multiplier == Approx(gguf.logit_multiplier).epsilon(1e-6));
  REQUIRE(hf.temperature.has_value() == gguf.temperature.has_value());
  if (hf.temperature) {
    CHECK(hf.temperature->scale == gguf.temperature->scale);
    CHECK(hf.temperature->floor_scale == gguf.temperature->floor_scale);
    CHECK(hf.temperature->position_offset == gguf.temperature->position_offset);
  }
  CHECK(hf.norm.place == gguf.norm.place);
  CHECK(hf.norm.has_gain == gguf.norm.has_gain);
  CHECK(hf.norm.over_all_heads == gguf.norm.over_all_heads);
  CHECK_FALSE(gguf.norm.one_plus_weight);  // converters add the 1
  if (hf.norm.place != posenc::models::norm_place::none) CHECK(hf.norm.eps == gguf.norm.eps);
  CHECK(hf.sinks == gguf.sinks);
}

/// Every layer agrees; frequencies to a relative difference, 0 unless tensors in float stand in for a formula.
void agree(const char* config, const gguf_file& file, order rows = order::same, const gguf_options& options = {},
           double relative = 0, stack part = stack::decoder) {
  const auto hf = from_huggingface(config, part);
  const auto gguf = from_gguf(file, options);
  CAPTURE(gguf.settings().family);
  CHECK(hf.settings().heads == gguf.settings().heads);
  CHECK(hf.settings().max_positions == gguf.settings().max_positions);
  REQUIRE(hf.layers() == gguf.layers());
  for (std::int64_t l = 0; l < hf.layers(); ++l) {
    CAPTURE(l);
    same_layer(hf.layer(l), gguf.layer(l), rows, relative);
  }
  const auto& a = hf.settings().bias;
  const auto& b = gguf.settings().bias;
  CHECK(a.kind == b.kind);
  CHECK(a.alibi.heads == b.alibi.heads);
  CHECK(a.alibi.bias_max == b.alibi.bias_max);
  CHECK(a.alibi.form == b.alibi.form);
  CHECK(a.scale == b.scale);
  CHECK(a.relative.num_buckets == b.relative.num_buckets);
  CHECK(a.relative.max_distance == b.relative.max_distance);
  CHECK(a.relative.bidirectional == b.relative.bidirectional);
  CHECK(hf.settings().embedding.kind == gguf.settings().embedding.kind);
  CHECK(hf.settings().embedding.ids == gguf.settings().embedding.ids);
  CHECK(hf.settings().embedding.rows == gguf.settings().embedding.rows);
  CHECK(hf.settings().embedding.dim == gguf.settings().embedding.dim);
}

}  // namespace

TEST_CASE("gguf agrees with config.json: Llama 2, Llama 3.1 by its factors", "[gguf]") {
  agree(R"({"model_type":"llama","num_hidden_layers":2,"hidden_size":4096,"num_attention_heads":32,
            "max_position_embeddings":4096})",
        {"llama",
         {{"block_count", 2},
          {"context_length", 4096},
          {"embedding_length", 4096},
          {"attention.head_count", 32},
          {"rope.dimension_count", 128}}},
        order::permuted);
  const auto divisors = posenc_test::llama3_divisors(5e5, 64, 8, 1, 4, 8192);
  agree(R"({"model_type":"llama","num_hidden_layers":2,"hidden_size":4096,"num_attention_heads":32,
            "num_key_value_heads":8,"max_position_embeddings":131072,"rope_theta":500000.0,
            "rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
                            "original_max_position_embeddings":8192}})",
        {"llama",
         {{"block_count", 2},
          {"context_length", 131072},
          {"embedding_length", 4096},
          {"attention.head_count", 32},
          {"attention.head_count_kv", 8},
          {"rope.freq_base", 500000.0f},
          {"rope.dimension_count", 128}}},
        order::permuted, {.rope_freqs = divisors}, 6e-8);  // half a float step of the divisors
}

TEST_CASE("gguf agrees with config.json: Qwen 2.5 with YaRN, Qwen 3, and their vision models", "[gguf]") {
  agree(R"({"model_type":"qwen2","num_hidden_layers":2,"hidden_size":3584,"num_attention_heads":28,
            "num_key_value_heads":4,"max_position_embeddings":32768,"rope_theta":1000000.0,"use_sliding_window":false,
            "sliding_window":131072,
            "rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":32768}})",
        {"qwen2",
         {{"block_count", 2},
          {"context_length", 32768},
          {"embedding_length", 3584},
          {"attention.head_count", 28},
          {"attention.head_count_kv", 4},
          {"rope.freq_base", 1e6},
          {"rope.scaling.type", "yarn"},
          {"rope.scaling.factor", 4.0},
          {"rope.scaling.original_context_length", 32768}}});
  agree(R"({"model_type":"qwen3","num_hidden_layers":2,"hidden_size":4096,"num_attention_heads":32,"head_dim":128,
            "num_key_value_heads":8,"max_position_embeddings":40960,"rope_theta":1000000,"rms_norm_eps":1e-6})",
        {"qwen3",
         {{"block_count", 2},
          {"context_length", 40960},
          {"embedding_length", 4096},
          {"attention.head_count", 32},
          {"attention.head_count_kv", 8},
          {"attention.key_length", 128},
          {"attention.layer_norm_rms_epsilon", 1e-6},
          {"rope.freq_base", 1e6}}});
  agree(R"({"model_type":"qwen2_vl","num_hidden_layers":2,"hidden_size":3584,"num_attention_heads":28,
            "num_key_value_heads":4,"max_position_embeddings":32768,"rope_theta":1000000.0,
            "rope_scaling":{"type":"mrope","mrope_section":[16,24,24]}})",
        {"qwen2vl",
         {{"block_count", 2},
          {"context_length", 32768},
          {"embedding_length", 3584},
          {"attention.head_count", 28},
          {"attention.head_count_kv", 4},
          {"rope.freq_base", 1e6},
          {"rope.dimension_sections", std::vector{16, 24, 24, 0}}}});
  agree(R"({"model_type":"qwen3_vl","text_config":{"model_type":"qwen3_vl_text","num_hidden_layers":2,
            "hidden_size":4096,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"rms_norm_eps":1e-6,
            "max_position_embeddings":262144,"rope_theta":5000000,
            "rope_scaling":{"mrope_interleaved":true,"mrope_section":[24,20,20],"rope_type":"default"}}})",
        {"qwen3vl",
         {{"block_count", 2},
          {"context_length", 262144},
          {"embedding_length", 4096},
          {"attention.head_count", 32},
          {"attention.head_count_kv", 8},
          {"attention.key_length", 128},
          {"attention.layer_norm_rms_epsilon", 1e-6},
          {"rope.freq_base", 5e6},
          {"rope.dimension_sections", std::vector{24, 20, 20, 0}}}});
}

TEST_CASE("gguf agrees with config.json: Gemma 2 and 3", "[gguf]") {
  agree(R"({"model_type":"gemma2","num_hidden_layers":4,"hidden_size":3584,"num_attention_heads":16,
            "num_key_value_heads":8,"head_dim":256,"max_position_embeddings":8192,"query_pre_attn_scalar":256,
            "sliding_window":4096,"attn_logit_softcapping":50.0})",
        {"gemma2",
         {{"block_count", 4},
          {"context_length", 8192},
          {"embedding_length", 3584},
          {"attention.head_count", 16},
          {"attention.head_count_kv", 8},
          {"attention.key_length", 256},
          {"attention.sliding_window", 4096},
          {"attn_logit_softcapping", 50}}});
  // 27B scales by sqrt(4608 / 32) = 12.
  agree(R"({"model_type":"gemma2","num_hidden_layers":46,"hidden_size":4608,"num_attention_heads":32,
            "num_key_value_heads":16,"head_dim":128,"max_position_embeddings":8192,"query_pre_attn_scalar":144,
            "sliding_window":4096,"attn_logit_softcapping":50.0})",
        {"gemma2",
         {{"block_count", 46},
          {"context_length", 8192},
          {"embedding_length", 4608},
          {"attention.head_count", 32},
          {"attention.head_count_kv", 16},
          {"attention.key_length", 128}}});
  agree(R"({"model_type":"gemma3_text","num_hidden_layers":8,"hidden_size":2560,"num_attention_heads":8,
            "num_key_value_heads":4,"head_dim":256,"max_position_embeddings":131072,"query_pre_attn_scalar":256,
            "sliding_window":1024,"rope_theta":1000000.0,"rope_local_base_freq":10000.0,"rms_norm_eps":1e-6,
            "rope_scaling":{"rope_type":"linear","factor":8.0}})",
        {"gemma3",
         {{"block_count", 8},
          {"context_length", 131072},
          {"embedding_length", 2560},
          {"attention.head_count", 8},
          {"attention.head_count_kv", 4},
          {"attention.key_length", 256},
          {"attention.sliding_window", 1024},
          {"attention.layer_norm_rms_epsilon", 1e-6},
          {"rope.freq_base", 1e6},
          {"rope.scaling.type", "linear"},
          {"rope.scaling.factor", 8}}});
}

TEST_CASE("gguf agrees with config.json: Phi-3 with both lists, Phi-2, GPT-NeoX, GPT-J, StableLM, GLM-4", "[gguf]") {
  std::vector<float> shorts;
  std::vector<float> longs;
  std::string config = R"({"model_type":"phi3","num_hidden_layers":2,"hidden_size":3072,"num_attention_heads":32,
    "max_position_embeddings":131072,"original_max_position_embeddings":4096,"sliding_window":262144,
    "rope_scaling":{"type":"longrope","short_factor":[)";
  const auto append = [&](std::vector<float>& list, float first) {
    for (int i = 0; i < 48; ++i) {
      list.push_back(first + 0.25f * static_cast<float>(i));
      config += (i ? "," : "") + std::to_string(list.back());
    }
  };
  append(shorts, 1);
  config += R"(],"long_factor":[)";
  append(longs, 1.5f);
  config += "]}}";
  gguf_file file("phi3", {{"block_count", 2},
                          {"context_length", 131072},
                          {"embedding_length", 3072},
                          {"attention.head_count", 32},
                          {"attention.head_count_kv", 32},
                          {"attention.sliding_window", 262144},
                          {"rope.dimension_count", 96},
                          {"rope.scaling.original_context_length", 4096},
                          {"rope.scaling.attn_factor", 1.19023807f}});
  const gguf_options lists{.rope_factors_short = shorts, .rope_factors_long = longs};
  agree(config.c_str(), file, order::same, lists);
  // The switch lies behind the original length in both.
  for (const std::int64_t n : {4096, 4097}) {
    const auto a = from_huggingface(config).at_length(n);
    const auto b = from_gguf(file, lists).at_length(n);
    CHECK(a.rotation(0)->inv_freq() == b.rotation(0)->inv_freq());
    CHECK(a.rotation(0)->inv_freq()[0] == (n == 4096 ? 1 : 1 / 1.5));
  }

  agree(R"({"model_type":"phi","num_hidden_layers":2,"hidden_size":2560,"num_attention_heads":32,
            "partial_rotary_factor":0.4,"max_position_embeddings":2048})",
        {"phi2",
         {{"block_count", 2},
          {"context_length", 2048},
          {"embedding_length", 2560},
          {"attention.head_count", 32},
          {"rope.dimension_count", 32}}});
  agree(R"({"model_type":"gpt_neox","num_hidden_layers":2,"hidden_size":6144,"num_attention_heads":64,
            "rotary_pct":0.25,"max_position_embeddings":2048})",
        {"gptneox",
         {{"block_count", 2},
          {"context_length", 2048},
          {"embedding_length", 6144},
          {"attention.head_count", 64},
          {"rope.dimension_count", 24}}});
  agree(R"({"model_type":"gptj","n_layer":2,"n_embd":4096,"n_head":16,"rotary_dim":64,"n_positions":2048})",
        {"gptj",
         {{"block_count", 2},
          {"context_length", 2048},
          {"embedding_length", 4096},
          {"attention.head_count", 16},
          {"rope.dimension_count", 64}}});
  agree(R"({"model_type":"stablelm","num_hidden_layers":2,"hidden_size":2560,"num_attention_heads":32,
            "partial_rotary_factor":0.25,"max_position_embeddings":4096})",
        {"stablelm",
         {{"block_count", 2},
          {"context_length", 4096},
          {"embedding_length", 2560},
          {"attention.head_count", 32},
          {"rope.dimension_count", 20}}});
  agree(R"({"model_type":"glm4","num_hidden_layers":2,"hidden_size":4096,"num_attention_heads":32,"head_dim":128,
            "num_key_value_heads":2,"partial_rotary_factor":0.5,"max_position_embeddings":32768})",
        {"glm4",
         {{"block_count", 2},
          {"context_length", 32768},
          {"embedding_length", 4096},
          {"attention.head_count", 32},
          {"attention.head_count_kv", 2},
          {"attention.key_length", 128},
          {"rope.dimension_count", 64}}});
}

TEST_CASE("gguf agrees with config.json: DeepSeek V2 and V3", "[gguf]") {
  const gguf_file v3{"deepseek2",
                     {{"block_count", 2},
                      {"context_length", 163840},
                      {"embedding_length", 7168},
                      {"attention.head_count", 128},
                      {"attention.head_count_kv", 1},
                      {"attention.key_length", 576},
                      {"attention.key_length_mla", 192},
                      {"attention.kv_lora_rank", 512},
                      {"rope.dimension_count", 64},
                      {"rope.scaling.type", "yarn"},
                      {"rope.scaling.factor", 40},
                      {"rope.scaling.original_context_length", 4096},
                      {"rope.scaling.yarn_log_multiplier", 0.1}}};
  agree(R"({"model_type":"deepseek_v3","num_hidden_layers":2,"hidden_size":7168,"num_attention_heads":128,
            "num_key_value_heads":128,"max_position_embeddings":163840,
            "rope_scaling":{"type":"yarn","factor":40,"original_max_position_embeddings":4096,"beta_fast":32,
                            "beta_slow":1,"mscale":1.0,"mscale_all_dim":1.0}})",
        v3);
  CHECK(from_gguf(v3).layer(0).logit_multiplier == Approx(1.8738542070).epsilon(1e-9));
  agree(R"({"model_type":"deepseek_v2","num_hidden_layers":2,"hidden_size":5120,"num_attention_heads":128,
            "num_key_value_heads":128,"max_position_embeddings":163840,
            "rope_scaling":{"type":"yarn","factor":40,"original_max_position_embeddings":4096,"beta_fast":32,
                            "beta_slow":1,"mscale":0.707,"mscale_all_dim":0.707}})",
        {"deepseek2",
         {{"block_count", 2},
          {"context_length", 163840},
          {"embedding_length", 5120},
          {"attention.head_count", 128},
          {"attention.head_count_kv", 128},
          {"attention.key_length", 192},
          {"attention.kv_lora_rank", 512},
          {"rope.dimension_count", 64},
          {"rope.scaling.type", "yarn"},
          {"rope.scaling.factor", 40},
          {"rope.scaling.original_context_length", 4096},
          {"rope.scaling.yarn_log_multiplier", 0.0707f}}});
}

TEST_CASE("gguf agrees with config.json: gpt-oss, Ministral 3, Mistral", "[gguf]") {
  agree(R"({"model_type":"gpt_oss","num_hidden_layers":4,"hidden_size":2880,"num_attention_heads":64,"head_dim":64,
            "num_key_value_heads":8,"max_position_embeddings":131072,"rope_theta":150000,"sliding_window":128,
            "layer_types":["sliding_attention","full_attention","sliding_attention","full_attention"],
            "rope_scaling":{"rope_type":"yarn","factor":32.0,"beta_fast":32.0,"beta_slow":1.0,"truncate":false,
                            "original_max_position_embeddings":4096}})",
        {"gpt-oss",
         {{"block_count", 4},
          {"context_length", 131072},
          {"embedding_length", 2880},
          {"attention.head_count", 64},
          {"attention.head_count_kv", 8},
          {"attention.key_length", 64},
          {"attention.sliding_window", 128},
          {"rope.freq_base", 150000},
          {"rope.scaling.type", "yarn"},
          {"rope.scaling.factor", 32},
          {"rope.scaling.original_context_length", 4096}}});
  agree(R"({"model_type":"ministral3","num_hidden_layers":2,"hidden_size":4096,"num_attention_heads":32,
            "num_key_value_heads":8,"head_dim":128,"max_position_embeddings":262144,
            "rope_parameters":{"rope_type":"yarn","rope_theta":1000000.0,"factor":16.0,"beta_fast":32.0,
                               "beta_slow":1.0,"mscale":1.0,"mscale_all_dim":1.0,"llama_4_scaling_beta":0.1,
                               "original_max_position_embeddings":16384}})",
        {"mistral3",
         {{"block_count", 2},
          {"context_length", 262144},
          {"embedding_length", 4096},
          {"attention.head_count", 32},
          {"attention.head_count_kv", 8},
          {"attention.key_length", 128},
          {"attention.temperature_scale", 0.1},
          {"rope.freq_base", 1e6},
          {"rope.scaling.type", "yarn"},
          {"rope.scaling.factor", 16},
          {"rope.scaling.original_context_length", 16384},
          {"rope.scaling.yarn_beta_fast", 32},
          {"rope.scaling.yarn_beta_slow", 1},
          {"rope.scaling.yarn_log_multiplier", 1.0}}},
        order::permuted);
  agree(R"({"model_type":"mistral","num_hidden_layers":2,"hidden_size":4096,"num_attention_heads":32,
            "num_key_value_heads":8,"max_position_embeddings":32768,"sliding_window":4096})",
        {"llama",
         {{"block_count", 2},
          {"context_length", 32768},
          {"embedding_length", 4096},
          {"attention.head_count", 32},
          {"attention.head_count_kv", 8},
          {"attention.sliding_window", 4096}}},
        order::permuted);
}

TEST_CASE("gguf agrees with config.json: Llama 4, SmolLM3, Cohere 2, ModernBERT, OLMo 2", "[gguf]") {
  agree(R"({"model_type":"llama4_text","num_hidden_layers":8,"hidden_size":5120,"num_attention_heads":40,
            "num_key_value_heads":8,"head_dim":128,"max_position_embeddings":10485760,"rope_theta":500000.0,
            "rms_norm_eps":1e-5,"attention_chunk_size":8192,"attn_scale":0.1,"floor_scale":8192,
            "use_qk_norm":true,"attn_temperature_tuning":true})",
        {"llama4",
         {{"block_count", 8},
          {"context_length", 10485760},
          {"embedding_length", 5120},
          {"attention.head_count", 40},
          {"attention.head_count_kv", 8},
          {"attention.key_length", 128},
          {"attention.layer_norm_rms_epsilon", 1e-5},
          {"expert_count", 16},
          {"rope.freq_base", 500000}}});
  agree(R"({"model_type":"smollm3","num_hidden_layers":8,"hidden_size":2048,"num_attention_heads":16,
            "num_key_value_heads":4,"max_position_embeddings":65536,"rope_theta":5000000.0,
            "no_rope_layers":[1,1,1,0,1,1,1,0],"use_sliding_window":false})",
        {"smollm3",
         {{"block_count", 8},
          {"context_length", 65536},
          {"embedding_length", 2048},
          {"attention.head_count", 16},
          {"attention.head_count_kv", 4},
          {"rope.freq_base", 5e6}}},
        order::permuted);
  agree(R"({"model_type":"cohere2","num_hidden_layers":8,"hidden_size":4096,"num_attention_heads":32,
            "num_key_value_heads":8,"head_dim":128,"max_position_embeddings":8192,"rope_theta":50000,
            "sliding_window":4096,"sliding_window_pattern":4})",
        {"cohere2",
         {{"block_count", 8},
          {"context_length", 8192},
          {"embedding_length", 4096},
          {"attention.head_count", 32},
          {"attention.head_count_kv", 8},
          {"attention.key_length", 128},
          {"attention.sliding_window", 4096},
          {"rope.freq_base", 50000}}});
  agree(R"({"model_type":"modernbert","num_hidden_layers":7,"hidden_size":768,"num_attention_heads":12,
            "max_position_embeddings":8192,"global_rope_theta":160000.0,"local_rope_theta":10000.0,
            "local_attention":128,"global_attn_every_n_layers":3})",
        {"modern-bert",
         {{"block_count", 7},
          {"context_length", 8192},
          {"embedding_length", 768},
          {"attention.head_count", 12},
          {"attention.causal", false},
          {"attention.sliding_window", 128},
          {"rope.freq_base", 160000},
          {"rope.freq_base_swa", 10000}}});
  agree(R"({"model_type":"olmo2","num_hidden_layers":2,"hidden_size":4096,"num_attention_heads":32,
            "max_position_embeddings":4096,"rope_theta":500000,"rms_norm_eps":1e-6})",
        {"olmo2",
         {{"block_count", 2},
          {"context_length", 4096},
          {"embedding_length", 4096},
          {"attention.head_count", 32},
          {"attention.layer_norm_rms_epsilon", 1e-6},
          {"rope.freq_base", 500000}}});
}

TEST_CASE("gguf agrees with config.json: Gemma 4 by its factors", "[gguf]") {
  // Pairs that do not turn are divided by 1e30: not 0, but less than the smallest angle that a float can hold.
  std::vector<float> divisors(256, 1e30f);
  std::fill_n(divisors.begin(), 64, 1.0f);
  const gguf_file file{"gemma4",
                       {{"block_count", 6},
                        {"context_length", 131072},
                        {"embedding_length", 2304},
                        {"attention.head_count", 8},
                        {"attention.head_count_kv", 4},
                        {"attention.key_length", 512},
                        {"attention.key_length_swa", 256},
                        {"attention.sliding_window", 512},
                        {"attention.sliding_window_pattern", std::vector<bool>{true, true, true, true, true, false}},
                        {"attention.layer_norm_rms_epsilon", 1e-6},
                        {"rope.dimension_count", 512},
                        {"rope.dimension_count_swa", 256},
                        {"rope.freq_base", 1e6},
                        {"rope.freq_base_swa", 10000}}};
  const auto hf = from_huggingface(
      R"({"model_type":"gemma4_text","num_hidden_layers":6,"hidden_size":2304,"num_attention_heads":8,
          "num_key_value_heads":4,"head_dim":256,"global_head_dim":512,"max_position_embeddings":131072,
          "sliding_window":512})");
  const auto gguf = from_gguf(file, {.rope_freqs = divisors});
  for (std::int64_t l = 0; l < 6; ++l) {
    CAPTURE(l);
    CHECK(hf.layer(l).head_dim == gguf.layer(l).head_dim);
    CHECK(hf.layer(l).window == gguf.layer(l).window);
    CHECK(hf.layer(l).logit_multiplier == gguf.layer(l).logit_multiplier);
    CHECK(posenc_test::largest_difference(hf.rotation(l)->inv_freq(), gguf.rotation(l)->inv_freq()) < 2e-30);
  }
  CHECK(gguf.rotation(5)->inv_freq()[63] > 0.01);
}

TEST_CASE("gguf agrees with config.json: models without rotation", "[gguf]") {
  agree(R"({"model_type":"bloom","n_layer":2,"hidden_size":4096,"n_head":32,"seq_length":2048})",
        {"bloom",
         {{"block_count", 2}, {"context_length", 2048}, {"embedding_length", 4096}, {"attention.head_count", 32}}});
  agree(R"({"model_type":"mpt","n_layers":2,"d_model":4096,"n_heads":32,"max_seq_len":2048,
            "attn_config":{"alibi":true,"alibi_bias_max":8}})",
        {"mpt",
         {{"block_count", 2},
          {"context_length", 2048},
          {"embedding_length", 4096},
          {"attention.head_count", 32},
          {"attention.max_alibi_bias", 8.0}}});
  agree(R"({"model_type":"mpt","n_layers":2,"d_model":4096,"n_heads":32,"max_seq_len":2048,
            "attn_config":{"alibi":false}})",
        {"mpt",
         {{"block_count", 2}, {"context_length", 2048}, {"embedding_length", 4096}, {"attention.head_count", 32}}});
  agree(R"({"model_type":"falcon","num_hidden_layers":2,"hidden_size":4544,"num_attention_heads":71,
            "multi_query":true,"max_position_embeddings":2048})",
        {"falcon",
         {{"block_count", 2},
          {"context_length", 2048},
          {"embedding_length", 4544},
          {"attention.head_count", 71},
          {"attention.head_count_kv", 1}}});
  agree(R"({"model_type":"gpt2","n_layer":2,"n_head":12,"n_embd":768,"n_positions":1024})",
        {"gpt2",
         {{"block_count", 2}, {"context_length", 1024}, {"embedding_length", 768}, {"attention.head_count", 12}}});
  agree(R"({"model_type":"bert","num_hidden_layers":2,"hidden_size":768,"num_attention_heads":12,
            "max_position_embeddings":512})",
        {"bert",
         {{"block_count", 2},
          {"context_length", 512},
          {"embedding_length", 768},
          {"attention.head_count", 12},
          {"attention.causal", false}}});
  const gguf_file t5{"t5",
                     {{"block_count", 3},
                      {"decoder_block_count", 2},
                      {"context_length", 512},
                      {"embedding_length", 512},
                      {"attention.head_count", 8},
                      {"attention.key_length", 64},
                      {"attention.relative_buckets_count", 32}}};
  const char* config = R"({"model_type":"t5","num_layers":3,"num_decoder_layers":2,"d_model":512,"num_heads":8,
                           "d_kv":64,"n_positions":512})";
  agree(config, t5);
  agree(config, t5, order::same, {.encoder = true}, 0, stack::encoder);
}
