// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The one core file that includes Eigen: views of its matrices and tensors, and the storage traits of Eigen::half and
/// Eigen::bfloat16. A matrix is one batch row: its rows are tokens, its columns heads * dim.
///   posenc::as_view(matrix, heads)         Matrix, Map, Ref, Block: [1, rows, heads, cols / heads]
///   posenc::as_view(tensor_map)            TensorMap of rank 2..4 in the order [batch,] token, [head,] dim; rank 3 is
///                                          [token, head, dim]
/// Column-major storage gives strided rows, which are handled one element at a time.

#include <posenc/core/scalar.hpp>
#include <posenc/core/view.hpp>

#include <Eigen/Core>

namespace posenc {

template <>
struct storage_traits<Eigen::half> {
  static constexpr format kind = format::binary16;
};
template <>
struct storage_traits<Eigen::bfloat16> {
  static constexpr format kind = format::bfloat16;
};

namespace detail {
template <class Dense>
concept eigen_dense = requires(Dense& m) {
  m.data();
  m.outerStride();
  m.innerStride();
  {std::remove_cvref_t<Dense>::IsRowMajor};
};
template <class Tensor>
concept eigen_tensor = requires(Tensor& t) {
  t.data();
  t.dimension(0);
  {std::remove_cvref_t<Tensor>::NumDimensions};
}
&&!eigen_dense<Tensor>;
}  // namespace detail

/// @throws std::invalid_argument if the columns do not split into `heads` equal parts.
template <detail::eigen_dense Dense>
[[nodiscard]] auto as_view(Dense&& m, std::int64_t heads = 1) {
  detail::require(heads >= 1, "as_view", "heads", "must be at least 1", heads);
  detail::require(m.cols() % heads == 0, "as_view", "columns", "must be a multiple of heads", m.cols());
  constexpr bool row_major = std::remove_cvref_t<Dense>::IsRowMajor;
  const std::int64_t row_step = row_major ? m.outerStride() : m.innerStride();
  const std::int64_t col_step = row_major ? m.innerStride() : m.outerStride();
  const std::int64_t dim = m.cols() / heads;
  return view(m.data(), {.batch = 1, .tokens = m.rows(), .heads = heads, .dim = dim},
              {.batch = m.rows() * row_step, .token = row_step, .head = dim * col_step, .dim = col_step});
}

/// See the file comment.
template <detail::eigen_tensor Tensor>
[[nodiscard]] auto as_view(Tensor&& t) {
  using plain = std::remove_cvref_t<Tensor>;
  constexpr int rank = plain::NumDimensions;
  static_assert(rank >= 2 && rank <= 4, "posenc::as_view takes tensors of rank 2, 3 or 4");
  constexpr bool row_major = static_cast<int>(plain::Layout) == static_cast<int>(Eigen::RowMajor);
  std::int64_t extent[rank];
  std::int64_t step[rank];
  for (int i = 0; i < rank; ++i) extent[i] = t.dimensions()[static_cast<std::size_t>(i)];
  std::int64_t running = 1;
  for (int i = 0; i < rank; ++i) {
    const int axis = row_major ? rank - 1 - i : i;
    step[axis] = running;
    running *= extent[axis];
  }
  constexpr int token = rank == 4 ? 1 : 0;
  constexpr bool has_heads = rank >= 3;
  return view(t.data(),
              {.batch = rank == 4 ? extent[0] : 1,
               .tokens = extent[token],
               .heads = has_heads ? extent[token + 1] : 1,
               .dim = extent[rank - 1]},
              {.batch = rank == 4 ? step[0] : running,
               .token = step[token],
               .head = has_heads ? step[token + 1] : 0,
               .dim = step[rank - 1]});
}

}  // namespace posenc
