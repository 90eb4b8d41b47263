// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A caller's own mask [batch or 1, heads or 1, queries, keys] by strides, for what no interval can say: trees of
/// speculative decoding, dilated or random patterns.
///   boolean_mask<M>    true (non-zero): the key is seen
///   additive_mask<M>   added to the logit at its place in the pack; an entry of -inf hides the key as a mask does, so
///                      a softcap after it brings nothing back
/// Extents of 1 on batch and heads are shared. M: bool, std::uint8_t, ... / float, double, half, bfloat16.
/// Throws std::invalid_argument when the extents do not fit the call.

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/scalar.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace posenc {

struct mask_shape {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
};
struct mask_strides {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t query = 0;
  std::int64_t key = 1;
};

namespace detail {

/// The caller's tensor; reads past the last key repeat it, so that lanes beyond the end stay in bounds.
template <class M>
struct mask_view {
  const M* data;
  mask_shape extent;
  mask_strides step;

  mask_view(const M* p, const mask_shape& s)
      : mask_view(p, s,
                  {.batch = s.heads * s.queries * s.keys, .head = s.queries * s.keys, .query = s.keys, .key = 1}) {}
  mask_view(const M* p, const mask_shape& s, const mask_strides& by) : data(p), extent(s), step(by) {
    if (s.batch == 1) step.batch = 0;
    if (s.heads == 1) step.head = 0;
    require(s.batch >= 0 && s.heads >= 0 && s.queries >= 0 && s.keys >= 0, "mask", "extents", "must not be negative",
            std::min({s.batch, s.heads, s.queries, s.keys}));
    require(p != nullptr || s.batch * s.heads * s.queries * s.keys == 0, "mask", "data",
            "must not be null for a shape with elements", "a null pointer");
  }
  void check(const call& c) const {
    require(extent.batch == 1 || extent.batch == c.batch, "mask", "batch", "must be 1 or that of the call",
            extent.batch);
    require(extent.heads == 1 || extent.heads == c.heads, "mask", "heads", "must be 1 or those of the call",
            extent.heads);
    require(extent.queries == c.queries, "mask", "queries", "must equal those of the call", extent.queries);
    require(extent.keys == c.keys, "mask", "keys", "must equal those of the call", extent.keys);
  }
  [[nodiscard]] const M* line(const row& r) const noexcept {
    return data + r.batch * step.batch + r.head * step.head + r.query_index * step.query;
  }
  [[nodiscard]] const M& at(const M* line, std::int64_t k) const noexcept {
    return line[std::min(k, extent.keys - 1) * step.key];
  }
};

}  // namespace detail

template <class M>
class boolean_mask {
 public:
  boolean_mask(const M* data, const mask_shape& s) : mask_(data, s) {}
  boolean_mask(const M* data, const mask_shape& s, const mask_strides& by) : mask_(data, s, by) {}

  template <class B, class Keys>
  [[nodiscard]] auto allow_lanes(const row& r, const Keys&) const {
    return [m = mask_, line = mask_.line(r)](std::int64_t k) {
      bool seen[lanes<B>::size];
      for (int i = 0; i < lanes<B>::size; ++i) seen[i] = m.at(line, k + i) != M(0);
      return lanes<B>::mask_from(seen);
    };
  }
  void check(const call& c) const { mask_.check(c); }

 private:
  detail::mask_view<M> mask_;
};

template <class M>
class additive_mask {
 public:
  additive_mask(const M* data, const mask_shape& s) : mask_(data, s) {}
  additive_mask(const M* data, const mask_shape& s, const mask_strides& by) : mask_(data, s, by) {}

  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys&) const {
    return [m = mask_, line = mask_.line(r)](const B& s, std::int64_t k) {
      compute_t<M> value[lanes<B>::size];
      for (int i = 0; i < lanes<B>::size; ++i) value[i] = hidden(m.at(line, k + i)) ? 0 : widen(m.at(line, k + i));
      return B(s + lanes<B>::load(value));
    };
  }
  template <class B, class Keys>
  [[nodiscard]] auto allow_lanes(const posenc::row& r, const Keys&) const {
    return [m = mask_, line = mask_.line(r)](std::int64_t k) {
      bool seen[lanes<B>::size];
      for (int i = 0; i < lanes<B>::size; ++i) seen[i] = !hidden(m.at(line, k + i));
      return lanes<B>::mask_from(seen);
    };
  }
  void check(const call& c) const { mask_.check(c); }

 private:
  [[nodiscard]] static bool hidden(const M& entry) noexcept {
    return widen(entry) == -std::numeric_limits<compute_t<M>>::infinity();
  }
  detail::mask_view<M> mask_;
};

}  // namespace posenc
