// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What docs/models.md shows.
#include <posenc/attention/attention.hpp>
#include <posenc/models/huggingface.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

TEST_CASE("the configuration of a model, a cache, and attention of every layer") {
  using namespace posenc_test;
  // [read]
  const std::string config_json = R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_hidden_layers": 2, "rope_theta": 500000.0, "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192}})";
  const posenc::models::model model = posenc::models::from_huggingface(config_json);
  // [/read]
  std::mt19937 random(1);
  constexpr std::int64_t past = 5;
  const auto q = random_stored<float>(random, {1, 1, 4, 16});
  auto k = random_stored<float>(random, {1, past + 1, 2, 16});
  const auto v = random_stored<float>(random, {1, past + 1, 2, 16});
  const auto unrotated = k;
  stored<float> out({1, 1, 4, 16});
  model.rotate(0, posenc::view{k.data.data(), {.tokens = past, .heads = 2, .dim = 16}});
  const posenc::view queries = q.read();
  const posenc::view keys = k.view();
  const posenc::view values = v.read();
  const posenc::view result = out.view();
  const posenc::view new_keys{k.data.data() + past * 32, {.tokens = 1, .heads = 2, .dim = 16}};
  const std::int64_t layer = 0;
  // [layer]
  // One decode step: the new keys take norm and rotation on their way into the cache, attention does the same to q.
  model.rotate(layer, new_keys, posenc::positions::from(past));
  model.visit_layer(layer, [&](const auto& policy) {
    posenc::attention(queries, keys, values, result, policy, {.query_positions = posenc::positions::from(past)});
  });
  // [/layer]
  stored<float> expected({1, 1, 4, 16});
  posenc::attention(q.read(), unrotated.read(), v.read(), expected.view(), model.policy<posenc::nope>(0),
                    {.query_positions = posenc::positions::from(past), .keys = posenc::key_state::unrotated});
  for (std::size_t i = 0; i < out.data.size(); ++i) CHECK(out.data[i] == Approx(expected.data[i]).margin(1e-6));
}

TEST_CASE("weights and lengths of a model") {
  using posenc_test::contains;
  const nlohmann::json config = {{"model_type", "qwen3"},
                                 {"num_hidden_layers", 1},
                                 {"num_attention_heads", 2},
                                 {"hidden_size", 8},
                                 {"head_dim", 4},
                                 {"max_position_embeddings", 64},
                                 {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}};
  const std::vector<float> q_norm(4, 1.0f);
  const std::vector<float> k_norm(4, 2.0f);
  const std::int64_t tokens = 100;
  // [weights]
  posenc::models::model model = posenc::models::from_huggingface(config);
  for (std::int64_t l = 0; l < model.layers(); ++l) model.set_norm_weights(l, q_norm, k_norm);
  const posenc::models::model longer = model.at_length(tokens);  // dynamic NTK: other frequencies, the same weights
  // [/weights]
  CHECK(longer.rotation(0)->inv_freq()[1] < model.rotation(0)->inv_freq()[1]);
  CHECK(longer.policy<posenc::nope>(0).normalization->k_gain == k_norm);
}
