// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Biases that are formulas of the distance, written from their papers in long double, one value at a time.
/// r is query position - key position. Nothing is shared with the library: the standard library only.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace distance_reference {

using real = long double;
using list = std::vector<double>;

/// Chi et al. 2022: -scale ln(1 + shape t), or -scale t^shape.
inline real kerple(bool logarithm, double scale, double shape, bool absolute, std::int64_t r) {
  real t = static_cast<real>(r);
  if (t < 0) t = absolute ? -t : 0;
  if (logarithm) return -static_cast<real>(scale) * std::log(1 + static_cast<real>(shape) * t);
  return t == 0 ? 0 : -static_cast<real>(scale) * std::pow(t, static_cast<real>(shape));
}

/// Chi et al. 2023.
inline real sandwich(std::int64_t heads, std::int64_t dim, double base, std::int64_t first, double subtract,
                     std::int64_t head, std::int64_t r) {
  real sum = 0;
  for (std::int64_t m = first; m < first + dim / 2; ++m)
    sum += std::cos(static_cast<real>(r) *
                    std::pow(static_cast<real>(base), -2.0L * static_cast<real>(m) / static_cast<real>(dim)));
  return (sum - static_cast<real>(subtract)) / (8.0L * static_cast<real>(head + 1) / static_cast<real>(heads));
}

/// One row of W x + b.
inline real affine(const list& weight, const list& bias, std::size_t row, const std::vector<real>& x) {
  real sum = bias[row];
  for (std::size_t i = 0; i < x.size(); ++i) sum += static_cast<real>(weight[row * x.size() + i]) * x[i];
  return sum;
}

struct layer {
  list weight;
  list bias;
};

/// x-transformers: layers with silu between them over r or sign(r) ln(|r| + 1).
inline real dynamic(const std::vector<layer>& layers, bool logarithm, std::size_t head, std::int64_t r) {
  const real n = static_cast<real>(r);
  std::vector<real> x{!logarithm ? n : n < 0 ? -std::log(1 - n) : std::log(1 + n)};
  for (std::size_t l = 0; l < layers.size(); ++l) {
    std::vector<real> next;
    for (std::size_t o = 0; o < layers[l].bias.size(); ++o) {
      const real z = affine(layers[l].weight, layers[l].bias, o, x);
      next.push_back(l + 1 == layers.size() ? z : z / (1 + std::exp(-z)));
    }
    x = next;
  }
  return x[head];
}

/// Li et al. 2024; `limit` is |threshold multiplier * threshold|.
inline real fire(double c, double limit, double eps, const layer& first, const layer& second, std::size_t head,
                 std::int64_t query, std::int64_t key) {
  const auto logarithm = [&](real n) { return std::log(std::fabs(static_cast<real>(c) * n) + 1); };
  const real of =
      static_cast<real>(query) > static_cast<real>(limit) ? static_cast<real>(query) : static_cast<real>(limit);
  const real x = logarithm(static_cast<real>(query) - static_cast<real>(key)) / (logarithm(of) + eps);
  std::vector<real> hidden;
  for (std::size_t u = 0; u < first.bias.size(); ++u) {
    const real z = affine(first.weight, first.bias, u, {x});
    hidden.push_back(z > 0 ? z : 0);
  }
  return affine(second.weight, second.bias, head, hidden);
}

}  // namespace distance_reference
