// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group absolute: learned tables for another grid, and the gradient that goes back.
#include "golden.hpp"

#include <posenc/encoders/resize.hpp>

namespace {

using golden::answers;
using golden::test_case;

posenc::resize_options options_of(const test_case& c) {
  const auto mode = c.choice<posenc::resize_mode>(
      "mode", {{"bilinear", posenc::resize_mode::bilinear}, {"bicubic", posenc::resize_mode::bicubic}});
  const golden::tensor& table = c.input("table");
  posenc::resize_options o{.from = {.rows = table.extent(0), .columns = table.extent(1)}, .mode = mode};
  const auto& to = c.params().at("size").at("data");
  o.to = posenc::table_extent{.rows = to.at(0).get<std::int64_t>(), .columns = to.at(1).get<std::int64_t>()};
  o.align_corners = c.params().at("align_corners").get<bool>();
  o.antialias = c.params().at("antialias").get<bool>();
  if (c.has("scale_factor")) o.scale_factor = {c.number("scale_factor"), c.number("scale_factor")};
  return o;
}

void resize(const test_case& c, answers& a) {
  posenc::resize_options o = options_of(c);
  const std::vector<double>& table = c.input("table").values;
  a.add("table", posenc::table_resize(o)(table), "sizes");
  if (o.scale_factor) {
    o.to.reset();
    a.add("table", posenc::table_resize(o)(table), "scale factor alone");
  }
  // As one axis after the other: the columns of every row, then the rows of lines of all columns.
  const auto one_axis = [&](std::size_t axis, std::int64_t from, std::int64_t to) {
    posenc::resize_options p = o;
    p.from = {.rows = from};
    p.to = posenc::table_extent{.rows = to};
    if (o.scale_factor) p.scale_factor = {(*o.scale_factor)[axis], 1.0};
    return posenc::table_resize(p);
  };
  const posenc::table_extent to = posenc::table_resize(o).to();
  const auto columns = one_axis(1, o.from.columns, to.columns);
  const auto line = static_cast<std::ptrdiff_t>(table.size()) / o.from.rows;
  std::vector<double> wide;
  for (std::int64_t r = 0; r < o.from.rows; ++r) {
    const std::vector<double> row(table.begin() + r * line, table.begin() + (r + 1) * line);
    const std::vector<double> resized = columns(row);
    wide.insert(wide.end(), resized.begin(), resized.end());
  }
  a.add("table", one_axis(0, o.from.rows, to.rows)(wide), "axis by axis");
}

void resize_gradient(const test_case& c, answers& a) {
  a.add("grad_table", posenc::table_resize(options_of(c)).adjoint(c.input("upstream_table").values));
}

const golden::registration ops{{"learned.resize", resize}, {"gradients.learned.resize", resize_gradient}};

}  // namespace
