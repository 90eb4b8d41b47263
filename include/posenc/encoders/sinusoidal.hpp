// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Sinusoidal encoding (Vaswani et al. 2017), added to the token embedding: with w(k) = base^(-k / den) and
/// a = (position + start) * w(k), channel pairs hold scale * sin a and scale * cos a.
/// Norm     for even dim every row has |row|^2 = scale^2 * dim / 2: embeddings of norm 1 drown in it unless they are
///          multiplied by sqrt(dim), as the original model does.
/// Domain   every int64 position and real ones within +-10^15; no table, so no length limit.
/// Error    each value is rounded once from double to the compute type of the data; one rounding of the sum.
/// Cost     about 2 ns per channel; nothing is allocated.
/// Throws   std::invalid_argument for impossible options or a view of another dim, before anything is written.
/// Who uses it  the Transformer, Marian, M2M100, Whisper's encoder, MusicGen, MAE; every one its own layout.
/// Example  examples/sinusoidal_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/positions.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/embedding_rows.hpp>
#include <posenc/math/frequencies.hpp>

#include <cmath>
#include <optional>
#include <vector>

namespace posenc {

/// Order of the channels of a row.
enum class sinusoidal_layout { interleaved_sin_cos, interleaved_cos_sin, concat_sin_cos, concat_cos_sin };

/// den, the denominator of the exponents, with h = floor(dim / 2).
enum class sinusoidal_denominator {
  /// h: the paper, XLNet, MAE, Hugging Face Marian.
  half,
  /// h - 1 (w(0) = 1 where that is 0): tensor2tensor, fairseq, marian-dev, Whisper, CTranslate2.
  half_minus_1
};

/// What an odd dim means.
enum class sinusoidal_odd {
  /// One zero channel at the end (tensor2tensor, fairseq).
  zero_pad,
  /// The row of dim + 1, cut (multidim-positional-encoding).
  truncate,
  /// ceil(dim / 2) sines and floor(dim / 2) cosines, both with w(k) = base^(-2k / dim) (Hugging Face Marian); with
  /// interleaved_sin_cos the row ends in a lone sine, with interleaved_cos_sin in a lone cosine.
  split
};

struct sinusoidal_options {
  std::int64_t dim = 0;
  double base = 10000;
  sinusoidal_layout layout = sinusoidal_layout::interleaved_sin_cos;
  sinusoidal_denominator denominator = sinusoidal_denominator::half;
  sinusoidal_odd odd = sinusoidal_odd::split;
  /// Added to every position: 1 in CTranslate2, padding_idx + 1 in fairseq.
  std::int64_t start = 0;
  double scale = 1;
  /// Tokens at this position (before `start` is added) get a row of zeros.
  std::optional<std::int64_t> padding_idx{};
};

/// T is the scalar of `table(first, rows)`; data of any type is embedded under any T.
template <class T = float>
class sinusoidal {
 public:
  static constexpr encoder_traits traits{.name = "sinusoidal",
                                         .site = site::input,
                                         .relation = relation::absolute,
                                         .origin = origin::designed,
                                         .translation_invariant = false,
                                         .symmetric = false};

  explicit sinusoidal(const sinusoidal_options& o) : options_(o) {
    detail::require(o.dim >= 1, "sinusoidal", "dim", "must be at least 1", o.dim);
    detail::require(std::isfinite(o.base) && o.base > 0, "sinusoidal", "base", "must be positive and finite", o.base);
    detail::require(std::isfinite(o.scale), "sinusoidal", "scale", "must be finite", o.scale);
    const bool odd = o.dim % 2 != 0;
    const bool split = odd && o.odd == sinusoidal_odd::split;
    const std::int64_t half = odd && o.odd == sinusoidal_odd::truncate ? (o.dim + 1) / 2 : o.dim / 2;
    sines_ = split ? (o.dim + 1) / 2 : half;
    cosines_ = half;
    const double den = split ? static_cast<double>(o.dim) / 2
                             : static_cast<double>(o.denominator == sinusoidal_denominator::half ? half : half - 1);
    for (const auto& f : math::ladder(o.base, sines_, den)) steps_.emplace_back(f);
  }

  /// Adds the row of each token's position to every head of x (heads share it), in place.
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, const positions& at = {}) const {
    apply<Arch, true>("sinusoidal::embed", x, at);
  }
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, const real_positions& at) const {
    apply<Arch, true>("sinusoidal::embed", x, at);
  }
  /// Writes the rows themselves.
  template <class U, class Arch = simd::default_arch>
  void table(view<U> out, const positions& at = {}) const {
    apply<Arch, false>("sinusoidal::table", out, at);
  }
  template <class U, class Arch = simd::default_arch>
  void table(view<U> out, const real_positions& at) const {
    apply<Arch, false>("sinusoidal::table", out, at);
  }

  /// The rows of the positions first .. first + rows - 1, row-major.
  [[nodiscard]] std::vector<T> table(std::int64_t first, std::int64_t rows) const {
    detail::require(rows >= 0, "sinusoidal::table", "rows", "must not be negative", rows);
    std::vector<T> out(static_cast<std::size_t>(rows * dim()));
    table(view<T>(out.data(), {.tokens = rows, .dim = dim()}), positions::from(first));
    return out;
  }

  [[nodiscard]] std::int64_t dim() const noexcept { return options_.dim; }
  [[nodiscard]] const sinusoidal_options& options() const noexcept { return options_; }

  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = 0,
            .table_bytes = static_cast<std::int64_t>(steps_.size() * sizeof(math::turns)),
            .monotone = false,
            .shift = cache_shift::recompute_keys,
            .shift_reason = "rows are added to the input and lie inside the keys"};
  }

 private:
  /// Integer positions wrap as their phases do, which keeps the sum exact.
  [[nodiscard]] std::int64_t started(std::int64_t p) const noexcept {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(p) + static_cast<std::uint64_t>(options_.start));
  }
  [[nodiscard]] double started(double p) const noexcept { return p + static_cast<double>(options_.start); }
  template <class Arch, bool Add, class U, class At>
  void apply(const char* function, view<U> x, const At& at) const {
    if (x.empty()) return;
    detail::check_rows(function, x, dim());
    detail::check_cover(function, at, x.batch(), x.tokens(), 1);
    const detail::sine_place place = places();
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) {
        const auto p = detail::coordinates(at, b, t)[0];
        const bool padding = options_.padding_idx && p == static_cast<decltype(p)>(*options_.padding_idx);
        if constexpr (!Add)
          if (padding || sines_ + cosines_ < dim()) detail::clear_row(x, b, t);
        if (!padding) detail::put_sines<Arch, Add>(x, b, t, steps_.data(), place, options_.scale, started(p));
      }
  }

  [[nodiscard]] detail::sine_place places() const noexcept {
    switch (options_.layout) {
      case sinusoidal_layout::concat_sin_cos: return {0, sines_, 1, sines_, cosines_};
      case sinusoidal_layout::concat_cos_sin: return {cosines_, 0, 1, sines_, cosines_};
      case sinusoidal_layout::interleaved_sin_cos: return {0, 1, 2, sines_, cosines_};
      // A lone last pair of an odd dim is a cosine here.
      default: return {1, 0, 2, sines_, sines_};
    }
  }

  sinusoidal_options options_;
  std::int64_t sines_ = 0;
  std::int64_t cosines_ = 0;
  std::vector<math::turns> steps_;
};

}  // namespace posenc
