// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The command line of the comparison.

#include <span>
#include <stdexcept>
#include <string>

namespace compare {

inline constexpr const char* usage =
    R"(usage: compare [--text FILE] [--json FILE] [--model DIR]

Swaps the encoding of a trained character model and measures the seven encoders on this machine.

  --text FILE   text whose last tenth the model reads; default: the GPL-3 text that Debian and Ubuntu ship
  --json FILE   also write every number to FILE
  --model DIR   folder of the character model; default: models/bloom_gpl3_char of the examples
  --help        this text
)";

struct options {
  std::string text = "/usr/share/common-licenses/GPL-3";
  /// Empty: not written.
  std::string json;
  /// Empty: where the examples are.
  std::string model;
  bool help = false;
};

/// @throws std::invalid_argument with one line.
[[nodiscard]] inline options parse(std::span<char*> arguments) {
  options o;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string name = arguments[i];
    std::string* value = name == "--text"    ? &o.text
                         : name == "--json"  ? &o.json
                         : name == "--model" ? &o.model
                                             : nullptr;
    if (name == "--help") {
      o.help = true;
    } else if (!value) {
      throw std::invalid_argument("unknown option " + name + "; --help lists the options");
    } else if (++i == arguments.size() || *arguments[i] == '\0') {
      throw std::invalid_argument(name + " needs a value");
    } else {
      *value = arguments[i];
    }
  }
  return o;
}

}  // namespace compare
