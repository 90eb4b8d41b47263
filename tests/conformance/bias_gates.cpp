// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group bias: untied positions, and what the content of a layer gates.
#include "golden.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/encoders/forgetting.hpp>
#include <posenc/encoders/gated_bias.hpp>
#include <posenc/encoders/projected_bias.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/tupe.hpp>
#include <posenc/encoders/tupe_bucket.hpp>

namespace {

using golden::answers;
using golden::test_case;
using posenc::positions;
using posenc::view;

/// [heads, queries, keys] one value at a time, and by rows on lanes where the keys follow one another.
template <class Encoder>
void add_bias(const Encoder& e, const std::vector<std::int64_t>& q, const std::vector<std::int64_t>& k,
              const std::string& output, const std::string& how, answers& a) {
  const auto queries = static_cast<std::int64_t>(q.size());
  const auto keys = static_cast<std::int64_t>(k.size());
  std::vector<double> bias(static_cast<std::size_t>(e.heads() * queries * keys));
  posenc::fill_bias<double>(e, e.heads(), positions::listed(q), queries, positions::listed(k), keys, bias);
  a.add(output, bias, how + "fill_bias");
  for (std::size_t j = 1; j < k.size(); ++j)
    if (k[j] != k[j - 1] + 1) return;
  std::vector<double> rows(bias.size());
  for (std::int64_t h = 0; h < e.heads(); ++h)
    for (std::int64_t i = 0; i < queries; ++i)
      posenc::add_bias_row<double>(
          e, {.head = h, .kv_head = h, .query_index = i, .query_position = q[static_cast<std::size_t>(i)]}, k[0],
          std::span(rows).subspan(static_cast<std::size_t>((h * queries + i) * keys), static_cast<std::size_t>(keys)));
  a.add(output, rows, how + "add_bias_row");
}
std::vector<std::int64_t> counted(std::int64_t n) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(i);
  return out;
}
std::vector<double> transposed(const std::vector<double>& x, std::int64_t rows, std::int64_t columns) {
  std::vector<double> out;
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = 0; r < rows; ++r) out.push_back(x[static_cast<std::size_t>(r * columns + c)]);
  return out;
}

void tupe_bias(const test_case& c, answers& a) {
  const golden::tensor& table = c.input("position");
  const auto whole = std::span<const double>(table.values);
  const std::int64_t n = c.integer("length");
  for (const bool keep : {false, true})
    for (const bool cut : {false, true}) {
      const auto rows = cut ? whole.first(static_cast<std::size_t>((n + 1) * table.extent(1))) : whole;
      const posenc::tupe<double> e({.heads = c.integer("heads"),
                                    .width = table.extent(1),
                                    .layer_norm_eps = c.number("layer_norm_eps"),
                                    .keep_table = keep},
                                   {rows, c.input("gamma").values, c.input("beta").values, c.input("weight_q").values,
                                    c.input("bias_q").values, c.input("weight_k").values, c.input("bias_k").values});
      add_bias(e, counted(n), counted(n), "bias", keep ? "kept table, " : "rows, ", a);
    }
}

void tupe_bucket_index(const test_case& c, answers& a) {
  const std::int64_t buckets = c.integer("num_buckets");
  const std::int64_t n = c.integer("length");
  // A table whose entries are their own index, so that the bias is the index.
  std::vector<double> table;
  for (std::int64_t i = 0; i <= buckets; ++i) table.push_back(static_cast<double>(i));
  const posenc::tupe_bucket<double> e({.heads = 1, .num_buckets = buckets, .max_distance = c.integer("max_distance")},
                                      table);
  std::vector<std::int64_t> index;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) index.push_back(e.index(i, j));
  a.add("index", index, "index");
  add_bias(e, counted(n), counted(n), "index", "", a);
}

void gated_bias(const test_case& c, answers& a) {
  const golden::tensor& x = c.input("x");
  const std::int64_t heads = c.integer("heads");
  const std::int64_t n = x.extent(0);
  const posenc::shape gate_shape{.tokens = n, .heads = heads, .dim = 1};
  std::vector<double> gates(static_cast<std::size_t>(n * heads));
  posenc::wavlm_gates<double>(
      {c.input("gate_weight").values, c.input("gate_bias").values, c.input("gate_const").values},
      view{x.values.data(), {.tokens = n, .heads = heads, .dim = x.extent(1) / heads}}, view{gates.data(), gate_shape});
  a.add("gate", transposed(gates, n, heads));
  const posenc::relative_bucket<double> bias(
      {.heads = heads, .num_buckets = c.integer("num_buckets"), .max_distance = c.integer("max_distance")},
      c.input("table").values);
  add_bias(bias, counted(n), counted(n), "bias", "", a);
  add_bias(posenc::gated_bias(bias, view{gates.data(), gate_shape}), counted(n), counted(n), "gated", "", a);
}

void forgetting_bias(const test_case& c, answers& a) {
  const std::int64_t heads = c.integer("heads");
  const bool bidirectional = c.params().at("bidirectional").get<bool>();
  const std::int64_t gates = bidirectional ? 2 * heads : heads;
  std::vector<double> values;
  std::int64_t n = 0;
  if (c.has_input("gate_logits")) {
    n = c.input("gate_logits").extent(1);
    values = transposed(c.input("gate_logits").values, gates, n);
  } else {
    const golden::tensor& x = c.input("x");
    n = x.extent(0);
    values.resize(static_cast<std::size_t>(n * gates));
    posenc::forget_gates<double>(view{x.values.data(), {.tokens = n, .dim = x.extent(1)}}, c.input("weight").values,
                                 c.input("bias").values, view{values.data(), {.tokens = n, .heads = gates, .dim = 1}});
  }
  // All at once, and token by token as a cache grows.
  for (const std::int64_t step : {n, std::int64_t{1}}) {
    posenc::forget_sums<double> sums({.heads = heads, .bidirectional = bidirectional});
    for (std::int64_t t = 0; t < n; t += step)
      sums.append(view{values.data() + t * gates, {.tokens = step, .heads = gates, .dim = 1}});
    add_bias(posenc::forgetting<double>(sums), counted(n), counted(n), "bias", step == 1 ? "token by token, " : "", a);
  }
}

void projected_bias(const test_case& c, answers& a) {
  const golden::tensor& x = c.input("x");
  const golden::tensor& bank = c.input("bank");
  const posenc::shape shape{.tokens = x.extent(0), .heads = c.integer("heads"), .dim = bank.extent(0)};
  std::vector<double> weights(static_cast<std::size_t>(shape.elements()));
  posenc::project_weights<double>(view{x.values.data(), {.tokens = x.extent(0), .dim = x.extent(1)}},
                                  c.input("weight").values, c.input("bias").values, view{weights.data(), shape});
  const posenc::projected_bank<double> held(bank.extent(0), bank.extent(1), bank.values);
  add_bias(posenc::projected_bias(held, view{weights.data(), shape}), c.input("pos_q").integers(),
           c.input("pos_k").integers(), "bias", "", a);
}

const golden::registration ops{{"tupe.bias", tupe_bias},
                               {"tupe.bucket_index", tupe_bucket_index},
                               {"t5.gated_bias", gated_bias},
                               {"forgetting.bias", forgetting_bias},
                               {"relative.projected_bias", projected_bias}};

}  // namespace
