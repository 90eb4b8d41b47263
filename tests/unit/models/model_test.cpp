// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Settings as policies: what attention computes with them, and what is missing.
#include <posenc/attention/attention.hpp>
#include <posenc/models/model.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"
#include "unit/models/readers.hpp"

#include <nlohmann/json.hpp>

namespace {

using namespace posenc_test;
using posenc::models::model;

constexpr std::int64_t heads = 4;
constexpr std::int64_t kv_heads = 2;
constexpr std::int64_t dim = 16;
constexpr std::int64_t keys = 40;
constexpr std::int64_t past = 30;

struct inputs {
  stored<float> q;
  stored<float> k;
  stored<float> v;
  explicit inputs(std::int64_t key_heads = kv_heads) {
    std::mt19937 random(77);
    q = random_stored<float>(random, {1, keys - past, heads, dim}, 3);
    k = random_stored<float>(random, {1, keys, key_heads, dim}, 3);
    v = random_stored<float>(random, {1, keys, key_heads, dim});
  }
  template <class Policy>
  std::vector<float> run(const Policy& policy) {
    stored<float> out({1, keys - past, heads, dim}, 9);
    posenc::attention(q.view(), k.view(), v.view(), out.view(), policy,
                      {.query_positions = posenc::positions::from(past), .keys = posenc::key_state::unrotated});
    return out.data;
  }
  std::vector<float> run(const model& m, std::int64_t layer) {
    return m.visit_layer(layer, [&](const auto& policy) { return run(policy); });
  }
};

/// A small model of a family.
model small(const std::string& family, const nlohmann::json& change = nlohmann::json::object()) {
  nlohmann::json c = {{"model_type", family},
                      {"hidden_size", heads * dim},
                      {"num_attention_heads", heads},
                      {"num_key_value_heads", kv_heads},
                      {"head_dim", dim},
                      {"num_hidden_layers", 4},
                      {"max_position_embeddings", 512}};
  c.update(change);
  return from_huggingface(c);
}

}  // namespace

TEST_CASE("layers compute what the same parts compute in a pack") {
  inputs in;
  const posenc::causal causal{};
  const posenc::rope<float> rope({.head_dim = dim});

  CHECK(in.run(small("llama"), 0) == in.run(posenc::compose(rope, causal)));
  CHECK(in.run(small("mistral", {{"sliding_window", 7}}), 1) ==
        in.run(posenc::compose(rope, causal, posenc::sliding_window(7))));

  const model gemma = small("gemma2", {{"sliding_window", 5}, {"query_pre_attn_scalar", 64}});
  CHECK(in.run(gemma, 0) == in.run(posenc::compose(rope, posenc::softcap(50), posenc::logit_scale(0.5), causal,
                                                   posenc::sliding_window(5))));
  CHECK(in.run(gemma, 1) == in.run(posenc::compose(rope, posenc::softcap(50), posenc::logit_scale(0.5), causal)));

  const model llama4 = small("llama4", {{"attention_chunk_size", 8}, {"floor_scale", 16}});
  const posenc::rope<float> wide({.head_dim = dim, .base = 500000, .layout = posenc::interleaved});
  CHECK(in.run(llama4, 2) == in.run(posenc::compose(wide, posenc::qk_norm{.eps = 1e-5}, posenc::chunked(8))));
  CHECK(in.run(llama4, 3) == in.run(posenc::compose(posenc::query_temperature{.floor_scale = 16}, causal)));

  const model cohere = small("cohere2", {{"sliding_window", 9}});
  const posenc::rope<float> adjacent({.head_dim = dim, .layout = posenc::interleaved});
  CHECK(in.run(cohere, 0) == in.run(posenc::compose(adjacent, causal, posenc::sliding_window(9))));
  CHECK(in.run(cohere, 3) == in.run(posenc::compose(causal)));

  CHECK(in.run(small("bert", {{"num_key_value_heads", nullptr}}), 0) == in.run(posenc::compose(posenc::nope{})));
  const model modern = small("modernbert", {{"local_attention", 12}});
  CHECK(in.run(modern, 0) == in.run(posenc::compose(posenc::rope<float>({.head_dim = dim, .base = 160000}))));
  CHECK(in.run(modern, 1) == in.run(posenc::compose(rope, posenc::symmetric_window(7))));
}

TEST_CASE("the three bias kinds") {
  inputs in;
  CHECK(in.run(small("bloom"), 0) == in.run(posenc::compose(posenc::alibi<float>(heads), posenc::causal{})));
  // Falcon's bias goes through the scale: a quarter of it for heads of 16.
  const model falcon = small("falcon", {{"alibi", true}, {"multi_query", false}});
  std::vector<float> slopes =
      posenc::alibi<float>({.heads = heads, .rounding = posenc::slope_rounding::bfloat16}).slopes();
  for (float& m : slopes) m /= 4;
  CHECK(in.run(falcon, 0) == in.run(posenc::compose(posenc::alibi<float>(slopes), posenc::causal{})));

  std::vector<float> table(32 * heads);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = 0.01f * static_cast<float>(i % 17);
  nlohmann::json c = {{"model_type", "t5"}, {"d_model", 64}, {"d_kv", dim}, {"num_heads", heads}, {"num_layers", 2}};
  for (const auto part : {stack::encoder, stack::decoder}) {
    model t5 = from_huggingface(c, part);
    CHECK_THROWS_WITH(in.run(t5, 0), contains("the bias table must be set by set_bias_table before layer, got 0"));
    t5.set_bias_table(table);
    const bool encoder = part == stack::encoder;
    const posenc::relative_bucket<float> bias({.heads = heads, .bidirectional = encoder}, table);
    const posenc::logit_scale unscaled(4);
    CHECK(in.run(t5, 1) == (encoder ? in.run(posenc::compose(bias, unscaled))
                                    : in.run(posenc::compose(bias, unscaled, posenc::causal{}))));
    // UMT5 has a table per layer.
    std::vector<float> other(table.size(), 1.0f);
    t5.set_bias_table(1, other);
    CHECK(t5.policy<posenc::relative_bucket<float>>(0).bias.lines().row<float>({}, posenc::contiguous_keys{0})(0, 3) !=
          t5.policy<posenc::relative_bucket<float>>(1).bias.lines().row<float>({}, posenc::contiguous_keys{0})(0, 3));
    CHECK_THROWS_WITH(t5.set_bias_table(std::vector<float>(5)), contains("table must hold num_buckets * heads values"));
  }
  c["is_encoder_decoder"] = false;
  CHECK_FALSE(from_huggingface(c).layer(0).causal);

  CHECK_THROWS_WITH(
      in.run(small("deberta-v2", {{"relative_attention", true}}), 0),
      contains("the bias must not depend on the content of queries and keys: its tables lie in the weights"));
  CHECK_THROWS_AS(small("bloom").policy<posenc::nope>(0), std::invalid_argument);
  CHECK_THROWS_WITH(small("llama").set_bias_table(table), contains("must have a bias by bucket"));
}

TEST_CASE("sinks come from the checkpoint") {
  inputs in;
  model m = small("gpt_oss", {{"sliding_window", 6}, {"rope_scaling", nullptr}});
  CHECK_THROWS_WITH(in.run(m, 1), contains("the sinks must be set by set_sinks before layer, got 1"));
  m.set_sinks(1, {1, 0, -2, 3});
  const posenc::rope<float> rope({.head_dim = dim, .base = 150000});
  CHECK(in.run(m, 1) ==
        in.run(posenc::compose(rope, posenc::causal{}, posenc::sinks<float>({1.0f, 0.0f, -2.0f, 3.0f}))));
  CHECK_THROWS_WITH(in.run(m, 0), contains("before layer, got 0"));
  CHECK_THROWS_WITH(m.set_sinks(0, {1, 2}), contains("per_head must list one sink per head, got 2"));
  CHECK_THROWS_WITH(small("llama").set_sinks(0, {1, 0, 1, 0}), contains("must be one with sinks"));
}

TEST_CASE("weights of the norm come from the checkpoint") {
  inputs in;
  std::vector<float> w(dim);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.1f * static_cast<float>(i) - 0.5f;
  const std::vector<float> ones(dim, 1.0f);
  const posenc::rope<float> rope({.head_dim = dim});
  model qwen = small("qwen3", {{"rope_theta", 10000.0}});
  CHECK_THROWS_WITH(in.run(qwen, 0), contains("the weights of the norm must be set by set_norm_weights before layer"));
  qwen.set_norm_weights(0, w, ones);
  CHECK(in.run(qwen, 0) ==
        in.run(posenc::compose(posenc::qk_norm{.q_gain = w, .k_gain = ones}, rope, posenc::causal{})));
  model gemma = small("gemma3_text", {{"sliding_window", 512}, {"query_pre_attn_scalar", dim}});
  gemma.set_norm_weights(0, w, ones);
  CHECK(in.run(gemma, 0) ==
        in.run(posenc::compose(posenc::qk_norm{.q_gain = posenc::one_plus(w), .k_gain = posenc::one_plus(ones)}, rope,
                               posenc::causal{}, posenc::sliding_window(512))));
  CHECK_THROWS_WITH(gemma.set_norm_weights(0, w, std::vector<float>(3)),
                    contains("must list one per channel of a head"));
  CHECK_THROWS_WITH(small("llama4").set_norm_weights(0, w, w), contains("must be one whose norm has a gain"));

  // Keys on their way into a cache take the norm and the rotation.
  auto cached = in.k;
  qwen.rotate(0, cached.view());
  auto by_hand = in.k;
  posenc::qk_norm{.k_gain = ones}.normalize_k(by_hand.view());
  rope.rotate(by_hand.view());
  CHECK(cached.data == by_hand.data);

  model olmo = small("olmo2");
  CHECK_THROWS_WITH(in.run(olmo, 0), contains("must be applied to q and k by normalize_jointly"));
  olmo.norm_is_applied_by_caller();
  CHECK(in.run(olmo, 0) == in.run(posenc::compose(rope, posenc::causal{})));
}

TEST_CASE("a rotation of another length, explicitly; weights stay") {
  const nlohmann::json dynamic = {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}};
  const model m = small("llama", dynamic);
  CHECK(m.depends_on_length());
  CHECK_FALSE(small("llama").depends_on_length());
  CHECK(m.at_length(512).rotation(0)->inv_freq() == m.rotation(0)->inv_freq());
  CHECK(m.at_length(513).rotation(0)->inv_freq()[7] < m.rotation(0)->inv_freq()[7]);
  // Back again: nothing of the longer length is left (F24).
  CHECK(m.at_length(2000).at_length(100).rotation(3)->inv_freq() == m.rotation(3)->inv_freq());
  CHECK_THROWS_WITH(m.at_length(0), contains("n must be at least 1, got 0"));
  model qwen = small("qwen3", dynamic);
  qwen.set_norm_weights(2, std::vector<float>(dim, 2.0f), std::vector<float>(dim, 3.0f));
  CHECK(qwen.at_length(2000).policy<posenc::nope>(2).normalization->k_gain == std::vector<float>(dim, 3.0f));
  inputs in;
  CHECK(in.run(qwen.at_length(2000), 2) != in.run(qwen, 2));
}

TEST_CASE("DeepSeek: the last channels rotate, and the softmax factor multiplies the scores") {
  inputs in;
  const model m = small("deepseek_v3", {{"num_key_value_heads", kv_heads},
                                        {"qk_nope_head_dim", 8},
                                        {"qk_rope_head_dim", 8},
                                        {"rope_scaling",
                                         {{"type", "yarn"},
                                          {"factor", 40},
                                          {"original_max_position_embeddings", 4096},
                                          {"mscale", 1.0},
                                          {"mscale_all_dim", 1.0}}}});
  CHECK(m.rotation(0)->offset() == 8);
  CHECK(m.rotation(0)->magnitude() == 1);
  CHECK(m.layer(0).logit_multiplier == Approx(1.8738542070).epsilon(1e-10));
  CHECK(in.run(m, 0) ==
        in.run(posenc::compose(*m.rotation(0), posenc::logit_scale(m.layer(0).logit_multiplier), posenc::causal{})));
  auto turned = in.k;
  m.rotate(0, turned.view(), posenc::positions::from(3));
  for (std::int64_t d = 0; d < 8; ++d) CHECK(turned(0, 5, 1, d) == in.k(0, 5, 1, d));
  CHECK(turned(0, 5, 1, 8) != in.k(0, 5, 1, 8));
}

TEST_CASE("text under a model of several axes is plain RoPE, bit for bit") {
  inputs in;
  const nlohmann::json sections = {{"rope_theta", 10000.0},
                                   {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {2, 3, 3}}}}};
  CHECK(in.run(small("qwen2_vl", sections), 0) == in.run(small("llama"), 0));
}

TEST_CASE("layers that a model does not have") {
  const model m = small("llama");
  CHECK_THROWS_AS(m.layer(4), std::out_of_range);
  CHECK_THROWS_AS(m.rotation(-1), std::out_of_range);
  CHECK_THROWS_WITH(m.visit_layer(4, [](const auto&) {}), contains("layer must lie in 0..3, got 4"));
  CHECK_THROWS_WITH(model(posenc::models::model_settings{}), contains("layers must not be empty"));
}
