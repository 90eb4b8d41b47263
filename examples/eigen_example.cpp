// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Eigen matrices and 16-bit storage: views without a copy.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rope.hpp>

#include <cmath>
#include <cstdio>

int main() {
  bool good = true;
  // [eigen]
  // A matrix is one sequence: rows are tokens, columns are heads * dim.
  using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Index tokens = 6, heads = 2, dim = 8;
  matrix q = matrix::Ones(tokens, heads * dim);
  matrix k = matrix::Ones(tokens, heads * dim);
  const matrix v = matrix::Identity(tokens, heads * dim);
  matrix out(tokens, heads * dim);

  const posenc::rope<float> encoder{{.head_dim = dim}};
  encoder.rotate(posenc::as_view(q, heads));
  encoder.rotate(posenc::as_view(k, heads));
  posenc::attention(posenc::as_view(q, heads), posenc::as_view(k, heads), posenc::as_view(v, heads),
                    posenc::as_view(out, heads), posenc::causal{});
  // [/eigen]
  // Row 0 sees itself alone; the weights of head 0 are its first six channels, and every row of them adds to 1.
  good = good && out(0, 0) == 1.0f && out(0, 1) == 0.0f;
  for (Eigen::Index t = 0; t < tokens; ++t) good = good && std::abs(out.row(t).head(tokens).sum() - 1.0f) < 1e-6f;

  // [half]
  // half and bfloat16 are storage: widened on load, rounded once on store.
  Eigen::Matrix<Eigen::half, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> narrow(tokens, heads * dim);
  narrow.setOnes();
  encoder.rotate(posenc::as_view(narrow, heads));
  // [/half]
  for (Eigen::Index t = 0; t < tokens; ++t)
    for (Eigen::Index d = 0; d < heads * dim; ++d) good = good && narrow(t, d) == Eigen::half(q(t, d));
  std::printf("channel 0 of token 5: %.7f in float, %.7f in half\n", static_cast<double>(q(5, 0)),
              static_cast<double>(narrow(5, 0)));

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
