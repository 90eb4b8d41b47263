// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/eigen.hpp>
#include <posenc/kernels/rotate.hpp>

#include "support/archs.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "support/tolerance.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace kernels = posenc::kernels;
using posenc_test::archs;
using posenc_test::guarded;
using posenc_test::same_bits;

namespace {

enum class layout { half, interleaved };

/// Rows of cos and sin in both forms, from random angles.
template <class C>
struct angles {
  std::vector<C> cos, sin, cos2, sin2;
  angles(std::size_t pairs, std::uint64_t seed) : cos(pairs), sin(pairs), cos2(2 * pairs), sin2(2 * pairs) {
    posenc_test::random_source source(seed);
    for (std::size_t i = 0; i < pairs; ++i) {
      const double angle = source.uniform(-3.2, 3.2);
      cos[i] = cos2[2 * i] = cos2[2 * i + 1] = static_cast<C>(std::cos(angle));
      sin[i] = sin2[2 * i + 1] = static_cast<C>(std::sin(angle));
      sin2[2 * i] = -sin[i];
    }
  }
};

template <class Arch, class S, class C>
void rotate(layout l, const S* in, std::int64_t in_step, S* out, std::int64_t out_step, std::int64_t heads,
            const angles<C>& a) {
  const auto pairs = static_cast<std::int64_t>(a.cos.size());
  if (l == layout::half) {
    kernels::rotate_half<Arch>(in, in_step, out, out_step, heads, a.cos.data(), a.sin.data(), pairs, pairs);
  } else {
    kernels::rotate_interleaved<Arch>(in, in_step, out, out_step, heads, a.cos2.data(), a.sin2.data(), pairs);
  }
}

/// Channel of the first (0) or second (1) member of pair i.
std::size_t channel(layout l, std::size_t i, std::size_t member, std::size_t pairs) {
  return l == layout::half ? i + member * pairs : 2 * i + member;
}

struct tally {
  int wrong = 0;             // beyond the bound of two roundings, and one of the storage
  int in_place = 0;          // differs from out of place
  int strided = 0;           // strided differs from packed
  int not_rounded_once = 0;  // 16-bit storage differs from the float result rounded once
  int spilled = 0;
};

template <class S>
double as_double(const S& x) {
  return static_cast<double>(posenc::widen(x));
}

/// One shape: `heads` heads of `width` channels, `gap` canaries between them, started `shift` elements off.
template <class Arch, class S>
void check_shape(layout l, std::size_t width, std::size_t heads, std::size_t gap, std::size_t shift, tally& t) {
  using C = posenc::compute_t<S>;
  const std::size_t pairs = width / 2;
  const std::size_t in_step = width + gap;
  const std::size_t out_step = width + 2 * gap;
  const std::size_t in_size = (heads - 1) * in_step + width;
  const std::size_t out_size = (heads - 1) * out_step + width;
  const angles<C> a(pairs, 7 * width + heads);
  const std::vector<S> values = posenc_test::random_values<S>(width * heads, width + 100 * heads, -3, 3);
  guarded<S> in(in_size, shift);
  guarded<S> out(out_size, shift + 1);
  guarded<C> wide_in(in_size);
  guarded<C> wide_out(out_size);
  for (std::size_t h = 0; h < heads; ++h)
    for (std::size_t d = 0; d < width; ++d) {
      in[h * in_step + d] = values[h * width + d];
      wide_in[h * in_step + d] = posenc::widen(values[h * width + d]);
    }
  const auto n = static_cast<std::int64_t>(heads);
  const auto is = static_cast<std::int64_t>(in_step);
  const auto os = static_cast<std::int64_t>(out_step);
  rotate<Arch, S>(l, in.data(), is, out.data(), os, n, a);
  rotate<Arch, C>(l, wide_in.data(), is, wide_out.data(), os, n, a);
  // The same pairs from every third element of memory.
  guarded<S> apart(3 * width);
  const double unit = static_cast<double>(std::numeric_limits<C>::epsilon());
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t d = 0; d < width; ++d) apart[3 * d] = values[h * width + d];
    const bool halves = l == layout::half;
    kernels::rotate_pairs<S, C, Arch>(apart.data(), 3, apart.data(), 3, halves ? static_cast<std::int64_t>(pairs) : 1,
                                      halves ? 1 : 2, a.cos.data(), a.sin.data(), static_cast<std::int64_t>(pairs));
    for (std::size_t i = 0; i < pairs; ++i) {
      const std::size_t first = channel(l, i, 0, pairs);
      const std::size_t second = channel(l, i, 1, pairs);
      const long double x = as_double(values[h * width + first]);
      const long double y = as_double(values[h * width + second]);
      const long double c = a.cos[i];
      const long double s = a.sin[i];
      const long double right[] = {x * c - y * s, x * s + y * c};
      const double scale = static_cast<double>(std::fabs(x) + std::fabs(y));
      for (std::size_t member = 0; member < 2; ++member) {
        const std::size_t d = member ? second : first;
        const S got = out[h * out_step + d];
        // Two roundings in C, and where S is narrower its own: both distances in one sum.
        const double stored = posenc::format_of<S> == posenc::format::native
                                  ? 0
                                  : std::fabs(as_double(posenc::narrow<S>(static_cast<double>(right[member]))) -
                                              static_cast<double>(right[member])) *
                                            1.01 +
                                        scale * unit;
        t.wrong += std::fabs(as_double(got) - static_cast<double>(right[member])) > 1.5 * unit * scale + stored;
        t.not_rounded_once += !same_bits(got, posenc::narrow<S>(wide_out[h * out_step + d]));
        t.strided += !same_bits(apart[3 * d], got);
      }
    }
    for (std::size_t d = 0; d < width; ++d) t.spilled += !apart.untouched(3 * d + 1) || !apart.untouched(3 * d + 2);
    if (h + 1 < heads)
      for (std::size_t g = width; g < out_step; ++g) t.spilled += !out.untouched(h * out_step + g);
  }
  t.spilled += !out.intact() || !in.intact() || !apart.intact();
  rotate<Arch, S>(l, in.data(), is, in.data(), is, n, a);
  for (std::size_t h = 0; h < heads; ++h) {
    t.in_place += !same_bits(&in[h * in_step], &out[h * out_step], width);
    if (h + 1 < heads)
      for (std::size_t g = width; g < in_step; ++g) t.spilled += !in.untouched(h * in_step + g);
  }
  t.spilled += !in.intact();
}

template <class Arch, class S>
void check_all_shapes() {
  for (const layout l : {layout::half, layout::interleaved}) {
    tally t;
    for (std::size_t width = 2; width <= 70; width += 2)
      for (std::size_t heads = 1; heads <= 9; heads = heads < 5 ? heads + 1 : heads + 4)
        check_shape<Arch, S>(l, width, heads, (width + heads) % 4, (width / 2 + heads) % 16, t);
    // Every misalignment of one shape, and the widths of models.
    for (std::size_t shift = 0; shift < 64 / sizeof(S); ++shift) check_shape<Arch, S>(l, 24, 3, 1, shift, t);
    for (const std::size_t width : {64u, 80u, 96u, 128u, 256u}) check_shape<Arch, S>(l, width, 5, 0, 0, t);
    CAPTURE(l == layout::half);
    CHECK(t.wrong == 0);
    CHECK(t.in_place == 0);
    CHECK(t.strided == 0);
    CHECK(t.not_rounded_once == 0);
    CHECK(t.spilled == 0);
  }
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("rotate: float, every width, number of heads and alignment", "[kernels][rotate]", archs) {
  check_all_shapes<TestType, float>();
}
TEMPLATE_LIST_TEST_CASE("rotate: double, every width, number of heads and alignment", "[kernels][rotate]", archs) {
  check_all_shapes<TestType, double>();
}
TEMPLATE_LIST_TEST_CASE("rotate: half is the float result rounded once", "[kernels][rotate]", archs) {
  check_all_shapes<TestType, Eigen::half>();
}
TEMPLATE_LIST_TEST_CASE("rotate: bfloat16 is the float result rounded once", "[kernels][rotate]", archs) {
  check_all_shapes<TestType, Eigen::bfloat16>();
}

namespace {

template <class Arch, class S>
int layouts_that_differ() {
  using C = posenc::compute_t<S>;
  int differ = 0;
  for (std::size_t width = 2; width <= 140; width += 2) {
    const std::size_t pairs = width / 2;
    const angles<C> a(pairs, width);
    std::vector<S> halves = posenc_test::random_values<S>(width, width, -3, 3);
    std::vector<S> mixed(width);
    for (std::size_t i = 0; i < pairs; ++i) {
      mixed[2 * i] = halves[i];
      mixed[2 * i + 1] = halves[i + pairs];
    }
    rotate<Arch, S>(layout::half, halves.data(), 0, halves.data(), 0, 1, a);
    rotate<Arch, S>(layout::interleaved, mixed.data(), 0, mixed.data(), 0, 1, a);
    for (std::size_t i = 0; i < pairs; ++i)
      differ += !same_bits(mixed[2 * i], halves[i]) || !same_bits(mixed[2 * i + 1], halves[i + pairs]);
  }
  return differ;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("rotate: both layouts have the same bits, channels permuted", "[kernels][rotate]", archs) {
  CHECK(layouts_that_differ<TestType, float>() == 0);
  CHECK(layouts_that_differ<TestType, double>() == 0);
  CHECK(layouts_that_differ<TestType, Eigen::half>() == 0);
  CHECK(layouts_that_differ<TestType, Eigen::bfloat16>() == 0);
}

TEMPLATE_LIST_TEST_CASE("rotate: no heads or no pairs touch nothing", "[kernels][rotate]", archs) {
  const angles<float> none(0, 1);
  const angles<float> some(4, 1);
  for (const layout l : {layout::half, layout::interleaved}) {
    guarded<float> x(8);
    rotate<TestType, float>(l, x.data(), 8, x.data(), 8, 3, none);
    rotate<TestType, float>(l, x.data(), 8, x.data(), 8, 0, some);
    rotate<TestType, float>(l, nullptr, 0, nullptr, 0, 0, none);
    int touched = 0;
    for (std::size_t i = 0; i < 8; ++i) touched += !x.untouched(i);
    CHECK(touched == 0);
    CHECK(x.intact());
  }
}

TEMPLATE_LIST_TEST_CASE("rotate: partners may lie further apart than the rotated block", "[kernels][rotate]", archs) {
  // Pairs (i, i + 20) of 13 pairs: channels 13..19 and 33.. stay.
  const angles<float> a(13, 3);
  const std::vector<float> values = posenc_test::random_values<float>(40, 5);
  std::vector<float> x = values;
  kernels::rotate_half<TestType>(x.data(), 40, x.data(), 40, 1, a.cos.data(), a.sin.data(), 20, 13);
  int wrong = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    if (i >= 13) {
      wrong += x[i] != values[i] || x[i + 20] != values[i + 20];
      continue;
    }
    const double c = static_cast<double>(a.cos[i]);
    const double s = static_cast<double>(a.sin[i]);
    const double first = static_cast<double>(values[i]);
    const double second = static_cast<double>(values[i + 20]);
    wrong += std::fabs(static_cast<double>(x[i]) - (first * c - second * s)) > 3e-7;
    wrong += std::fabs(static_cast<double>(x[i + 20]) - (first * s + second * c)) > 3e-7;
  }
  CHECK(wrong == 0);
}

TEST_CASE("rotate: scalars without lanes, one pair at a time", "[kernels][rotate]") {
  const angles<long double> a(3, 9);
  std::vector<long double> x{1, 2, 3, 4, 5, 6};
  const std::vector<long double> before = x;
  kernels::rotate_pairs(x.data(), 1, x.data(), 1, 1, 2, a.cos.data(), a.sin.data(), 3);
  long double error = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    error += std::fabs(x[2 * i] - (before[2 * i] * a.cos[i] - before[2 * i + 1] * a.sin[i]));
    error += std::fabs(x[2 * i + 1] - (before[2 * i] * a.sin[i] + before[2 * i + 1] * a.cos[i]));
  }
  CHECK(error <= 1e-15L);
}
