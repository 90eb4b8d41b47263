// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/encoders/recursive.hpp>

using posenc::positions;
using posenc::recursive;
using posenc::recursive_cursor;
using posenc::runge_kutta;
using posenc::runge_kutta_options;
using posenc::runge_kutta_rule;
using posenc::view;
using posenc_test::largest_difference;
using posenc_test::refusal;
using posenc_test::values;

namespace {

/// p(n + 1) = (p0 / 2 + n, p0 - p1): a map whose rows are easy to write down.
struct halve {
  template <class T>
  void operator()(std::int64_t n, std::span<const T> p, std::span<T> out) const {
    out[0] = p[0] / T(2) + T(static_cast<double>(n));
    out[1] = p[0] - p[1];
  }
};

/// dp/dt = p.
struct growth {
  template <class T>
  void operator()(double, std::span<const T> p, std::span<T> out) const {
    for (std::size_t d = 0; d < p.size(); ++d) out[d] = p[d];
  }
};
/// dp/dt = 4 t^3, for which a rule of fourth order is exact.
struct quartic {
  template <class T>
  void operator()(double t, std::span<const T>, std::span<T> out) const {
    for (T& x : out) x = T(4 * t * t * t);
  }
};

}  // namespace

TEST_CASE("recursive: rows follow the map", "[recursive]") {
  const recursive<double> e(4, {8, 1}, halve{});
  const std::vector<double> rows{8, 1, 4, 7, 3, -3, 3.5, 6};
  CHECK(std::vector<double>(e.table().begin(), e.table().end()) == rows);

  const std::vector<std::int64_t> ids{3, 0, 3, 1};
  std::vector<double> out(8, -1.0);
  e.lookup(view{out.data(), {.tokens = 4, .dim = 2}}, positions::listed(ids));
  CHECK(out == std::vector<double>{3.5, 6, 8, 1, 3.5, 6, 4, 7});
  std::vector<float> x(8, 1.0f);
  e.embed(view{x.data(), {.tokens = 2, .heads = 2, .dim = 2}}, positions::from(2));
  CHECK(x == std::vector<float>{4, -2, 4, -2, 4.5f, 7, 4.5f, 7});
  CHECK(e.describe().position_limit == 4);
  CHECK(e.describe().parameters == 2);
  const recursive<float> single(1, {5}, halve{});
  CHECK(single.table()[0] == 5);
}

TEST_CASE("recursive: a cursor goes on where it stands", "[recursive]") {
  recursive_cursor cursor(std::vector<double>{8, 1}, halve{});
  std::vector<float> prompt(2 * 2 * 2, 0.0f);  // two batch rows of two tokens
  cursor.embed(view{prompt.data(), {.batch = 2, .tokens = 2, .dim = 2}});
  CHECK(prompt == std::vector<float>{8, 1, 4, 7, 8, 1, 4, 7});
  CHECK(cursor.position() == 2);
  std::vector<float> token(2, 1.0f);
  cursor.embed(view{token.data(), {.tokens = 1, .dim = 2}});
  CHECK(token == std::vector<float>{4, -2});
  CHECK(cursor.row()[0] == 3.5);
  cursor.advance_to(3);
  CHECK(cursor.position() == 3);
  CHECK(refusal<std::out_of_range>([&] { cursor.advance_to(2); }) ==
        "posenc::recursive_cursor::advance_to: position must not lie before 3, got 2");
  recursive_cursor late(std::vector<double>{8, 1}, halve{});
  late.advance_to(3);
  CHECK(late.row()[1] == 6);
}

TEST_CASE("recursive: both rules are of fourth order", "[recursive]") {
  for (const auto rule : {runge_kutta_rule::classic, runge_kutta_rule::three_eighths}) {
    // One step of dp/dt = p: 1 + h + h^2/2 + h^3/6 + h^4/24.
    const double h = 0.5;
    recursive_cursor one(std::vector<double>{1}, runge_kutta(growth{}, {.dt = h, .substeps = 1, .rule = rule}));
    one.advance();
    CHECK(one.row()[0] == Approx(1 + h + h * h / 2 + h * h * h / 6 + h * h * h * h / 24).epsilon(1e-15));
    // The error falls by about 2^4 with every halving of the step.
    const auto error = [&](int substeps) {
      recursive_cursor c(std::vector<double>{1}, runge_kutta(growth{}, {.dt = 1, .substeps = substeps, .rule = rule}));
      c.advance();
      return std::exp(1.0) - c.row()[0];
    };
    CHECK(error(8) / error(16) == Approx(16).epsilon(0.1));
    // The time of token n is n * dt.
    recursive_cursor timed(std::vector<double>{1}, runge_kutta(quartic{}, {.dt = 0.5, .substeps = 3, .rule = rule}));
    timed.advance_to(6);
    CHECK(timed.row()[0] == Approx(1 + 81).epsilon(1e-14));
  }
}

TEST_CASE("recursive: the rules differ, and the defaults are those of FLOATER", "[recursive]") {
  CHECK(runge_kutta(growth{}).options().dt == 0.01);
  CHECK(runge_kutta(growth{}).options().substeps == 5);
  const auto after = [](runge_kutta_rule rule) {
    // Not linear in p, else the two agree.
    const auto square = [](double t, std::span<const double> p, std::span<double> out) { out[0] = p[0] * p[0] - t; };
    recursive_cursor c(std::vector<double>{0.5}, runge_kutta(square, {.dt = 0.5, .substeps = 1, .rule = rule}));
    c.advance();
    return c.row()[0];
  };
  const double difference = std::abs(after(runge_kutta_rule::classic) - after(runge_kutta_rule::three_eighths));
  CHECK(difference > 1e-7);
  CHECK(difference < 1e-3);
}

TEST_CASE("recursive: any scalar", "[recursive]") {
  const runge_kutta<growth, long double> step(growth{}, {.dt = 0.25L, .substeps = 40});
  const recursive<long double> e(5, {1, 2}, step);
  CHECK(static_cast<double>(std::fabs(e.table()[8] - std::exp(1.0L))) < 1e-8);
  const recursive<float> narrow(5, {1, 2}, runge_kutta<growth, float>(growth{}, {.dt = 0.25, .substeps = 40}));
  CHECK(largest_difference(std::vector<float>(narrow.table().begin(), narrow.table().end()),
                           std::vector<long double>(e.table().begin(), e.table().end())) < 1e-5);
}

TEST_CASE("recursive: what is refused", "[recursive]") {
  CHECK(refusal([] { recursive<double>(0, {1, 1}, halve{}); }) == "posenc::recursive: rows must be at least 1, got 0");
  CHECK(refusal([] { recursive<double>(3, {}, halve{}); }) == "posenc::recursive: first must not be empty, got 0");
  CHECK(refusal([] { recursive_cursor(std::vector<double>{}, halve{}); }) ==
        "posenc::recursive_cursor: first must not be empty, got 0");
  CHECK(refusal([] { runge_kutta(growth{}, {.dt = 0}); }) == "posenc::runge_kutta: dt must be finite and not 0, got 0");
  CHECK(refusal([] { runge_kutta(growth{}, {.substeps = 0}); }) ==
        "posenc::runge_kutta: substeps must be at least 1, got 0");
  const recursive<double> e(4, {8, 1}, halve{});
  std::vector<double> x(4, 3.0);
  const auto before = x;
  const view v{x.data(), {.tokens = 2, .dim = 2}};
  CHECK(refusal<std::out_of_range>([&] { e.embed(v, positions::from(3)); }) ==
        "posenc::recursive::embed: position must lie in 0..3, as far as the recursion ran, got 4");
  CHECK(refusal<std::out_of_range>([&] { e.lookup(v, positions::from(-1)); }) ==
        "posenc::recursive::lookup: position must lie in 0..3, as far as the recursion ran, got -1");
  CHECK(x == before);
  recursive_cursor cursor(std::vector<double>{8, 1}, halve{});
  CHECK(refusal([&] {
          cursor.embed(view{x.data(), {.tokens = 1, .dim = 4}});
        }) == "posenc::recursive_cursor::embed: dim must equal that of the rows, got 4");
  CHECK(cursor.position() == 0);
}
