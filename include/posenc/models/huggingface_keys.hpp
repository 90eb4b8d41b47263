// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Typed look-ups in a config.json. A key may have several names; two of them with different values contradict each
/// other and are refused, as is a value of another type, always with the path of the key. null counts as absent.
/// What the configuration leaves out comes from the defaults of the model's family.

#include <posenc/core/error.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace posenc::models::detail {

using json = nlohmann::json;
using names = std::initializer_list<const char*>;

/// One object of the configuration and where it stands.
class config_object {
 public:
  config_object(const json* given, const json* defaults, std::string path)
      : given_(given), defaults_(defaults), path_(std::move(path)) {}

  /// `value` is text or JSON.
  template <class Value>
  [[noreturn]] void fail(std::string_view key, std::string_view rule, const Value& value) const {
    const std::string name = path_ + std::string(key);
    if constexpr (std::is_same_v<Value, json>) {
      posenc::detail::invalid("models::from_huggingface", name, rule, value.dump());
    } else {
      posenc::detail::invalid("models::from_huggingface", name, rule, std::string_view(value));
    }
  }
  void require(bool holds, std::string_view key, std::string_view rule, std::string_view value) const {
    if (!holds) fail(key, rule, value);
  }

  /// The value under the first of the names that is present, and that name; null where none is. A null in the
  /// configuration also keeps the default away.
  [[nodiscard]] std::pair<const json*, std::string> find(names keys) const {
    std::pair<const json*, std::string> found{nullptr, *keys.begin()};
    bool named = false;
    for (const char* key : keys) {
      named = named || given_->contains(key);
      const json* value = in(given_, key);
      if (!value) continue;
      if (found.first && *found.first != *value)
        fail(std::string(key), "must agree with " + path_ + found.second + " = " + found.first->dump(), *value);
      if (!found.first) found = {value, key};
    }
    for (const char* key : keys)
      if (const json* value = in(defaults_, key); value && !named && !found.first) found = {value, key};
    return found;
  }
  /// Whether the configuration itself says it, null not counting.
  [[nodiscard]] bool says(const char* key) const { return in(given_, key) != nullptr; }

  [[nodiscard]] std::optional<double> number(names keys) const {
    const auto [value, key] = find(keys);
    if (!value) return std::nullopt;
    if (!value->is_number()) fail(key, "must be a number", *value);
    return value->get<double>();
  }
  [[nodiscard]] std::optional<std::int64_t> integer(names keys) const {
    const auto [value, key] = find(keys);
    if (!value) return std::nullopt;
    const bool whole = value->is_number() && std::abs(value->get<double>()) < 0x1p53 &&
                       value->get<double>() == std::floor(value->get<double>());
    if (!whole) fail(key, "must be a whole number", *value);
    return value->is_number_integer() ? value->get<std::int64_t>() : static_cast<std::int64_t>(value->get<double>());
  }
  /// A whole number that has to be there and to lie in 1..most.
  [[nodiscard]] std::int64_t count(names keys, std::int64_t most = std::int64_t{1} << 53) const {
    const auto value = integer(keys);
    if (!value) fail(*keys.begin(), "must be given", "nothing");
    if (*value < 1) fail(find(keys).second, "must be at least 1", json(*value));
    if (*value > most) fail(find(keys).second, "must be at most " + std::to_string(most), json(*value));
    return *value;
  }
  [[nodiscard]] std::optional<double> positive(const char* key) const {
    const auto value = number({key});
    if (value && !(*value > 0)) fail(key, "must be positive", json(*value));
    return value;
  }
  /// Also from a number: 0 is false.
  [[nodiscard]] bool flag(names keys, bool otherwise = false) const {
    const auto [value, key] = find(keys);
    if (!value) return otherwise;
    if (value->is_boolean()) return value->get<bool>();
    if (value->is_number()) return value->get<double>() != 0;
    fail(key, "must be true or false", *value);
  }
  [[nodiscard]] std::optional<std::string> text(names keys) const {
    const auto [value, key] = find(keys);
    if (!value) return std::nullopt;
    if (!value->is_string()) fail(key, "must be a string", *value);
    return value->get<std::string>();
  }
  template <class T>
  [[nodiscard]] std::optional<std::vector<T>> list(names keys) const {
    const auto [value, key] = find(keys);
    if (!value) return std::nullopt;
    if (!value->is_array()) fail(key, "must be a list", *value);
    std::vector<T> out;
    for (const json& item : *value) {
      if constexpr (std::is_same_v<T, std::string>) {
        if (!item.is_string()) fail(key, "must list strings", item);
        out.push_back(item.get<std::string>());
      } else {
        if (!item.is_number() && !item.is_boolean()) fail(key, "must list numbers", item);
        if constexpr (std::is_integral_v<T>)
          if (item.is_number() && !whole_in<T>(item.get<double>())) fail(key, "must list whole numbers", item);
        out.push_back(item.is_boolean() ? T(item.get<bool>()) : item.get<T>());
      }
    }
    return out;
  }
  /// An object within this one; nothing where it is absent.
  [[nodiscard]] std::optional<config_object> object(const char* key) const {
    const json* value = find({key}).first;
    if (!value) return std::nullopt;
    if (!value->is_object()) fail(key, "must be an object", *value);
    return config_object(value, in(defaults_, key), path_ + key + ".");
  }

  [[nodiscard]] const json& given() const noexcept { return *given_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  /// Up to 2^53, where doubles stop telling whole numbers apart.
  template <class T>
  static bool whole_in(double n) {
    return std::floor(n) == n && std::abs(n) < 0x1p53 && n >= static_cast<double>(std::numeric_limits<T>::min()) &&
           n <= static_cast<double>(std::numeric_limits<T>::max());
  }
  static const json* in(const json* object, const char* key) {
    if (!object || !object->is_object()) return nullptr;
    const auto it = object->find(key);
    return it == object->end() || it->is_null() ? nullptr : &*it;
  }

  const json* given_;
  const json* defaults_;
  std::string path_;
};

}  // namespace posenc::models::detail
