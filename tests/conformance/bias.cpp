// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group bias: what is added to the logits.
#include "golden.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/position_ids.hpp>
#include <posenc/encoders/relative_bucket.hpp>

namespace {

using golden::answers;
using golden::test_case;

bool consecutive(const std::vector<std::int64_t>& ids) {
  for (std::size_t i = 1; i < ids.size(); ++i)
    if (ids[i] != ids[i - 1] + 1) return false;
  return !ids.empty();
}

/// bias [heads, queries, keys] of an encoder by listed ids, one value at a time, and by rows on SIMD lanes where the
/// keys are consecutive.
template <class Encoder>
void add_bias(const Encoder& encoder, std::int64_t heads, const std::vector<std::int64_t>& q,
              const std::vector<std::int64_t>& k, answers& a) {
  const auto queries = static_cast<std::int64_t>(q.size());
  const auto keys = static_cast<std::int64_t>(k.size());
  std::vector<double> bias(static_cast<std::size_t>(heads * queries * keys));
  posenc::fill_bias<double>(encoder, heads, posenc::positions::listed(q), queries, posenc::positions::listed(k), keys,
                            bias);
  a.add("bias", bias, "fill_bias");
  if (!consecutive(k)) return;
  std::vector<double> rows(bias.size(), 0.0);
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < queries; ++i)
      posenc::add_bias_row<double>(
          encoder, {.head = h, .kv_head = h, .query_index = i, .query_position = q[static_cast<std::size_t>(i)]}, k[0],
          std::span(rows).subspan(static_cast<std::size_t>((h * queries + i) * keys), static_cast<std::size_t>(keys)));
  a.add("bias", rows, "add_bias_row");
}

posenc::relative_bucket_options bucket_options(const test_case& c, std::int64_t heads) {
  return {.heads = heads,
          .num_buckets = c.integer("num_buckets"),
          .max_distance = c.integer("max_distance"),
          .bidirectional = c.params().at("bidirectional").get<bool>(),
          .table_scale = c.number("table_scale", 1)};
}

void alibi_slopes(const test_case& c, answers& a) {
  posenc::alibi_options o{.bias_max = c.number("alibi_bias_max")};
  o.rule = c.choice<posenc::slope_rule>(
      "rule", {{"paper", posenc::slope_rule::paper}, {"geometric", posenc::slope_rule::geometric}});
  o.rounding = c.choice<posenc::slope_rounding>(
      "round_to", {{"none", posenc::slope_rounding::none}, {"bfloat16", posenc::slope_rounding::bfloat16}});
  std::vector<double> all;
  for (const std::int64_t heads : c.input("heads").integers()) {
    o.heads = heads;
    const posenc::alibi<double> encoder(o);
    all.insert(all.end(), encoder.slopes().begin(), encoder.slopes().end());
  }
  a.add("slopes", all);
}

posenc::alibi<double> alibi_of(const test_case& c, posenc::alibi_form form) {
  if (c.has_input("slopes")) return posenc::alibi<double>(c.input("slopes").values, form);
  const std::int64_t biased = c.integer("heads");
  return posenc::alibi<double>(posenc::alibi_options{.heads = c.integer("total_heads", biased),
                                                     .bias_max = c.number("alibi_bias_max"),
                                                     .form = form,
                                                     .biased_heads = biased});
}

/// bias [batch, heads, keys]: the key's position counted from the reference position.
void key_only_bias(const test_case& c, answers& a) {
  const posenc::alibi<double> encoder = alibi_of(c, posenc::alibi_form::key_only);
  const golden::tensor& source = c.input(c.has_input("key_mask") ? "key_mask" : "pos_k");
  const std::int64_t batch = source.extent(0);
  const std::int64_t keys = source.extent(1);
  std::vector<std::int64_t> ids = source.integers();
  if (c.has_input("key_mask")) ids = posenc::masked_ids<std::int64_t>(std::vector(ids), batch);
  for (std::int64_t& id : ids) id -= c.integer("reference_position", 0);
  std::vector<double> bias;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::span<const std::int64_t> row =
        std::span(ids).subspan(static_cast<std::size_t>(b * keys), static_cast<std::size_t>(keys));
    std::vector<double> part(static_cast<std::size_t>(encoder.heads() * keys));
    posenc::fill_bias<double>(encoder, encoder.heads(), posenc::positions::from(keys - 1), 1,
                              posenc::positions::listed(row), keys, part);
    bias.insert(bias.end(), part.begin(), part.end());
  }
  a.add("bias", bias);
}

void alibi_bias(const test_case& c, answers& a) {
  const std::string form = c.text("form");
  if (form == "key_only") return key_only_bias(c, a);
  if (form != "distance") throw golden::unsupported("form " + form);
  const posenc::alibi<double> encoder = alibi_of(c, posenc::alibi_form::symmetric);
  add_bias(encoder, encoder.heads(), c.input("pos_q").integers(), c.input("pos_k").integers(), a);
}

void t5_buckets(const test_case& c, answers& a) {
  const auto o = bucket_options(c, 1);
  const posenc::relative_bucket<double> encoder(o, std::vector<double>(static_cast<std::size_t>(o.num_buckets)));
  std::vector<std::int64_t> buckets;
  for (const std::int64_t r : c.input("relative_position").integers()) buckets.push_back(encoder.bucket(r));
  a.add("buckets", buckets);
}

void t5_bias(const test_case& c, answers& a) {
  const golden::tensor& table = c.input("table");
  const posenc::relative_bucket<double> encoder(bucket_options(c, table.extent(1)), table.values);
  add_bias(encoder, encoder.heads(), c.input("pos_q").integers(), c.input("pos_k").integers(), a);
}

void toeplitz_bias(const test_case& c, answers& a) {
  const golden::tensor& table = c.input("table");
  const posenc::toeplitz<double> encoder(table.extent(0), c.integer("max_distance"), table.values);
  add_bias(encoder, encoder.heads(), c.input("pos_q").integers(), c.input("pos_k").integers(), a);
}

const golden::registration ops{{"alibi.slopes", alibi_slopes},
                               {"alibi.bias", alibi_bias},
                               {"t5.buckets", t5_buckets},
                               {"t5.bias", t5_bias},
                               {"toeplitz.bias", toeplitz_bias}};

}  // namespace
