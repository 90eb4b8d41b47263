// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The loss of a character model on text that it was not trained on: the last tenth of a text, cut into four windows
/// of a length, each run alone; the mean of their losses.

#include "support/char_model.hpp"

#include <optional>

namespace posenc_examples {

inline constexpr std::int64_t held_out_windows = 4;

/// From byte floor(0.9 * size) on.
[[nodiscard]] inline std::string_view last_tenth(std::string_view text) { return text.substr(text.size() * 9 / 10); }

/// Nothing where the text is too short for the windows.
template <class T, class Policy, class Input>
[[nodiscard]] std::optional<double> held_out_loss(const char_model<T>& model, const encoding<Policy, Input>& e,
                                                  std::string_view held_out, std::int64_t length) {
  if (static_cast<std::int64_t>(held_out.size()) < held_out_windows * length) return std::nullopt;
  double sum = 0;
  for (std::int64_t w = 0; w < held_out_windows; ++w) {
    const token_ids ids =
        character_ids(held_out.substr(static_cast<std::size_t>(w * length), static_cast<std::size_t>(length)));
    sum += mean_loss(model.run(ids, e), ids);
  }
  return sum / static_cast<double>(held_out_windows);
}

/// The prompt and its greedy continuation, one cached step per character.
template <class T, class Policy, class Input>
[[nodiscard]] std::string continue_text(const char_model<T>& model, const encoding<Policy, Input>& e,
                                        const std::string& prompt, std::int64_t characters) {
  std::string text = prompt;
  token_ids next = character_ids(prompt);
  kv_cache<T> cache = model.make_cache(static_cast<std::int64_t>(prompt.size()) + characters);
  for (std::int64_t i = 0; i < characters; ++i) {
    next = {most_likely(model.run(next, e, cache))};
    text.push_back(static_cast<char>(next.front()));
  }
  return text;
}

}  // namespace posenc_examples
