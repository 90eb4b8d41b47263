// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group absolute: learned rows (segments, axial and hierarchical tables, complex order).
#include "golden.hpp"

#include <posenc/encoders/axial.hpp>
#include <posenc/encoders/complex_order.hpp>
#include <posenc/encoders/hierarchical.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/segment.hpp>

#include <cmath>

namespace {

using golden::answers;
using golden::test_case;

/// The rows as looked up, and as added to zeros; every element must be written.
template <class Encoder>
void rows_of(const Encoder& encoder, const posenc::positions& at, std::int64_t n, answers& a, const std::string& how) {
  const posenc::shape shape{.tokens = n, .dim = encoder.dim()};
  std::vector<double> rows(static_cast<std::size_t>(shape.elements()), -7.0);
  encoder.lookup(posenc::view(rows.data(), shape), at);
  a.add("rows", rows, how);
  std::vector<double> sum(rows.size(), 0.0);
  encoder.embed(posenc::view(sum.data(), shape), at);
  a.add("rows", sum, how + ", embed");
}

/// The layer norm is the model's, not the library's: biased variance, in place.
void layer_norm(std::vector<double>& x, const std::vector<double>& gamma, const std::vector<double>& beta, double eps) {
  const std::size_t d = gamma.size();
  for (std::size_t from = 0; from < x.size(); from += d) {
    double mean = 0;
    double variance = 0;
    for (std::size_t i = 0; i < d; ++i) mean += x[from + i] / static_cast<double>(d);
    for (std::size_t i = 0; i < d; ++i)
      variance += (x[from + i] - mean) * (x[from + i] - mean) / static_cast<double>(d);
    for (std::size_t i = 0; i < d; ++i)
      x[from + i] = (x[from + i] - mean) / std::sqrt(variance + eps) * gamma[i] + beta[i];
  }
}

void embedding_sum(const test_case& c, answers& a) {
  const auto& ids = c.input("input_ids");
  const auto& word = c.input("word");
  const auto& position = c.input("position");
  const auto& type = c.input("token_type");
  const posenc::shape shape{.batch = ids.extent(0), .tokens = ids.extent(1), .dim = word.extent(1)};
  const posenc::learned<double> positions({.rows = position.extent(0), .dim = shape.dim}, position.values);
  const posenc::segment<double> segments({.segments = type.extent(0), .dim = shape.dim}, std::span(type.values));
  std::vector<double> x;
  for (const std::int64_t id : ids.integers())
    x.insert(x.end(), word.values.begin() + id * shape.dim, word.values.begin() + (id + 1) * shape.dim);
  const posenc::view all(x.data(), shape);
  segments.embed(all, c.input("token_type_ids").integers());
  positions.embed(all, posenc::positions::from(c.integer("past_length")));
  layer_norm(x, c.input("gamma").values, c.input("beta").values, c.number("layer_norm_eps"));
  a.add("embeddings", x);
}

void axial(const test_case& c, answers& a) {
  const auto& t0 = c.input("table0");
  const auto& t1 = c.input("table1");
  const posenc::axial<double> encoder(
      {{t0.extent(0), t0.extent(1), t0.values}, {t1.extent(0), t1.extent(1), t1.values}});
  const auto ids = c.input("position_ids").integers();
  const auto n = static_cast<std::int64_t>(ids.size());
  rows_of(encoder, posenc::positions::listed(ids), n, a, "ids");
  std::vector<std::int64_t> coordinates;
  for (const std::int64_t id : ids) coordinates.push_back(id / t1.extent(0));
  for (const std::int64_t id : ids) coordinates.push_back(id % t1.extent(0));
  rows_of(encoder, posenc::positions::axes(coordinates, 2), n, a, "coordinates");
}

void hierarchical(const test_case& c, answers& a) {
  const auto& table = c.input("table");
  const auto ids = c.input("positions").integers();
  const posenc::hierarchical<double> encoder(
      {.rows = table.extent(0), .dim = table.extent(1), .alpha = c.number("alpha")}, std::span(table.values));
  rows_of(encoder, posenc::positions::listed(ids), static_cast<std::int64_t>(ids.size()), a, "ids");
}

void complex_order(const test_case& c, answers& a) {
  const auto& r = c.input("r");
  const auto tokens = c.input("tokens").integers();
  const auto ids = c.input("positions").integers();
  const posenc::complex_order_options o{.vocabulary = r.extent(0), .dim = r.extent(1)};
  const posenc::shape shape{.tokens = static_cast<std::int64_t>(tokens.size()), .dim = o.dim};
  const auto size = static_cast<std::size_t>(shape.elements());
  const auto run = [&]<class T>(const std::string& how, T) {
    const auto radius = r.as<T>();
    const auto omega = c.input("omega").as<T>();
    const auto theta = c.input("theta").as<T>();
    const posenc::complex_order<T> encoder(o, {radius, omega, theta});
    std::vector<T> re(size, T(-7));
    std::vector<T> im(size, T(-7));
    encoder.lookup(posenc::view(re.data(), shape), posenc::view(im.data(), shape), tokens,
                   posenc::positions::listed(ids));
    a.add("re", re, how);
    a.add("im", im, how);
  };
  run("exact angles", double{});
  run("arithmetic of the scalar", 0.0L);
}

const golden::registration ops{{"absolute.embedding_sum", embedding_sum},
                               {"absolute.axial", axial},
                               {"learned.hierarchical", hierarchical},
                               {"absolute.complex_order", complex_order}};

}  // namespace
