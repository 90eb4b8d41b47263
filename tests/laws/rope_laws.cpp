// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rope.hpp>

using posenc::positions;
using posenc::shape;
using posenc::view;

namespace {

constexpr std::uint64_t cases = 60;

posenc::rope_options options(laws::random_case& any, bool with_magnitude = true) {
  const std::int64_t rotary_dim = 2 * any.whole(1, 40);
  const std::int64_t offset = any.whole(0, 5);
  constexpr double bases[] = {1e4, 5e5, 100, 1e6};
  return {.head_dim = rotary_dim + offset + any.whole(0, 5),
          .rotary_dim = rotary_dim,
          .offset = offset,
          .base = bases[any.whole(0, 3)],
          .layout = any.coin() ? posenc::half_split : posenc::interleaved,
          .scaling = posenc::linear{any.real(0.5, 8)},
          .attention_factor = with_magnitude && any.coin() ? any.real(0.5, 2) : 1};
}

/// Every position that matters: near, far, negative.
std::int64_t place(laws::random_case& any) {
  constexpr std::int64_t reach[] = {10, 5000, 1000000000, std::int64_t{1} << 61};
  const std::int64_t r = reach[any.whole(0, 3)];
  return any.whole(-r, r);
}

template <class T>
std::vector<T> rotated(const posenc::rope<double>& r, std::vector<T> x, std::int64_t at) {
  r.rotate(view{x.data(), {.tokens = 1, .dim = r.head_dim()}}, positions::from(at));
  return x;
}

}  // namespace

TEST_CASE("rope: the norm is kept", "[laws][rope]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const posenc::rope<double> r{options(any, false)};
    const auto x = any.vector(r.head_dim());
    const auto y = rotated(r, x, place(any));
    CHECK(laws::dot(y.data(), y.data(), r.head_dim()) ==
          Approx(laws::dot(x.data(), x.data(), r.head_dim())).epsilon(4e-15));
  }
}

TEST_CASE("rope: a score depends on the difference of the positions alone", "[laws][rope]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const posenc::rope<double> r{options(any)};
    const auto q = any.vector(r.head_dim());
    const auto k = any.vector(r.head_dim());
    const std::int64_t p = any.whole(-1000, 1000);
    const std::int64_t s = any.whole(-1000, 1000);
    const std::int64_t t = place(any);
    const auto score = [&](std::int64_t a, std::int64_t b) {
      return laws::dot(rotated(r, q, a).data(), rotated(r, k, b).data(), r.head_dim());
    };
    CHECK(score(p + t, s + t) == Approx(score(p, s)).epsilon(0).margin(5e-14));
    // And it does depend on it: the fastest pair turns by more than a tenth of a radian per position.
    CHECK(std::abs(score(p + 1, s) - score(p, s)) > 1e-7);
  }
}

TEST_CASE("rope: R(a) R(b) = R(a + b), inverse and adjoint", "[laws][rope]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const posenc::rope<double> r{options(any)};
    const std::int64_t d = r.head_dim();
    const auto x = any.vector(d);
    const auto y = any.vector(d);
    const std::int64_t a = place(any) / 2;
    const std::int64_t b = place(any) / 2;

    // The magnitude enters once with every rotation, so that it is taken out of one of the two.
    auto two = rotated(r, x, a);
    auto one = rotated(r, x, a + b);
    auto moved = two;
    two = rotated(r, two, b);
    for (std::int64_t i = r.offset(); i < r.offset() + r.rotary_dim(); ++i)
      two[static_cast<std::size_t>(i)] /= r.magnitude();
    CHECK(laws::difference(two, one) < 1e-14);
    r.shift(view{moved.data(), {.tokens = 1, .dim = d}}, b);
    CHECK(laws::difference(moved, one) < 1e-14);

    auto back = rotated(r, x, a);
    r.inverse(view{back.data(), {.tokens = 1, .dim = d}}, positions::from(a));
    CHECK(laws::difference(back, x) < 2e-15);

    auto transposed = y;
    r.adjoint(view{transposed.data(), {.tokens = 1, .dim = d}}, positions::from(a));
    CHECK(laws::dot(rotated(r, x, a).data(), y.data(), d) ==
          Approx(laws::dot(x.data(), transposed.data(), d)).epsilon(0).margin(5e-14));
  }
}

TEST_CASE("rope: the layouts agree up to the permutation P", "[laws][rope]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    auto o = options(any);
    o.layout = posenc::interleaved;
    const posenc::rope<double> pairs{o};
    o.layout = posenc::half_split;
    const posenc::rope<double> halves{o};
    const std::int64_t first = o.offset;
    const std::int64_t half = pairs.pairs();
    const auto permuted = [&](const std::vector<double>& x) {
      auto y = x;
      for (std::int64_t i = 0; i < half; ++i) {
        y[static_cast<std::size_t>(first + i)] = x[static_cast<std::size_t>(first + 2 * i)];
        y[static_cast<std::size_t>(first + half + i)] = x[static_cast<std::size_t>(first + 2 * i + 1)];
      }
      return y;
    };
    const auto x = any.vector(o.head_dim);
    const std::int64_t at = place(any);
    CHECK(laws::difference(rotated(halves, permuted(x), at), permuted(rotated(pairs, x, at))) < 1e-15);
  }
}

TEST_CASE("rope: strided memory gives what packed memory gives", "[laws][rope]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const posenc::rope<double> r{options(any)};
    const shape s{.batch = any.whole(1, 2), .tokens = any.whole(1, 4), .heads = any.whole(1, 6), .dim = r.head_dim()};
    const std::int64_t at = place(any) / 2;
    auto x = any.vector(s.elements());
    const std::int64_t apart = any.whole(1, 3);
    // [head, batch, token] outside, dim apart by `apart`, counted down.
    const posenc::strides step{.batch = apart * s.dim * s.tokens,
                               .token = apart * s.dim,
                               .head = apart * s.dim * s.tokens * s.batch,
                               .dim = -apart};
    std::vector<double> memory(static_cast<std::size_t>(apart * s.elements()), 0.5);
    const view packed{x.data(), s};
    const view strided{memory.data() + apart * (s.dim - 1), s, step};
    const auto each = [&](auto&& f) {
      for (std::int64_t b = 0; b < s.batch; ++b)
        for (std::int64_t t = 0; t < s.tokens; ++t)
          for (std::int64_t h = 0; h < s.heads; ++h)
            for (std::int64_t d = 0; d < s.dim; ++d) f(b, t, h, d);
    };
    each([&](auto... i) { strided(i...) = packed(i...); });
    r.rotate(packed, positions::from(at));
    r.rotate(strided, positions::from(at));
    posenc_test::worst worst;
    each([&](auto... i) { worst.see(std::abs(strided(i...) - packed(i...))); });
    CHECK(worst.error < 1e-15);
    std::size_t untouched = 0;
    for (const double m : memory) untouched += m == 0.5;
    CHECK(untouched == static_cast<std::size_t>((apart - 1) * s.elements()));
  }
}

TEMPLATE_TEST_CASE("rope: 16-bit data is the float path, rounded once", "[laws][rope]", Eigen::half, Eigen::bfloat16) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const posenc::rope<float> r{options(any)};
    const shape s{.tokens = 2, .heads = any.whole(1, 6), .dim = r.head_dim()};
    const std::int64_t at = place(any) / 2;
    std::vector<TestType> narrow;
    for (const float x : any.vector<float>(s.elements())) narrow.emplace_back(x);
    std::vector<float> wide(narrow.begin(), narrow.end());
    r.rotate(view{narrow.data(), s}, positions::from(at));
    r.rotate(view{wide.data(), s}, positions::from(at));
    std::size_t different = 0;
    for (std::size_t i = 0; i < wide.size(); ++i) different += narrow[i] != TestType(wide[i]);
    CHECK(different == 0);
  }
}

TEST_CASE("rope: position 0 is the identity, the rest is left alone, a factor of 1 is none", "[laws][rope]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    auto o = options(any, false);
    const posenc::rope<double> r{o};
    const auto x = any.vector(o.head_dim);
    const std::int64_t at = place(any);
    CHECK(rotated(r, x, 0) == x);
    std::vector<float> single(x.begin(), x.end());
    CHECK(rotated(r, single, 0) == single);

    const auto y = rotated(r, x, at);
    bool rest = true;
    for (std::int64_t d = 0; d < o.head_dim; ++d)
      if (d < o.offset || d >= o.offset + *o.rotary_dim)
        rest = rest && y[static_cast<std::size_t>(d)] == x[static_cast<std::size_t>(d)];
    CHECK(rest);

    o.scaling = posenc::linear{1};
    const posenc::rope<double> by_one{o};
    o.scaling = posenc::no_scaling{};
    const posenc::rope<double> plain{o};
    CHECK(by_one.inv_freq() == plain.inv_freq());
    CHECK(rotated(by_one, x, at) == rotated(plain, x, at));
  }
}

TEST_CASE("rope: dividing frequencies is dividing positions", "[laws][rope]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    auto o = options(any);
    o.scaling = posenc::linear{4};
    const posenc::rope<double> slow{o};
    o.scaling = posenc::no_scaling{};
    const posenc::rope<double> plain{o};
    const auto x = any.vector(o.head_dim);
    const std::int64_t at = any.whole(-100000, 100000);
    auto at_quarter = x;
    const std::vector<double> where{static_cast<double>(at) / 4};
    plain.rotate(view{at_quarter.data(), {.tokens = 1, .dim = o.head_dim}}, posenc::real_positions{where});
    CHECK(laws::difference(rotated(slow, x, at), at_quarter) < 1e-13);
  }
}

TEST_CASE("rope: a thousand shifts by one are a shift by a thousand", "[laws][rope]") {
  for (const auto layout : {posenc::half_split, posenc::interleaved, posenc::interleaved_in_half_out}) {
    CAPTURE(layout);
    const posenc::rope<double> r{{.head_dim = 64, .layout = layout, .attention_factor = 1.1385}};
    const shape s{.tokens = 4, .dim = 64};
    laws::random_case any(3);
    const auto x = any.vector(s.elements());
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{100000}, std::int64_t{1000000000}}) {
      auto once = x;
      r.rotate(view{once.data(), s}, positions::from(first));
      auto stepwise = once;
      std::vector<float> narrow(once.begin(), once.end());
      std::vector<float> narrow_once = narrow;
      r.shift(view{once.data(), s}, 1000);
      r.shift(view{narrow_once.data(), s}, 1000);
      for (int i = 0; i < 1000; ++i) {
        r.shift(view{stepwise.data(), s}, 1);
        r.shift(view{narrow.data(), s}, 1);
      }
      // What grows is the rounding of the data: a step of its type per shift, never the angle.
      CHECK(laws::difference(stepwise, once) < 1e-12);
      CHECK(laws::difference(narrow, narrow_once) < 1000 * 1.2e-7);
      // And it is where a rotation would have put it, the magnitude once.
      auto direct = x;
      r.rotate(view{direct.data(), s}, positions::from(first + 1000));
      CHECK(laws::difference(stepwise, direct) < 1e-12);
    }
  }
}
