// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Keys and values of the tokens seen so far, per layer [text, token, kv_head, dim]; the texts have equal length.
///   cache.append(layer, k, v)   copies the new rows behind the old ones of that layer
///   cache.keys(layer)           old and new rows; cache.values(layer) likewise
///   cache.advance(n)            once all layers have appended their n rows

#include <posenc/core/view.hpp>

#include <stdexcept>
#include <string>
#include <vector>

namespace posenc_examples {

template <class T>
class kv_cache {
 public:
  kv_cache(std::int64_t layers, std::int64_t capacity, std::int64_t kv_heads, std::int64_t dim, std::int64_t texts = 1)
      : rows_{.batch = texts, .tokens = capacity, .heads = kv_heads, .dim = dim},
        filled_(static_cast<std::size_t>(layers)) {
    keys_.resize(static_cast<std::size_t>(layers * rows_.elements()));
    values_.resize(keys_.size());
  }

  /// Tokens seen by every layer: the position of the next one, where positions count from 0.
  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] std::int64_t capacity() const noexcept { return rows_.tokens; }
  [[nodiscard]] std::int64_t texts() const noexcept { return rows_.batch; }

  /// @throws std::length_error if the rows do not fit, std::invalid_argument if they are not those of every text.
  void append(std::int64_t layer, posenc::view<const T> k, posenc::view<const T> v) {
    std::int64_t& filled = filled_.at(static_cast<std::size_t>(layer));
    if (k.batch() != texts() || v.batch() != texts())
      throw std::invalid_argument("the cache holds " + std::to_string(texts()) + " texts");
    if (k.tokens() > capacity() - size_)
      throw std::length_error("the cache holds " + std::to_string(capacity()) + " tokens");
    filled = size_ + k.tokens();
    const posenc::view<T> to_k = all(keys_, layer, filled);
    const posenc::view<T> to_v = all(values_, layer, filled);
    for (std::int64_t b = 0; b < rows_.batch; ++b)
      for (std::int64_t t = 0; t < k.tokens(); ++t)
        for (std::int64_t h = 0; h < rows_.heads; ++h)
          for (std::int64_t d = 0; d < rows_.dim; ++d) {
            to_k(b, size_ + t, h, d) = k(b, t, h, d);
            to_v(b, size_ + t, h, d) = v(b, t, h, d);
          }
  }
  void advance(std::int64_t tokens) noexcept { size_ += tokens; }

  [[nodiscard]] posenc::view<const T> keys(std::int64_t layer) {
    return all(keys_, layer, filled_.at(static_cast<std::size_t>(layer)));
  }
  [[nodiscard]] posenc::view<const T> values(std::int64_t layer) {
    return all(values_, layer, filled_.at(static_cast<std::size_t>(layer)));
  }

 private:
  [[nodiscard]] posenc::view<T> all(std::vector<T>& memory, std::int64_t layer, std::int64_t tokens) const {
    posenc::shape s = rows_;
    s.tokens = tokens;
    return posenc::view<T>(memory.data() + layer * rows_.elements(), s, posenc::token_major(rows_));
  }

  posenc::shape rows_;
  std::int64_t size_ = 0;
  std::vector<std::int64_t> filled_;
  std::vector<T> keys_;
  std::vector<T> values_;
};

}  // namespace posenc_examples
