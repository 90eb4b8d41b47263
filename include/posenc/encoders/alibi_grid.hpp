// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// ALiBi on a grid (data2vec 2.0): bias(h, i, j) = -slope(h) * dist(pos_q(i), pos_k(j)), where positions have up to
/// four axes (rows and columns of an image, ...), given as `positions::axes(ids, n)`, and dist is
///   manhattan   the sum of |difference| over the axes
///   euclidean   the root of the sum of squares
/// Conventions  the axes of a call are those of the positions with more of them; a token with one coordinate has it on
///              every axis. Class tokens without a place have no bias in data2vec 2.0: leave them to a policy of their
///              own, or give them a place.
/// Domain   every int64 position. Error: differences are formed in int64 from the first key of the batch row, exact in
///          the scalar up to 2^24 (float) or 2^53; then one rounding per operation.
/// Cost     batch * axes * (keys + 16) * sizeof(T) bytes of workspace per call; a load, a subtraction and an absolute
///          value per axis and batch of logits.
/// Throws   std::invalid_argument for another form than symmetric.
/// Who uses it  data2vec 2.0 for images.
/// Example  examples/distance_bias_example.cpp

#include <posenc/encoders/alibi.hpp>
#include <posenc/simd/batch.hpp>

namespace posenc {

enum class grid_metric { manhattan, euclidean };

template <class T = float>
class alibi_grid {
 public:
  static constexpr bool several_axes = true;
  static constexpr encoder_traits traits{.name = "alibi_grid",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::designed,
                                         .translation_invariant = true,
                                         .symmetric = true};

  explicit alibi_grid(std::int64_t heads, grid_metric metric = grid_metric::euclidean)
      : alibi_grid(alibi<T>(heads), metric) {}
  /// The slopes of any symmetric alibi: explicit, learned, scaled, a shard.
  explicit alibi_grid(alibi<T> slopes, grid_metric metric = grid_metric::euclidean)
      : slopes_(std::move(slopes)), metric_(metric) {
    detail::require(slopes_.form() == alibi_form::symmetric, "alibi_grid", "slopes", "must be of the symmetric form",
                    "another form");
  }

  /// The coordinates of the keys, per batch row and axis, counted from the first key.
  struct bound {
    using number = std::conditional_t<std::is_arithmetic_v<T>, T, double>;
    const alibi_grid* owner;
    const number* coordinates;
    posenc::call of;
    int axes;

    template <class B, class Keys>
    [[nodiscard]] auto row(const posenc::row& r, const Keys&) const {
      using L = lanes<B>;
      const std::int64_t stride = of.keys + lane_slack;
      const position origin = of.key_positions.at(r.batch, 0);
      const position query = of.query_positions.at(r.batch, r.query_index);
      std::array<B, position::max_axes> at;
      for (int a = 0; a < position::max_axes; ++a)
        at[static_cast<std::size_t>(a)] = L::broadcast(static_cast<number>(position_difference(query[a], origin[a])));
      const B slope = B(-L::broadcast(owner->slopes()[static_cast<std::size_t>(r.head)]));
      return [at, slope, stride, axes = axes, keys = coordinates + r.batch * axes * stride,
              euclidean = owner->metric() == grid_metric::euclidean](const B& s, std::int64_t k) {
        B sum = part<B>(keys + k, at[0], euclidean);
        if (axes > 1) sum = B(sum + part<B>(keys + stride + k, at[1], euclidean));
        if (axes > 2) sum = B(sum + part<B>(keys + 2 * stride + k, at[2], euclidean));
        if (axes > 3) sum = B(sum + part<B>(keys + 3 * stride + k, at[3], euclidean));
        if (euclidean) sum = root(sum);
        return B(s + slope * sum);
      };
    }

   private:
    /// What one axis adds.
    template <class B>
    static B part(const number* key, const B& query, bool euclidean) {
      const B d = B(lanes<B>::load(key) - query);
      return euclidean ? B(d * d) : lanes<B>::abs(d);
    }
    /// An autodiff scalar has no derivative of the root at 0; distances have none by anything, so 0 stays.
    template <class B>
    static B root(const B& x) {
      if constexpr (lanes<B>::size == 1 && !std::is_arithmetic_v<B>) {
        return x > B(0) ? lanes<B>::sqrt(x) : x;
      } else {
        return lanes<B>::sqrt(x);
      }
    }
  };

  [[nodiscard]] std::size_t workspace_bytes(const call& c) const {
    return static_cast<std::size_t>(c.batch * axes_of(c) * (c.keys + lane_slack)) * sizeof(typename bound::number);
  }
  [[nodiscard]] bound bind(std::byte* memory, const call& c) const {
    using number = typename bound::number;
    auto* to = reinterpret_cast<number*>(memory);
    const int axes = axes_of(c);
    bound result{this, to, c, axes};
    for (std::int64_t b = 0; b < c.batch && c.keys > 0; ++b) {
      const position origin = c.key_positions.at(b, 0);
      for (std::int64_t j = 0; j < c.keys; ++j) {
        const position key = c.key_positions.at(b, j);
        for (int a = 0; a < axes; ++a)
          to[a * (c.keys + lane_slack) + j] = static_cast<number>(position_difference(key[a], origin[a]));
      }
      for (int a = 0; a < axes; ++a) std::fill_n(to + a * (c.keys + lane_slack) + c.keys, lane_slack, number(0));
      to += axes * (c.keys + lane_slack);
    }
    return result;
  }

  [[nodiscard]] const std::vector<T>& slopes() const noexcept { return slopes_.slopes(); }
  [[nodiscard]] grid_metric metric() const noexcept { return metric_; }
  [[nodiscard]] std::int64_t heads() const noexcept { return slopes_.heads(); }
  [[nodiscard]] encoder_description describe() const { return slopes_.describe(); }

 private:
  static int axes_of(const call& c) noexcept {
    return std::max(c.query_positions.axis_count(), c.key_positions.axis_count());
  }

  alibi<T> slopes_;
  grid_metric metric_;
};

}  // namespace posenc
