// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group rope: frequencies, tables of cos and sin, rotations.
#include "golden.hpp"

#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/rope_table.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

namespace {

using golden::answers;
using golden::test_case;

constexpr const char* float32_angles = "float32 angles";

double number(const nlohmann::json& p, const char* key) { return p.at(key).get<double>(); }
std::optional<double> maybe(const nlohmann::json& p, const char* key) {
  return p.contains(key) && !p.at(key).is_null() ? std::optional<double>(number(p, key)) : std::nullopt;
}
std::int64_t length(const nlohmann::json& p, const char* key, std::int64_t absent = 0) {
  return p.contains(key) && !p.at(key).is_null() ? p.at(key).get<std::int64_t>() : absent;
}
/// L, and M where L is absent.
std::int64_t original(const nlohmann::json& p) {
  return length(p, "original_max_position_embeddings", length(p, "max_position_embeddings"));
}
/// s, and M / L where s is absent.
double factor_of(const nlohmann::json& p) {
  return maybe(p, "factor")
      .value_or(static_cast<double>(length(p, "max_position_embeddings")) / static_cast<double>(original(p)));
}

/// One entry per rope_type.
const std::map<std::string, std::function<posenc::rope_scaling(const nlohmann::json&)>> scalings{
    {"default", [](const auto&) { return posenc::no_scaling{}; }},
    {"linear", [](const auto& p) { return posenc::linear{number(p, "factor")}; }},
    {"dynamic",
     [](const auto& p) {
       return posenc::dynamic_ntk{.factor = number(p, "factor"),
                                  .max_position_embeddings = length(p, "max_position_embeddings"),
                                  .length = length(p, "seq_len")};
     }},
    {"ntk_aware", [](const auto& p) { return posenc::ntk_aware{number(p, "factor")}; }},
    {"ntk_fixed_su", [](const auto& p) { return posenc::ntk_fixed_su{number(p, "factor")}; }},
    {"ntk_mixed_su",
     [](const auto& p) {
       return posenc::ntk_mixed_su{number(p, "factor"), number(p, "mixed_b")};
     }},
    {"ntk_by_parts",
     [](const auto& p) {
       return posenc::ntk_by_parts{.factor = number(p, "factor"),
                                   .original_max_position_embeddings = length(p, "original_max_position_embeddings"),
                                   .beta_0 = number(p, "beta_0"),
                                   .beta_1 = number(p, "beta_1"),
                                   .gamma_0 = number(p, "gamma_0"),
                                   .gamma_1 = number(p, "gamma_1")};
     }},
    {"yarn",
     [](const auto& p) {
       return posenc::yarn{.factor = factor_of(p),
                           .original_max_position_embeddings = original(p),
                           .beta_fast = maybe(p, "beta_fast").value_or(32),
                           .beta_slow = maybe(p, "beta_slow").value_or(1),
                           .truncate = p.value("truncate", true),
                           .attention_factor = maybe(p, "attention_factor"),
                           .mscale = maybe(p, "mscale"),
                           .mscale_all_dim = maybe(p, "mscale_all_dim")};
     }},
    {"longrope",
     [](const auto& p) {
       return posenc::longrope{.short_factor = p.at("short_factor").template get<std::vector<double>>(),
                               .long_factor = p.at("long_factor").template get<std::vector<double>>(),
                               .original_max_position_embeddings = length(p, "original_max_position_embeddings"),
                               .factor = maybe(p, "factor"),
                               .max_position_embeddings = length(p, "max_position_embeddings"),
                               .attention_factor = maybe(p, "attention_factor"),
                               .length = length(p, "seq_len")};
     }},
    {"llama3",
     [](const auto& p) {
       return posenc::llama3{.factor = number(p, "factor"),
                             .low_freq_factor = number(p, "low_freq_factor"),
                             .high_freq_factor = number(p, "high_freq_factor"),
                             .original_max_position_embeddings = length(p, "original_max_position_embeddings")};
     }},
    {"proportional",
     [](const auto& p) {
       return posenc::proportional{number(p, "partial_rotary_factor"), maybe(p, "factor").value_or(1)};
     }},
    {"pixel", [](const auto& p) { return posenc::pixel{number(p, "max_freq")}; }}};

const std::map<std::string, posenc::rope_layout> layouts{{"half", posenc::half_split},
                                                         {"interleaved", posenc::interleaved},
                                                         {"interleaved_in_half_out", posenc::interleaved_in_half_out},
                                                         {"vjepa2_mixed", posenc::vjepa2_mixed}};

/// Everything but the layout: frequencies by `rope_parameters`, or given outright.
posenc::rope_options rope_options(const test_case& c) {
  posenc::rope_options o{.head_dim = c.integer("head_dim"), .offset = c.integer("offset", 0)};
  if (c.has("attention_factor")) o.attention_factor = c.number("attention_factor");
  if (c.has("rotary_dim")) o.rotary_dim = c.integer("rotary_dim");
  if (c.has_input("inv_freq")) {
    o.inv_freq = c.input("inv_freq").values;
    return o;
  }
  const nlohmann::json& p = c.params().at("rope_parameters");
  const auto type = p.at("rope_type").get<std::string>();
  if (scalings.count(type) == 0) throw golden::unsupported("rope_type " + type);
  o.scaling = scalings.at(type)(p);
  if (p.contains("rope_theta")) o.base = number(p, "rope_theta");
  if (p.contains("partial_rotary_factor") && type != "proportional") {
    // Where both are named they agree, so the rule that derives one from the other is what is tested.
    o.partial_rotary_factor = number(p, "partial_rotary_factor");
    o.rotary_dim.reset();
  }
  if (type == "proportional") o.rotary_dim.reset();  // it always spans the head
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

void frequencies(const test_case& c, answers& a) {
  const posenc::rope_options o = rope_options(c);
  const posenc::rope<double> encoder(o);
  a.add("inv_freq", encoder.inv_freq());
  a.add("inv_freq_peer", encoder.inv_freq());
  a.add("attention_factor", std::vector<double>{encoder.magnitude()});
  a.add("softmax_scale_multiplier", std::vector<double>{encoder.softmax_scale_multiplier()});
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
  given.attention_factor = encoder.magnitude();
  given.inv_freq = c.expected("inv_freq_peer").values;
  given.angles = posenc::angle_mode::float32_rounded_inv_freq;
  table mode = rows_of(posenc::rope<float>(given), at);
  a.add_peer(float32_angles, "cos_peer", mode.cos, "given inv_freq");
  a.add_peer(float32_angles, "sin_peer", mode.sin, "given inv_freq");

  // A mode that forms them itself differs where the peer's power is rounded to the other neighbour; those pairs keep
  // the values above.
  posenc::rope_options own = o;
  own.angles = posenc::angle_mode::float32;
  const posenc::rope<float> forming(own);
  const table formed = rows_of(forming, at);
  const std::vector<float> ladder = forming.float32_inv_freq();
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
  o.layout = c.choice<posenc::rope_layout>("layout", layouts);
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
