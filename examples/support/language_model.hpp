// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What every language model is asked: the loss of a text, the most likely next token, a greedy continuation.

#include "support/matrix.hpp"

#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>

namespace posenc_examples {

/// log softmax of every row, in double.
template <class T>
[[nodiscard]] matrix<double> log_softmax(const matrix<T>& logits) {
  matrix<double> y = logits.template cast<double>();
  for (Eigen::Index t = 0; t < y.rows(); ++t) {
    const double highest = y.row(t).maxCoeff();
    y.row(t).array() -= highest + std::log((y.row(t).array() - highest).exp().sum());
  }
  return y;
}

/// -log softmax(logits at i)[ids[i + 1]] for every token but the first, in double.
template <class T>
[[nodiscard]] std::vector<double> token_losses(const matrix<T>& logits, std::span<const std::int64_t> ids) {
  std::vector<double> losses;
  const matrix<double> log_probability = log_softmax(logits);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i)
    losses.push_back(-log_probability(static_cast<Eigen::Index>(i), ids[i + 1]));
  return losses;
}

/// The mean of `token_losses`; NaN for a text without a predicted token.
template <class T>
[[nodiscard]] double mean_loss(const matrix<T>& logits, std::span<const std::int64_t> ids) {
  const std::vector<double> losses = token_losses(logits, ids);
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return losses.empty() ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(losses.size());
}

/// Column of the largest value of the last row, the first one of equals.
template <class T>
[[nodiscard]] std::int64_t most_likely(const matrix<T>& logits) {
  Eigen::Index best = 0;
  logits.row(logits.rows() - 1).maxCoeff(&best);
  return best;
}

struct decoded {
  /// Without the start, with the end mark where it came.
  token_ids ids;
  /// The sum of the log-probabilities of `ids`.
  double log_probability = 0;
  bool ended = false;
};
/// Always the most likely token, up to `end` or `longest` of them; `next(id)` gives the logits that follow `id`.
template <class Next>
[[nodiscard]] decoded greedy(std::int64_t start, std::int64_t end, std::int64_t longest, Next&& next) {
  decoded d;
  std::int64_t last = start;
  while (!d.ended && static_cast<std::int64_t>(d.ids.size()) < longest) {
    const auto logits = next(last);
    last = most_likely(logits);
    d.log_probability += log_softmax(logits)(logits.rows() - 1, last);
    d.ids.push_back(last);
    d.ended = last == end;
  }
  return d;
}

/// The rows of an embedding matrix. @throws std::out_of_range for an id without a row.
template <class T>
[[nodiscard]] matrix<T> embedding_rows(const matrix<T>& table, std::span<const std::int64_t> ids) {
  matrix<T> x(static_cast<Eigen::Index>(ids.size()), table.cols());
  for (std::size_t t = 0; t < ids.size(); ++t) {
    if (ids[t] < 0 || ids[t] >= table.rows())
      throw std::out_of_range("token id " + std::to_string(ids[t]) + " lies outside the vocabulary");
    x.row(static_cast<Eigen::Index>(t)) = table.row(ids[t]);
  }
  return x;
}

}  // namespace posenc_examples
