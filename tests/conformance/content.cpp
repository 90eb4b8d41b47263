// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group content: terms that need queries or keys. Each runs through the reference and, where it gives what the case
// asks for, through the fused kernel.
#include "golden.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/deberta.hpp>
#include <posenc/encoders/relative_segments.hpp>
#include <posenc/encoders/shaw.hpp>
#include <posenc/encoders/transformer_xl.hpp>

#include <limits>

namespace {

using golden::answers;
using golden::test_case;

/// Inputs [heads, tokens, dim] are head-major; the shape of the view is [1, tokens, heads, dim].
posenc::shape shape_of(const golden::tensor& x) {
  return {.tokens = x.extent(1), .heads = x.extent(0), .dim = x.extent(2)};
}
posenc::view<const double> view_of(const golden::tensor& x) {
  const posenc::shape s = shape_of(x);
  return {x.values.data(), s, posenc::head_major(s)};
}

struct ids {
  std::vector<std::int64_t> query;
  std::vector<std::int64_t> key;
};
ids positions_of(const test_case& c) {
  const auto counted = [](std::int64_t n) {
    std::vector<std::int64_t> out;
    for (std::int64_t i = 0; i < n; ++i) out.push_back(i);
    return out;
  };
  if (c.has_input("pos_q")) return {c.input("pos_q").integers(), c.input("pos_k").integers()};
  return {counted(c.input("q").extent(1)), counted(c.input("k").extent(1))};
}

struct results {
  std::vector<double> logits;   // [head, query, key]
  std::vector<double> weights;  // the same
  std::vector<double> out;      // [head, query, dim]
  std::vector<double> fused;
};

/// `values` may be absent: the weights are what is asked for.
template <class Policy>
results run(const test_case& c, const Policy& policy, double scale, bool listed) {
  const golden::tensor& q = c.input("q");
  const golden::tensor& k = c.input("k");
  const posenc::shape scores{.tokens = q.extent(1), .heads = q.extent(0), .dim = k.extent(1)};
  // [heads, dim] is Transformer-XL's v, not values.
  const golden::tensor& v = c.has_input("v") && c.input("v").shape.size() == 3 ? c.input("v") : k;
  const posenc::shape sums{.tokens = q.extent(1), .heads = q.extent(0), .dim = v.extent(2)};
  results r;
  r.logits.resize(static_cast<std::size_t>(scores.elements()));
  r.weights.resize(r.logits.size());
  r.out.resize(static_cast<std::size_t>(sums.elements()));
  r.fused.resize(r.out.size());
  const ids at = positions_of(c);
  const auto place = [&](const std::vector<std::int64_t>& x) {
    return listed ? posenc::positions::listed(x) : posenc::positions::from(x[0]);
  };
  posenc::attention_reference(view_of(q), view_of(k), view_of(v),
                              posenc::view(r.out.data(), sums, posenc::head_major(sums)), policy,
                              {.query_positions = place(at.query),
                               .key_positions = place(at.key),
                               .scale = scale,
                               .logits = posenc::view(r.logits.data(), scores, posenc::head_major(scores)),
                               .weights = posenc::view(r.weights.data(), scores, posenc::head_major(scores))});
  posenc::attention(view_of(q), view_of(k), view_of(v), posenc::view(r.fused.data(), sums, posenc::head_major(sums)),
                    policy, {.query_positions = place(at.query), .key_positions = place(at.key), .scale = scale});
  return r;
}

bool consecutive(const std::vector<std::int64_t>& x) {
  for (std::size_t i = 1; i < x.size(); ++i)
    if (x[i] != x[i - 1] + 1) return false;
  return true;
}

/// linear(heads joined; weight, bias) of out [heads, queries, dim].
std::vector<double> joined(const test_case& c, const std::vector<double>& out) {
  const golden::tensor& q = c.input("q");
  const std::int64_t heads = q.extent(0), queries = q.extent(1), dim = c.input("v").extent(2);
  const golden::tensor& weight = c.input("out_weight");
  std::vector<double> y;
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t o = 0; o < weight.extent(0); ++o) {
      double sum = c.input("out_bias").values[static_cast<std::size_t>(o)];
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t d = 0; d < dim; ++d)
          sum += weight.values[static_cast<std::size_t>(o * weight.extent(1) + h * dim + d)] *
                 out[static_cast<std::size_t>((h * queries + i) * dim + d)];
      y.push_back(sum);
    }
  return y;
}

/// Every output that the case expects, by listed ids and, where they are consecutive, by contiguous ones.
template <class Policy>
void answer(const test_case& c, answers& a, const Policy& policy, double scale) {
  const ids at = positions_of(c);
  for (const bool listed : {true, false}) {
    if (!listed && !(consecutive(at.query) && consecutive(at.key))) continue;
    const std::string how = listed ? "listed" : "contiguous";
    const results r = run(c, policy, scale, listed);
    if (c.expects("logits")) a.add("logits", r.logits, how);
    if (c.expects("probs")) a.add("probs", r.weights, how);
    if (c.expects("out")) a.add("out", r.out, how + ", reference");
    if (c.expects("out")) a.add("out", r.fused, how + ", fused");
    if (c.expects("projected")) a.add("projected", joined(c, r.out), how + ", reference");
    if (c.expects("projected")) a.add("projected", joined(c, r.fused), how + ", fused");
  }
}

void shaw_attention(const test_case& c, answers& a) {
  const golden::tensor& q = c.input("q");
  posenc::shaw_options o{.head_dim = q.extent(2), .left = c.integer("left"), .right = c.integer("right")};
  o.out_of_range = c.choice<posenc::relative_beyond>(
      "out_of_range", {{"clip", posenc::relative_beyond::clip}, {"zero", posenc::relative_beyond::zero}});
  const std::vector<double> none;
  const posenc::shaw<double> encoder(o, c.input("rel_k").values, c.has_input("rel_v") ? c.input("rel_v").values : none);
  answer(c, a,
         posenc::compose(encoder, posenc::run_time_policy<>{.masks = {.causal = c.params().at("causal").get<bool>()}}),
         1 / std::sqrt(static_cast<double>(q.extent(2))));
}

/// The term alone: keys of zeros, a scale of 1.
void music_transformer(const test_case& c, answers& a) {
  const golden::tensor& q = c.input("q");
  const golden::tensor& rel = c.input("rel");
  const posenc::shaw<double> encoder(
      {.head_dim = q.extent(2), .left = rel.extent(0) - 1, .right = 0, .out_of_range = posenc::relative_beyond::zero},
      rel.values);
  const std::vector<double> zeros(q.values.size());
  const posenc::shape s = shape_of(q);
  const posenc::shape scores{.tokens = s.tokens, .heads = s.heads, .dim = s.tokens};
  std::vector<double> out(zeros.size());
  std::vector<double> logits(static_cast<std::size_t>(scores.elements()));
  const posenc::view<const double> nothing(zeros.data(), s, posenc::head_major(s));
  posenc::attention_reference(
      view_of(q), nothing, nothing, posenc::view(out.data(), s, posenc::head_major(s)), encoder,
      {.scale = 1.0, .logits = posenc::view(logits.data(), scores, posenc::head_major(scores))});
  a.add("logits", logits);
}

void transformer_xl_logits(const test_case& c, answers& a) {
  const golden::tensor& q = c.input("q");
  const ids at = positions_of(c);
  const auto past = at.query.back() - at.key.front();
  const auto future = at.key.back() - at.query.front();
  posenc::transformer_xl_options o{.heads = q.extent(0),
                                   .head_dim = q.extent(2),
                                   .past = std::max<std::int64_t>(past, 0),
                                   .future = std::max<std::int64_t>(future, 0),
                                   .base = c.number("base")};
  o.layout = c.choice<posenc::sinusoidal_layout>(
      "layout", {{"concat_sin_cos", posenc::sinusoidal_layout::concat_sin_cos},
                 {"interleaved_sin_cos", posenc::sinusoidal_layout::interleaved_sin_cos}});
  const posenc::transformer_xl<double> encoder(o, c.input("u").values, c.input("v").values, c.input("weight_r").values);
  if (!c.has_input("segment")) return answer(c, a, encoder, c.number("scale"));
  // The matrix of the case follows from segments of tokens: those of its first row, where the query's own segment is 0.
  const golden::tensor& differ = c.input("different_segment");
  std::vector<std::int64_t> keys, queries(static_cast<std::size_t>(differ.extent(0)), 0);
  for (std::int64_t j = 0; j < differ.extent(1); ++j)
    keys.push_back(static_cast<std::int64_t>(differ.values[static_cast<std::size_t>(j)]));
  for (std::int64_t i = 0; i < differ.extent(0); ++i)
    for (std::int64_t j = 0; j < differ.extent(1); ++j)
      if ((keys[static_cast<std::size_t>(j)] != 0) !=
          (differ.values[static_cast<std::size_t>(i * differ.extent(1) + j)] != 0))
        throw golden::unsupported("segments that no list of tokens gives");
  const posenc::relative_segments<double> segments({.heads = q.extent(0), .head_dim = q.extent(2)},
                                                   c.input("segment").values, c.input("segment_bias").values,
                                                   c.input("u").values, queries, keys);
  answer(c, a, posenc::compose(encoder, segments), c.number("scale"));
}

void transformer_xl_shift(const test_case& c, answers& a) {
  const golden::tensor& x = c.input("x");
  const std::int64_t queries = x.extent(0), columns = x.extent(1), keys = c.integer("keys");
  std::vector<double> shifted;
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t j = 0; j < keys; ++j) {
      const std::int64_t column =
          posenc::relative_column(c.integer("memory_length") + i, j, c.integer("first_distance"));
      shifted.push_back(column < 0 || column >= columns ? 0.0
                                                        : x.values[static_cast<std::size_t>(i * columns + column)]);
    }
  a.add("shifted", shifted);
}

const std::map<std::string, posenc::deberta_far_rule> far_rules{{"microsoft", posenc::deberta_far_rule::microsoft},
                                                                {"hf", posenc::deberta_far_rule::hf}};

void deberta_buckets(const test_case& c, answers& a) {
  const posenc::math::log_buckets buckets(c.integer("position_buckets"), c.integer("max_relative_positions"),
                                          c.choice<posenc::deberta_far_rule>("far_rule", far_rules));
  std::vector<std::int64_t> out;
  for (const std::int64_t r : c.input("relative_position").integers()) out.push_back(buckets(r));
  a.add("buckets", out);
}

void deberta_attention(const test_case& c, answers& a) {
  const golden::tensor& q = c.input("q");
  posenc::deberta_options o{.heads = q.extent(0),
                            .head_dim = q.extent(2),
                            .position_buckets = c.integer("position_buckets"),
                            .max_relative_positions = c.integer("max_relative_positions")};
  o.far_rule = c.choice<posenc::deberta_far_rule>("far_rule", far_rules);
  o.p2c_index = c.choice<posenc::deberta_p2c_index>(
      "p2c_index", {{"code", posenc::deberta_p2c_index::code}, {"paper", posenc::deberta_p2c_index::paper}});
  const posenc::deberta<double> encoder(o, c.input("pos_key").values, c.input("pos_query").values);
  answer(c, a, encoder, encoder.scale());
}

const golden::registration ops{{"shaw.attention", shaw_attention},
                               {"music_transformer.skew", music_transformer},
                               {"transformer_xl.logits", transformer_xl_logits},
                               {"transformer_xl.rel_shift", transformer_xl_shift},
                               {"deberta.buckets", deberta_buckets},
                               {"deberta.attention", deberta_attention}};

}  // namespace
