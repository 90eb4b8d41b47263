// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The matrix of the example models: row-major, one row per token or per output channel.

#include <Eigen/Core>

#include <cstdint>
#include <vector>

namespace posenc_examples {

template <class T>
using matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using row_vector = Eigen::Matrix<T, 1, Eigen::Dynamic>;

/// The largest |a - b| of two matrices of one shape, in double; NaN where one of them holds NaN.
template <class A, class B>
[[nodiscard]] double largest_difference(const Eigen::MatrixBase<A>& a, const Eigen::MatrixBase<B>& b) {
  return (a.template cast<double>() - b.template cast<double>()).cwiseAbs().template maxCoeff<Eigen::PropagateNaN>();
}

/// Token ids of one text.
using token_ids = std::vector<std::int64_t>;

}  // namespace posenc_examples
