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

/// Token ids of one text.
using token_ids = std::vector<std::int64_t>;

}  // namespace posenc_examples
