// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A T5 from a folder with config.json and model.safetensors, of the first form (relu, the embedding as output matrix)
/// or of T5 1.1 (gated gelu, an output matrix of its own). Positions enter as one table of biases per side, used by all
/// its layers; attention over the memory has none. Scores are not divided by sqrt(d_kv).

#include "support/encoder_decoder.hpp"
#include "support/language_model.hpp"
#include "support/safetensors.hpp"

#include <posenc/attention/masks.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/models/huggingface.hpp>

namespace posenc_examples {

template <class T>
class t5 {
 public:
  static constexpr std::int64_t start_id = 0;
  static constexpr std::int64_t end_id = 1;

  /// `scale` is the factor on the scores.
  /// @throws std::runtime_error or std::invalid_argument for files that do not fit together.
  explicit t5(const std::string& folder, double scale = 1)
      : t5(nlohmann::json::parse(read_file(folder + "config.json")), safetensors(folder + "model.safetensors"), scale) {
  }

  [[nodiscard]] const encoder_decoder<T>& net() const noexcept { return net_; }
  /// The options and the table [bucket, head] of a side.
  [[nodiscard]] const posenc::relative_bucket_options& options(posenc::models::stack which) const noexcept {
    return sides_[index(which)].options;
  }
  [[nodiscard]] std::span<const T> table(posenc::models::stack which) const noexcept {
    return sides_[index(which)].table;
  }
  [[nodiscard]] posenc::relative_bucket<T> bias(posenc::models::stack which) const {
    return {options(which), table(which)};
  }
  /// One bias per side for all its layers; none over the memory.
  [[nodiscard]] auto policies() const {
    // [policies]
    const auto encoder = bias(posenc::models::stack::encoder);
    const auto decoder = posenc::compose(bias(posenc::models::stack::decoder), posenc::causal{});
    return attention_policies{encoder, decoder, posenc::nope{}};
    // [/policies]
  }

  /// The memory [texts * tokens, d_model].
  template <class Policy>
  [[nodiscard]] matrix<T> encode(std::span<const std::int64_t> ids, const Policy& policy,
                                 const posenc::positions& at = {}, std::int64_t texts = 1) const {
    return net_.encode(embedding_rows(embedding_, ids), policy, at, texts);
  }
  /// Logits of tokens that follow those in the cache; `at` are the positions of the new ones, `all_at` those of all.
  template <class Policies>
  [[nodiscard]] matrix<T> decode(std::span<const std::int64_t> ids, const Policies& policies, kv_cache<T>& memory,
                                 kv_cache<T>& cache, const posenc::positions& at,
                                 const posenc::positions& all_at = {}) const {
    return linear(net_.decode(embedding_rows(embedding_, ids), policies, memory, cache, at, all_at), output_);
  }
  /// The most likely token at every step, from a cache of keys and values, up to `longest` of them.
  template <class Policies>
  [[nodiscard]] decoded answer(std::span<const std::int64_t> ids, const Policies& policies,
                               std::int64_t longest) const {
    kv_cache<T> memory = net_.remember(encode(ids, policies.encoder));
    kv_cache<T> cache = net_.make_cache(longest);
    return greedy(start_id, end_id, longest, [&](std::int64_t id) {
      return decode(token_ids{id}, policies, memory, cache, posenc::positions::from(cache.size()));
    });
  }

 private:
  struct side {
    posenc::relative_bucket_options options;
    std::vector<T> table;
  };
  struct widths {
    std::int64_t model, inner, hidden, heads;
    bool gated;
  };

  t5(const nlohmann::json& config, const safetensors& f, double scale) {
    const widths w{.model = count(config, "d_model"),
                   .inner = count(config, "d_kv") * count(config, "num_heads"),
                   .hidden = count(config, "d_ff"),
                   .heads = count(config, "num_heads"),
                   .gated = gated(config)};
    net_.heads = w.heads;
    net_.scale = scale;
    for (const auto which : {posenc::models::stack::encoder, posenc::models::stack::decoder}) {
      const bool decodes = which == posenc::models::stack::decoder;
      const posenc::models::model_settings m = posenc::models::huggingface_settings(config, {.part = which});
      const std::string name = decodes ? "decoder." : "encoder.";
      side& s = sides_[index(which)];
      s.options = m.bias.relative;
      const matrix<T> table = f.tensor<T>(name + "block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                                          s.options.num_buckets, s.options.heads);
      s.table.assign(table.data(), table.data() + table.size());
      auto& layers = decodes ? net_.decoder : net_.encoder;
      for (std::size_t l = 0; l < m.layers.size(); ++l)
        layers.push_back(layer(f, name + "block." + std::to_string(l) + ".", w, decodes));
      (decodes ? net_.decoder_norm : net_.encoder_norm) = norm(f, name + "final_layer_norm", w);
    }
    const std::int64_t vocabulary = count(config, "vocab_size");
    embedding_ = f.tensor<T>("shared.weight", vocabulary, w.model);
    // The first form divides by sqrt(d_model) before the shared matrix; T5 1.1 has neither.
    output_ = config.value("tie_word_embeddings", true) ? matrix<T>(embedding_ / std::sqrt(static_cast<T>(w.model)))
                                                        : f.tensor<T>("lm_head.weight", vocabulary, w.model);
  }

  static std::size_t index(posenc::models::stack which) noexcept {
    return which == posenc::models::stack::decoder ? 1 : 0;
  }
  /// 2^20 keeps every product of two extents far from overflow.
  static std::int64_t count(const nlohmann::json& config, const char* key) {
    const auto n = config.value(key, nlohmann::json());
    if (!n.is_number_integer() || n < 1 || n > (1 << 20))
      throw std::runtime_error(std::string("config.json: ") + key + " must be a number in 1..2^20");
    return n.get<std::int64_t>();
  }
  static bool gated(const nlohmann::json& config) {
    const auto form = config.value("feed_forward_proj", nlohmann::json("relu"));
    if (form != "relu" && form != "gated-gelu")
      throw std::runtime_error("config.json: feed_forward_proj must be relu or gated-gelu");
    return form == "gated-gelu";
  }
  static normalization<T> norm(const safetensors& f, const std::string& name, const widths& w) {
    return {.gain = f.vector<T>(name + ".weight", w.model), .eps = 1e-6};
  }
  static attention_weights<T> attention(const safetensors& f, const std::string& name, const widths& w) {
    return {.q = {f.tensor<T>(name + ".q.weight", w.inner, w.model)},
            .k = {f.tensor<T>(name + ".k.weight", w.inner, w.model)},
            .v = {f.tensor<T>(name + ".v.weight", w.inner, w.model)},
            .out = {f.tensor<T>(name + ".o.weight", w.model, w.inner)}};
  }
  static transformer_layer<T> layer(const safetensors& f, const std::string& name, const widths& w, bool decodes) {
    const std::string last = name + (decodes ? "layer.2." : "layer.1.");
    const std::string ffn = last + "DenseReluDense.";
    transformer_layer<T> l{.self_norm = norm(f, name + "layer.0.layer_norm", w),
                           .self = attention(f, name + "layer.0.SelfAttention", w),
                           .ffn_norm = norm(f, last + "layer_norm", w),
                           .ffn = {.up = {f.tensor<T>(ffn + (w.gated ? "wi_0" : "wi") + ".weight", w.hidden, w.model)},
                                   .down = {f.tensor<T>(ffn + "wo.weight", w.model, w.hidden)},
                                   .act = w.gated ? activation::gelu_tanh : activation::relu}};
    if (w.gated) l.ffn.gate = {f.tensor<T>(ffn + "wi_1.weight", w.hidden, w.model)};
    if (decodes) {
      l.cross_norm = norm(f, name + "layer.1.layer_norm", w);
      l.cross = attention(f, name + "layer.1.EncDecAttention", w);
    }
    return l;
  }

  encoder_decoder<T> net_;
  std::array<side, 2> sides_;
  matrix<T> embedding_;
  matrix<T> output_;
};

}  // namespace posenc_examples
