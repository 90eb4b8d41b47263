// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A table of words with aligned columns: the first row is the head, which is underlined.

#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

namespace posenc_examples {

class text_table {
 public:
  /// One letter per column: "lrr" is a word and two numbers, which are set to the right.
  text_table(std::string alignment, std::vector<std::string> head) : alignment_(std::move(alignment)) {
    rows_.push_back(std::move(head));
  }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  friend std::ostream& operator<<(std::ostream& out, const text_table& table) {
    std::vector<std::size_t> width(table.alignment_.size());
    for (const auto& row : table.rows_)
      for (std::size_t c = 0; c < row.size() && c < width.size(); ++c) width[c] = std::max(width[c], row[c].size());
    for (std::size_t r = 0; r < table.rows_.size(); ++r) {
      table.line(out, table.rows_[r], width);
      if (r != 0) continue;
      std::vector<std::string> rule;
      for (const std::size_t w : width) rule.emplace_back(w, '-');
      table.line(out, rule, width);
    }
    return out;
  }

 private:
  void line(std::ostream& out, const std::vector<std::string>& row, const std::vector<std::size_t>& width) const {
    std::string text;
    for (std::size_t c = 0; c < row.size() && c < width.size(); ++c) {
      const std::string padding(width[c] - row[c].size(), ' ');
      text += "  " + (alignment_[c] == 'r' ? padding + row[c] : row[c] + padding);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out << text << '\n';
  }

  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
};

/// A number with a fixed count of decimals.
[[nodiscard]] inline std::string decimals(double value, int count) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(count) << value;
  return out.str();
}
/// A whole number in groups of three digits.
[[nodiscard]] inline std::string grouped(std::int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-') text += ' ';
    text += digits[i];
  }
  return text;
}

}  // namespace posenc_examples
