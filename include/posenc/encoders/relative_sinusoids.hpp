// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Tables of distances from sinusoids, for encodings that look up one row per distance: Shaw's relative keys and values
/// without learning, and the R of Transformer-XL, XLNet and Conformer before its projection.
///   table [left + right + 1, dim]; row i belongs to key - query = i - left
/// Its content is the sinusoidal row at that number (`key_minus_query`), or at query - key (`query_minus_key`, as in
/// Transformer-XL, whose sines have the other sign and whose cosines are the same).
/// Layout   that of the encoder: halves with denominator D/2 in Transformer-XL and XLNet (concat_sin_cos), interleaved
///          in ESPnet and Wav2Vec2-Conformer (interleaved_sin_cos).
/// Error    each value is rounded once from double to T. Cost: (left + right + 1) * dim values, linear.
/// Throws   std::invalid_argument for a negative reach.
/// Example  examples/table_example.cpp

#include <posenc/encoders/sinusoidal.hpp>

namespace posenc {

enum class distance_sign { key_minus_query, query_minus_key };

/// See the file comment.
template <class T>
[[nodiscard]] std::vector<T> relative_sinusoids(const sinusoidal<T>& encoder, std::int64_t left, std::int64_t right,
                                                distance_sign sign = distance_sign::key_minus_query) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  detail::require(left >= 0 && left <= most, "relative_sinusoids", "left", "must lie in 0..2^40", left);
  detail::require(right >= 0 && right <= most, "relative_sinusoids", "right", "must lie in 0..2^40", right);
  const std::int64_t rows = left + right + 1;
  if (sign == distance_sign::key_minus_query) return encoder.table(-left, rows);
  std::vector<T> table(static_cast<std::size_t>(rows * encoder.dim()));
  // Row i stands at left - i: the rows of -right .. left from the last to the first.
  encoder.table(view<T>(table.data() + (rows - 1) * encoder.dim(), {.tokens = rows, .dim = encoder.dim()},
                        {.token = -encoder.dim()}),
                positions::from(-right));
  return table;
}

}  // namespace posenc
