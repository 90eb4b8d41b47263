// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group bias: formulas of the distance, each by listed ids in double and by rows on lanes.
#include "golden.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/encoders/dynamic_bias.hpp>
#include <posenc/encoders/fire.hpp>
#include <posenc/encoders/kerple.hpp>
#include <posenc/encoders/sandwich.hpp>

namespace {

using golden::answers;
using golden::test_case;

/// What a policy makes of logits [heads, queries, keys] (0 unless given): by listed ids one value at a time, and by
/// rows on lanes, all keys of the cases being consecutive.
template <class Policy>
void add_logits(const std::string& output, const Policy& policy, const test_case& c, std::int64_t heads,
                const std::vector<double>& scores, answers& a) {
  const auto q = c.input("pos_q").integers();
  const auto k = c.input("pos_k").integers();
  const auto queries = static_cast<std::int64_t>(q.size());
  const auto keys = static_cast<std::int64_t>(k.size());
  if (scores.empty()) {
    std::vector<double> bias(static_cast<std::size_t>(heads * queries * keys));
    posenc::fill_bias<double>(policy, heads, posenc::positions::listed(q), queries, posenc::positions::listed(k), keys,
                              bias);
    a.add(output, bias, "fill_bias");
    posenc::fill_bias<double>(policy, heads, posenc::positions::from(q[0]), queries, posenc::positions::from(k[0]),
                              keys, bias);
    a.add(output, bias, "fill_bias, contiguous");
  }
  std::vector<double> rows = scores;
  rows.resize(static_cast<std::size_t>(heads * queries * keys));
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < queries; ++i)
      posenc::add_bias_row<double>(
          policy, {.head = h, .kv_head = h, .query_index = i, .query_position = q[static_cast<std::size_t>(i)]}, k[0],
          std::span(rows).subspan(static_cast<std::size_t>((h * queries + i) * keys), static_cast<std::size_t>(keys)));
  a.add(output, rows, "add_bias_row");
}

void kerple_bias(const test_case& c, answers& a) {
  const auto kernel = c.choice<posenc::kerple_kernel>(
      "kind", {{"log", posenc::kerple_kernel::log}, {"power", posenc::kerple_kernel::power}});
  posenc::kerple_options<double> o{.kernel = kernel};
  o.distance = c.choice<posenc::kerple_distance>(
      "distance", {{"past", posenc::kerple_distance::past}, {"absolute", posenc::kerple_distance::absolute}});
  o.parameter_min = c.number("parameter_min");
  const bool log = kernel == posenc::kerple_kernel::log;
  const bool biased = c.has_input(log ? "r1" : "a");
  const bool weighted = c.has_input("weight_a");
  const auto bias = [&] {
    auto own = o;
    own.scale = c.input(log ? "r1" : "a").values;
    own.shape = c.input(log ? "r2" : "p").values;
    return posenc::kerple<double>(own);
  };
  const auto weight = [&] {
    auto own = o;
    own.kernel = posenc::kerple_kernel::power;
    own.scale = c.input("weight_a").values;
    own.shape = c.input("weight_p").values;
    return posenc::kerple_weight<double>(own);
  };
  const auto scores = c.has_input("scores") ? c.input("scores").values : std::vector<double>{};
  const std::string output = scores.empty() ? "bias" : "scores";
  if (biased && weighted) {
    const auto both = posenc::compose(weight(), bias());
    add_logits(output, both, c, std::get<0>(both.parts).heads(), scores, a);
  } else if (biased) {
    add_logits(output, bias(), c, bias().heads(), scores, a);
    if (scores.empty()) add_logits(output, bias().tabulated(8), c, bias().heads(), scores, a);
  } else {
    add_logits(output, weight(), c, weight().heads(), scores, a);
  }
}

void sandwich_bias(const test_case& c, answers& a) {
  const posenc::sandwich<double> encoder({.heads = c.integer("heads"),
                                          .dim = c.integer("dim"),
                                          .base = c.number("base"),
                                          .first_index = c.integer("first_index"),
                                          .subtract = c.number("subtract")});
  add_logits("bias", encoder, c, encoder.heads(), {}, a);
  add_logits("bias", encoder.tabulated(8), c, encoder.heads(), {}, a);
}

void dynamic_bias(const test_case& c, answers& a) {
  const posenc::dynamic_bias<double> encoder({.layers = {{c.input("weight1").values, c.input("bias1").values},
                                                         {c.input("weight2").values, c.input("bias2").values}},
                                              .log_distance = c.params().at("log_distance").get<bool>()});
  add_logits("bias", encoder, c, encoder.heads(), {}, a);
  add_logits("bias", encoder.tabulated(8), c, encoder.heads(), {}, a);
}

void fire_bias(const test_case& c, answers& a) {
  const posenc::fire<double> encoder({.c = c.number("c"),
                                      .threshold = c.number("L"),
                                      .threshold_multiplier = c.number("L_multiplier"),
                                      .eps = c.number("eps"),
                                      .weight1 = c.input("weight1").values,
                                      .bias1 = c.input("bias1").values,
                                      .weight2 = c.input("weight2").values,
                                      .bias2 = c.input("bias2").values});
  add_logits("bias", encoder, c, encoder.heads(), {}, a);
}

const golden::registration ops{{"kerple.bias", kerple_bias},
                               {"sandwich.bias", sandwich_bias},
                               {"dynamic.bias", dynamic_bias},
                               {"fire.bias", fire_bias}};

}  // namespace
