// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The forward pass of a llama2.c model. Its rotation is a parameter: a part of a policy that turns queries
/// (`transform_q`) and has `rotate` for keys, which are turned once, when they are appended to the cache.

#include "support/kv_cache.hpp"
#include "support/language_model.hpp"
#include "support/layers.hpp"
#include "support/llama2c_checkpoint.hpp"
#include "support/texts.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/rope.hpp>

namespace posenc_examples {

/// The rotation that llama2.c models are trained with: neighbouring channels, base 10000.
[[nodiscard]] inline posenc::rope_options llama2c_rope(const llama2c_config& c) {
  return {.head_dim = c.head_dim(), .base = 10000, .layout = posenc::rope_layout::interleaved};
}

template <class T>
class llama {
 public:
  static constexpr double eps = 1e-5;

  explicit llama(llama2c_checkpoint<T> weights) : w_(std::move(weights)) {}

  [[nodiscard]] const llama2c_config& config() const noexcept { return w_.config; }
  [[nodiscard]] kv_cache<T> make_cache(std::int64_t capacity, std::int64_t texts = 1) const {
    return {config().layers, capacity, config().kv_heads, config().head_dim(), texts};
  }

  /// Logits [texts * tokens, vocabulary] of the tokens that follow those in the cache. Positions are the caller's;
  /// those of the keys cover cached tokens too. `mask` is a part of a policy.
  template <class Rotation, class Mask>
  matrix<T> run(std::span<const std::int64_t> ids, const Rotation& rotation, const Mask& mask, kv_cache<T>& cache,
                const posenc::positions& query_at, const posenc::positions& key_at) const {
    const auto policy = posenc::compose(rotation, mask);
    const std::int64_t texts = cache.texts();
    matrix<T> x = embedding_rows(w_.embedding, ids);
    matrix<T> mixed(x.rows(), config().dim);
    for (std::int64_t l = 0; l < config().layers; ++l) {
      const llama2c_layer<T>& layer = w_.layers[static_cast<std::size_t>(l)];
      auto [q, k, v] = project(x, l);
      const auto new_keys = as_texts(k, config().kv_heads, texts);
      posenc::rotate(rotation, new_keys, query_at);
      cache.append(l, new_keys, as_texts(v, config().kv_heads, texts));
      posenc::attention(as_texts(q, config().heads, texts), cache.keys(l), cache.values(l),
                        as_texts(mixed, config().heads, texts), policy,
                        {.query_positions = query_at, .key_positions = key_at});
      x += linear(mixed, layer.wo);
      const matrix<T> y = rms_norm(x, layer.ffn_norm, eps);
      matrix<T> gate = linear(y, layer.w1);
      silu(gate);
      x += linear(matrix<T>(gate.cwiseProduct(linear(y, layer.w3))), layer.w2);
    }
    cache.advance(x.rows() / texts);
    // Logits are sums of terms much larger than themselves: the last product is formed in double.
    const matrix<double> last = rms_norm(x, w_.last_norm, eps).template cast<double>();
    return linear(last, matrix<double>(w_.output.template cast<double>())).template cast<T>();
  }
  /// The same at positions that follow the cache; `first` is that of the first token in the cache.
  template <class Rotation>
  matrix<T> run(std::span<const std::int64_t> ids, const Rotation& rotation, kv_cache<T>& cache,
                std::int64_t first = 0) const {
    return run(ids, rotation, posenc::causal{}, cache, posenc::positions::from(first + cache.size()),
               posenc::positions::from(first));
  }
  /// A whole text at once.
  template <class Rotation>
  matrix<T> run(std::span<const std::int64_t> ids, const Rotation& rotation, std::int64_t first = 0) const {
    kv_cache<T> cache = make_cache(static_cast<std::int64_t>(ids.size()));
    return run(ids, rotation, cache, first);
  }

  struct projection {
    matrix<T> q, k, v;
  };
  /// Queries, keys and values of a layer before any rotation, [tokens, heads * head_dim].
  [[nodiscard]] projection project(const matrix<T>& x, std::int64_t layer) const {
    const llama2c_layer<T>& l = w_.layers.at(static_cast<std::size_t>(layer));
    const matrix<T> y = rms_norm(x, l.attention_norm, eps);
    return {linear(y, l.wq), linear(y, l.wk), linear(y, l.wv)};
  }
  [[nodiscard]] const llama2c_checkpoint<T>& weights() const noexcept { return w_; }

 private:
  llama2c_checkpoint<T> w_;
};

/// `prompt` and up to `tokens` more, always the most likely one; `seen(before, id)` is told of each as it is chosen.
/// A begin or end mark (ids 1 and 2) is not taken into the text and ends it.
template <class T, class Rotation, class Seen>
token_ids generate(const llama<T>& model, const Rotation& rotation, token_ids prompt, std::int64_t tokens,
                   Seen&& seen) {
  kv_cache<T> cache = model.make_cache(static_cast<std::int64_t>(prompt.size()) + tokens);
  matrix<T> logits = model.run(prompt, rotation, cache);
  for (std::int64_t i = 0; i < tokens; ++i) {
    const std::int64_t next = most_likely(logits);
    if (next == 1 || next == 2) break;
    seen(prompt.back(), next);
    prompt.push_back(next);
    if (i + 1 < tokens) logits = model.run(std::span(prompt).last(1), rotation, cache);
  }
  return prompt;
}

}  // namespace posenc_examples
