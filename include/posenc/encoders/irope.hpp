// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Which layers of a model rotate: Llama 4's iRoPE (three layers of RoPE with chunked attention, one of NoPE with full
/// attention and a query temperature), SmolLM3, Cohere 2.
/// A schedule is a function from the layer index; `attention/irope.hpp` turns it into policies.

#include <posenc/core/error.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace posenc {

/// Layers that use RoPE. By interval: layer l uses it unless (l + 1) is a multiple of the interval. By list: one entry
/// per layer, 1 where RoPE IS used; Hugging Face calls this list `no_rope_layers`.
class rope_schedule {
 public:
  /// @throws std::invalid_argument for a negative layer count or an interval below 1.
  static rope_schedule every(std::int64_t interval, std::int64_t layers) {
    detail::require(interval >= 1, "rope_schedule", "interval", "must be at least 1", interval);
    detail::require(layers >= 0, "rope_schedule", "layers", "must not be negative", layers);
    rope_schedule s;
    for (std::int64_t l = 0; l < layers; ++l) s.uses_.push_back((l + 1) % interval != 0);
    return s;
  }
  /// An empty list means the default, `every(interval, layers)`. @throws std::invalid_argument for a list of another
  /// length.
  static rope_schedule listed(std::span<const int> uses_rope, std::int64_t layers, std::int64_t interval = 4) {
    if (uses_rope.empty()) return every(interval, layers);
    detail::require(static_cast<std::int64_t>(uses_rope.size()) == layers, "rope_schedule", "uses_rope",
                    "must list every layer", uses_rope.size());
    rope_schedule s;
    for (const int use : uses_rope) s.uses_.push_back(use != 0);
    return s;
  }

  [[nodiscard]] std::int64_t layers() const noexcept { return static_cast<std::int64_t>(uses_.size()); }
  /// @throws std::out_of_range for a layer the model does not have.
  [[nodiscard]] bool uses_rope(std::int64_t layer) const {
    if (layer < 0 || layer >= layers())
      detail::outside("rope_schedule::uses_rope", "layer", "must lie in 0.." + std::to_string(layers() - 1), layer);
    return uses_[static_cast<std::size_t>(layer)];
  }

 private:
  std::vector<bool> uses_;
};

}  // namespace posenc
