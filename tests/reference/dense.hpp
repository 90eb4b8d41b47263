// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The second oracle: attention, biases, rotations and sinusoids written down from their formulas, with plain loops over
/// packed arrays. It includes no header of the library and shares no line with it.
/// Arrays are packed: q [batch, query, head, dim], k and v [batch, key, kv_head, ...], scores [batch, query, head, key].

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>
#include <vector>

namespace oracle {

using index = std::int64_t;

inline std::size_t at(index i) { return static_cast<std::size_t>(i); }

struct attention_shape {
  index batch = 1;
  index queries = 0;
  index keys = 0;
  index heads = 1;
  index kv_heads = 1;
  index dim = 0;
  index value_dim = 0;
};

/// One entry of the score matrix by its indices.
struct entry {
  index batch;
  index head;
  index query;
  index key;
};

struct attention_result {
  std::vector<double> out;
  std::vector<double> logits;
  std::vector<double> weights;
  std::vector<double> lse;
};

/// The logit from the scaled product of query and key.
using logit_rule = std::function<double(const entry&, double)>;
/// Whether a query sees a key.
using mask_rule = std::function<bool(const entry&)>;

inline logit_rule no_change() {
  return [](const entry&, double s) { return s; };
}
inline mask_rule no_mask() {
  return [](const entry&) { return true; };
}

/// Plain softmax attention in double, the whole score matrix stored. A row that sees no key gives zeros and -inf.
template <class T>
attention_result attention(const attention_shape& n, const std::vector<T>& q, const std::vector<T>& k,
                           const std::vector<T>& v, double scale, const logit_rule& logit = no_change(),
                           const mask_rule& visible = no_mask()) {
  constexpr double lowest = -std::numeric_limits<double>::infinity();
  attention_result r;
  const index rows = n.batch * n.queries * n.heads;
  r.out.assign(at(rows * n.value_dim), 0.0);
  r.logits.assign(at(rows * n.keys), lowest);
  r.weights.assign(at(rows * n.keys), 0.0);
  r.lse.assign(at(rows), lowest);
  for (index b = 0; b < n.batch; ++b)
    for (index i = 0; i < n.queries; ++i)
      for (index h = 0; h < n.heads; ++h) {
        const index row = (b * n.queries + i) * n.heads + h;
        const index kv = h / (n.heads / n.kv_heads);
        double highest = lowest;
        for (index j = 0; j < n.keys; ++j) {
          const entry e{b, h, i, j};
          if (!visible(e)) continue;
          long double s = 0;
          for (index d = 0; d < n.dim; ++d)
            s += static_cast<long double>(q[at(row * n.dim + d)]) *
                 static_cast<long double>(k[at(((b * n.keys + j) * n.kv_heads + kv) * n.dim + d)]);
          const double value = logit(e, static_cast<double>(s) * scale);
          r.logits[at(row * n.keys + j)] = value;
          highest = value > highest ? value : highest;
        }
        if (highest == lowest) continue;
        long double total = 0;
        for (index j = 0; j < n.keys; ++j)
          total += std::exp(static_cast<long double>(r.logits[at(row * n.keys + j)] - highest));
        r.lse[at(row)] = static_cast<double>(static_cast<long double>(highest) + std::log(total));
        for (index j = 0; j < n.keys; ++j) {
          const long double w = std::exp(static_cast<long double>(r.logits[at(row * n.keys + j)] - highest)) / total;
          r.weights[at(row * n.keys + j)] = static_cast<double>(w);
        }
        for (index d = 0; d < n.value_dim; ++d) {
          long double sum = 0;
          for (index j = 0; j < n.keys; ++j) {
            const double w = r.weights[at(row * n.keys + j)];
            if (w > 0)
              sum += static_cast<long double>(w) *
                     static_cast<long double>(v[at(((b * n.keys + j) * n.kv_heads + kv) * n.value_dim + d)]);
          }
          r.out[at(row * n.value_dim + d)] = static_cast<double>(sum);
        }
      }
  return r;
}

/// ALiBi's slope of head h of `heads` by the published rule: the slopes of the power of two below, then every second one
/// of the power of two above. max is the exponent of the last slope of a power of two.
inline double alibi_slope(index h, index heads, double max = 8) {
  index p = 1;
  while (2 * p <= heads) p *= 2;
  if (h < p) return std::pow(2.0, -max * static_cast<double>(h + 1) / static_cast<double>(p));
  return std::pow(2.0, -max * static_cast<double>(2 * (h - p) + 1) / static_cast<double>(2 * p));
}

/// T5's bucket of relative = key - query. Logarithms in long double; 1e-9 is far below the distance of any value that is
/// not an integer from the next one (2.5e-6 at the least for up to 320 buckets and distances up to 800).
inline index t5_bucket(index relative, index buckets, index max_distance, bool bidirectional) {
  index first = 0;
  index side = buckets;
  index n = relative < 0 ? -relative : 0;
  if (bidirectional) {
    side = buckets / 2;
    if (relative > 0) {
      first = side;
      n = relative;
    }
  }
  const index exact = side / 2;
  if (n < exact) return first + n;
  const long double ratio = std::log(static_cast<long double>(n) / static_cast<long double>(exact)) /
                            std::log(static_cast<long double>(max_distance) / static_cast<long double>(exact));
  const index log_bucket =
      exact + static_cast<index>(std::floor(ratio * static_cast<long double>(side - exact) + 1e-9L));
  return first + (log_bucket < side ? log_bucket : side - 1);
}

/// base^(-i / denominator); 1 where the denominator is 0.
inline long double frequency(double base, index i, double denominator) {
  if (denominator == 0) return 1;
  return std::pow(static_cast<long double>(base), -static_cast<long double>(i) / static_cast<long double>(denominator));
}

/// cos and sin of position * frequency, reduced by whole turns in long double: good to 1e-15 for positions up to 10^3,
/// 1e-13 up to 10^5.
struct turn {
  double cos;
  double sin;
};
inline turn turn_by(double position, long double f) {
  const long double angle = static_cast<long double>(position) * f;
  const long double reduced = std::remainder(angle, 2 * std::numbers::pi_v<long double>);
  return {static_cast<double>(std::cos(reduced)), static_cast<double>(std::sin(reduced))};
}

/// RoPE on one head of channels, in place: pairs of the block offset .. offset + rotary_dim - 1 turned by
/// position * base^(-2i / rotary_dim) / factor and multiplied by the magnitude.
struct rope_rule {
  index rotary_dim = 0;
  index offset = 0;
  double base = 10000;
  bool interleaved = false;
  double factor = 1;
  double magnitude = 1;
};
template <class T>
void rope(T* x, const rope_rule& r, double position) {
  const index half = r.rotary_dim / 2;
  for (index i = 0; i < half; ++i) {
    const turn t =
        turn_by(position, frequency(r.base, i, static_cast<double>(half)) / static_cast<long double>(r.factor));
    T& first = x[r.offset + (r.interleaved ? 2 * i : i)];
    T& second = x[r.offset + (r.interleaved ? 2 * i + 1 : i + half)];
    const double a = static_cast<double>(first);
    const double b = static_cast<double>(second);
    first = static_cast<T>(r.magnitude * (a * t.cos - b * t.sin));
    second = static_cast<T>(r.magnitude * (a * t.sin + b * t.cos));
  }
}

/// The sinusoid of even dim as (sin, cos) neighbours with base^(-2i / dim), the form of the first Transformer.
inline std::vector<double> sinusoid(index dim, double position, double base = 10000) {
  std::vector<double> row(at(dim));
  for (index i = 0; i < dim / 2; ++i) {
    const turn t = turn_by(position, frequency(base, i, static_cast<double>(dim / 2)));
    row[at(2 * i)] = t.sin;
    row[at(2 * i + 1)] = t.cos;
  }
  return row;
}

}  // namespace oracle
