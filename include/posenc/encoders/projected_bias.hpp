// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A bias made of a few learned functions of the distance, mixed by the query's content:
///   bias(b, h, i, j) = sum_m weight[b, i, h, m] * bank[m, pos_q(i) - pos_k(j)], 0 unless 0 <= pos_q - pos_k < reach,
/// with weights that the layer projects from its input (x-transformers' RelativeProjPositionalBias, 16 functions). The
/// bank is kept per model, the weights are the layer's; both are the caller's and must outlive the part.
/// Domain   every int64 position. Error: m products in the scalar of the logits.
/// Cost     m * (reach + 32) * sizeof(T) bytes; m multiply-adds per batch of logits inside the reach, nothing outside.
/// Throws   std::invalid_argument for a bank or weights that do not fit, std::out_of_range from add_bias_row beyond the
///          weights.
/// Who uses it  Inkling-style models of x-transformers.
/// Example  examples/gate_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/scalar.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/math/affine.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace posenc {

/// Weights from the layer's input: out [batch, token, head, m] = weight [heads * m, width] x[b, t] + bias.
template <class W, class X, class O>
void project_weights(const view<X>& x, std::span<const W> weight, std::span<const W> bias, const view<O>& out) {
  math::affine_rows("project_weights", x, weight, bias, out);
}

/// m functions of the distances 0 .. reach - 1.
template <class T = float>
class projected_bank {
 public:
  /// `bank` is [functions, reach]; it is copied.
  projected_bank(std::int64_t functions, std::int64_t reach, std::span<const T> bank)
      : functions_(functions), reach_(reach) {
    detail::require(functions >= 1, "projected_bank", "functions", "must be at least 1", functions);
    detail::require(reach >= 1, "projected_bank", "reach", "must be at least 1", reach);
    detail::require(bank.size() % static_cast<std::size_t>(functions) == 0 &&
                        static_cast<std::int64_t>(bank.size()) / functions == reach,
                    "projected_bank", "bank", "must hold functions * reach values", bank.size());
    lines_.assign(static_cast<std::size_t>(functions * length()), T(0));
    // By ascending key, so that a row is a slice: the largest distance first, zeros on both sides.
    for (std::int64_t m = 0; m < functions; ++m)
      for (std::int64_t d = 0; d < reach; ++d)
        lines_[static_cast<std::size_t>(m * length() + lane_slack + reach - 1 - d)] =
            bank[static_cast<std::size_t>(m * reach + d)];
  }

  [[nodiscard]] std::int64_t functions() const noexcept { return functions_; }
  [[nodiscard]] std::int64_t reach() const noexcept { return reach_; }
  [[nodiscard]] std::int64_t length() const noexcept { return reach_ + 2 * lane_slack; }
  /// The value of function m at key - query = 0; -(reach - 1) - lane_slack .. lane_slack may be read around it.
  [[nodiscard]] const T* line(std::int64_t m) const noexcept {
    return lines_.data() + m * length() + lane_slack + reach_ - 1;
  }
  [[nodiscard]] std::int64_t bytes() const noexcept { return static_cast<std::int64_t>(lines_.size() * sizeof(T)); }

 private:
  std::int64_t functions_;
  std::int64_t reach_;
  std::vector<T> lines_;
};

template <class T = float, class W = T>
class projected_bias {
 public:
  static constexpr encoder_traits traits{.name = "projected_bias",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};

  /// weights [batch, query, head, functions].
  projected_bias(const projected_bank<T>& bank, view<const W> weights) : bank_(&bank), weights_(weights) {
    detail::require(weights.dim() == bank.functions(), "projected_bias", "weights",
                    "must hold one value per function of the bank", weights.dim());
  }
  projected_bias(const projected_bank<T>&& bank, view<const W> weights) = delete;

  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
    using L = lanes<B>;
    if (r.batch >= weights_.batch() || r.query_index >= weights_.tokens() || r.head >= weights_.heads())
      detail::outside("projected_bias", "query", "must lie inside the weights, query index", r.query_index);
    struct source {
      const T* zero;
      const W* weight;
      std::int64_t step;
      std::int64_t length;
      std::int64_t functions;
      std::int64_t reach;
    };
    const source from{bank_->line(0),       weights_.row(r.batch, r.query_index, r.head),
                      weights_.steps().dim, bank_->length(),
                      bank_->functions(),   bank_->reach()};
    if constexpr (Keys::contiguous) {
      return [from, start = position_difference(keys.first, r.query_position)](const B& s, std::int64_t k) {
        const std::int64_t at = start + k;
        if (at > 0 || at <= -from.reach - L::size + 1) return s;
        const auto product = [&](std::int64_t m) {
          return B(L::broadcast(widen(from.weight[m * from.step])) * L::load(from.zero + m * from.length + at));
        };
        // Two sums by name: one would wait for its own additions.
        B even = s;
        B odd = L::broadcast(typename L::scalar(0));
        std::int64_t m = 0;
        for (; m + 2 <= from.functions; m += 2) {
          even = B(even + product(m));
          odd = B(odd + product(m + 1));
        }
        if (m < from.functions) even = B(even + product(m));
        return B(even + odd);
      };
    } else {
      return [from, keys, q = r.query_position](const B& s, std::int64_t k) {
        using C = typename L::scalar;
        C value[L::size];
        for (int i = 0; i < L::size; ++i) {
          const std::int64_t at = position_difference(keys.position(k + i), q);
          value[i] = C(0);
          for (std::int64_t m = 0; m < from.functions && at <= 0 && at > -from.reach; ++m)
            value[i] = C(value[i] + C(widen(from.weight[m * from.step])) * C(widen(from.zero[m * from.length + at])));
        }
        return B(s + L::load(static_cast<const C*>(value)));
      };
    }
  }

  void check(const call& c) const {
    detail::require(weights_.batch() == c.batch && weights_.tokens() == c.queries && weights_.heads() == c.heads,
                    "projected_bias", "weights", "must have the batch, queries and heads of the call, tokens",
                    weights_.tokens());
  }
  [[nodiscard]] std::int64_t heads() const noexcept { return weights_.heads(); }

  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = bank_->functions() * bank_->reach(),
            .table_bytes = bank_->bytes(),
            .monotone = false,
            .shift = cache_shift::keep_keys};
  }

 private:
  const projected_bank<T>* bank_;
  view<const W> weights_;
};

template <class T, class W>
projected_bias(const projected_bank<T>&, view<W>) -> projected_bias<T, std::remove_const_t<W>>;

}  // namespace posenc
