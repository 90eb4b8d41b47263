// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The CTranslate2 form of the transformer of 2017: an encoder-decoder of 6 + 6 layers, width 32, 8 heads, that writes
/// Arabic words in Latin letters. Positions enter once on each side, added to the scaled embedding; the encoder of the
/// input is a parameter. A folder holds model.bin, source_vocabulary.txt and target_vocabulary.txt.

#include "support/ctranslate2_model.hpp"
#include "support/encoder_decoder.hpp"
#include "support/language_model.hpp"
#include "support/vocabulary.hpp"

#include <posenc/attention/masks.hpp>
#include <posenc/encoders/sinusoidal.hpp>

namespace posenc_examples {

/// The table that CTranslate2 models are trained with: sines first, then cosines, exponents -k / (dim / 2 - 1), and 1
/// for the first token.
[[nodiscard]] inline posenc::sinusoidal_options ctranslate2_positions(std::int64_t dim) {
  // [positions]
  return {.dim = dim,
          .layout = posenc::sinusoidal_layout::concat_sin_cos,
          .denominator = posenc::sinusoidal_denominator::half_minus_1,
          .start = 1};
  // [/positions]
}

template <class T>
class transliterator {
 public:
  static constexpr std::int64_t layers = 6;
  static constexpr std::int64_t width = 32;
  static constexpr std::int64_t heads = 8;
  static constexpr std::int64_t hidden = 128;
  static constexpr std::int64_t start_id = 1;
  static constexpr std::int64_t end_id = 2;

  /// Embeddings are multiplied by `embedding_scale`, so that rows of norm sqrt(width / 2) do not drown them.
  explicit transliterator(const std::string& folder, double embedding_scale = std::sqrt(double(width)))
      : source_(folder + "source_vocabulary.txt"), target_(folder + "target_vocabulary.txt") {
    const ctranslate2_model f(folder + "model.bin");
    const auto scale = static_cast<T>(embedding_scale);
    source_embedding_ = f.tensor<T>("encoder/embeddings/weight", source_.size(), width) * scale;
    target_embedding_ = f.tensor<T>("decoder/embeddings/weight", target_.size(), width) * scale;
    net_.heads = heads;
    net_.encoder_norm = norm(f, "encoder/layer_norm");
    net_.decoder_norm = norm(f, "decoder/layer_norm");
    for (std::int64_t l = 0; l < layers; ++l) {
      net_.encoder.push_back(layer(f, "encoder/layer_" + std::to_string(l)));
      const std::string name = "decoder/layer_" + std::to_string(l);
      transformer_layer<T> d = layer(f, name);
      d.cross_norm = norm(f, name + "/attention/layer_norm");
      const affine<T> kv = linear_of(f, name + "/attention/linear_1", 2 * width, width);
      d.cross = {.q = linear_of(f, name + "/attention/linear_0", width, width),
                 .k = rows(kv, 0),
                 .v = rows(kv, 1),
                 .out = linear_of(f, name + "/attention/linear_2", width, width)};
      net_.decoder.push_back(std::move(d));
    }
    projection_ = linear_of(f, "decoder/projection", target_.size(), width);
  }

  [[nodiscard]] const vocabulary& source() const noexcept { return source_; }
  [[nodiscard]] const vocabulary& target() const noexcept { return target_; }
  [[nodiscard]] const encoder_decoder<T>& net() const noexcept { return net_; }
  /// The source is seen as a whole, the target up to each symbol.
  [[nodiscard]] static auto policies() { return attention_policies{posenc::nope{}, posenc::causal{}}; }

  /// The memory [texts * tokens, 32]; `input` is added to the embeddings.
  template <class Policy, class Input>
  [[nodiscard]] matrix<T> encode(std::span<const std::int64_t> ids, const Input& input, const Policy& policy,
                                 const posenc::positions& at = {}, std::int64_t texts = 1) const {
    return net_.encode(embed(source_embedding_, ids, input, at, texts), policy, at, texts);
  }
  /// Logits of target tokens that follow those in the cache; `at` are the positions of the new ones, `all_at` those of
  /// all.
  template <class Policies, class Input>
  [[nodiscard]] matrix<T> decode(std::span<const std::int64_t> ids, const Input& input, const Policies& policies,
                                 kv_cache<T>& memory, kv_cache<T>& cache, const posenc::positions& at,
                                 const posenc::positions& all_at = {}) const {
    return projection_(
        net_.decode(embed(target_embedding_, ids, input, at, cache.texts()), policies, memory, cache, at, all_at));
  }

  /// The most likely symbol at every step, from a cache of keys and values, up to `longest` of them.
  template <class Policies, class Input>
  [[nodiscard]] decoded transliterate(std::string_view word, const Input& input, const Policies& policies,
                                      std::int64_t longest) const {
    kv_cache<T> memory = net_.remember(encode(source_.encode(word), input, policies.encoder));
    kv_cache<T> cache = net_.make_cache(longest);
    return greedy(start_id, end_id, longest, [&](std::int64_t id) {
      return decode(token_ids{id}, input, policies, memory, cache, posenc::positions::from(cache.size()));
    });
  }
  /// The symbols of a word, without its end mark.
  [[nodiscard]] std::string text(const decoded& d) const {
    return target_.decode(token_ids(d.ids.begin(), d.ids.end() - (d.ended ? 1 : 0)));
  }

 private:
  template <class Input>
  static matrix<T> embed(const matrix<T>& table, std::span<const std::int64_t> ids, const Input& input,
                         const posenc::positions& at, std::int64_t texts) {
    matrix<T> x = embedding_rows(table, ids);
    posenc::embed(input, as_texts(x, 1, texts), at);
    return x;
  }
  static normalization<T> norm(const ctranslate2_model& f, const std::string& name) {
    return {.gain = f.vector<T>(name + "/gamma", width), .shift = f.vector<T>(name + "/beta", width)};
  }
  static affine<T> linear_of(const ctranslate2_model& f, const std::string& name, std::int64_t out, std::int64_t in) {
    return {f.tensor<T>(name + "/weight", out, in), f.vector<T>(name + "/bias", out)};
  }
  /// The part of a matrix that holds several of `width` outputs, one under the other.
  static affine<T> rows(const affine<T>& all, std::int64_t part) {
    return {all.weight.middleRows(part * width, width), all.bias.segment(part * width, width)};
  }
  static transformer_layer<T> layer(const ctranslate2_model& f, const std::string& name) {
    const affine<T> qkv = linear_of(f, name + "/self_attention/linear_0", 3 * width, width);
    return {.self_norm = norm(f, name + "/self_attention/layer_norm"),
            .self = {.q = rows(qkv, 0),
                     .k = rows(qkv, 1),
                     .v = rows(qkv, 2),
                     .out = linear_of(f, name + "/self_attention/linear_1", width, width)},
            .ffn_norm = norm(f, name + "/ffn/layer_norm"),
            .ffn = {.up = linear_of(f, name + "/ffn/linear_0", hidden, width),
                    .down = linear_of(f, name + "/ffn/linear_1", width, hidden)}};
  }

  vocabulary source_;
  vocabulary target_;
  matrix<T> source_embedding_;
  matrix<T> target_embedding_;
  encoder_decoder<T> net_;
  affine<T> projection_;
};

}  // namespace posenc_examples
