// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The command line of a program over one model: `NAME [--model DIR] [WORD...]`. Without --model the model lies in
/// POSENC_TEST_DATA; where it does not, the program says so in a line `skipped: ...` and ends with 0. It ends with 1 if
/// the model does not say what it should, with 2 if it can not be run.

#include "support/model_folder.hpp"

#include <iostream>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace posenc_examples {

struct program {
  std::string name;
  std::string usage;
  /// The folder of the model in POSENC_TEST_DATA, and a file that it holds.
  std::string model;
  std::string file;
  /// Where the model lies if that is part of the project.
  std::string folder{};
};

/// run(folder, words) returns the exit code.
template <class Run>
[[nodiscard]] int run_program(const program& p, std::span<char*> arguments, Run&& run) {
  std::string folder = p.folder;
  std::vector<std::string> words;
  try {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const std::string a = arguments[i];
      if (a == "--help") {
        std::cout << p.usage;
        return 0;
      }
      if (a == "--model") {
        if (++i == arguments.size() || *arguments[i] == '\0') throw std::invalid_argument("--model needs a value");
        folder = std::string(arguments[i]) + "/";
      } else if (a.starts_with("--")) {
        throw std::invalid_argument("unknown option " + a);
      } else {
        words.push_back(a);
      }
    }
    if (folder.empty()) folder = model_folder(p.model, p.file);
    if (folder.empty()) {
      std::cout << "skipped: " << p.name << ": models/" << p.model << " is not in POSENC_TEST_DATA\n";
      return 0;
    }
    return run(folder, words);
  } catch (const std::exception& e) {
    std::cerr << p.name << ": " << e.what() << '\n';
    return 2;
  }
}

}  // namespace posenc_examples
