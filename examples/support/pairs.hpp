// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Lines of source, tab, target, tab, log-probability of the target.

#include "support/bytes.hpp"

#include <cstdlib>

namespace posenc_examples {

struct pair {
  std::string source;
  std::string target{};
  double log_probability = 0;
};

/// @throws std::runtime_error for a line of another form, or a file without lines.
[[nodiscard]] inline std::vector<pair> read_pairs(const std::string& path) {
  const std::string text = read_file(path);
  std::vector<pair> pairs;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const std::size_t first = line.find('\t');
    const std::size_t second = first == std::string::npos ? first : line.find('\t', first + 1);
    if (second == std::string::npos) throw std::runtime_error(path + ": a line has not three parts");
    char* rest = nullptr;
    const std::string number = line.substr(second + 1);
    const double value = std::strtod(number.c_str(), &rest);
    if (number.empty() || *rest != '\0') throw std::runtime_error(path + ": " + number + " is no number");
    pairs.push_back({line.substr(0, first), line.substr(first + 1, second - first - 1), value});
  }
  if (pairs.empty()) throw std::runtime_error(path + ": holds no pair");
  return pairs;
}

}  // namespace posenc_examples
