// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The tokenizer of llama2.c: int32 longest piece, then per piece float32 score, int32 length, bytes. Ids 0 unknown,
/// 1 begin, 2 end, 3..258 single bytes written `<0xHH>`, the rest pieces. Pairs are joined by highest score first.

#include "support/bytes.hpp"
#include "support/utf8.hpp"

#include <unordered_map>

namespace posenc_examples {

class llama2c_tokenizer {
 public:
  static constexpr std::int64_t begin_id = 1;
  static constexpr std::int64_t end_id = 2;
  static constexpr std::int64_t first_byte_id = 3;

  explicit llama2c_tokenizer(const std::string& path) {
    const std::string bytes = read_file(path);
    byte_reader in(bytes, path);
    const auto longest = in.number<std::int32_t>();
    while (in.remaining() != 0) {
      const auto score = in.number<float>();
      const auto length = in.number<std::int32_t>();
      if (length < 0 || length > std::max(longest, 6)) throw std::runtime_error(path + ": is not a tokenizer file");
      pieces_.push_back({score, std::string(in.take(static_cast<std::uint64_t>(length)))});
      ids_.try_emplace(pieces_.back().text, static_cast<std::int64_t>(pieces_.size()) - 1);
    }
    if (size() < first_byte_id + 256) throw std::runtime_error(path + ": has no pieces for single bytes");
  }

  [[nodiscard]] std::int64_t size() const noexcept { return static_cast<std::int64_t>(pieces_.size()); }

  /// Begin, and where the text is not empty a space and the text.
  [[nodiscard]] token_ids encode(std::string_view text) const {
    token_ids ids{begin_id};
    if (text.empty()) return ids;
    append(ids, " ");
    for (const std::string_view character : utf8_characters(text)) append(ids, character);
    while (join_best(ids)) {
    }
    return ids;
  }

  /// The bytes of one token, given the one before it.
  [[nodiscard]] std::string decode(std::int64_t before, std::int64_t id) const {
    if (id < 0 || id >= size()) throw std::out_of_range("token id " + std::to_string(id) + " has no piece");
    if (id == begin_id) return {};
    if (id >= first_byte_id && id < first_byte_id + 256) return {static_cast<char>(id - first_byte_id)};
    const std::string& text = pieces_[static_cast<std::size_t>(id)].text;
    return before == begin_id && text.starts_with(' ') ? text.substr(1) : text;
  }
  [[nodiscard]] std::string decode(std::span<const std::int64_t> ids) const {
    std::string text;
    for (std::size_t i = 0; i < ids.size(); ++i) text += decode(i == 0 ? end_id : ids[i - 1], ids[i]);
    return text;
  }

 private:
  struct piece {
    float score;
    std::string text;
  };

  void append(token_ids& ids, std::string_view character) const {
    if (const auto found = ids_.find(std::string(character)); found != ids_.end()) {
      ids.push_back(found->second);
    } else {
      for (const char c : character) ids.push_back(first_byte_id + static_cast<unsigned char>(c));
    }
  }
  bool join_best(token_ids& ids) const {
    std::size_t best = 0;
    const piece* best_piece = nullptr;
    std::int64_t best_id = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto& left = pieces_[static_cast<std::size_t>(ids[i])].text;
      const auto found = ids_.find(left + pieces_[static_cast<std::size_t>(ids[i + 1])].text);
      if (found == ids_.end()) continue;
      const piece& joined = pieces_[static_cast<std::size_t>(found->second)];
      if (best_piece && joined.score <= best_piece->score) continue;
      best = i;
      best_piece = &joined;
      best_id = found->second;
    }
    if (!best_piece) return false;
    ids[best] = best_id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    return true;
  }

  std::vector<piece> pieces_;
  std::unordered_map<std::string, std::int64_t> ids_;
};

}  // namespace posenc_examples
