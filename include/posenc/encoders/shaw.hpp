// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Relative position vectors on keys and values (Shaw et al. 2018), and the key side alone (Music Transformer):
///   score(i, j) = scale * q(i).(k(j) + key[r])      out(i) = sum_j softmax_j(score) (v(j) + value[r])
/// with r the row of the distance d = pos_k(j) - pos_q(i): clamp(d, -left, right) + left.
/// Shapes   key and value tables [tables, left + right + 1, dim], the distance -left first; tables is 1 (shared by all
///          heads) or the number of query heads. The key term stands at the part's place among the logit transforms.
/// Domain   every int64 position. Error: that of q.k in the compute type; the value side adds one sum per distance.
/// Cost     contiguous keys: one matrix product per tile with the table rows that occur in it; the value side adds the
///          weights by distance and takes left + right + 1 rows once per query. Listed ids: a dot per pair of another
///          distance. Nothing of size queries x keys is stored.
/// Throws   std::invalid_argument for impossible options, tables of another size, or a call of another dim.
/// Who uses it  tensor2tensor, VITS (zero), Wav2Vec2-BERT (left 64, right 8, keys only), Music Transformer
/// Example  examples/content_example.cpp

#include <posenc/core/traits.hpp>
#include <posenc/encoders/relative_terms.hpp>
#include <posenc/encoders/relative_values.hpp>

#include <optional>
#include <span>

namespace posenc {

/// Distances outside -left .. right: the row of the nearer end (Shaw, Wav2Vec2-BERT), or no contribution (VITS, Music
/// Transformer).
enum class relative_beyond { clip, zero };

struct shaw_options {
  std::int64_t head_dim = 0;
  /// Channels of a value row; head_dim unless given.
  std::optional<std::int64_t> value_dim{};
  std::int64_t left = 16;
  std::int64_t right = 16;
  relative_beyond out_of_range = relative_beyond::clip;
  /// 1, or the query heads.
  std::int64_t tables = 1;
};

template <class T = float>
class shaw {
 public:
  static constexpr encoder_traits traits{.name = "shaw",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};

  /// The tables are copied; without `values` the value sum is left alone.
  explicit shaw(const shaw_options& o, std::span<const T> keys, std::span<const T> values = {})
      : options_(checked(o)), keys_(rows_of("key table", keys, o.head_dim)) {
    if (!values.empty()) values_ = rows_of("value table", values, value_dim());
  }

  [[nodiscard]] std::int64_t scratch_size(std::int64_t rows, std::int64_t keys, std::int64_t dim) const noexcept {
    return detail::relative_scratch(rows, keys, dim).total;
  }
  template <class B, class Keys>
  void prepare(const content_tile<typename lanes<B>::scalar>& t, const Keys& keys, typename lanes<B>::scalar* scratch,
               const typename lanes<B>::scalar** lines) const {
    detail::relative_terms<B, T, Keys>(keys_, t, keys, scratch).query_terms(t.query, lines, false);
  }

  [[nodiscard]] std::int64_t state_size(std::int64_t) const noexcept { return values_.empty() ? 0 : values_.count(); }
  template <class B, class Keys>
  void add_weights(typename lanes<B>::scalar* state, const row& r, const Keys& keys, std::int64_t first,
                   const typename lanes<B>::scalar* weights, std::int64_t n) const {
    if (!values_.empty()) detail::add_weights_by_place<B>(values_, state, r, keys, first, weights, n);
  }
  template <class B>
  void add_values(const typename lanes<B>::scalar* state, const row& r, typename lanes<B>::scalar* sum,
                  std::int64_t n) const {
    if (!values_.empty()) detail::add_rows_by_weight<B>(values_, state, r.head, sum, n);
  }

  void check(const call& c) const {
    detail::require(c.keys == 0 || c.dim == options_.head_dim, "shaw", "head_dim", "must equal the dim of q", c.dim);
    detail::require(values_.empty() || c.keys == 0 || c.value_dim == value_dim(), "shaw", "value_dim",
                    "must equal the dim of v", c.value_dim);
    detail::require(options_.tables == 1 || options_.tables == c.heads, "shaw", "tables", "must be 1 or the heads of q",
                    options_.tables);
  }

  [[nodiscard]] const shaw_options& options() const noexcept { return options_; }
  [[nodiscard]] bool has_values() const noexcept { return !values_.empty(); }
  [[nodiscard]] encoder_description describe() const {
    const std::int64_t rows = options_.tables * (options_.left + options_.right + 1);
    return {.position_limit = std::nullopt,
            .parameters = rows * (options_.head_dim + (has_values() ? value_dim() : 0)),
            .table_bytes = static_cast<std::int64_t>(keys_.bytes() + values_.bytes()),
            .monotone = false,
            .shift = cache_shift::keep_keys};
  }

 private:
  static const shaw_options& checked(const shaw_options& o) {
    detail::require(o.head_dim >= 1, "shaw", "head_dim", "must be at least 1", o.head_dim);
    detail::require(o.value_dim.value_or(1) >= 1, "shaw", "value_dim", "must be at least 1", o.value_dim.value_or(1));
    constexpr std::int64_t most = std::int64_t{1} << 30;
    detail::require(o.left >= 0 && o.left <= most, "shaw", "left", "must lie in 0..2^30", o.left);
    detail::require(o.right >= 0 && o.right <= most, "shaw", "right", "must lie in 0..2^30", o.right);
    detail::require(o.tables >= 1, "shaw", "tables", "must be at least 1", o.tables);
    return o;
  }
  [[nodiscard]] std::int64_t value_dim() const noexcept { return options_.value_dim.value_or(options_.head_dim); }

  /// The table itself, or with a row of zeros at either end.
  [[nodiscard]] relative_rows<T> rows_of(const char* name, std::span<const T> table, std::int64_t dim) const {
    const std::int64_t n = options_.left + options_.right + 1;
    const auto per_table = static_cast<std::size_t>(n * dim);
    detail::require(
        table.size() % per_table == 0 && static_cast<std::int64_t>(table.size() / per_table) == options_.tables, "shaw",
        name, "must hold tables * (left + right + 1) * dim values", table.size());
    std::vector<T> rows;
    if (options_.out_of_range == relative_beyond::clip) {
      rows.assign(table.begin(), table.end());
      return {options_.tables, dim, -options_.left, options_.right, std::move(rows)};
    }
    rows.reserve(table.size() + static_cast<std::size_t>(2 * dim * options_.tables));
    for (std::int64_t t = 0; t < options_.tables; ++t) {
      const auto part = table.subspan(static_cast<std::size_t>(t) * per_table, per_table);
      rows.insert(rows.end(), static_cast<std::size_t>(dim), T(0));
      rows.insert(rows.end(), part.begin(), part.end());
      rows.insert(rows.end(), static_cast<std::size_t>(dim), T(0));
    }
    return {options_.tables, dim, -options_.left - 1, options_.right + 1, std::move(rows)};
  }

  shaw_options options_;
  relative_rows<T> keys_;
  relative_rows<T> values_;
};

}  // namespace posenc
