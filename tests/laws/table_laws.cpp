// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <posenc/encoders/position_convolution.hpp>
#include <posenc/encoders/recursive.hpp>
#include <posenc/encoders/relative_sinusoids.hpp>
#include <posenc/encoders/resize.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/sinusoidal.hpp>

using posenc::positions;
using posenc::resize_mode;
using posenc::table_extent;
using posenc::view;

namespace {

constexpr std::uint64_t cases = 60;

posenc::resize_options any_resize(laws::random_case& any) {
  posenc::resize_options o{.from = {any.whole(1, 12), any.whole(1, 12)},
                           .mode = any.coin() ? resize_mode::bilinear : resize_mode::bicubic,
                           .prefix_rows = any.whole(0, 2),
                           .suffix_rows = any.whole(0, 3)};
  switch (any.whole(0, 3)) {
    case 0: o.align_corners = true; break;
    case 1: o.antialias = true; break;
    case 2: o.scale_factor = {any.real(1, 3), any.real(1, 3)}; return o;
    default: break;
  }
  o.to = table_extent{any.whole(1, 12), any.whole(1, 12)};
  return o;
}

std::vector<double> row(const posenc::sinusoidal<double>& e, std::int64_t at) { return e.table(at, 1); }

}  // namespace

TEST_CASE("resize: <resize(x), y> = <x, adjoint(y)>", "[laws][resize]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const posenc::table_resize resize(any_resize(any));
    const std::int64_t channels = any.whole(1, 5);
    const auto x = any.vector(resize.rows_before() * channels);
    const auto y = any.vector(resize.rows_after() * channels);
    const auto forward = resize(x);
    const auto back = resize.adjoint(y);
    REQUIRE(forward.size() == y.size());
    REQUIRE(back.size() == x.size());
    CHECK(laws::dot(forward.data(), y.data(), static_cast<std::int64_t>(y.size())) ==
          Approx(laws::dot(x.data(), back.data(), static_cast<std::int64_t>(x.size()))).epsilon(0).margin(1e-12));
  }
}

TEST_CASE("resize: a constant stays constant, sums stay sums, and a mirrored table is mirrored", "[laws][resize]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    auto o = any_resize(any);
    o.prefix_rows = o.suffix_rows = 0;
    const posenc::table_resize resize(o);
    const std::vector<double> constant(static_cast<std::size_t>(resize.rows_before()), 0.75);
    CHECK(laws::difference(resize(constant), std::vector<double>(static_cast<std::size_t>(resize.rows_after()), 0.75)) <
          1e-14);
    const auto a = any.vector(resize.rows_before());
    const auto b = any.vector(resize.rows_before());
    std::vector<double> sum;
    for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(2 * a[i] - b[i]);
    const auto ra = resize(a);
    const auto rb = resize(b);
    std::vector<double> expected;
    for (std::size_t i = 0; i < ra.size(); ++i) expected.push_back(2 * ra[i] - rb[i]);
    CHECK(laws::difference(resize(sum), expected) < 1e-13);
    // The samples of a scale factor do not lie symmetrically, and one sample with aligned corners is the first.
    if (o.scale_factor || (o.align_corners && (o.to->rows == 1 || o.to->columns == 1))) continue;
    // Clamping to 0 only below makes half-pixel bilinear no exception: past the end both taps are the last sample.
    CHECK(laws::difference(resize(std::vector<double>(a.rbegin(), a.rend())),
                           std::vector<double>(ra.rbegin(), ra.rend())) < 1e-13);
  }
}

TEST_CASE("resize: aligned corners reproduce straight lines, and samples that are met again", "[laws][resize]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t n = any.whole(2, 20);
    const std::int64_t m = any.whole(2, 40);
    std::vector<double> line;
    for (std::int64_t i = 0; i < n; ++i) line.push_back(static_cast<double>(i) / static_cast<double>(n - 1));
    std::vector<double> expected;
    for (std::int64_t i = 0; i < m; ++i) expected.push_back(static_cast<double>(i) / static_cast<double>(m - 1));
    const auto resize = [](std::int64_t from, std::int64_t to, resize_mode mode) {
      return posenc::table_resize(
          {.from = {.rows = from}, .to = table_extent{.rows = to}, .mode = mode, .align_corners = true});
    };
    CHECK(laws::difference(resize(n, m, resize_mode::bilinear)(line), expected) < 1e-14);
    // k - 1 new samples between neighbours, and back.
    const std::int64_t k = any.whole(1, 6);
    const auto table = any.vector(n * 3);
    for (const auto mode : {resize_mode::bilinear, resize_mode::bicubic}) {
      const auto finer = resize(n, k * (n - 1) + 1, mode)(table);
      CHECK(laws::difference(resize(k * (n - 1) + 1, n, mode)(finer), table) < 1e-13);
    }
  }
}

TEST_CASE("recursive: the flow that turns pairs gives sinusoidal rows", "[laws][recursive]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t pairs = any.whole(1, 20);
    const posenc::sinusoidal<double> e{{.dim = 2 * pairs}};
    const auto w = posenc::rope<double>{{.head_dim = 2 * pairs}}.inv_freq();
    // d/dt (sin wt, cos wt) = (w cos wt, -w sin wt).
    const auto turn = [&](double, std::span<const double> p, std::span<double> out) {
      for (std::size_t i = 0; i < w.size(); ++i) {
        out[2 * i] = w[i] * p[2 * i + 1];
        out[2 * i + 1] = -w[i] * p[2 * i];
      }
    };
    const auto rule = any.coin() ? posenc::runge_kutta_rule::classic : posenc::runge_kutta_rule::three_eighths;
    const posenc::runge_kutta step(turn, {.dt = 1, .substeps = 20, .rule = rule});
    const posenc::recursive<double> flow(30, row(e, 0), step);
    const std::vector<double> table(flow.table().begin(), flow.table().end());
    // Fourth order: 30 tokens of 20 steps of 1/20 at w <= 1, each wrong by less than (1/20)^5 / 100.
    CHECK(laws::difference(table, e.table(0, 30)) < 30 * 20 * std::pow(0.05, 5) / 100);

    // As a map from row to row it is exact up to rounding.
    const auto rotate = [&](std::int64_t, std::span<const double> p, std::span<double> out) {
      for (std::size_t i = 0; i < w.size(); ++i) {
        out[2 * i] = std::cos(w[i]) * p[2 * i] + std::sin(w[i]) * p[2 * i + 1];
        out[2 * i + 1] = std::cos(w[i]) * p[2 * i + 1] - std::sin(w[i]) * p[2 * i];
      }
    };
    const std::int64_t last = any.whole(0, 200);
    posenc::recursive_cursor cursor(row(e, 0), rotate);
    cursor.advance_to(last);
    CHECK(laws::difference(std::vector<double>(cursor.row().begin(), cursor.row().end()), row(e, last)) < 1e-13);
  }
}

TEST_CASE("recursive: a cursor and a table give the same bits, from any start", "[laws][recursive]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t dim = any.whole(1, 9);
    const double pull = any.real(-1, 1);
    const auto flow = [pull](double t, std::span<const double> p, std::span<double> out) {
      for (std::size_t d = 0; d < p.size(); ++d) out[d] = std::sin(p[d] + t) + pull * p[(d + 1) % p.size()];
    };
    const posenc::runge_kutta step(flow, {.dt = any.real(0.01, 0.5), .substeps = static_cast<int>(any.whole(1, 5))});
    const auto first = any.vector(dim);
    const std::int64_t rows = any.whole(2, 20);
    const posenc::recursive<double> table(rows, first, step);
    posenc::recursive_cursor cursor(first, step);
    cursor.advance_to(any.whole(0, rows - 1));
    auto x = any.vector((rows - cursor.position()) * dim);
    auto y = x;
    const posenc::shape shape{.tokens = rows - cursor.position(), .dim = dim};
    table.embed(view{x.data(), shape}, positions::from(cursor.position()));
    cursor.embed(view{y.data(), shape});
    CHECK(x == y);
  }
}

TEST_CASE("position convolution: linear, and blind to where a token stands away from the border",
          "[laws][position_convolution]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t groups = any.whole(1, 3);
    const std::int64_t channels = groups * any.whole(1, 3);
    const table_extent kernel{any.whole(1, 3), any.whole(1, 4)};
    const posenc::position_convolution<double> e(
        {.channels = channels, .groups = groups, .kernel = kernel, .residual = any.coin()},
        any.vector(channels * (channels / groups) * kernel.rows * kernel.columns));
    const table_extent grid{any.whole(4, 7), any.whole(5, 9)};
    const posenc::shape shape{.tokens = grid.rows * grid.columns, .dim = channels};
    const auto image = [&](const std::vector<double>& x) {
      auto out = x;
      e.embed(view{out.data(), shape}, grid);
      return out;
    };
    const auto a = any.vector(shape.elements());
    const auto b = any.vector(shape.elements());
    std::vector<double> sum;
    for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] - 3 * b[i]);
    const auto ia = image(a);
    const auto ib = image(b);
    std::vector<double> expected;
    for (std::size_t i = 0; i < a.size(); ++i) expected.push_back(ia[i] - 3 * ib[i]);
    CHECK(laws::difference(image(sum), expected) < 1e-13);

    // One token of content, moved by one row and one column, moves the whole answer with it where it fits.
    std::vector<double> one(a.size(), 0.0);
    std::vector<double> moved(a.size(), 0.0);
    const auto place = [&](std::int64_t y, std::int64_t x) {
      return static_cast<std::size_t>((y * grid.columns + x) * channels);
    };
    for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
      one[place(1, 2) + c] = a[c];
      moved[place(2, 3) + c] = a[c];
    }
    const auto from = image(one);
    const auto to = image(moved);
    double difference = 0;
    for (std::int64_t y = 0; y + 1 < grid.rows; ++y)
      for (std::int64_t x = 0; x + 1 < grid.columns; ++x)
        for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c)
          difference = std::max(difference, std::abs(from[place(y, x) + c] - to[place(y + 1, x + 1) + c]));
    CHECK(difference < 1e-14);
  }
}

TEST_CASE("relative sinusoids: the row of distance r is the sinusoidal row at r", "[laws][relative_sinusoids]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t dim = any.whole(1, 40);
    const auto layout =
        any.coin() ? posenc::sinusoidal_layout::concat_sin_cos : posenc::sinusoidal_layout::interleaved_sin_cos;
    const posenc::sinusoidal<double> e{{.dim = dim, .layout = layout}};
    const std::int64_t left = any.whole(0, 40);
    const std::int64_t right = any.whole(0, 40);
    const auto shaw = posenc::relative_sinusoids(e, left, right);
    const auto xl = posenc::relative_sinusoids(e, left, right, posenc::distance_sign::query_minus_key);
    REQUIRE(shaw.size() == static_cast<std::size_t>((left + right + 1) * dim));
    REQUIRE(xl.size() == shaw.size());
    bool same = true;
    for (std::int64_t r = -left; r <= right; ++r) {
      const auto from = (r + left) * dim;
      same = same && std::vector<double>(shaw.begin() + from, shaw.begin() + from + dim) == row(e, r);
      same = same && std::vector<double>(xl.begin() + from, xl.begin() + from + dim) == row(e, -r);
    }
    CHECK(same);
  }
}

TEST_CASE("concatenating position and projecting by [W_x | W_p] is adding W_x x + W_p p", "[laws][sinusoidal]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t dim = any.whole(1, 30);
    const std::int64_t out = any.whole(1, 20);
    const std::int64_t at = any.whole(-1000, 1000);
    const posenc::sinusoidal<double> e{{.dim = dim}};
    const auto x = any.vector(dim);
    const auto p = row(e, at);
    const auto w = any.vector(out * 2 * dim);  // [out, 2 dim]
    std::vector<double> both = x;
    both.insert(both.end(), p.begin(), p.end());
    auto embedded = x;
    e.embed(view{embedded.data(), {.tokens = 1, .dim = dim}}, positions::from(at));
    for (std::int64_t o = 0; o < out; ++o) {
      const double* wx = w.data() + o * 2 * dim;
      const double* wp = wx + dim;
      CHECK(laws::dot(wx, both.data(), 2 * dim) ==
            Approx(laws::dot(wx, x.data(), dim) + laws::dot(wp, p.data(), dim)).epsilon(0).margin(1e-13));
      // Adding before the projection is the case W_p = W_x.
      CHECK(laws::dot(wx, embedded.data(), dim) ==
            Approx(laws::dot(wx, x.data(), dim) + laws::dot(wx, p.data(), dim)).epsilon(0).margin(1e-13));
    }
  }
}
