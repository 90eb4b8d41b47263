// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A llama2.c checkpoint (version 0): seven int32, then float32 tensors without gaps.

#include "support/bytes.hpp"

#include <cstdlib>

namespace posenc_examples {

struct llama2c_config {
  std::int64_t dim = 0;
  std::int64_t hidden_dim = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t vocabulary = 0;
  std::int64_t seq_len = 0;
  [[nodiscard]] std::int64_t head_dim() const noexcept { return dim / heads; }
};

template <class T>
struct llama2c_layer {
  row_vector<T> attention_norm, ffn_norm;
  matrix<T> wq, wk, wv, wo, w1, w2, w3;
};

template <class T>
struct llama2c_checkpoint {
  llama2c_config config;
  matrix<T> embedding;
  std::vector<llama2c_layer<T>> layers;
  row_vector<T> last_norm;
  /// The tables of cos and sin that the file carries, [seq_len, head_dim / 2].
  matrix<T> cos, sin;
  /// The output matrix; the embedding where the file shares it.
  matrix<T> output;
};

/// @throws std::runtime_error for a file that is too short, too long, or whose sizes do not fit together.
template <class T>
[[nodiscard]] llama2c_checkpoint<T> read_llama2c(const std::string& path) {
  const std::string bytes = read_file(path);
  byte_reader in(bytes, path);
  llama2c_checkpoint<T> m;
  llama2c_config& c = m.config;
  for (std::int64_t* field : {&c.dim, &c.hidden_dim, &c.layers, &c.heads, &c.kv_heads, &c.vocabulary, &c.seq_len})
    *field = in.number<std::int32_t>();
  const bool shared = c.vocabulary > 0;
  c.vocabulary = std::abs(c.vocabulary);
  // 2^18 keeps every product of two extents far from overflow.
  for (const std::int64_t n : {c.dim, c.hidden_dim, c.layers, c.heads, c.kv_heads, c.vocabulary, c.seq_len})
    if (n < 1 || n > (1 << 18))
      throw std::runtime_error(path + ": is not a llama2.c checkpoint, size " + std::to_string(n));
  if (c.dim % c.heads != 0 || c.heads % c.kv_heads != 0 || c.head_dim() % 2 != 0)
    throw std::runtime_error(path + ": the heads do not divide the width");

  const std::int64_t kv_dim = c.kv_heads * c.head_dim();
  m.embedding = in.floats<T>(c.vocabulary, c.dim);
  // Grows with what the file really holds, so a false layer count ends at the end of the file.
  const auto vectors = [&](row_vector<T> llama2c_layer<T>::*field) {
    for (std::int64_t l = 0; l < c.layers; ++l) {
      if (static_cast<std::int64_t>(m.layers.size()) <= l) m.layers.emplace_back();
      m.layers[static_cast<std::size_t>(l)].*field = in.floats<T>(1, c.dim).row(0);
    }
  };
  const auto matrices = [&](matrix<T> llama2c_layer<T>::*field, std::int64_t rows, std::int64_t cols) {
    for (auto& layer : m.layers) layer.*field = in.floats<T>(rows, cols);
  };
  vectors(&llama2c_layer<T>::attention_norm);
  matrices(&llama2c_layer<T>::wq, c.dim, c.dim);
  matrices(&llama2c_layer<T>::wk, kv_dim, c.dim);
  matrices(&llama2c_layer<T>::wv, kv_dim, c.dim);
  matrices(&llama2c_layer<T>::wo, c.dim, c.dim);
  vectors(&llama2c_layer<T>::ffn_norm);
  matrices(&llama2c_layer<T>::w1, c.hidden_dim, c.dim);
  matrices(&llama2c_layer<T>::w2, c.dim, c.hidden_dim);
  matrices(&llama2c_layer<T>::w3, c.hidden_dim, c.dim);
  m.last_norm = in.floats<T>(1, c.dim).row(0);
  m.cos = in.floats<T>(c.seq_len, c.head_dim() / 2);
  m.sin = in.floats<T>(c.seq_len, c.head_dim() / 2);
  m.output = shared ? m.embedding : in.floats<T>(c.vocabulary, c.dim);
  if (in.remaining() != 0)
    throw std::runtime_error(path + ": " + std::to_string(in.remaining()) + " bytes follow the last tensor");
  return m;
}

}  // namespace posenc_examples
