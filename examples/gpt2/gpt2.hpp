// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A small GPT-2: 5 layers, width 32, 4 heads, 1000 tokens, a learned row for each of 512 positions. Which keys a token
/// sees is the caller's policy; GPT-2 itself has no bias and no rotation. Several texts of equal length run at once,
/// one under the other.

#include "support/kv_cache.hpp"
#include "support/language_model.hpp"
#include "support/layers.hpp"
#include "support/safetensors.hpp"
#include "support/texts.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/learned.hpp>

namespace posenc_examples {

template <class T>
class gpt2 {
 public:
  static constexpr std::int64_t layers = 5;
  static constexpr std::int64_t width = 32;
  static constexpr std::int64_t heads = 4;
  static constexpr std::int64_t vocabulary = 1000;
  static constexpr std::int64_t rows = 512;

  using policy = posenc::run_time_policy<posenc::nope>;
  [[nodiscard]] static policy causal() { return {.masks = {.causal = true}}; }
  /// Keys before begin[text] are padding; `begin` must outlive the policy.
  [[nodiscard]] static policy causal_behind(std::span<const std::int64_t> begin) {
    return {.masks = {.causal = true, .padding = posenc::padding{.begin = begin, .end = {}}}};
  }

  explicit gpt2(const safetensors& f)
      : tokens_(f.tensor<T>("wte.weight", vocabulary, width)),
        table_(f.tensor<T>("wpe.weight", rows, width)),
        last_norm_(norm(f, "ln_f")) {
    for (std::int64_t l = 0; l < layers; ++l) {
      const std::string name = "h." + std::to_string(l) + ".";
      layers_.push_back({.attention_norm = norm(f, name + "ln_1"),
                         .qkv = turned(f, name + "attn.c_attn", width, 3 * width),
                         .dense = turned(f, name + "attn.c_proj", width, width),
                         .ffn_norm = norm(f, name + "ln_2"),
                         .ffn = {.up = turned(f, name + "mlp.c_fc", width, 4 * width),
                                 .down = turned(f, name + "mlp.c_proj", 4 * width, width),
                                 .act = activation::gelu_tanh}});
    }
  }

  /// The encoder over the model's own memory.
  [[nodiscard]] posenc::learned<T> encoder() const {
    return {{.rows = rows, .dim = width}, std::span<const T>(table_.data(), static_cast<std::size_t>(table_.size()))};
  }
  [[nodiscard]] matrix<T> token_rows(std::span<const std::int64_t> ids) const { return embedding_rows(tokens_, ids); }
  [[nodiscard]] static kv_cache<T> make_cache(std::int64_t capacity, std::int64_t texts = 1) {
    return {layers, capacity, heads, width / heads, texts};
  }

  /// Logits [texts * tokens, 1000] of tokens that follow those in the cache. A token takes the row of its position;
  /// visibility goes by place in the cache, as a causal matrix would have it.
  [[nodiscard]] matrix<T> run(std::span<const std::int64_t> ids, const posenc::positions& at, const policy& p,
                              kv_cache<T>& cache) const {
    matrix<T> x = token_rows(ids);
    encoder().embed(as_texts(x, 1, cache.texts()), at);
    return run_layers(std::move(x), p, cache, posenc::positions::from(cache.size()), {});
  }
  /// Whole texts at once.
  [[nodiscard]] matrix<T> run(std::span<const std::int64_t> ids, const posenc::positions& at,
                              const policy& p = causal(), std::int64_t texts = 1) const {
    kv_cache<T> cache = make_cache(static_cast<std::int64_t>(ids.size()) / texts, texts);
    return run(ids, at, p, cache);
  }
  /// Rows that already hold their positions; visibility goes by `query_at` and `key_at`.
  [[nodiscard]] matrix<T> run_layers(matrix<T> x, const policy& p, kv_cache<T>& cache,
                                     const posenc::positions& query_at, const posenc::positions& key_at) const {
    matrix<T> mixed(x.rows(), width);
    for (std::int64_t i = 0; i < layers; ++i) {
      const layer& l = layers_[static_cast<std::size_t>(i)];
      const matrix<T> qkv = project(x, i);
      const auto part = [&](std::int64_t which) {
        return as_texts(qkv.middleCols(which * width, width), heads, cache.texts());
      };
      cache.append(i, part(1), part(2));
      posenc::attention(part(0), cache.keys(i), cache.values(i), as_texts(mixed, heads, cache.texts()), p,
                        {.query_positions = query_at, .key_positions = key_at});
      x += l.dense(mixed);
      x += l.ffn(l.ffn_norm(x));
    }
    cache.advance(x.rows() / cache.texts());
    return linear(last_norm_(x), tokens_);
  }
  /// Queries, keys and values of a layer, [tokens, 3 * width].
  [[nodiscard]] matrix<T> project(const matrix<T>& x, std::int64_t i) const {
    const layer& l = layers_.at(static_cast<std::size_t>(i));
    return l.qkv(l.attention_norm(x));
  }

 private:
  struct layer {
    normalization<T> attention_norm;
    affine<T> qkv, dense;
    normalization<T> ffn_norm;
    feed_forward<T> ffn;
  };

  static normalization<T> norm(const safetensors& f, const std::string& name) {
    return {.gain = f.vector<T>(name + ".weight", width), .shift = f.vector<T>(name + ".bias", width)};
  }
  /// x W + b: weights stored [in, out].
  static affine<T> turned(const safetensors& f, const std::string& name, std::int64_t in, std::int64_t out) {
    return {f.tensor<T>(name + ".weight", in, out).transpose(), f.vector<T>(name + ".bias", out)};
  }

  matrix<T> tokens_;
  matrix<T> table_;
  normalization<T> last_norm_;
  std::vector<layer> layers_;
};

}  // namespace posenc_examples
