// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Faults that were reported against other code: memory, SIMD kernels, sizes of zero.
// F73, F74 and F75 (flags, linking, sizes of types) are tests of the build: tests/cmake/flags.cmake and odr.cmake.
#include <posenc/attention/reference.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/rope_table.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include "support/catch.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace {

using posenc::positions;
using posenc::rope;
using posenc::view;

constexpr std::array both_layouts{posenc::half_split, posenc::interleaved};

template <class T>
std::vector<T> numbers(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-2, 2);
  std::vector<T> x(n);
  for (T& e : x) e = posenc::narrow<T>(draw(random));
  return x;
}

}  // namespace

TEST_CASE("F69: in place is out of place for every width, and partly overlapping memory is refused") {
  for (const posenc::rope_layout layout : both_layouts)
    for (std::int64_t dim = 2; dim <= 70; dim += 2) {
      const rope<float> r({.head_dim = dim, .layout = layout});
      const std::vector<float> x = numbers<float>(static_cast<std::size_t>(3 * dim), 1);
      std::vector<float> place = x;
      std::vector<float> apart(x.size());
      const posenc::shape s{.tokens = 3, .dim = dim};
      r.rotate(view(place.data(), s), positions::from(1));
      r.rotate_to(view(x.data(), s), view(apart.data(), s), positions::from(1));
      INFO("width " << dim);
      CHECK(place == apart);
      std::vector<float> overlap(x.size() + 1);
      CHECK_THROWS_AS(r.rotate_to(view(overlap.data(), s), view(overlap.data() + 1, s)), std::invalid_argument);
      CHECK(overlap == std::vector<float>(x.size() + 1));
    }
  for (std::int64_t dim = 3; dim <= 70; dim += 2) {  // odd heads, the tail passes through
    const rope<float> r({.head_dim = dim, .rotary_dim = dim - 1});
    const std::vector<float> x = numbers<float>(static_cast<std::size_t>(dim), 1);
    std::vector<float> place = x;
    std::vector<float> apart(x.size());
    r.rotate(view(place.data(), {.tokens = 1, .dim = dim}), positions::from(1));
    r.rotate_to(view(x.data(), {.tokens = 1, .dim = dim}), view(apart.data(), {.tokens = 1, .dim = dim}),
                positions::from(1));
    CHECK(place == apart);
    CHECK(place.back() == x.back());
  }
}

TEST_CASE("F70: every view has strides of its own") {
  for (const posenc::rope_layout layout : both_layouts) {
    const rope<float> r({.head_dim = 4, .layout = layout});
    const std::vector<float> packed = numbers<float>(12, 3);
    std::vector<float> right = packed;
    r.rotate(view(right.data(), {.tokens = 1, .heads = 3, .dim = 4}), positions::from(5));
    for (const std::int64_t step : {4, 6}) {
      std::vector<float> x(static_cast<std::size_t>(3 * step), -77);
      for (std::size_t h = 0; h < 3; ++h)
        std::copy_n(packed.begin() + 4 * static_cast<long>(h), 4, x.begin() + static_cast<long>(h) * step);
      r.rotate(view(x.data(), {.tokens = 1, .heads = 3, .dim = 4}, {.token = 3 * step, .head = step}),
               positions::from(5));
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t d = i % static_cast<std::size_t>(step);
        CHECK(x[i] == (d < 4 ? right[4 * (i / static_cast<std::size_t>(step)) + d] : -77));
      }
    }
  }
}

TEST_CASE("F71: rows of exact size are not read past their end") {
  for (const std::int64_t dim : {2, 4, 6, 10, 12, 24, 26})
    for (const posenc::rope_layout layout : both_layouts) {
      const rope<float> r({.head_dim = dim, .layout = layout});
      // A new array of exactly dim elements, so that an address sanitizer sees every byte past it.
      const auto x = std::make_unique<float[]>(static_cast<std::size_t>(dim));
      const auto h = std::make_unique<Eigen::half[]>(static_cast<std::size_t>(dim));
      for (std::int64_t d = 0; d < dim; ++d) {
        x[static_cast<std::size_t>(d)] = 1;
        h[static_cast<std::size_t>(d)] = Eigen::half(1);
      }
      r.rotate(view(x.get(), {.tokens = 1, .dim = dim}), positions::from(1));
      r.rotate(view(h.get(), {.tokens = 1, .dim = dim}), positions::from(1));
      double norm = 0;
      for (std::int64_t d = 0; d < dim; ++d)
        norm +=
            static_cast<double>(x[static_cast<std::size_t>(d)]) * static_cast<double>(x[static_cast<std::size_t>(d)]);
      CHECK(norm == Approx(static_cast<double>(dim)).epsilon(1e-6));
      CHECK(std::isfinite(static_cast<float>(h[0])));
    }
}

TEST_CASE("F72: memory of any alignment will do") {
  const rope<float> r({.head_dim = 26});
  const posenc::sinusoidal<float> pe({.dim = 26});
  const std::vector<float> x = numbers<float>(52, 4);
  std::vector<float> right = x;
  const posenc::shape s{.tokens = 2, .dim = 26};
  r.rotate(view(right.data(), s), positions::from(3));
  pe.embed(view(right.data(), s));
  std::vector<float> memory(52 + 32);
  for (std::size_t offset = 0; offset < 17; ++offset) {  // every multiple of 4 bytes up to 64
    float* at = memory.data() + offset;
    std::copy(x.begin(), x.end(), at);
    r.rotate(view(at, s), positions::from(3));
    pe.embed(view(at, s));
    CHECK(std::equal(right.begin(), right.end(), at));
  }
  std::vector<Eigen::half> halves(52 + 32);
  std::vector<Eigen::half> right_half;
  for (std::size_t offset = 0; offset < 32; ++offset) {  // every multiple of 2 bytes
    Eigen::half* at = halves.data() + offset;
    for (std::size_t i = 0; i < 52; ++i) at[i] = Eigen::half(x[i]);
    r.rotate(view(at, s), positions::from(3));
    if (offset == 0) right_half.assign(at, at + 52);
    for (std::size_t i = 0; i < 52; ++i) CHECK(at[i].x == right_half[i].x);
  }
}

TEST_CASE("F76: tables belong to their objects, nothing is kept for the process") {
  const rope<float> first({.head_dim = 128, .base = 5000});
  const posenc::rope_table<float> in_use(first, 0, 64);
  const float before = in_use.cos(63)[5];
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  const std::size_t held = mallinfo2().uordblks + mallinfo2().hblkhd;
#endif
  // Tables of 64 KiB, one at a time; the encoder keeps its frequencies alone, whatever rows are made of it.
  constexpr std::int64_t rows = 128;
  for (int i = 0; i < 1000; ++i) {
    const rope<float> r({.head_dim = 128, .base = 10000.0 + i});
    const posenc::rope_table<float> table(r, 0, rows);
    REQUIRE(table.rows() == rows);
    // rows * 2 * pairs values without gaps: the last sine ends where the table does.
    REQUIRE(table.sin(rows - 1) + table.pairs() - table.cos(0) == rows * 128);
    REQUIRE(r.describe().table_bytes == first.describe().table_bytes);
  }
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  CHECK(mallinfo2().uordblks + mallinfo2().hblkhd <= held + 4096);
#endif
  CHECK(in_use.cos(63)[5] == before);
}

TEST_CASE("F77: sizes of zero return at once, null pointers included") {
  const rope<float> r({.head_dim = 4});
  const posenc::rope_table<float> no_rows(r, 0, 0);
  const posenc::sinusoidal<float> pe({.dim = 4});
  const std::vector<float> table(8);
  const posenc::learned<float> learned({.rows = 2, .dim = 4}, std::span<const float>(table));
  for (const posenc::shape s : {posenc::shape{.batch = 1, .tokens = 0, .heads = 2, .dim = 4},
                                posenc::shape{.batch = 1, .tokens = 3, .heads = 0, .dim = 4},
                                posenc::shape{.batch = 0, .tokens = 3, .heads = 2, .dim = 4},
                                posenc::shape{.batch = 1, .tokens = 3, .heads = 2, .dim = 0}}) {
    const view<float> empty(nullptr, s);
    CHECK_NOTHROW(r.rotate(empty, positions::from(9)));
    CHECK_NOTHROW(r.rotate_to(empty, empty));
    CHECK_NOTHROW(r.inverse(empty));
    CHECK_NOTHROW(no_rows.rotate(empty));
    CHECK_NOTHROW(pe.embed(empty));
    CHECK_NOTHROW(pe.table(empty));
    CHECK_NOTHROW(learned.embed(empty, positions::from(99)));
    CHECK_NOTHROW(learned.lookup(empty));
    CHECK_NOTHROW(posenc::attention_reference(empty, empty, empty, empty, posenc::compose()));
  }
  std::vector<double> q(12, 1);
  std::vector<double> out(12, 9);
  const view<double> none(nullptr, {.tokens = 0, .heads = 1, .dim = 4});
  posenc::attention_reference(view(q.data(), {.tokens = 3, .dim = 4}), none, none,
                              view(out.data(), {.tokens = 3, .dim = 4}), posenc::compose());
  CHECK(out == std::vector<double>(12, 0));
}

TEST_CASE("F78: the half kernel is the float kernel rounded once, bit for bit") {
  // 100000 vectors in all: 10000 of each width and layout.
  for (const std::int64_t dim : {64, 80, 96, 128, 256})
    for (const posenc::rope_layout layout : both_layouts) {
      const rope<float> r({.head_dim = dim, .layout = layout});
      constexpr std::int64_t tokens = 500;
      constexpr std::int64_t heads = 20;
      const posenc::shape s{.tokens = tokens, .heads = heads, .dim = dim};
      std::vector<Eigen::half> x =
          numbers<Eigen::half>(static_cast<std::size_t>(s.elements()), static_cast<unsigned>(dim));
      std::vector<float> wide(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) wide[i] = posenc::widen(x[i]);
      r.rotate(view(x.data(), s), positions::from(1000));
      r.rotate(view(wide.data(), s), positions::from(1000));
      std::int64_t different = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        if (x[i].x != posenc::narrow<Eigen::half>(wide[i]).x) ++different;
      INFO("width " << dim);
      CHECK(different == 0);
    }
}
