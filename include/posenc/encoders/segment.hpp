// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Segment (token type) embedding: a table [segments, dim], x += table[segment of the token]. BERT's input is
/// LN(word + segment + position): the sum is made of `segment` and `learned`, the layer norm is the model's.
/// Domain   segment ids 0 .. segments - 1 in a list of integers, one per token, for one batch row or for each.
/// Error    one rounding of the sum. Cost: one load, one addition, one store per channel.
/// Throws   std::out_of_range for an id without a row, std::invalid_argument for a view of another dim or a list of
///          another length; the whole call is checked before anything is written.
/// Who uses it  BERT, ALBERT, ELECTRA, LayoutLM (XLNet makes segments relative: that is another encoding).
/// Example  examples/absolute_example.cpp

#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/embedding_rows.hpp>
#include <posenc/encoders/learned.hpp>

#include <span>
#include <utility>
#include <vector>

namespace posenc {

struct segment_options {
  std::int64_t segments = 2;
  std::int64_t dim = 0;
};

/// T is the scalar of the table.
template <class T = float>
class segment {
 public:
  static constexpr encoder_traits traits{.name = "segment",
                                         .site = site::input,
                                         .relation = relation::absolute,
                                         .origin = origin::learned,
                                         .translation_invariant = false,
                                         .symmetric = false};

  /// Over the caller's memory, row-major, which must outlive the encoder; `segments * dim` elements.
  segment(const segment_options& o, std::span<const T> table) : rows_(checked(o), table) {}
  /// Owns a table that is handed over.
  segment(const segment_options& o, std::vector<T>&& table) : rows_(checked(o), std::move(table)) {}

  /// x += table[ids]. ids [tokens] serve every batch row, ids [batch, tokens] each its own.
  template <class U, detail::integer_list Ids, class Arch = simd::default_arch>
  void embed(view<U> x, const Ids& ids) const {
    apply<Arch, true>("segment::embed", x, ids);
  }
  /// Every token in segment 0, what BERT takes when no ids are given.
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x) const {
    if (x.empty()) return;
    detail::check_rows("segment::embed", x, dim());
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) detail::put_row<Arch, true>(x, b, t, 0, table().data(), dim());
  }
  /// out = table[ids].
  template <class U, detail::integer_list Ids, class Arch = simd::default_arch>
  void lookup(view<U> out, const Ids& ids) const {
    apply<Arch, false>("segment::lookup", out, ids);
  }

  [[nodiscard]] std::int64_t segments() const noexcept { return rows_.rows(); }
  [[nodiscard]] std::int64_t dim() const noexcept { return rows_.dim(); }
  [[nodiscard]] std::span<const T> table() const& noexcept { return rows_.table(); }
  std::span<const T> table() && = delete;  // the table would be gone with the temporary

  [[nodiscard]] encoder_description describe() const {
    encoder_description d = rows_.describe();
    d.position_limit = std::nullopt;  // segments are no positions
    return d;
  }

 private:
  static learned_options checked(const segment_options& o) {
    detail::require(o.segments >= 1, "segment", "segments", "must be at least 1", o.segments);
    detail::require(o.dim >= 1, "segment", "dim", "must be at least 1", o.dim);
    return {.rows = o.segments, .dim = o.dim};
  }
  template <class Arch, bool Add, class U, class Ids>
  void apply(const char* function, view<U> x, const Ids& ids) const {
    detail::check_ids(function, x, ids, segments());
    if (x.empty()) return;
    detail::check_rows(function, x, dim());
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t)
        detail::put_row<Arch, Add>(x, b, t, 0, table().data() + detail::id_of(x, ids, b, t) * dim(), dim());
  }

  learned<T> rows_;
};

}  // namespace posenc
