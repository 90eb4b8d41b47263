// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Where and how often positions enter a model of many layers.
///   layer_pattern    which kind each layer is: a list, a repeated cycle, every n-th, the first n
///   layer_schedule   one policy per kind, of different static types: visit_layer(l, f) calls f with that of the layer
///   input_schedule   at which layers the rows of an absolute encoder are added to the input: the first alone (the
///                    stem), every one, with one table for all or a table each, or chosen ones
/// One line per model:
///   Gemma 3    layer_schedule(layer_pattern::every(6, n), compose(near, sliding_window(1024)), compose(far, causal{}))
///   SmolLM3    layer_schedule(layer_pattern::every(4, n), compose(rope, causal{}), compose(causal{}))
///   Cohere 2   layer_schedule(layer_pattern::every(4, n), compose(rope, sliding_window(4096)), compose(causal{}))
///   Kimi Linear  layer_schedule(layer_pattern::every(4, n), recurrent{}, compose(causal{})): a kind may be any type,
///              here one that the caller's f sends to a linear attention
///   DeBERTa    relative in all layers, and absolute in its mask decoder, which runs the last layer twice over:
///              input_schedule(encoder, layer_pattern::one(n - 1, n + 1)) over n + 1 steps
/// Cost     one branch per layer call. Throws: std::out_of_range for a layer the model does not have,
///          std::invalid_argument for a pattern with a kind that has no policy.
/// Example  examples/table_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/positions.hpp>
#include <posenc/core/view.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace posenc {

/// The kind of every layer: a number from 0.
class layer_pattern {
 public:
  explicit layer_pattern(std::vector<int> kinds) : kinds_(std::move(kinds)) {
    for (const int k : kinds_) detail::require(k >= 0, "layer_pattern", "kind", "must not be negative", k);
  }
  /// The cycle over and over: {0, 0, 0, 0, 0, 1} is five of kind 0, then one of kind 1.
  static layer_pattern repeated(const std::vector<int>& cycle, std::int64_t layers) {
    detail::require(!cycle.empty(), "layer_pattern::repeated", "cycle", "must not be empty", cycle.size());
    return made("layer_pattern::repeated", layers,
                [&](std::int64_t l) { return cycle[static_cast<std::size_t>(l) % cycle.size()]; });
  }
  /// Kind 1 where (l + 1) is a multiple of the interval, else kind 0.
  static layer_pattern every(std::int64_t interval, std::int64_t layers) {
    detail::require(interval >= 1, "layer_pattern::every", "interval", "must be at least 1", interval);
    return made("layer_pattern::every", layers, [&](std::int64_t l) { return (l + 1) % interval == 0 ? 1 : 0; });
  }
  /// Kind 0 for the first `count` layers, kind 1 for the rest.
  static layer_pattern first(std::int64_t count, std::int64_t layers) {
    return made("layer_pattern::first", layers, [&](std::int64_t l) { return l < count ? 0 : 1; });
  }
  /// Kind 1 for one layer, else kind 0.
  static layer_pattern one(std::int64_t layer, std::int64_t layers) {
    detail::require(layer >= 0 && layer < layers, "layer_pattern::one", "layer", "must be one of the layers", layer);
    return made("layer_pattern::one", layers, [&](std::int64_t l) { return l == layer ? 1 : 0; });
  }

  [[nodiscard]] std::int64_t layers() const noexcept { return static_cast<std::int64_t>(kinds_.size()); }
  /// @throws std::out_of_range for a layer the model does not have.
  [[nodiscard]] int kind(std::int64_t layer) const {
    if (layer < 0 || layer >= layers())
      detail::outside("layer_pattern::kind", "layer", "must lie in 0.." + std::to_string(layers() - 1), layer);
    return kinds_[static_cast<std::size_t>(layer)];
  }

 private:
  template <class F>
  static layer_pattern made(const char* function, std::int64_t layers, F&& kind) {
    detail::require(layers >= 0, function, "layers", "must not be negative", layers);
    std::vector<int> kinds;
    for (std::int64_t l = 0; l < layers; ++l) kinds.push_back(kind(l));
    return layer_pattern(std::move(kinds));
  }

  std::vector<int> kinds_;
};

/// See the file comment. Kind k has the k-th policy.
template <class... Policies>
class layer_schedule {
  static_assert(sizeof...(Policies) >= 1, "posenc::layer_schedule needs a policy");

 public:
  explicit layer_schedule(layer_pattern pattern, Policies... policies)
      : pattern_(std::move(pattern)), policies_(std::move(policies)...) {
    for (std::int64_t l = 0; l < pattern_.layers(); ++l)
      detail::require(pattern_.kind(l) < static_cast<int>(sizeof...(Policies)), "layer_schedule", "pattern",
                      "must name kinds that have a policy", pattern_.kind(l));
  }

  /// f(policy) with the policy of the layer; returns what f returns, of one type for all kinds.
  template <class F>
  decltype(auto) visit_layer(std::int64_t layer, F&& f) const {
    return visit<0>(pattern_.kind(layer), f);
  }
  /// Adds to the input of the layer what the parts of its policy embed.
  template <class U>
  void embed(std::int64_t layer, view<U> x, const positions& at = {}) const {
    for_parts_of(layer, [&](const auto& part) {
      if constexpr (requires { part.embed(x, at); }) part.embed(x, at);
    });
  }
  /// Turns x by its positions where the policy of the layer rotates; leaves it alone, bit for bit, elsewhere.
  template <class U>
  void rotate(std::int64_t layer, view<U> x, const positions& at = {}) const {
    for_parts_of(layer, [&](const auto& part) {
      if constexpr (requires { part.rotate(x, at); }) part.rotate(x, at);
    });
  }
  /// Moves cached keys of a layer by `delta` positions, in the same way.
  template <class U>
  void shift(std::int64_t layer, view<U> keys, std::int64_t delta) const {
    for_parts_of(layer, [&](const auto& part) {
      if constexpr (requires { part.shift(keys, delta); }) part.shift(keys, delta);
    });
  }

  [[nodiscard]] std::int64_t layers() const noexcept { return pattern_.layers(); }
  [[nodiscard]] const layer_pattern& pattern() const noexcept { return pattern_; }

 private:
  template <std::size_t I, class F>
  decltype(auto) visit(int kind, F& f) const {
    if constexpr (I + 1 < sizeof...(Policies)) {
      if (kind != static_cast<int>(I)) return visit<I + 1>(kind, f);
    }
    return f(std::get<I>(policies_));
  }
  /// f on every part of the policy of a layer, or on what is no pack of parts.
  template <class F>
  void for_parts_of(std::int64_t layer, F&& f) const {
    visit_layer(layer, [&](const auto& policy) {
      if constexpr (requires { policy.parts; }) {
        std::apply([&](const auto&... part) { (f(part), ...); }, policy.parts);
      } else {
        f(policy);
      }
    });
  }

  layer_pattern pattern_;
  std::tuple<Policies...> policies_;
};

/// See the file comment. Any encoder with `embed(x, positions)`.
template <class Encoder>
class input_schedule {
 public:
  /// At every layer of kind 1 of the pattern, from one table.
  input_schedule(Encoder encoder, layer_pattern where) : where_(std::move(where)) {
    encoders_.push_back(std::move(encoder));
    for (std::int64_t l = 0; l < layers(); ++l)
      detail::require(where_.kind(l) <= 1, "input_schedule", "pattern", "must be of kinds 0 and 1", where_.kind(l));
  }
  /// A table for each layer.
  explicit input_schedule(std::vector<Encoder> each)
      : where_(std::vector<int>(each.size(), 1)), encoders_(std::move(each)) {}

  /// Below the first layer only, as most models do.
  static input_schedule stem(Encoder encoder, std::int64_t layers) {
    return {std::move(encoder), layer_pattern::one(0, layers)};
  }
  /// Before every layer, the same rows.
  static input_schedule shared(Encoder encoder, std::int64_t layers) {
    return {std::move(encoder), layer_pattern::every(1, layers)};
  }

  /// Adds the rows to the input of the layer; leaves it alone, bit for bit, where the schedule has none.
  template <class U>
  void embed(std::int64_t layer, view<U> x, const positions& at = {}) const {
    if (adds(layer)) encoders_[encoders_.size() == 1 ? 0 : static_cast<std::size_t>(layer)].embed(x, at);
  }

  [[nodiscard]] bool adds(std::int64_t layer) const { return where_.kind(layer) == 1; }
  [[nodiscard]] std::int64_t layers() const noexcept { return where_.layers(); }
  /// Tables that are kept: one where layers share it.
  [[nodiscard]] std::int64_t tables() const noexcept { return static_cast<std::int64_t>(encoders_.size()); }

 private:
  layer_pattern where_;
  std::vector<Encoder> encoders_;
};

}  // namespace posenc
