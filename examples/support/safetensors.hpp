// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The float32 tensors of a safetensors file: u64 N, N bytes of JSON {name: {dtype, shape, data_offsets}}, data.

#include "support/bytes.hpp"

#include <nlohmann/json.hpp>

namespace posenc_examples {

class safetensors {
 public:
  /// @throws std::runtime_error for a file that is not one.
  explicit safetensors(const std::string& path) : path_(path), bytes_(read_file(path)) {
    byte_reader reader(bytes_, path);
    const std::string_view header = reader.take(reader.number<std::uint64_t>());
    header_ = nlohmann::json::parse(header, nullptr, false);
    if (!header_.is_object()) fail("the header is not a JSON object");
    data_ = reader.take(reader.remaining());
  }
  // `data_` lies in `bytes_`.
  safetensors(const safetensors&) = delete;
  safetensors& operator=(const safetensors&) = delete;

  /// The tensor `name`, which must be float32 of exactly this shape; a vector is one row.
  /// @throws std::runtime_error otherwise.
  template <class T>
  [[nodiscard]] matrix<T> tensor(const std::string& name, std::int64_t rows, std::int64_t cols) const {
    const auto extents = rows == 1 ? nlohmann::json{cols} : nlohmann::json{rows, cols};
    const auto found = header_.find(name);
    if (found == header_.end() || !found->is_object()) fail("no tensor " + name);
    if (found->value("dtype", nlohmann::json()) != "F32") fail(name + " is not float32");
    if (found->value("shape", nlohmann::json()) != extents) fail(name + " has not the shape " + extents.dump());
    const auto offsets = found->value("data_offsets", nlohmann::json());
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned())
      fail(name + " has no data_offsets");
    const auto begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    if (begin > end || end > data_.size()) fail(name + " lies outside the file");
    if (end - begin != static_cast<std::uint64_t>(rows * cols) * 4) fail(name + " has not the size of its shape");
    byte_reader reader(data_.substr(begin, end - begin), path_ + ": " + name);
    return reader.floats<T>(rows, cols);
  }
  template <class T>
  [[nodiscard]] row_vector<T> vector(const std::string& name, std::int64_t size) const {
    return tensor<T>(name, 1, size).row(0);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw std::runtime_error(path_ + ": " + what); }

  std::string path_;
  std::string bytes_;
  nlohmann::json header_;
  std::string_view data_;
};

}  // namespace posenc_examples
