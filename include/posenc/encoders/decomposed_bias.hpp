// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Decomposed relative positions of MViTv2 and SAM (Li et al. 2022): what a query says to an offset, axis by axis,
///   bias(h, i, j) = q_i . Rh[dy(i, j)] + q_i . Rw[dx(i, j)], q NOT scaled, added to scaled scores,
/// with tables rel_pos [L, dim] per axis shared by all heads. For axes of q and k places, row
///   trunc(i * max(k / q, 1) - j * max(q / k, 1) + (k - 1) * max(q / k, 1))
/// of the table, which is first resampled linearly to 2 max(q, k) - 1 rows where L differs. The bias goes by indices,
/// row by row in the image, not by positions; the first `class_tokens` of queries and keys have none.
/// Domain   calls of exactly these windows, any scale. Error: the products are sums in the compute type.
/// Cost     (qh kh + qw kw) * dim * sizeof(T) bytes; per query and tile of keys, kw + (rows of the tile) products, then
///          one load and one addition per batch of logits. Nothing of size queries x keys is kept.
/// Throws   std::invalid_argument for tables and calls that do not fit.
/// Who uses it  SAM's and ViTDet's image encoder, MViTv2.
/// Example  examples/window_bias_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/scalar.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/encoders/resize.hpp>
#include <posenc/encoders/window_index.hpp>
#include <posenc/kernels/column_product.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace posenc {

/// [q_size, k_size]: the row of an axis table of 2 max(q_size, k_size) - 1 rows.
[[nodiscard]] inline std::vector<std::int32_t> window_axis_index(std::int64_t q_size, std::int64_t k_size) {
  detail::check_window("window_axis_index", "sizes", {q_size, k_size});
  // Over the common denominator q k, so that no rounding decides where trunc cuts.
  const std::int64_t most = std::max(q_size, k_size);
  std::vector<std::int32_t> out;
  out.reserve(static_cast<std::size_t>(q_size * k_size));
  for (std::int64_t i = 0; i < q_size; ++i)
    for (std::int64_t j = 0; j < k_size; ++j)
      out.push_back(static_cast<std::int32_t>(most * (i * k_size + (k_size - 1 - j) * q_size) / (q_size * k_size)));
  return out;
}

/// [q_size, k_size, dim]: the rows themselves. The table's rows follow from its size.
template <class T>
[[nodiscard]] std::vector<T> window_axis_rows(std::int64_t q_size, std::int64_t k_size, std::int64_t dim,
                                              std::span<const T> rel_pos) {
  const std::vector<std::int32_t> index = window_axis_index(q_size, k_size);
  detail::require(dim >= 1, "window_axis_rows", "dim", "must be at least 1", dim);
  detail::require(!rel_pos.empty() && rel_pos.size() % static_cast<std::size_t>(dim) == 0, "window_axis_rows",
                  "rel_pos", "must hold at least one row of dim values", rel_pos.size());
  const auto rows = static_cast<std::int64_t>(rel_pos.size()) / dim;
  const std::int64_t wanted = 2 * std::max(q_size, k_size) - 1;
  std::vector<T> resized;
  if (rows != wanted)
    resized = table_resize({.from = {.rows = rows}, .to = table_extent{.rows = wanted}, .mode = resize_mode::bilinear})(
        rel_pos);
  const std::span<const T> table = rows == wanted ? rel_pos : std::span<const T>(resized);
  std::vector<T> out;
  out.reserve(index.size() * static_cast<std::size_t>(dim));
  for (const std::int32_t at : index) {
    const auto row = table.subspan(static_cast<std::size_t>(at * dim), static_cast<std::size_t>(dim));
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

struct decomposed_bias_options {
  window_shape queries{};
  window_shape keys{};
  /// Channels of a head.
  std::int64_t dim = 0;
  std::int64_t class_tokens = 0;
};

template <class T = float>
class decomposed_bias {
 public:
  static constexpr encoder_traits traits{.name = "decomposed_bias",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};

  /// rel_pos_h [Lh, dim] and rel_pos_w [Lw, dim]; they are read here.
  decomposed_bias(const decomposed_bias_options& o, std::span<const T> rel_pos_h, std::span<const T> rel_pos_w)
      : options_(checked(o)),
        parameters_(static_cast<std::int64_t>(rel_pos_h.size() + rel_pos_w.size())),
        rows_(columns_first(o.queries.height, o.keys.height, o.dim, rel_pos_h)),
        columns_(columns_first(o.queries.width, o.keys.width, o.dim, rel_pos_w)) {}

  void check(const call& c) const {
    detail::require(c.queries == queries(), "decomposed_bias", "queries", "must be the window's tokens", c.queries);
    detail::require(c.keys == keys(), "decomposed_bias", "keys", "must be the window's tokens", c.keys);
    detail::require(c.dim == options_.dim, "decomposed_bias", "dim", "must equal that of its tables", c.dim);
  }

  /// The two terms of one query as it comes (unscaled): rel_h [key height] and rel_w [key width];
  /// bias(j) = rel_h[j / key width] + rel_w[j % key width], class tokens not counted.
  template <class Q, class C>
  void terms(const Q* query, std::int64_t step, std::int64_t query_index, std::span<C> rel_h,
             std::span<C> rel_w) const {
    const std::int64_t i = query_index - options_.class_tokens;
    if (i < 0 || query_index >= queries())
      detail::outside("decomposed_bias::terms", "query index", "must be that of a token of the image", query_index);
    detail::require(static_cast<std::int64_t>(rel_h.size()) == options_.keys.height, "decomposed_bias::terms", "rel_h",
                    "must hold one value per key row", rel_h.size());
    detail::require(static_cast<std::int64_t>(rel_w.size()) == options_.keys.width, "decomposed_bias::terms", "rel_w",
                    "must hold one value per key column", rel_w.size());
    const auto one_axis = [&](const T* table, std::span<C> out) {
      const auto n = static_cast<std::int64_t>(out.size());
      for (std::int64_t j = 0; j < n; ++j) {
        C sum = C(0);
        for (std::int64_t d = 0; d < options_.dim; ++d)
          sum = C(sum + C(widen(query[d * step])) * C(widen(table[d * n + j])));
        out[static_cast<std::size_t>(j)] = sum;
      }
    };
    one_axis(row_table(i), rel_h);
    one_axis(column_table(i), rel_w);
  }

  /// A line of terms per row, and the two axes of the row at hand.
  [[nodiscard]] std::int64_t scratch_size(std::int64_t rows, std::int64_t keys, std::int64_t) const noexcept {
    return rows * (keys + lane_slack) + options_.keys.height + options_.keys.width + 2 * lane_slack;
  }
  template <class B, class Keys, class C = typename lanes<B>::scalar>
  void prepare(const content_tile<C>& tile, const Keys&, C* scratch, const C** lines) const {
    C* rel_h = scratch + tile.rows * (tile.keys + lane_slack);
    C* rel_w = rel_h + options_.keys.height + lane_slack;
    const std::int64_t width = options_.keys.width;
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      if (tile.seen[r].empty()) continue;
      C* line = scratch + r * (tile.keys + lane_slack);
      lines[r] = line;
      std::int64_t j = tile.seen[r].lo;
      const std::int64_t i = tile.at[r].query_index - options_.class_tokens;
      const std::int64_t plain =
          i < 0 ? tile.seen[r].hi : std::min(tile.seen[r].hi, options_.class_tokens - tile.first);
      for (; j < plain; ++j) line[j] = C(0);
      if (j >= tile.seen[r].hi) continue;
      const C* query = tile.unscaled + r * tile.dim;
      // Keys of the image from `from` to `to`.
      const std::int64_t from = tile.first + j - options_.class_tokens;
      const std::int64_t to = tile.first + tile.seen[r].hi - options_.class_tokens;
      const std::int64_t y0 = from / width;
      axis_terms<B>(query, row_table(i), options_.keys.height, y0, (to - 1) / width + 1, rel_h);
      axis_terms<B>(query, column_table(i), width, 0, width, rel_w);
      for (std::int64_t y = y0; y * width < to; ++y) {
        const std::int64_t x0 = std::max<std::int64_t>(from - y * width, 0);
        const std::int64_t x1 = std::min(to - y * width, width);
        const C above = rel_h[y];
        const std::int64_t column = y * width + options_.class_tokens - tile.first;
        for (std::int64_t x = x0; x < x1; ++x) line[column + x] = C(above + rel_w[x]);
      }
    }
  }

  /// Tokens of the query and of the key window, class tokens included.
  [[nodiscard]] std::int64_t queries() const noexcept {
    return options_.class_tokens + options_.queries.height * options_.queries.width;
  }
  [[nodiscard]] std::int64_t keys() const noexcept {
    return options_.class_tokens + options_.keys.height * options_.keys.width;
  }

  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = keys(),
            .parameters = parameters_,
            .table_bytes = static_cast<std::int64_t>((rows_.size() + columns_.size()) * sizeof(T)),
            .monotone = false,
            .shift = cache_shift::keep_keys};
  }

 private:
  static const decomposed_bias_options& checked(const decomposed_bias_options& o) {
    detail::check_window("decomposed_bias", "queries", o.queries);
    detail::check_window("decomposed_bias", "keys", o.keys);
    detail::require(o.dim >= 1, "decomposed_bias", "dim", "must be at least 1", o.dim);
    detail::require(o.class_tokens >= 0 && o.class_tokens <= 1024, "decomposed_bias", "class_tokens",
                    "must lie in 0..1024", o.class_tokens);
    return o;
  }
  /// [q, dim, k] and slack: the terms of neighbouring keys lie side by side.
  static std::vector<T> columns_first(std::int64_t q, std::int64_t k, std::int64_t dim, std::span<const T> rel_pos) {
    const std::vector<T> rows = window_axis_rows(q, k, dim, rel_pos);
    std::vector<T> out(rows.size() + lane_slack, T(0));
    for (std::int64_t i = 0; i < q; ++i)
      for (std::int64_t j = 0; j < k; ++j)
        for (std::int64_t d = 0; d < dim; ++d)
          out[static_cast<std::size_t>((i * dim + d) * k + j)] = rows[static_cast<std::size_t>((i * k + j) * dim + d)];
    return out;
  }
  [[nodiscard]] const T* row_table(std::int64_t i) const noexcept {
    return rows_.data() + i / options_.queries.width * options_.dim * options_.keys.height;
  }
  [[nodiscard]] const T* column_table(std::int64_t i) const noexcept {
    return columns_.data() + i % options_.queries.width * options_.dim * options_.keys.width;
  }
  /// out[j] = sum_d query[d] table[d, j] for from <= j < to; up to a batch beyond is written.
  template <class B, class C>
  void axis_terms(const C* query, const T* table, std::int64_t n, std::int64_t from, std::int64_t to, C* out) const {
    for (std::int64_t j = from; j < to; j += lanes<B>::size)
      lanes<B>::store(out + j, kernels::column_product<B>(query, table + j, n, options_.dim));
  }

  decomposed_bias_options options_;
  std::int64_t parameters_;
  std::vector<T> rows_;
  std::vector<T> columns_;
};

}  // namespace posenc
