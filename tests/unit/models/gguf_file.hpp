// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Metadata as a test writes it: keys below the architecture's name, and what the file lacks to be read.

#include <posenc/models/gguf_keys.hpp>

#include <cmath>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace posenc_test {

struct gguf_file {
  std::map<std::string, posenc::models::gguf_value> keys;

  using entries = std::initializer_list<std::pair<const std::string, posenc::models::gguf_value>>;
  /// Keys without a dot-separated prefix of their own get that of the architecture.
  gguf_file(const std::string& architecture, entries list) {
    keys.emplace("general.architecture", architecture);
    for (const auto& [key, value] : list) keys.emplace(architecture + "." + key, value);
  }
  [[nodiscard]] gguf_file with(const std::string& key, posenc::models::gguf_value value) const {
    gguf_file other = *this;
    other.keys.insert_or_assign(std::get<std::string>(keys.at("general.architecture").held) + "." + key,
                                std::move(value));
    return other;
  }
  std::optional<posenc::models::gguf_value> operator()(const std::string& key) const {
    const auto found = keys.find(key);
    if (found == keys.end()) return std::nullopt;
    return found->second;
  }
};

/// Divisors that a converter writes for Llama 3.1: 1, factor, or between, in float.
inline std::vector<float> llama3_divisors(double base, int pairs, double factor, double low, double high,
                                          double original) {
  std::vector<float> out;
  for (int i = 0; i < pairs; ++i) {
    const double f = std::pow(base, -static_cast<double>(i) / pairs);
    const double wavelength = 2 * 3.141592653589793 / f;
    const double smooth = (original / wavelength - low) / (high - low);
    out.push_back(static_cast<float>(wavelength < original / high  ? 1
                                     : wavelength > original / low ? factor
                                                                   : 1 / ((1 - smooth) / factor + smooth)));
  }
  return out;
}

}  // namespace posenc_test
