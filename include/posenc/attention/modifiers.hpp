// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Modifiers of the score: values and constants that have no position in them, and the query temperature that does.
///   softcap{c}             s -> c tanh(s / c) at its place in the pack; 0 is off (Gemma 2)
///   logit_scale            q.k times a factor, one for all heads or one per head
///   sink                   softmax starts with weight exp(sink(h)) on no value (gpt-oss); 0 is softmax-1
///   query_temperature      q times 1 + scale * ln(1 + floor((p + position_offset) / floor_scale)): Llama 4 (offset 1),
///                          Ministral 3 (offset 0)
///   log_length_scale       q times max(1, ln(p + 1) / ln(length)): Qwen's use_logn_attn
///   ssmax                  q times s ln n + b, n the number of keys that the row sees (Nakanishi 2025, SSMax)
/// Several providers of a q scale multiply. Each of them scales q.k and the content terms that are formed from the
/// scaled q; a bias that is added to the logits is not scaled.

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>

#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace posenc {

struct softcap {
  double cap;
  explicit softcap(double c) : cap(c) {
    detail::require(std::isfinite(c) && c >= 0, "softcap", "cap", "must be finite and not negative (0 is off)", c);
  }
  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row&, const Keys&) const {
    using L = lanes<B>;
    return [on = cap > 0, c = L::broadcast(cap), inverse = L::broadcast(cap > 0 ? 1 / cap : 0.0)](
               const B& s, std::int64_t) { return on ? B(c * L::tanh(B(s * inverse))) : s; };
  }
};

struct logit_scale {
  std::vector<double> factors;
  explicit logit_scale(double factor) : logit_scale(std::vector<double>{factor}) {}
  explicit logit_scale(std::vector<double> per_head) : factors(std::move(per_head)) {
    detail::require(!factors.empty(), "logit_scale", "per_head", "must not be empty", factors.size());
    for (const double f : factors) detail::require(std::isfinite(f), "logit_scale", "factor", "must be finite", f);
  }
  [[nodiscard]] double query_scale(std::int64_t head, const position&, std::int64_t) const noexcept {
    return factors.size() == 1 ? factors[0] : factors[static_cast<std::size_t>(head)];
  }
  void check(const call& c) const {
    detail::require(factors.size() == 1 || static_cast<std::int64_t>(factors.size()) == c.heads, "logit_scale",
                    "per_head", "must list one factor per head", factors.size());
  }
};

/// T is the scalar of the sinks, one per head, or one for all.
template <class T = float>
struct sinks {
  std::vector<T> values;
  explicit sinks(T for_all_heads) : values{for_all_heads} {}
  explicit sinks(std::vector<T> per_head) : values(std::move(per_head)) {
    detail::require(!values.empty(), "sinks", "per_head", "must not be empty", values.size());
  }
  [[nodiscard]] const T& sink(std::int64_t head) const noexcept {
    return values.size() == 1 ? values[0] : values[static_cast<std::size_t>(head)];
  }
  void check(const call& c) const {
    detail::require(values.size() == 1 || static_cast<std::int64_t>(values.size()) == c.heads, "sinks", "per_head",
                    "must list one sink per head", values.size());
    for (const T& s : values)
      detail::require(s < T(std::numeric_limits<double>::infinity()), "sinks", "values",
                      "must be numbers below infinity", "a NaN or infinity");
  }
};

struct query_temperature {
  double scale = 0.1;
  double floor_scale = 8192;
  std::int64_t position_offset = 1;

  /// Exactly 1 below the first step; positions before 0 count as that. Error: 1 ulp of double.
  [[nodiscard]] double query_scale(std::int64_t, const position& at, std::int64_t) const noexcept {
    const double steps =
        std::floor((static_cast<double>(at.value()) + static_cast<double>(position_offset)) / floor_scale);
    return steps > 0 ? 1 + scale * std::log(1 + steps) : 1.0;
  }
  void check(const call&) const {
    detail::require(floor_scale > 0, "query_temperature", "floor_scale", "must be positive", floor_scale);
    detail::require(std::isfinite(scale), "query_temperature", "scale", "must be finite", scale);
  }
};

/// q times ln(p + 1) / ln(length) from position `length` on, 1 before (Qwen's use_logn_attn).
struct log_length_scale {
  std::int64_t length = 0;
  [[nodiscard]] double query_scale(std::int64_t, const position& at, std::int64_t) const noexcept {
    if (at.value() < length) return 1;
    return std::log(static_cast<double>(at.value()) + 1) / std::log(static_cast<double>(length));
  }
  void check(const call&) const {
    detail::require(length >= 2, "log_length_scale", "length", "must be at least 2", length);
  }
};

/// One s and one b for all heads, or one per head. A row that sees one key has the factor b: with b = 0 all its logits
/// are its biases. Masks of every kind count; a row that sees nothing has b too.
/// Cost  none per score; a row behind a free-form mask or unsorted ids counts its keys one by one.
struct ssmax {
  static constexpr bool needs_visible_keys = true;
  std::vector<double> scales;
  std::vector<double> offsets;

  explicit ssmax(double scale, double offset = 0) : ssmax(std::vector<double>{scale}, std::vector<double>{offset}) {}
  explicit ssmax(std::vector<double> per_head, std::vector<double> offset_per_head = {0.0})
      : scales(std::move(per_head)), offsets(std::move(offset_per_head)) {
    detail::require(!scales.empty(), "ssmax", "per_head", "must not be empty", scales.size());
    detail::require(!offsets.empty(), "ssmax", "offset_per_head", "must not be empty", offsets.size());
    for (const double s : scales) detail::require(std::isfinite(s), "ssmax", "scale", "must be finite", s);
    for (const double b : offsets) detail::require(std::isfinite(b), "ssmax", "offset", "must be finite", b);
  }
  [[nodiscard]] double query_scale(std::int64_t head, const position&, std::int64_t visible) const noexcept {
    const auto h = static_cast<std::size_t>(head);
    const double s = scales.size() == 1 ? scales[0] : scales[h];
    const double b = offsets.size() == 1 ? offsets[0] : offsets[h];
    return visible > 1 ? s * std::log(static_cast<double>(visible)) + b : b;
  }
  void check(const call& c) const {
    const auto fits = [&](const std::vector<double>& x) {
      return x.size() == 1 || static_cast<std::int64_t>(x.size()) == c.heads;
    };
    detail::require(fits(scales), "ssmax", "per_head", "must list one scale per head", scales.size());
    detail::require(fits(offsets), "ssmax", "offset_per_head", "must list one offset per head", offsets.size());
  }
};

}  // namespace posenc
