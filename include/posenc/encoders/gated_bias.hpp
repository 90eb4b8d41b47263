// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Another bias times a number per query and head,
///   gated(b, h, i, j) = gate[b, i, h] * bias(h, i, j),
/// and the gates of WavLM (Chen et al. 2022) from a layer's input x split into heads of d channels,
///   y = W x_h + c (8 numbers), a = sigmoid(y0 + .. + y3), b = sigmoid(y4 + .. + y7), gate = a (b constant_h - 1) + 2.
/// W and c are shared by the heads, `constant` is one number per head; the bias is the model's, the gates the layer's.
/// Both the bias and the gates are the caller's and must outlive the part. Any part whose `row` adds a bias fits.
/// Domain   that of the bias. Error: one product. Cost: one multiply-add per logit more than the bias.
/// Throws   std::invalid_argument for gates of another shape, std::out_of_range from add_bias_row beyond them.
/// Who uses it  WavLM (buckets 320, distance 800, bidirectional; scale 1 / sqrt(d)).
/// Example  examples/gate_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/math/affine.hpp>

#include <array>

namespace posenc {

/// weight [8, d], bias [8], constant [heads].
template <class T>
struct wavlm_gate_weights {
  std::span<const T> weight{};
  std::span<const T> bias{};
  std::span<const T> constant{};
};

/// gates[b, i, h, 0] from x [batch, token, head, d]; computed in double (see math::table_t), rounded once.
/// @throws std::invalid_argument for shapes that do not fit.
template <class T, class X, class G>
void wavlm_gates(const wavlm_gate_weights<T>& w, const view<X>& x, const view<G>& gates) {
  using N = math::table_t<T>;
  const char* function = "wavlm_gates";
  detail::require(w.weight.size() == 8 * static_cast<std::size_t>(x.dim()), function, "weight",
                  "must hold 8 rows of x's dim", w.weight.size());
  detail::require(w.bias.size() == 8, function, "bias", "must hold 8 values", w.bias.size());
  detail::require(static_cast<std::int64_t>(w.constant.size()) == x.heads(), function, "constant",
                  "must hold one value per head", w.constant.size());
  detail::require(gates.extents() == shape{x.batch(), x.tokens(), x.heads(), 1}, function, "gates",
                  "must have the shape [batch, token, head, 1]", gates.dim());
  detail::check_output(gates, function, "gates");
  detail::check_outside(x, gates, function, "x");
  std::array<N, 8> y;
  for (std::int64_t b = 0; b < x.batch(); ++b)
    for (std::int64_t t = 0; t < x.tokens(); ++t)
      for (std::int64_t h = 0; h < x.heads(); ++h) {
        math::affine(x.row(b, t, h), x.steps().dim, x.dim(), w.weight, w.bias, std::span<N>(y));
        const N first = math::sigmoid(N(N(y[0] + y[1]) + N(y[2] + y[3])));
        const N second = math::sigmoid(N(N(y[4] + y[5]) + N(y[6] + y[7])));
        const N constant = N(widen(w.constant[static_cast<std::size_t>(h)]));
        gates(b, t, h, 0) = narrow<G>(N(first * N(second * constant - N(1)) + N(2)));
      }
}

namespace detail {
/// The row of a part whose `row` adds a bias, times the gate.
template <class B, class Bias, class G, class Keys>
auto gated_row(const Bias& bias, const view<const G>& gates, const row& r, const Keys& keys) {
  using L = lanes<B>;
  if (r.batch >= gates.batch() || r.query_index >= gates.tokens() || r.head >= gates.heads())
    outside("gated_bias", "query", "must lie inside the gates, query index", r.query_index);
  const B gate = L::broadcast(widen(gates(r.batch, r.query_index, r.head, 0)));
  return [op = bias.template row<B>(r, keys), gate](const B& s, std::int64_t k) {
    const B added = op(L::broadcast(typename L::scalar(0)), k);
    return B(s + gate * added);
  };
}
/// What a bias that binds per call has bound.
template <class Bound, class G>
struct bound_gate {
  Bound bias;
  view<const G> gates;
  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
    return gated_row<B>(bias, gates, r, keys);
  }
};
}  // namespace detail

template <class Bias, class G = float>
class gated_bias {
 public:
  static constexpr encoder_traits traits{.name = "gated_bias",
                                         .site = site::logit,
                                         .relation = Bias::traits.relation,
                                         .origin = origin::learned,
                                         .translation_invariant = Bias::traits.translation_invariant,
                                         .symmetric = false};
  static_assert(has_row<Bias, float, listed_keys> || has_bind<Bias>,
                "posenc: gated_bias multiplies a part that adds a bias by `row`; this part has no such hook");

  /// gates [batch, query, head, 1].
  gated_bias(const Bias& bias, view<const G> gates) : bias_(&bias), gates_(gates) {
    detail::require(gates.dim() == 1, "gated_bias", "gates", "must have the shape [batch, query, head, 1], dim",
                    gates.dim());
  }
  gated_bias(const Bias&& bias, view<const G> gates) = delete;  // the bias would be gone with the temporary

  template <class B, class Keys>
    requires has_row<Bias, B, Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
    return detail::gated_row<B>(*bias_, gates_, r, keys);
  }
  [[nodiscard]] std::size_t workspace_bytes(const call& c) const requires has_bind<Bias> {
    return bias_->workspace_bytes(c);
  }
  template <class Arch = void>
  [[nodiscard]] auto bind(std::byte* memory, const call& c) const requires has_bind<Bias> {
    if constexpr (requires { bias_->template bind<Arch>(memory, c); }) {
      return detail::bound_gate<decltype(bias_->template bind<Arch>(memory, c)), G>{
          bias_->template bind<Arch>(memory, c), gates_};
    } else {
      return detail::bound_gate<decltype(bias_->bind(memory, c)), G>{bias_->bind(memory, c), gates_};
    }
  }

  void check(const call& c) const {
    detail::require(gates_.extents() == shape{c.batch, c.queries, c.heads, 1}, "gated_bias", "gates",
                    "must have the batch, queries and heads of the call, tokens", gates_.tokens());
    if constexpr (requires { bias_->check(c); }) bias_->check(c);
  }
  [[nodiscard]] std::int64_t heads() const noexcept { return gates_.heads(); }

  [[nodiscard]] encoder_description describe() const {
    encoder_description d = bias_->describe();
    d.monotone = false;
    return d;
  }

 private:
  const Bias* bias_;
  view<const G> gates_;
};

template <class Bias, class G>
gated_bias(const Bias&, view<G>) -> gated_bias<Bias, std::remove_const_t<G>>;

}  // namespace posenc
