// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// RoPE in linear attention: feature maps are rotated in the numerator only,
//   out(i) = sum over j <= i of (R_i phi(q_i)) . (R_j phi(k_j)) v_j / sum over j <= i of phi(q_i) . phi(k_j),
// so that the denominator stays a sum of positive terms. The recurrent form keeps S = sum of (R_j phi(k_j)) v_j^T and
// z = sum of phi(k_j).
#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <posenc/encoders/rope.hpp>

using posenc::positions;
using posenc::view;

namespace {

constexpr std::uint64_t cases = 40;

/// elu(x) + 1, which is positive.
std::vector<double> feature_map(std::vector<double> x) {
  for (double& e : x) e = e > 0 ? e + 1 : std::exp(e);
  return x;
}

struct sequence {
  std::int64_t tokens;
  std::int64_t dim;
  std::vector<double> q;  // feature maps [tokens, dim]
  std::vector<double> k;
  std::vector<double> v;

  static sequence random(laws::random_case& any) {
    sequence s{.tokens = any.whole(1, 24), .dim = 2 * any.whole(1, 8), .q = {}, .k = {}, .v = {}};
    s.q = feature_map(any.vector(s.tokens * s.dim));
    s.k = feature_map(any.vector(s.tokens * s.dim));
    s.v = any.vector(s.tokens * s.dim);
    return s;
  }
  [[nodiscard]] std::vector<double> rotated(const posenc::rope<double>& rope, const std::vector<double>& x,
                                            std::int64_t first) const {
    auto out = x;
    rope.rotate(view{out.data(), {.tokens = tokens, .dim = dim}}, positions::from(first));
    return out;
  }
};

/// The definition, every pair on its own: phi(q) . R(j - i) phi(k) with the rotation written out here, where pair p
/// holds channels 2p and 2p + 1 and turns by 10000^(-2p / dim) per position.
std::vector<double> quadratic(const sequence& s) {
  std::vector<double> out(s.v.size(), 0.0);
  for (std::int64_t i = 0; i < s.tokens; ++i) {
    double denominator = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      const double* q = s.q.data() + i * s.dim;
      const double* k = s.k.data() + j * s.dim;
      double turned = 0;
      for (std::int64_t p = 0; p < s.dim; p += 2) {
        const double angle =
            static_cast<double>(j - i) * std::pow(10000.0, -static_cast<double>(p) / static_cast<double>(s.dim));
        turned += q[p] * (std::cos(angle) * k[p] - std::sin(angle) * k[p + 1]);
        turned += q[p + 1] * (std::sin(angle) * k[p] + std::cos(angle) * k[p + 1]);
      }
      denominator += laws::dot(q, k, s.dim);
      for (std::int64_t d = 0; d < s.dim; ++d)
        out[static_cast<std::size_t>(i * s.dim + d)] += turned * s.v[static_cast<std::size_t>(j * s.dim + d)];
    }
    for (std::int64_t d = 0; d < s.dim; ++d) out[static_cast<std::size_t>(i * s.dim + d)] /= denominator;
  }
  return out;
}

/// The state of the recurrent form, after any number of tokens.
struct state {
  std::int64_t dim;
  std::vector<double> kv = std::vector<double>(static_cast<std::size_t>(dim * dim), 0.0);
  std::vector<double> normalizer = std::vector<double>(static_cast<std::size_t>(dim), 0.0);

  /// One token; `q` and `k` are feature maps, `turned_q` and `turned_k` the same after rotation.
  void step(const double* q, const double* k, const double* turned_q, const double* turned_k, const double* v,
            double* out) {
    for (std::int64_t c = 0; c < dim; ++c) {
      normalizer[static_cast<std::size_t>(c)] += k[c];
      for (std::int64_t d = 0; d < dim; ++d) kv[static_cast<std::size_t>(c * dim + d)] += turned_k[c] * v[d];
    }
    const double denominator = laws::dot(q, normalizer.data(), dim);
    for (std::int64_t d = 0; d < dim; ++d) {
      out[d] = 0;
      for (std::int64_t c = 0; c < dim; ++c) out[d] += turned_q[c] * kv[static_cast<std::size_t>(c * dim + d)];
      out[d] /= denominator;
    }
  }
};

std::vector<double> recurrent(const sequence& s, const posenc::rope<double>& rope, std::int64_t first) {
  const auto q = s.rotated(rope, s.q, first);
  const auto k = s.rotated(rope, s.k, first);
  std::vector<double> out(s.v.size());
  state memory{.dim = s.dim};
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const std::int64_t at = t * s.dim;
    memory.step(s.q.data() + at, s.k.data() + at, q.data() + at, k.data() + at, s.v.data() + at, out.data() + at);
  }
  return out;
}

}  // namespace

TEST_CASE("linear attention: the recurrent form under rotated feature maps is the quadratic form",
          "[laws][linear_attention]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const auto s = sequence::random(any);
    const posenc::rope<double> rope{{.head_dim = s.dim, .layout = posenc::interleaved}};
    CHECK(laws::difference(recurrent(s, rope, 0), quadratic(s)) < 1e-13);
    // Relative: where the first token stands does not matter.
    CHECK(laws::difference(recurrent(s, rope, any.whole(-100000, 100000)), quadratic(s)) < 1e-11);
  }
}

TEST_CASE("linear attention: a state is moved by turning its keys, as a cache is", "[laws][linear_attention]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    auto s = sequence::random(any);
    const posenc::rope<double> rope{{.head_dim = s.dim, .layout = posenc::interleaved}};
    const std::int64_t delta = any.whole(-50, 50);
    const auto sum_of = [&](std::int64_t first) {
      state memory{.dim = s.dim};
      const auto k = s.rotated(rope, s.k, first);
      std::vector<double> ignored(static_cast<std::size_t>(s.dim));
      for (std::int64_t t = 0; t < s.tokens; ++t) {
        const std::int64_t at = t * s.dim;
        memory.step(s.q.data() + at, s.k.data() + at, s.q.data() + at, k.data() + at, s.v.data() + at, ignored.data());
      }
      return memory.kv;  // [key channel, value channel]
    };
    auto moved = sum_of(0);
    // Every value channel is one column of keys: a view of [value channel as token, key channel as dim].
    rope.shift(view{moved.data(), {.tokens = s.dim, .dim = s.dim}, {.token = 1, .dim = s.dim}}, delta);
    CHECK(laws::difference(moved, sum_of(delta)) < 1e-12);
  }
}

TEST_CASE("linear attention: a rotated denominator would change sign", "[laws][linear_attention]") {
  const posenc::rope<double> rope{{.head_dim = 2, .layout = posenc::interleaved}};
  // One pair, turned by 3 radians from key to query: phi(q) . phi(k) = 2, but 2 cos 3 after rotation.
  std::vector<double> q{1, 1};
  std::vector<double> k{1, 1};
  CHECK(laws::dot(q.data(), k.data(), 2) == 2);
  rope.rotate(view{q.data(), {.tokens = 1, .dim = 2}}, positions::from(3));
  rope.rotate(view{k.data(), {.tokens = 1, .dim = 2}}, positions::from(0));
  CHECK(laws::dot(q.data(), k.data(), 2) == Approx(2 * std::cos(3.0)).epsilon(1e-14));
  CHECK(laws::dot(q.data(), k.data(), 2) < -1.9);
}
