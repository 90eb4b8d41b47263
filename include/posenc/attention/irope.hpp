// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// iRoPE as a layer schedule (Llama 4): one branch per layer call chooses between two statically different policies.
///   RoPE layers   compose(rope, chunked{chunk})               absolute positions, never reset at a chunk border
///   NoPE layers   compose(query_temperature, causal{})        nothing is rotated
/// Example  examples/irope_example.cpp

#include <posenc/attention/compose.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/encoders/irope.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/rope.hpp>

#include <utility>

namespace posenc {

struct irope_options {
  std::int64_t layers = 0;
  /// Every interval-th layer is a NoPE layer.
  std::int64_t interval = 4;
  /// Explicit list instead: 1 where the layer uses RoPE; empty means the interval.
  std::vector<int> uses_rope{};
  std::int64_t chunk = 8192;
  query_temperature temperature{};
  rope_options rope{};
};

template <class T = float>
class irope {
 public:
  static constexpr encoder_traits traits{.name = "irope",
                                         .site = site::query_key,
                                         // Chunk borders and the temperature lie at absolute positions.
                                         .relation = relation::absolute,
                                         .origin = origin::designed,
                                         .translation_invariant = false,
                                         .symmetric = false};

  explicit irope(const irope_options& o)
      : schedule_(rope_schedule::listed(o.uses_rope, o.layers, o.interval)),
        local_(compose(posenc::rope<T>(o.rope), chunked(o.chunk))),
        global_(compose(o.temperature, causal{})) {}

  /// f(policy) with the policy of the layer; returns what f returns.
  template <class F>
  decltype(auto) visit_layer(std::int64_t layer, F&& f) const {
    if (schedule_.uses_rope(layer)) return std::forward<F>(f)(local_);
    return std::forward<F>(f)(global_);
  }
  /// Turns x by its positions on a RoPE layer; leaves it alone, bit for bit, on a NoPE layer.
  template <class U>
  void rotate(std::int64_t layer, view<U> x, const positions& at = {}) const {
    if (schedule_.uses_rope(layer)) rope().rotate(x, at);
  }

  /// Moves cached keys of a layer by `delta` positions: turned on a RoPE layer, left alone on a NoPE layer.
  template <class U>
  void shift(std::int64_t layer, view<U> keys, std::int64_t delta) const {
    if (schedule_.uses_rope(layer)) rope().shift(keys, delta);
  }

  [[nodiscard]] const rope_schedule& schedule() const noexcept { return schedule_; }
  [[nodiscard]] const posenc::rope<T>& rope() const noexcept { return std::get<0>(local_.parts); }
  /// Of the RoPE layers; NoPE layers have nothing to describe.
  [[nodiscard]] encoder_description describe() const { return rope().describe(); }

 private:
  rope_schedule schedule_;
  policy<posenc::rope<T>, chunked> local_;
  policy<query_temperature, causal> global_;
};

}  // namespace posenc
