// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group bias: what goes by the place in an image window.
#include "golden.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/encoders/continuous_bias.hpp>
#include <posenc/encoders/decomposed_bias.hpp>

namespace {

using golden::answers;
using golden::test_case;

/// A parameter that is an array of two.
posenc::window_shape window_of(const test_case& c, const std::string& key) {
  const auto values = c.params().at(key).at("data").get<std::vector<std::int64_t>>();
  return {values.at(0), values.at(1)};
}

posenc::window_kind kind_of(const test_case& c) {
  return c.choice<posenc::window_kind>("kind", {{"swin", posenc::window_kind::swin},
                                                {"beit", posenc::window_kind::beit},
                                                {"levit", posenc::window_kind::levit}});
}

void window_index(const test_case& c, answers& a) {
  a.add("index", posenc::window_index(kind_of(c), window_of(c, "window")));
}

/// By the reference path, by rows on lanes, and from the matrix that was made.
template <class Encoder>
void add_bias(const Encoder& e, const posenc::window_bias<double>& held, answers& a) {
  const std::int64_t n = held.keys();
  std::vector<double> bias(static_cast<std::size_t>(e.heads() * n * n));
  posenc::fill_bias<double>(e, e.heads(), {}, n, {}, n, bias);
  a.add("bias", bias, "fill_bias");
  std::vector<double> rows(bias.size());
  std::vector<double> lines;
  for (std::int64_t h = 0; h < e.heads(); ++h)
    for (std::int64_t i = 0; i < n; ++i) {
      posenc::add_bias_row<double>(
          e, {.head = h, .kv_head = h, .query_index = i}, 0,
          std::span(rows).subspan(static_cast<std::size_t>((h * n + i) * n), static_cast<std::size_t>(n)));
      lines.insert(lines.end(), held.line(h, i), held.line(h, i) + n);
    }
  a.add("bias", rows, "add_bias_row");
  a.add("bias", lines, "line");
}

void window_bias(const test_case& c, answers& a) {
  const golden::tensor& table = c.input("table");
  const posenc::window_bias<double> e({.heads = table.extent(1), .kind = kind_of(c), .window = window_of(c, "window")},
                                      table.values);
  add_bias(e, e, a);
}

void continuous_coords(const test_case& c, answers& a) {
  a.add("coords", posenc::continuous_coords(window_of(c, "window"), window_of(c, "pretrained_window")));
}

void continuous_bias(const test_case& c, answers& a) {
  const posenc::continuous_bias<double> e(
      {.heads = c.input("weight2").extent(0), .window = window_of(c, "window")},
      {c.input("weight1").values, c.input("bias1").values, c.input("weight2").values}, c.input("coords").values);
  add_bias(e, e.window(), a);
}

void window_axis_rows(const test_case& c, answers& a) {
  const golden::tensor& table = c.input("rel_pos");
  a.add("rows",
        posenc::window_axis_rows<double>(c.integer("q_size"), c.integer("k_size"), table.extent(1), table.values));
}

const golden::registration ops{{"relative.window_index", window_index},
                               {"relative.window_bias", window_bias},
                               {"swin.continuous_coords", continuous_coords},
                               {"swin.continuous_bias", continuous_bias},
                               {"relative.window_axis_rows", window_axis_rows}};

}  // namespace
