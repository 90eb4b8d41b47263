// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group rope: positions of several axes, and xPos.
#include "golden.hpp"

#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/xpos.hpp>

#include <cmath>
#include <map>
#include <optional>

namespace {

using golden::answers;
using golden::test_case;

constexpr const char* float32_angles = "float32 angles";

std::vector<std::int64_t> sections(const test_case& c, const char* key) {
  return c.params().at(key).get<std::vector<std::int64_t>>();
}

/// The axes as a builder makes them from the rule of the case, if there is one.
std::optional<posenc::rope_axes> built(const test_case& c) {
  const std::string rule = c.text("axis_rule", "");
  posenc::rope_axes axes;
  if (rule == "sections_chunked") {
    axes = posenc::rope_axes::chunked(sections(c, "mrope_section"));
  } else if (rule == "sections_interleaved") {
    axes = posenc::rope_axes::interleaved(sections(c, "mrope_section"));
  } else if (rule == "sections_hw_alternating_t_last") {
    axes = posenc::rope_axes::alternating_hw(sections(c, "mrope_section"));
  } else if (rule == "axis_blocks") {
    axes = posenc::rope_axes::blocks(sections(c, "axis_dims"));
  } else {
    return std::nullopt;  // the case lists its axes, too
  }
  axes.multiplier = c.number("angle_multiplier", 1);
  return axes;
}

/// The axes as the list of the case says, to go with frequencies given outright.
posenc::rope_axes listed(const test_case& c, std::int64_t pairs) {
  posenc::rope_axes axes;
  for (const int a : c.params().at("axis_of_pair").get<std::vector<int>>())
    axes.pairs.push_back({a, static_cast<std::int64_t>(axes.pairs.size()), pairs});
  if (c.has("axis_dims")) axes.block_dims = sections(c, "axis_dims");
  return axes;
}

/// Every output of the case by one encoder.
template <class T>
std::map<std::string, std::vector<double>> outputs(const test_case& c, const posenc::rope<T>& encoder) {
  const golden::tensor& at = c.input("positions");
  const auto axes = static_cast<int>(at.extent(0));
  const std::int64_t tokens = at.extent(1);
  const auto real = posenc::real_positions::axes(at.values, axes);
  std::map<std::string, std::vector<double>> out;
  if (c.has_input("x")) {
    std::vector<T> x = c.input("x").as<T>();
    const posenc::view view(x.data(), {.tokens = tokens, .dim = encoder.head_dim()});
    if (at.whole()) {
      const auto ids = at.integers();
      encoder.rotate(view, posenc::positions::axes(ids, axes));
    } else {
      encoder.rotate(view, real);
    }
    out["out"].assign(x.begin(), x.end());
  }
  const auto pairs = static_cast<std::size_t>(encoder.pairs());
  std::vector<T> cos(pairs);
  std::vector<T> sin(pairs);
  for (std::int64_t t = 0; t < tokens; ++t) {
    encoder.cos_sin(real.at(t), cos.data(), sin.data());
    out["cos"].insert(out["cos"].end(), cos.begin(), cos.end());
    out["sin"].insert(out["sin"].end(), sin.begin(), sin.end());
  }
  return out;
}

void rotate_axes(const test_case& c, answers& a) {
  const golden::tensor& f = c.input("inv_freq");
  posenc::rope_options o{.head_dim = c.integer("head_dim")};
  o.layout = c.choice<posenc::rope_layout>("layout", {{"half", posenc::half_split},
                                                      {"interleaved", posenc::interleaved},
                                                      {"half_per_axis_block", posenc::half_split_in_blocks}});
  if (c.has("rope_theta")) o.base = c.number("rope_theta");
  posenc::rope_options given = o;
  given.inv_freq = f.values;
  if (c.has("axis_of_pair")) {
    given.axes = listed(c, f.extent(0));
  } else {
    given.frequency_axes = static_cast<int>(f.extent(0));
  }
  const auto add = [&](const posenc::rope_options& options, const char* how) {
    const posenc::rope<double> encoder(options);
    for (const auto& [name, values] : outputs(c, encoder)) {
      a.add(name, values, how);
      a.add(name + "_peer", values, how);
    }
    if (!c.expects("angle")) return;
    // The angle itself, from its cosine and sine: the positions of the case keep it within half a turn of the origin or
    // a known number of turns away from it.
    const golden::tensor& angle = c.expected("angle");
    const auto rows = outputs(c, encoder);
    std::vector<double> found;
    for (std::size_t i = 0; i < angle.values.size(); ++i) {
      const double wrapped = std::atan2(rows.at("sin")[i], rows.at("cos")[i]);
      const double turns = std::round((angle.values[i] - wrapped) / (2 * std::acos(-1.0)));
      found.push_back(wrapped + turns * 2 * std::acos(-1.0));
    }
    a.add("angle", found, how);
    a.add("angle_peer", found, how);
  };
  add(given, "given inv_freq");
  if (const auto axes = built(c)) {
    o.axes = *axes;
    add(o, "builder");
  }
  given.angles = posenc::angle_mode::float32_rounded_inv_freq;
  for (const auto& [name, values] : outputs(c, posenc::rope<float>(given)))
    if (c.wants_peer_arithmetic(name + "_peer")) a.add_peer(float32_angles, name + "_peer", values);
}

void xpos(const test_case& c, answers& a) {
  const posenc::xpos<double> encoder(
      {.head_dim = c.integer("head_dim"),
       .rotary_dim = c.integer("rotary_dim"),
       .base = c.number("rope_theta"),
       .layout = c.choice<posenc::rope_layout>("layout", {{"interleaved", posenc::interleaved}}),
       .scale_base = c.number("scale_base"),
       .centre = c.integer("center")});
  std::vector<double> x = c.input("x").values;
  const auto at = c.input("positions").integers();
  const posenc::view view(x.data(), {.tokens = static_cast<std::int64_t>(at.size()), .dim = encoder.head_dim()});
  if (c.choice<bool>("role", {{"query", true}, {"key", false}})) {
    encoder.rotate_queries(view, posenc::positions::listed(at));
  } else {
    encoder.rotate_keys(view, posenc::positions::listed(at));
  }
  a.add("out", x);
  a.add("out_peer", x);
}

const golden::registration ops{{"rope.rotate_axes", rotate_axes}, {"rope.xpos", xpos}};

}  // namespace
