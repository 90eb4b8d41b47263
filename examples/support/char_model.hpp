// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A character model of the BLOOM form (3 layers, width 72, 6 heads, 128 characters) whose encoding is a parameter:
///   encoding{policy}           any policy of attention: a bias, a rotation, both, neither, with its mask
///   encoding{policy, input}    and an encoder whose `embed` is added to the token embeddings
/// The cache holds keys as they are projected, and attention applies the policy's key transforms while reading: that
/// costs a rotation per read, and lets every encoding run on the same code.

#include "support/kv_cache.hpp"
#include "support/language_model.hpp"
#include "support/layers.hpp"
#include "support/safetensors.hpp"
#include "support/texts.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/encoders/nope.hpp>

namespace posenc_examples {

template <class Policy, class Input = posenc::nope>
struct encoding {
  Policy policy;
  Input input{};
};
template <class Policy>
encoding(Policy) -> encoding<Policy>;
template <class Policy, class Input>
encoding(Policy, Input) -> encoding<Policy, Input>;

/// A character as a token: its ASCII code; 127 stands for anything above.
[[nodiscard]] inline token_ids character_ids(std::string_view text) {
  token_ids ids;
  for (const char c : text) ids.push_back(std::min<std::int64_t>(static_cast<unsigned char>(c), 127));
  return ids;
}

template <class T>
class char_model {
 public:
  static constexpr std::int64_t layers = 3;
  static constexpr std::int64_t heads = 6;
  static constexpr std::int64_t head_dim = 12;
  static constexpr std::int64_t width = heads * head_dim;
  static constexpr std::int64_t vocabulary = 128;
  static constexpr double eps = 1e-5;

  explicit char_model(const safetensors& file)
      : embedding_(file.tensor<T>("transformer.word_embeddings.weight", vocabulary, width)),
        embedding_norm_(file, "transformer.word_embeddings_layernorm"),
        last_norm_(file, "transformer.ln_f") {
    for (std::int64_t l = 0; l < layers; ++l) layers_.emplace_back(file, "transformer.h." + std::to_string(l) + ".");
  }

  [[nodiscard]] static kv_cache<T> make_cache(std::int64_t capacity, std::int64_t texts = 1) {
    return {layers, capacity, heads, head_dim, texts};
  }

  /// Logits [texts * tokens, 128] of the tokens that follow those in the cache. Positions are the caller's; those of
  /// the keys cover cached tokens too.
  template <class Policy, class Input>
  matrix<T> run(std::span<const std::int64_t> ids, const encoding<Policy, Input>& e, kv_cache<T>& cache,
                const posenc::positions& query_at, const posenc::positions& key_at) const {
    const std::int64_t texts = cache.texts();
    matrix<T> x = embed(ids, e.input, query_at, texts);
    matrix<T> mixed(x.rows(), width);
    for (std::int64_t l = 0; l < layers; ++l) {
      const auto& layer = layers_[static_cast<std::size_t>(l)];
      const matrix<T> qkv = project(x, l);
      cache.append(l, part(qkv, 1, texts), part(qkv, 2, texts));
      posenc::attention(part(qkv, 0, texts), cache.keys(l), cache.values(l), as_texts(mixed, heads, texts), e.policy,
                        {.query_positions = query_at, .key_positions = key_at, .keys = posenc::key_state::unrotated});
      x += linear(mixed, layer.dense, layer.dense_bias);
      matrix<T> wide = linear(layer.ffn_norm(x), layer.up, layer.up_bias);
      gelu_tanh(wide);
      x += linear(wide, layer.down, layer.down_bias);
    }
    cache.advance(x.rows() / texts);
    return linear(last_norm_(x), embedding_);
  }
  /// The same at positions that follow the cache, which starts at 0.
  template <class Policy, class Input>
  matrix<T> run(std::span<const std::int64_t> ids, const encoding<Policy, Input>& e, kv_cache<T>& cache) const {
    return run(ids, e, cache, posenc::positions::from(cache.size()), {});
  }
  /// A whole text at once.
  template <class Policy, class Input>
  matrix<T> run(std::span<const std::int64_t> ids, const encoding<Policy, Input>& e) const {
    kv_cache<T> cache = make_cache(static_cast<std::int64_t>(ids.size()));
    return run(ids, e, cache);
  }

  /// Token embeddings after their norm, with the encoder of the input added.
  template <class Input>
  matrix<T> embed(std::span<const std::int64_t> ids, const Input& input, const posenc::positions& at,
                  std::int64_t texts = 1) const {
    matrix<T> x = embedding_norm_(embedding_rows(embedding_, ids));
    posenc::embed(input, as_texts(x, 1, texts), at);
    return x;
  }
  /// [tokens, head * 36 + part * 12 + channel]: q, k and v lie side by side per head.
  matrix<T> project(const matrix<T>& x, std::int64_t layer) const {
    const auto& l = layers_.at(static_cast<std::size_t>(layer));
    return linear(l.attention_norm(x), l.qkv, l.qkv_bias);
  }
  /// q (0), k (1) or v (2) of `project`, in place: a head is a stride, nothing is copied.
  [[nodiscard]] static posenc::view<const T> part(const matrix<T>& qkv, std::int64_t which, std::int64_t texts = 1) {
    const auto all = as_texts(qkv, heads, texts);  // heads of 3 * head_dim channels
    posenc::shape s = all.extents();
    s.dim = head_dim;
    return posenc::view<const T>(all.data() + which * head_dim, s, all.steps());
  }

 private:
  struct norm {
    row_vector<T> gain;
    row_vector<T> shift;
    norm(const safetensors& file, const std::string& name)
        : gain(file.vector<T>(name + ".weight", width)), shift(file.vector<T>(name + ".bias", width)) {}
    matrix<T> operator()(const matrix<T>& x) const { return layer_norm(x, gain, shift, eps); }
  };
  struct layer_weights {
    norm attention_norm;
    norm ffn_norm;
    matrix<T> qkv, dense, up, down;
    row_vector<T> qkv_bias, dense_bias, up_bias, down_bias;
    layer_weights(const safetensors& f, const std::string& name)
        : attention_norm(f, name + "input_layernorm"),
          ffn_norm(f, name + "post_attention_layernorm"),
          qkv(f.tensor<T>(name + "self_attention.query_key_value.weight", 3 * width, width)),
          dense(f.tensor<T>(name + "self_attention.dense.weight", width, width)),
          up(f.tensor<T>(name + "mlp.dense_h_to_4h.weight", 4 * width, width)),
          down(f.tensor<T>(name + "mlp.dense_4h_to_h.weight", width, 4 * width)),
          qkv_bias(f.vector<T>(name + "self_attention.query_key_value.bias", 3 * width)),
          dense_bias(f.vector<T>(name + "self_attention.dense.bias", width)),
          up_bias(f.vector<T>(name + "mlp.dense_h_to_4h.bias", 4 * width)),
          down_bias(f.vector<T>(name + "mlp.dense_4h_to_h.bias", width)) {}
  };

  matrix<T> embedding_;
  norm embedding_norm_;
  norm last_norm_;
  std::vector<layer_weights> layers_;
};

}  // namespace posenc_examples
