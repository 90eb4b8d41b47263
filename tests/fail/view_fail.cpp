// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Views keep constness, scalars and ranks apart.
// CASE 1: (no matching function|could not convert|cannot convert|no viable conversion|conversion from)
// CASE 2: (no matching function|could not convert|cannot convert|no viable conversion|conversion from)
// CASE 3: posenc::as_view takes tensors of rank 2, 3 or 4
// CASE 4: constraint
#include <posenc/core/eigen.hpp>
#include <posenc/simd/memory.hpp>

#include <unsupported/Eigen/CXX11/Tensor>

using namespace posenc;

void write(view<float>);

void use(view<const float> fixed, view<double> wide, view<float> x) {
#if CASE == 1
  write(fixed);
#elif CASE == 2
  write(wide);
#elif CASE == 3
  Eigen::Tensor<float, 5> t;
  write(as_view(t));
#elif CASE == 4
  const int word = 0;
  static_cast<void>(simd::load<simd::default_arch>(&word));
#else
  Eigen::Tensor<float, 4> t;
  write(as_view(t));
  const float word[64] = {};
  static_cast<void>(simd::load<simd::default_arch>(&word[0]));
#endif
  write(x);
  static_cast<void>(fixed);
  static_cast<void>(wide);
}
