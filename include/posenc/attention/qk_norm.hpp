// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// RMS norm of queries and keys over the channels of a head, at its place in the pack:
///   x -> gain * x / sqrt(mean(x^2) + eps), the gain per channel, shared by the heads, its own for q and for k
///   compose(qk_norm, rope)   before the rotation (Qwen3, Gemma 3)
///   compose(rope, qk_norm)   after it (Llama 4, without gain)
/// Order    a gain that differs between channels does not commute with a rotation; without gain the two orders agree as
///          long as the magnitude of the rotation is 1.
/// Keys     transform_k is asked by attention for keys that are cached unrotated. Keys that are cached ready go through
///          `rotate(policy, keys, at)` first, which norms and turns them in pack order.
/// Gains    Gemma stores w with gain 1 + w: hand over one_plus(w). OLMo 2 norms all heads of a token as one vector;
///          that is no transform of one head: apply `normalize_jointly` to q and k before attention, without qk_norm.
/// Error    a few ulp of the compute type; squares must not overflow it (|x| < 1e19 in float).
/// Cost     two passes over the row.
/// Throws   std::invalid_argument for an eps below 1e-37, which float rounds to 0, or gains of another length than the
/// head.

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/scalar.hpp>
#include <posenc/core/view.hpp>
#include <posenc/kernels/tile.hpp>

#include <cmath>
#include <concepts>
#include <span>
#include <vector>

namespace posenc {

namespace detail {

/// n channels `step` apart; `gain` may be null. Returns nothing of the old values.
template <class Arch, class S>
void rms_norm_row(S* x, std::int64_t step, std::int64_t n, double eps, const float* gain) {
  using C = compute_t<S>;
  using std::sqrt;
  if constexpr (simd_storage<S> && std::same_as<S, C>) {
    if (step == 1) {
      const C mean = kernels::dot<Arch>(static_cast<const C*>(x), static_cast<const C*>(x), n) / static_cast<C>(n);
      const C factor = 1 / std::sqrt(mean + static_cast<C>(eps));
      kernels::scale_row<Arch>(x, factor, n);
      if (!gain) return;
      if constexpr (std::same_as<C, float>) {
        simd::for_lanes<Arch, C>(n, [&](std::int64_t i, auto at)
                                        POSENC_LAMBDA_INLINE { at.store(x + i, at.load(x + i) * at.load(gain + i)); });
      } else {
        for (std::int64_t i = 0; i < n; ++i) x[i] *= static_cast<C>(gain[i]);
      }
      return;
    }
  }
  C sum = C(0);
  for (std::int64_t i = 0; i < n; ++i) sum = C(sum + C(widen(x[i * step])) * C(widen(x[i * step])));
  const C root = C(sqrt(C(sum / C(static_cast<double>(n)) + C(eps))));
  for (std::int64_t i = 0; i < n; ++i) {
    const C normed = C(C(widen(x[i * step])) / root);
    x[i * step] = narrow<S>(gain ? C(normed * C(static_cast<double>(gain[i]))) : normed);
  }
}

}  // namespace detail

/// 1 + w for every w.
[[nodiscard]] inline std::vector<float> one_plus(std::span<const float> w) {
  std::vector<float> out(w.begin(), w.end());
  for (float& g : out) g += 1;
  return out;
}

struct qk_norm {
  double eps = 1e-6;
  /// One per channel of a head; empty: no gain.
  std::vector<float> q_gain{};
  std::vector<float> k_gain{};

  template <class C, class Arch = simd::default_arch>
  void transform_q(C* x, std::int64_t dim, const position&, std::int64_t) const {
    detail::rms_norm_row<Arch>(x, 1, dim, eps, gain_of(q_gain));
  }
  template <class C, class Arch = simd::default_arch>
  void transform_k(C* x, std::int64_t dim, const position&, std::int64_t) const {
    detail::rms_norm_row<Arch>(x, 1, dim, eps, gain_of(k_gain));
  }

  /// Every head of every token of x, in place.
  template <class U, class Arch = simd::default_arch>
  void normalize_q(view<U> x) const {
    apply<Arch>("qk_norm::normalize_q", x, q_gain);
  }
  template <class U, class Arch = simd::default_arch>
  void normalize_k(view<U> x) const {
    apply<Arch>("qk_norm::normalize_k", x, k_gain);
  }
  /// The step of keys on their way into a cache, so that `rotate(compose(qk_norm, rope), keys, at)` takes it too.
  template <class U, class Arch = simd::default_arch>
  void rotate(view<U> keys, const positions& = {}) const {
    normalize_k<U, Arch>(keys);
  }

  void check(const call& c) const { check_dim("qk_norm", c.dim, true, true); }

 private:
  static const float* gain_of(const std::vector<float>& gain) noexcept { return gain.empty() ? nullptr : gain.data(); }

  void check_dim(const char* function, std::int64_t dim, bool queries, bool keys) const {
    detail::require(std::isfinite(eps) && eps >= 1e-37, function, "eps", "must be finite and at least 1e-37", eps);
    const auto fits = [&](const std::vector<float>& gain) {
      return gain.empty() || static_cast<std::int64_t>(gain.size()) == dim;
    };
    detail::require(!queries || fits(q_gain), function, "q_gain", "must list one gain per channel of a head",
                    q_gain.size());
    detail::require(!keys || fits(k_gain), function, "k_gain", "must list one gain per channel of a head",
                    k_gain.size());
  }
  template <class Arch, class U>
  void apply(const char* function, const view<U>& x, const std::vector<float>& gain) const {
    if (x.empty()) return;
    check_dim(function, x.dim(), &gain == &q_gain, &gain == &k_gain);
    detail::check_output(x, function, "x");
    for (std::int64_t b = 0; b < x.batch(); ++b)
      for (std::int64_t t = 0; t < x.tokens(); ++t)
        for (std::int64_t h = 0; h < x.heads(); ++h)
          detail::rms_norm_row<Arch>(x.row(b, t, h), x.steps().dim, x.dim(), eps, gain_of(gain));
  }
};

/// All heads of a token as one vector of heads * dim channels (OLMo 2), in place; `gain` lists heads * dim values, head
/// after head, or is empty.
template <class U>
void normalize_jointly(view<U> x, double eps, std::span<const float> gain = {}) {
  const char* function = "normalize_jointly";
  using C = compute_t<U>;
  using std::sqrt;
  if (x.empty()) return;
  const std::int64_t n = x.heads() * x.dim();
  detail::require(std::isfinite(eps) && eps >= 1e-37, function, "eps", "must be finite and at least 1e-37", eps);
  detail::require(gain.empty() || static_cast<std::int64_t>(gain.size()) == n, function, "gain",
                  "must list one gain per channel of every head", gain.size());
  detail::check_output(x, function, "x");
  for (std::int64_t b = 0; b < x.batch(); ++b)
    for (std::int64_t t = 0; t < x.tokens(); ++t) {
      C sum = C(0);
      for (std::int64_t h = 0; h < x.heads(); ++h)
        for (std::int64_t d = 0; d < x.dim(); ++d) sum = C(sum + C(widen(x(b, t, h, d))) * C(widen(x(b, t, h, d))));
      const C root = C(sqrt(C(sum / C(static_cast<double>(n)) + C(eps))));
      for (std::int64_t h = 0; h < x.heads(); ++h)
        for (std::int64_t d = 0; d < x.dim(); ++d) {
          const C normed = C(C(widen(x(b, t, h, d))) / root);
          const auto i = static_cast<std::size_t>(h * x.dim() + d);
          x(b, t, h, d) = narrow<U>(gain.empty() ? normed : C(normed * C(static_cast<double>(gain[i]))));
        }
    }
}

}  // namespace posenc
