// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// One policy whose masks and modifiers are run-time fields, for models read from a configuration: the bias kind is the
/// only thing that stays static, so a model needs one instantiation per bias kind, not one per combination.
///   order of the logit transforms: softcap before the bias if `softcap_first`, bias, softcap otherwise; masks last.
///   order of the q and k transforms: norm, rotation; or rotation, norm if `normalize_after_rotation`.
/// Cost     the instructions of the same static policy and one predictable branch per batch for the softcap.

#include <posenc/attention/index_masks.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/qk_norm.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/rope.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace posenc {

/// Visible keys by position; absent masks let everything through, the others are intersected.
struct run_time_masks {
  bool causal = false;
  std::optional<sliding_window> window{};
  std::optional<symmetric_window> both_sides{};
  std::optional<chunked> chunk{};
  std::optional<prefix_lm> prefix{};
  std::optional<causal_by_index> order{};
  std::optional<cache_length> cache{};
  std::optional<posenc::padding> padding{};
  std::optional<posenc::documents> documents{};

  [[nodiscard]] interval allow_positions_once(const row& r) const noexcept {
    interval all;
    const auto cut = [&](const interval& v) { all = {std::max(all.lo, v.lo), std::min(all.hi, v.hi)}; };
    if (causal) cut(posenc::causal{}.allow_positions(r));
    if (window) cut(window->allow_positions(r));
    if (both_sides) cut(both_sides->allow_positions(r));
    if (chunk) cut(chunk->allow_positions(r));
    if (prefix) {
      const interval_pair two = prefix->allow_positions(r);  // both start at the lowest position
      cut({interval::lowest, std::max(two[0].hi, two[1].hi)});
    }
    return all;
  }
};

/// Bias is a part with a `row` hook (alibi, relative_bucket, toeplitz, a user's own) or nope.
template <class Bias = nope>
struct run_time_policy {
  static_assert(!has_bind<Bias>, "posenc::run_time_policy: a bias that is bound once per call goes into compose(...)");
  Bias bias{};
  run_time_masks masks{};
  double softcap = 0;
  bool softcap_first = false;
  std::vector<double> sinks{};
  std::optional<double> logit_scale{};
  std::optional<query_temperature> temperature{};
  std::optional<log_length_scale> length_scale{};
  std::optional<qk_norm> normalization{};
  bool normalize_after_rotation = false;
  std::optional<posenc::rope<float>> rotation{};

  static constexpr bool several_axes = true;

  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
    const auto cap = posenc::softcap{softcap}.row<B>(r, keys);
    if constexpr (has_row<Bias, B, Keys>) {
      return [cap, add = bias.template row<B>(r, keys), first = softcap_first](const B& s, std::int64_t k) {
        return first ? B(add(cap(s, k), k)) : B(cap(add(s, k), k));
      };
    } else {
      return cap;
    }
  }
  [[nodiscard]] interval allow_positions(const posenc::row& r) const noexcept { return masks.allow_positions_once(r); }
  [[nodiscard]] interval allow_index(const posenc::row& r) const noexcept {
    interval all;
    const auto cut = [&](const interval& v) { all = {std::max(all.lo, v.lo), std::min(all.hi, v.hi)}; };
    if (masks.order) cut(masks.order->allow_index(r));
    if (masks.cache) cut(masks.cache->allow_index(r));
    if (masks.padding) cut(masks.padding->allow_index(r));
    if (masks.documents) cut(masks.documents->allow_index(r));
    return all;
  }
  [[nodiscard]] double query_scale(std::int64_t head, const position& at, std::int64_t visible) const noexcept {
    const double warm = temperature ? temperature->query_scale(head, at, visible) : 1.0;
    const double longer = length_scale ? length_scale->query_scale(head, at, visible) : 1.0;
    return logit_scale.value_or(1.0) * warm * longer;
  }
  /// -inf, which starts the softmax empty, where there are no sinks.
  [[nodiscard]] double sink(std::int64_t head) const noexcept {
    if (sinks.empty()) return -std::numeric_limits<double>::infinity();
    return sinks[sinks.size() == 1 ? 0 : static_cast<std::size_t>(head)];
  }
  template <class C>
  void transform_q(C* x, std::int64_t dim, const position& at, std::int64_t head) const {
    if (normalization && !normalize_after_rotation) normalization->transform_q(x, dim, at, head);
    if (rotation) rotation->transform_q(x, dim, at, head);
    if (normalization && normalize_after_rotation) normalization->transform_q(x, dim, at, head);
  }
  template <class C>
  void transform_k(C* x, std::int64_t dim, const position& at, std::int64_t head) const {
    if (normalization && !normalize_after_rotation) normalization->transform_k(x, dim, at, head);
    if (rotation) rotation->transform_k(x, dim, at, head);
    if (normalization && normalize_after_rotation) normalization->transform_k(x, dim, at, head);
  }

  /// Keys before they are appended to a cache: norm and rotation in their order, where there are any.
  template <class U>
  void rotate(view<U> keys, const positions& at = {}) const {
    if (normalization && !normalize_after_rotation) normalization->normalize_k(keys);
    if (rotation) rotation->rotate(keys, at);
    if (normalization && normalize_after_rotation) normalization->normalize_k(keys);
  }
  /// Cached keys that move. @throws std::invalid_argument where a gain lies on rotated channels: it would have to be
  /// taken off before the turn.
  template <class U>
  void shift(view<U> keys, std::int64_t delta) const {
    if (!rotation) return;
    detail::require(!normalization || !normalize_after_rotation || normalization->k_gain.empty(),
                    "run_time_policy::shift", "normalization", "must not scale channels after the rotation", "a gain");
    rotation->shift(keys, delta);
  }

  /// @throws std::invalid_argument where a field does not fit the call.
  void check(const call& c) const {
    (void)posenc::softcap(softcap);  // refuses a negative cap here, not in a kernel
    if (masks.order) masks.order->check(c);
    if (masks.cache) masks.cache->check(c);
    if (masks.padding) masks.padding->check(c);
    if (masks.documents) masks.documents->check(c);
    if (rotation) rotation->check(c);
    if (temperature) temperature->check(c);
    if (length_scale) length_scale->check(c);
    if (normalization) normalization->check(c);
    const int axes = std::max(c.query_positions.axis_count(), c.key_positions.axis_count());
    detail::require(axes == 1 || rotation, "run_time_policy", "positions",
                    "must have one axis where there is no rotation", axes);
    // Masks by position read the first axis, which the tokens of an image share.
    const bool by_position = masks.causal || masks.window || masks.both_sides || masks.chunk || masks.prefix;
    detail::require(axes == 1 || !by_position || masks.order, "run_time_policy", "masks.order",
                    "must be given (causal_by_index) where positions have several axes", "none");
    detail::require(!(masks.causal && masks.prefix), "run_time_policy", "masks",
                    "must not hold causal beside prefix, which holds the causal rule itself", "both");
    detail::require(sinks.size() <= 1 || static_cast<std::int64_t>(sinks.size()) == c.heads, "run_time_policy", "sinks",
                    "must list one sink per head", sinks.size());
    for (const double s : sinks)
      detail::require(s < std::numeric_limits<double>::infinity(), "run_time_policy", "sinks",
                      "must be numbers below infinity", s);
    detail::require(std::isfinite(logit_scale.value_or(1)), "run_time_policy", "logit_scale", "must be finite",
                    logit_scale.value_or(1));
    if constexpr (requires {
                    { bias.heads() } -> std::convertible_to<std::int64_t>;
                  })
      detail::require(bias.heads() == c.heads, "run_time_policy", "the heads of the bias", "must equal those of q",
                      bias.heads());
  }
};

}  // namespace posenc
