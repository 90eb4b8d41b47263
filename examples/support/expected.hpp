// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What a model folder expects: expected.json, {name: {"shape": [...], "data": [...]}}, row-major numbers.

#include "support/bytes.hpp"

#include <nlohmann/json.hpp>

namespace posenc_examples {

class expected {
 public:
  explicit expected(const std::string& path) : path_(path), json_(nlohmann::json::parse(read_file(path))) {}

  [[nodiscard]] bool has(const std::string& name) const { return json_.contains(name); }
  [[nodiscard]] std::vector<double> numbers(const std::string& name) const {
    return entry(name).at("data").get<std::vector<double>>();
  }
  [[nodiscard]] double number(const std::string& name) const { return numbers(name).at(0); }
  [[nodiscard]] token_ids ids(const std::string& name) const { return entry(name).at("data").get<token_ids>(); }
  /// The last axis is the columns, all others together the rows.
  [[nodiscard]] matrix<double> values(const std::string& name) const {
    const std::vector<double> data = numbers(name);
    const auto shape = entry(name).at("shape").get<std::vector<std::int64_t>>();
    if (shape.empty() || shape.back() < 1) throw std::runtime_error(path_ + ": " + name + " has no shape");
    const std::int64_t cols = shape.back();
    const auto size = static_cast<std::int64_t>(data.size());
    if (size % cols != 0) throw std::runtime_error(path_ + ": " + name + " has not the size of its shape");
    return Eigen::Map<const matrix<double>>(data.data(), size / cols, cols);
  }

 private:
  [[nodiscard]] const nlohmann::json& entry(const std::string& name) const {
    const auto found = json_.find(name);
    if (found == json_.end()) throw std::runtime_error(path_ + ": no entry " + name);
    return *found;
  }

  std::string path_;
  nlohmann::json json_;
};

}  // namespace posenc_examples
