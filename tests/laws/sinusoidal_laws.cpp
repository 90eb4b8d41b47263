// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/sinusoidal.hpp>

using posenc::positions;
using posenc::shape;
using posenc::sinusoidal_layout;
using posenc::view;

namespace {

constexpr std::uint64_t cases = 60;
constexpr sinusoidal_layout layouts[] = {sinusoidal_layout::interleaved_sin_cos, sinusoidal_layout::interleaved_cos_sin,
                                         sinusoidal_layout::concat_sin_cos, sinusoidal_layout::concat_cos_sin};

std::vector<double> row(const posenc::sinusoidal<double>& e, std::int64_t at) {
  std::vector<double> out(static_cast<std::size_t>(e.dim()));
  e.table(view{out.data(), {.tokens = 1, .dim = e.dim()}}, positions::from(at));
  return out;
}

/// Where pair i keeps its sine and its cosine.
struct pair_place {
  std::size_t sine;
  std::size_t cosine;
};
pair_place place(sinusoidal_layout layout, std::int64_t pairs, std::int64_t i) {
  const auto u = static_cast<std::size_t>(i);
  const auto n = static_cast<std::size_t>(pairs);
  switch (layout) {
    case sinusoidal_layout::interleaved_sin_cos: return {2 * u, 2 * u + 1};
    case sinusoidal_layout::interleaved_cos_sin: return {2 * u + 1, 2 * u};
    case sinusoidal_layout::concat_sin_cos: return {u, n + u};
    default: return {n + u, u};
  }
}

}  // namespace

TEST_CASE("sinusoidal: PE(p + k) = A(k) PE(p), the same A at every p", "[laws][sinusoidal]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t pairs = any.whole(1, 40);
    const auto layout = layouts[any.whole(0, 3)];
    const posenc::sinusoidal<double> e{
        {.dim = 2 * pairs, .layout = layout, .start = any.whole(-3, 3), .scale = any.real(0.1, 2)}};
    // Frequencies are told by a rope of as many channels, not by the encoder under test.
    const auto w = posenc::rope<double>{{.head_dim = 2 * pairs}}.inv_freq();
    const std::int64_t k = any.whole(-50, 50);
    posenc_test::worst worst;
    for (int n = 0; n < 3; ++n) {
      const std::int64_t p = any.whole(-100000, 100000);
      const auto here = row(e, p);
      const auto there = row(e, p + k);
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double c = std::cos(w[static_cast<std::size_t>(i)] * static_cast<double>(k));
        const double s = std::sin(w[static_cast<std::size_t>(i)] * static_cast<double>(k));
        const auto [sine, cosine] = place(layout, pairs, i);
        worst.see(std::abs(there[sine] - (c * here[sine] + s * here[cosine])), static_cast<long double>(p));
        worst.see(std::abs(there[cosine] - (c * here[cosine] - s * here[sine])), static_cast<long double>(p));
      }
    }
    INFO(worst);
    CHECK(worst.error < 1e-13);
  }
}

TEST_CASE("sinusoidal: every row has the same norm, and PE(p).PE(p + k) does not depend on p", "[laws][sinusoidal]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t dim = 2 * any.whole(1, 100);
    const double scale = any.real(0.1, 2);
    const posenc::sinusoidal<double> e{{.dim = dim, .layout = layouts[any.whole(0, 3)], .scale = scale}};
    const std::int64_t p = any.whole(-1000000, 1000000);
    const std::int64_t k = any.whole(0, 1000);
    const auto near = row(e, 0);
    const auto near_k = row(e, k);
    const auto far = row(e, p);
    const auto far_k = row(e, p + k);
    const auto far_back = row(e, p - k);
    CHECK(laws::dot(far.data(), far.data(), dim) ==
          Approx(scale * scale * static_cast<double>(dim) / 2).epsilon(1e-14));
    const double expected = laws::dot(near.data(), near_k.data(), dim);
    CHECK(laws::dot(far.data(), far_k.data(), dim) == Approx(expected).epsilon(0).margin(1e-12));
    CHECK(laws::dot(far.data(), far_back.data(), dim) == Approx(expected).epsilon(0).margin(1e-12));
  }
}

TEST_CASE("sinusoidal: the rows are rope's table, and rope moves them along", "[laws][sinusoidal]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t pairs = any.whole(1, 80);
    const double base = any.coin() ? 1e4 : 5e5;
    const std::int64_t t = any.whole(-1000000, 1000000);
    const std::int64_t k = any.whole(-1000000, 1000000);
    for (const bool halves : {true, false}) {
      const posenc::rope<double> r{
          {.head_dim = 2 * pairs, .base = base, .layout = halves ? posenc::half_split : posenc::interleaved}};
      const auto layout = halves ? sinusoidal_layout::concat_cos_sin : sinusoidal_layout::interleaved_cos_sin;
      const posenc::sinusoidal<double> e{{.dim = 2 * pairs, .base = base, .layout = layout}};
      auto x = row(e, t);
      std::vector<double> cosines(static_cast<std::size_t>(pairs));
      std::vector<double> sines(static_cast<std::size_t>(pairs));
      r.cos_sin(t, cosines.data(), sines.data());
      bool same = true;
      for (std::int64_t i = 0; i < pairs; ++i) {
        const auto [sine, cosine] = place(layout, pairs, i);
        same =
            same && x[sine] == sines[static_cast<std::size_t>(i)] && x[cosine] == cosines[static_cast<std::size_t>(i)];
      }
      CHECK(same);
      r.rotate(view{x.data(), {.tokens = 1, .dim = 2 * pairs}}, positions::from(k));
      CHECK(laws::difference(x, row(e, t + k)) < 1e-15);
    }
  }
}

TEST_CASE("sinusoidal: layouts are permutations, scale and start act as named", "[laws][sinusoidal]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t pairs = any.whole(1, 70);
    const auto layout = layouts[any.whole(0, 3)];
    const auto denominator =
        any.coin() ? posenc::sinusoidal_denominator::half : posenc::sinusoidal_denominator::half_minus_1;
    const std::int64_t at = any.whole(-5000, 5000);
    const std::int64_t start = any.whole(0, 9);
    const auto paper = row(posenc::sinusoidal<double>{{.dim = 2 * pairs, .denominator = denominator}}, at + start);
    const auto other = row(
        posenc::sinusoidal<double>{
            {.dim = 2 * pairs, .layout = layout, .denominator = denominator, .start = start, .scale = 0.5}},
        at);
    bool same = true;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const auto from = place(sinusoidal_layout::interleaved_sin_cos, pairs, i);
      const auto to = place(layout, pairs, i);
      same = same && other[to.sine] == 0.5 * paper[from.sine] && other[to.cosine] == 0.5 * paper[from.cosine];
    }
    CHECK(same);
  }
}

TEMPLATE_TEST_CASE("sinusoidal: embedding is adding the row, and 16-bit data is the float path rounded once",
                   "[laws][sinusoidal]", Eigen::half, Eigen::bfloat16) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const shape s{.tokens = any.whole(1, 4), .heads = any.whole(1, 2), .dim = any.whole(1, 150)};
    const posenc::sinusoidal<float> e{{.dim = s.dim, .layout = layouts[any.whole(0, 3)]}};
    const auto at = positions::from(any.whole(-100000, 100000));
    std::vector<float> rows(static_cast<std::size_t>(s.elements()));
    e.table(view{rows.data(), s}, at);
    const auto x = any.vector<float>(s.elements());
    auto sum = x;
    e.embed(view{sum.data(), s}, at);
    std::size_t different = 0;
    for (std::size_t i = 0; i < x.size(); ++i) different += sum[i] != x[i] + rows[i];
    CHECK(different == 0);

    std::vector<TestType> narrow;
    for (const float v : x) narrow.emplace_back(v);
    const auto before = narrow;
    e.embed(view{narrow.data(), s}, at);
    different = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      different += narrow[i] != TestType(static_cast<float>(before[i]) + rows[i]);
    CHECK(different == 0);
  }
}
