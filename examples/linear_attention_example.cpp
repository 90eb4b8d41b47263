// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// RoPE in linear attention: feature maps are rotated in the numerator only, and the state of a causal model is one
// matrix per head, whatever the length.
#include <posenc/encoders/rope.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t dim = 8;
constexpr std::int64_t tokens = 64;

/// elu(x) + 1: positive, so the denominator is a sum of positive terms.
double feature(double x) { return x > 0 ? x + 1 : std::exp(x); }

double dot(const double* a, const double* b) {
  double sum = 0;
  for (std::int64_t c = 0; c < dim; ++c) sum += a[c] * b[c];
  return sum;
}

}  // namespace

int main() {
  std::vector<double> q(tokens * dim);
  std::vector<double> k(tokens * dim);
  std::vector<double> v(tokens * dim);
  for (std::size_t i = 0; i < q.size(); ++i) {
    q[i] = feature(std::sin(1.1 * static_cast<double>(i)));
    k[i] = feature(std::cos(0.7 * static_cast<double>(i * i % 101)));
    v[i] = std::sin(0.3 * static_cast<double>(i) + 1);
  }
  const posenc::shape shape{.tokens = tokens, .dim = dim};

  // [rotate]
  // The feature maps of all tokens, turned by their positions; the plain ones are kept for the denominator.
  const posenc::rope<double> rope{{.head_dim = dim, .layout = posenc::interleaved}};
  std::vector<double> turned_q = q;
  std::vector<double> turned_k = k;
  rope.rotate(posenc::view{turned_q.data(), shape}, posenc::positions::from(0));
  rope.rotate(posenc::view{turned_k.data(), shape}, posenc::positions::from(0));
  // [/rotate]

  // [recurrent]
  // One token at a time: memory holds the sum of turned_k(j) v(j)^T, normalizer the sum of k(j).
  std::vector<double> memory(dim * dim, 0.0);
  std::vector<double> normalizer(dim, 0.0);
  std::vector<double> out(tokens * dim, 0.0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto at = static_cast<std::size_t>(t * dim);
    for (std::size_t c = 0; c < dim; ++c) {
      normalizer[c] += k[at + c];
      for (std::size_t d = 0; d < dim; ++d) memory[c * dim + d] += turned_k[at + c] * v[at + d];
    }
    const double denominator = dot(&q[at], normalizer.data());
    for (std::size_t d = 0; d < dim; ++d)
      for (std::size_t c = 0; c < dim; ++c) out[at + d] += turned_q[at + c] * memory[c * dim + d] / denominator;
  }
  // [/recurrent]

  // The quadratic form: every pair on its own.
  double difference = 0;
  for (std::size_t i = 0; i < tokens; ++i) {
    double denominator = 0;
    std::vector<double> sum(dim, 0.0);
    for (std::size_t j = 0; j <= i; ++j) {
      denominator += dot(&q[i * dim], &k[j * dim]);
      for (std::size_t d = 0; d < dim; ++d) sum[d] += dot(&turned_q[i * dim], &turned_k[j * dim]) * v[j * dim + d];
    }
    for (std::size_t d = 0; d < dim; ++d)
      difference = std::max(difference, std::abs(sum[d] / denominator - out[i * dim + d]));
  }
  std::printf("recurrent and quadratic form differ by %.1e\n", difference);
  const bool good = difference < 1e-13;
  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
