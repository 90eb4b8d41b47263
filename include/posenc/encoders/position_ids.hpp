// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Position ids as model families count them, [batch, tokens] row-major; hand the result to `positions::listed`.
///   sequential_ids    past, past + 1, ... (BERT, GPT-2, ViT); also `positions::from(past)`
///   masked_ids        cumsum(mask) - 1 over real tokens, padding gets `padding` (left-padded GPT-2, BLOOM)
///   roberta_ids       (cumsum(m) + past) * m + padding_idx, m = token != padding_idx (RoBERTa, XLM-R, fairseq)
///   opt_ids           cumsum(mask) * mask - 1 + offset, the first `past` columns dropped (OPT; offset 2)
///   bart_ids          past + offset, ... without a mask (BART, mBART; offset 2)
/// Masks hold 1 for a real token, 0 for padding. Throws std::invalid_argument for sizes that do not fit.

#include <posenc/core/error.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace posenc {

namespace detail {
inline std::int64_t columns_of(const char* function, std::size_t size, std::int64_t batch) {
  require(batch >= 1, function, "batch", "must be at least 1", batch);
  require(static_cast<std::int64_t>(size) % batch == 0, function, "the list", "must split into batch equal rows", size);
  return static_cast<std::int64_t>(size) / batch;
}
}  // namespace detail

[[nodiscard]] inline std::vector<std::int64_t> sequential_ids(std::int64_t tokens, std::int64_t past = 0) {
  detail::require(tokens >= 0, "sequential_ids", "tokens", "must not be negative", tokens);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens));
  for (std::int64_t t = 0; t < tokens; ++t) ids[static_cast<std::size_t>(t)] = past + t;
  return ids;
}

template <class Mask>
[[nodiscard]] std::vector<std::int64_t> masked_ids(std::span<const Mask> mask, std::int64_t batch = 1,
                                                   std::int64_t padding = 0) {
  const std::int64_t columns = detail::columns_of("masked_ids", mask.size(), batch);
  std::vector<std::int64_t> ids;
  ids.reserve(mask.size());
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t seen = 0;
    for (std::int64_t t = 0; t < columns; ++t) {
      const bool real = mask[static_cast<std::size_t>(b * columns + t)] != Mask(0);
      ids.push_back(real ? seen++ : padding);
    }
  }
  return ids;
}

template <class Token>
[[nodiscard]] std::vector<std::int64_t> roberta_ids(std::span<const Token> tokens, std::int64_t padding_idx,
                                                    std::int64_t batch = 1, std::int64_t past = 0) {
  const std::int64_t columns = detail::columns_of("roberta_ids", tokens.size(), batch);
  std::vector<std::int64_t> ids;
  ids.reserve(tokens.size());
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t seen = past;
    for (std::int64_t t = 0; t < columns; ++t) {
      const bool real = static_cast<std::int64_t>(tokens[static_cast<std::size_t>(b * columns + t)]) != padding_idx;
      ids.push_back(real ? ++seen + padding_idx : padding_idx);
    }
  }
  return ids;
}

/// `mask` covers past tokens too.
template <class Mask>
[[nodiscard]] std::vector<std::int64_t> opt_ids(std::span<const Mask> mask, std::int64_t batch = 1,
                                                std::int64_t past = 0, std::int64_t offset = 2) {
  const std::int64_t columns = detail::columns_of("opt_ids", mask.size(), batch);
  detail::require(past >= 0 && past <= columns, "opt_ids", "past", "must lie in 0..columns of the mask", past);
  std::vector<std::int64_t> ids;
  ids.reserve(static_cast<std::size_t>(batch * (columns - past)));
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t seen = 0;
    for (std::int64_t t = 0; t < columns; ++t) {
      const bool real = mask[static_cast<std::size_t>(b * columns + t)] != Mask(0);
      if (real) ++seen;
      if (t >= past) ids.push_back((real ? seen : 0) - 1 + offset);
    }
  }
  return ids;
}

[[nodiscard]] inline std::vector<std::int64_t> bart_ids(std::int64_t tokens, std::int64_t past = 0,
                                                        std::int64_t offset = 2) {
  return sequential_ids(tokens, past + offset);
}

}  // namespace posenc
