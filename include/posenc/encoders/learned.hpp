// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Learned absolute embedding: a table [rows, dim], x += table[position]. The table is the caller's memory (a
/// checkpoint, a training buffer) or the encoder's own. Which row a token takes is the caller's positions: see
/// position_ids.hpp for the rules of BERT/GPT-2, RoBERTa/fairseq and OPT/BART.
/// Domain   positions 0 .. rows - 1; what happens beyond is named by `out_of_range`.
/// Error    one rounding of the sum. Cost: one load, one addition, one store per channel.
/// Throws   std::out_of_range (default rule) for a position without a row: the whole call is checked before anything is
///          written. std::invalid_argument for a view of another dim.
/// Who uses it  BERT, GPT-2, OPT, RoBERTa, ViT, Whisper's decoder.
/// Example  examples/learned_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/positions.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/kernels/rows.hpp>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace posenc {

/// A position outside the table. throws: std::out_of_range. clamp: the nearest row (Marian). repeat: position mod rows,
/// also for negative positions.
enum class out_of_range { throws, clamp, repeat };

struct learned_options {
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  posenc::out_of_range out_of_range = posenc::out_of_range::throws;
};

/// T is the scalar of the table: float, double, 16-bit storage, or any other scalar.
template <class T = float>
class learned {
 public:
  static constexpr encoder_traits traits{.name = "learned",
                                         .site = site::input,
                                         .relation = relation::absolute,
                                         .origin = origin::learned,
                                         .translation_invariant = false,
                                         .symmetric = false};

  /// Over the caller's memory, row-major, which must outlive the encoder; `rows * dim` elements.
  learned(const learned_options& o, std::span<const T> table) : options_(o), borrowed_(table) { check(table.size()); }
  /// Owns a table that is handed over (a temporary or std::move); a named vector stays the caller's memory.
  learned(const learned_options& o, std::vector<T>&& table) : options_(o), owned_(std::move(table)), owns_(true) {
    check(owned_.size());
  }

  /// x += table[position], for every head of every token, in place.
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, const positions& at = {}) const {
    if (x.empty()) return;
    check_call("learned::embed", x, at);
    for_rows(x, at, [&](U* to, std::int64_t step, const T* from) {
      if constexpr (simd_storage<U> && simd_storage<T> && std::same_as<compute_t<U>, compute_t<T>>) {
        if (step == 1) return kernels::add_row<Arch>(to, from, dim());
      }
      kernels::add_row_strided(to, step, from, dim());
    });
  }
  /// out = table[position].
  template <class U>
  void lookup(view<U> out, const positions& at = {}) const {
    if (out.empty()) return;
    check_call("learned::lookup", out, at);
    for_rows(out, at, [&](U* to, std::int64_t step, const T* from) {
      for (std::int64_t d = 0; d < dim(); ++d) to[d * step] = narrow<U>(widen(from[d]));
    });
  }

  [[nodiscard]] std::int64_t rows() const noexcept { return options_.rows; }
  [[nodiscard]] std::int64_t dim() const noexcept { return options_.dim; }
  [[nodiscard]] std::span<const T> table() const& noexcept { return owns_ ? std::span<const T>(owned_) : borrowed_; }
  std::span<const T> table() && = delete;  // the table would be gone with the temporary
  /// The row that a position takes. @throws std::out_of_range under the rule `throws`.
  [[nodiscard]] std::int64_t row_of(std::int64_t position) const {
    switch (options_.out_of_range) {
      case out_of_range::clamp: return std::clamp<std::int64_t>(position, 0, rows() - 1);
      case out_of_range::repeat: return ((position % rows()) + rows()) % rows();
      default:
        if (position < 0 || position >= rows())
          detail::outside("learned", "position", "must lie in the table's 0.." + std::to_string(rows() - 1), position);
        return position;
    }
  }

  [[nodiscard]] encoder_description describe() const {
    return {.position_limit =
                options_.out_of_range == out_of_range::throws ? std::optional<std::int64_t>(rows()) : std::nullopt,
            .parameters = rows() * dim(),
            .table_bytes = rows() * dim() * static_cast<std::int64_t>(sizeof(T)),
            .monotone = false,
            .shift = cache_shift::recompute_keys,
            .shift_reason = "rows are added to the input and lie inside the keys"};
  }

 private:
  void check(std::size_t size) const {
    detail::require(options_.rows >= 1, "learned", "rows", "must be at least 1", options_.rows);
    detail::require(options_.dim >= 1, "learned", "dim", "must be at least 1", options_.dim);
    detail::require(size % static_cast<std::size_t>(options_.dim) == 0 &&
                        static_cast<std::int64_t>(size / static_cast<std::size_t>(options_.dim)) == options_.rows,
                    "learned", "table", "must hold rows * dim elements", size);
  }
  template <class U>
  void check_call(const char* function, const view<U>& x, const positions& at) const {
    detail::require(x.dim() == dim(), function, "dim", "must equal the table's", x.dim());
    detail::require(!x.repeats(), function, "x", "must not repeat elements through a stride of 0", "a stride of 0");
    at.check(function, "positions", x.batch(), x.tokens());
    detail::require(at.axis_count() == 1, function, "positions", "must have one axis", at.axis_count());
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) (void)row_of(at(b, t));
  }
  template <class U, class F>
  void for_rows(view<U> x, const positions& at, F&& f) const {
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t)
        for (std::int64_t h = 0; h < x.heads(); ++h)
          f(x.row(b, t, h), x.steps().dim, table().data() + row_of(at(b, t)) * dim());
  }

  learned_options options_;
  std::vector<T> owned_;
  std::span<const T> borrowed_;
  bool owns_ = false;
};

}  // namespace posenc
