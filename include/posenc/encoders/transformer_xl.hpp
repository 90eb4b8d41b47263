// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Transformer-XL's relative attention (Dai et al. 2019), also XLNet's and Conformer's:
///   score(i, j) = scale * ((q(i) + u_h).k(j) + (q(i) + v_h).R_h(pos_q(i) - pos_k(j)))
///   R_h(r) = W_h e(r), e(r) the sinusoidal row of r: sines then cosines (Transformer-XL, XLNet) or interleaved
///   (Conformer). A table of learned R_h(r) may be given in its place.
/// Shapes   u and v [heads, head_dim], W [heads, head_dim, model_dim], R [heads, past + future + 1, head_dim] for the
///          distances r = -future .. past in that order.
/// Domain   distances -future .. past; beyond them the nearer row (`clamp_distance`, clamp_len of the models), else a
///          pair that masks let through is refused: std::out_of_range. The shift of the published code is an index
///          here: no garbage above the diagonal, any numbers of queries and keys.
/// Place    adds u to q, so it stands after every other q transform of the pack; the term of R takes the scale and
///          every query scale.
/// Error    R: that of the exact sinusoid, products in double, rounded once.
/// Cost     projecting once: heads * distances * head_dim * model_dim multiply-adds; then one product per tile with the
///          rows of its distances. Listed ids: a dot per pair.
/// Who uses it  Transformer-XL, XLNet, Conformer (Wav2Vec2-Conformer, ESPnet), TENER, Funnel
/// Example  examples/content_example.cpp

#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/relative_terms.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include <span>
#include <string>

namespace posenc {

/// The column of a matrix of products with distances first_distance, first_distance - 1, ... that belongs to a query at
/// `query` and a key at `key`: what the published `rel_shift` reshapes for. It may lie outside the matrix.
[[nodiscard]] constexpr std::int64_t relative_column(std::int64_t query, std::int64_t key,
                                                     std::int64_t first_distance) noexcept {
  return first_distance - (query - key);
}

struct transformer_xl_options {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  /// Keys that lie up to `past` before their query and `future` after it have a row.
  std::int64_t past = 0;
  std::int64_t future = 0;
  bool clamp_distance = false;
  sinusoidal_layout layout = sinusoidal_layout::concat_sin_cos;
  double base = 10000;
};

template <class T = float>
class transformer_xl {
 public:
  static constexpr encoder_traits traits{.name = "transformer_xl",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};

  /// W is `weight_r` [heads, head_dim, model_dim].
  transformer_xl(const transformer_xl_options& o, std::span<const T> u, std::span<const T> v,
                 std::span<const T> weight_r)
      : transformer_xl(o, u, v, projected(o, weight_r), 0) {
    parameters_ += static_cast<std::int64_t>(weight_r.size());
  }
  /// R itself, learned (attn_type 1 of Transformer-XL) or projected by the caller: [heads, future + past + 1,
  /// head_dim].
  [[nodiscard]] static transformer_xl from_rows(const transformer_xl_options& o, std::span<const T> u,
                                                std::span<const T> v, std::span<const T> rows) {
    return transformer_xl(o, u, v, std::vector<T>(rows.begin(), rows.end()), rows.size());
  }

  template <class C>
  void transform_q(C* x, std::int64_t dim, const position&, std::int64_t head) const {
    const T* u = u_.data() + head * options_.head_dim;
    for (std::int64_t d = 0; d < dim; ++d) x[d] = C(x[d] + C(u[d]));
  }

  [[nodiscard]] std::int64_t scratch_size(std::int64_t rows, std::int64_t keys, std::int64_t dim) const noexcept {
    return detail::relative_scratch(rows, keys, dim).total + rows * dim;
  }
  /// The queries of the tile hold u already: v - u is added.
  template <class B, class Keys>
  void prepare(const content_tile<typename lanes<B>::scalar>& t, const Keys& keys, typename lanes<B>::scalar* scratch,
               const typename lanes<B>::scalar** lines) const {
    using C = typename lanes<B>::scalar;
    C* query = scratch;
    for (std::int64_t r = 0; r < t.rows; ++r) {
      const T* more = v_minus_u_.data() + t.at[r].head * t.dim;
      for (std::int64_t d = 0; d < t.dim; ++d)
        query[r * t.dim + d] = C(t.query[r * t.dim + d] + t.factor[r] * C(more[d]));
    }
    detail::relative_terms<B, T, Keys>(rows_, t, keys, scratch + t.rows * t.dim).query_terms(query, lines, false);
  }

  void check(const call& c) const {
    detail::require(c.keys == 0 || c.dim == options_.head_dim, "transformer_xl", "head_dim", "must equal the dim of q",
                    c.dim);
  }
  /// @throws std::out_of_range for a visible pair without a row.
  void check_distances(const interval& seen) const {
    if (options_.clamp_distance) return;
    const auto within = [](std::int64_t distance, std::int64_t most, const char* side) {
      if (distance > most)
        detail::outside("transformer_xl", side, "must reach the farthest visible key, at " + std::to_string(distance),
                        most);
    };
    within(-seen.lo, options_.past, "past");
    within(seen.hi, options_.future, "future");
  }

  [[nodiscard]] std::int64_t heads() const noexcept { return options_.heads; }
  [[nodiscard]] const transformer_xl_options& options() const noexcept { return options_; }
  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = parameters_,
            .table_bytes = static_cast<std::int64_t>(rows_.bytes()),
            .monotone = false,
            .shift = cache_shift::keep_keys};
  }

 private:
  transformer_xl(const transformer_xl_options& o, std::span<const T> u, std::span<const T> v, std::vector<T> rows,
                 std::size_t learned)
      : options_(o), u_(u.begin(), u.end()) {
    check_options(o);
    const std::int64_t n = o.heads * o.head_dim;
    detail::require(static_cast<std::int64_t>(u.size()) == n, "transformer_xl", "u",
                    "must hold heads * head_dim values", u.size());
    detail::require(static_cast<std::int64_t>(v.size()) == n, "transformer_xl", "v",
                    "must hold heads * head_dim values", v.size());
    const std::int64_t count = o.past + o.future + 1;
    detail::require(static_cast<std::int64_t>(rows.size()) == n * count, "transformer_xl", "rows",
                    "must hold heads * (past + future + 1) * head_dim values", rows.size());
    for (std::size_t i = 0; i < u.size(); ++i) v_minus_u_.push_back(T(v[i] - u[i]));
    // By distance key - query, which is the other way round.
    std::vector<T> turned(rows.size());
    for (std::int64_t h = 0; h < o.heads; ++h)
      for (std::int64_t x = 0; x < count; ++x)
        std::copy_n(rows.data() + (h * count + x) * o.head_dim, o.head_dim,
                    turned.data() + (h * count + count - 1 - x) * o.head_dim);
    rows_ = relative_rows<T>(o.heads, o.head_dim, -o.past, o.future, std::move(turned));
    parameters_ = 2 * n + static_cast<std::int64_t>(learned);
  }

  static void check_options(const transformer_xl_options& o) {
    constexpr std::int64_t most = std::int64_t{1} << 30;
    detail::require(o.heads >= 1, "transformer_xl", "heads", "must be at least 1", o.heads);
    detail::require(o.head_dim >= 1, "transformer_xl", "head_dim", "must be at least 1", o.head_dim);
    detail::require(o.past >= 0 && o.past <= most, "transformer_xl", "past", "must lie in 0..2^30", o.past);
    detail::require(o.future >= 0 && o.future <= most, "transformer_xl", "future", "must lie in 0..2^30", o.future);
  }

  static std::vector<T> projected(const transformer_xl_options& o, std::span<const T> weight) {
    check_options(o);
    const auto outputs = static_cast<std::size_t>(o.heads * o.head_dim);
    detail::require(!weight.empty() && weight.size() % outputs == 0, "transformer_xl", "weight_r",
                    "must hold heads * head_dim * model_dim values", weight.size());
    const auto model = static_cast<std::int64_t>(weight.size() / outputs);
    const std::int64_t count = o.past + o.future + 1;
    const sinusoidal<double> encoder({.dim = model, .base = o.base, .layout = o.layout});
    std::vector<double> e(static_cast<std::size_t>(model));
    std::vector<T> rows(outputs * static_cast<std::size_t>(count));
    for (std::int64_t x = 0; x < count; ++x) {
      encoder.table(posenc::view(e.data(), {.tokens = 1, .dim = model}), positions::from(x - o.future));
      for (std::int64_t h = 0; h < o.heads; ++h)
        for (std::int64_t d = 0; d < o.head_dim; ++d) {
          const T* w = weight.data() + (h * o.head_dim + d) * model;
          if constexpr (std::floating_point<T>) {
            double sum = 0;
            for (std::int64_t m = 0; m < model; ++m) sum += static_cast<double>(w[m]) * e[static_cast<std::size_t>(m)];
            rows[static_cast<std::size_t>((h * count + x) * o.head_dim + d)] = static_cast<T>(sum);
          } else {
            T sum = T(0);
            for (std::int64_t m = 0; m < model; ++m) sum = T(sum + w[m] * T(e[static_cast<std::size_t>(m)]));
            rows[static_cast<std::size_t>((h * count + x) * o.head_dim + d)] = sum;
          }
        }
    }
    return rows;
  }

  transformer_xl_options options_;
  std::int64_t parameters_ = 0;
  std::vector<T> u_;
  std::vector<T> v_minus_u_;
  relative_rows<T> rows_;
};

}  // namespace posenc
