// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What a configuration may not say, and what it means where it is silent.
#include "support/catch.hpp"
#include "unit/models/readers.hpp"

#include <nlohmann/json.hpp>

#include <string>

namespace {

using nlohmann::json;
using posenc::models::model;
using posenc_test::contains;
using posenc_test::from_huggingface;

/// A small Llama with other keys put in; null takes none away, `without` does.
json llama(const json& change = json::object()) {
  json c = {{"model_type", "llama"},  {"hidden_size", 64},      {"num_attention_heads", 4},
            {"num_hidden_layers", 2}, {"rope_theta", 500000.0}, {"max_position_embeddings", 131072}};
  c.update(change);
  return c;
}
json without(json c, const char* key) {
  c.erase(key);
  return c;
}
/// Scaled by the block.
json scaled(const json& block) { return llama({{"rope_scaling", block}}); }

void refused(const json& config, const std::string& words) {
  INFO(config.dump());
  CHECK_THROWS_AS(from_huggingface(config), std::invalid_argument);
  CHECK_THROWS_WITH(from_huggingface(config), contains(words));
}
const json llama3 = {
    {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
json kind(const char* key, const char* name, json block = llama3) {
  block[key] = name;
  return block;
}

}  // namespace

TEST_CASE("F31: a kind under another key, or one that is not known, never falls back to plain RoPE") {
  const json head128 = {{"hidden_size", 512}};
  for (const char* key : {"rope_type", "type"}) {
    json c = scaled(kind(key, "llama3"));
    c.update(head128);
    // Position 5000, pair 40 of 64.
    CHECK(5000 * from_huggingface(c).rotation(0)->inv_freq()[40] == Approx(0.171405110).epsilon(1e-8));
  }
  refused(scaled(kind("kind", "llama3")), "rope_scaling.rope_type must be given beside factor, got nothing");
  refused(scaled(kind("scaling_type", "llama3")), "rope_scaling.rope_type must be given");
  refused(scaled(llama3), "rope_scaling.rope_type must be given");
  refused(scaled(kind("rope_type", "llama-3")), "rope_scaling.rope_type must be one of default, linear, dynamic");
  refused(scaled(kind("type", "ntk")), "rope_scaling.type must be one of");
  refused(scaled({{"rope_type", 3}}), "rope_scaling.rope_type must be a string, got 3");
  refused(llama({{"rope_parameters", {{"rope_type", "yarn2"}, {"factor", 2}}}}), "rope_parameters.rope_type");
  // Parameters that scale nothing are those of plain RoPE.
  CHECK(from_huggingface(without(llama({{"rope_parameters", {{"rope_theta", 20000.0}}}}), "rope_theta"))
            .layer(0)
            .rotation->base == 20000);
}

TEST_CASE("F25: no scaling block means scale 1, and dynamic NTK below its length too") {
  CHECK(3 * from_huggingface(llama()).rotation(0)->inv_freq()[0] == 3);
  const model m = from_huggingface(scaled({{"type", "dynamic"}, {"factor", 6.0}}));
  CHECK(3 * m.rotation(0)->inv_freq()[0] == 3);
  CHECK(m.at_length(4).rotation(0)->inv_freq() == from_huggingface(llama()).rotation(0)->inv_freq());
}

TEST_CASE("F09: a partial factor counts for every kind of scaling") {
  for (const char* name : {"default", "linear", "yarn"})
    for (const double factor : {0.25, 0.5}) {
      json block = {{"rope_type", name}, {"rope_theta", 10000.0}, {"partial_rotary_factor", factor}};
      if (std::string(name) != "default") block["factor"] = 2.0;
      if (std::string(name) == "yarn") block["original_max_position_embeddings"] = 4096;
      const model m = from_huggingface(without(llama({{"hidden_size", 32}, {"rope_parameters", block}}), "rope_theta"));
      CHECK(m.rotation(0)->rotary_dim() == static_cast<std::int64_t>(8 * factor));
    }
  // 100 * 0.29 truncates to 28, as every implementation has it.
  CHECK(from_huggingface(llama({{"head_dim", 100}, {"partial_rotary_factor", 0.29}})).rotation(0)->rotary_dim() == 28);
  refused(llama({{"partial_rotary_factor", 1.5}}), "partial_rotary_factor must lie in (0, 1], got 1.5");
}

TEST_CASE("F56: no_rope_layers lists 1 for layers that rotate") {
  const auto uses = [](const json& config) {
    const model m = from_huggingface(config);
    std::vector<int> out;
    for (std::int64_t l = 0; l < m.layers(); ++l) out.push_back(m.rotation(l).has_value());
    return out;
  };
  for (const char* type : {"smollm3", "llama4"}) {
    json c = llama({{"model_type", type}, {"num_hidden_layers", 8}});
    CHECK(uses(c) == std::vector<int>{1, 1, 1, 0, 1, 1, 1, 0});
    c["no_rope_layers"] = json::array();
    CHECK(uses(c) == std::vector<int>{1, 1, 1, 0, 1, 1, 1, 0});
    c["no_rope_layer_interval"] = 2;
    CHECK(uses(c) == std::vector<int>{1, 0, 1, 0, 1, 0, 1, 0});
    c["no_rope_layers"] = {1, 0, 1, 1, 1, 1, 1, 0};
    CHECK(uses(c) == std::vector<int>{1, 0, 1, 1, 1, 1, 1, 0});
    c["no_rope_layers"] = {1, 0, 1};
    refused(c, "no_rope_layers must list every layer, 8, got 3");
    c["no_rope_layers"] = {3, 7, 1, 1, 1, 1, 1, 0};
    refused(c, "no_rope_layers must list 1 for layers with rotation and 0 for others, got 3");
  }
}

TEST_CASE("keys that contradict each other are refused by name") {
  json both = kind("rope_type", "llama3");
  both["type"] = "linear";
  refused(scaled(both), "rope_scaling.type must agree with rope_scaling.rope_type = llama3, got linear");
  both["type"] = "llama3";
  CHECK_NOTHROW(from_huggingface(scaled(both)));
  refused(llama({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}}),
          "rope_parameters.rope_theta must agree with rope_theta = 500000.0, got 10000.0");
  refused(llama({{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}}},
                 {"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}}),
          "rope_scaling.factor must agree with rope_parameters.factor = 2.0, got 4.0");
  // What the old block says beyond the new one is not dropped.
  refused(
      llama({{"rope_parameters", {{"rope_type", "default"}}}, {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}),
      "rope_scaling.factor must agree with rope_parameters.factor = nothing, got 2.0");
  CHECK_NOTHROW(from_huggingface(llama({{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2.0}}},
                                        {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}})));
  refused(
      llama({{"model_type", "gemma4"}, {"sliding_window", 8}, {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}),
      "rope_scaling must be absent beside rope_parameters per layer type");
  refused(llama({{"model_type", "qwen2"},
                 {"use_sliding_window", false},
                 {"sliding_window", 8},
                 {"layer_types", {"full_attention", "sliding_attention"}}}),
          "use_sliding_window must agree with layer_types");
  refused(llama({{"original_max_position_embeddings", 4096}, {"rope_scaling", kind("rope_type", "llama3")}}),
          "rope_scaling.original_max_position_embeddings must agree with original_max_position_embeddings = 4096");
  refused(llama({{"partial_rotary_factor", 0.5},
                 {"rope_scaling", {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}}}}),
          "rope_scaling.partial_rotary_factor must agree with partial_rotary_factor = 0.5, got 0.25");
  refused(llama({{"n_layer", 3}}), "n_layer must agree with num_hidden_layers = 2, got 3");
  refused(llama({{"rotary_emb_base", 10000}}), "rotary_emb_base must agree with rope_theta = 500000.0, got 10000");
  refused(llama({{"rotary_dim", 8}, {"partial_rotary_factor", 0.25}}), "rotary_dim must agree with");
  refused(scaled({{"rope_type", "default"}, {"factor", 8.0}}), "rope_scaling.factor must be absent for");
  refused(llama({{"model_type", "falcon"}, {"alibi", true}, {"rope_scaling", kind("rope_type", "llama3")}}),
          "rope_scaling must be absent beside alibi");
  json nested = {{"model_type", "qwen2_vl"}, {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}};
  nested["text_config"] = llama({{"model_type", "qwen2_vl_text"}});
  refused(nested, "rope_scaling must stand in text_config, or agree with it");
}

TEST_CASE("parameters per layer type") {
  json c = llama({{"model_type", "gemma3_text"},
                  {"sliding_window", 512},
                  {"layer_types", {"sliding_attention", "full_attention"}}});
  c.erase("rope_theta");
  c["rope_parameters"] = {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
                          {"full_attention",
                           {{"rope_type", "yarn"},
                            {"rope_theta", 1000000.0},
                            {"factor", 4.0},
                            {"original_max_position_embeddings", 32768},
                            {"truncate", false}}}};
  const model m = from_huggingface(c);
  CHECK(m.layer(0).rotation->base == 10000);
  CHECK(m.layer(1).rotation->base == 1000000);
  // truncate is heard inside the block of a layer type, too.
  CHECK_FALSE(std::get<posenc::yarn>(m.layer(1).rotation->scaling).truncate);
  c["rope_local_base_freq"] = 20000.0;
  refused(c,
          "rope_parameters.sliding_attention.rope_theta must agree with rope_local_base_freq = 20000.0, got 10000.0");
  c.erase("rope_local_base_freq");
  c["rope_parameters"].erase("full_attention");
  refused(c, "rope_parameters.full_attention must hold the parameters of such layers, got nothing");
  c["layer_types"] = {"sliding_attention"};
  refused(c, "layer_types must list every layer, 2, got 1");
  c["layer_types"] = {"sliding_attention", "linear_attention"};
  refused(c, "layer_types must list full_attention, sliding_attention or chunked_attention");
  json window = llama({{"layer_types", {"sliding_attention", "full_attention"}}});
  refused(window, "sliding_window must be given, got nothing");
}

TEST_CASE("head_dim: null counts as absent under every scaling; heads that do not divide are refused") {
  for (const json& block : {json(), kind("rope_type", "llama3"), json({{"type", "dynamic"}, {"factor", 2.0}}),
                            json({{"type", "yarn"}, {"factor", 2.0}, {"original_max_position_embeddings", 4096}})}) {
    json c = scaled(block);
    c["head_dim"] = nullptr;
    CHECK(from_huggingface(c).rotation(0)->head_dim() == 16);
    c["head_dim"] = 32;
    CHECK(from_huggingface(c).rotation(0)->head_dim() == 32);
  }
  // Qwen 3 has a default of 128 where the key is absent, not where it is null.
  CHECK(from_huggingface(llama({{"model_type", "qwen3"}})).layer(0).head_dim == 128);
  CHECK(from_huggingface(llama({{"model_type", "qwen3"}, {"head_dim", nullptr}})).layer(0).head_dim == 16);
  refused(llama({{"num_attention_heads", 5}}), "head_dim must be given where the heads do not divide");
  refused(llama({{"head_dim", "64"}}), "head_dim must be a whole number, got \"64\"");
  refused(llama({{"num_key_value_heads", 3}}), "num_key_value_heads must divide the heads, 4, got 3");
}

TEST_CASE("what a kind of scaling needs") {
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
    refused(scaled(without(kind("rope_type", "llama3"), key)),
            std::string("rope_scaling.") + key + " must be given for this rope_type");
  refused(scaled({{"rope_type", "linear"}}), "rope_scaling.factor must be given");
  refused(scaled({{"rope_type", "yarn"}}), "rope_scaling.factor must be given where original_max_position_embeddings");
  refused(scaled({{"rope_type", "yarn"}, {"factor", "4"}}), "rope_scaling.factor must be a number, got \"4\"");
  const std::vector<double> ones(8, 1.0);
  json longrope = {{"rope_type", "longrope"},
                   {"short_factor", ones},
                   {"long_factor", ones},
                   {"original_max_position_embeddings", 4096}};
  CHECK_NOTHROW(from_huggingface(scaled(longrope)));
  longrope["long_factor"] = {1.0, 2.0};
  refused(scaled(longrope), "rope_scaling.long_factor must list one number per pair, 8, got 2");
  longrope["long_factor"] = 2.0;
  refused(scaled(longrope), "rope_scaling.long_factor must be a list");
  refused(scaled(without(longrope, "long_factor")), "rope_scaling.long_factor must be given");
  longrope["long_factor"] = ones;
  longrope["short_mscale"] = 1.2;
  refused(scaled(longrope), "rope_scaling.short_mscale must be absent");

  // factor: null is the ratio of the lengths; betas of 0 are the defaults; the magnitude that is given wins (F27).
  const model m = from_huggingface(scaled({{"rope_type", "yarn"},
                                           {"factor", nullptr},
                                           {"beta_fast", 0},
                                           {"attention_factor", 1.0},
                                           {"original_max_position_embeddings", 32768}}));
  const auto& y = std::get<posenc::yarn>(m.layer(0).rotation->scaling);
  CHECK(y.factor == 4);
  CHECK(y.beta_fast == 32);
  CHECK(m.rotation(0)->magnitude() == 1.0);
  // Without an original length YaRN counts from max_position_embeddings, as Hugging Face does.
  const model silent = from_huggingface(scaled({{"rope_type", "yarn"}, {"factor", 2.0}}));
  CHECK(std::get<posenc::yarn>(silent.layer(0).rotation->scaling).original_max_position_embeddings == 131072);
  // HunYuan's alpha.
  const model hunyuan = from_huggingface(scaled({{"type", "dynamic"}, {"alpha", 1000.0}, {"factor", 1.0}}));
  CHECK(std::get<posenc::ntk_aware>(hunyuan.layer(0).rotation->scaling).factor == 1000);
  CHECK_FALSE(hunyuan.depends_on_length());
}

TEST_CASE("models, axes and norms that are not read say so") {
  refused(without(llama(), "model_type"), "model_type must be one of the families that are read");
  refused(llama({{"model_type", "mamba"}}),
          "model_type must be one of the families that are read (docs/models.md), got \"mamba\"");
  refused(json::array(), "the configuration must be an object");
  CHECK_THROWS_WITH(from_huggingface("{\"model_type\": "), contains("the configuration must be JSON"));
  CHECK_THROWS_AS(from_huggingface(std::string("no")), std::invalid_argument);
  CHECK(from_huggingface(llama().dump()).layers() == 2);
  refused(without(llama(), "num_hidden_layers"), "num_hidden_layers must be given, got nothing");
  refused(llama({{"num_hidden_layers", 0}}), "num_hidden_layers must be at least 1, got 0");
  refused(llama({{"num_hidden_layers", 2.5}}), "num_hidden_layers must be a whole number, got 2.5");

  json vl = llama({{"model_type", "qwen2_vl"}});
  refused(vl, "mrope_section must be given for a model with several axes");
  vl["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {2, 3, 4}}};
  refused(vl,
          "rope_scaling.mrope_section must list three numbers that sum to half the rotated channels, 8, got [2,3,4]");
  vl["rope_scaling"]["mrope_section"] = {2, 3, 3};
  CHECK(from_huggingface(vl).rotation(0)->axis_count() == 3);
  vl["model_type"] = "ernie4_5_vl";
  vl["head_dim"] = nullptr;
  vl["rope_scaling"] = {{"type", "default"}, {"mrope_section", {2, 3, 3}}};
  refused(vl, "rope_scaling.mrope_section must give height and width alike");

  refused(llama({{"model_type", "stablelm"}, {"qk_layernorm", true}}), "qk_layernorm must be false");
  refused(llama({{"model_type", "cohere"}, {"use_qk_norm", true}}), "use_qk_norm must be false");
  refused(llama({{"model_type", "bert"}, {"position_embedding_type", "relative_key"}}), "position_embedding_type");
  refused(llama({{"model_type", "mpt"}, {"attn_config", {{"prefix_lm", true}}}}),
          "attn_config.prefix_lm must be false");
  refused(llama({{"model_type", "gemma2"}, {"query_pre_attn_scalar", 0}}), "query_pre_attn_scalar must be positive");
  refused(llama({{"model_type", "gemma2"}, {"attn_logit_softcapping", -1.0}}), "attn_logit_softcapping");
  refused(llama({{"attn_logit_softcapping", "yes"}}), "attn_logit_softcapping must be a number");
  refused(llama({{"model_type", "qwen2"}, {"use_sliding_window", "no"}}), "use_sliding_window must be true or false");
  refused(llama({{"layer_types", "full_attention"}}), "layer_types must be a list");
  refused(llama({{"rope_scaling", "yarn"}}), "rope_scaling must be an object");
  // A null keeps the default of the family away.
  CHECK(from_huggingface(llama({{"model_type", "gemma2"}})).layer(0).softcap == 50);
  CHECK(from_huggingface(llama({{"model_type", "gemma2"}, {"attn_logit_softcapping", nullptr}})).layer(0).softcap == 0);
}
