// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Keys that contradict each other under different names, keys that nothing reads, values out of range, and the
// configurations that only look like one of these.
#include "support/catch.hpp"
#include "unit/models/readers.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using nlohmann::json;
using posenc::models::model;
using posenc_test::contains;
using posenc_test::from_huggingface;

/// One layer of 4 heads with 128 channels, and what a test adds.
json of(const char* type, const json& change = json::object()) {
  json c = {{"model_type", type},
            {"hidden_size", 512},
            {"num_attention_heads", 4},
            {"num_key_value_heads", 4},
            {"num_hidden_layers", 1}};
  c.update(change);
  return c;
}
void refused(const json& config, const std::string& words) {
  INFO(config.dump());
  CHECK_THROWS_WITH(from_huggingface(config), contains("posenc::models::from_huggingface: " + words));
}
json mrope(const json& sections) { return {{"type", "mrope"}, {"mrope_section", sections}}; }

}  // namespace

TEST_CASE("bases and partial factors under other names contradict each other, too") {
  const auto parameters = [](const char* key, double value) { return json{{"rope_type", "default"}, {key, value}}; };
  refused(of("gpt_neox", {{"rotary_emb_base", 10000}, {"rope_parameters", parameters("rope_theta", 5e4)}}),
          "rope_parameters.rope_theta must agree with rotary_emb_base = 10000, got 50000.0");
  refused(of("gpt_neox", {{"rotary_pct", 0.25}, {"rope_parameters", parameters("partial_rotary_factor", 0.5)}}),
          "rope_parameters.partial_rotary_factor must agree with rotary_pct = 0.25, got 0.5");
  refused(of("gptj", {{"rotary_dim", 128}, {"rope_parameters", parameters("partial_rotary_factor", 0.5)}}),
          "rotary_dim must agree with rope_parameters.partial_rotary_factor, got 128");
  CHECK(
      from_huggingface(of("gptj", {{"rotary_dim", 64}, {"rope_parameters", parameters("partial_rotary_factor", 0.5)}}))
          .rotation(0)
          ->rotary_dim() == 64);
  const json per_type = {{"sliding_attention", parameters("rope_theta", 1e4)},
                         {"full_attention", parameters("rope_theta", 8e4)}};
  refused(of("gemma3_text", {{"num_hidden_layers", 6}, {"rope_theta", 1e6}, {"rope_parameters", per_type}}),
          "rope_parameters.full_attention.rope_theta must agree with rope_theta = 1000000.0, got 80000.0");
  refused(of("modernbert", {{"global_rope_theta", 160000.0}, {"rope_parameters", per_type}}),
          "rope_parameters.full_attention.rope_theta must agree with global_rope_theta = 160000.0, got 80000.0");
  refused(of("modernbert", {{"num_hidden_layers", 2}, {"local_rope_theta", 2e4}, {"rope_parameters", per_type}}),
          "rope_parameters.sliding_attention.rope_theta must agree with local_rope_theta = 20000.0, got 10000.0");
  CHECK_NOTHROW(from_huggingface(
      of("gemma3_text", {{"num_hidden_layers", 6}, {"rope_theta", 8e4}, {"rope_parameters", per_type}})));
  refused(of("falcon", {{"alibi", true}, {"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}}}}),
          "rope_parameters.rope_type must be default beside alibi, got \"linear\"");
  CHECK_NOTHROW(from_huggingface(of("falcon", {{"alibi", true}, {"rope_parameters", {{"rope_type", "default"}}}})));
}

TEST_CASE("parameters for all layers leave windowed layers their own base, unscaled") {
  const model bert =
      from_huggingface(of("modernbert", {{"num_hidden_layers", 2}, {"rope_parameters", {{"rope_type", "default"}}}}));
  CHECK(bert.layer(0).rotation->base == 160000);
  CHECK(bert.layer(1).rotation->base == 10000);
  const json block = {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}};
  const model gemma = from_huggingface(of("gemma3_text", {{"num_hidden_layers", 6}, {"rope_parameters", block}}));
  CHECK(gemma.layer(0).rotation->base == 10000);
  CHECK(gemma.rotation(0)->inv_freq()[0] == 1);
  CHECK(gemma.layer(5).rotation->base == 1e6);
  CHECK(gemma.rotation(5)->inv_freq()[0] == 0.125);
}

TEST_CASE("old and present-day names of one kind agree") {
  const json sections = {16, 24, 24};
  const json now = {{"rope_type", "default"}, {"mrope_section", sections}, {"rope_theta", 1e6}};
  CHECK(from_huggingface(of("qwen2_vl", {{"rope_scaling", mrope(sections)}, {"rope_parameters", now}}))
            .rotation(0)
            ->axis_count() == 3);
  json both = now;
  both["type"] = "mrope";
  CHECK_NOTHROW(from_huggingface(of("qwen2_vl", {{"rope_scaling", mrope(sections)}, {"rope_parameters", both}})));
  const json ones = std::vector<double>(64, 1.0);
  const json old = {{"type", "su"}, {"short_factor", ones}, {"long_factor", ones}};
  const json longrope = {{"rope_type", "longrope"}, {"short_factor", ones}, {"long_factor", ones}};
  json phi = of("phi3", {{"max_position_embeddings", 131072}, {"rope_scaling", old}, {"rope_parameters", longrope}});
  CHECK(std::holds_alternative<posenc::longrope>(from_huggingface(phi).layer(0).rotation->scaling));
  phi["rope_scaling"]["type"] = "linear";
  refused(phi, "rope_scaling.type must agree with rope_parameters.type = \"longrope\", got \"linear\"");
}

TEST_CASE("Qwen 2.5-VL saved with a width beside text_config and windows off") {
  const json block = mrope({16, 24, 24});
  json c = {{"model_type", "qwen2_5_vl"}, {"sliding_window", 32768}, {"use_sliding_window", false}};
  c["text_config"] = of("qwen2_5_vl_text", {{"sliding_window", nullptr},
                                            {"use_sliding_window", false},
                                            {"rope_scaling", block},
                                            {"layer_types", {"full_attention"}}});
  CHECK_FALSE(from_huggingface(c).layer(0).window.has_value());
  c["text_config"]["use_sliding_window"] = true;
  refused(c, "sliding_window must stand in text_config, or agree with it, got 32768");
  c["text_config"]["use_sliding_window"] = false;
  c["text_config"]["model_type"] = "weird_text";
  refused(c, "text_config.model_type must be one of the families that are read (docs/models.md), got \"weird_text\"");
  c["text_config"].erase("model_type");
  CHECK(from_huggingface(c).settings().family == "qwen2_5_vl");
}

TEST_CASE("lists hold whole numbers in range") {
  const auto vl = [](const json& sections) { return of("qwen2_vl", {{"rope_scaling", mrope(sections)}}); };
  refused(vl({16.9, 24, 24}), "rope_scaling.mrope_section must list whole numbers, got 16.9");
  refused(vl({1e30, 24, 24}), "rope_scaling.mrope_section must list whole numbers, got 1e+30");
  refused(vl({-8, 40, 32}), "rope_scaling.mrope_section must list numbers in 0..64, the rotated pairs, got -8");
  const std::int64_t huge = std::int64_t{1} << 52;
  refused(vl({huge, huge, huge}), "rope_scaling.mrope_section must list numbers in 0..64");
  refused(vl({64, 64, 64}), "rope_scaling.mrope_section must list three numbers that sum to half");
  refused(of("smollm3", {{"no_rope_layers", {4294967297}}}), "no_rope_layers must list whole numbers, got 4294967297");
}

TEST_CASE("what a rotation refuses is refused by key") {
  refused(of("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", -2}}}}),
          "rope_scaling (layer 0): posenc::linear: factor must be positive and finite, got -2");
  const json y = {{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", -1}};
  refused(of("llama", {{"rope_parameters", y}}),
          "rope_parameters (layer 0): posenc::yarn: original_max_position_embeddings must be at least 1, got -1");
  json c = {{"model_type", "qwen2_vl"}};
  c["text_config"] = of("qwen2_vl_text", {{"rope_theta", 0}, {"mrope_section", {16, 24, 24}}});
  refused(c, "text_config.rope_theta must be positive, got 0.0");
  refused(of("llama", {{"rope_parameters", {{"rope_theta", -5.0}}}}), "rope_parameters.rope_theta must be positive");
  refused(of("gpt_neox", {{"rotary_pct", 1.5}}), "rotary_pct must lie in (0, 1], got 1.5");
  refused(of("phi", {{"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 2}}}}),
          "rope_parameters.partial_rotary_factor must lie in (0, 1], got 2");
  refused(of("phi", {{"head_dim", 64}, {"partial_rotary_factor", 0.3}}),
          "partial_rotary_factor must leave an even number of channels to rotate, 2 to 64, got 0.3");
  refused(of("gptj", {{"head_dim", 32}}), "rotary_dim must leave an even number of channels to rotate, 2 to 32");
  refused(of("llama", {{"head_dim", 7}}), "head_dim must leave an even number of channels to rotate, 2 to 7, got 7");
  refused(of("deepseek_v3", {{"qk_rope_head_dim", 7}}), "qk_rope_head_dim must be even, got 7");
}

TEST_CASE("scores, norms and sizes have their ranges") {
  refused(of("qwen3", {{"rms_norm_eps", 0}}), "rms_norm_eps must be positive, got 0");
  refused(of("granite", {{"attention_multiplier", -1.0}}), "attention_multiplier must be positive, got -1.0");
  refused(of("mpt", {{"attn_config", {{"alibi_bias_max", 0}}}}), "attn_config.alibi_bias_max must be positive");
  refused(of("mpt", {{"attn_config", {{"softmax_scale", 0}}}}), "attn_config.softmax_scale must be positive");
  refused(of("llama4_text", {{"attention_chunk_size", 0}}), "attention_chunk_size must be at least 1, got 0");
  refused(of("llama", {{"num_hidden_layers", 100001}}), "num_hidden_layers must be at most 100000, got 100001");
  refused(of("bloom", {{"num_attention_heads", 100001}}), "num_attention_heads must be at most 100000");
  refused(of("llama", {{"head_dim", 1048578}}), "head_dim must be at most 1048576, got 1048578");
  refused(of("llama", {{"hidden_size", 1LL << 40}}), "hidden_size must be at most 2^20 per head");
}

TEST_CASE("keys that nothing reads are refused, those that change nothing are not") {
  const json y = {{"type", "yarn"}, {"factor", 16.0}, {"original_max_position_embeddings", 4096}, {"finetuned", true}};
  const auto with = [&](const char* key, const json& value) {
    json block = y;
    block[key] = value;
    return of("llama", {{"max_position_embeddings", 65536}, {"rope_scaling", block}});
  };
  refused(with("attn_factor", 0.5), "rope_scaling.attn_factor must be absent: it is not read for this family");
  CHECK_NOTHROW(from_huggingface(with("attn_factor", 1.0)));
  CHECK_NOTHROW(from_huggingface(with("attn_factor", nullptr)));
  refused(with("llama_4_scaling_beta", 0.1), "rope_scaling.llama_4_scaling_beta must be absent");
  refused(of("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}, {"attention_factor", 0.5}}}}),
          "rope_scaling.attention_factor must be absent: it is not read for this family and rope_type linear, got 0.5");
  refused(of("qwen2", {{"rope_scaling", mrope({16, 24, 24})}}), "rope_scaling.mrope_section must be absent");
  refused(of("qwen2", {{"rope_scaling", {{"type", "mrope"}}}}),
          "rope_scaling.type must not be mrope: this family has one axis");
  refused(of("deepseek_v3", {{"partial_rotary_factor", 0.5}}), "partial_rotary_factor must be 1 or absent");
  refused(of("gpt2", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2}}}}),
          "rope_scaling must be absent: this family does not rotate");
  refused(of("llama", {{"sliding_window", 128}}), "sliding_window must be null: this family has no window");
  CHECK_NOTHROW(from_huggingface(of("llama", {{"sliding_window", nullptr}})));
  CHECK_NOTHROW(from_huggingface(of("llama", {{"sliding_window", 128}, {"use_sliding_window", false}})));
}

TEST_CASE("MPT: a null block is that of the class; shared keys; no window") {
  json c = {{"model_type", "mpt"}, {"d_model", 64}, {"n_heads", 4}, {"n_layers", 2}, {"max_seq_len", 128}};
  c["attn_config"] = nullptr;
  CHECK(from_huggingface(c).settings().bias.kind == posenc::models::bias_kind::alibi);
  CHECK(from_huggingface(c).layer(1).kv_heads == 4);
  c["attn_config"] = {{"attn_type", "multiquery_attention"}, {"sliding_window_size", -1}};
  CHECK(from_huggingface(c).layer(1).kv_heads == 1);
  c["attn_config"] = {{"attn_type", "grouped_query_attention"}, {"kv_n_heads", 2}};
  CHECK(from_huggingface(c).layer(1).kv_heads == 2);
  c["attn_config"]["kv_n_heads"] = 3;
  refused(c, "attn_config.kv_n_heads must divide the heads, 4, got 3");
  c["attn_config"] = {{"attn_type", "linear"}};
  refused(c, "attn_config.attn_type must be multihead_attention, multiquery_attention or");
  c["attn_config"] = {{"sliding_window_size", 16}};
  refused(c, "attn_config.sliding_window_size must be -1");
}

TEST_CASE("Falcon: heads of keys as first published, and as saved since") {
  const auto kv = [](const json& config) { return from_huggingface(config).layer(0).kv_heads; };
  json first = {{"model_type", "RefinedWeb"}, {"hidden_size", 1024}, {"n_head", 16}, {"n_layer", 1}, {"n_head_kv", 8}};
  CHECK(kv(first) == 8);
  first["n_head_kv"] = 16;
  CHECK(kv(first) == 16);
  json seven = {{"model_type", "falcon"}, {"hidden_size", 1024}, {"num_attention_heads", 16}, {"num_hidden_layers", 1}};
  CHECK(kv(seven) == 1);
  seven.update({{"num_kv_heads", 16}, {"multi_query", true}, {"new_decoder_architecture", false}});
  CHECK(kv(seven) == 1);
  seven["num_kv_heads"] = 8;
  refused(seven, "num_kv_heads must agree with new_decoder_architecture and multi_query, which say 1, got 8");
  seven["multi_query"] = false;
  CHECK(kv(seven) == 8);
  seven["multi_query"] = true;
  seven["new_decoder_architecture"] = true;
  CHECK(kv(seven) == 8);
}

TEST_CASE("what gpt-oss and Mistral mean where they are silent") {
  json oss = of("gpt_oss", {{"num_attention_heads", 64}, {"hidden_size", 2880}});
  oss.erase("num_key_value_heads");
  const model m = from_huggingface(oss);
  CHECK(m.layer(0).kv_heads == 8);
  CHECK(m.layer(0).rotation->base == 150000);
  const auto& y = std::get<posenc::yarn>(m.layer(0).rotation->scaling);
  CHECK(y.factor == 32);
  CHECK(y.original_max_position_embeddings == 4096);
  CHECK_FALSE(y.truncate);
  // 0.1 ln 32 + 1
  CHECK(m.rotation(0)->magnitude() == Approx(1.3465735902799727).epsilon(1e-15));
  oss["rope_parameters"] = {{"rope_type", "default"}};
  CHECK(from_huggingface(oss).rotation(0)->magnitude() == 1);
  oss.erase("rope_parameters");
  oss["rope_scaling"] = nullptr;
  CHECK(from_huggingface(oss).rotation(0)->magnitude() == 1);
  for (const char* type : {"mistral", "mixtral"}) {
    json c = of(type, {{"num_attention_heads", 32}});
    c.erase("num_key_value_heads");
    CHECK(from_huggingface(c).layer(0).kv_heads == 8);
    c["num_key_value_heads"] = nullptr;
    CHECK(from_huggingface(c).layer(0).kv_heads == 32);
  }
}

TEST_CASE("a temporary model gives copies") {
  static_assert(std::is_same_v<decltype(std::declval<model>().settings()), posenc::models::model_settings>);
  static_assert(std::is_same_v<decltype(std::declval<const model>().layer(0)), posenc::models::layer_settings>);
  static_assert(std::is_same_v<decltype(std::declval<const model&>().layer(0)), const posenc::models::layer_settings&>);
  static_assert(!std::is_reference_v<decltype(std::declval<model>().rotation(0))>);
  static_assert(!std::is_reference_v<decltype(std::declval<model>().policy<posenc::nope>(0))>);
  const auto& layer = from_huggingface(of("llama")).layer(0);
  CHECK(layer.head_dim == 128);
  const auto& policy = from_huggingface(of("llama")).policy<posenc::nope>(0);
  CHECK(policy.rotation->head_dim() == 128);
}
