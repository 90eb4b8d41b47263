// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The value side of relative positions: sum_j w(j) row(distance of j) = sum_r (sum of w at r) row(r). The weights of a
/// query are added up by distance while the keys pass, and the rows are taken once at the end.
/// Cost     one addition per weight; count * dim multiply-adds per query.

#include <posenc/core/policy.hpp>
#include <posenc/encoders/relative_rows.hpp>
#include <posenc/kernels/row_products.hpp>

namespace posenc::detail {

/// state[place of the distance] += weight, for keys first .. first + n - 1.
template <class B, class T, class Keys, class C>
void add_weights_by_place(const relative_rows<T>& table, C* state, const row& r, const Keys& keys, std::int64_t first,
                          const C* weights, std::int64_t n) {
  if constexpr (Keys::contiguous) {
    const std::int64_t zero = position_difference(keys.position(first), r.query_position);
    const std::int64_t begin = std::clamp(table.least() - zero, std::int64_t{0}, n);
    const std::int64_t end = std::clamp(table.greatest() + 1 - zero, begin, n);
    const C before = kernels::sum<B>(weights, begin);
    const C after = kernels::sum<B>(weights + end, n - end);
    if (table.exact()) {
      if (begin < end)
        kernels::add_multiple<B>(state + (zero + begin - table.least()), C(1), weights + begin, end - begin);
    } else {
      for (std::int64_t j = begin; j < end; ++j) state[table.place(zero + j)] += weights[j];
    }
    state[0] += before;
    state[table.count() - 1] += after;
  } else {
    for (std::int64_t j = 0; j < n; ++j)
      state[table.place(position_difference(keys.position(first + j), r.query_position))] += weights[j];
  }
}

/// sum += state[x] * row x.
template <class B, class T, class C>
void add_rows_by_weight(const relative_rows<T>& table, const C* state, std::int64_t head, C* sum, std::int64_t n) {
  using Arch = typename kernels::arch_of<B>::type;
  const T* row = table.table(head);
  for (std::int64_t x = 0; x < table.count(); ++x, row += table.dim()) {
    if constexpr (!std::same_as<Arch, void> && std::same_as<T, C>) {
      if (state[x] != C(0)) kernels::add_scaled<Arch>(sum, state[x], row, n);
    } else {
      for (std::int64_t d = 0; d < n; ++d) sum[d] = C(sum[d] + state[x] * C(row[d]));
    }
  }
}

}  // namespace posenc::detail
