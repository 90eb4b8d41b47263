// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The float32 variables of a CTranslate2 model.bin of binary version 2, little-endian without padding:
///   u32 2, string spec, u32 revision, u32 variables; per variable: string name, u8 rank, u32 dims[rank],
///   u8 item bytes, u32 items, data. A string is u16 bytes, its closing 0 included.

#include "support/bytes.hpp"

#include <unordered_map>

namespace posenc_examples {

class ctranslate2_model {
 public:
  /// @throws std::runtime_error for a file that is not one, ends early or goes on after its last variable.
  explicit ctranslate2_model(const std::string& path) : path_(path), bytes_(read_file(path)) {
    byte_reader in(bytes_, path);
    if (const auto version = in.number<std::uint32_t>(); version != 2)
      fail("is not a CTranslate2 model of binary version 2, version " + std::to_string(version));
    spec_ = text(in);
    in.number<std::uint32_t>();  // the revision of the spec
    const auto count = in.number<std::uint32_t>();
    // Grows with what the file really holds, so a false count ends at the end of the file.
    for (std::uint32_t i = 0; i < count; ++i) read_variable(in);
    if (in.remaining() != 0) fail(std::to_string(in.remaining()) + " bytes follow the last variable");
  }
  // The variables lie in `bytes_`.
  ctranslate2_model(const ctranslate2_model&) = delete;
  ctranslate2_model& operator=(const ctranslate2_model&) = delete;

  [[nodiscard]] const std::string& spec() const noexcept { return spec_; }
  [[nodiscard]] std::size_t variables() const noexcept { return variables_.size(); }

  /// The variable `name`, which must be float32 of exactly this shape. @throws std::runtime_error otherwise.
  template <class T>
  [[nodiscard]] matrix<T> tensor(const std::string& name, std::int64_t rows, std::int64_t cols) const {
    return read<T>(name, {rows, cols}, rows, cols);
  }
  template <class T>
  [[nodiscard]] row_vector<T> vector(const std::string& name, std::int64_t size) const {
    return read<T>(name, {size}, 1, size).row(0);
  }

 private:
  struct variable {
    std::vector<std::int64_t> shape;
    std::uint8_t item_bytes = 0;
    std::string_view data;
  };

  [[noreturn]] void fail(const std::string& what) const { throw std::runtime_error(path_ + ": " + what); }

  std::string text(byte_reader& in) const {
    const std::string_view s = in.take(in.number<std::uint16_t>());
    if (s.empty() || s.find('\0') != s.size() - 1) fail("holds a string that does not end in its only 0");
    return std::string(s.substr(0, s.size() - 1));
  }
  void read_variable(byte_reader& in) {
    const std::string name = text(in);
    variable v;
    const auto rank = in.number<std::uint8_t>();
    for (int d = 0; d < rank; ++d) v.shape.push_back(in.number<std::uint32_t>());
    v.item_bytes = in.number<std::uint8_t>();
    const std::uint64_t items = in.number<std::uint32_t>();
    // Both below 2^32, so that no step overflows: a product that has passed `items` can only come back through a 0.
    std::uint64_t product = 1;
    for (const std::int64_t d : v.shape)
      if (d == 0 || product <= items) product *= static_cast<std::uint64_t>(d);
    if (product != items) fail(name + " has not the size of its shape");
    v.data = in.take(items * v.item_bytes);
    if (!variables_.try_emplace(name, std::move(v)).second) fail(name + " stands there twice");
  }
  template <class T>
  [[nodiscard]] matrix<T> read(const std::string& name, const std::vector<std::int64_t>& shape, std::int64_t rows,
                               std::int64_t cols) const {
    const auto found = variables_.find(name);
    if (found == variables_.end()) fail("no variable " + name);
    if (found->second.item_bytes != 4) fail(name + " is not float32");
    if (found->second.shape != shape)
      fail(name + " has not the shape " + std::to_string(rows) + " x " + std::to_string(cols));
    byte_reader reader(found->second.data, path_ + ": " + name);
    return reader.floats<T>(rows, cols);
  }

  std::string path_;
  std::string bytes_;
  std::string spec_;
  std::unordered_map<std::string, variable> variables_;
};

}  // namespace posenc_examples
