// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Built twice with different -march and linked into one program, see tests/cmake/odr.cmake. It includes every public
// header and reaches kernels through an encoder and through attention.
#include "all_headers.hpp"

#include <cstddef>
#include <vector>

#define POSENC_ODR_JOIN_(a, b) a##_##b
#define POSENC_ODR_JOIN(a, b) POSENC_ODR_JOIN_(a, b)

/// Rotated rows and attention, in float and in double; `lanes` tells what a batch of this unit holds.
std::vector<double> POSENC_ODR_JOIN(compute, POSENC_ODR_UNIT)(int* lanes);

template <class T>
static void append_results(posenc::rope_layout layout, std::vector<double>& out) {
  // Head size 52 leaves a tail, and pads to another size for four lanes than for eight.
  constexpr posenc::shape s{.batch = 1, .tokens = 3, .heads = 5, .dim = 52};
  std::vector<T> x(static_cast<std::size_t>(s.elements()));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = T(1) / static_cast<T>(i + 1);
  const posenc::rope<T> encoder{{.head_dim = s.dim, .layout = layout}};
  const posenc::view<T> rows(x.data(), s);
  encoder.rotate(rows, posenc::positions::from(1000));
  out.insert(out.end(), x.begin(), x.end());

  std::vector<T> y(x.size());
  const auto policy = posenc::compose(posenc::softcap{50}, posenc::alibi<T>{s.heads}, posenc::causal{});
  posenc::attention(rows, rows, rows, posenc::view<T>(y.data(), s), policy);
  out.insert(out.end(), y.begin(), y.end());
}

std::vector<double> POSENC_ODR_JOIN(compute, POSENC_ODR_UNIT)(int* lanes) {
  *lanes = posenc::simd::width<float>;
  std::vector<double> out;
  for (const auto layout : {posenc::rope_layout::half_split, posenc::rope_layout::interleaved}) {
    append_results<float>(layout, out);
    append_results<double>(layout, out);
  }
  return out;
}
