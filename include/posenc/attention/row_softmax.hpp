// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The rows of one block of `attention` and their online softmax: a row starts with its query, its visible keys and its
/// sink, takes the scores of tile after tile (transforms, mask and maximum in one pass, exponential and sum in
/// another), and ends with the division. The running sums are multiplied only where the maximum of a row grows.

#include <posenc/attention/call.hpp>
#include <posenc/attention/content.hpp>
#include <posenc/attention/listed_rows.hpp>
#include <posenc/attention/score_pass.hpp>
#include <posenc/attention/scratch.hpp>
#include <posenc/kernels/tile.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace posenc::detail {

/// What a worker is given of a call of attention; K and V are views or paged views.
template <class Q, class K, class V, class O, class C, class Pack>
struct attention_inputs {
  using key_rows = K;
  using value_rows = V;
  using pack_type = Pack;
  const view<Q>& q;
  const K& k;
  const V& v;
  const view<O>& out;
  const attention_options<C>& options;
  const call& c;
  const Pack& pack;
  double scale;
};

/// The result of one row: its sum over its total, its log-sum-exp.
template <class Arch, class Inputs, class C>
void write_row(const Inputs& in, const row& at, C highest, C total, const C* sum) {
  const bool empty = highest == -std::numeric_limits<C>::infinity();
  auto* out = in.out.row(at.batch, at.query_index, at.head);
  using O = std::remove_pointer_t<decltype(out)>;
  const std::int64_t step = in.out.steps().dim;
  bool written = false;
  if constexpr (std::same_as<compute_t<O>, C>) {
    if (!empty && in.out.unit_dim_stride()) {
      const simd::batch<C, Arch> divisor(total);
      simd::for_lanes<Arch, C>(in.c.value_dim, [&](std::int64_t d, auto some) POSENC_LAMBDA_INLINE {
        some.store(out + d, some.load(sum + d) / divisor);
      });
      written = true;
    }
  }
  if (!written)
    for (std::int64_t d = 0; d < in.c.value_dim; ++d) out[d * step] = narrow<O>(empty ? C(0) : sum[d] / total);
  if (in.options.lse.data())
    in.options.lse(at.batch, at.query_index, at.head, 0) = empty ? highest : highest + std::log(total);
}

template <class Arch, class C, class Inputs, class Keys, bool Whole>
class row_softmax {
  using Pack = typename Inputs::pack_type;

 public:
  using work = content_work<simd::batch<C, Arch>, Keys, Pack>;

  row_softmax(const Inputs& in, std::byte* memory)
      : in_(in),
        layout(in.c, Whole),
        my(layout, memory),
        content(in.pack, memory + layout.bytes, layout.rows, layout.band, layout.tile, in.c.dim, in.c.value_dim) {}

  /// Row r of the block is row `flat` of (query, head of the group) of one key head. A sink is counted if `with_sink`.
  void start_row(std::int64_t b, std::int64_t kv_head, std::int64_t flat, std::int64_t r, const Keys& keys, bool sorted,
                 bool with_sink) {
    const call& c = in_.c;
    const std::int64_t group = c.heads / c.kv_heads;
    keys_ = &keys;
    row_state& state = *::new (static_cast<void*>(my.state + r)) row_state;
    state.at = row_of(c, b, kv_head * group + flat % group, flat / group);
    state.by_position = positions_allowed(in_.pack, state.at);
    state.keys = interval_list({0, c.keys});
    if (!listed_ || sorted) {
      interval_list by_index({0, 0});
      for (int i = 0; i < state.by_position.size(); ++i)
        by_index.append(indices_of(keys, c.keys, state.by_position[i]));
      state.keys = by_index;
    }
    allow_by_index(in_.pack, state.at, state.keys);
    check_each_ = listed_ && !sorted;

    C* query = my.query + r * c.dim;
    kernels::widen_row<Arch>(query, in_.q.row(b, state.at.query_index, state.at.head), in_.q.steps().dim, c.dim);
    const position where = c.query_positions.at(b, state.at.query_index);
    transform_query(in_.pack, query, c.dim, where, state.at.head);
    if constexpr (Whole) std::copy_n(query, c.dim, my.raw + r * c.dim);
    content.keep_query(r, query);
    const double factor = in_.scale * pack_query_scale(in_.pack, state.at.head, where, visible_keys(state));
    kernels::scale_row<Arch>(query, static_cast<C>(factor), c.dim);
    if constexpr (Whole) my.factor[r] = static_cast<C>(factor);
    content.start_row(r, state.at, static_cast<C>(factor));

    my.highest[r] = -std::numeric_limits<C>::infinity();
    my.total[r] = 0;
    if constexpr (pack_has_sink<Pack>()) {
      if (with_sink) {
        for_parts(in_.pack, [&]<class P>(const P& part) {
          if constexpr (has_sink<P>) my.highest[r] = static_cast<C>(part.sink(state.at.head));
        });
        my.total[r] = my.highest[r] == -std::numeric_limits<C>::infinity() ? C(0) : C(1);
      }
    }
    std::fill_n(my.sum + r * layout.value_step, layout.value_step, C(0));
  }

  /// The part of a row's i-th interval that lies in the tile, relative to it.
  [[nodiscard]] interval part(std::int64_t r, int i) const noexcept {
    const interval& v = my.state[r].keys[i];
    return {std::max(v.lo, tile.lo) - tile.lo, std::min(v.hi, tile.hi) - tile.lo};
  }
  /// The columns of the tile that some of n rows see.
  [[nodiscard]] interval range(std::int64_t first, std::int64_t n) const noexcept {
    interval all{layout.tile, 0};
    for (std::int64_t r = first; r < first + n; ++r)
      for (int i = 0; i < my.state[r].keys.size(); ++i) {
        const interval v = part(r, i);
        if (v.empty()) continue;
        all.lo = std::min(all.lo, v.lo);
        all.hi = std::max(all.hi, v.hi);
      }
    return all;
  }

  /// Logits of the tile at s to weights for row r; `columns` that the row does not see become 0.
  void score_row(std::int64_t r, C* s, const interval& columns) {
    const row_state& state = my.state[r];
    stretch seen[interval_list::capacity];
    int count = 0;
    for (int i = 0; i < state.keys.size(); ++i) {
      const interval v = part(r, i);
      if (v.empty()) continue;
      seen[count++] = {v, layout.tile - v.lo};
      if (count > 1) seen[count - 2].room = v.lo - seen[count - 2].at.lo;  // no further than the next one
    }
    C highest = -std::numeric_limits<C>::infinity();
    for_logit_stages<simd::batch<C, Arch>>(
        in_.pack, state.at, *keys_, content.lines_of(r),
        [&](const auto& op) POSENC_LAMBDA_INLINE {
          highest = -std::numeric_limits<C>::infinity();
          for (int i = 0; i < count; ++i) {
            const auto& [v, room] = seen[i];
            const C found = pass(s + v.lo, v.hi - v.lo, tile.lo + v.lo, op, state, room);
            highest = found != found ? found : std::max(highest, found);
          }
        },
        [&](const auto& whole, auto i) { transform_whole(r, s, whole, content.scratch(i)); });
    if (highest == -std::numeric_limits<C>::infinity()) highest = hidden_nan(r, s);
    if (highest == -std::numeric_limits<C>::infinity()) {
      if (columns.lo < columns.hi) std::fill(s + columns.lo, s + columns.hi, C(0));
      return;
    }
    if (!(highest <= my.highest[r])) grow(r, highest);
    std::int64_t done = columns.lo;
    for (int i = 0; i < count; ++i) {
      const auto& [v, room] = seen[i];
      if (done < v.lo) std::fill(s + done, s + v.lo, C(0));
      for (std::int64_t j = v.lo; j < v.hi; j += tile_keys)
        my.total[r] += exponentiate<Arch>(s + j, std::min(tile_keys, v.hi - j), my.highest[r], room - (j - v.lo));
      content.add_weights(r, state.at, *keys_, tile.lo + v.lo, s + v.lo, v.hi - v.lo);
      done = v.hi;
    }
    if (done < columns.hi) std::fill(s + done, s + columns.hi, C(0));
  }

  void finish_row(std::int64_t r) {
    const row& at = my.state[r].at;
    C* sum = my.sum + r * layout.value_step;
    if (my.highest[r] != -std::numeric_limits<C>::infinity()) content.add_values(r, at, sum);
    write_row<Arch>(in_, at, my.highest[r], my.total[r], sum);
  }

  const Inputs& in_;

 private:
  static constexpr bool listed_ = !Keys::contiguous;
  static constexpr bool lane_masks_ = any_lane_mask<simd::batch<C, Arch>, Keys, Pack>;

  [[nodiscard]] std::int64_t visible_keys(const row_state& state) const {
    if constexpr (!pack_needs_visible_keys<Pack>) return 0;
    const auto& given = in_.options.visible_keys;
    if (given.data()) return given(state.at.batch, state.at.query_index, state.at.head, 0);
    if (!lane_masks_ && !check_each_) return state.keys.total();
    std::int64_t n = 0;
    for (int i = 0; i < state.keys.size(); ++i)
      for (std::int64_t j = state.keys[i].lo; j < state.keys[i].hi; ++j) n += lane_visible<C>(state, j);
    return n;
  }
  template <class B>
  [[nodiscard]] bool lane_visible(const row_state& state, std::int64_t j) const {
    if (check_each_ && !state.by_position.contains(keys_->position(j))) return false;
    if constexpr (any_lane_mask<B, Keys, Pack>) return make_lane_mask<B>(in_.pack, state.at, *keys_)(j);
    return true;
  }

  /// One part's turn with the whole row, the keys between the row's intervals hidden.
  template <class P>
  void transform_whole(std::int64_t r, C* s, const P& whole, C* scratch) {
    const interval hull = range(r, 1);
    if (hull.empty()) return;
    for (int i = 1; i < my.state[r].keys.size(); ++i)
      std::fill(s + part(r, i - 1).hi, s + part(r, i).lo, -std::numeric_limits<C>::infinity());
    const interval seen{tile.lo + hull.lo, tile.lo + hull.hi};
    const row& at = my.state[r].at;
    const logit_row<C> line{at, in_.c.dim, my.raw + r * in_.c.dim, my.factor[r], seen, s - tile.lo};
    whole.template transform_logits<simd::batch<C, Arch>>(line, *keys_, scratch);
  }

  /// The part of an interval inside a tile, and how many elements from its start on belong to nobody else.
  struct stretch {
    interval at;
    std::int64_t room;
  };

  /// What was summed before the maximum was this high.
  void grow(std::int64_t r, C highest) {
    const C factor = std::exp(my.highest[r] - highest);
    my.highest[r] = highest;
    if (factor == 0 && my.total[r] == 0) return;  // nothing yet
    my.total[r] *= factor;
    kernels::scale_row<Arch>(my.sum + r * layout.value_step, factor, layout.value_step);
    content.rescale(r, factor);
  }

  /// The first pass with whatever free-form mask there is.
  template <class Op>
  C pass(C* s, std::int64_t n, std::int64_t first_key, const Op& op, const row_state& state, std::int64_t room) {
    using B = simd::batch<C, Arch>;
    if constexpr (listed_) {
      if (check_each_) {
        const listed_mask<B> placed(*keys_, state.by_position);
        if constexpr (lane_masks_) {
          const auto own = make_lane_mask<B>(in_.pack, state.at, *keys_);
          return transform_scores<Arch>(
              s, n, first_key, op, [&](std::int64_t k) { return placed(k) && own(k); }, room);
        } else {
          return transform_scores<Arch>(s, n, first_key, op, placed, room);
        }
      }
    }
    if constexpr (lane_masks_) {
      return transform_scores<Arch>(s, n, first_key, op, make_lane_mask<B>(in_.pack, state.at, *keys_), room);
    }
    return transform_scores<Arch>(s, n, first_key, op, no_lane_mask{}, room);
  }

  /// A row whose maximum is -inf may hold a NaN that the lane maximum passed over.
  [[nodiscard]] C hidden_nan(std::int64_t r, const C* s) const noexcept {
    for (int i = 0; i < my.state[r].keys.size(); ++i) {
      const interval v = part(r, i);
      for (std::int64_t j = v.lo; j < v.hi; ++j)
        if (s[j] != s[j]) return s[j];
    }
    return -std::numeric_limits<C>::infinity();
  }

  const Keys* keys_ = nullptr;
  bool check_each_ = false;

 public:
  scratch_layout<C, Arch> layout;
  block_arrays<C, Arch> my;
  work content;
  /// The tile that is being scored, by key index.
  interval tile{};
};

}  // namespace posenc::detail
