// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The worker of `attention`: one block of query rows of one key head, tile after tile of keys, with online softmax.
/// The rows of a GQA group lie in one block, so they share every tile. Nothing of size queries x keys exists: a score
/// tile of `tile_keys` columns is transformed, exponentiated and multiplied in place.

#include <posenc/attention/call.hpp>
#include <posenc/attention/score_pass.hpp>
#include <posenc/attention/scratch.hpp>
#include <posenc/kernels/tile.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace posenc::detail {

template <class Arch, class C, class Q, class K, class V, class O, class Keys, class Pack>
class fused_block {
 public:
  fused_block(const view<Q>& q, const view<K>& k, const view<V>& v, const view<O>& out, const view<C>& lse,
              const call& c, const Pack& pack, double scale, key_state state, std::byte* memory)
      : q_(q), k_(k), v_(v), out_(out), lse_(lse), c_(c), pack_(pack), scale_(scale), key_state_(state), layout_(c) {
    query_ = at<C>(memory, layout_.query);
    score_ = at<C>(memory, layout_.score);
    sum_ = at<C>(memory, layout_.sum);
    partial_ = at<C>(memory, layout_.partial);
    highest_ = at<C>(memory, layout_.highest);
    total_ = at<C>(memory, layout_.total);
    key_ = at<C>(memory, layout_.key);
    value_ = at<C>(memory, layout_.value);
    line_ = at<C>(memory, layout_.line);
    state_ = at<row_state>(memory, layout_.state);
  }

  /// Rows first .. first + n - 1 of (query, head of the group) of one key head.
  void run(std::int64_t b, std::int64_t kv_head, std::int64_t first, std::int64_t n, const Keys& keys, bool sorted) {
    keys_ = &keys;
    rows_ = n;
    interval all{c_.keys, 0};
    for (std::int64_t r = 0; r < n; ++r) {
      start_row(b, kv_head, first + r, r, sorted);
      const interval_list& list = state_[r].keys;
      if (list.size() == 0) continue;
      all.lo = std::min(all.lo, list[0].lo);
      all.hi = std::max(all.hi, list[list.size() - 1].hi);
    }
    for (std::int64_t tile = all.lo / tile_keys * tile_keys; tile < all.hi; tile += tile_keys)
      run_tile(b, kv_head, {std::max(tile, all.lo), std::min(tile + tile_keys, all.hi)});
    for (std::int64_t r = 0; r < n; ++r) finish_row(r);
  }

 private:
  static constexpr bool listed_ = !Keys::contiguous;
  static constexpr bool lane_masks_ = any_lane_mask<simd::batch<C, Arch>, Keys, Pack>;

  template <class T>
  static T* at(std::byte* memory, std::size_t offset) noexcept {
    return reinterpret_cast<T*>(memory + offset);
  }

  void start_row(std::int64_t b, std::int64_t kv_head, std::int64_t flat, std::int64_t r, bool sorted) {
    const std::int64_t group = c_.heads / c_.kv_heads;
    row_state& state = *::new (static_cast<void*>(state_ + r)) row_state;
    state.at = row_of(c_, b, kv_head * group + flat % group, flat / group);
    state.by_position = positions_allowed(pack_, state.at);
    state.keys = interval_list({0, c_.keys});
    if (!listed_ || sorted) {
      interval_list by_index({0, 0});
      for (int i = 0; i < state.by_position.size(); ++i)
        by_index.append(indices_of(*keys_, c_.keys, state.by_position[i]));
      state.keys = by_index;
    }
    allow_by_index(pack_, state.at, state.keys);
    check_each_ = listed_ && !sorted;

    C* query = query_ + r * c_.dim;
    kernels::widen_row<Arch>(query, q_.row(b, state.at.query_index, state.at.head), q_.steps().dim, c_.dim);
    const position where = c_.query_positions.at(b, state.at.query_index);
    transform_query(pack_, query, c_.dim, where, state.at.head);
    const double factor = scale_ * pack_query_scale(pack_, state.at.head, where, visible_keys(state));
    kernels::scale_row<Arch>(query, static_cast<C>(factor), c_.dim);

    highest_[r] = -std::numeric_limits<C>::infinity();
    total_[r] = 0;
    if constexpr (pack_has_sink<Pack>()) {
      for_parts(pack_, [&]<class P>(const P& part) {
        if constexpr (has_sink<P>) highest_[r] = static_cast<C>(part.sink(state.at.head));
      });
      total_[r] = highest_[r] == -std::numeric_limits<C>::infinity() ? C(0) : C(1);
    }
    std::fill_n(sum_ + r * layout_.value_step, layout_.value_step, C(0));
  }

  [[nodiscard]] std::int64_t visible_keys(const row_state& state) const {
    if constexpr (!pack_needs_visible_keys<Pack>) {
      return 0;
    } else {
      std::int64_t n = 0;
      for (int i = 0; i < state.keys.size(); ++i)
        for (std::int64_t j = state.keys[i].lo; j < state.keys[i].hi; ++j) n += lane_visible<C>(state, j);
      return n;
    }
  }
  template <class B>
  [[nodiscard]] bool lane_visible(const row_state& state, std::int64_t j) const {
    if (check_each_ && !state.by_position.contains(keys_->position(j))) return false;
    if constexpr (any_lane_mask<B, Keys, Pack>) return make_lane_mask<B>(pack_, state.at, *keys_)(j);
    return true;
  }

  void run_tile(std::int64_t b, std::int64_t kv_head, interval tile) {
    tile_ = tile;
    if (group_range(0, rows_).empty()) return;  // between the intervals of a union
    bool finite = true;
    if (layout_.packed) {
      finite = pack_tile(b, kv_head);
      for (std::int64_t r = 0; r < rows_; r += kernels::block_rows) {
        const std::int64_t n = std::min(kernels::block_rows, rows_ - r);
        const interval range = group_range(r, n);
        if (range.empty()) continue;
        constexpr std::int64_t p = kernels::panel_width<C, Arch>;
        for (std::int64_t j = range.lo / p * p; j < range.hi; j += p)
          kernels::multiply_rows<Arch, false>(n, query_ + r * c_.dim, c_.dim, key_ + j * c_.dim,
                                              score_ + r * tile_keys + j, tile_keys, c_.dim);
      }
    } else {
      score_directly(b, kv_head);
    }
    for (std::int64_t r = 0; r < rows_; ++r) score_row(r);
    if (layout_.packed && finite) {
      for (std::int64_t r = 0; r < rows_; r += kernels::block_rows) {
        const std::int64_t n = std::min(kernels::block_rows, rows_ - r);
        const interval range = group_range(r, n);
        if (range.empty()) continue;
        constexpr std::int64_t p = kernels::panel_width<C, Arch>;
        const std::int64_t keys = tile.hi - tile.lo;
        for (std::int64_t d = 0; d < layout_.value_step; d += p)
          kernels::multiply_rows<Arch, true>(n, score_ + r * tile_keys + range.lo, tile_keys,
                                             value_ + d * keys + range.lo * p, sum_ + r * layout_.value_step + d,
                                             layout_.value_step, range.hi - range.lo);
      }
    } else {
      add_values_directly(b, kv_head);
    }
  }

  /// The tile's keys and values as panels; whether every value is finite.
  bool pack_tile(std::int64_t b, std::int64_t kv_head) {
    const std::int64_t n = tile_.hi - tile_.lo;
    constexpr std::int64_t p = kernels::panel_width<C, Arch>;
    if (n % p != 0) std::fill_n(key_ + n / p * p * c_.dim, p * c_.dim, C(0));
    bool finite = true;
    for (std::int64_t j = 0; j < n; ++j) {
      kernels::pack_key<Arch>(key_, key_line(b, kv_head, tile_.lo + j), j, c_.dim);
      const C* value = line_;
      if constexpr (std::same_as<std::remove_cv_t<V>, C>) {
        if (v_.unit_dim_stride()) value = v_.row(b, tile_.lo + j, kv_head);
      }
      if (value == line_)
        kernels::widen_row<Arch>(line_, v_.row(b, tile_.lo + j, kv_head), v_.steps().dim, c_.value_dim);
      finite = kernels::pack_value<Arch>(value_, value, j, n, c_.value_dim) && finite;
    }
    return finite;
  }

  /// One key in the compute type: in place where it can be read so, else widened (and rotated).
  const C* key_line(std::int64_t b, std::int64_t kv_head, std::int64_t j) {
    const K* key = k_.row(b, j, kv_head);
    if constexpr (std::same_as<std::remove_cv_t<K>, C>) {
      if (k_.unit_dim_stride() && key_state_ == key_state::rotated) return key;
    }
    kernels::widen_row<Arch>(line_, key, k_.steps().dim, c_.dim);
    if (key_state_ == key_state::unrotated) transform_key(pack_, line_, c_.dim, c_.key_positions.at(b, j), kv_head);
    return line_;
  }

  void score_directly(std::int64_t b, std::int64_t kv_head) {
    for (std::int64_t j = tile_.lo; j < tile_.hi; ++j) {
      if constexpr (simd_storage<K> && std::same_as<compute_t<K>, C>) {
        if (k_.unit_dim_stride() && key_state_ == key_state::rotated) {
          const K* key = k_.row(b, j, kv_head);
          for (std::int64_t r = 0; r < rows_; ++r)
            score_[r * tile_keys + j - tile_.lo] = kernels::dot<Arch>(query_ + r * c_.dim, key, c_.dim);
          continue;
        }
      }
      const C* key = key_line(b, kv_head, j);
      for (std::int64_t r = 0; r < rows_; ++r)
        score_[r * tile_keys + j - tile_.lo] = kernels::dot<Arch>(query_ + r * c_.dim, key, c_.dim);
    }
  }

  /// Key by key, and only keys of non-zero weight: what hidden keys hold never reaches a sum. Where keys are not packed
  /// the tile has a sum of its own, as the register blocks of packed ones have.
  void add_values_directly(std::int64_t b, std::int64_t kv_head) {
    C* into = layout_.packed ? sum_ : partial_;
    if (!layout_.packed) std::fill_n(partial_, rows_ * layout_.value_step, C(0));
    for (std::int64_t j = tile_.lo; j < tile_.hi; ++j) {
      const V* value = v_.row(b, j, kv_head);
      bool widened = false;
      for (std::int64_t r = 0; r < rows_; ++r) {
        if (!state_[r].keys.contains(j)) continue;
        const C weight = score_[r * tile_keys + j - tile_.lo];
        if (weight == 0) continue;
        C* sum = into + r * layout_.value_step;
        if constexpr (simd_storage<V> && std::same_as<compute_t<V>, C>) {
          if (v_.unit_dim_stride()) {
            kernels::add_scaled<Arch>(sum, weight, value, c_.value_dim);
            continue;
          }
        }
        if (!widened) kernels::widen_row<Arch>(line_, value, v_.steps().dim, c_.value_dim);
        widened = true;
        kernels::add_scaled<Arch>(sum, weight, static_cast<const C*>(line_), c_.value_dim);
      }
    }
    if (!layout_.packed)
      kernels::add_scaled<Arch>(sum_, C(1), static_cast<const C*>(partial_), rows_ * layout_.value_step);
  }

  /// The part of a row's i-th interval that lies in the tile, relative to it.
  [[nodiscard]] interval part(std::int64_t r, int i) const noexcept {
    const interval& v = state_[r].keys[i];
    return {std::max(v.lo, tile_.lo) - tile_.lo, std::min(v.hi, tile_.hi) - tile_.lo};
  }
  /// The columns of the tile that some row of a register block sees.
  [[nodiscard]] interval group_range(std::int64_t first, std::int64_t n) const noexcept {
    interval range{tile_keys, 0};
    for (std::int64_t r = first; r < first + n; ++r)
      for (int i = 0; i < state_[r].keys.size(); ++i) {
        const interval v = part(r, i);
        if (v.empty()) continue;
        range.lo = std::min(range.lo, v.lo);
        range.hi = std::max(range.hi, v.hi);
      }
    return range;
  }

  /// Logits to weights for one row of the tile; columns the row does not see become 0.
  void score_row(std::int64_t r) {
    C* s = score_ + r * tile_keys;
    const row_state& state = state_[r];
    const auto op = make_logit_op<simd::batch<C, Arch>>(pack_, state.at, *keys_);
    C highest = -std::numeric_limits<C>::infinity();
    bool any = false;
    for (int i = 0; i < state.keys.size(); ++i) {
      const interval v = part(r, i);
      if (v.empty()) continue;
      any = true;
      const C found = pass(s + v.lo, v.hi - v.lo, tile_.lo + v.lo, op, state);
      highest = found != found ? found : std::max(highest, found);
    }
    if (any && highest == -std::numeric_limits<C>::infinity()) highest = hidden_nan(r);
    if (highest == -std::numeric_limits<C>::infinity()) {
      std::fill_n(s, tile_.hi - tile_.lo, C(0));
      return;
    }
    if (!(highest <= highest_[r])) {
      const C factor = std::exp(highest_[r] - highest);
      highest_[r] = highest;
      total_[r] *= factor;
      kernels::scale_row<Arch>(sum_ + r * layout_.value_step, factor, layout_.value_step);
    }
    std::int64_t done = 0;
    for (int i = 0; i < state.keys.size(); ++i) {
      const interval v = part(r, i);
      if (v.empty()) continue;
      std::fill(s + done, s + v.lo, C(0));
      total_[r] += exponentiate<Arch>(s + v.lo, v.hi - v.lo, highest_[r]);
      done = v.hi;
    }
    std::fill(s + done, s + (tile_.hi - tile_.lo), C(0));
  }

  /// The first pass with whatever free-form mask there is.
  template <class Op>
  C pass(C* s, std::int64_t n, std::int64_t first_key, const Op& op, const row_state& state) {
    using B = simd::batch<C, Arch>;
    if constexpr (listed_ || lane_masks_) {
      if (lane_masks_ || check_each_) {
        const auto mask = [&](std::int64_t k) {
          bool seen[lanes<B>::size];
          for (int i = 0; i < lanes<B>::size; ++i)
            seen[i] = !check_each_ || state.by_position.contains(keys_->position(k + i));
          const auto placed = lanes<B>::mask_from(seen);
          if constexpr (lane_masks_) {
            return placed && make_lane_mask<B>(pack_, state.at, *keys_)(k);
          } else {
            return placed;
          }
        };
        return transform_scores<Arch>(s, n, first_key, op, mask);
      }
    }
    return transform_scores<Arch>(s, n, first_key, op, no_lane_mask{});
  }

  /// A row whose maximum is -inf may hold a NaN that the lane maximum passed over.
  [[nodiscard]] C hidden_nan(std::int64_t r) const noexcept {
    for (int i = 0; i < state_[r].keys.size(); ++i) {
      const interval v = part(r, i);
      for (std::int64_t j = v.lo; j < v.hi; ++j) {
        const C s = score_[r * tile_keys + j];
        if (s != s) return s;
      }
    }
    return -std::numeric_limits<C>::infinity();
  }

  void finish_row(std::int64_t r) {
    const row& at = state_[r].at;
    const bool empty = highest_[r] == -std::numeric_limits<C>::infinity();
    const C* sum = sum_ + r * layout_.value_step;
    const C total = total_[r];
    O* out = out_.row(at.batch, at.query_index, at.head);
    for (std::int64_t d = 0; d < c_.value_dim; ++d)
      out[d * out_.steps().dim] = narrow<O>(empty ? C(0) : sum[d] / total);
    if (lse_.data()) lse_(at.batch, at.query_index, at.head, 0) = empty ? highest_[r] : highest_[r] + std::log(total);
  }

  const view<Q>& q_;
  const view<K>& k_;
  const view<V>& v_;
  const view<O>& out_;
  const view<C>& lse_;
  const call& c_;
  const Pack& pack_;
  double scale_;
  key_state key_state_;
  scratch_layout<C, Arch> layout_;
  C* query_;
  C* score_;
  C* sum_;
  C* partial_;
  C* highest_;
  C* total_;
  C* key_;
  C* value_;
  C* line_;
  row_state* state_;
  const Keys* keys_ = nullptr;
  std::int64_t rows_ = 0;
  interval tile_{};
  bool check_each_ = false;
};

}  // namespace posenc::detail
