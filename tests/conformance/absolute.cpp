// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group absolute: sinusoidal rows, learned tables, position ids.
#include "golden.hpp"

#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/position_ids.hpp>
#include <posenc/encoders/sinusoidal.hpp>

namespace {

using golden::answers;
using golden::test_case;

posenc::sinusoidal_options sinusoidal_options(const test_case& c) {
  posenc::sinusoidal_options o{.dim = c.integer("dim"), .base = c.number("base")};
  o.layout = c.choice<posenc::sinusoidal_layout>(
      "layout", {{"interleaved_sin_cos", posenc::sinusoidal_layout::interleaved_sin_cos},
                 {"interleaved_cos_sin", posenc::sinusoidal_layout::interleaved_cos_sin},
                 {"concat_sin_cos", posenc::sinusoidal_layout::concat_sin_cos},
                 {"concat_cos_sin", posenc::sinusoidal_layout::concat_cos_sin}});
  o.denominator = c.choice<posenc::sinusoidal_denominator>(
      "denominator",
      {{"half", posenc::sinusoidal_denominator::half}, {"half_minus_1", posenc::sinusoidal_denominator::half_minus_1}});
  o.odd = c.choice<posenc::sinusoidal_odd>("odd", {{"zero_pad", posenc::sinusoidal_odd::zero_pad},
                                                   {"truncate", posenc::sinusoidal_odd::truncate},
                                                   {"split", posenc::sinusoidal_odd::split}});
  o.start = c.integer("start");
  o.scale = c.number("scale");
  if (c.has("padding_idx")) o.padding_idx = c.integer("padding_idx");
  return o;
}

/// The rows themselves, and the rows added to zeros.
template <class At>
void sinusoidal_rows(const posenc::sinusoidal<double>& encoder, std::int64_t n, const At& at, const std::string& how,
                     answers& a) {
  const posenc::shape shape{.tokens = n, .dim = encoder.dim()};
  std::vector<double> rows(static_cast<std::size_t>(shape.elements()), -7.0);  // every element must be written
  encoder.table(posenc::view(rows.data(), shape), at);
  a.add("table", rows, how);
  std::vector<double> sum(rows.size(), 0.0);
  encoder.embed(posenc::view(sum.data(), shape), at);
  a.add("table", sum, how + ", embed");
}

void sinusoidal_table(const test_case& c, answers& a) {
  const posenc::sinusoidal<double> encoder(sinusoidal_options(c));
  const golden::tensor& at = c.input("positions");
  sinusoidal_rows(encoder, at.extent(0), posenc::real_positions(at.values), "real positions", a);
  if (!at.whole()) return;
  const auto ids = at.integers();
  sinusoidal_rows(encoder, at.extent(0), posenc::positions::listed(ids), "ids", a);
}

void learned_position_ids(const test_case& c, answers& a) {
  const std::string rule = c.text("rule");
  if (rule == "roberta") {
    const auto tokens = c.input("input_ids").integers();
    a.add("position_ids", posenc::roberta_ids<std::int64_t>(tokens, c.integer("padding_idx"),
                                                            c.input("input_ids").extent(0), c.integer("past_length")));
  } else if (rule == "opt") {
    const auto mask = c.input("attention_mask").integers();
    a.add("position_ids", posenc::opt_ids<std::int64_t>(mask, c.input("attention_mask").extent(0),
                                                        c.integer("past_length"), c.integer("offset")));
  } else {
    throw golden::unsupported("rule " + rule);
  }
}

void learned_lookup(const test_case& c, answers& a) {
  const golden::tensor& table = c.input("table");
  const auto rule = c.choice<posenc::out_of_range>("out_of_range", {{"error", posenc::out_of_range::throws},
                                                                    {"clamp", posenc::out_of_range::clamp},
                                                                    {"repeat", posenc::out_of_range::repeat}});
  const posenc::learned<double> encoder({.rows = table.extent(0), .dim = table.extent(1), .out_of_range = rule},
                                        table.values);
  const auto ids = c.input("positions").integers();
  const posenc::shape shape{.tokens = static_cast<std::int64_t>(ids.size()), .dim = encoder.dim()};
  std::vector<double> rows(static_cast<std::size_t>(shape.elements()), -7.0);
  encoder.lookup(posenc::view(rows.data(), shape), posenc::positions::listed(ids));
  a.add("rows", rows, "lookup");
  std::vector<double> sum(rows.size(), 0.0);
  encoder.embed(posenc::view(sum.data(), shape), posenc::positions::listed(ids));
  a.add("rows", sum, "embed");
}

const golden::registration ops{{"sinusoidal.table", sinusoidal_table},
                               {"learned.position_ids", learned_position_ids},
                               {"learned.lookup", learned_lookup}};

}  // namespace
