// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group rope: frequencies, tables of cos and sin, rotations.
#include "golden.hpp"

#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/rope_table.hpp>

#include <algorithm>
#include <variant>

namespace {

using golden::answers;
using golden::test_case;

constexpr const char* float32_angles = "float32 angles";

/// Everything but the layout: frequencies by `rope_parameters`, or given outright.
posenc::rope_options rope_options(const test_case& c) {
  posenc::rope_options o{.head_dim = c.integer("head_dim"), .offset = c.integer("offset", 0)};
  o.attention_factor = c.number("attention_factor", 1);
  if (c.has("rotary_dim")) o.rotary_dim = c.integer("rotary_dim");
  if (c.has_input("inv_freq")) {
    o.inv_freq = c.input("inv_freq").values;
    return o;
  }
  const nlohmann::json& p = c.params().at("rope_parameters");
  const auto type = p.at("rope_type").get<std::string>();
  if (type == "linear") {
    o.scaling = posenc::linear{p.at("factor").get<double>()};
  } else if (type != "default") {
    throw golden::unsupported("rope_type " + type);
  }
  o.base = p.at("rope_theta").get<double>();
  if (p.contains("partial_rotary_factor")) {
    // Where both are named they agree, so the rule that derives one from the other is what is tested.
    o.partial_rotary_factor = p.at("partial_rotary_factor").get<double>();
    o.rotary_dim.reset();
  }
  return o;
}

struct table {
  std::vector<double> cos;
  std::vector<double> sin;
};

template <class R>
table rows_of(const posenc::rope<R>& encoder, const std::vector<std::int64_t>& at) {
  const auto pairs = static_cast<std::size_t>(encoder.pairs());
  table t;
  std::vector<R> cos(pairs);
  std::vector<R> sin(pairs);
  for (const std::int64_t p : at) {
    encoder.cos_sin(p, cos.data(), sin.data());
    t.cos.insert(t.cos.end(), cos.begin(), cos.end());
    t.sin.insert(t.sin.end(), sin.begin(), sin.end());
  }
  return t;
}

/// What angle_mode::float32 multiplies positions with.
std::vector<float> float32_frequencies(const posenc::rope_options& o, std::int64_t rotary_dim) {
  std::vector<float> f = posenc::math::float32_ladder(static_cast<float>(o.base), rotary_dim);
  if (const auto* l = std::get_if<posenc::linear>(&o.scaling))
    for (float& x : f) x /= static_cast<float>(l->factor);
  return f;
}

void frequencies(const test_case& c, answers& a) {
  const posenc::rope_options o = rope_options(c);
  const posenc::rope<double> encoder(o);
  a.add("inv_freq", encoder.inv_freq());
  a.add("inv_freq_peer", encoder.inv_freq());
  a.add("attention_factor", std::vector<double>{encoder.magnitude()});
  if (!c.has_input("positions")) return;
  const auto at = c.input("positions").integers();
  const table exact = rows_of(encoder, at);
  a.add("cos", exact.cos);
  a.add("sin", exact.sin);
  a.add("cos_peer", exact.cos);
  a.add("sin_peer", exact.sin);
  if (!c.expects("cos_peer")) return;

  // The peer's steps begin with its own float32 frequencies.
  posenc::rope_options given{.head_dim = o.head_dim, .rotary_dim = encoder.rotary_dim()};
  given.attention_factor = o.attention_factor;
  given.inv_freq = c.expected("inv_freq_peer").values;
  given.angles = posenc::angle_mode::float32_rounded_inv_freq;
  table mode = rows_of(posenc::rope<float>(given), at);
  a.add_peer(float32_angles, "cos_peer", mode.cos, "given inv_freq");
  a.add_peer(float32_angles, "sin_peer", mode.sin, "given inv_freq");

  // A mode that forms them itself differs where the peer's power is rounded to the other neighbour; those pairs keep
  // the values above.
  posenc::rope_options own = o;
  own.angles = posenc::angle_mode::float32;
  const table formed = rows_of(posenc::rope<float>(own), at);
  const std::vector<float> ladder = float32_frequencies(o, encoder.rotary_dim());
  a.add("inv_freq_peer", ladder, "float32_ladder");
  for (std::size_t i = 0; i < formed.cos.size(); ++i) {
    const std::size_t pair = i % ladder.size();
    if (static_cast<double>(ladder[pair]) != given.inv_freq[pair]) continue;
    mode.cos[i] = formed.cos[i];
    mode.sin[i] = formed.sin[i];
  }
  a.add_peer(float32_angles, "cos_peer", mode.cos, "own inv_freq");
  a.add_peer(float32_angles, "sin_peer", mode.sin, "own inv_freq");
}

/// x rotated by encoder: [tokens, head_dim], one head.
template <class Encoder, class T>
std::vector<T> rotated(const Encoder& encoder, std::vector<T> x, std::int64_t dim,
                       const std::vector<std::int64_t>& at) {
  encoder.rotate(posenc::view(x.data(), {.tokens = static_cast<std::int64_t>(at.size()), .dim = dim}),
                 posenc::positions::listed(at));
  return x;
}

void rotate(const test_case& c, answers& a) {
  posenc::rope_options o = rope_options(c);
  o.layout =
      c.choice<posenc::rope_layout>("layout", {{"half", posenc::half_split}, {"interleaved", posenc::interleaved}});
  const posenc::rope<double> encoder(o);
  const golden::tensor& x = c.input("x");
  const auto at = c.input("positions").integers();
  const std::vector<double> exact = rotated(encoder, x.values, o.head_dim, at);
  const auto [first, last] = std::minmax_element(at.begin(), at.end());
  const posenc::rope_table<double> stored(encoder, *first, *last - *first + 1);
  const std::vector<double> by_table = rotated(stored, x.values, o.head_dim, at);
  for (const char* output : {"out", "out_peer"}) {
    a.add(output, exact, "rope");
    a.add(output, by_table, "rope_table");
  }
  if (!c.wants_peer_arithmetic("out_peer")) return;
  o.angles = c.choice<posenc::angle_mode>("peer_inv_freq", {{"float32_pow", posenc::angle_mode::float32},
                                                            {"rounded", posenc::angle_mode::float32_rounded_inv_freq}});
  a.add_peer(float32_angles, "out_peer", rotated(posenc::rope<float>(o), x.as<float>(), o.head_dim, at));
}

const golden::registration ops{{"rope.frequencies", frequencies}, {"rope.rotate", rotate}};

}  // namespace
