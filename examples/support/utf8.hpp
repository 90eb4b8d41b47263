// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file

#include <string_view>
#include <vector>

namespace posenc_examples {

/// The characters of a UTF-8 text as pieces of it, which must outlive them. A stray byte is a piece of its own.
[[nodiscard]] inline std::vector<std::string_view> utf8_characters(std::string_view text) {
  std::vector<std::string_view> characters;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    // The bytes 10xxxxxx continue a character of up to four bytes.
    while (end < text.size() && end < at + 4 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    characters.push_back(text.substr(at, end - at));
    at = end;
  }
  return characters;
}

}  // namespace posenc_examples
