// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A model's own settings: its config.json, old and new key styles, as per-layer policies.
///   const auto model = posenc::models::from_huggingface(json_text);
///   model.visit_layer(l, [&](const auto& policy) { posenc::attention(q, k, v, out, policy, options); });
/// Layers, not weights: docs/models.md lists the families and the keys that are read. Weights that belong to positions
/// (sinks, gains of norms, T5's table) are set on the model. Of a model with a vision tower the text part is read.
/// Throws   std::invalid_argument that names the key: an unknown model_type or rope_type, keys that contradict each
///          other, missing or mistyped ones. Nothing falls back in silence.
/// Needs nlohmann-json; posenc/posenc.hpp leaves this header out.
/// Usage    docs/models.md

#include <posenc/encoders/irope.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/models/huggingface_families.hpp>
#include <posenc/models/model.hpp>
#include <posenc/models/settings.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace posenc::models {

struct huggingface_options {
  /// Of an encoder-decoder model; an encoder without a decoder is read either way.
  stack part = stack::decoder;
};

namespace detail {

inline constexpr const char* full = "full_attention";
inline constexpr const char* sliding = "sliding_attention";
inline constexpr const char* in_chunks = "chunked_attention";

/// Which layers rotate.
[[nodiscard]] inline std::vector<bool> read_rotating_layers(const config_object& c, const family& f,
                                                            std::int64_t layers) {
  std::vector<bool> out(static_cast<std::size_t>(layers), f.rotation != rotates::no);
  if (f.rotation != rotates::listed_layers) return out;
  const auto list = c.list<int>({"no_rope_layers"}).value_or(std::vector<int>{});
  if (!list.empty() && static_cast<std::int64_t>(list.size()) != layers)
    c.fail("no_rope_layers", "must list every layer, " + std::to_string(layers), json(list.size()));
  for (const int use : list)
    if (use != 0 && use != 1)
      c.fail("no_rope_layers", "must list 1 for layers with rotation and 0 for others", json(use));
  const auto schedule = rope_schedule::listed(list, layers, c.count({"no_rope_layer_interval"}));
  for (std::int64_t l = 0; l < layers; ++l) out[static_cast<std::size_t>(l)] = schedule.uses_rope(l);
  return out;
}

/// The type of every layer: from layer_types, else by the family's rule.
[[nodiscard]] inline std::vector<std::string> read_layer_types(const config_object& c, const family& f,
                                                               std::int64_t layers, const std::vector<bool>& rotating) {
  if (auto types = c.list<std::string>({"layer_types"})) {
    if (static_cast<std::int64_t>(types->size()) != layers)
      c.fail("layer_types", "must list every layer, " + std::to_string(layers), json(types->size()));
    for (const std::string& type : *types)
      if (type != full && type != sliding && type != in_chunks)
        c.fail("layer_types", "must list full_attention, sliding_attention or chunked_attention", json(type));
    if (c.says("use_sliding_window") && !c.flag({"use_sliding_window"}) &&
        std::find(types->begin(), types->end(), sliding) != types->end())
      c.fail("use_sliding_window", "must agree with layer_types, which lists sliding_attention", "false");
    return *types;
  }
  const bool window = c.integer({"sliding_window"}).has_value();
  if (f.window == windows::none && window && c.flag({"use_sliding_window"}, true))
    c.fail("sliding_window", "must be null: this family has no window without layer_types",
           c.given()["sliding_window"]);
  const auto windowed = [&](std::int64_t l) {
    switch (f.window) {
      case windows::none: return false;
      case windows::every_layer: return window;
      case windows::by_pattern: return (l + 1) % c.count({"sliding_window_pattern"}) != 0;
      case windows::from_layer:
        return window && c.flag({"use_sliding_window"}) && l >= c.integer({"max_window_layers"}).value_or(0);
      case windows::unrotated_layers:
        return window && c.flag({"use_sliding_window"}) && !rotating[static_cast<std::size_t>(l)];
      case windows::between_global_layers: return l % c.count({"global_attn_every_n_layers"}) != 0;
    }
    return false;
  };
  std::vector<std::string> out;
  for (std::int64_t l = 0; l < layers; ++l) out.emplace_back(windowed(l) ? sliding : full);
  return out;
}

/// head_dim, or hidden size over heads where it is absent or null.
[[nodiscard]] inline std::int64_t read_head_dim(const config_object& c, std::int64_t heads) {
  if (c.integer({"head_dim", "kv_channels", "d_kv"}))
    return c.count({"head_dim", "kv_channels", "d_kv"}, most_channels);
  const std::int64_t hidden = c.count({"hidden_size", "n_embd", "n_embed", "d_model"});
  if (hidden % heads != 0)
    c.fail("head_dim", "must be given where the heads do not divide the hidden size, " + std::to_string(hidden),
           json(heads));
  if (hidden / heads > most_channels) c.fail("hidden_size", "must be at most 2^20 per head", json(hidden));
  return hidden / heads;
}

[[nodiscard]] inline norm_settings read_norm(const config_object& c, const family& f, bool rotating) {
  const bool after = f.norm == norms::after_if_used;
  if (f.norm == norms::none) {
    for (const char* key : {"qk_layernorm", "use_qk_norm"})
      if (c.flag({key})) c.fail(key, "must be false: that norm of q and k is not read", "true");
    return {};
  }
  if ((after || f.norm == norms::before_if_used) && !c.flag({"use_qk_norm"})) return {};
  if (after && !rotating) return {};
  return {.place = after ? norm_place::after_rotation : norm_place::before_rotation,
          .eps = c.positive("rms_norm_eps").value_or(1e-6),
          .has_gain = !after,
          .one_plus_weight = f.norm == norms::before_one_plus,
          .over_all_heads = f.norm == norms::before_over_all_heads};
}

/// DeepSeek: the rotated channels are the last of the head, all of them.
inline void place_behind(const config_object& c, const rope_keys& k, rope_options& o, std::int64_t head_dim) {
  if (o.partial_rotary_factor != 1)
    (k.block && k.block->says("partial_rotary_factor") ? *k.block : c)
        .fail("partial_rotary_factor", "must be 1 or absent: qk_rope_head_dim says what rotates",
              json(o.partial_rotary_factor));
  o.rotary_dim = o.head_dim;
  o.offset = head_dim - o.head_dim;
  o.head_dim = head_dim;
}

/// The rotation of layers of one type and width; `layer` is the first of them.
[[nodiscard]] inline rope_options read_rotation(const config_object& c, const family& f, const std::string& type,
                                                std::int64_t head_dim, std::int64_t layer) {
  const bool local = type == sliding && f.windowed_theta;
  const auto key = [&](const rope_keys& k) -> std::string {
    if (!k.block || (local && !k.nested)) return c.path() + (local ? f.windowed_theta : f.full_theta);
    return k.block->path().substr(0, k.block->path().size() - 1);
  };
  const rope_keys k = rope_block(c, type, f.rope);
  if (f.trailing_block && c.count({"qk_rope_head_dim"}) % 2 != 0)
    c.fail("qk_rope_head_dim", "must be even", json(c.count({"qk_rope_head_dim"})));
  // A block for all layers speaks of the full ones, as rope_scaling did.
  rope_options o = read_rope(c, f.rope, f.trailing_block ? c.count({"qk_rope_head_dim"}, head_dim) : head_dim, type,
                             local ? f.windowed_theta : f.full_theta, !local || k.nested);
  if (f.trailing_block) place_behind(c, k, o, head_dim);
  // What the rotation itself refuses is refused here, by key.
  named("models::from_huggingface", key(k) + " (layer " + std::to_string(layer) + ")",
        [&] { (void)posenc::rope<float>(o); });
  return o;
}

[[nodiscard]] inline model_settings read_layers(const config_object& c, const family& f, stack which) {
  const bool decoder = which == stack::decoder;
  model_settings m;
  std::int64_t layers = 0;
  if (f.two_stacks) {
    const auto of_decoder = c.integer({"num_decoder_layers", "decoder_layers"});
    layers = decoder && of_decoder ? c.count({"num_decoder_layers", "decoder_layers"}, most_layers)
                                   : c.count({"num_layers", "encoder_layers", "num_hidden_layers"}, most_layers);
    m.heads = c.count({"num_heads", decoder ? "decoder_attention_heads" : "encoder_attention_heads"}, most_heads);
  } else {
    layers = c.count({"num_hidden_layers", "n_layer", "n_layers", "num_layers"}, most_layers);
    m.heads = c.count({"num_attention_heads", "n_head", "n_heads", "num_heads"}, most_heads);
  }
  m.max_positions = c.integer({"max_position_embeddings", "n_positions", "max_seq_len"}).value_or(0);
  const std::int64_t head_dim =
      f.trailing_block ? c.count({"qk_nope_head_dim"}, most_channels) + c.count({"qk_rope_head_dim"}, most_channels)
                       : read_head_dim(c, m.heads);
  const auto kv_heads = c.integer({"num_key_value_heads", "num_kv_heads", "n_head_kv"});
  if (kv_heads && (*kv_heads < 1 || m.heads % *kv_heads != 0))
    c.fail("num_key_value_heads", "must divide the heads, " + std::to_string(m.heads), json(*kv_heads));

  if (f.rotation == rotates::no)
    for (const char* key : {"rope_scaling", "rope_parameters"})
      if (c.says(key)) c.fail(key, "must be absent: this family does not rotate", c.given()[key]);
  const auto rotating = read_rotating_layers(c, f, layers);
  const auto types = read_layer_types(c, f, layers, rotating);
  std::map<std::string, rope_options> rotations;
  for (std::size_t l = 0; l < types.size(); ++l) {
    const std::string& type = types[l];
    layer_settings s{.head_dim = head_dim, .kv_heads = kv_heads.value_or(m.heads)};
    if (type == full && c.integer({"global_head_dim"})) {
      s.head_dim = c.count({"global_head_dim"}, most_channels);
      if (c.flag({"attention_k_eq_v"}) && c.integer({"num_global_key_value_heads"}))
        s.kv_heads = c.count({"num_global_key_value_heads"});
    }
    if (f.window == windows::between_global_layers) s.causal = false;
    if (type == sliding) {
      if (f.window == windows::between_global_layers) {
        s.both_sides = c.count({"local_attention"}) / 2 + 1;
      } else {
        s.window = c.count({"sliding_window"});
      }
    }
    if (type == in_chunks) s.chunk = c.count({"attention_chunk_size"});
    if (rotating[l] && (f.rotation != rotates::windowed_layers || type == sliding)) {
      if (!rotations.contains(type))
        rotations.emplace(type, read_rotation(c, f, type, s.head_dim, static_cast<std::int64_t>(l)));
      s.rotation = rotations.at(type);
    }
    s.softcap = c.number({"attn_logit_softcapping"}).value_or(0);
    if (s.softcap < 0) c.fail("attn_logit_softcapping", "must not be negative", json(s.softcap));
    if (const auto scalar = c.number({"query_pre_attn_scalar"})) {
      if (!(*scalar > 0)) c.fail("query_pre_attn_scalar", "must be positive", json(*scalar));
      s.logit_multiplier = std::sqrt(static_cast<double>(s.head_dim) / *scalar);
    }
    s.norm = read_norm(c, f, rotating[l]);
    m.layers.push_back(std::move(s));
  }
  if (f.finish) f.finish(c, m, which);
  return m;
}

}  // namespace detail

/// The settings alone, to look at or to change before `model` is made of them.
[[nodiscard]] inline model_settings huggingface_settings(const nlohmann::json& config,
                                                         const huggingface_options& options = {}) {
  const nlohmann::json nothing = nlohmann::json::object();
  const detail::config_object whole(config.is_object() ? &config : &nothing, nullptr, "");
  if (!config.is_object()) whole.fail("the configuration", "must be an object", config);
  const auto nested = whole.object("text_config");
  const detail::config_object& text = nested ? *nested : whole;
  const auto outer_type = whole.text({"model_type"});
  const auto inner_type = text.text({"model_type"});
  const detail::family* f = inner_type ? detail::family_of(*inner_type) : nullptr;
  if (nested && inner_type && !f)
    text.fail("model_type", "must be one of the families that are read (docs/models.md)", nlohmann::json(*inner_type));
  std::string name = inner_type.value_or("");
  if (!f && outer_type) {
    f = detail::family_of(*outer_type);
    name = *outer_type;
  }
  if (!f)
    whole.fail("model_type", "must be one of the families that are read (docs/models.md)",
               outer_type ? nlohmann::json(*outer_type) : nlohmann::json("nothing"));
  // Null in text_config, with windows off, is what a width beside them comes to.
  const bool no_window = nested && text.given().contains("sliding_window") && !text.says("sliding_window") &&
                         text.says("use_sliding_window") && !text.flag({"use_sliding_window"});
  if (nested)
    for (const char* key : {"rope_parameters", "rope_scaling", "rope_theta", "sliding_window", "layer_types"})
      if (!(no_window && std::string_view(key) == "sliding_window") && whole.says(key) &&
          (!text.says(key) || text.given()[key] != config[key]))
        whole.fail(key, "must stand in text_config, or agree with it", config[key]);

  const nlohmann::json defaults = nlohmann::json::parse(f->defaults);
  const detail::config_object c(&text.given(), &defaults, text.path());
  const bool encoder_alone = f->two_stacks && !whole.flag({"is_encoder_decoder"}, true);
  model_settings m = detail::read_layers(c, *f, encoder_alone ? stack::encoder : options.part);
  m.family = name;
  return m;
}

/// See the file comment.
[[nodiscard]] inline model from_huggingface(const nlohmann::json& config, const huggingface_options& options = {}) {
  return model(huggingface_settings(config, options));
}
/// From the text of a config.json.
[[nodiscard]] inline model from_huggingface(std::string_view text, const huggingface_options& options = {}) {
  const auto config = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  posenc::detail::require(!config.is_discarded(), "models::from_huggingface", "the configuration", "must be JSON",
                          text.substr(0, 40));
  return from_huggingface(config, options);
}
[[nodiscard]] inline model from_huggingface(const char* text, const huggingface_options& options = {}) {
  return from_huggingface(std::string_view(text), options);
}
[[nodiscard]] inline model from_huggingface(const std::string& text, const huggingface_options& options = {}) {
  return from_huggingface(std::string_view(text), options);
}

}  // namespace posenc::models
