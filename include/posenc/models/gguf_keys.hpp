// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Metadata of a GGUF file by key: the reader asks a function for one key after the other, so that any GGUF parser, a
/// map or a test can answer.

#include <posenc/core/error.hpp>

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace posenc::models {

/// One value: a number (a boolean counts as 0 or 1), a text, or an array of numbers.
struct gguf_value {
  std::variant<double, std::string, std::vector<double>> held;

  template <class N>
    requires std::is_arithmetic_v<N> gguf_value(N number)
        : held(static_cast<double>(number)) {}                 // NOLINT: a number is a value
    gguf_value(std::string text) : held(std::move(text)) {}    // NOLINT
    gguf_value(const char* text) : held(std::string(text)) {}  // NOLINT
    template <class N>
      requires std::is_arithmetic_v<N> gguf_value(const std::vector<N>& array)
          : held(std::vector<double>(array.begin(), array.end())) {}  // NOLINT
};

/// The value of a key, or nothing.
using gguf_lookup = std::function<std::optional<gguf_value>(const std::string& key)>;

/// Reads keys below the architecture's name. Every refusal names the key in full.
class gguf_keys {
 public:
  /// @throws std::invalid_argument without general.architecture
  explicit gguf_keys(gguf_lookup lookup) : lookup_(std::move(lookup)) {
    const auto name = lookup_("general.architecture");
    posenc::detail::require(name && std::holds_alternative<std::string>(name->held), "models::from_gguf",
                            "general.architecture", "must be a text", name ? "another value" : "nothing");
    architecture_ = std::get<std::string>(name->held);
  }

  [[nodiscard]] const std::string& architecture() const noexcept { return architecture_; }
  /// `rope.freq_base` as `llama.rope.freq_base`.
  [[nodiscard]] std::string full(const std::string& key) const { return architecture_ + "." + key; }
  [[nodiscard]] bool has(const std::string& key) const { return lookup_(full(key)).has_value(); }

  [[nodiscard]] std::optional<double> number(const std::string& key) const {
    const auto value = lookup_(full(key));
    if (!value) return std::nullopt;
    const double* n = std::get_if<double>(&value->held);
    if (!n || !std::isfinite(*n)) refuse(key, "must be a finite number", "another value");
    return *n;
  }
  [[nodiscard]] double number(const std::string& key, double absent) const { return number(key).value_or(absent); }

  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& key) const {
    const auto n = number(key);
    if (!n) return std::nullopt;
    return whole(key, *n);
  }
  [[nodiscard]] std::int64_t integer(const std::string& key, std::int64_t absent) const {
    return integer(key).value_or(absent);
  }
  [[nodiscard]] std::int64_t required(const std::string& key) const {
    const auto n = integer(key);
    if (!n) refuse(key, "must be given", "nothing");
    return *n;
  }

  [[nodiscard]] std::optional<std::string> text(const std::string& key) const {
    const auto value = lookup_(full(key));
    if (!value) return std::nullopt;
    const auto* t = std::get_if<std::string>(&value->held);
    if (!t) refuse(key, "must be a text", "another value");
    return *t;
  }

  /// An array as it stands; empty where the key is absent or holds one number.
  [[nodiscard]] std::vector<std::int64_t> array(const std::string& key) const {
    const auto value = lookup_(full(key));
    std::vector<std::int64_t> out;
    if (!value || std::holds_alternative<double>(value->held)) return out;
    const auto* list = std::get_if<std::vector<double>>(&value->held);
    if (!list) refuse(key, "must be an array of integers", "a text");
    for (const double n : *list) out.push_back(whole(key, n));
    return out;
  }
  /// One integer per layer, from one number for all or an array; `absent` where there is no key.
  [[nodiscard]] std::vector<std::int64_t> per_layer(const std::string& key, std::int64_t layers,
                                                    std::int64_t absent) const {
    std::vector<std::int64_t> list = array(key);
    if (list.empty()) list.assign(static_cast<std::size_t>(layers), integer(key, absent));
    if (static_cast<std::int64_t>(list.size()) < layers) refuse(key, "must list every layer", list.size());
    list.resize(static_cast<std::size_t>(layers));
    return list;
  }

  template <class Value>
  [[noreturn]] void refuse(const std::string& key, const char* rule, const Value& value) const {
    posenc::detail::invalid("models::from_gguf", full(key), rule, value);
  }

 private:
  [[nodiscard]] std::int64_t whole(const std::string& key, double n) const {
    if (std::floor(n) != n || std::abs(n) > 0x1p53) refuse(key, "must be an integer", n);
    return static_cast<std::int64_t>(n);
  }

  gguf_lookup lookup_;
  std::string architecture_;
};

}  // namespace posenc::models
