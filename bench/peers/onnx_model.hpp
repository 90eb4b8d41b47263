// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// An ONNX model of one operator of the domain com.microsoft, written as protobuf by hand: every message is a string of
/// (field number, wire type, content).

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bench {

class protobuf {
 public:
  protobuf& number(std::uint64_t field, std::uint64_t value) {
    varint(field << 3);
    varint(value);
    return *this;
  }
  protobuf& text(std::uint64_t field, const std::string& value) {
    varint(field << 3 | 2);
    varint(value.size());
    data_ += value;
    return *this;
  }
  protobuf& message(std::uint64_t field, const protobuf& value) { return text(field, value.data_); }
  [[nodiscard]] const std::string& data() const { return data_; }

 private:
  void varint(std::uint64_t x) {
    for (; x >= 128; x >>= 7) data_ += static_cast<char>(x % 128 + 128);
    data_ += static_cast<char>(x);
  }
  std::string data_;
};

/// Element types as ONNX numbers them.
enum class onnx_type : std::uint64_t { float32 = 1, int32 = 6, int64 = 7 };

struct onnx_value {
  std::string name;
  onnx_type type;
  std::vector<std::int64_t> extents;

  [[nodiscard]] protobuf message() const {
    protobuf dims;
    for (const std::int64_t n : extents) dims.message(1, protobuf().number(1, static_cast<std::uint64_t>(n)));
    const protobuf tensor = protobuf().number(1, static_cast<std::uint64_t>(type)).message(2, dims);
    return protobuf().text(1, name).message(2, protobuf().message(1, tensor));
  }
};

/// A constant matrix of float.
struct onnx_matrix {
  std::string name;
  std::int64_t rows, columns;
  std::vector<float> values;

  [[nodiscard]] protobuf message() const {
    return protobuf()
        .number(1, static_cast<std::uint64_t>(rows))
        .number(1, static_cast<std::uint64_t>(columns))
        .number(2, static_cast<std::uint64_t>(onnx_type::float32))
        .text(8, name)
        .text(9, std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  }
};

/// `arguments` names the inputs of the operator in order; an empty name leaves one out.
inline std::string onnx_model(const std::string& op, const std::vector<std::string>& arguments,
                              const std::vector<std::pair<std::string, std::uint64_t>>& attributes,
                              const std::vector<onnx_value>& inputs, const std::vector<onnx_value>& outputs,
                              const std::vector<onnx_matrix>& constants = {}) {
  protobuf node;
  for (const std::string& name : arguments) node.text(1, name);
  for (const onnx_value& v : outputs) node.text(2, v.name);
  node.text(4, op).text(7, "com.microsoft");
  for (const auto& [name, value] : attributes) node.message(5, protobuf().text(1, name).number(3, value).number(20, 2));
  protobuf graph;
  graph.message(1, node).text(2, "graph");
  for (const onnx_matrix& m : constants) graph.message(5, m.message());
  for (const onnx_value& v : inputs) graph.message(11, v.message());
  for (const onnx_value& v : outputs) graph.message(12, v.message());
  return protobuf()
      .number(1, 9)
      .message(7, graph)
      .message(8, protobuf().text(1, "").number(2, 17))
      .message(8, protobuf().text(1, "com.microsoft").number(2, 1))
      .data();
}

}  // namespace bench
