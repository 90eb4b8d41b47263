// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// XLNet's relative segments (Yang et al. 2019): a term that says only whether two tokens belong to the same segment,
///   term(i, j) = scale * (q(i) + bias_h).vector[h][segment(i) == segment(j) ? 0 : 1]
/// Shapes   vectors [heads, 2, head_dim], bias [heads, head_dim]; one segment id per query and per key of the call, for
///          all batch rows. `added` is what another part has put on q before (u of transformer_xl), to be taken off
///          again; empty for nothing.
/// Cost     two dots per query, one selection per logit.
/// Throws   std::invalid_argument for sizes that do not fit the options or the call.
/// The ids stay the caller's memory and must outlive the call.

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/kernels/row_products.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace posenc {

struct relative_segments_options {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
};

template <class T = float>
class relative_segments {
 public:
  static constexpr encoder_traits traits{.name = "relative_segments",
                                         .site = site::logit,
                                         .relation = relation::none,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = true};

  relative_segments(const relative_segments_options& o, std::span<const T> vectors, std::span<const T> bias,
                    std::span<const T> added, std::span<const std::int64_t> query_segments,
                    std::span<const std::int64_t> key_segments)
      : options_(o), vectors_(vectors.begin(), vectors.end()), queries_(query_segments), keys_(key_segments) {
    detail::require(o.heads >= 1, "relative_segments", "heads", "must be at least 1", o.heads);
    detail::require(o.head_dim >= 1, "relative_segments", "head_dim", "must be at least 1", o.head_dim);
    const auto n = static_cast<std::size_t>(o.heads * o.head_dim);
    detail::require(vectors.size() == 2 * n, "relative_segments", "vectors", "must hold heads * 2 * head_dim values",
                    vectors.size());
    detail::require(bias.size() == n, "relative_segments", "bias", "must hold heads * head_dim values", bias.size());
    detail::require(added.empty() || added.size() == n, "relative_segments", "added",
                    "must be empty or hold heads * head_dim values", added.size());
    for (std::size_t i = 0; i < n; ++i) bias_.push_back(added.empty() ? bias[i] : T(bias[i] - added[i]));
  }

  [[nodiscard]] std::int64_t scratch_size(std::int64_t rows, std::int64_t keys, std::int64_t dim) const noexcept {
    return rows * (keys + lane_slack) + dim;
  }
  template <class B, class Keys>
  void prepare(const content_tile<typename lanes<B>::scalar>& t, const Keys&, typename lanes<B>::scalar* scratch,
               const typename lanes<B>::scalar** lines) const {
    using C = typename lanes<B>::scalar;
    C* query = scratch + t.rows * (t.keys + lane_slack);
    for (std::int64_t r = 0; r < t.rows; ++r) {
      const interval& seen = t.seen[r];
      if (seen.lo >= seen.hi) continue;
      const std::int64_t head = t.at[r].head;
      for (std::int64_t d = 0; d < t.dim; ++d)
        query[d] = C(t.query[r * t.dim + d] + t.factor[r] * C(bias_[static_cast<std::size_t>(head * t.dim + d)]));
      const T* vector = vectors_.data() + head * 2 * t.dim;
      const C same = kernels::product<B>(query, vector, t.dim);
      const C other = kernels::product<B>(query, vector + t.dim, t.dim);
      const std::int64_t own = queries_[static_cast<std::size_t>(t.at[r].query_index)];
      C* line = scratch + r * (t.keys + lane_slack);
      for (std::int64_t j = seen.lo; j < seen.hi; ++j)
        line[j] = keys_[static_cast<std::size_t>(t.first + j)] == own ? same : other;
      lines[r] = line;
    }
  }

  void check(const call& c) const {
    detail::require(c.keys == 0 || c.dim == options_.head_dim, "relative_segments", "head_dim",
                    "must equal the dim of q", c.dim);
    detail::require(static_cast<std::int64_t>(queries_.size()) == c.queries, "relative_segments", "query_segments",
                    "must list one segment per query", queries_.size());
    detail::require(static_cast<std::int64_t>(keys_.size()) == c.keys, "relative_segments", "key_segments",
                    "must list one segment per key", keys_.size());
  }
  [[nodiscard]] std::int64_t heads() const noexcept { return options_.heads; }
  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = static_cast<std::int64_t>(vectors_.size() + bias_.size()),
            .table_bytes = static_cast<std::int64_t>(vectors_.size() * sizeof(T)),
            .monotone = false,
            .shift = cache_shift::keep_keys};
  }

 private:
  relative_segments_options options_;
  std::vector<T> vectors_;
  std::vector<T> bias_;
  std::span<const std::int64_t> queries_;
  std::span<const std::int64_t> keys_;
};

}  // namespace posenc
