// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The layers of a transformer that have no position in them, on Eigen matrices of one row per token.

#include "support/matrix.hpp"

#include <cmath>

namespace posenc_examples {

/// (x - mean) / sqrt(variance + eps) * gain + shift, per row.
template <class T>
[[nodiscard]] matrix<T> layer_norm(const matrix<T>& x, const row_vector<T>& gain, const row_vector<T>& shift,
                                   double eps) {
  matrix<T> y = x.colwise() - x.rowwise().mean();
  for (Eigen::Index t = 0; t < y.rows(); ++t) {
    const T variance = y.row(t).squaredNorm() / static_cast<T>(y.cols());
    y.row(t) = (y.row(t) / std::sqrt(variance + static_cast<T>(eps))).cwiseProduct(gain) + shift;
  }
  return y;
}

/// x / sqrt(mean(x^2) + eps) * gain, per row.
template <class T>
[[nodiscard]] matrix<T> rms_norm(const matrix<T>& x, const row_vector<T>& gain, double eps) {
  matrix<T> y(x.rows(), x.cols());
  for (Eigen::Index t = 0; t < y.rows(); ++t) {
    const double mean_square = x.row(t).template cast<double>().squaredNorm() / static_cast<double>(x.cols());
    y.row(t) = (x.row(t) / static_cast<T>(std::sqrt(mean_square + eps))).cwiseProduct(gain);
  }
  return y;
}

/// x W^T for weights stored [out, in].
template <class T>
[[nodiscard]] matrix<T> linear(const matrix<T>& x, const matrix<T>& weight) {
  matrix<T> y(x.rows(), weight.rows());
  y.noalias() = x * weight.transpose();
  return y;
}
template <class T>
[[nodiscard]] matrix<T> linear(const matrix<T>& x, const matrix<T>& weight, const row_vector<T>& bias) {
  matrix<T> y = linear(x, weight);
  y.rowwise() += bias;
  return y;
}

/// x W^T + bias; no bias where that is empty.
template <class T>
struct affine {
  matrix<T> weight;
  row_vector<T> bias{};
  [[nodiscard]] matrix<T> operator()(const matrix<T>& x) const {
    return bias.size() == 0 ? linear(x, weight) : linear(x, weight, bias);
  }
};

/// The layer norm of a gain and a shift; the RMS norm where `shift` is empty.
template <class T>
struct normalization {
  row_vector<T> gain;
  row_vector<T> shift{};
  double eps = 1e-5;
  [[nodiscard]] matrix<T> operator()(const matrix<T>& x) const {
    return shift.size() == 0 ? rms_norm(x, gain, eps) : layer_norm(x, gain, shift, eps);
  }
};

/// 0.5 a (1 + tanh(sqrt(2 / pi) (a + 0.044715 a^3))), in place.
template <class T>
void gelu_tanh(matrix<T>& x) {
  const T root = static_cast<T>(0.79788456080286535588);  // sqrt(2 / pi)
  const auto a = x.array();
  x = (T(0.5) * a * (T(1) + (root * (a + static_cast<T>(0.044715) * a.cube())).tanh())).matrix().eval();
}

/// a / (1 + exp(-a)), in place.
template <class T>
void silu(matrix<T>& x) {
  x = (x.array() / (T(1) + (-x.array()).exp())).matrix().eval();
}

/// max(a, 0), in place.
template <class T>
void relu(matrix<T>& x) {
  x = x.cwiseMax(T(0)).eval();
}

enum class activation { relu, gelu_tanh };

/// down(act(up x)), and down(act(up x) * gate x) where there is a gate.
template <class T>
struct feed_forward {
  affine<T> up;
  affine<T> down;
  activation act = activation::relu;
  affine<T> gate{};
  [[nodiscard]] matrix<T> operator()(const matrix<T>& x) const {
    matrix<T> wide = up(x);
    if (act == activation::relu) {
      relu(wide);
    } else {
      gelu_tanh(wide);
    }
    if (gate.weight.size() != 0) wide = wide.cwiseProduct(gate(x)).eval();
    return down(wide);
  }
};

}  // namespace posenc_examples
