// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group layers: which layers rotate, and the query temperature.
#include "golden.hpp"

#include <posenc/attention/irope.hpp>
#include <posenc/attention/reference.hpp>

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

const golden::registration ops{{"layers.rope_layers", rope_layers}, {"attention.temperature", temperature}};

}  // namespace
