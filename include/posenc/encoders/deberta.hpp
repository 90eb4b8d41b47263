// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Disentangled attention (He et al. 2021): content to position and position to content,
///   score(i, j) = scale * (q(i).k(j) + q(i).pos_key[h][a(i, j)] + k(j).pos_query[h][b(i, j)])
///   a(i, j) = clamp(bucket(pos_q(i) - pos_k(j)) + span, 0, 2 span - 1)     (math/log_buckets.hpp)
/// b is a in the released code of Microsoft and Hugging Face (`p2c_index::code`), the transposed index in the paper.
/// Shapes   pos_key and pos_query are the projected tables [heads, 2 span, dim]; span is position_buckets, or
///          max_relative_positions where that is -1. Either may be left out.
/// Domain   every int64 position, any numbers of queries and keys.
/// Scale    1 / sqrt(dim * (1 + terms)): `scale()` gives it for the call. Both terms take the scale and every query
///          scale of the policy.
/// Cost     per tile one product of the queries with the table rows that occur in it and one of the keys; far tiles
///          have few rows. Listed ids: a dot per pair and term. Nothing of size queries x keys is stored.
/// Throws   std::invalid_argument for impossible options, tables of another size, or a call of another dim.
/// Decoder  the enhanced mask decoder adds absolute rows before the last layers: a schedule,
///          attention/layer_schedule.hpp
/// Who uses it  DeBERTa v1 (no buckets), v2 and v3 (256 buckets), SEW-D
/// Example  examples/content_example.cpp

#include <posenc/core/traits.hpp>
#include <posenc/encoders/relative_terms.hpp>
#include <posenc/math/log_buckets.hpp>

#include <cmath>
#include <span>

namespace posenc {

/// Which row of pos_query key j meets for query i: that of a(i, j), or of a(j, i).
enum class deberta_p2c_index { code, paper };

struct deberta_options {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t position_buckets = 256;
  std::int64_t max_relative_positions = 512;
  deberta_far_rule far_rule = deberta_far_rule::hf;
  deberta_p2c_index p2c_index = deberta_p2c_index::code;
};

template <class T = float>
class deberta {
 public:
  static constexpr encoder_traits traits{.name = "deberta",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};

  /// The tables are copied; an empty one leaves its term out.
  deberta(const deberta_options& o, std::span<const T> pos_key, std::span<const T> pos_query)
      : options_(checked(o)), buckets_(o.position_buckets, o.max_relative_positions, o.far_rule) {
    detail::require(!pos_key.empty() || !pos_query.empty(), "deberta", "tables", "must hold one term at least", 0);
    if (!pos_key.empty()) c2p_ = rows_of("pos_key", pos_key, true);
    if (!pos_query.empty()) p2c_ = rows_of("pos_query", pos_query, o.p2c_index == deberta_p2c_index::code);
  }

  /// Two terms of scratch lie in one: the products of keys follow those of queries.
  [[nodiscard]] std::int64_t scratch_size(std::int64_t rows, std::int64_t keys, std::int64_t dim) const noexcept {
    return detail::relative_scratch(rows, keys, dim).total;
  }
  template <class B, class Keys>
  void prepare(const content_tile<typename lanes<B>::scalar>& t, const Keys& keys, typename lanes<B>::scalar* scratch,
               const typename lanes<B>::scalar** lines) const {
    detail::relative_terms<B, T, Keys> queries(c2p_, t, keys, scratch);
    if (c2p_.empty()) {
      queries.clear(lines);
    } else {
      queries.query_terms(t.query, lines, !p2c_.empty());
    }
    if (!p2c_.empty()) detail::relative_terms<B, T, Keys>(p2c_, t, keys, scratch).key_terms();
  }

  void check(const call& c) const {
    detail::require(c.keys == 0 || c.dim == options_.head_dim, "deberta", "head_dim", "must equal the dim of q", c.dim);
  }

  /// 1 / sqrt(head_dim * (1 + terms)), for the call.
  [[nodiscard]] double scale() const noexcept {
    const int terms = (c2p_.empty() ? 0 : 1) + (p2c_.empty() ? 0 : 1);
    return 1 / std::sqrt(static_cast<double>(options_.head_dim) * (1 + terms));
  }
  /// The bucket of r = query - key, and its row of the tables.
  [[nodiscard]] std::int64_t bucket(std::int64_t r) const noexcept { return buckets_(r); }
  [[nodiscard]] std::int64_t table_row(std::int64_t r) const noexcept { return buckets_.row(r); }
  [[nodiscard]] std::int64_t heads() const noexcept { return options_.heads; }
  [[nodiscard]] const deberta_options& options() const noexcept { return options_; }
  [[nodiscard]] encoder_description describe() const {
    const int terms = (c2p_.empty() ? 0 : 1) + (p2c_.empty() ? 0 : 1);
    return {.position_limit = std::nullopt,
            .parameters = terms * options_.heads * 2 * buckets_.span() * options_.head_dim,
            .table_bytes = static_cast<std::int64_t>(c2p_.bytes() + p2c_.bytes()),
            .monotone = false,
            .shift = cache_shift::keep_keys};
  }

 private:
  static const deberta_options& checked(const deberta_options& o) {
    detail::require(o.heads >= 1, "deberta", "heads", "must be at least 1", o.heads);
    detail::require(o.head_dim >= 1, "deberta", "head_dim", "must be at least 1", o.head_dim);
    return o;
  }

  /// By distance d = key - query: row(-d), or row(d) for the transposed index. Beyond max_relative_positions the row no
  /// longer changes.
  [[nodiscard]] relative_rows<T> rows_of(const char* name, std::span<const T> table, bool query_minus_key) const {
    const std::int64_t n = 2 * buckets_.span();
    detail::require(static_cast<std::int64_t>(table.size()) == options_.heads * n * options_.head_dim, "deberta", name,
                    "must hold heads * 2 * span * head_dim values", table.size());
    const std::int64_t reach = options_.max_relative_positions + 1;
    return relative_rows<T>(options_.heads, options_.head_dim, -reach, reach, n, table.data(),
                            [&](std::int64_t d) { return buckets_.row(query_minus_key ? -d : d); });
  }

  deberta_options options_;
  math::log_buckets buckets_;
  relative_rows<T> c2p_;
  relative_rows<T> p2c_;
};

}  // namespace posenc
