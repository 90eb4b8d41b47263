// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Contextual position (Golovneva et al. 2024, CoPE): a position that counts gates instead of tokens. With s the logit
/// at the part's place in the pack, scaled q.k where it stands first,
///   g(i, j) = sigmoid(s(i, j)), 0 for a hidden key      p(i, j) = min(g(i, j) + g(i, j + 1) + ..., npos - 1)
///   bias(i, j) = z at p(i, j), linear between z[floor p] and z[ceil p];  z[n] = q(i).e[n], q after every transform and
///   NOT scaled (the paper's listing and x-transformers)
/// The sum runs over the physical columns of the call from j to the last key that the query sees, whatever their
/// positions: for causal rows to the query itself, without a causal mask to the end of the row. Columns stand in the
/// order of time; a wrapped ring cache is refused.
/// Shapes   e `pos_emb` [npos, head_dim], shared by all heads (zeros at the start of training).
/// Scale    bias_scale * bias is added to the scaled logits. RAM's default adds before the division by sqrt(d):
///          `cope_order::before_scale` multiplies by the scale of the scores and every query scale.
/// Domain   finite logits for exact gates; NaN stays in its row. Queries are the last columns of the keys (prefill,
///          cached decode); anything else is refused, cross attention above all, for which it is not defined.
/// Error    gates 2 ulp of the compute type, their sum in double at least, bias that of q.e.
/// Cost     needs whole rows: attention_two_pass or attention_reference. Per row one product of dim channels for each
///          position that is reached, npos at most; one exp per key until the sum reaches npos - 1, a constant from
///          there on. Table: npos * dim elements; nothing per key.
/// Throws   std::invalid_argument for impossible options, a table of another size, a call that it does not fit.
/// Who uses it  facebookresearch/RAM, x-transformers
/// Example  examples/cope_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/kernels/row_products.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

namespace posenc {

/// Whether the bias joins the scaled logits (paper, x-transformers) or the products before their scale (RAM).
enum class cope_order { after_scale, before_scale };

struct cope_options {
  std::int64_t head_dim = 0;
  double bias_scale = 1;
  cope_order order = cope_order::after_scale;
};

template <class T = float>
class cope {
 public:
  static constexpr encoder_traits traits{.name = "cope",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};

  /// The table is copied.
  cope(const cope_options& o, std::span<const T> pos_emb) : options_(o), table_(pos_emb.begin(), pos_emb.end()) {
    detail::require(o.head_dim >= 1, "cope", "head_dim", "must be at least 1", o.head_dim);
    detail::require(std::isfinite(o.bias_scale), "cope", "bias_scale", "must be finite", o.bias_scale);
    detail::require(!table_.empty() && static_cast<std::int64_t>(table_.size()) % o.head_dim == 0, "cope", "pos_emb",
                    "must hold npos * head_dim values, npos at least 1", table_.size());
  }

  [[nodiscard]] std::int64_t scratch_size(std::int64_t, std::int64_t, std::int64_t) const noexcept { return 0; }

  template <class B, class Keys>
  void transform_logits(const logit_row<typename lanes<B>::scalar>& line, const Keys&,
                        typename lanes<B>::scalar*) const {
    using L = lanes<B>;
    using C = typename L::scalar;
    // A float sum of many small gates would lose as much as a gate.
    using sum_type = std::conditional_t<std::is_same_v<C, float>, double, C>;
    const std::int64_t last = npos() - 1;
    const C weight =
        options_.order == cope_order::before_scale ? C(C(options_.bias_scale) * line.factor) : C(options_.bias_scale);
    const auto z = [&](std::int64_t n) {
      return C(weight * kernels::product<B>(line.query, table_.data() + n * line.dim, line.dim));
    };
    // p grows from key to key: of z only the two values around it are needed, and those beyond its end never.
    sum_type p(0.0);
    std::int64_t below = 0;  // floor p
    C low = z(0);
    C high = last > 0 ? z(1) : low;
    std::int64_t j = line.seen.hi;
    while (j > line.seen.lo && below < last) {
      const std::int64_t n = std::min<std::int64_t>(L::size, j - line.seen.lo);
      j -= n;
      C gate[L::size];
      for (std::int64_t i = 0; i < L::size; ++i)
        gate[i] = i < n && !is_hidden(line.logits[j + i]) ? line.logits[j + i] : C(0.0);
      open_gates<B>(gate);
      for (std::int64_t i = n - 1; i >= 0; --i) {
        C& s = line.logits[j + i];
        if (is_hidden(s)) continue;
        p = sum_type(p + sum_type(gate[i]));
        // A NaN sends its row to the end of the table; the logit it came from is NaN already.
        for (; below < last && !(p < sum_type(static_cast<double>(below + 1))); ++below) {
          low = high;
          if (below + 1 < last) high = z(below + 2);
        }
        if (below == last) {
          s = C(s + low);
        } else {
          const C part = C(sum_type(p - sum_type(static_cast<double>(below))));
          s = C(s + C(low + part * C(high - low)));
        }
      }
    }
    // Whatever lies before stands at npos - 1.
    for (std::int64_t i = line.seen.lo; i < j; ++i) line.logits[i] = C(line.logits[i] + low);
  }

  void check(const call& c) const {
    detail::require(c.keys == 0 || c.dim == options_.head_dim, "cope", "head_dim", "must equal the dim of q", c.dim);
    if (c.keys == 0) return;
    detail::require(c.queries <= c.keys, "cope", "queries",
                    "must be the last columns of the keys: cross attention has no contextual position", c.queries);
    const std::int64_t first = c.keys - c.queries;
    const bool both = c.query_positions.contiguous() && c.key_positions.contiguous();
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t i = 0; i < (both ? std::min<std::int64_t>(c.queries, 1) : c.queries); ++i)
        detail::require(c.query_positions(b, i) == c.key_positions(b, first + i), "cope", "query_positions",
                        "must be those of the last keys: cross attention has no contextual position",
                        c.query_positions(b, i));
  }

  [[nodiscard]] std::int64_t npos() const noexcept {
    return static_cast<std::int64_t>(table_.size()) / options_.head_dim;
  }
  [[nodiscard]] const cope_options& options() const noexcept { return options_; }
  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = static_cast<std::int64_t>(table_.size()),
            .table_bytes = static_cast<std::int64_t>(table_.size() * sizeof(T)),
            .monotone = false,
            .shift = cache_shift::keep_keys};
  }

 private:
  /// sigmoid of L::size logits, in place; nothing overflows.
  template <class B, class C>
  static void open_gates(C* s) {
    using L = lanes<B>;
    const B x = L::load(static_cast<const C*>(s));
    const B one = L::broadcast(1.0);
    const auto negative = L::greater(L::broadcast(0.0), x);
    const B less = L::select(negative, x, B(-x));
    const B e = L::exp(L::select(L::greater(less, L::broadcast(-700.0)), less, L::broadcast(-700.0)));
    L::store(s, B(L::select(negative, e, one) / B(one + e)));
  }
  template <class C>
  static bool is_hidden(const C& s) {
    return s == C(-std::numeric_limits<double>::infinity());
  }

  cope_options options_;
  std::vector<T> table_;
};

}  // namespace posenc
