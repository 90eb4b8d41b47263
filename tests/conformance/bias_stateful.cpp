// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Group bias: what needs a whole row of logits.
#include "golden.hpp"

#include <posenc/attention/masks.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/attention/two_pass.hpp>
#include <posenc/encoders/cope.hpp>

#include <cmath>
#include <limits>

namespace {

using golden::answers;
using golden::test_case;
using posenc::view;

/// [heads, n, d] as [1, n, heads, d].
std::vector<double> heads_inside(const golden::tensor& x) {
  std::vector<double> out;
  for (std::int64_t t = 0; t < x.extent(1); ++t)
    for (std::int64_t h = 0; h < x.extent(0); ++h)
      for (std::int64_t d = 0; d < x.extent(2); ++d)
        out.push_back(x.values[static_cast<std::size_t>((h * x.extent(1) + t) * x.extent(2) + d)]);
  return out;
}

/// [query, head, key] as [head, query, key].
std::vector<double> heads_first(const std::vector<double>& x, std::int64_t queries, std::int64_t heads,
                                std::int64_t keys) {
  std::vector<double> out;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j) out.push_back(x[static_cast<std::size_t>((i * heads + h) * keys + j)]);
  return out;
}

/// Logits of the reference, and of the two-pass path read out of its results: with unit vectors as values the output is
/// the weights, and with the log-sum-exp they give the logits back.
template <class Policy>
std::vector<double> logits_of(const test_case& c, const Policy& policy, bool two_pass) {
  const golden::tensor& shape = c.input("q");
  const std::int64_t heads = shape.extent(0);
  const std::int64_t n = shape.extent(1);
  const std::int64_t dim = shape.extent(2);
  const std::vector<double> q = heads_inside(shape);
  const std::vector<double> k = heads_inside(c.input("k"));
  std::vector<double> unit(static_cast<std::size_t>(n * heads * n), 0.0);
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t h = 0; h < heads; ++h) unit[static_cast<std::size_t>((j * heads + h) * n + j)] = 1;
  std::vector<double> out(unit.size());
  std::vector<double> logits(unit.size());
  std::vector<double> lse(static_cast<std::size_t>(n * heads));
  const view queries(q.data(), {.tokens = n, .heads = heads, .dim = dim});
  const view keys(k.data(), {.tokens = n, .heads = heads, .dim = dim});
  const view<const double> values(unit.data(), {.tokens = n, .heads = heads, .dim = n});
  const view result(out.data(), {.tokens = n, .heads = heads, .dim = n});
  const view sums(lse.data(), {.tokens = n, .heads = heads, .dim = 1});
  if (two_pass) {
    posenc::attention_two_pass(queries, keys, values, result, policy, {.lse = sums});
    for (std::int64_t x = 0; x < n * heads; ++x)
      for (std::int64_t j = 0; j < n; ++j) {
        const auto at = static_cast<std::size_t>(x * n + j);
        logits[at] = out[at] == 0 ? -std::numeric_limits<double>::infinity()
                                  : std::log(out[at]) + lse[static_cast<std::size_t>(x)];
      }
  } else {
    posenc::attention_reference(queries, keys, values, result, policy,
                                {.logits = view(logits.data(), {.tokens = n, .heads = heads, .dim = n})});
  }
  return heads_first(logits, n, heads, n);
}

void cope_bias(const test_case& c, answers& a) {
  const auto dim = c.input("q").extent(2);
  const double scale = c.number("bias_scale");
  const auto answer = [&](const posenc::cope_options& o, const std::string& how) {
    const posenc::cope<double> encoder(o, c.input("pos_emb").values);
    for (const bool two_pass : {false, true}) {
      const std::string way = how + (two_pass ? "two passes" : "reference");
      const std::vector<double> logits = logits_of(c, posenc::compose(encoder, posenc::causal{}), two_pass);
      a.add("logits", logits, way);
      // The bias itself: what the encoder adds to plain logits.
      std::vector<double> bias = logits_of(c, posenc::compose(posenc::causal{}), two_pass);
      for (std::size_t x = 0; x < bias.size(); ++x)
        bias[x] = std::isinf(logits[x]) ? 0.0 : (logits[x] - bias[x]) / o.bias_scale;
      a.add("bias", bias, way);
    }
  };
  answer({.head_dim = dim, .bias_scale = scale}, "");
  // RAM's order: added before the division by sqrt(d).
  if (scale == 1 / std::sqrt(static_cast<double>(dim)) && !c.expects("bias"))
    answer({.head_dim = dim, .order = posenc::cope_order::before_scale}, "before_scale, ");
}

const golden::registration ops{{"cope.bias", cope_bias}};

}  // namespace
