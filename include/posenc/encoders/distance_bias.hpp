// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Biases that are a formula of the distance, bias(h, i, j) = rule(h, pos_k(j) - pos_q(i)), too dear to evaluate per
/// logit: a line of values per head is made once per call, and a row of the score matrix is a contiguous slice of it.
/// A rule is a value type with `heads()`, `describe()`, `traits` and `operator()(head, distance) -> T`, and may have
///   line<Arch>(first, n, T* out, stride)   the distances first .. first + n - 1 of all heads at once, head h from
///                                          out[h * stride] on
///   multiplies = true                      its value is a factor on the logit, not a summand
/// kerple, kerple_weight, sandwich and dynamic_bias are such rules, wrapped; a rule of your own is
/// `distance_bias{my_rule}`.
/// Domain   every int64 position. Where the ids of a call lie so far apart that a line would be longer than
///          16 (queries + keys) or than the logits are many, and for scalars that are no plain numbers, the rule is
///          evaluated per logit.
/// Error    that of the rule, and one addition (or product).
/// Cost     per call, heads * (queries + keys) evaluations at most for contiguous positions, and as many values of
///          workspace; per batch of logits, one load and one addition; listed ids gather. A decoding step has one query
///          and pays heads * keys evaluations: `tabulated(max_distance)` makes the line once for all steps.
/// Throws   what the rule throws.
/// Example  examples/distance_bias_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/encoders/toeplitz.hpp>
#include <posenc/simd/batch.hpp>

#include <algorithm>
#include <concepts>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

namespace posenc {

namespace detail {

/// The distances key - query that a call can ask for, both ends included; none for a call without logits.
struct distance_range {
  std::int64_t lo = 0;
  std::int64_t hi = -1;

  explicit distance_range(const call& c) {
    if (c.queries == 0 || c.keys == 0 || c.batch == 0) return;
    lo = std::numeric_limits<std::int64_t>::max();
    hi = std::numeric_limits<std::int64_t>::min();
    for (std::int64_t b = 0; b < c.batch; ++b) {
      const interval q = ends(c.query_positions, b, c.queries);
      const interval k = ends(c.key_positions, b, c.keys);
      lo = std::min(lo, position_difference(k.lo, q.hi));
      hi = std::max(hi, position_difference(k.hi, q.lo));
    }
  }
  /// Domain: a range that is worth a line.
  [[nodiscard]] std::int64_t size() const noexcept { return hi - lo + 1; }

  /// Whether a line over the range is linear in what the call holds, and cheaper than its logits.
  [[nodiscard]] bool worth_a_line(const call& c) const noexcept {
    if (hi < lo || lo <= -far || hi >= far) return false;
    return size() <= 16 * (c.queries + c.keys) && size() <= c.queries + c.keys + c.batch * c.queries * c.keys;
  }

 private:
  static constexpr std::int64_t far = std::int64_t{1} << 60;

  /// The least and the greatest position of a batch row.
  static interval ends(const positions& at, std::int64_t b, std::int64_t n) {
    interval range{at(b, 0), at(b, n - 1)};
    if (at.contiguous()) return range;
    for (std::int64_t t = 0; t < n; ++t) {
      range.lo = std::min(range.lo, at(b, t));
      range.hi = std::max(range.hi, at(b, t));
    }
    return range;
  }
};

/// The type that a formula over parameters of type T is evaluated in: double for float, so that it is rounded once.
template <class T>
using formula_t = std::conditional_t<simd_scalar<T>, double, T>;

template <class Rule>
inline constexpr bool rule_multiplies = false;
template <class Rule>
  requires requires { Rule::multiplies; }
inline constexpr bool rule_multiplies<Rule> = Rule::multiplies;

/// rule(h, lo .. lo + n - 1) of every head h, from lines[h * stride] on.
template <class Arch, class T, class Rule>
void make_lines(const Rule& rule, std::int64_t lo, std::int64_t n, T* lines, std::int64_t stride) {
  const auto fill = [&](std::int64_t from, std::int64_t to) {
    if (from > to) return;
    if constexpr (requires { rule.template line<Arch>(lo, n, lines, stride); }) {
      rule.template line<Arch>(from, to - from + 1, lines + (from - lo), stride);
    } else {
      for (std::int64_t h = 0; h < rule.heads(); ++h)
        for (std::int64_t d = from; d <= to; ++d) lines[h * stride + d - lo] = rule(h, d);
    }
  };
  const std::int64_t hi = lo + n - 1;
  if (!Rule::traits.symmetric || lo >= 0 || hi <= 0) return fill(lo, hi);
  // Of a symmetric rule, one side is made and the other copied as far as it goes.
  const std::int64_t both = std::min(-lo, hi);
  fill(lo, -both - 1);
  fill(0, hi);
  for (std::int64_t h = 0; h < rule.heads(); ++h)
    for (std::int64_t d = 1; d <= both; ++d) lines[h * stride - lo - d] = lines[h * stride - lo + d];
}

}  // namespace detail

template <class Rule>
class distance_bias {
 public:
  using T = std::remove_cvref_t<decltype(std::declval<const Rule&>()(std::int64_t{}, std::int64_t{}))>;
  static constexpr encoder_traits traits = Rule::traits;

  explicit distance_bias(Rule rule) : rule_(std::move(rule)) {}

  /// The parameters are the rule's.
  [[nodiscard]] const Rule& rule() const noexcept { return rule_; }
  [[nodiscard]] std::int64_t heads() const noexcept { return rule_.heads(); }
  [[nodiscard]] encoder_description describe() const { return rule_.describe(); }

  /// The line of the distances -max_distance .. max_distance, held at its ends beyond: the same values for up to
  /// max_distance + 1 tokens, whatever the call, and a part that run_time_policy takes.
  /// @throws std::invalid_argument for a max_distance outside 0 .. 2^40.
  template <class Arch = simd::default_arch>
  [[nodiscard]] toeplitz<T> tabulated(std::int64_t max_distance) const requires(!detail::rule_multiplies<Rule>) {
    detail::require(max_distance >= 0 && max_distance <= (std::int64_t{1} << 40), "distance_bias::tabulated",
                    "max_distance", "must lie in 0..2^40", max_distance);
    const std::int64_t length = 2 * max_distance + 1;
    std::vector<T> table(static_cast<std::size_t>(heads() * length));
    detail::make_lines<Arch>(rule_, -max_distance, length, table.data(), length);
    return toeplitz<T>(heads(), max_distance, std::span<const T>(table));
  }

  /// What the hooks read: lines in the workspace, or the rule itself.
  struct bound {
    const Rule* rule;
    const T* lines;  // null: evaluate per logit
    std::int64_t lo;
    std::int64_t length;  // per head, slack included

    template <class B, class Keys>
    [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
      const T* line = lines ? lines + r.head * length : nullptr;
      if constexpr (Keys::contiguous && std::is_arithmetic_v<T>) {
        const std::int64_t start = position_difference(keys.first, r.query_position);
        const T* first_key = line ? line + (start - lo) : nullptr;
        return [rule = rule, first_key, start, head = r.head](const B& s, std::int64_t k) {
          if (first_key) [[likely]]
            return combine<B>(s, lanes<B>::load(first_key + k));
          T value[lanes<B>::size];
          for (int i = 0; i < lanes<B>::size; ++i) value[i] = (*rule)(head, start + k + i);
          return combine<B>(s, lanes<B>::load(value));
        };
      } else {
        // Lines are those of arithmetic scalars, whose contiguous keys are dealt with above.
        const listed_look_up<B, T> table(as_listed(keys), r, line, lo, lo + length - 1);
        return [rule = rule, lined = line != nullptr, table, keys, r](const B& s, std::int64_t k) POSENC_LAMBDA_INLINE {
          if (lined) [[likely]]
            return combine<B>(s, table(k));
          return combine<B>(s, evaluated<B>(*rule, keys, r, k));
        };
      }
    }

   private:
    template <class Keys>
    static listed_keys as_listed(const Keys& keys) {
      if constexpr (Keys::contiguous) {
        return {};
      } else {
        return keys;
      }
    }
    template <class B, class Keys>
    static B evaluated(const Rule& rule, const Keys& keys, const posenc::row& r, std::int64_t k) {
      T value[lanes<B>::size];
      for (int i = 0; i < lanes<B>::size; ++i)
        value[i] = rule(r.head, position_difference(keys.position(k + i), r.query_position));
      return lanes<B>::load(static_cast<const T*>(value));
    }
    template <class B>
    static B combine(const B& s, const B& value) {
      if constexpr (detail::rule_multiplies<Rule>) {
        return B(s * value);
      } else {
        return B(s + value);
      }
    }
  };

  [[nodiscard]] std::size_t workspace_bytes(const call& c) const {
    const detail::distance_range range(c);
    return lined(c, range) ? static_cast<std::size_t>(heads() * (range.size() + lane_slack)) * sizeof(T) : 0;
  }
  /// Without an Arch (calls on scalars) the line is that of the default one, so that every way of asking gives the same
  /// bits.
  template <class Arch = void>
  [[nodiscard]] bound bind(std::byte* memory, const call& c) const {
    const detail::distance_range range(c);
    if constexpr (std::is_arithmetic_v<T>) {
      if (lined(c, range)) {
        const std::int64_t length = range.size() + lane_slack;
        T* lines = reinterpret_cast<T*>(memory);
        using line_arch = std::conditional_t<std::same_as<Arch, void>, simd::default_arch, Arch>;
        detail::make_lines<line_arch>(rule_, range.lo, range.size(), lines, length);
        for (std::int64_t h = 0; h < heads(); ++h)
          std::fill_n(lines + h * length + range.size(), lane_slack, lines[h * length + range.size() - 1]);
        return {&rule_, lines, range.lo, length};
      }
    }
    return {&rule_, nullptr, 0, 0};
  }

 private:
  static bool lined(const call& c, const detail::distance_range& range) noexcept {
    return std::is_arithmetic_v<T> && range.worth_a_line(c);
  }

  Rule rule_;
};

}  // namespace posenc
