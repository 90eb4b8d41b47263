// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group bias: ALiBi with two directions, and on a grid.
#include "golden.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/alibi_asymmetric.hpp>
#include <posenc/encoders/alibi_grid.hpp>

namespace {

using golden::answers;
using golden::test_case;

/// The logits [heads, queries, keys] of attention over zero queries and keys: the bias, and -inf where it masks.
template <class Policy>
std::vector<double> attended_logits(const Policy& policy, std::int64_t heads, const posenc::positions& query_at,
                                    std::int64_t queries, const posenc::positions& key_at, std::int64_t keys) {
  const std::vector<double> zero(static_cast<std::size_t>(heads * std::max(queries, keys)));
  std::vector<double> out(zero.size());
  std::vector<double> logits(static_cast<std::size_t>(heads * queries * keys));
  const posenc::shape of_queries{.tokens = queries, .heads = heads, .dim = 1};
  const posenc::shape of_keys{.tokens = keys, .heads = heads, .dim = 1};
  const posenc::view<const double> k(zero.data(), of_keys);
  // [head, query, key] in memory.
  const posenc::shape s{.tokens = queries, .heads = heads, .dim = keys};
  posenc::attention_reference(posenc::view<const double>(zero.data(), of_queries), k, k,
                              posenc::view<double>(out.data(), of_queries), policy,
                              {.query_positions = query_at,
                               .key_positions = key_at,
                               .logits = posenc::view<double>(logits.data(), s, posenc::head_major(s))});
  return logits;
}

void alibi_asymmetric(const test_case& c, answers& a) {
  const auto q = c.input("pos_q").integers();
  const auto k = c.input("pos_k").integers();
  const auto queries = static_cast<std::int64_t>(q.size());
  const auto keys = static_cast<std::int64_t>(k.size());
  const posenc::alibi_options o{.heads = c.integer("heads"), .bias_max = c.number("alibi_bias_max")};
  const auto add = [&](const auto& encoder) {
    a.add("bias",
          attended_logits(encoder, o.heads, posenc::positions::listed(q), queries, posenc::positions::listed(k), keys),
          "attention_reference, listed");
    a.add(
        "bias",
        attended_logits(encoder, o.heads, posenc::positions::from(q[0]), queries, posenc::positions::from(k[0]), keys),
        "attention_reference, contiguous");
  };
  const std::string form = c.text("form");
  if (form == "split_directions") {
    add(posenc::alibi_split<double>(o));
  } else if (form == "two_sided") {
    const posenc::alibi_two_sided<double> encoder(posenc::alibi<double>(o), c.input("past_scale").values,
                                                  c.input("future_scale").values);
    add(encoder);
    std::vector<double> bias(static_cast<std::size_t>(o.heads * queries * keys));
    posenc::fill_bias<double>(encoder, o.heads, posenc::positions::listed(q), queries, posenc::positions::listed(k),
                              keys, bias);
    a.add("bias", bias, "fill_bias");
  } else {
    throw golden::unsupported("form " + form);
  }
}

/// [tokens, axes] to [axes, tokens].
std::vector<std::int64_t> by_axis(const golden::tensor& t) {
  const auto ids = t.integers();
  const std::int64_t tokens = t.extent(0);
  const std::int64_t axes = t.extent(1);
  std::vector<std::int64_t> out(ids.size());
  for (std::int64_t i = 0; i < tokens; ++i)
    for (std::int64_t x = 0; x < axes; ++x)
      out[static_cast<std::size_t>(x * tokens + i)] = ids[static_cast<std::size_t>(i * axes + x)];
  return out;
}

void alibi_grid(const test_case& c, answers& a) {
  const auto q = by_axis(c.input("pos_q"));
  const auto k = by_axis(c.input("pos_k"));
  const int axes = static_cast<int>(c.input("pos_q").extent(1));
  const std::int64_t queries = c.input("pos_q").extent(0);
  const std::int64_t keys = c.input("pos_k").extent(0);
  const auto metric = c.choice<posenc::grid_metric>(
      "metric", {{"manhattan", posenc::grid_metric::manhattan}, {"euclidean", posenc::grid_metric::euclidean}});
  const posenc::alibi_grid<double> encoder(
      posenc::alibi<double>(posenc::alibi_options{.heads = c.integer("heads"), .bias_max = c.number("alibi_bias_max")}),
      metric);
  const auto query_at = posenc::positions::axes(q, axes);
  const auto key_at = posenc::positions::axes(k, axes);
  std::vector<double> bias(static_cast<std::size_t>(encoder.heads() * queries * keys));
  posenc::fill_bias<double>(encoder, encoder.heads(), query_at, queries, key_at, keys, bias);
  a.add("bias", bias, "fill_bias");
  a.add("bias", attended_logits(encoder, encoder.heads(), query_at, queries, key_at, keys), "attention_reference");
}

const golden::registration ops{{"alibi.asymmetric", alibi_asymmetric}, {"alibi.grid", alibi_grid}};

}  // namespace
