// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What a program is doing, on the error stream: in a terminal one line that is written over, elsewhere one line per
/// stage.

#include <iostream>
#include <string>

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

namespace posenc_examples {

class progress {
 public:
  /// A part of the work; steps follow.
  void stage(const std::string& name) {
    stage_ = name;
    if (terminal_) {
      show("");
    } else {
      std::cerr << name << " ..." << std::endl;
    }
  }
  void step(const std::string& what) {
    if (terminal_) show(": " + what);
  }
  /// Takes the line away, so that output may follow.
  void clear() {
    if (terminal_) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  void show(const std::string& what) { std::cerr << "\r\033[K" << stage_ << what << std::flush; }
#if __has_include(<unistd.h>)
  bool terminal_ = isatty(2) == 1;
#else
  bool terminal_ = false;
#endif
  std::string stage_;
};

}  // namespace posenc_examples
