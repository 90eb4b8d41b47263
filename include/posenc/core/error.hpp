// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What happens to bad input: one exception at the edge, before anything is written, whose text names the function,
/// the argument, the rule and the value: `posenc::rope: rotary_dim must be even and at least 2, got 9`.
/// Built with -fno-exceptions, the same text goes to `error_handler()` and the program stops.

#include <posenc/config.hpp>

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace posenc {

/// Receives the message of every error in a build without exceptions; by default it prints to stderr.
/// The program stops when it returns.
using error_handler_type = void (*)(const char* message);

/// The handler in force; assign to replace it. Used only without exceptions.
inline error_handler_type& error_handler() noexcept {
  static error_handler_type handler = [](const char* message) {
    std::fputs(message, stderr);
    std::fputc('\n', stderr);
  };
  return handler;
}

namespace detail {

template <class Value>
std::string printed(const Value& value) {
  if constexpr (std::same_as<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::integral<Value>) {
    return std::to_string(value);
  } else if constexpr (std::floating_point<Value>) {
    char text[64];
    std::snprintf(text, sizeof text, "%.9Lg", static_cast<long double>(value));
    return text;
  } else {
    return std::string(std::string_view(value));
  }
}

template <class Value>
std::string message(std::string_view function, std::string_view argument, std::string_view rule, const Value& value) {
  std::string text = "posenc::";
  text.append(function).append(": ").append(argument).append(" ").append(rule).append(", got ").append(printed(value));
  return text;
}

template <class Error>
[[noreturn]] inline void raise(const std::string& text) {
#if POSENC_EXCEPTIONS
  throw Error(text);
#else
  error_handler()(text.c_str());
  std::abort();
#endif
}

/// A wrong shape or option.
template <class Value>
[[noreturn]] void invalid(std::string_view function, std::string_view argument, std::string_view rule,
                          const Value& value) {
  raise<std::invalid_argument>(message(function, argument, rule, value));
}

/// A position or index past the end of something.
template <class Value>
[[noreturn]] void outside(std::string_view function, std::string_view argument, std::string_view rule,
                          const Value& value) {
  raise<std::out_of_range>(message(function, argument, rule, value));
}

/// `invalid(...)` unless the rule holds.
template <class Value>
constexpr void require(bool holds, std::string_view function, std::string_view argument, std::string_view rule,
                       const Value& value) {
  if (!holds) invalid(function, argument, rule, value);
}

}  // namespace detail
}  // namespace posenc
