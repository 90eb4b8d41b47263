// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "golden.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace golden {
namespace {

double scalar(const nlohmann::json& value) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  const auto text = value.get<std::string>();
  if (text == "inf") return inf;
  if (text == "-inf") return -inf;
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  throw std::runtime_error("not a number: " + text);
}

tensor parsed(const nlohmann::json& array, bool float32) {
  tensor t;
  t.shape = array.at("shape").get<std::vector<std::int64_t>>();
  std::int64_t elements = 1;
  for (const std::int64_t n : t.shape) elements *= n;
  for (const auto& value : array.at("data")) {
    const double v = scalar(value);
    t.values.push_back(float32 ? static_cast<double>(static_cast<float>(v)) : v);
  }
  if (static_cast<std::int64_t>(t.values.size()) != elements) throw std::runtime_error("shape and data do not agree");
  return t;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::map<std::string, tensor> parsed_all(const nlohmann::json& arrays, bool float32) {
  std::map<std::string, tensor> out;
  for (const auto& [key, array] : arrays.items())
    if (!array.is_null()) out.emplace(key, parsed(array, float32 || ends_with(key, "_peer")));
  return out;
}

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

/// The value that misses its tolerance by the largest factor, infinite where no tolerance can help.
struct miss {
  double factor = 0;
  double error = 0;
  double allowed = 0;
};

miss worst(const std::vector<double>& got, const std::vector<double>& expected, double abs, double rel) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  miss found;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(expected[i]) && got[i] == expected[i]) continue;
    const double allowed = std::isinf(expected[i]) ? 0 : abs + rel * std::abs(expected[i]);
    const double error = std::abs(got[i] - expected[i]);
    if (error <= allowed) continue;
    const double factor = std::isfinite(error) && allowed > 0 ? error / allowed : inf;
    if (factor > found.factor || (factor == found.factor && error > found.error)) found = {factor, error, allowed};
  }
  return found;
}

}  // namespace

std::vector<std::int64_t> tensor::integers() const {
  if (!whole()) throw std::runtime_error("an array of integers holds another number");
  return as<std::int64_t>();
}

bool tensor::whole() const {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v) && v == std::floor(v); });
}

test_case::test_case(const nlohmann::json& source, bool float32)
    : name_(source.at("name").get<std::string>()),
      params_(source.value("params", nlohmann::json::object())),
      inputs_(parsed_all(source.value("inputs", nlohmann::json::object()), float32)),
      expected_(parsed_all(source.at("expected"), float32)) {
  for (const auto& [output, t] : source.at("tolerance").items())
    tolerances_[output] = {t.at("abs").get<double>(), t.at("rel").get<double>(), t.value("abs_peer_arithmetic", -1.0)};
}

bool test_case::has(const std::string& key) const {
  const auto found = params_.find(key);
  return found != params_.end() && !found->is_null();
}

const golden::tolerance& test_case::tolerance_of(const std::string& output) const {
  const auto found = tolerances_.find(output);
  if (found == tolerances_.end()) throw std::runtime_error("no tolerance for output " + output);
  return found->second;
}

bool test_case::wants_peer_arithmetic(const std::string& output) const {
  return expects(output) && tolerance_of(output).abs_peer_arithmetic >= 0;
}

const tensor& test_case::find(const std::map<std::string, tensor>& in, const std::string& key) const {
  const auto found = in.find(key);
  if (found == in.end()) throw std::runtime_error("the case has no array " + key);
  return found->second;
}

std::map<std::string, evaluator>& registry() {
  static std::map<std::string, evaluator> ops;
  return ops;
}

std::string fault(const test_case& c, const std::vector<answer>& given, bool peer) {
  miss largest;
  std::string text;
  for (const auto& [output, expected] : c.all_expected()) {
    if (peer && !c.wants_peer_arithmetic(output)) continue;
    const tolerance& t = c.tolerance_of(output);
    bool answered = false;
    for (const answer& a : given) {
      if (a.output != output) continue;
      answered = true;
      const std::string label = "output " + output + (a.how.empty() ? "" : " (" + a.how + ")") + ": ";
      if (a.values.size() != expected.values.size())
        return label + std::to_string(a.values.size()) + " values, expected " + std::to_string(expected.values.size());
      const miss m = worst(a.values, expected.values, peer ? t.abs_peer_arithmetic : t.abs, t.rel);
      if (m.factor <= largest.factor) continue;
      largest = m;
      text = label + "error " + short_number(m.error) + ", tolerance " + short_number(m.allowed);
    }
    if (!answered) return "output " + output + ": not evaluated";
  }
  return text;
}

}  // namespace golden
