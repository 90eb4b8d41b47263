// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group layers: which layers rotate, and the factors on queries.
#include "golden.hpp"

#include <posenc/attention/irope.hpp>
#include <posenc/attention/mask_tensor.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/reference.hpp>

#include <algorithm>
#include <tuple>

namespace {

using golden::answers;
using golden::test_case;

template <class Part, class Policy>
inline constexpr bool holds = false;
template <class Part, class... Parts>
inline constexpr bool holds<Part, posenc::policy<Parts...>> = (std::same_as<Part, Parts> || ...);

void rope_layers(const test_case& c, answers& a) {
  const std::int64_t layers = c.integer("num_hidden_layers");
  const std::int64_t interval = c.integer("no_rope_layer_interval");
  const auto schedule = posenc::rope_schedule::every(interval, layers);
  const posenc::irope<double> encoder({.layers = layers, .interval = interval, .rope = {.head_dim = 2}});
  std::vector<double> scheduled;
  std::vector<double> rotating;
  std::vector<double> in_chunks;
  for (std::int64_t l = 0; l < layers; ++l) {
    scheduled.push_back(schedule.uses_rope(l) ? 1 : 0);
    encoder.visit_layer(l, [&]<class Policy>(const Policy&) {
      rotating.push_back(holds<posenc::rope<double>, Policy> ? 1 : 0);
      in_chunks.push_back(holds<posenc::chunked, Policy> ? 1 : 0);
    });
  }
  a.add("uses_rope", scheduled, "rope_schedule");
  a.add("uses_rope", rotating, "irope");
  a.add("chunked_attention", in_chunks);
}

void temperature(const test_case& c, answers& a) {
  const posenc::query_temperature warm{.scale = c.number("scale"),
                                       .floor_scale = c.number("floor_scale"),
                                       .position_offset = c.integer("position_offset")};
  const auto at = c.input("positions").integers();
  const auto n = static_cast<std::int64_t>(at.size());
  std::vector<double> scale;
  for (const std::int64_t p : at) scale.push_back(warm.query_scale(0, p, 1));
  // Through attention: every query and its one key are 1, so the logit is the factor itself.
  const std::vector<double> ones(at.size(), 1.0);
  std::vector<double> out(at.size());
  std::vector<double> logits(at.size());
  const posenc::view q(ones.data(), {.tokens = n, .dim = 1});
  const posenc::view key(ones.data(), {.tokens = 1, .dim = 1});
  posenc::attention_reference(q, key, key, posenc::view(out.data(), {.tokens = n, .dim = 1}), posenc::compose(warm),
                              {.query_positions = posenc::positions::listed(at),
                               .logits = posenc::view(logits.data(), {.tokens = n, .dim = 1})});
  for (const char* output : {"scale", "scale_peer"}) {
    a.add(output, scale, "query_scale");
    a.add(output, logits, "logits");
  }
}

void log_length(const test_case& c, answers& a) {
  const posenc::log_length_scale longer{.length = c.integer("train_length")};
  std::vector<double> scale;
  for (const std::int64_t p : c.input("positions").integers()) scale.push_back(longer.query_scale(0, p, 1));
  a.add("row_scale", scale);
}

/// Row i sees its first n[i] keys: queries of the one value, keys of the other.
void scalable_softmax(const test_case& c, answers& a) {
  const posenc::ssmax scale(c.input("s").values);
  const auto visible = c.input("n").integers();
  const auto heads = c.input("s").extent(0);
  const auto queries = static_cast<std::int64_t>(visible.size());
  std::vector<double> factor;
  for (std::int64_t h = 0; h < heads; ++h)
    for (const std::int64_t n : visible) factor.push_back(scale.query_scale(h, 0, n));
  a.add("row_scale", factor, "query_scale");

  // Through attention: rows of ones against keys of ones, each seeing its n keys, give the factor as their logits.
  const std::int64_t most = *std::max_element(visible.begin(), visible.end());
  std::vector<std::uint8_t> sees(static_cast<std::size_t>(queries * most));
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t j = 0; j < visible[static_cast<std::size_t>(i)]; ++j)
      sees[static_cast<std::size_t>(i * most + j)] = 1;
  const std::vector<double> ones(static_cast<std::size_t>(std::max(queries, most) * heads), 1.0);
  std::vector<double> out(static_cast<std::size_t>(queries * heads));
  std::vector<double> logits(static_cast<std::size_t>(queries * heads * most));
  const posenc::view q(ones.data(), {.tokens = queries, .heads = heads, .dim = 1});
  const posenc::view key(ones.data(), {.tokens = most, .heads = heads, .dim = 1});
  posenc::attention_reference(
      q, key, key, posenc::view(out.data(), {.tokens = queries, .heads = heads, .dim = 1}),
      posenc::compose(scale, posenc::boolean_mask<std::uint8_t>(sees.data(), {.queries = queries, .keys = most})),
      {.logits = posenc::view(logits.data(), {.tokens = queries, .heads = heads, .dim = most})});
  std::vector<double> through;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < queries; ++i)
      through.push_back(logits[static_cast<std::size_t>((i * heads + h) * most)]);
  a.add("row_scale", through, "attention_reference");
  if (!c.has_input("logits")) return;
  std::vector<double> scaled = c.input("logits").values;
  const auto keys = c.input("logits").extent(2);
  for (std::size_t x = 0; x < scaled.size(); ++x) scaled[x] *= factor[x / static_cast<std::size_t>(keys)];
  a.add("logits", scaled, "query_scale");
  for (std::size_t x = 0; x < scaled.size(); ++x)
    scaled[x] = c.input("logits").values[x] * through[x / static_cast<std::size_t>(keys)];
  a.add("logits", scaled, "attention_reference");
}

const golden::registration ops{{"layers.rope_layers", rope_layers},
                               {"layers.logn", log_length},
                               {"layers.ssmax", scalable_softmax},
                               {"attention.temperature", temperature}};

}  // namespace
