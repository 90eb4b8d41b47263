// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The layers of an encoder-decoder transformer with norms in front (T5, the CTranslate2 transformer). Where positions
/// enter is a parameter: what is added to the embeddings before, and the policies of the three kinds of attention.
/// Several texts of equal length run at once, one under the other.

#include "support/kv_cache.hpp"
#include "support/layers.hpp"
#include "support/texts.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/encoders/nope.hpp>

#include <optional>

namespace posenc_examples {

/// What the encoder's own attention sees, the decoder's own, and the decoder's over the encoder's output.
template <class Encoder, class Decoder, class Cross = posenc::nope>
struct attention_policies {
  Encoder encoder;
  Decoder decoder;
  Cross cross{};
};
template <class Encoder, class Decoder>
attention_policies(Encoder, Decoder) -> attention_policies<Encoder, Decoder>;
template <class Encoder, class Decoder, class Cross>
attention_policies(Encoder, Decoder, Cross) -> attention_policies<Encoder, Decoder, Cross>;

template <class T>
struct attention_weights {
  affine<T> q, k, v, out;
};

template <class T>
struct transformer_layer {
  normalization<T> self_norm;
  attention_weights<T> self;
  normalization<T> ffn_norm;
  feed_forward<T> ffn;
  /// Of a decoder.
  normalization<T> cross_norm{};
  attention_weights<T> cross{};
};

template <class T>
struct encoder_decoder {
  std::int64_t heads = 1;
  /// Factor on the scores; 1 / sqrt(dim) unless given.
  std::optional<double> scale{};
  std::vector<transformer_layer<T>> encoder{};
  std::vector<transformer_layer<T>> decoder{};
  normalization<T> encoder_norm{};
  normalization<T> decoder_norm{};

  /// The memory [texts * tokens, width] of embedded tokens.
  template <class Policy>
  [[nodiscard]] matrix<T> encode(matrix<T> x, const Policy& policy, const posenc::positions& at = {},
                                 std::int64_t texts = 1) const {
    for (const transformer_layer<T>& l : encoder) {
      const matrix<T> y = l.self_norm(x);
      const matrix<T> k = l.self.k(y);
      const matrix<T> v = l.self.v(y);
      x += attend(l.self, y, as_texts(k, heads, texts), as_texts(v, heads, texts), policy, at, at, texts);
      x += l.ffn(l.ffn_norm(x));
    }
    return encoder_norm(x);
  }

  /// Keys and values of the memory, once for all steps of the decoder.
  [[nodiscard]] kv_cache<T> remember(const matrix<T>& memory, std::int64_t texts = 1) const {
    kv_cache<T> cache = make_cache(memory.rows() / texts, texts);
    for (std::size_t l = 0; l < decoder.size(); ++l) {
      const matrix<T> k = decoder[l].cross.k(memory);
      const matrix<T> v = decoder[l].cross.v(memory);
      cache.append(static_cast<std::int64_t>(l), as_texts(k, heads, texts), as_texts(v, heads, texts));
    }
    cache.advance(cache.capacity());
    return cache;
  }
  [[nodiscard]] kv_cache<T> make_cache(std::int64_t capacity, std::int64_t texts = 1) const {
    const std::int64_t width = decoder.at(0).self.k.weight.rows();
    return {static_cast<std::int64_t>(decoder.size()), capacity, heads, width / heads, texts};
  }

  /// What the output matrix takes, for embedded tokens that follow those in the cache. Positions are the caller's;
  /// those of the keys cover cached tokens too. Keys of the memory stand at 0, 1, 2, ...
  template <class Encoder, class Decoder, class Cross>
  [[nodiscard]] matrix<T> decode(matrix<T> x, const attention_policies<Encoder, Decoder, Cross>& policies,
                                 kv_cache<T>& memory, kv_cache<T>& cache, const posenc::positions& query_at,
                                 const posenc::positions& key_at) const {
    const std::int64_t texts = cache.texts();
    for (std::size_t i = 0; i < decoder.size(); ++i) {
      const transformer_layer<T>& l = decoder[i];
      const auto layer = static_cast<std::int64_t>(i);
      const matrix<T> y = l.self_norm(x);
      const matrix<T> k = l.self.k(y);
      const matrix<T> v = l.self.v(y);
      cache.append(layer, as_texts(k, heads, texts), as_texts(v, heads, texts));
      x += attend(l.self, y, cache.keys(layer), cache.values(layer), policies.decoder, query_at, key_at, texts);
      x += attend(l.cross, l.cross_norm(x), memory.keys(layer), memory.values(layer), policies.cross, query_at, {},
                  texts);
      x += l.ffn(l.ffn_norm(x));
    }
    cache.advance(x.rows() / texts);
    return decoder_norm(x);
  }

 private:
  template <class Policy>
  [[nodiscard]] matrix<T> attend(const attention_weights<T>& w, const matrix<T>& y, posenc::view<const T> k,
                                 posenc::view<const T> v, const Policy& policy, const posenc::positions& query_at,
                                 const posenc::positions& key_at, std::int64_t texts) const {
    const matrix<T> q = w.q(y);
    matrix<T> mixed(q.rows(), w.v.weight.rows());
    posenc::attention(as_texts(q, heads, texts), k, v, as_texts(mixed, heads, texts), policy,
                      {.query_positions = query_at, .key_positions = key_at, .scale = scale});
    return w.out(mixed);
  }
};

}  // namespace posenc_examples
