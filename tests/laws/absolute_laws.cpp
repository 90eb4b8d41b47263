// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Properties of the absolute encodings other than the one-dimensional sinusoid, over many random cases.
#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/axial.hpp>
#include <posenc/encoders/complex_order.hpp>
#include <posenc/encoders/fourier_features.hpp>
#include <posenc/encoders/grid_detr.hpp>
#include <posenc/encoders/grid_sinusoidal.hpp>
#include <posenc/encoders/hierarchical.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/scaled_sinusoidal.hpp>
#include <posenc/encoders/segment.hpp>
#include <posenc/encoders/sinusoidal.hpp>
#include <posenc/encoders/tiled.hpp>
#include <posenc/encoders/timestep.hpp>

#include <numbers>

using posenc::positions;
using posenc::shape;
using posenc::sinusoidal_denominator;
using posenc::sinusoidal_layout;
using posenc::view;

namespace {

constexpr std::uint64_t cases = 60;
constexpr sinusoidal_layout layouts[] = {sinusoidal_layout::interleaved_sin_cos, sinusoidal_layout::interleaved_cos_sin,
                                         sinusoidal_layout::concat_sin_cos, sinusoidal_layout::concat_cos_sin};

/// Rows of an encoder that writes them by `table`, or by `lookup`.
template <class E, class At>
std::vector<double> rows(const E& e, std::int64_t n, const At& at) {
  std::vector<double> out(static_cast<std::size_t>(n * e.dim()), 99.0);
  const view<double> v{out.data(), {.tokens = n, .dim = e.dim()}};
  if constexpr (requires { e.table(v, at); }) {
    e.table(v, at);
  } else {
    e.lookup(v, at);
  }
  return out;
}

std::vector<double> part(const std::vector<double>& x, std::int64_t from, std::int64_t n) {
  return {x.begin() + from, x.begin() + from + n};
}

}  // namespace

TEST_CASE("grid_sinusoidal: a row is the concatenation of one-dimensional rows", "[laws][grid_sinusoidal]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    posenc::grid_sinusoidal_options o{.base = any.real(2, 20000), .layout = layouts[any.whole(0, 3)]};
    o.denominator = any.coin() ? sinusoidal_denominator::half : sinusoidal_denominator::half_minus_1;
    const int axes = static_cast<int>(any.whole(1, 4));
    for (const std::int64_t axis : any.order(axes)) o.blocks.push_back({static_cast<int>(axis), 2 * any.whole(1, 70)});
    std::int64_t width = 0;
    for (const auto& block : o.blocks) width += block.channels;
    o.dim = any.whole(1, width + 5);
    const posenc::grid_sinusoidal<double> e{o};
    std::vector<std::int64_t> at;
    for (int a = 0; a < axes; ++a) at.push_back(any.whole(-1000000, 1000000));
    std::vector<double> want;
    for (const auto& block : o.blocks) {
      const posenc::sinusoidal<double> one{
          {.dim = block.channels, .base = o.base, .layout = o.layout, .denominator = o.denominator}};
      const auto row = one.table(at[static_cast<std::size_t>(block.axis)], 1);
      want.insert(want.end(), row.begin(), row.end());
    }
    want.resize(static_cast<std::size_t>(o.dim), 0.0);
    CHECK(rows(e, 1, positions::axes(at, axes)) == want);
  }
}

TEST_CASE("grid_sinusoidal: the whole grid is its cells one by one, embedding is adding them",
          "[laws][grid_sinusoidal]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t dim = 16 * any.whole(1, 4);
    const std::vector<std::int64_t> extents{any.whole(1, 4), any.whole(1, 5), any.whole(1, 6)};
    auto o = posenc::grid_sinusoidal_options::diffusers_3d(dim, any.real(0.5, 4), any.real(0.5, 4));
    o.prefix_rows = any.whole(0, 2);
    const posenc::grid_sinusoidal<float> e{o};
    const auto table = e.table(extents);
    const std::int64_t n = static_cast<std::int64_t>(table.size()) / dim;
    REQUIRE(n == o.prefix_rows + extents[0] * extents[1] * extents[2]);
    const std::int64_t cell = any.whole(0, n - o.prefix_rows - 1);
    const std::vector<std::int64_t> at{cell / (extents[1] * extents[2]), cell / extents[2] % extents[1],
                                       cell % extents[2]};
    std::vector<float> row(static_cast<std::size_t>(dim), 99.0f);
    e.table(view{row.data(), {.tokens = 1, .dim = dim}}, positions::axes(at, 3));
    CHECK(std::equal(row.begin(), row.end(), table.begin() + (o.prefix_rows + cell) * dim));
    const auto x = any.vector<float>(n * dim);
    auto sum = x;
    e.embed(view{sum.data(), {.tokens = n, .dim = dim}}, extents);
    std::size_t different = 0;
    for (std::size_t i = 0; i < x.size(); ++i) different += sum[i] != x[i] + table[i];
    CHECK(different == 0);
  }
}

TEST_CASE("grid_sinusoidal: PE(p).PE(p + k) depends on k alone, on every axis", "[laws][grid_sinusoidal]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t dim = 4 * any.whole(1, 30);
    const posenc::grid_sinusoidal<double> e{posenc::grid_sinusoidal_options::mae(dim)};
    const std::int64_t k[2] = {any.whole(-50, 50), any.whole(-50, 50)};
    const auto product = [&](std::int64_t y, std::int64_t x) {
      const std::vector<std::int64_t> at{y, y + k[0], x, x + k[1]};
      const auto two = rows(e, 2, positions::axes(at, 2));
      return laws::dot(two.data(), two.data() + dim, dim);
    };
    CHECK(std::abs(product(any.whole(-100000, 100000), any.whole(-100000, 100000)) - product(0, 0)) < 1e-12);
  }
}

TEST_CASE("timestep: with shift 0 or 1 it is the sinusoid of denominator half or half_minus_1", "[laws][timestep]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t dim = any.whole(2, 300);
    const bool flip = any.coin();
    const bool shifted = any.coin();
    const double period = any.real(2, 20000);
    const posenc::timestep<double> e{
        {.dim = dim, .flip_sin_to_cos = flip, .downscale_freq_shift = shifted ? 1.0 : 0.0, .max_period = period}};
    const posenc::sinusoidal<double> plain{
        {.dim = dim,
         .base = period,
         .layout = flip ? sinusoidal_layout::concat_cos_sin : sinusoidal_layout::concat_sin_cos,
         .denominator = shifted ? sinusoidal_denominator::half_minus_1 : sinusoidal_denominator::half,
         .odd = posenc::sinusoidal_odd::zero_pad}};
    const std::int64_t t = any.whole(-100000, 100000);
    CHECK(rows(e, 1, positions::from(t)) == plain.table(t, 1));
    // A power of two as scale is a scale on the timestep.
    const posenc::timestep<double> scaled{{.dim = dim,
                                           .flip_sin_to_cos = flip,
                                           .downscale_freq_shift = shifted ? 1.0 : 0.0,
                                           .scale = 8,
                                           .max_period = period}};
    CHECK(laws::difference(rows(scaled, 1, positions::from(t)), plain.table(8 * t, 1)) < 1e-12);
    // Integer and real timesteps agree.
    const std::vector<double> real{static_cast<double>(t)};
    CHECK(laws::difference(rows(e, 1, posenc::real_positions{real}), plain.table(t, 1)) < 1e-12);
  }
}

TEST_CASE("grid_detr: without padding the counts are coordinates from 1, y before x", "[laws][grid_detr]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t f = 2 * any.whole(1, 40);
    const std::int64_t height = any.whole(1, 6);
    const std::int64_t width = any.whole(1, 6);
    const double temperature = any.real(2, 20000);
    const posenc::grid_detr e{{.num_pos_feats = f, .temperature = temperature}};
    std::vector<double> got(static_cast<std::size_t>(height * width * 2 * f), 99.0);
    e.table(view{got.data(), {.tokens = height * width, .dim = 2 * f}},
            std::vector<int>(static_cast<std::size_t>(height * width), 1), height, width);
    const posenc::grid_sinusoidal<double> plain{{.dim = 2 * f,
                                                 .base = temperature,
                                                 .layout = sinusoidal_layout::interleaved_sin_cos,
                                                 .blocks = {{0, f}, {1, f}}}};
    std::vector<std::int64_t> at;
    for (std::int64_t i = 0; i < height * width; ++i) at.push_back(i / width + 1);
    for (std::int64_t i = 0; i < height * width; ++i) at.push_back(i % width + 1);
    CHECK(rows(plain, height * width, positions::axes(at, 2)) == got);
  }
}

TEST_CASE("grid_detr: an image keeps its encoding when it is padded to a larger one", "[laws][grid_detr]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t f = any.whole(1, 20);
    const std::int64_t height = any.whole(1, 4);
    const std::int64_t width = any.whole(1, 4);
    const std::int64_t tall = height + any.whole(0, 3);
    const std::int64_t wide = width + any.whole(0, 3);
    const bool normalize = any.coin();
    const posenc::grid_detr e{
        {.num_pos_feats = f, .normalize = normalize, .shift = normalize && any.coin() ? -0.5 : 0.0}};
    std::vector<double> alone(static_cast<std::size_t>(height * width * 2 * f));
    e.table(view{alone.data(), {.tokens = height * width, .dim = 2 * f}},
            std::vector<int>(static_cast<std::size_t>(height * width), 1), height, width);
    std::vector<int> valid;
    for (std::int64_t r = 0; r < tall; ++r)
      for (std::int64_t c = 0; c < wide; ++c) valid.push_back(r < height && c < width ? 1 : 0);
    std::vector<double> padded(static_cast<std::size_t>(tall * wide * 2 * f));
    e.table(view{padded.data(), {.tokens = tall * wide, .dim = 2 * f}}, valid, tall, wide);
    std::size_t different = 0;
    for (std::int64_t r = 0; r < height; ++r)
      for (std::int64_t c = 0; c < width; ++c)
        different += part(alone, (r * width + c) * 2 * f, 2 * f) != part(padded, (r * wide + c) * 2 * f, 2 * f);
    CHECK(different == 0);
  }
}

TEST_CASE("fourier_features: sin^2 + cos^2 = 1, and the product of two rows depends on the difference",
          "[laws][fourier_features]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const int axes = static_cast<int>(any.whole(1, 4));
    const std::int64_t n = any.whole(1, 20);
    const auto order = static_cast<posenc::fourier_order>(any.whole(0, 2));
    const auto e =
        any.coin()
            ? posenc::fourier_features::nerf({.axes = axes, .num_freqs = n, .include_input = false, .order = order})
            : posenc::fourier_features{
                  {.num_bands = n,
                   .max_resolution = std::vector<double>(static_cast<std::size_t>(axes), any.real(2, 500)),
                   .concat_pos = false,
                   .order = order}};
    std::vector<double> at;  // [axis][token]: two points and the same two moved
    for (int a = 0; a < axes; ++a) {
      const double here = static_cast<double>(any.whole(-512, 511)) / 512;
      const double there = static_cast<double>(any.whole(-512, 511)) / 512;
      const double moved = static_cast<double>(any.whole(-512, 511)) / 512;
      at.insert(at.end(), {here, there, here + moved, there + moved});
    }
    const auto four = rows(e, 4, posenc::real_positions::axes(at, axes));
    const std::int64_t d = e.dim();
    CHECK(std::abs(laws::dot(four.data(), four.data(), d) - static_cast<double>(axes * n)) < 1e-12);
    CHECK(std::abs(laws::dot(four.data(), four.data() + d, d) -
                   laws::dot(four.data() + 2 * d, four.data() + 3 * d, d)) < 1e-12);
  }
}

TEST_CASE("segment: rows are those of a learned table, and sums of tables may be taken in any order",
          "[laws][segment]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const shape s{
        .batch = any.whole(1, 3), .tokens = any.whole(1, 5), .heads = any.whole(1, 2), .dim = any.whole(1, 90)};
    const std::int64_t segments = any.whole(1, 4);
    const auto table = any.vector(segments * s.dim);
    const posenc::segment<double> e{{.segments = segments, .dim = s.dim}, std::span(table)};
    const posenc::learned<double> l{{.rows = segments, .dim = s.dim}, std::span(table)};
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < s.batch * s.tokens; ++i) ids.push_back(any.whole(0, segments - 1));
    auto x = any.vector(s.elements());
    auto y = x;
    e.embed(view{x.data(), s}, ids);
    l.embed(view{y.data(), s}, positions::listed(ids, s.batch));
    CHECK(x == y);
  }
}

TEST_CASE("axial: a table of one axis is a learned table; a row of more is put together from them", "[laws][axial]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const int axes = static_cast<int>(any.whole(1, 4));
    std::vector<std::vector<double>> tables;
    std::vector<posenc::axial_table<double>> parts;
    for (int a = 0; a < axes; ++a) {
      const std::int64_t n = any.whole(1, 5);
      const std::int64_t dim = any.whole(1, 70);
      tables.push_back(any.vector(n * dim));
      parts.push_back({n, dim, {}});
    }
    for (std::size_t a = 0; a < parts.size(); ++a) parts[a].table = tables[a];
    const posenc::axial<double> e{parts};
    const std::int64_t p = any.whole(0, e.rows() - 1);
    std::int64_t below = e.rows();
    std::vector<double> want;
    for (std::size_t a = 0; a < parts.size(); ++a) {
      below /= parts[a].rows;
      const posenc::learned<double> one{{.rows = parts[a].rows, .dim = parts[a].dim},
                                        std::span<const double>(tables[a])};
      const auto row = rows(one, 1, positions::from(p / below % parts[a].rows));
      want.insert(want.end(), row.begin(), row.end());
    }
    CHECK(rows(e, 1, positions::from(p)) == want);
  }
}

TEST_CASE("hierarchical: the table itself below n, all n^2 rows different for alpha other than 1/2",
          "[laws][hierarchical]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t n = any.whole(2, 9);
    const std::int64_t dim = any.whole(2, 80);
    const auto table = any.vector(n * dim);
    const posenc::hierarchical<double> e{{.rows = n, .dim = dim, .alpha = any.coin() ? 0.4 : any.real(0.6, 0.9)},
                                         std::span(table)};
    const auto all = rows(e, n * n, positions{});
    CHECK(part(all, 0, n * dim) == table);
    double nearest = 1;
    for (std::int64_t a = 0; a < n * n; ++a)
      for (std::int64_t b = 0; b < a; ++b)
        nearest = std::min(nearest, laws::difference(part(all, a * dim, dim), part(all, b * dim, dim)));
    CHECK(nearest > 1e-6);
    // Adding one vector to every row adds it to every position: u has weights that sum to 1.
    const auto moved_by = any.vector(dim);
    auto moved = table;
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += moved_by[i % static_cast<std::size_t>(dim)];
    const posenc::hierarchical<double> m{{.rows = n, .dim = dim, .alpha = e.alpha()}, std::span(moved)};
    auto want = all;
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += moved_by[i % static_cast<std::size_t>(dim)];
    CHECK(laws::difference(rows(m, n * n, positions{}), want) < 1e-13);
  }
}

TEST_CASE("tiled: the table itself below its rows, then a period of rows - leading", "[laws][tiled]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t n = any.whole(2, 20);
    const std::int64_t dim = any.whole(1, 70);
    const std::int64_t leading = any.whole(0, n - 1);
    const std::int64_t length = n + any.whole(0, 60);
    const auto table = any.vector(n * dim);
    const posenc::tiled<double> e{{.rows = n, .dim = dim, .length = length, .leading = leading}, std::span(table)};
    const auto all = rows(e, length, positions{});
    CHECK(part(all, 0, n * dim) == table);
    std::size_t different = 0;
    for (std::int64_t p = leading; p + n - leading < length; ++p)
      different += part(all, p * dim, dim) != part(all, (p + n - leading) * dim, dim);
    CHECK(different == 0);
    if (leading == 0) {
      const posenc::learned<double> repeated{{.rows = n, .dim = dim, .out_of_range = posenc::out_of_range::repeat},
                                             std::span(table)};
      CHECK(rows(repeated, length, positions{}) == all);
    }
  }
}

TEST_CASE("complex_order: where omega is shared, the score Re(q . conj(k)) depends on the difference",
          "[laws][complex_order]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t dim = any.whole(1, 80);
    const auto r = any.vector(2 * dim);
    const auto shared = any.vector(dim);
    const auto apart = any.vector(2 * dim);
    const auto theta = any.vector(2 * dim);
    const std::vector<int> words{0, 1};
    const std::int64_t k = any.whole(-300, 300);
    const std::int64_t p = any.whole(-20000, 20000);
    // Word 0 at p against word 1 at p + k; [re | im] in one row, so that the score is one dot product.
    const auto score = [&](const posenc::complex_order<double>& e, std::int64_t at) {
      std::vector<double> row(static_cast<std::size_t>(4 * dim));
      const shape s{.tokens = 2, .dim = dim};
      const posenc::strides step{.token = 2 * dim};
      const std::vector<std::int64_t> ids{at, at + k};
      e.lookup(view{row.data(), s, step}, view{row.data() + dim, s, step}, words, positions::listed(ids));
      return laws::dot(row.data(), row.data() + 2 * dim, 2 * dim);
    };
    const posenc::complex_order<double> e{{.vocabulary = 2, .dim = dim}, {r, shared, theta}};
    double want = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(dim); ++d) {
      const std::size_t other = d + static_cast<std::size_t>(dim);
      want += r[d] * r[other] * std::cos(shared[d] * static_cast<double>(k) + theta[other] - theta[d]);
    }
    CHECK(std::abs(score(e, p) - want) < 1e-11);
    // With a frequency of each word's own it does not; the difference of two frequencies turns the pair.
    const posenc::complex_order<double> own{{.vocabulary = 2, .dim = dim}, {r, apart, theta}};
    CHECK(std::abs(score(own, 0) - score(own, 37)) > 1e-6);
  }
}

TEST_CASE("scaled_sinusoidal: the same as the sinusoid's own constant scale", "[laws][scaled_sinusoidal]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    posenc::sinusoidal_options o{.dim = any.whole(1, 150), .layout = layouts[any.whole(0, 3)]};
    const double scale = any.real(-2, 2);
    const posenc::scaled_sinusoidal<double> learned{o, scale};
    o.scale = scale;
    const std::int64_t p = any.whole(-100000, 100000);
    CHECK(laws::difference(rows(learned, 1, positions::from(p)), posenc::sinusoidal<double>{o}.table(p, 1)) < 1e-15);
  }
}

TEST_CASE("concatenation through [W_x | W_p] equals adding W_x x + W_p p", "[laws][sinusoidal]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t n = any.whole(1, 5);
    const std::int64_t content = any.whole(1, 20);
    const std::int64_t dim = any.whole(1, 20);
    const std::int64_t out = any.whole(1, 20);
    const auto x = any.vector(n * content);
    const auto w = any.vector(out * (content + dim));  // [out, content + dim] = [W_x | W_p]
    const posenc::sinusoidal<double> e{{.dim = dim}};
    const std::int64_t first = any.whole(-1000, 1000);
    // Concatenated: the row is written beside the content, in one memory.
    std::vector<double> both(static_cast<std::size_t>(n * (content + dim)));
    for (std::int64_t t = 0; t < n; ++t)
      for (std::int64_t d = 0; d < content; ++d)
        both[static_cast<std::size_t>(t * (content + dim) + d)] = x[static_cast<std::size_t>(t * content + d)];
    e.table(view{both.data() + content, {.tokens = n, .dim = dim}, {.token = content + dim}}, positions::from(first));
    // Added: W_p applied to every row gives a table of its own width, which a learned encoder adds to W_x x.
    const auto p = rows(e, n, positions::from(first));
    std::vector<double> projected(static_cast<std::size_t>(n * out));
    std::vector<double> sum(projected.size());
    std::vector<double> want(projected.size());
    for (std::int64_t t = 0; t < n; ++t)
      for (std::int64_t o = 0; o < out; ++o) {
        const double* row = w.data() + o * (content + dim);
        const auto i = static_cast<std::size_t>(t * out + o);
        want[i] = laws::dot(both.data() + t * (content + dim), row, content + dim);
        sum[i] = laws::dot(x.data() + t * content, row, content);
        projected[i] = laws::dot(p.data() + t * dim, row + content, dim);
      }
    const posenc::learned<double> added{{.rows = n, .dim = out}, std::span<const double>(projected)};
    added.embed(view{sum.data(), {.tokens = n, .dim = out}});
    CHECK(laws::difference(sum, want) < 1e-13);
  }
}
