// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group absolute: rows that follow a differential equation.
#include "golden.hpp"

#include <posenc/encoders/recursive.hpp>

#include <cmath>

namespace {

using golden::answers;
using golden::test_case;

/// W2 [tanh(W1 [p; t] + b1); t] + b2.
struct network {
  std::vector<double> w1;
  std::vector<double> b1;
  std::vector<double> w2;
  std::vector<double> b2;

  void operator()(double t, std::span<const double> p, std::span<double> out) const {
    const std::size_t dim = p.size();
    const std::size_t hidden = b1.size();
    std::vector<double> y(hidden);
    for (std::size_t i = 0; i < hidden; ++i) {
      double sum = b1[i] + w1[i * (dim + 1) + dim] * t;
      for (std::size_t d = 0; d < dim; ++d) sum += w1[i * (dim + 1) + d] * p[d];
      y[i] = std::tanh(sum);
    }
    for (std::size_t d = 0; d < dim; ++d) {
      out[d] = b2[d] + w2[d * (hidden + 1) + hidden] * t;
      for (std::size_t i = 0; i < hidden; ++i) out[d] += w2[d * (hidden + 1) + i] * y[i];
    }
  }
};

void recursive(const test_case& c, answers& a) {
  const auto rule = c.choice<posenc::runge_kutta_rule>(
      "rule",
      {{"classic", posenc::runge_kutta_rule::classic}, {"three_eighths", posenc::runge_kutta_rule::three_eighths}});
  const network flow{c.input("W1").values, c.input("b1").values, c.input("W2").values, c.input("b2").values};
  const posenc::runge_kutta step(
      flow, {.dt = c.number("dt"), .substeps = static_cast<int>(c.integer("substeps")), .rule = rule});
  const std::vector<double>& first = c.input("p0").values;
  const std::int64_t tokens = c.integer("tokens");
  const posenc::shape shape{.tokens = tokens, .dim = static_cast<std::int64_t>(first.size())};

  const posenc::recursive<double> encoder(tokens, first, step);
  std::vector<double> rows(static_cast<std::size_t>(shape.elements()), -7.0);
  encoder.lookup(posenc::view(rows.data(), shape));
  a.add("rows", rows, "table");
  std::vector<double> sum(rows.size(), 0.0);
  posenc::recursive_cursor cursor(first, step);
  cursor.embed(posenc::view(sum.data(), shape));
  a.add("rows", sum, "cursor");
}

const golden::registration ops{{"absolute.recursive", recursive}};

}  // namespace
