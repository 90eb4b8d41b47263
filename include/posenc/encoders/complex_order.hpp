// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Complex-order embedding (Wang et al. 2020): token w at position p becomes the complex vector
///   z = r(w) exp(i (omega(w) p + theta(w))), channel by channel,
/// so that moving a word turns its channels at the word's own frequencies. The score of two of them is
/// Re(q . conj(k)) = sum of re re + im im: the real dot product of [re | im], which any attention computes when both
/// halves lie in one row. Where q and k share omega it depends on the difference of their positions alone.
/// Shapes   r [vocabulary, dim]; omega and theta [vocabulary, dim] or [dim] (shared by all words), theta may be empty
///          (zero). One id per token, for one batch row or for each; the paper counts positions from 1.
/// Domain   int64 positions; |omega|, |theta| up to 2^32.
/// Error    float and double: angles are reduced exactly, values formed in double and rounded once. Other scalars:
///          r cos(omega p + theta) in their own arithmetic, derivatives included.
/// Cost     one angle, one sine and one cosine per channel: 35 to 50 ns per number written; nothing is allocated.
/// Throws   std::out_of_range for a token without a row, std::invalid_argument for other shapes; the whole call is
///          checked before anything is written.
/// Who uses it  the models of the paper; no maintained library has it.
/// Example  examples/absolute_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/positions.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/embedding_rows.hpp>

#include <limits>
#include <span>

namespace posenc {

struct complex_order_options {
  std::int64_t vocabulary = 0;
  /// Complex channels.
  std::int64_t dim = 0;
};

/// The three tables, row-major in the caller's memory, which must outlive the encoder.
template <class T>
struct complex_order_tables {
  std::span<const T> r{};
  std::span<const T> omega{};
  std::span<const T> theta{};
};

/// T is the scalar of the tables.
template <class T = float>
class complex_order {
 public:
  static constexpr encoder_traits traits{.name = "complex_order",
                                         .site = site::input,
                                         .relation = relation::absolute,
                                         .origin = origin::learned,
                                         .translation_invariant = false,
                                         .symmetric = false};

  complex_order(const complex_order_options& o, const complex_order_tables<T>& tables) : options_(o), tables_(tables) {
    constexpr const char* name = "complex_order";
    detail::require(o.vocabulary >= 1, name, "vocabulary", "must be at least 1", o.vocabulary);
    detail::require(o.dim >= 1, name, "dim", "must be at least 1", o.dim);
    detail::require(holds(tables.r.size(), o.vocabulary), name, "r", "must hold vocabulary * dim elements",
                    tables.r.size());
    detail::require(holds(tables.omega.size(), o.vocabulary) || holds(tables.omega.size(), 1), name, "omega",
                    "must hold vocabulary * dim or dim elements", tables.omega.size());
    detail::require(tables.theta.empty() || holds(tables.theta.size(), o.vocabulary) || holds(tables.theta.size(), 1),
                    name, "theta", "must hold vocabulary * dim or dim elements, or none", tables.theta.size());
  }

  /// Writes the real and imaginary parts of each token into every head of two views of one shape: the halves of one
  /// row, or memory of their own. They must not overlap.
  template <class U, detail::integer_list Ids, class Arch = simd::default_arch>
  void lookup(view<U> re, view<U> im, const Ids& tokens, const positions& at) const {
    constexpr const char* function = "complex_order::lookup";
    detail::require(re.extents() == im.extents(), function, "im", "must have the shape of re, dim", im.dim());
    detail::check_ids(function, re, tokens, options_.vocabulary);
    if (re.empty()) return;
    detail::check_rows(function, re, dim());
    detail::check_rows(function, im, dim());
    detail::require(halves(re, im) || detail::separate(re, im), function, "im", "must not overlap re",
                    "overlapping memory");
    detail::check_cover(function, at, re.batch(), re.tokens(), 1);
    for (std::int64_t b = 0; b < re.batch(); ++b)
      for (std::int64_t t = 0; t < re.tokens(); ++t)
        token<Arch>(re, im, b, t, detail::id_of(re, tokens, b, t), at(b, t));
  }

  [[nodiscard]] std::int64_t vocabulary() const noexcept { return options_.vocabulary; }
  [[nodiscard]] std::int64_t dim() const noexcept { return options_.dim; }
  [[nodiscard]] const complex_order_tables<T>& tables() const noexcept { return tables_; }

  [[nodiscard]] encoder_description describe() const {
    const auto parameters = static_cast<std::int64_t>(tables_.r.size() + tables_.omega.size() + tables_.theta.size());
    return {.position_limit = std::nullopt,
            .parameters = parameters,
            .table_bytes = parameters * static_cast<std::int64_t>(sizeof(T)),
            .monotone = false,
            .shift = cache_shift::recompute_keys,
            .shift_reason = "positions turn the input and lie inside the keys"};
  }

 private:
  /// Whether the rows of the two views lie side by side in the rows of one memory: modulo the smallest step between
  /// rows, which divides the others, they take different parts of it.
  template <class U>
  [[nodiscard]] static bool halves(const view<U>& re, const view<U>& im) noexcept {
    const strides& step = re.steps();
    if (step != im.steps() || step.dim < 1) return false;
    const std::int64_t length = (re.dim() - 1) * step.dim + 1;
    const std::int64_t bytes =
        std::abs(reinterpret_cast<std::intptr_t>(im.data()) - reinterpret_cast<std::intptr_t>(re.data()));
    const std::int64_t offset = bytes / static_cast<std::int64_t>(sizeof(U));
    const std::int64_t extent[] = {re.heads(), re.tokens(), re.batch()};
    const std::int64_t outer[] = {step.head, step.token, step.batch};
    std::int64_t period = std::numeric_limits<std::int64_t>::max();
    for (int i = 0; i < 3; ++i)
      if (extent[i] > 1) period = std::min(period, outer[i]);
    if (period < offset + length) return false;
    for (int i = 0; i < 3; ++i)
      if (extent[i] > 1 && outer[i] % period != 0) return false;
    return offset >= length;
  }
  [[nodiscard]] bool holds(std::size_t size, std::int64_t rows) const noexcept {
    const auto n = static_cast<std::int64_t>(size);
    return n % options_.dim == 0 && n / options_.dim == rows;
  }
  /// The row of word w in a table of one row per word or of one row.
  [[nodiscard]] const T* row(std::span<const T> table, std::int64_t w) const noexcept {
    return table.data() + (static_cast<std::int64_t>(table.size()) == options_.dim ? 0 : w * options_.dim);
  }

  template <class Arch, class U>
  void token(const view<U>& re, const view<U>& im, std::int64_t b, std::int64_t t, std::int64_t w,
             std::int64_t p) const {
    constexpr std::int64_t block = 64;
    const T* r = row(tables_.r, w);
    const T* omega = row(tables_.omega, w);
    const T* theta = tables_.theta.empty() ? nullptr : row(tables_.theta, w);
    for (std::int64_t d = 0; d < dim(); d += block) {
      const std::int64_t n = std::min(block, dim() - d);
      if constexpr (simd_storage<T>) {
        alignas(64) double cosine[block];
        alignas(64) double sine[block];
        const auto phase_of = [&](std::int64_t i) {
          const std::uint64_t turned =
              math::phase(math::turns(math::double_double(static_cast<double>(widen(omega[d + i])))), p);
          if (theta == nullptr) return turned;
          return turned + math::turns(math::double_double(static_cast<double>(widen(theta[d + i])))).fraction;
        };
        kernels::cos_sin_row_of<Arch, kernels::row_form::separate>(phase_of, n, 1.0, 1.0, cosine, sine);
        for (std::int64_t i = 0; i < n; ++i) {
          cosine[i] *= static_cast<double>(widen(r[d + i]));
          sine[i] *= static_cast<double>(widen(r[d + i]));
        }
        detail::put_row<Arch, false>(re, b, t, d, cosine, n);
        detail::put_row<Arch, false>(im, b, t, d, sine, n);
      } else {
        using std::cos;
        using std::sin;
        for (std::int64_t i = 0; i < n; ++i) {
          const T turned = omega[d + i] * T(static_cast<double>(p));
          const T angle = theta == nullptr ? turned : T(turned + theta[d + i]);
          const T x = r[d + i] * cos(angle);
          const T y = r[d + i] * sin(angle);
          detail::put_row<Arch, false>(re, b, t, d + i, &x, 1);
          detail::put_row<Arch, false>(im, b, t, d + i, &y, 1);
        }
      }
    }
  }

  complex_order_options options_;
  complex_order_tables<T> tables_;
};

}  // namespace posenc
