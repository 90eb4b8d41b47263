// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Laws of encodings with content terms, each stated once and fed many cases.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/deberta.hpp>
#include <posenc/encoders/shaw.hpp>
#include <posenc/encoders/transformer_xl.hpp>

#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <cmath>

namespace {

using laws::random_case;

struct inputs {
  std::int64_t heads, kv_heads, queries, keys, dim;
  std::vector<float> q, k, v;
};
inputs draw(random_case& c) {
  inputs x{};
  x.kv_heads = c.whole(1, 2);
  x.heads = x.kv_heads * c.whole(1, 2);
  x.queries = c.whole(1, 40);
  x.keys = x.queries + c.whole(0, 150);
  x.dim = c.whole(1, 20);
  x.q = c.vector<float>(x.queries * x.heads * x.dim);
  x.k = c.vector<float>(x.keys * x.kv_heads * x.dim);
  x.v = c.vector<float>(x.keys * x.kv_heads * x.dim);
  return x;
}

/// Output and log-sum-exp of every row, one after the other; the last query stands at the last key.
template <class Policy>
std::vector<float> run(inputs& x, const Policy& policy, std::int64_t first) {
  const posenc::shape qs{.tokens = x.queries, .heads = x.heads, .dim = x.dim};
  const posenc::shape ks{.tokens = x.keys, .heads = x.kv_heads, .dim = x.dim};
  std::vector<float> out(x.q.size() + static_cast<std::size_t>(x.queries * x.heads));
  posenc::attention(posenc::view(x.q.data(), qs), posenc::view(x.k.data(), ks), posenc::view(x.v.data(), ks),
                    posenc::view(out.data(), qs), policy,
                    {.query_positions = posenc::positions::from(first + x.keys - x.queries),
                     .key_positions = posenc::positions::from(first),
                     .lse = posenc::view(out.data() + x.q.size(), {.tokens = x.queries, .heads = x.heads, .dim = 1})});
  return out;
}

template <class F>
void with_every_encoder(random_case& c, inputs& x, const F& f) {
  const std::int64_t left = c.whole(0, 40), right = c.whole(0, 40);
  const auto table = c.vector<float>((left + right + 1) * x.dim);
  f("shaw",
    posenc::shaw<float>({.head_dim = x.dim,
                         .left = left,
                         .right = right,
                         .out_of_range = c.coin() ? posenc::relative_beyond::clip : posenc::relative_beyond::zero},
                        table, table));
  const auto u = c.vector<float>(x.heads * x.dim), v = c.vector<float>(x.heads * x.dim);
  f("transformer_xl",
    posenc::transformer_xl<float>({.heads = x.heads, .head_dim = x.dim, .past = x.keys, .future = x.keys}, u, v,
                                  c.vector<float>(x.heads * x.dim * 6)));
  const auto rows = c.vector<float>(x.heads * 2 * 16 * x.dim);
  f("deberta",
    posenc::deberta<float>(
        {.heads = x.heads, .head_dim = x.dim, .position_buckets = 16, .max_relative_positions = c.whole(12, 200)}, rows,
        rows));
}

}  // namespace

TEST_CASE("law: a constant added to every position changes no bit, in the log-sum-exp either") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    random_case c(seed);
    inputs x = draw(c);
    const bool causal = c.coin();
    const std::int64_t far = c.whole(1, 1000000000);
    with_every_encoder(c, x, [&](const char* name, const auto& part) {
      CAPTURE(seed, name);
      const auto policy = posenc::compose(part, posenc::run_time_policy<>{.masks = {.causal = causal}});
      const auto here = run(x, policy, 0);
      CHECK(here == run(x, policy, far));
      CHECK(here == run(x, policy, -far));
    });
  }
}

TEST_CASE("law: a query alone, as a decode step has it, gives the row of the whole") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    random_case c(seed);
    inputs x = draw(c);
    with_every_encoder(c, x, [&](const char* name, const auto& part) {
      CAPTURE(seed, name);
      const auto policy = posenc::compose(part, posenc::run_time_policy<>{.masks = {.causal = true}});
      const auto whole = run(x, policy, 5);
      inputs last = x;
      last.queries = 1;
      last.q.assign(x.q.end() - x.heads * x.dim, x.q.end());
      const auto alone = run(last, policy, 5);
      const std::vector<float> expected(whole.begin() + (x.queries - 1) * x.heads * x.dim,
                                        whole.begin() + x.queries * x.heads * x.dim);
      CHECK(laws::difference(std::vector<float>(alone.begin(), alone.begin() + x.heads * x.dim), expected) <= 1e-5);
    });
  }
}

TEST_CASE("law: tables of zeros are no encoding") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    random_case c(seed);
    inputs x = draw(c);
    const auto none = run(x, posenc::run_time_policy<>{.masks = {.causal = true}}, 3);
    const std::vector<float> zeros(static_cast<std::size_t>(33 * x.dim));
    CAPTURE(seed);
    CHECK(laws::difference(none, run(x,
                                     posenc::compose(posenc::shaw<float>({.head_dim = x.dim}, zeros, zeros),
                                                     posenc::run_time_policy<>{.masks = {.causal = true}}),
                                     3)) <= 2e-6);
  }
}

TEST_CASE("law: one value vector for every distance is added to every output") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    random_case c(seed);
    inputs x = draw(c);
    const auto one = c.vector<float>(x.dim);
    std::vector<float> values;
    for (int r = 0; r < 33; ++r) values.insert(values.end(), one.begin(), one.end());
    const std::vector<float> zeros(values.size());
    const auto masks = posenc::run_time_policy<>{.masks = {.causal = true}};
    auto plain = run(x, masks, 0);
    for (std::size_t i = 0; i < x.q.size(); ++i) plain[i] += one[i % static_cast<std::size_t>(x.dim)];
    CAPTURE(seed);
    CHECK(laws::difference(
              plain, run(x, posenc::compose(posenc::shaw<float>({.head_dim = x.dim}, zeros, values), masks), 0)) <=
          1e-5);
  }
}

TEST_CASE("law: a decoupled rotary part adds its own product to the scores") {
  // Heads [content | rotary], the rotary part of the key shared by the heads (DeepSeek's MLA).
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    random_case c(seed);
    const std::int64_t heads = c.whole(1, 4), tokens = c.whole(1, 20);
    const std::int64_t content = 2 * c.whole(1, 8), rotary = 2 * c.whole(1, 8), dim = content + rotary;
    const auto q_content = c.vector(tokens * heads * content), k_content = c.vector(tokens * heads * content);
    auto q_rotary = c.vector(tokens * heads * rotary), k_rotary = c.vector(tokens * rotary);
    std::vector<double> q, k;
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto at = (t * heads + h) * content;
        q.insert(q.end(), q_content.begin() + at, q_content.begin() + at + content);
        k.insert(k.end(), k_content.begin() + at, k_content.begin() + at + content);
        q.insert(q.end(), q_rotary.begin() + (t * heads + h) * rotary, q_rotary.begin() + (t * heads + h + 1) * rotary);
        k.insert(k.end(), k_rotary.begin() + t * rotary, k_rotary.begin() + (t + 1) * rotary);
      }
    const posenc::rope_options turn{.head_dim = dim, .rotary_dim = rotary, .offset = content};
    const posenc::rope<double> joint(turn), alone({.head_dim = rotary});
    const posenc::shape s{.tokens = tokens, .heads = heads, .dim = dim};
    const posenc::shape scores{.tokens = tokens, .heads = heads, .dim = tokens};
    std::vector<double> out(q.size()), logits(static_cast<std::size_t>(scores.elements()));
    posenc::attention_reference(
        posenc::view(q.data(), s), posenc::view(k.data(), s), posenc::view(k.data(), s), posenc::view(out.data(), s),
        joint, {.scale = 1.0, .keys = posenc::key_state::unrotated, .logits = posenc::view(logits.data(), scores)});
    alone.rotate(posenc::view(q_rotary.data(), {.tokens = tokens, .heads = heads, .dim = rotary}));
    alone.rotate(posenc::view(k_rotary.data(), {.tokens = tokens, .dim = rotary}));
    double worst = 0;
    for (std::int64_t i = 0; i < tokens; ++i)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t j = 0; j < tokens; ++j) {
          const double sum =
              laws::dot(q_content.data() + (i * heads + h) * content, k_content.data() + (j * heads + h) * content,
                        content) +
              laws::dot(q_rotary.data() + (i * heads + h) * rotary, k_rotary.data() + j * rotary, rotary);
          worst = std::max(worst, std::abs(sum - logits[static_cast<std::size_t>((i * heads + h) * tokens + j)]));
        }
    CAPTURE(seed, heads, tokens, content, rotary);
    CHECK(worst <= 1e-13);
  }
}
