// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// How one model family is described to the reader: its names, what its configuration may leave out, and the rules by
/// which its layers rotate, look back and norm.

#include <posenc/encoders/rope.hpp>
#include <posenc/models/huggingface_keys.hpp>
#include <posenc/models/huggingface_rope.hpp>
#include <posenc/models/settings.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <string>

namespace posenc::models {

/// Which stack of an encoder-decoder model is read; models of one stack have no choice.
enum class stack { decoder, encoder };

namespace detail {

enum class rotates {
  no,
  every_layer,
  /// Layers with a window (Cohere 2).
  windowed_layers,
  /// no_rope_layers, whose 1 means a layer WITH rotation, or every layer but each no_rope_layer_interval-th.
  listed_layers
};

/// Which layers have a window where layer_types does not say it.
enum class windows {
  none,
  every_layer,
  /// All but each sliding_window_pattern-th.
  by_pattern,
  /// From max_window_layers on, if use_sliding_window.
  from_layer,
  /// Layers without rotation, if use_sliding_window (SmolLM3).
  unrotated_layers,
  /// All but 0, n, 2n, ..., n = global_attn_every_n_layers (ModernBERT).
  between_global_layers
};

enum class norms {
  none,
  before,
  /// The gain is 1 + w (Gemma 3).
  before_one_plus,
  /// Over all heads (OLMo 2).
  before_over_all_heads,
  /// If use_qk_norm: the same as `before` (GLM 4.5), or without gain after the rotation of those that rotate (Llama 4).
  before_if_used,
  after_if_used
};

struct family {
  std::array<const char*, 6> names{};
  /// What a configuration means where it is silent, as JSON.
  const char* defaults = "{}";
  rotates rotation = rotates::every_layer;
  rope_family rope{};
  windows window = windows::none;
  norms norm = norms::none;
  /// What else there is to say, after the layers have been read.
  void (*finish)(const config_object&, model_settings&, stack) = nullptr;
  /// Keys of the base of full and of windowed layers, where these differ without rope_parameters.
  const char* full_theta = "rope_theta";
  const char* windowed_theta = nullptr;
  bool two_stacks = false;
  /// Heads of qk_nope_head_dim + qk_rope_head_dim channels of which the last rotate (DeepSeek).
  bool trailing_block = false;
};

template <class F>
void for_layers(model_settings& m, F&& f) {
  for (std::size_t l = 0; l < m.layers.size(); ++l) f(m.layers[l], static_cast<std::int64_t>(l));
}
inline void bidirectional(model_settings& m) {
  for_layers(m, [](layer_settings& s, std::int64_t) { s.causal = false; });
}
inline void learned_rows(const config_object& c, model_settings& m, id_rule ids, std::int64_t rows,
                         std::int64_t offset = 0) {
  m.embedding = {.kind = embedding_kind::learned,
                 .ids = ids,
                 .rows = rows,
                 .dim = c.count({"hidden_size", "n_embd", "n_embed", "d_model"}),
                 .offset = offset,
                 .padding_idx = c.integer({"pad_token_id"}).value_or(0)};
}
/// q.k * scale instead of q.k / sqrt(head_dim).
inline void scale_outright(model_settings& m, double scale) {
  for_layers(m, [&](layer_settings& s, std::int64_t) {
    s.logit_multiplier = scale * std::sqrt(static_cast<double>(s.head_dim));
  });
}
inline std::int64_t table_rows(const config_object& c) {
  return c.count({"max_position_embeddings", "n_positions", "max_seq_len"});
}

inline void finish_gpt2(const config_object& c, model_settings& m, stack) {
  learned_rows(c, m, id_rule::sequential, table_rows(c));
  if (!c.flag({"scale_attn_weights"}, true)) scale_outright(m, 1);
  if (c.flag({"scale_attn_by_inverse_layer_idx"}))
    for_layers(m, [](layer_settings& s, std::int64_t l) { s.logit_multiplier /= static_cast<double>(l + 1); });
}
inline void finish_opt(const config_object& c, model_settings& m, stack) {
  learned_rows(c, m, id_rule::opt, table_rows(c) + 2, 2);
}
inline void finish_bert(const config_object& c, model_settings& m, stack) {
  const std::string kind = c.text({"position_embedding_type"}).value_or("absolute");
  if (kind != "absolute") c.fail("position_embedding_type", "must be absolute", json(kind));
  learned_rows(c, m, id_rule::sequential, table_rows(c));
  if (!c.flag({"is_decoder"})) bidirectional(m);
}
inline void finish_roberta(const config_object& c, model_settings& m, stack s) {
  finish_bert(c, m, s);
  m.embedding.ids = id_rule::roberta;
}
inline void finish_bloom(const config_object& c, model_settings& m, stack) {
  m.bias = {.kind = bias_kind::alibi, .alibi = {.heads = m.heads}};
  if (m.max_positions == 0) m.max_positions = c.integer({"seq_length"}).value_or(0);
}
inline void finish_mpt(const config_object& c, model_settings& m, stack) {
  // A null block is that of the class, as an absent one.
  const json nothing = json::object();
  const json published = {{"alibi", true}};
  const config_object a = c.object("attn_config").value_or(config_object(&nothing, &published, "attn_config."));
  for (const char* key : {"prefix_lm", "qk_ln", "qk_gn", "rope"})
    if (a.flag({key})) a.fail(key, "must be false: it is not read", "true");
  if (const auto width = a.integer({"sliding_window_size"}); width && *width != -1)
    a.fail("sliding_window_size", "must be -1: a window of this family is not read", json(*width));
  const std::string type = a.text({"attn_type"}).value_or("multihead_attention");
  if (type == "multiquery_attention" || type == "grouped_query_attention") {
    const std::int64_t kv = type == "multiquery_attention" ? 1 : a.count({"kv_n_heads"}, m.heads);
    if (m.heads % kv != 0) a.fail("kv_n_heads", "must divide the heads, " + std::to_string(m.heads), json(kv));
    for_layers(m, [&](layer_settings& s, std::int64_t) { s.kv_heads = kv; });
  } else if (type != "multihead_attention") {
    a.fail("attn_type", "must be multihead_attention, multiquery_attention or grouped_query_attention", json(type));
  }
  if (const auto scale = a.positive("softmax_scale")) scale_outright(m, *scale);
  if (a.flag({"alibi"})) {
    m.bias = {.kind = bias_kind::alibi,
              .alibi = {.heads = m.heads, .bias_max = a.positive("alibi_bias_max").value_or(8)}};
  } else if (c.flag({"learned_pos_emb"}, true)) {
    learned_rows(c, m, id_rule::masked, table_rows(c));
  }
}
inline void finish_falcon(const config_object& c, model_settings& m, stack) {
  if (!c.flag({"new_decoder_architecture"})) {
    // The first configurations (RefinedWeb) say n_head_kv alone; those of transformers carry num_kv_heads = heads
    // along even where all heads share one key.
    const bool said = c.says("new_decoder_architecture") || c.says("multi_query");
    const auto kv = c.integer({"num_key_value_heads", "num_kv_heads", "n_head_kv"});
    const bool own = kv && (*kv != m.heads || c.text({"model_type"}) == "RefinedWeb");
    const bool shared = c.flag({"multi_query"}, true);
    if (own && said && shared && *kv != 1)
      c.fail(c.find({"num_key_value_heads", "num_kv_heads", "n_head_kv"}).second,
             "must agree with new_decoder_architecture and multi_query, which say 1", json(*kv));
    if (shared && !own) for_layers(m, [](layer_settings& s, std::int64_t) { s.kv_heads = 1; });
  }
  if (!c.flag({"alibi"})) return;
  if (c.says("rope_scaling")) c.fail("rope_scaling", "must be absent beside alibi", "a rotation");
  if (const std::string kind = rope_kind_of(rope_block(c, "full_attention"), {}); kind != "default")
    c.fail("rope_parameters.rope_type", "must be default beside alibi", json(kind));
  for_layers(m, [](layer_settings& s, std::int64_t) { s.rotation.reset(); });
  // Slopes in bfloat16, and the bias goes through the scale of q.k.
  m.bias = {.kind = bias_kind::alibi,
            .alibi = {.heads = m.heads, .rounding = slope_rounding::bfloat16},
            .scale = 1 / std::sqrt(static_cast<double>(m.layers[0].head_dim))};
}
inline void finish_t5(const config_object& c, model_settings& m, stack which) {
  if (which == stack::encoder) bidirectional(m);
  scale_outright(m, 1);
  m.bias = {.kind = bias_kind::relative_bucket,
            .relative = {.heads = m.heads,
                         .num_buckets = c.count({"relative_attention_num_buckets"}),
                         .max_distance = c.count({"relative_attention_max_distance"}),
                         .bidirectional = which == stack::encoder}};
}
inline void finish_deberta(const config_object& c, model_settings& m, stack) {
  bidirectional(m);
  if (c.flag({"relative_attention"})) m.bias.kind = bias_kind::content;
  // The score of content is divided by sqrt(1 + terms) as well.
  const auto [terms, key] = c.find({"pos_att_type"});
  const std::string text = terms ? (terms->is_string() ? terms->get<std::string>() : terms->dump()) : "";
  const double parts =
      1 + (text.find("c2p") != std::string::npos ? 1 : 0) + (text.find("p2c") != std::string::npos ? 1 : 0);
  if (m.bias.kind == bias_kind::content)
    for_layers(m, [&](layer_settings& s, std::int64_t) { s.logit_multiplier = 1 / std::sqrt(parts); });
  if (c.flag({"position_biased_input"}, true)) learned_rows(c, m, id_rule::sequential, table_rows(c));
}
inline void finish_marian(const config_object& c, model_settings& m, stack which) {
  if (which == stack::encoder) bidirectional(m);
  m.embedding = {.kind = embedding_kind::sinusoidal,
                 .rows = table_rows(c),
                 .dim = c.count({"d_model"}),
                 .sinusoidal = {.dim = c.count({"d_model"}), .layout = sinusoidal_layout::concat_sin_cos}};
}
inline void finish_whisper(const config_object& c, model_settings& m, stack which) {
  if (which == stack::decoder) return learned_rows(c, m, id_rule::sequential, c.count({"max_target_positions"}));
  bidirectional(m);
  m.embedding = {.kind = embedding_kind::sinusoidal,
                 .rows = c.count({"max_source_positions"}),
                 .dim = c.count({"d_model"}),
                 .sinusoidal = {.dim = c.count({"d_model"}),
                                .layout = sinusoidal_layout::concat_sin_cos,
                                .denominator = sinusoidal_denominator::half_minus_1}};
}
inline void finish_qwen(const config_object& c, model_settings& m, stack) {
  m.max_positions = c.count({"seq_length"});
  if (c.flag({"use_dynamic_ntk"}, true)) m.stepped = stepped_ntk{m.max_positions};
  if (c.flag({"use_logn_attn"}, true))
    for_layers(m, [&](layer_settings& s, std::int64_t) { s.log_scaled_from = m.max_positions; });
}
inline void finish_gemma(const config_object& c, model_settings& m, stack) {
  const json* value = c.find({"use_bidirectional_attention"}).first;
  const bool all = value && (value->is_string() ? *value == "all" : c.flag({"use_bidirectional_attention"}));
  if (!all) return;
  bidirectional(m);
  for_layers(m, [](layer_settings& s, std::int64_t) {
    if (s.window) s.both_sides = *s.window / 2 + 1;
    s.window.reset();
  });
}
/// Gemma 4 scales by 1 and has wider heads on its full layers.
inline void finish_gemma4(const config_object& c, model_settings& m, stack s) {
  if (!c.number({"query_pre_attn_scalar"})) scale_outright(m, 1);
  finish_gemma(c, m, s);
}
inline void finish_llama4(const config_object& c, model_settings& m, stack) {
  const auto chunk = c.integer({"attention_chunk_size"});
  if (chunk && *chunk < 1) c.fail("attention_chunk_size", "must be at least 1", json(*chunk));
  const bool tuned = c.flag({"attn_temperature_tuning"}, true);
  for_layers(m, [&](layer_settings& s, std::int64_t) {
    if (s.rotation && !c.says("layer_types")) s.chunk = chunk;
    if (!s.rotation && tuned)
      s.temperature = query_temperature{.scale = c.number({"attn_scale"}).value_or(0.1),
                                        .floor_scale = c.number({"floor_scale"}).value_or(8192),
                                        .position_offset = 1};
  });
}
inline void finish_ministral3(const config_object& c, model_settings& m, stack) {
  const auto block = rope_block(c, "full_attention").block;
  const auto beta = block ? block->number({"llama_4_scaling_beta"}) : std::nullopt;
  if (!beta) return;
  const auto length = block->number({"original_max_position_embeddings"});
  if (!length) block->fail("original_max_position_embeddings", "must be given beside llama_4_scaling_beta", "nothing");
  for_layers(m, [&](layer_settings& s, std::int64_t) {
    s.temperature = query_temperature{.scale = *beta, .floor_scale = *length, .position_offset = 0};
  });
}
inline void finish_deepseek(const config_object& c, model_settings& m, stack) {
  for_layers(m, [&](layer_settings& s, std::int64_t) {
    if (!c.flag({"rope_interleave"}, true)) s.rotation->layout = half_split;
    s.logit_multiplier = posenc::rope<float>(*s.rotation).softmax_scale_multiplier();
  });
}
inline void finish_gpt_oss(const config_object&, model_settings& m, stack) {
  for_layers(m, [](layer_settings& s, std::int64_t) { s.sinks = true; });
}
inline void finish_granite(const config_object& c, model_settings& m, stack) {
  if (const auto scale = c.positive("attention_multiplier")) scale_outright(m, *scale);
}

}  // namespace detail
}  // namespace posenc::models
