// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// One attention from several: the keys of a sequence lie in parts (shards on other machines, a shared prefix, pieces
/// of a long cache), each is attended on its own with `.lse`, and the results are brought together exactly.
///   w_p = e^(lse_p - max lse)      out = sum_p w_p out_p / sum_p w_p      lse = max lse + ln sum_p w_p
/// Shapes   out [batch, query, head, dim], lse [batch, query, head, 1]; any strides. out is float, double, half or
///          bfloat16, lse is float or double, each argument its own. Weights and sums are formed in double.
/// Rules    a part with lse = -inf saw no key and leaves the others bit for bit, whatever its out holds; without any
///          key the row is zeros and -inf. A part whose weight rounds to 0 in the compute type (float, double where an
///          out is double) adds nothing, not even NaN or Inf, as a key of no weight does. Else NaN stays in its
///          channel, and a NaN or +inf among the lse of a row makes that row NaN.
/// Shards   keys keep their global positions, so that masks and biases know the distance. Of the parts, one counts the
///          sink: `.count_sink = false` in the others. A scale that asks how many keys a row sees (ssmax) is given the
///          number in all parts: `.visible_keys`. A policy that needs whole rows of logits can not be split.
/// Error    one rounding of out and of lse to their types (to 16 bits by way of float; four of the largest where the
///          type is double), beyond what the lse were off: e in one of two lse moves out by at most e/2 max|out|.
///          Several parts are better merged at once: a fold rounds out at every step, and its bits depend on the order;
///          at once the order moves sums of doubles alone, which seldom reaches a float.
/// Cost     memory: each out_p read once, out written once; per part, row and 64 channels one exp. Allocates nothing.
/// Throws   std::invalid_argument for shapes that differ, or a result that overlaps another argument, before anything
///          is written.
/// Example  examples/threads_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/scalar.hpp>
#include <posenc/core/view.hpp>
#include <posenc/simd/loop.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

namespace posenc {

/// What one call of attention gave: O is the storage of out, L that of lse.
template <class O, class L = compute_t<O>>
struct attention_part {
  view<const O> out{};
  view<const L> lse{};
};

namespace detail {

template <class O, class L>
void check_part(const char* function, const char* name, const view<O>& out, const view<L>& lse, const shape& result) {
  require(out.extents() == result, function, name, "must have the shape of the result, here the dim", out.dim());
  shape rows = result;
  rows.dim = 1;
  require(lse.extents() == rows, function, name, "must have an lse of the shape [batch, query, head, 1], here the dim",
          lse.dim());
}

template <class O, class L>
void check_result(const char* function, const view<O>& out, const view<L>& lse) {
  check_output(out, function, "out");
  check_output(lse, function, "lse");
  require(out.empty() || lse.empty() || separate(out, lse), function, "lse", "must not overlap out",
          "overlapping memory");
}

template <class Arch, class F>
void for_rows(const shape& s, F&& f) {
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t t = 0; t < s.tokens; ++t)
      for (std::int64_t h = 0; h < s.heads; ++h) f(b, t, h);
}

/// Channels that are summed at a time.
inline constexpr std::int64_t merge_block = 64;

/// sum[i] += weight * x[i * step], n <= merge_block. Loops over native types of step 1 are vectorised by compilers, the
/// conversions of 16-bit types are not.
template <class Arch, class T>
void add_weighted(double* sum, double weight, const T* x, std::int64_t step, std::int64_t n) {
  if (step != 1) {
    for (std::int64_t i = 0; i < n; ++i) sum[i] += weight * static_cast<double>(widen(x[i * step]));
  } else if constexpr (format_of<T> == format::native) {
    for (std::int64_t i = 0; i < n; ++i) sum[i] += weight * static_cast<double>(x[i]);
  } else {
    float wide[merge_block];
    simd::for_lanes<Arch, float>(
        n, [&](std::int64_t i, auto at) POSENC_LAMBDA_INLINE { at.store(wide + i, at.load(x + i)); });
    for (std::int64_t i = 0; i < n; ++i) sum[i] += weight * static_cast<double>(wide[i]);
  }
}
template <class Arch, class O>
void write_sums(const double* sum, O* out, std::int64_t step, std::int64_t n) {
  if (step != 1) {
    for (std::int64_t i = 0; i < n; ++i) out[i * step] = narrow<O>(sum[i]);
  } else if constexpr (format_of<O> == format::native) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<O>(sum[i]);
  } else {
    float wide[merge_block];
    for (std::int64_t i = 0; i < n; ++i) wide[i] = round_to_odd(sum[i]);  // so that 16 bits are rounded to once
    simd::for_lanes<Arch, float>(
        n, [&](std::int64_t i, auto at) POSENC_LAMBDA_INLINE { at.store(out + i, at.load(wide + i)); });
  }
}

/// One row of parts that give lse(p) and add(p, weight, first channel, n, sum). The result may lie where a part lies:
/// channels are read before they are written, and the lse is written last.
template <class Arch, class C, class O, class L, class Parts>
void merge_row(std::int64_t count, const Parts& parts, O* out, std::int64_t step, std::int64_t dim, L& lse) {
  constexpr double lowest = -std::numeric_limits<double>::infinity();
  double highest = lowest;
  for (std::int64_t p = 0; p < count && highest == highest; ++p)
    if (!(parts.lse(p) <= highest)) highest = parts.lse(p);  // a NaN too
  if (highest == lowest) {
    for (std::int64_t d = 0; d < dim; ++d) out[d * step] = narrow<O>(0.0);
    lse = narrow<L>(lowest);
    return;
  }
  double total = 0;
  for (std::int64_t p = 0; p < count; ++p)
    if (parts.lse(p) != lowest) total += std::exp(parts.lse(p) - highest);

  double sum[merge_block];
  for (std::int64_t first = 0; first < dim; first += merge_block) {
    const std::int64_t n = std::min(merge_block, dim - first);
    std::fill_n(sum, n, -0.0);  // -0 + x is x, the sign of zero included
    for (std::int64_t p = 0; p < count; ++p) {
      if (parts.lse(p) == lowest) continue;
      const double weight = std::exp(parts.lse(p) - highest) / total;
      if (static_cast<C>(weight) != 0) parts.add(p, weight, first, n, sum);
    }
    write_sums<Arch>(sum, out + first * step, step, n);
  }
  lse = narrow<L>(total == 1 ? highest : highest + std::log(total));
}

template <class... T>
using merge_compute_t = std::conditional_t<(std::same_as<compute_t<T>, double> || ...), double, float>;

}  // namespace detail

/// Brings part b into part a: out_a and lse_a become those of attention over the keys of both. See the file comment.
template <class O, class L, class P, class M, class Arch = simd::default_arch>
  requires simd_storage<O> && simd_scalar<L> && simd_storage<P> && simd_scalar<M>
void merge(view<O> out_a, view<L> lse_a, view<P> out_b, view<M> lse_b) {
  constexpr const char* function = "merge";
  detail::check_part(function, "a", out_a, lse_a, out_a.extents());
  detail::check_part(function, "b", out_b, lse_b, out_a.extents());
  detail::check_result(function, out_a, lse_a);
  detail::check_outside(out_b, out_a, function, "out_b");
  detail::check_outside(lse_b, out_a, function, "lse_b");
  detail::check_outside(out_b, lse_a, function, "out_b");
  detail::check_outside(lse_b, lse_a, function, "lse_b");

  struct two {
    double lse_of[2];
    const O* a;
    const P* b;
    std::int64_t step_a, step_b;
    [[nodiscard]] double lse(std::int64_t p) const noexcept { return lse_of[p]; }
    void add(std::int64_t p, double weight, std::int64_t first, std::int64_t n, double* sum) const {
      if (p == 0) {
        detail::add_weighted<Arch>(sum, weight, a + first * step_a, step_a, n);
      } else {
        detail::add_weighted<Arch>(sum, weight, b + first * step_b, step_b, n);
      }
    }
  };
  constexpr double lowest = -std::numeric_limits<double>::infinity();
  detail::for_rows<Arch>(out_a.extents(), [&](std::int64_t b, std::int64_t t, std::int64_t h) {
    const two rows{{static_cast<double>(lse_a(b, t, h, 0)), static_cast<double>(lse_b(b, t, h, 0))},
                   out_a.row(b, t, h),
                   out_b.row(b, t, h),
                   out_a.steps().dim,
                   out_b.steps().dim};
    if (rows.lse_of[1] == lowest && rows.lse_of[0] != lowest) return;
    detail::merge_row<Arch, detail::merge_compute_t<O, P>>(2, rows, out_a.row(b, t, h), out_a.steps().dim, out_a.dim(),
                                                           lse_a(b, t, h, 0));
  });
}

/// All parts at once, into a result that lies apart from them. No part at all: zeros and -inf.
template <class P, class M, class O, class L, class Arch = simd::default_arch>
  requires simd_storage<P> && simd_scalar<M> && simd_storage<O> && simd_scalar<L>
void merge(std::span<const attention_part<P, M>> parts, view<O> out, view<L> lse) {
  constexpr const char* function = "merge";
  detail::check_part(function, "out", out, lse, out.extents());
  detail::check_result(function, out, lse);
  for (const auto& part : parts) {
    detail::check_part(function, "a part", part.out, part.lse, out.extents());
    detail::check_outside(part.out, out, function, "a part");
    detail::check_outside(part.lse, out, function, "the lse of a part");
    detail::check_outside(part.out, lse, function, "a part");
    detail::check_outside(part.lse, lse, function, "the lse of a part");
  }
  struct several {
    std::span<const attention_part<P, M>> parts;
    std::int64_t b, t, h;
    [[nodiscard]] double lse(std::int64_t p) const noexcept {
      return static_cast<double>(parts[static_cast<std::size_t>(p)].lse(b, t, h, 0));
    }
    void add(std::int64_t p, double weight, std::int64_t first, std::int64_t n, double* sum) const {
      const view<const P>& x = parts[static_cast<std::size_t>(p)].out;
      detail::add_weighted<Arch>(sum, weight, x.row(b, t, h) + first * x.steps().dim, x.steps().dim, n);
    }
  };
  detail::for_rows<Arch>(out.extents(), [&](std::int64_t b, std::int64_t t, std::int64_t h) {
    detail::merge_row<Arch, detail::merge_compute_t<O, P>>(static_cast<std::int64_t>(parts.size()),
                                                           several{parts, b, t, h}, out.row(b, t, h), out.steps().dim,
                                                           out.dim(), lse(b, t, h, 0));
  });
}

}  // namespace posenc
