// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/view.hpp>

#include "support/catch.hpp"
#include "support/inputs.hpp"

#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

using posenc_test::contains;

namespace {
constexpr posenc::shape small{.batch = 2, .tokens = 3, .heads = 4, .dim = 5};
}

TEST_CASE("view: packed strides name every element once, in order", "[core][view]") {
  std::vector<float> data(static_cast<std::size_t>(small.elements()));
  std::iota(data.begin(), data.end(), 0.0f);
  const posenc::view v(data.data(), small);
  const posenc::view h(data.data(), small, posenc::head_major(small));
  float token_order = 0;
  float head_order = 0;
  int wrong = 0;
  for (int b = 0; b < 2; ++b) {
    for (int t = 0; t < 3; ++t)
      for (int i = 0; i < 4; ++i)
        for (int d = 0; d < 5; ++d) wrong += v(b, t, i, d) != token_order++;
    for (int i = 0; i < 4; ++i)
      for (int t = 0; t < 3; ++t)
        for (int d = 0; d < 5; ++d) wrong += h(b, t, i, d) != head_order++;
  }
  CHECK(wrong == 0);
  CHECK(v.row(1, 2, 3) == data.data() + 115);
  CHECK(v.unit_dim_stride());
  CHECK(!v.repeats());
  CHECK(v.extents() == small);
  CHECK(v.steps() == posenc::token_major(small));
}

TEST_CASE("view: an element lies at the sum of index times stride, strides of any sign", "[core][view]") {
  posenc_test::random_source source(1);
  std::vector<double> data(4001);
  int wrong = 0;
  for (int n = 0; n < 200; ++n) {
    const posenc::strides s{.batch = source.integer(-300, 300),
                            .token = source.integer(-100, 100),
                            .head = source.integer(-100, 100),
                            .dim = source.integer(-60, 60)};
    double* const middle = data.data() + 2000;
    const posenc::view v(middle, small, s);
    for (int b = 0; b < 2; ++b)
      for (int t = 0; t < 3; ++t)
        for (int h = 0; h < 4; ++h)
          for (int d = 0; d < 5; ++d)
            wrong += &v(b, t, h, d) != middle + b * s.batch + t * s.token + h * s.head + d * s.dim;
  }
  CHECK(wrong == 0);
}

TEST_CASE("view: zero strides repeat elements and are told apart from single ones", "[core][view]") {
  std::vector<float> data(60);
  CHECK(posenc::view(data.data(), small, {.token = 20, .head = 5}).repeats());
  CHECK(posenc::view(data.data(), {.tokens = 3, .heads = 4, .dim = 5}, {.token = 0, .head = 5}).repeats());
  CHECK(posenc::view(data.data(), {.tokens = 3, .heads = 4, .dim = 5}, {.token = 5, .head = 0}).repeats());
  CHECK(posenc::view(data.data(), {.tokens = 3, .heads = 4, .dim = 5}, {.token = 5, .head = 15, .dim = 0}).repeats());
  // The stride of an axis of one element means nothing.
  CHECK(!posenc::view(data.data(), {.tokens = 1, .heads = 1, .dim = 1}, {.dim = 0}).repeats());
  CHECK(posenc::view(data.data(), {.tokens = 9, .dim = 1}, {.token = 1, .dim = 7}).unit_dim_stride());
  CHECK(!posenc::view(data.data(), {.tokens = 9, .dim = 2}, {.token = 1, .dim = 7}).unit_dim_stride());
  CHECK(!posenc::view(data.data(), {.tokens = 9, .dim = 2}, {.token = 2, .dim = -1}).unit_dim_stride());
}

TEST_CASE("view: mutable converts to const and nothing is lost", "[core][view]") {
  std::vector<float> data(120);
  const posenc::view<float> v(data.data(), small, posenc::head_major(small));
  const posenc::view<const float> c = v;
  CHECK(c.data() == v.data());
  CHECK(c.extents() == v.extents());
  CHECK(c.steps() == v.steps());
  const posenc::view<const float> none = posenc::view<float>();
  CHECK(none.empty());
  CHECK(none.data() == nullptr);
}

TEST_CASE("view: offsets are 64 bits wide", "[core][view]") {
  // Addresses only: nothing lies there, nothing is touched.
  char* const base = reinterpret_cast<char*>(std::uintptr_t{1} << 44);
  const std::int64_t tokens = std::int64_t{1} << 20;
  const posenc::shape big{.batch = 64, .tokens = tokens, .heads = 32, .dim = 128};
  CHECK(big.elements() == std::int64_t{1} << 38);
  const posenc::view v(base, big);
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(v.data());
  const std::uintptr_t last = reinterpret_cast<std::uintptr_t>(v.row(63, tokens - 1, 31));
  CHECK(last - first == (std::uintptr_t{1} << 38) - 128);
  const posenc::detail::address_range range = posenc::detail::addresses(v);
  CHECK(range.lo == first);
  CHECK(range.hi - range.lo == std::uintptr_t{1} << 38);
}

TEST_CASE("view: refuses negative extents and null pointers to elements", "[core][view]") {
  float x = 0;
  const auto make = [&](float* p, const posenc::shape& s) { return posenc::view<float>(p, s); };
  CHECK_THROWS_AS(make(&x, {.tokens = -1, .dim = 4}), std::invalid_argument);
  CHECK_THROWS_WITH(make(&x, {.batch = -2, .tokens = 1, .dim = 4}), "posenc::view: batch must not be negative, got -2");
  CHECK_THROWS_WITH(make(&x, {.tokens = -1, .dim = 4}), "posenc::view: tokens must not be negative, got -1");
  CHECK_THROWS_WITH(make(&x, {.tokens = 1, .heads = -3, .dim = 4}), "posenc::view: heads must not be negative, got -3");
  CHECK_THROWS_WITH(make(&x, {.tokens = 1, .dim = -4}), "posenc::view: dim must not be negative, got -4");
  CHECK_THROWS_WITH(make(nullptr, {.tokens = 1, .dim = 4}), contains("view: data must not be null"));
  for (const posenc::shape& s :
       {posenc::shape{.batch = 0, .tokens = 2, .dim = 2}, posenc::shape{.tokens = 0, .dim = 2},
        posenc::shape{.tokens = 2, .heads = 0, .dim = 2}, posenc::shape{.tokens = 2, .dim = 0}}) {
    CHECK_NOTHROW(make(nullptr, s));
    CHECK(make(nullptr, s).empty());
  }
  CHECK(posenc::view<float>().empty());
}

TEST_CASE("view: the address range is that of the elements, for every sign of stride", "[core][view]") {
  posenc_test::random_source source(2);
  std::vector<float> data(2001);
  int wrong = 0;
  for (int n = 0; n < 100; ++n) {
    const posenc::strides s{.batch = source.integer(-200, 200),
                            .token = source.integer(-50, 50),
                            .head = source.integer(-50, 50),
                            .dim = source.integer(-30, 30)};
    const posenc::view v(data.data() + 1000, small, s);
    std::set<std::uintptr_t> all;
    for (int b = 0; b < 2; ++b)
      for (int t = 0; t < 3; ++t)
        for (int h = 0; h < 4; ++h)
          for (int d = 0; d < 5; ++d) all.insert(reinterpret_cast<std::uintptr_t>(&v(b, t, h, d)));
    const auto range = posenc::detail::addresses(v);
    wrong += range.lo != *all.begin() || range.hi != *all.rbegin() + sizeof(float);
  }
  CHECK(wrong == 0);
}

TEST_CASE("view: an output is its input or lies apart from it", "[core][view]") {
  std::vector<float> data(64);
  const posenc::shape s{.tokens = 4, .dim = 4};
  const posenc::view<const float> in(data.data(), s);
  const auto check = [&](const posenc::view<float>& out) { posenc::detail::check_apart(in, out, "f"); };
  CHECK_NOTHROW(check({data.data(), s}));
  CHECK_NOTHROW(check({data.data() + 16, s}));
  CHECK_THROWS_WITH(check({data.data() + 1, s}), contains("f: out must be in itself or not overlap it"));
  CHECK_THROWS_WITH(check({data.data() + 15, s}), contains("overlap"));
  CHECK_THROWS_WITH(check({data.data(), s, {.token = 8}}), contains("overlap"));
  CHECK_THROWS_WITH(check({data.data() + 32, s, {.token = 0}}), contains("stride of 0"));
  const posenc::view<const float> later(data.data() + 16, s);
  CHECK_NOTHROW(posenc::detail::check_apart(later, posenc::view<float>(data.data(), s), "f"));
  CHECK_THROWS_AS(posenc::detail::check_apart(later, posenc::view<float>(data.data() + 12, s), "f"),
                  std::invalid_argument);
}

TEST_CASE("view: an output stays out of what is read to the end", "[core][view]") {
  std::vector<float> data(64);
  const posenc::shape s{.tokens = 4, .dim = 4};
  const posenc::view<const float> in(data.data() + 16, s);
  const auto check = [&](const posenc::view<float>& out) { posenc::detail::check_outside(in, out, "f", "k"); };
  CHECK_NOTHROW(check({data.data(), s}));
  CHECK_NOTHROW(check({data.data() + 32, s}));
  CHECK_NOTHROW(check({}));
  CHECK_THROWS_WITH(check({data.data() + 16, s}), contains("out must not overlap what is read to the end, got k"));
  CHECK_THROWS_AS(check({data.data() + 1, s}), std::invalid_argument);
  CHECK_THROWS_AS(check({data.data() + 31, s}), std::invalid_argument);
}
