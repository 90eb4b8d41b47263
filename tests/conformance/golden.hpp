// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Golden files: {"schema": 1, "op", "cases": [{"name", "params", "inputs", "expected", "tolerance"}]}, arrays are
/// {"shape", "data"} row-major. A new op is a function and its name in a file of this folder:
///   void example(const golden::test_case& c, golden::answers& a) {
///     a.add("output", values_computed_by_posenc(c.input("x").values, c.number("scale")));
///   }
///   const golden::registration ops{{"group.example", example}};
/// The evaluator may give an output several times (the `how` names each way); all of them must pass. It throws
/// `unsupported` for a parameter value that the library does not have yet, never for a hard case.

#include <nlohmann/json.hpp>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace golden {

/// An op or parameter value that the library does not have yet: the case is skipped with this reason.
struct unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct tensor {
  std::vector<std::int64_t> shape;
  std::vector<double> values;

  [[nodiscard]] std::int64_t extent(std::size_t axis) const { return shape.at(axis); }
  /// The values as integers. @throws std::runtime_error if one is not.
  [[nodiscard]] std::vector<std::int64_t> integers() const;
  [[nodiscard]] bool whole() const;
  template <class T>
  [[nodiscard]] std::vector<T> as() const {
    std::vector<T> out;
    out.reserve(values.size());
    for (const double v : values) out.push_back(static_cast<T>(v));
    return out;
  }
};

/// |got - expected| <= abs + rel * |expected|; abs_peer_arithmetic stands in for abs where the peer's float32 steps are
/// followed.
struct tolerance {
  double abs = 0;
  double rel = 0;
  double abs_peer_arithmetic = -1;
};

class test_case {
 public:
  /// `float32`: every array holds float32 values (group onnx), not only those named *_peer.
  test_case(const nlohmann::json& source, bool float32);

  [[nodiscard]] const std::string& name() const { return name_; }

  /// Parameters. null counts as absent; without a default an absent one throws.
  [[nodiscard]] const nlohmann::json& params() const { return params_; }
  [[nodiscard]] bool has(const std::string& key) const;
  [[nodiscard]] double number(const std::string& key) const { return params_.at(key).get<double>(); }
  [[nodiscard]] double number(const std::string& key, double absent) const { return has(key) ? number(key) : absent; }
  [[nodiscard]] std::int64_t integer(const std::string& key) const { return params_.at(key).get<std::int64_t>(); }
  [[nodiscard]] std::int64_t integer(const std::string& key, std::int64_t absent) const {
    return has(key) ? integer(key) : absent;
  }
  [[nodiscard]] std::string text(const std::string& key) const { return params_.at(key).get<std::string>(); }
  [[nodiscard]] std::string text(const std::string& key, const std::string& absent) const {
    return has(key) ? text(key) : absent;
  }
  /// The value that the parameter's text names. @throws unsupported if `choices` does not list it.
  template <class E>
  [[nodiscard]] E choice(const std::string& key, const std::map<std::string, E>& choices) const {
    const auto found = choices.find(text(key));
    if (found == choices.end()) throw unsupported(key + " " + text(key));
    return found->second;
  }

  [[nodiscard]] bool has_input(const std::string& key) const { return inputs_.count(key) != 0; }
  [[nodiscard]] const tensor& input(const std::string& key) const { return find(inputs_, key); }
  [[nodiscard]] bool expects(const std::string& output) const { return expected_.count(output) != 0; }
  [[nodiscard]] const tensor& expected(const std::string& output) const { return find(expected_, output); }
  [[nodiscard]] const std::map<std::string, tensor>& all_expected() const { return expected_; }
  [[nodiscard]] const golden::tolerance& tolerance_of(const std::string& output) const;
  /// Whether `output` is to be computed a second time in a compatibility mode.
  [[nodiscard]] bool wants_peer_arithmetic(const std::string& output) const;

 private:
  [[nodiscard]] const tensor& find(const std::map<std::string, tensor>& in, const std::string& key) const;

  std::string name_;
  nlohmann::json params_;
  std::map<std::string, tensor> inputs_;
  std::map<std::string, tensor> expected_;
  std::map<std::string, golden::tolerance> tolerances_;
};

/// What an evaluator computed.
struct answer {
  std::string output;
  std::string how;
  std::vector<double> values;
};

class answers {
 public:
  /// Values of one output, by exact arithmetic. Outputs that the case has no values for may be given too.
  template <class T>
  void add(const std::string& output, const std::vector<T>& values, const std::string& how = "") {
    exact_.push_back({output, how, std::vector<double>(values.begin(), values.end())});
  }
  /// The same in the compatibility mode `mode`, held to abs_peer_arithmetic.
  template <class T>
  void add_peer(const std::string& mode, const std::string& output, const std::vector<T>& values,
                const std::string& how = "") {
    mode_ = mode;
    peer_.push_back({output, how, std::vector<double>(values.begin(), values.end())});
  }

  [[nodiscard]] const std::vector<answer>& exact() const { return exact_; }
  [[nodiscard]] const std::vector<answer>& peer() const { return peer_; }
  [[nodiscard]] const std::string& mode() const { return mode_; }

 private:
  std::vector<answer> exact_;
  std::vector<answer> peer_;
  std::string mode_;
};

using evaluator = void (*)(const test_case&, answers&);

/// Every op by name.
std::map<std::string, evaluator>& registry();

struct registration {
  registration(std::initializer_list<std::pair<const char*, evaluator>> ops) {
    for (const auto& [op, e] : ops)
      if (!registry().emplace(op, e).second) throw std::logic_error(std::string("op registered twice: ") + op);
  }
};

/// What is wrong with the answers, or an empty text: `output NAME: error E, tolerance T` for the value that exceeds its
/// tolerance by the largest factor, an output without an answer, an answer of another size.
/// `peer`: the answers of the compatibility mode, which must cover every output that has abs_peer_arithmetic.
std::string fault(const test_case& c, const std::vector<answer>& given, bool peer);

}  // namespace golden
