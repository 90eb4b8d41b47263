// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Learned absolute embedding: a table in the caller's memory, ids as the model family counts them.
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/position_ids.hpp>

#include <cstdio>
#include <stdexcept>
#include <vector>

int main() {
  bool good = true;
  constexpr std::int64_t rows = 12;
  constexpr std::int64_t dim = 8;
  std::vector<float> checkpoint(rows * dim);
  for (std::size_t i = 0; i < checkpoint.size(); ++i) checkpoint[i] = static_cast<float>(i / dim);

  std::vector<float> x(2 * 5 * dim, 100.0f);
  const posenc::view embeddings{x.data(), {.batch = 2, .tokens = 5, .dim = dim}};
  // [embed]
  // The table stays where the checkpoint was loaded. RoBERTa counts real tokens from padding_idx + 1.
  const posenc::learned<float> encoder{{.rows = rows, .dim = dim}, std::span<const float>(checkpoint)};
  const std::vector<int> tokens = {7, 8, 9, 1, 1,  // two padded, padding_idx 1
                                   7, 8, 9, 6, 5};
  const auto ids = posenc::roberta_ids<int>(tokens, 1, 2);
  encoder.embed(embeddings, posenc::positions::listed(ids, 2));
  // [/embed]
  good = good && ids == std::vector<std::int64_t>{2, 3, 4, 1, 1, 2, 3, 4, 5, 6};
  good = good && embeddings(0, 0, 0, 0) == 102 && embeddings(0, 4, 0, 7) == 101 && embeddings(1, 4, 0, 3) == 106;

  const std::vector<float> before = x;
  // [range]
  // A position past the table throws before anything is written.
  bool refused = false;
  try {
    encoder.embed(embeddings, posenc::positions::from(8));
  } catch (const std::out_of_range& error) {
    std::puts(error.what());
    refused = true;
  }
  // [/range]
  good = good && refused && x == before;

  // [clamp]
  // Other rules are asked for by name.
  const posenc::learned<float> clamped{{.rows = rows, .dim = dim, .out_of_range = posenc::out_of_range::clamp},
                                       std::span<const float>(checkpoint)};
  // [/clamp]
  good = good && clamped.row_of(1000) == rows - 1 && clamped.row_of(-3) == 0;

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
