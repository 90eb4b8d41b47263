// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Tensors for the tests of attention: the same numbers in double for the oracle and in a storage type for the library.

#include <posenc/core/eigen.hpp>
#include <posenc/core/scalar.hpp>
#include <posenc/core/view.hpp>

#include "reference/dense_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace posenc_test {

inline constexpr float nan_f = std::numeric_limits<float>::quiet_NaN();
inline constexpr float inf_f = std::numeric_limits<float>::infinity();

/// Storage of a [batch, token, head, dim] tensor, packed, with its view.
template <class T>
struct stored {
  posenc::shape extents;
  std::vector<T> data;

  stored() = default;
  explicit stored(const posenc::shape& s, double fill = 0)
      : extents(s), data(static_cast<std::size_t>(s.elements()), posenc::narrow<T>(fill)) {}
  [[nodiscard]] posenc::view<T> view() { return {data.data(), extents}; }
  [[nodiscard]] posenc::view<const T> read() const { return {data.data(), extents}; }
  T& operator()(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) { return view()(b, t, h, d); }
};

/// Uniform in [-amplitude, amplitude], rounded to T, so that the oracle sees what is stored.
template <class T>
stored<T> random_stored(std::mt19937& random, const posenc::shape& s, double amplitude = 1) {
  stored<T> x(s);
  std::uniform_real_distribution<double> draw(-amplitude, amplitude);
  for (T& e : x.data) e = posenc::narrow<T>(draw(random));
  return x;
}

template <class T>
dense::tensor to_dense(const stored<T>& x) {
  dense::tensor t(x.extents.batch, x.extents.tokens, x.extents.heads, x.extents.dim);
  for (std::size_t i = 0; i < x.data.size(); ++i) t.data[i] = static_cast<double>(posenc::widen(x.data[i]));
  return t;
}

inline double largest(const std::vector<double>& x) {
  double m = 0;
  for (const double e : x) m = std::max(m, std::abs(e));
  return m;
}

/// The largest difference over max|expected|; infinity where one is NaN, or infinite and the other is not.
template <class T>
double relative_error(const std::vector<T>& found, const std::vector<double>& expected) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  double magnitude = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double x = static_cast<double>(posenc::widen(found[i]));
    if (x == expected[i]) {
      if (std::isfinite(x)) magnitude = std::max(magnitude, std::abs(x));
      continue;
    }
    if (!std::isfinite(x) || !std::isfinite(expected[i])) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::abs(x - expected[i]));
    magnitude = std::max(magnitude, std::abs(expected[i]));
  }
  return magnitude == 0 ? worst : worst / magnitude;
}

}  // namespace posenc_test
