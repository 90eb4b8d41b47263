// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The worker of `attention`: one block of query rows of one key head, tile after tile of keys, with online softmax.
/// The rows of a GQA group lie in one block, so they share every tile. Nothing of size queries x keys exists: a tile of
/// `tile_keys` scores (`Whole`: a row of all, see two_pass.hpp) is transformed, exponentiated and multiplied in place.

#include <posenc/attention/call.hpp>
#include <posenc/attention/content.hpp>
#include <posenc/attention/score_pass.hpp>
#include <posenc/attention/scratch.hpp>
#include <posenc/attention/tile_reader.hpp>
#include <posenc/kernels/tile.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace posenc::detail {

template <class Arch, class C, class Q, class K, class V, class O, class Keys, class Pack, bool Whole>
class fused_block {
 public:
  fused_block(const view<Q>& q, const view<K>& k, const view<V>& v, const view<O>& out, const view<C>& lse,
              const call& c, const Pack& pack, double scale, key_state state, std::byte* memory)
      : q_(q),
        k_(k),
        v_(v),
        out_(out),
        lse_(lse),
        c_(c),
        pack_(pack),
        scale_(scale),
        key_state_(state),
        layout_(c, Whole),
        my_(layout_, memory),
        content_(pack, memory + layout_.bytes, layout_.rows, layout_.tile, c.dim, c.value_dim),
        read_{k, v, c, pack, state, my_.key, my_.value, my_.line} {}

  /// Rows first .. first + n - 1 of (query, head of the group) of one key head.
  void run(std::int64_t b, std::int64_t kv_head, std::int64_t first, std::int64_t n, const Keys& keys, bool sorted) {
    keys_ = &keys;
    rows_ = n;
    interval all{c_.keys, 0};
    for (std::int64_t r = 0; r < n; ++r) {
      start_row(b, kv_head, first + r, r, sorted);
      const interval_list& list = my_.state[r].keys;
      if (list.size() == 0) continue;
      all.lo = std::min(all.lo, list[0].lo);
      all.hi = std::max(all.hi, list[list.size() - 1].hi);
    }
    for (std::int64_t tile = all.lo / width() * width(); tile < all.hi; tile += width())
      run_tile(b, kv_head, {std::max(tile, all.lo), std::min(tile + width(), all.hi)});
    for (std::int64_t r = 0; r < n; ++r) finish_row(r);
  }

 private:
  static constexpr bool listed_ = !Keys::contiguous;
  static constexpr bool lane_masks_ = any_lane_mask<simd::batch<C, Arch>, Keys, Pack>;

  using work = content_work<simd::batch<C, Arch>, Keys, Pack>;

  /// Columns of a tile of scores.
  [[nodiscard]] std::int64_t width() const noexcept { return Whole ? layout_.tile : tile_keys; }

  void start_row(std::int64_t b, std::int64_t kv_head, std::int64_t flat, std::int64_t r, bool sorted) {
    const std::int64_t group = c_.heads / c_.kv_heads;
    row_state& state = *::new (static_cast<void*>(my_.state + r)) row_state;
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

    C* query = my_.query + r * c_.dim;
    kernels::widen_row<Arch>(query, q_.row(b, state.at.query_index, state.at.head), q_.steps().dim, c_.dim);
    const position where = c_.query_positions.at(b, state.at.query_index);
    transform_query(pack_, query, c_.dim, where, state.at.head);
    if constexpr (Whole) std::copy_n(query, c_.dim, my_.raw + r * c_.dim);
    content_.keep_query(r, query);
    const double factor = scale_ * pack_query_scale(pack_, state.at.head, where, visible_keys(state));
    kernels::scale_row<Arch>(query, static_cast<C>(factor), c_.dim);
    if constexpr (Whole) my_.factor[r] = static_cast<C>(factor);
    content_.start_row(r, state.at, static_cast<C>(factor));

    my_.highest[r] = -std::numeric_limits<C>::infinity();
    my_.total[r] = 0;
    if constexpr (pack_has_sink<Pack>()) {
      for_parts(pack_, [&]<class P>(const P& part) {
        if constexpr (has_sink<P>) my_.highest[r] = static_cast<C>(part.sink(state.at.head));
      });
      my_.total[r] = my_.highest[r] == -std::numeric_limits<C>::infinity() ? C(0) : C(1);
    }
    std::fill_n(my_.sum + r * layout_.value_step, layout_.value_step, C(0));
  }

  [[nodiscard]] std::int64_t visible_keys(const row_state& state) const {
    if constexpr (!pack_needs_visible_keys<Pack>) return 0;
    if (!lane_masks_ && !check_each_) return state.keys.total();
    std::int64_t n = 0;
    for (int i = 0; i < state.keys.size(); ++i)
      for (std::int64_t j = state.keys[i].lo; j < state.keys[i].hi; ++j) n += lane_visible<C>(state, j);
    return n;
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
      finite = read_.pack_tile(b, kv_head, tile_);
      for (std::int64_t r = 0; r < rows_; r += kernels::block_rows) {
        const std::int64_t n = std::min(kernels::block_rows, rows_ - r);
        const interval range = group_range(r, n);
        if (range.empty()) continue;
        constexpr std::int64_t p = kernels::panel_width<C, Arch>;
        for (std::int64_t j = range.lo / p * p; j < range.hi; j += p)
          kernels::multiply_rows<Arch, false>(n, my_.query + r * c_.dim, c_.dim, read_.keys + j * c_.dim,
                                              my_.score + r * width() + j, width(), c_.dim);
      }
    } else {
      score_directly(b, kv_head);
    }
    if constexpr (work::terms) {
      const tile_source source{read_, b, kv_head};
      content_.prepare(rows_, my_.query, tile.lo, tile.hi - tile.lo, *keys_, &source, &decltype(source)::copy,
                       [&](std::int64_t r) { return group_range(r, 1); });
    }
    for (std::int64_t r = 0; r < rows_; ++r) score_row(r);
    if (layout_.packed && finite) {
      for (std::int64_t r = 0; r < rows_; r += kernels::block_rows) {
        const std::int64_t n = std::min(kernels::block_rows, rows_ - r);
        const interval range = group_range(r, n);
        if (range.empty()) continue;
        constexpr std::int64_t p = kernels::panel_width<C, Arch>;
        const std::int64_t keys = tile.hi - tile.lo;
        // Sums of at most tile_keys products, whatever the tile.
        for (std::int64_t d = 0; d < layout_.value_step; d += p)
          for (std::int64_t j = range.lo; j < range.hi; j += tile_keys)
            kernels::multiply_rows<Arch, true>(n, my_.score + r * width() + j, width(), read_.values + d * keys + j * p,
                                               my_.sum + r * layout_.value_step + d, layout_.value_step,
                                               std::min(tile_keys, range.hi - j));
      }
    } else {
      for (std::int64_t j = tile.lo; j < tile.hi; j += tile_keys)
        add_values_directly(b, kv_head, {j, std::min(j + tile_keys, tile.hi)});
    }
  }

  void score_directly(std::int64_t b, std::int64_t kv_head) {
    for (std::int64_t j = tile_.lo; j < tile_.hi; ++j) {
      if constexpr (simd_storage<K> && std::same_as<compute_t<K>, C>) {
        if (k_.unit_dim_stride() && key_state_ == key_state::rotated) {
          const K* key = k_.row(b, j, kv_head);
          for (std::int64_t r = 0; r < rows_; ++r)
            my_.score[r * width() + j - tile_.lo] = kernels::dot<Arch>(my_.query + r * c_.dim, key, c_.dim);
          continue;
        }
      }
      const C* key = read_.key(b, kv_head, j);
      for (std::int64_t r = 0; r < rows_; ++r)
        my_.score[r * width() + j - tile_.lo] = kernels::dot<Arch>(my_.query + r * c_.dim, key, c_.dim);
    }
  }

  /// Key by key, and only keys of non-zero weight: what hidden keys hold never reaches a sum. Where keys are not packed
  /// the stretch has a sum of its own, as the register blocks of packed ones have.
  void add_values_directly(std::int64_t b, std::int64_t kv_head, const interval& stretch) {
    C* into = layout_.packed ? my_.sum : my_.partial;
    if (!layout_.packed) std::fill_n(my_.partial, rows_ * layout_.value_step, C(0));
    for (std::int64_t j = stretch.lo; j < stretch.hi; ++j) {
      const V* value = v_.row(b, j, kv_head);
      bool widened = false;
      for (std::int64_t r = 0; r < rows_; ++r) {
        if (!my_.state[r].keys.contains(j)) continue;
        const C weight = my_.score[r * width() + j - tile_.lo];
        if (weight == 0) continue;
        C* sum = into + r * layout_.value_step;
        if constexpr (simd_storage<V> && std::same_as<compute_t<V>, C>) {
          if (v_.unit_dim_stride()) {
            kernels::add_scaled<Arch>(sum, weight, value, c_.value_dim);
            continue;
          }
        }
        if (!widened) kernels::widen_row<Arch>(read_.line, value, v_.steps().dim, c_.value_dim);
        widened = true;
        kernels::add_scaled<Arch>(sum, weight, static_cast<const C*>(read_.line), c_.value_dim);
      }
    }
    if (!layout_.packed)
      kernels::add_scaled<Arch>(my_.sum, C(1), static_cast<const C*>(my_.partial), rows_ * layout_.value_step);
  }

  /// The part of a row's i-th interval that lies in the tile, relative to it.
  [[nodiscard]] interval part(std::int64_t r, int i) const noexcept {
    const interval& v = my_.state[r].keys[i];
    return {std::max(v.lo, tile_.lo) - tile_.lo, std::min(v.hi, tile_.hi) - tile_.lo};
  }
  /// The columns of the tile that some row of a register block sees.
  [[nodiscard]] interval group_range(std::int64_t first, std::int64_t n) const noexcept {
    interval range{width(), 0};
    for (std::int64_t r = first; r < first + n; ++r)
      for (int i = 0; i < my_.state[r].keys.size(); ++i) {
        const interval v = part(r, i);
        if (v.empty()) continue;
        range.lo = std::min(range.lo, v.lo);
        range.hi = std::max(range.hi, v.hi);
      }
    return range;
  }

  /// Logits to weights for one row of the tile; columns the row does not see become 0.
  void score_row(std::int64_t r) {
    C* s = my_.score + r * width();
    const row_state& state = my_.state[r];
    C highest{};
    bool any = false;
    for_logit_stages<simd::batch<C, Arch>>(
        pack_, state.at, *keys_, content_.lines_of(r),
        [&](const auto& op) POSENC_LAMBDA_INLINE {
          highest = -std::numeric_limits<C>::infinity();
          for (int i = 0; i < state.keys.size(); ++i) {
            const interval v = part(r, i);
            if (v.empty()) continue;
            any = true;
            const C found = pass(s + v.lo, v.hi - v.lo, tile_.lo + v.lo, op, state);
            highest = found != found ? found : std::max(highest, found);
          }
        },
        [&](const auto& whole, auto i) { transform_whole(r, whole, content_.scratch(i)); });
    if (any && highest == -std::numeric_limits<C>::infinity()) highest = hidden_nan(r);
    if (highest == -std::numeric_limits<C>::infinity()) {
      std::fill_n(s, tile_.hi - tile_.lo, C(0));
      return;
    }
    if (!(highest <= my_.highest[r])) {
      const C factor = std::exp(my_.highest[r] - highest);
      my_.highest[r] = highest;
      my_.total[r] *= factor;
      kernels::scale_row<Arch>(my_.sum + r * layout_.value_step, factor, layout_.value_step);
      content_.rescale(r, factor);
    }
    std::int64_t done = 0;
    for (int i = 0; i < state.keys.size(); ++i) {
      const interval v = part(r, i);
      if (v.empty()) continue;
      std::fill(s + done, s + v.lo, C(0));
      for (std::int64_t j = v.lo; j < v.hi; j += tile_keys)
        my_.total[r] += exponentiate<Arch>(s + j, std::min(tile_keys, v.hi - j), my_.highest[r]);
      content_.add_weights(r, state.at, *keys_, tile_.lo + v.lo, s + v.lo, v.hi - v.lo);
      done = v.hi;
    }
    std::fill(s + done, s + (tile_.hi - tile_.lo), C(0));
  }

  /// One part's turn with the whole row, the keys between the row's intervals hidden.
  template <class P>
  void transform_whole(std::int64_t r, const P& whole, C* scratch) {
    C* s = my_.score + r * width();
    const interval hull = group_range(r, 1);
    if (hull.empty()) return;
    for (int i = 1; i < my_.state[r].keys.size(); ++i)
      std::fill(s + part(r, i - 1).hi, s + part(r, i).lo, -std::numeric_limits<C>::infinity());
    const interval seen{tile_.lo + hull.lo, tile_.lo + hull.hi};
    const row& at = my_.state[r].at;
    const logit_row<C> line{at, c_.dim, my_.raw + r * c_.dim, my_.factor[r], seen, s - tile_.lo};
    whole.template transform_logits<simd::batch<C, Arch>>(line, *keys_, scratch);
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
    for (int i = 0; i < my_.state[r].keys.size(); ++i) {
      const interval v = part(r, i);
      for (std::int64_t j = v.lo; j < v.hi; ++j) {
        const C s = my_.score[r * width() + j];
        if (s != s) return s;
      }
    }
    return -std::numeric_limits<C>::infinity();
  }

  void finish_row(std::int64_t r) {
    const row& at = my_.state[r].at;
    const bool empty = my_.highest[r] == -std::numeric_limits<C>::infinity();
    C* sum = my_.sum + r * layout_.value_step;
    if (!empty) content_.add_values(r, at, sum);
    const C total = my_.total[r];
    O* out = out_.row(at.batch, at.query_index, at.head);
    for (std::int64_t d = 0; d < c_.value_dim; ++d)
      out[d * out_.steps().dim] = narrow<O>(empty ? C(0) : sum[d] / total);
    if (lse_.data())
      lse_(at.batch, at.query_index, at.head, 0) = empty ? my_.highest[r] : my_.highest[r] + std::log(total);
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
  block_arrays<C, Arch> my_;
  work content_;
  tile_reader<Arch, C, K, V, Pack> read_;
  const Keys* keys_ = nullptr;
  std::int64_t rows_ = 0;
  interval tile_{};
  bool check_each_ = false;
};

}  // namespace posenc::detail
