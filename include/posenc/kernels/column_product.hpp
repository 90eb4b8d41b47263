// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Products of one row with consecutive columns of a matrix that is stored channel by channel: what content terms over
/// positions need one batch at a time.

#include <posenc/core/lanes.hpp>

#include <cstdint>

namespace posenc::kernels {

/// The sums over d < dim of row[d] * columns[d * step + lane], one per lane.
template <class B, class C, class T>
[[nodiscard]] B column_product(const C* row, const T* columns, std::int64_t step, std::int64_t dim) {
  using L = lanes<B>;
  const auto product = [&](std::int64_t d) { return B(L::broadcast(row[d]) * L::load(columns + d * step)); };
  // Four sums by name: one would wait for its own additions, and an array would lie in memory.
  B first = L::broadcast(C(0));
  B second = first;
  B third = first;
  B fourth = first;
  std::int64_t d = 0;
  for (; d + 4 <= dim; d += 4) {
    first = B(first + product(d));
    second = B(second + product(d + 1));
    third = B(third + product(d + 2));
    fourth = B(fourth + product(d + 3));
  }
  for (; d < dim; ++d) first = B(first + product(d));
  return B(B(first + second) + B(third + fourth));
}

}  // namespace posenc::kernels
