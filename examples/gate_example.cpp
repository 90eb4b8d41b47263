// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// TUPE's untied positions and class token; biases that the content of a layer gates: WavLM, forget gates with a cache,
// a projected bank of distances.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/bias.hpp>
#include <posenc/attention/index_masks.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/encoders/forgetting.hpp>
#include <posenc/encoders/gated_bias.hpp>
#include <posenc/encoders/projected_bias.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/tupe.hpp>
#include <posenc/encoders/tupe_bucket.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  bool good = true;
  constexpr std::int64_t heads = 2;
  constexpr std::int64_t head_dim = 2;
  constexpr std::int64_t tokens = 6;
  std::vector<float> q(tokens * heads * head_dim, 0.0f);
  std::vector<float> v(q);
  std::vector<float> out(q);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i / 4);  // the number of the token
  const posenc::shape shape{.tokens = tokens, .heads = heads, .dim = head_dim};
  const posenc::view queries{q.data(), shape};
  const posenc::view values{v.data(), shape};
  const posenc::view result{out.data(), shape};

  // Position row p is (p, -p, p, -p): after layer norm every row but the first is (1, -1, 1, -1).
  std::vector<float> position;
  for (int p = 0; p < 9; ++p)
    for (int i = 0; i < 4; ++i) position.push_back(static_cast<float>(i % 2 == 0 ? p : -p));
  const std::vector<float> ones(4, 1.0f), zeros(4, 0.0f);
  const std::vector<float> same{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
  // [tupe]
  // Made once per model; copies share their memory, so each layer's policy may hold one.
  const posenc::tupe<float> untied({.heads = heads, .width = heads * head_dim, .keep_table = true},
                                   {.position = position,
                                    .gamma = ones,
                                    .beta = zeros,
                                    .weight_q = same,
                                    .bias_q = zeros,
                                    .weight_k = same,
                                    .bias_k = zeros});
  // Content scores share the scale of TUPE: 1 / sqrt(2 d).
  const std::vector<float> bucket_table(33 * heads, 0.0f);
  const posenc::tupe_bucket<float> buckets({.heads = heads}, bucket_table);  // TUPE-R
  posenc::attention(queries, queries, values, result, posenc::compose(untied, buckets),
                    {.scale = 1 / std::sqrt(2.0 * head_dim)});
  // [/tupe]
  // Row 0 of the table is constant, so its norm is 0 and so is A[0, 0]; two other rows give (1 + 1) / sqrt(4) = 1.
  std::vector<float> bias(heads * tokens * tokens);
  posenc::fill_bias<float>(untied, heads, {}, tokens, {}, tokens, bias);
  std::printf("tupe: from the class token %.4f, to it %.4f, between tokens %.4f; positions 0..%lld\n",
              static_cast<double>(bias[3]), static_cast<double>(bias[3 * tokens]),
              static_cast<double>(bias[3 * tokens + 4]), static_cast<long long>(untied.limit() - 1));
  good = good && bias[3] == 0.0f && std::fabs(bias[3 * tokens] - 1) < 1e-4f &&
         std::fabs(bias[3 * tokens + 4] - 1) < 1e-4f && untied.limit() == 8;
  good = good && std::fabs(out[0] - 2.5f) < 1e-5f;
  std::printf("tupe_bucket: rows %lld (from the class token), %lld (to it)\n",
              static_cast<long long>(buckets.index(0, 3)), static_cast<long long>(buckets.index(3, 0)));
  good = good && buckets.index(0, 3) == 16 && buckets.index(3, 0) == 32 && buckets.index(3, 5) == 18;

  // [gated]
  // WavLM: one bias per model; each layer gates it by its own input x, here [token, head, d].
  std::vector<float> table(32 * heads, 0.0f);
  table[1 * heads] = 2;  // head 0, the key before the query
  const posenc::relative_bucket<float> relative({.heads = heads}, table);
  const std::vector<float> x(tokens * heads * head_dim, 0.0f);
  const std::vector<float> gate_weight(8 * head_dim, 0.0f), gate_bias(8, 0.0f), gate_constant(heads, 1.0f);
  std::vector<float> gates(tokens * heads);
  const posenc::view gate{gates.data(), {.tokens = tokens, .heads = heads, .dim = 1}};
  posenc::wavlm_gates<float>({.weight = gate_weight, .bias = gate_bias, .constant = gate_constant},
                             posenc::view{x.data(), shape}, gate);
  posenc::attention(queries, queries, values, result, posenc::gated_bias(relative, gate));
  // [/gated]
  // Gates of nothing: sigmoid(0) (sigmoid(0) - 1) + 2 = 1.75, times 2.
  posenc::fill_bias<float>(posenc::gated_bias(relative, gate), heads, {}, tokens, {}, tokens, bias);
  std::printf("gated_bias: %.4f\n", static_cast<double>(bias[3 * tokens + 2]));
  good = good && bias[3 * tokens + 2] == 3.5f;

  // [forgetting]
  // Forget gates: the sums grow with the cache, and a step attends with the column of its first query.
  posenc::forget_sums<float> sums({.heads = heads});
  std::vector<float> gate_logits(tokens * heads, 0.0f);  // every token keeps one half
  sums.append(posenc::view{gate_logits.data(), {.tokens = tokens - 1, .heads = heads, .dim = 1}});  // the prompt
  sums.append(posenc::view{gate_logits.data(), {.tokens = 1, .heads = heads, .dim = 1}});           // one more token
  const posenc::shape one{.tokens = 1, .heads = heads, .dim = head_dim};
  posenc::attention(posenc::view{q.data(), one}, queries, values, posenc::view{out.data(), one},
                    posenc::compose(posenc::forgetting<float>(sums, tokens - 1), posenc::causal_by_index{tokens - 1}),
                    {.query_positions = posenc::positions::from(tokens - 1)});
  // [/forgetting]
  // Weights 1, 1/2, 1/4, ... from the newest key back.
  double weight = 0, mean = 0;
  for (int j = 0; j < tokens; ++j) {
    weight += std::exp2(j - tokens + 1);
    mean += j * std::exp2(j - tokens + 1);
  }
  std::printf("forgetting: mean key %.6f, %.6f expected\n", static_cast<double>(out[0]), mean / weight);
  good = good && std::fabs(static_cast<double>(out[0]) - mean / weight) < 1e-5;

  // [projected]
  // Two functions of the distances 0 .. 3, mixed by weights of the layer's input, here [token, 1].
  const std::vector<float> functions{0, 1, 2, 3, 10, 10, 10, 10};
  const posenc::projected_bank<float> bank(2, 4, functions);
  const std::vector<float> input{0, 1, 2, 3, 4, 5};
  const std::vector<float> projection{1, 0, 0, 1};  // [heads * functions, 1]
  std::vector<float> mixed(tokens * heads * 2);
  const posenc::view weights{mixed.data(), {.tokens = tokens, .heads = heads, .dim = 2}};
  posenc::project_weights<float>(posenc::view{input.data(), {.tokens = tokens, .dim = 1}}, projection, {}, weights);
  posenc::attention(queries, queries, values, result,
                    posenc::compose(posenc::projected_bias(bank, weights), posenc::causal{}));
  // [/projected]
  posenc::fill_bias<float>(posenc::projected_bias(bank, weights), heads, {}, tokens, {}, tokens, bias);
  std::printf("projected_bias: token 5 to token 2: head 0 %.1f, head 1 %.1f; to token 1 %.1f\n",
              static_cast<double>(bias[5 * 6 + 2]), static_cast<double>(bias[36 + 5 * 6 + 2]),
              static_cast<double>(bias[5 * 6 + 1]));
  good = good && bias[5 * 6 + 2] == 15.0f && bias[36 + 5 * 6 + 2] == 50.0f && bias[5 * 6 + 1] == 0.0f &&
         bias[2 * 6 + 5] == 0.0f;

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
