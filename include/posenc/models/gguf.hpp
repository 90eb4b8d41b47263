// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A model's positions and scores from the metadata of a GGUF file, through any function from key to value:
///   const auto m = posenc::models::from_gguf([&](const std::string& key) { return my_file.find(key); });
///   m.visit_layer(l, [&](const auto& policy) { posenc::attention(q, k, v, out, policy, options); });
/// Keys read  general.architecture, and below its name: context_length, embedding_length, block_count,
///            decoder_block_count, expert_count, attn_logit_softcapping; attention.{head_count, head_count_kv,
///            key_length(_swa, _mla), kv_lora_rank, causal, scale, sliding_window, sliding_window_pattern,
///            max_alibi_bias, relative_buckets_count, temperature_scale, temperature_length, layer_norm_rms_epsilon};
///            rope.* (gguf_rope.hpp). What the keys leave out follows from the architecture (gguf_architectures.hpp).
/// Result     the same settings that the model's config.json gives, but for what the file itself holds otherwise: rows
///            of Llama and its like in interleaved order, gains of Gemma's norms with the 1 added.
/// Throws     std::invalid_argument naming the key: an unknown architecture or scaling type, contradictions, what is
///            missing.

#include <posenc/encoders/rope.hpp>
#include <posenc/models/gguf_architectures.hpp>
#include <posenc/models/gguf_keys.hpp>
#include <posenc/models/gguf_rope.hpp>
#include <posenc/models/model.hpp>
#include <posenc/models/settings.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace posenc::models {

namespace detail {

class gguf_reader {
 public:
  gguf_reader(gguf_lookup lookup, const gguf_options& options)
      : keys_(std::move(lookup)), about_(known(keys_)), rotation_(keys_, about_, options), encoder_(options.encoder) {}
  gguf_reader(const gguf_reader&) = delete;  // rotation_ points into it
  gguf_reader& operator=(const gguf_reader&) = delete;

  [[nodiscard]] model_settings read() const {
    model_settings m;
    m.family = keys_.architecture();
    const std::int64_t layers = about_.name == "t5" && causal() && keys_.has("decoder_block_count")
                                    ? count("decoder_block_count", most_layers)
                                    : count("block_count", most_layers);
    m.max_positions = keys_.integer("context_length", 0);
    const std::vector<std::int64_t> heads = keys_.per_layer("attention.head_count", layers, 0);
    for (const std::int64_t h : heads) {
      // Layers without attention say 0.
      if (h > most_heads) keys_.refuse("attention.head_count", "must be at most 100000", h);
      if (h < 0 || (h != 0 && m.heads != 0 && h != m.heads))
        keys_.refuse("attention.head_count", "must be the same in all layers that have attention", h);
      m.heads = h != 0 ? h : m.heads;
    }
    if (m.heads == 0) keys_.refuse("attention.head_count", "must be at least 1", 0);
    read_bias(m);
    read_embedding(m);
    const std::vector<std::int64_t> kv = keys_.per_layer("attention.head_count_kv", layers, m.heads);
    const std::vector<bool> window = windows(layers);
    for (std::int64_t l = 0; l < layers; ++l)
      m.layers.push_back(layer(m, l, kv[static_cast<std::size_t>(l)], window[static_cast<std::size_t>(l)]));
    return m;
  }

 private:
  static const gguf_architecture& known(const gguf_keys& keys) {
    const gguf_architecture* a = find_gguf_architecture(keys.architecture());
    posenc::detail::require(a, "models::from_gguf", "general.architecture", "must be a known one", keys.architecture());
    return *a;
  }
  [[nodiscard]] std::int64_t count(const char* key, std::int64_t most = std::int64_t{1} << 53) const {
    const std::int64_t n = keys_.required(key);
    if (n < 1) keys_.refuse(key, "must be at least 1", n);
    if (n > most) keys_.refuse(key, ("must be at most " + std::to_string(most)).c_str(), n);
    return n;
  }

  /// Baichuan 13B has 40 layers and ALiBi, 7B a rotation; MPT has ALiBi or a table.
  [[nodiscard]] gguf_positions positions() const {
    if (about_.name == "baichuan" && keys_.integer("block_count") == 40) return gguf_positions::alibi;
    if (about_.name == "mpt" && keys_.number("attention.max_alibi_bias", 0) == 0) return gguf_positions::learned;
    return about_.positions;
  }
  [[nodiscard]] bool rotates() const { return positions() >= gguf_positions::normal; }

  void read_bias(model_settings& m) const {
    if (positions() == gguf_positions::alibi) {
      m.bias.kind = bias_kind::alibi;
      m.bias.alibi.heads = m.heads;
      const double most = keys_.number("attention.max_alibi_bias", 8);
      if (!(most > 0)) keys_.refuse("attention.max_alibi_bias", "must be positive", most);
      m.bias.alibi.bias_max = most;
    } else if (positions() == gguf_positions::buckets) {
      m.bias.kind = bias_kind::relative_bucket;
      m.bias.relative.heads = m.heads;
      m.bias.relative.num_buckets = keys_.required("attention.relative_buckets_count");
      m.bias.relative.bidirectional = !causal();
    }
  }
  void read_embedding(model_settings& m) const {
    if (positions() != gguf_positions::learned) return;
    m.embedding.kind = embedding_kind::learned;
    if (about_.name == "mpt") m.embedding.ids = id_rule::masked;
    m.embedding.rows = count("context_length");
    m.embedding.dim = count("embedding_length");
  }

  [[nodiscard]] bool causal() const {
    const bool encoder = about_.encoder || (about_.positions == gguf_positions::buckets && encoder_);
    return keys_.integer("attention.causal", encoder ? 0 : 1) != 0;
  }
  [[nodiscard]] std::int64_t window_width() const {
    const std::int64_t w = keys_.integer("attention.sliding_window", about_.window.width);
    if (w < 0) keys_.refuse("attention.sliding_window", "must not be negative", w);
    return w;
  }
  /// Layers with a window: a list of flags, or one layer without in every n.
  [[nodiscard]] std::vector<bool> windows(std::int64_t layers) const {
    std::vector<bool> out(static_cast<std::size_t>(layers), false);
    if (window_width() == 0) return out;
    const char* key = "attention.sliding_window_pattern";
    const std::vector<std::int64_t> flags = keys_.array(key);
    if (!flags.empty()) {
      if (static_cast<std::int64_t>(flags.size()) < layers) keys_.refuse(key, "must list every layer", flags.size());
      for (std::size_t l = 0; l < out.size(); ++l) out[l] = flags[l] != 0;
      return out;
    }
    const std::int64_t n = keys_.integer(key, about_.window.full_every);
    if (n < 0) keys_.refuse(key, "must not be negative", n);
    for (std::int64_t l = 0; l < layers; ++l)
      out[static_cast<std::size_t>(l)] = n == 0 || l % n != (about_.window.full_first ? 0 : n - 1);
    return out;
  }
  /// Models that alternate windows and no rotation rotate everywhere when the window is off.
  [[nodiscard]] bool rotates(std::int64_t l, bool window) const {
    if (!rotates()) return false;
    if (about_.window.rotated_only) return window || window_width() == 0;
    const std::int64_t n = about_.no_rope_every;
    if (n == 0 || (about_.window.width != 0 && window_width() == 0)) return true;
    return about_.window.full_first ? l % n != 0 : (l + 1) % n != 0;
  }

  [[nodiscard]] std::int64_t head_dim(const model_settings& m, bool window) const {
    for (const char* key :
         {"attention.key_length_mla", window ? "attention.key_length_swa" : "", "attention.key_length"})
      if (*key && keys_.has(key)) return count(key, most_channels);
    const std::int64_t width = count("embedding_length");
    if (width % m.heads != 0) keys_.refuse("embedding_length", "must be a multiple of attention.head_count", width);
    if (width / m.heads > most_channels) keys_.refuse("embedding_length", "must be at most 2^20 per head", width);
    return width / m.heads;
  }
  /// On q.k / sqrt(head_dim).
  [[nodiscard]] double multiplier(const model_settings& m, std::int64_t head_dim) const {
    const auto dim = static_cast<double>(head_dim);
    if (const auto scale = keys_.number("attention.scale"); scale && *scale != 0) {
      if (!(*scale > 0)) keys_.refuse("attention.scale", "must be positive", *scale);
      return *scale * std::sqrt(dim);
    }
    const bool unscaled = positions() == gguf_positions::buckets || about_.name == "gemma3n" || about_.name == "gemma4";
    if (unscaled) return std::sqrt(dim);
    const std::int64_t layers = count("block_count");
    // Gemma 27B scales by the width of the model per head.
    const bool by_width = (about_.name == "gemma2" && layers == 46) || (about_.name == "gemma3" && layers == 62);
    if (!by_width) return 1;
    return std::sqrt(dim * static_cast<double>(m.heads) / static_cast<double>(count("embedding_length")));
  }

  [[nodiscard]] layer_settings layer(const model_settings& m, std::int64_t l, std::int64_t kv, bool window) const {
    layer_settings s;
    s.head_dim = head_dim(m, window);
    const bool latent = keys_.has("attention.kv_lora_rank");
    s.kv_heads = latent ? m.heads : kv;
    if (kv < 0 || (!latent && kv > 0 && m.heads % kv != 0))
      keys_.refuse("attention.head_count_kv", "must divide attention.head_count", kv);
    s.causal = causal();
    if (window) {
      const std::int64_t w = window_width();
      if (about_.name == "llama4") {
        s.chunk = w;
      } else if (s.causal) {
        s.window = w;
      } else {
        s.both_sides = w / 2 + 1;
      }
    }
    if (kv > 0 && rotates(l, window)) {
      s.rotation = rotation_.options(s.head_dim, window);
      named("models::from_gguf", keys_.full("rope.*") + " (layer " + std::to_string(l) + ")",
            [&] { (void)posenc::rope<float>(*s.rotation); });
    }
    s.softcap = keys_.number("attn_logit_softcapping", about_.name == "gemma2" ? 50 : 0);
    if (s.softcap < 0) keys_.refuse("attn_logit_softcapping", "must not be negative", s.softcap);
    s.logit_multiplier = multiplier(m, s.head_dim) * rotation_.softmax_factor();
    read_temperature(s);
    read_norm(s);
    s.sinks = about_.name == "gpt-oss";
    return s;
  }

  void read_temperature(layer_settings& s) const {
    if (about_.name == "llama4") {
      if (s.rotation) return;
      s.temperature = query_temperature{.scale = keys_.number("attention.temperature_scale", 0.1),
                                        .floor_scale = keys_.number("attention.temperature_length", 8192),
                                        .position_offset = 1};
      return;
    }
    const auto given = keys_.number("attention.temperature_scale");
    if (!given || *given == 0) return;
    const auto length = keys_.number("attention.temperature_length");
    s.temperature = query_temperature{.scale = *given,
                                      .floor_scale = length ? *length : static_cast<double>(rotation_.original()),
                                      .position_offset = 0};
  }
  void read_norm(layer_settings& s) const {
    const bool plain = about_.norm == gguf_norm::plain_after;
    // Of the Llama 4 models, the one of 128 experts has no norm.
    if (about_.norm == gguf_norm::none || (plain && (!s.rotation || keys_.integer("expert_count", 0) == 128))) return;
    const bool after = plain || about_.norm == gguf_norm::after;
    s.norm.place = after ? norm_place::after_rotation : norm_place::before_rotation;
    s.norm.eps = keys_.number("attention.layer_norm_rms_epsilon", 1e-6);
    if (!(s.norm.eps > 0)) keys_.refuse("attention.layer_norm_rms_epsilon", "must be positive", s.norm.eps);
    s.norm.has_gain = !plain;
    s.norm.over_all_heads = about_.norm == gguf_norm::over_all_heads;
  }

  gguf_keys keys_;
  const gguf_architecture& about_;
  gguf_rotation rotation_;
  bool encoder_;
};

}  // namespace detail

/// What the file says, as values. @throws std::invalid_argument
[[nodiscard]] inline model_settings gguf_settings(gguf_lookup lookup, const gguf_options& options = {}) {
  return detail::gguf_reader(std::move(lookup), options).read();
}

/// The policies of the model, layer by layer. @throws std::invalid_argument
[[nodiscard]] inline model from_gguf(gguf_lookup lookup, const gguf_options& options = {}) {
  return model(gguf_settings(std::move(lookup), options));
}

}  // namespace posenc::models
