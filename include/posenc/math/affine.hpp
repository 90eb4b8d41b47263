// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Small dense layers by which encoders turn weights into tables: y = W x + b with W [out, in], row-major.
/// Cost     out * in multiply-adds, one at a time: for tables that are made once, and for gates of a few outputs.

#include <posenc/core/error.hpp>
#include <posenc/core/scalar.hpp>
#include <posenc/core/view.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace posenc::math {

/// What tables are computed in before they are rounded once: double for float and 16-bit storage, else the type itself.
template <class T>
using table_t = std::conditional_t<std::is_same_v<compute_t<T>, float>, double, compute_t<T>>;

/// out[o] = sum_i weight[o, i] x[i * step] + bias[o]; an empty bias counts as zeros. The sum runs in order of i.
template <class W, class X, class N>
void affine(const X* x, std::int64_t step, std::int64_t in, std::span<const W> weight, std::span<const W> bias,
            std::span<N> out) {
  for (std::size_t o = 0; o < out.size(); ++o) {
    const W* w = weight.data() + o * static_cast<std::size_t>(in);
    N sum = bias.empty() ? N(0) : N(widen(bias[o]));
    for (std::int64_t i = 0; i < in; ++i) sum = N(sum + N(widen(w[i])) * N(widen(x[i * step])));
    out[o] = sum;
  }
}

/// The same for every token of x [batch, token, 1, in]; out [batch, token, heads, n] takes the heads * n outputs in
/// order. Computed in `table_t`, rounded once. @throws std::invalid_argument in the name of `function`.
template <class X, class W, class O>
void affine_rows(std::string_view function, const view<X>& x, std::span<const W> weight, std::span<const W> bias,
                 const view<O>& out) {
  using N = table_t<W>;
  const auto outputs = static_cast<std::size_t>(out.heads() * out.dim());
  posenc::detail::require(x.heads() == 1, function, "x heads", "must be 1: the heads come out of the weights",
                          x.heads());
  posenc::detail::require(out.batch() == x.batch() && out.tokens() == x.tokens(), function, "out",
                          "must have the batch and tokens of x", out.tokens());
  posenc::detail::require(weight.size() == outputs * static_cast<std::size_t>(x.dim()), function, "weight",
                          "must hold one row of x's dim per output", weight.size());
  posenc::detail::require(bias.empty() || bias.size() == outputs, function, "bias", "must hold one value per output",
                          bias.size());
  posenc::detail::check_output(out, function);
  posenc::detail::check_outside(x, out, function, "x");
  std::vector<N> y(outputs);
  for (std::int64_t b = 0; b < x.batch(); ++b)
    for (std::int64_t t = 0; t < x.tokens(); ++t) {
      affine(x.row(b, t, 0), x.steps().dim, x.dim(), weight, bias, std::span<N>(y));
      for (std::int64_t h = 0; h < out.heads(); ++h)
        for (std::int64_t d = 0; d < out.dim(); ++d)
          out(b, t, h, d) = narrow<O>(y[static_cast<std::size_t>(h * out.dim() + d)]);
    }
}

/// 1 / (1 + e^-x), without overflow at either end.
template <class N>
[[nodiscard]] N sigmoid(const N& x) {
  using std::exp;
  if (x < N(0)) {
    const N e = N(exp(x));
    return N(e / (N(1) + e));
  }
  return N(N(1) / (N(1) + N(exp(N(-x)))));
}

/// ln(sigmoid(x)) = min(x, 0) - ln(1 + e^-|x|): no overflow, and no cancellation for large |x|.
template <class N>
[[nodiscard]] N log_sigmoid(const N& x) {
  using std::exp;
  using std::log1p;
  if (x < N(0)) return N(x - N(log1p(N(exp(x)))));
  return N(-N(log1p(N(exp(N(-x))))));
}

}  // namespace posenc::math
