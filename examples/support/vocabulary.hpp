// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A vocabulary file of one symbol per line, where a symbol is one character or a mark such as `</s>`; the id is the
/// line, counted from 0. The id after the last stands for everything else.

#include "support/bytes.hpp"
#include "support/utf8.hpp"

#include <algorithm>

namespace posenc_examples {

class vocabulary {
 public:
  /// @throws std::runtime_error for a file without symbols, or whose last line does not end.
  explicit vocabulary(const std::string& path) {
    const std::string text = read_file(path);
    if (text.empty() || text.back() != '\n') throw std::runtime_error(path + ": does not end in a line feed");
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      symbols_.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  }

  /// Ids in use, that of the unknown symbol included.
  [[nodiscard]] std::int64_t size() const noexcept { return static_cast<std::int64_t>(symbols_.size()) + 1; }

  [[nodiscard]] token_ids encode(std::string_view text) const {
    token_ids ids;
    for (const std::string_view c : utf8_characters(text))
      ids.push_back(std::find(symbols_.begin(), symbols_.end(), c) - symbols_.begin());
    return ids;
  }
  /// @throws std::out_of_range for an id that is none.
  [[nodiscard]] std::string decode(const token_ids& ids) const {
    std::string text;
    for (const std::int64_t id : ids)
      text += id == size() - 1 ? std::string("?") : symbols_.at(static_cast<std::size_t>(id));
    return text;
  }

 private:
  std::vector<std::string> symbols_;
};

}  // namespace posenc_examples
