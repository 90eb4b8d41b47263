// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Faults that were reported against other code of rotary embeddings: precision, pairing, partial rotation.
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/rope_table.hpp>

#include "support/catch.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace {

using posenc::positions;
using posenc::rope;
using posenc::view;
using posenc_test::contains;

const std::vector<double> x4{1, 2, 3, 4};
const std::vector<double> k4{0.5, -1, 2, 0.25};

template <class T = double>
std::vector<T> rotated(const std::vector<T>& x, std::int64_t at, posenc::rope_options o = {}) {
  std::vector<T> y = x;
  o.head_dim = static_cast<std::int64_t>(x.size());
  rope<T>(o).rotate(view(y.data(), {.tokens = 1, .dim = o.head_dim}), positions::from(at));
  return y;
}
double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double s = 0;
  for (std::size_t i = 0; i < a.size(); ++i) s += a[i] * b[i];
  return s;
}
template <class T>
void check_close(const std::vector<T>& found, const std::vector<double>& right, double tolerance) {
  REQUIRE(found.size() == right.size());
  for (std::size_t i = 0; i < right.size(); ++i) {
    INFO("channel " << i);
    CHECK(std::abs(static_cast<double>(found[i]) - right[i]) <= tolerance);
  }
}
/// cos and sin of one pair in double.
template <class R = double>
std::array<double, 2> row_of(const posenc::rope_options& o, std::int64_t at, std::size_t pair) {
  const rope<double> r(o);
  std::vector<R> c(static_cast<std::size_t>(r.pairs()));
  std::vector<R> s(c.size());
  r.cos_sin(at, c.data(), s.data());
  return {static_cast<double>(c[pair]), static_cast<double>(s[pair])};
}

}  // namespace

TEST_CASE("F01: angles are not formed in half precision") {
  const posenc::rope_options o{.head_dim = 32};
  CHECK(row_of(o, 1857, 1)[0] == Approx(0.3066928098).epsilon(0).margin(1e-9));
  CHECK(row_of<Eigen::half>(o, 1857, 1)[0] == Approx(0.3066928098).epsilon(0).margin(0x1p-12 * 0.5));
  // Half data is rotated by the right angle too.
  std::vector<Eigen::half> x(32, Eigen::half(0));
  x[1] = Eigen::half(1);
  rope<float>(o).rotate(view(x.data(), {.tokens = 1, .dim = 32}), positions::from(1857));
  CHECK(static_cast<double>(x[1]) == Approx(0.3066928098).epsilon(0).margin(0x1p-13));
}

TEST_CASE("F02: a bfloat16 row is the double row rounded once, at every position to 4095") {
  const rope<double> two({.head_dim = 2});
  const auto cos_at = [&](std::int64_t p) {
    double c = 0;
    double s = 0;
    two.cos_sin(p, &c, &s);
    return std::array<double, 2>{c, s};
  };
  CHECK(cos_at(256)[0] == Approx(-0.0397907599).epsilon(0).margin(1e-9));
  CHECK(cos_at(256)[1] == Approx(-0.9992080341).epsilon(0).margin(1e-9));
  CHECK(cos_at(257)[0] == Approx(0.8193055291).epsilon(0).margin(1e-9));
  CHECK(cos_at(257)[1] == Approx(-0.5733571748).epsilon(0).margin(1e-9));
  const rope<double> wide({.head_dim = 64});
  std::int64_t different = 0;
  for (std::int64_t p = 0; p < 4096; ++p) {
    std::array<double, 32> c;
    std::array<double, 32> s;
    std::array<Eigen::bfloat16, 32> narrow_c;
    std::array<Eigen::bfloat16, 32> narrow_s;
    wide.cos_sin(p, c.data(), s.data());
    wide.cos_sin(p, narrow_c.data(), narrow_s.data());
    for (std::size_t i = 0; i < 32; ++i) {
      if (posenc::narrow<Eigen::bfloat16>(c[i]).value != narrow_c[i].value) ++different;
      if (posenc::narrow<Eigen::bfloat16>(s[i]).value != narrow_s[i].value) ++different;
    }
  }
  CHECK(different == 0);
  std::array<Eigen::bfloat16, 2> rows;
  Eigen::bfloat16 unused;
  two.cos_sin(256, &rows[0], &unused);
  two.cos_sin(257, &rows[1], &unused);
  CHECK(rows[0].value != rows[1].value);
}

TEST_CASE("F03: far positions are exact") {
  const posenc::rope_options o{.head_dim = 64};
  CHECK(row_of(o, 300000, 1)[0] == Approx(0.3743284798).epsilon(0).margin(1e-9));
  CHECK(row_of(o, 300000, 1)[1] == Approx(-0.9272961712).epsilon(0).margin(1e-9));
  CHECK(row_of(o, 1000003, 1)[0] == Approx(-0.1361760488).epsilon(0).margin(1e-9));
  CHECK(row_of(o, 1000003, 1)[1] == Approx(-0.9906846540).epsilon(0).margin(1e-9));
  CHECK(row_of(o, 16777217, 0)[0] == Approx(0.9943839639).epsilon(0).margin(1e-9));
  CHECK(row_of<float>(o, 16777217, 0)[0] == Approx(0.9943839639).epsilon(0).margin(3e-8 + 1e-10));
  CHECK(row_of<float>(o, 1000003, 1)[0] == Approx(-0.1361760488).epsilon(0).margin(3e-8 + 1e-10));
}

TEST_CASE("F04: the type of the result is the type of the input") {
  std::array<Eigen::bfloat16, 8> x;
  x.fill(Eigen::bfloat16(1));
  const view<Eigen::bfloat16> in(x.data(), {.tokens = 2, .dim = 4});
  std::array<Eigen::bfloat16, 8> y{};
  const rope<float> r({.head_dim = 4});
  r.rotate_to(in, view<Eigen::bfloat16>(y.data(), in.extents()), positions::from(1));
  // Computed in float, rounded once: within half a unit of bfloat16 of the right value.
  const double right = std::cos(1.0) - std::sin(1.0);
  CHECK(std::abs(static_cast<double>(y[0]) - right) <= 0x1p-9 * std::abs(right));
  CHECK(static_cast<double>(y[4]) ==
        static_cast<double>(posenc::narrow<Eigen::bfloat16>(std::cos(2.0) - std::sin(2.0))));
}

TEST_CASE("F05: every path takes the pairing it is given") {
  const std::vector<double> half{-1.984110649, 1.959900667, 2.462377902, 4.019799668};
  const std::vector<double> inter{-1.142639664, 1.922075597, 2.959850668, 4.029799502};
  for (const posenc::rope_layout layout : {posenc::half_split, posenc::interleaved}) {
    const std::vector<double>& right = layout == posenc::half_split ? half : inter;
    const rope<double> r({.head_dim = 4, .layout = layout});
    check_close(rotated(x4, 1, {.layout = layout}), right, 1e-9);  // in place, double
    check_close(rotated<float>({1, 2, 3, 4}, 1, {.layout = layout}), right, 1e-6);
    std::vector<double> out(4);
    r.rotate_to(view(x4.data(), {.tokens = 1, .dim = 4}), view(out.data(), {.tokens = 1, .dim = 4}),
                positions::from(1));
    check_close(out, right, 1e-9);
    std::vector<double> one = x4;  // the attention kernel's hook
    r.transform_q(one.data(), 4, {1}, 0);
    check_close(one, right, 1e-9);
    one = x4;
    r.transform_k(one.data(), 4, {1}, 0);
    check_close(one, right, 1e-9);
    one = x4;
    posenc::rope_table<double>(r, 0, 4).rotate(view(one.data(), {.tokens = 1, .dim = 4}), positions::from(1));
    check_close(one, right, 1e-9);
    std::vector<double> sparse(8, -7);  // strided
    for (std::size_t i = 0; i < 4; ++i) sparse[2 * i] = x4[i];
    r.rotate(view(sparse.data(), {.tokens = 1, .dim = 4}, {.dim = 2}), positions::from(1));
    for (std::size_t i = 0; i < 4; ++i) CHECK(sparse[2 * i] == Approx(right[i]).epsilon(0).margin(1e-9));
    std::vector<double> batch;  // batches of heads
    for (int i = 0; i < 6; ++i) batch.insert(batch.end(), x4.begin(), x4.end());
    r.rotate(view(batch.data(), {.batch = 2, .tokens = 1, .heads = 3, .dim = 4}), positions::from(1));
    for (std::size_t i = 0; i < 24; ++i) CHECK(batch[i] == Approx(right[i % 4]).epsilon(0).margin(1e-9));
    const std::array<std::int64_t, 1> ids{1};
    one = x4;
    r.rotate(view(one.data(), {.tokens = 1, .dim = 4}), positions::listed(ids));
    check_close(one, right, 1e-9);
  }
}

TEST_CASE("F06: table and rotation have one layout") {
  for (const auto& [layout, right] :
       {std::pair{posenc::half_split, -3.160111731}, {posenc::interleaved, 5.659235114}}) {
    const posenc::rope_options o{.layout = layout};
    CHECK(dot(rotated(x4, 5, o), rotated(k4, 3, o)) == Approx(right).epsilon(0).margin(1e-9));
    CHECK(dot(rotated(x4, 7, o), rotated(k4, 5, o)) == Approx(right).epsilon(0).margin(1e-9));
    CHECK(std::sqrt(dot(rotated(x4, 5, o), rotated(x4, 5, o))) == Approx(5.4772255751));
  }
}

TEST_CASE("F07: rows of cos and sin are one value per pair, and the layout is a type of its own") {
  const rope<double> r({.head_dim = 4, .layout = posenc::interleaved});
  std::array<double, 2> c;
  std::array<double, 2> s;
  r.cos_sin(1, c.data(), s.data());
  CHECK(c[0] == Approx(0.540302306).epsilon(0).margin(1e-9));
  CHECK(c[1] == Approx(0.999950000).epsilon(0).margin(1e-9));
  const posenc::rope_table<double> table(r, 0, 3);
  CHECK(table.pairs() == 2);
  CHECK(table.cos(1)[0] == c[0]);
  CHECK(table.cos(1)[1] == c[1]);
  CHECK(table.sin(1)[1] == s[1]);
  static_assert(!std::is_convertible_v<int, posenc::rope_layout>);
  static_assert(!std::is_convertible_v<bool, posenc::rope_layout>);
}

TEST_CASE("F08: a partial rotation takes exponent and distance from the rotated width") {
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8};
  check_close(rotated(x, 1, {.rotary_dim = 4}), {-1.984110649, 1.959900667, 2.462377902, 4.019799668, 5, 6, 7, 8},
              1e-9);
  check_close(rotated(x, 1, {.partial_rotary_factor = 0.5}),
              {-1.984110649, 1.959900667, 2.462377902, 4.019799668, 5, 6, 7, 8}, 1e-9);
}

TEST_CASE("F09: a partial factor below one is kept") {
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8};
  for (const auto& [factor, pairs] : {std::pair{0.25, 1}, {0.5, 2}}) {
    CHECK(rope<double>({.head_dim = 8, .partial_rotary_factor = factor}).pairs() == pairs);
    const std::vector<double> y = rotated(x, 3, {.partial_rotary_factor = factor});
    CHECK(std::memcmp(y.data() + 2 * pairs, x.data() + 2 * pairs,
                      sizeof(double) * static_cast<std::size_t>(8 - 2 * pairs)) == 0);
    CHECK(y[0] != x[0]);
  }
}

TEST_CASE("F10: an odd rotated width is refused at construction, an odd head is not") {
  for (const std::int64_t r : {9, 1, 0}) {
    const auto make = [&] { rope<float>({.head_dim = 16, .rotary_dim = r}); };
    CHECK_THROWS_AS(make(), std::invalid_argument);
    CHECK_THROWS_WITH(make(), contains("rotary_dim must be even and at least 2, got " + std::to_string(r)));
  }
  CHECK_THROWS_WITH(rope<float>({.head_dim = 9}), contains("got 9"));
  const std::vector<float> x{1, 2, 3, 4, 5};
  const std::vector<float> y = rotated<float>(x, 2, {.rotary_dim = 4});
  CHECK(y[4] == 5);
  CHECK(y[0] != 1);
}

TEST_CASE("F25: without scaling the angle of pair 0 at position 3 is 3") {
  const std::vector<double> one{1, 0, 0, 0};
  // Pair 0 is (0, 2) or (0, 1); 3 lies inside half a turn, so the channels give the angle back.
  const auto angle = [&](const posenc::rope_options& o) {
    const std::vector<double> y = rotated(one, 3, o);
    return std::atan2(y[o.layout == posenc::half_split ? 2 : 1], y[0]);
  };
  for (const auto layout : {posenc::half_split, posenc::interleaved}) {
    CHECK(angle({.layout = layout}) == Approx(3).epsilon(0).margin(1e-14));
    CHECK(angle({.layout = layout, .scaling = posenc::linear{}}) == Approx(3).epsilon(0).margin(1e-14));
    CHECK(angle({.layout = layout, .scaling = posenc::linear{1}}) == Approx(3).epsilon(0).margin(1e-14));
    // No scaling is a factor of 1, bit for bit.
    CHECK(rotated(x4, 3, {.layout = layout}) == rotated(x4, 3, {.layout = layout, .scaling = posenc::linear{1}}));
    // The fault, positions doubled, is an angle of 6; it is to be had by asking for it alone.
    CHECK(angle({.layout = layout, .scaling = posenc::linear{0.5}}) ==
          Approx(6 - 2 * std::acos(-1)).epsilon(0).margin(1e-14));
    CHECK(angle({.layout = layout, .scaling = posenc::linear{2}}) == Approx(1.5).epsilon(0).margin(1e-14));
  }
}
