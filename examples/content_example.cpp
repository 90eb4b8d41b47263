// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Content-dependent relative encodings: Shaw's vectors on keys and values, Music Transformer, Transformer-XL with
// XLNet's segments, DeBERTa. Each is a part of a policy; attention makes no tensor of size queries x keys for it.
#include <posenc/posenc.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t tokens = 40;
constexpr std::int64_t heads = 2;
constexpr std::int64_t dim = 8;

/// Numbers that stand for trained tables.
std::vector<float> trained(std::int64_t n, int seed) {
  std::vector<float> x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(std::sin(static_cast<float>(37 * i + 11 * seed) * 0.1f));
  return x;
}

/// The fused result against attention one score at a time.
template <class Policy>
bool same(const char* name, const Policy& policy, std::optional<double> scale = {}) {
  const posenc::shape s{.tokens = tokens, .heads = heads, .dim = dim};
  auto q = trained(s.elements(), 1), k = trained(s.elements(), 2), v = trained(s.elements(), 3);
  std::vector<float> out(q.size()), slow(q.size());
  const posenc::view vq{q.data(), s}, vk{k.data(), s}, vv{v.data(), s};
  posenc::attention(vq, vk, vv, posenc::view{out.data(), s}, policy, {.scale = scale});
  posenc::attention_reference(vq, vk, vv, posenc::view{slow.data(), s}, policy, {.scale = scale});
  float worst = 0;
  for (std::size_t i = 0; i < out.size(); ++i) worst = std::max(worst, std::abs(out[i] - slow[i]));
  std::printf("%-18s first value %.6f\n", name, static_cast<double>(out[0]));
  return worst < 1e-5f;
}

}  // namespace

int main() {
  bool good = true;
  const std::vector<float> rel_k = trained(33 * dim, 4), rel_v = trained(33 * dim, 5);
  // [shaw]
  // 16 distances to either side have a row of their own, all beyond share the last; tables [33, dim] for keys and
  // values.
  const posenc::shaw<float> relative({.head_dim = dim, .left = 16, .right = 16}, rel_k, rel_v);
  good = good && same("shaw", posenc::compose(relative, posenc::causal{}));
  // [/shaw]
  // [music]
  // Music Transformer: one row per distance into the past, nothing beyond, keys only.
  const posenc::shaw<float> music(
      {.head_dim = dim, .left = 32, .right = 0, .out_of_range = posenc::relative_beyond::zero}, rel_k);
  good = good && same("music transformer", posenc::compose(music, posenc::causal{}));
  // [/music]
  const std::vector<float> u = trained(heads * dim, 6), v = trained(heads * dim, 7);
  const std::vector<float> weight_r = trained(heads * dim * heads * dim, 8);
  // [transformer_xl]
  // The rows R = W_r e(r) are made once for the distances of the model: up to 39 back, none ahead under a causal mask.
  const posenc::transformer_xl<float> xl({.heads = heads, .head_dim = dim, .past = 39}, u, v, weight_r);
  good = good && same("transformer_xl", posenc::compose(xl, posenc::causal{}));
  // [/transformer_xl]
  const std::vector<float> vectors = trained(heads * 2 * dim, 9), s_bias = trained(heads * dim, 10);
  std::vector<std::int64_t> segment(tokens, 0);
  for (std::size_t t = 25; t < segment.size(); ++t) segment[t] = 1;
  // [segments]
  // XLNet: both directions, and a term that says whether two tokens share a segment. u, which transformer_xl has added
  // to q, is taken off again.
  const posenc::transformer_xl<float> both({.heads = heads, .head_dim = dim, .past = 39, .future = 39}, u, v, weight_r);
  const posenc::relative_segments<float> segments({.heads = heads, .head_dim = dim}, vectors, s_bias, u, segment,
                                                  segment);
  good = good && same("xlnet", posenc::compose(both, segments));
  // [/segments]
  const std::vector<float> pos_key = trained(heads * 64 * dim, 11), pos_query = trained(heads * 64 * dim, 12);
  // [deberta]
  // The tables [heads, 2 * 32, dim] are the projected ones; the scale covers three terms.
  const posenc::deberta<float> disentangled(
      {.heads = heads, .head_dim = dim, .position_buckets = 32, .max_relative_positions = 128}, pos_key, pos_query);
  good = good && same("deberta", disentangled, disentangled.scale());
  // [/deberta]
  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
