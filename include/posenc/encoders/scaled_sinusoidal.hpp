// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Sinusoidal encoding times a learned scalar: x += scale * PE(position). A designed table has rows of norm
/// sqrt(dim / 2); x-transformers starts the scale at dim^(-1/2), which makes that 1 / sqrt(2), and trains it.
/// Domain   every int64 position and real ones within +-10^15.
/// Error    scale * row is formed in double and rounded once, for float and double; the sum is rounded once more.
/// Cost     3 to 5 ns per channel at integer positions; two rows are allocated per call.
/// Throws   std::invalid_argument for impossible options or a view of another dim, before anything is written.
/// Gradient d scale = the sum of g . PE(position) over the tokens; S may be an autodiff scalar.
/// Who uses it  x-transformers (ScaledSinusoidalEmbedding), Transformer TTS and ESPnet (ScaledPositionalEncoding).
/// Example  examples/absolute_example.cpp

#include <posenc/core/positions.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/embedding_rows.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include <cmath>
#include <vector>

namespace posenc {

/// S is the type of the learned scale: float, double or an autodiff scalar.
template <class S = float>
class scaled_sinusoidal {
 public:
  static constexpr encoder_traits traits{.name = "scaled_sinusoidal",
                                         .site = site::input,
                                         .relation = relation::absolute,
                                         .origin = origin::learned,
                                         .translation_invariant = false,
                                         .symmetric = false};

  /// `options.scale` is a constant factor besides the learned one.
  scaled_sinusoidal(const sinusoidal_options& options, const S& scale) : rows_(options), scale_(scale) {}
  /// With the scale dim^(-1/2) of x-transformers.
  explicit scaled_sinusoidal(const sinusoidal_options& options)
      : rows_(options), scale_(static_cast<S>(1 / std::sqrt(static_cast<double>(options.dim)))) {}

  /// Adds scale times the row of each token's position to every head of x.
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, const positions& at = {}) const {
    apply<Arch, true>("scaled_sinusoidal::embed", x, at);
  }
  template <class U, class Arch = simd::default_arch>
  void embed(view<U> x, const real_positions& at) const {
    apply<Arch, true>("scaled_sinusoidal::embed", x, at);
  }
  /// Writes scale times the rows.
  template <class U, class Arch = simd::default_arch>
  void table(view<U> out, const positions& at = {}) const {
    apply<Arch, false>("scaled_sinusoidal::table", out, at);
  }
  template <class U, class Arch = simd::default_arch>
  void table(view<U> out, const real_positions& at) const {
    apply<Arch, false>("scaled_sinusoidal::table", out, at);
  }

  [[nodiscard]] std::int64_t dim() const noexcept { return rows_.dim(); }
  /// The learned scale; assign to it between steps of training.
  [[nodiscard]] const S& scale() const noexcept { return scale_; }
  [[nodiscard]] S& scale() noexcept { return scale_; }
  [[nodiscard]] const sinusoidal<double>& rows() const noexcept { return rows_; }

  [[nodiscard]] encoder_description describe() const {
    encoder_description d = rows_.describe();
    d.parameters = 1;
    return d;
  }

 private:
  template <class Arch, bool Add, class U, class At>
  void apply(const char* function, view<U> x, const At& at) const {
    if (x.empty()) return;
    detail::check_rows(function, x, dim());
    detail::check_cover(function, at, x.batch(), x.tokens(), 1);
    using R = std::conditional_t<std::is_arithmetic_v<S>, double, S>;
    using C = std::conditional_t<std::is_arithmetic_v<S>, detail::row_type<Add, U>, S>;
    const R scale(scale_);
    std::vector<double> row(static_cast<std::size_t>(dim()));
    std::vector<C> scaled(row.size());
    const view<double> one(row.data(), {.tokens = 1, .dim = dim()});
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t) {
        one_row<Arch>(one, at, b, t);
        for (std::size_t d = 0; d < row.size(); ++d) scaled[d] = C(scale * row[d]);
        detail::put_row<Arch, Add>(x, b, t, 0, scaled.data(), dim());
      }
  }
  template <class Arch>
  void one_row(const view<double>& out, const positions& at, std::int64_t b, std::int64_t t) const {
    rows_.template table<double, Arch>(out, positions::from(at(b, t)));
  }
  template <class Arch>
  void one_row(const view<double>& out, const real_positions& at, std::int64_t, std::int64_t t) const {
    const double p = at[t];
    rows_.template table<double, Arch>(out, real_positions(std::span(&p, 1)));
  }

  sinusoidal<double> rows_;
  S scale_;
};

}  // namespace posenc
