// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A file as a string, and little-endian numbers read from one. Nothing is read past its end.

#include "support/matrix.hpp"

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace posenc_examples {

static_assert(std::endian::native == std::endian::little, "the model files are little-endian");

/// @throws std::runtime_error with one line that names the file.
[[nodiscard]] inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path)) throw std::runtime_error(path + ": cannot be opened");
  std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) throw std::runtime_error(path + ": cannot be read");
  return bytes;
}

/// Reads from the front of `bytes`, which must outlive it. `name` stands in messages.
class byte_reader {
 public:
  byte_reader(std::string_view bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

  [[nodiscard]] std::size_t remaining() const noexcept { return bytes_.size(); }

  /// @throws std::runtime_error if fewer bytes are left.
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size())
      throw std::runtime_error(name_ + ": ends early, " + std::to_string(count) + " bytes wanted, " +
                               std::to_string(bytes_.size()) + " left");
    const std::string_view front = bytes_.substr(0, static_cast<std::size_t>(count));
    bytes_.remove_prefix(static_cast<std::size_t>(count));
    return front;
  }
  template <class Number>
    requires std::is_trivially_copyable_v<Number> Number number() {
      Number n;
      std::memcpy(&n, take(sizeof n).data(), sizeof n);
      return n;
    }
  /// float32 values as a matrix of T. The bytes are asked for before memory is.
  template <class T>
  matrix<T> floats(std::int64_t rows, std::int64_t cols) {
    const std::string_view data = take(static_cast<std::uint64_t>(rows) * static_cast<std::uint64_t>(cols) * 4);
    matrix<float> m(rows, cols);
    if (!data.empty()) std::memcpy(m.data(), data.data(), data.size());
    return m.template cast<T>();
  }

 private:
  std::string_view bytes_;
  std::string name_;
};

}  // namespace posenc_examples
