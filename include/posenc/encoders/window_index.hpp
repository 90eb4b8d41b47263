// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Which entry of a table of relative biases a pair of tokens of an image window takes. Tokens run row by row,
/// t = y * width + x; index[i, j] has the query first.
///   swin    (yi - yj + h - 1) * (2 w - 1) + (xi - xj + w - 1)
///   beit    a class token first; the others as swin. With n = (2h - 1)(2w - 1) + 3: row 0 (class to token) is n - 3,
///           column 0 (token to class) is n - 2, the corner n - 1, in this order
///   levit   |yi - yj| * w + |xi - xj|
/// Domain   sides of at least 1 and at most 32768 tokens. Cost: tokens^2 entries of 4 bytes.
/// Throws   std::invalid_argument for another window.
/// Who uses it  Swin, CoAtNet, MaxViT (swin); BEiT, data2vec-vision (beit); LeViT (levit).
/// Example  examples/window_bias_example.cpp

#include <posenc/core/error.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace posenc {

/// Rows and columns of an image window.
struct window_shape {
  std::int64_t height = 0;
  std::int64_t width = 0;
  friend constexpr bool operator==(const window_shape&, const window_shape&) = default;
};

enum class window_kind { swin, beit, levit };

namespace detail {
inline void check_window(std::string_view function, std::string_view name, const window_shape& w) {
  constexpr std::int64_t most = 32768;
  require(w.height >= 1 && w.width >= 1 && w.height <= most && w.width <= most && w.height * w.width <= most, function,
          name, "must have sides of at least 1 and at most 32768 tokens",
          std::to_string(w.height) + " x " + std::to_string(w.width));
}
}  // namespace detail

/// Tokens of a window, the class token of beit included.
[[nodiscard]] inline std::int64_t window_tokens(window_kind kind, const window_shape& w) {
  detail::check_window("window_tokens", "window", w);
  return w.height * w.width + (kind == window_kind::beit ? 1 : 0);
}

/// Entries of the table per head.
[[nodiscard]] inline std::int64_t window_entries(window_kind kind, const window_shape& w) {
  detail::check_window("window_entries", "window", w);
  if (kind == window_kind::levit) return w.height * w.width;
  return (2 * w.height - 1) * (2 * w.width - 1) + (kind == window_kind::beit ? 3 : 0);
}

/// [tokens, tokens], see the file comment.
[[nodiscard]] inline std::vector<std::int32_t> window_index(window_kind kind, const window_shape& w) {
  const std::int64_t tokens = window_tokens(kind, w);
  const std::int64_t entries = window_entries(kind, w);
  const std::int64_t first = kind == window_kind::beit ? 1 : 0;
  std::vector<std::int32_t> out(static_cast<std::size_t>(tokens * tokens));
  const auto at = [&](std::int64_t i, std::int64_t j) -> std::int32_t& {
    return out[static_cast<std::size_t>(i * tokens + j)];
  };
  for (std::int64_t i = first; i < tokens; ++i)
    for (std::int64_t j = first; j < tokens; ++j) {
      const std::int64_t dy = (i - first) / w.width - (j - first) / w.width;
      const std::int64_t dx = (i - first) % w.width - (j - first) % w.width;
      const std::int64_t entry = kind == window_kind::levit
                                     ? (dy < 0 ? -dy : dy) * w.width + (dx < 0 ? -dx : dx)
                                     : (dy + w.height - 1) * (2 * w.width - 1) + dx + w.width - 1;
      at(i, j) = static_cast<std::int32_t>(entry);
    }
  if (kind == window_kind::beit) {
    for (std::int64_t j = 0; j < tokens; ++j) at(0, j) = static_cast<std::int32_t>(entries - 3);
    for (std::int64_t i = 0; i < tokens; ++i) at(i, 0) = static_cast<std::int32_t>(entries - 2);
    at(0, 0) = static_cast<std::int32_t>(entries - 1);
  }
  return out;
}

}  // namespace posenc
