// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What docs/models.md and docs/gguf.md show, and the other ways to call the readers.
#include <posenc/attention/attention.hpp>
#include <posenc/models/gguf.hpp>
#include <posenc/models/huggingface.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"
#include "unit/models/gguf_file.hpp"

#include <map>
#include <optional>
#include <string>

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
  for (std::size_t i = 0; i < out.data.size(); ++i)
    CHECK(out.data[i] == Approx(expected.data[i]).epsilon(0).margin(1e-6));
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

TEST_CASE("config.json as a parsed object, a view, a string and a literal") {
  using posenc::models::from_huggingface;
  const nlohmann::json config = {
      {"model_type", "llama"}, {"num_hidden_layers", 2}, {"num_attention_heads", 2}, {"hidden_size", 8}};
  const std::string text = config.dump();
  CHECK(from_huggingface(config).layers() == 2);
  CHECK(from_huggingface(text).layers() == 2);
  CHECK(from_huggingface(text.c_str()).layers() == 2);
  CHECK(from_huggingface(std::string_view(text)).layers() == 2);
  CHECK_THROWS_WITH(from_huggingface("{\"model_type\": "),
                    posenc_test::contains("the configuration must be JSON, got {\"model_type\": "));
  CHECK_THROWS_AS(from_huggingface(std::string("no")), std::invalid_argument);
}

TEST_CASE("gguf: any callable that answers with an optional will do", "[gguf]") {
  const auto m = posenc::models::from_gguf([](const std::string& key) -> std::optional<posenc::models::gguf_value> {
    if (key == "general.architecture") return "llama";
    if (key == "llama.block_count") return std::uint32_t{2};
    if (key == "llama.embedding_length") return std::uint64_t{256};
    if (key == "llama.attention.head_count") return std::uint16_t{4};
    if (key == "llama.rope.freq_base") return 1e4f;
    return std::nullopt;
  });
  CHECK(m.layers() == 2);
  CHECK(m.settings().family == "llama");
  CHECK(m.settings().max_positions == 0);
  CHECK(m.layer(1).kv_heads == 4);
  CHECK(m.rotation(1)->pairs() == 32);
  CHECK(m.rotation(1)->layout() == posenc::interleaved);
}

TEST_CASE("gguf: a file's keys and its tensor of divisors", "[gguf]") {
  const std::map<std::string, posenc::models::gguf_value> metadata{
      {"general.architecture", "llama"},   {"llama.block_count", 32},          {"llama.context_length", 131072},
      {"llama.embedding_length", 4096},    {"llama.attention.head_count", 32}, {"llama.attention.head_count_kv", 8},
      {"llama.rope.freq_base", 500000.0f}, {"llama.rope.dimension_count", 128}};
  const std::vector<float> divisors = posenc_test::llama3_divisors(5e5, 64, 8, 1, 4, 8192);
  // [lookup]
  const auto lookup = [&](const std::string& key) -> std::optional<posenc::models::gguf_value> {
    const auto found = metadata.find(key);
    if (found == metadata.end()) return std::nullopt;
    return found->second;
  };
  const auto model = posenc::models::from_gguf(lookup, {.rope_freqs = divisors});
  // [/lookup]
  CHECK(model.layers() == 32);
  CHECK(model.rotation(31)->inv_freq()[0] == 1);
  CHECK(model.rotation(31)->inv_freq()[63] == Approx(std::pow(5e5, -63.0 / 64) / 8).epsilon(1e-15));

  std::vector<float> k(2 * 8 * 128, 1.0f);
  const posenc::view keys(k.data(), {.tokens = 2, .heads = 8, .dim = 128});
  // [rotate]
  model.rotate(0, keys, posenc::positions::from(7000));
  // [/rotate]
  CHECK(k[0] == Approx(std::cos(7000.0) - std::sin(7000.0)).epsilon(1e-6));
  CHECK(k[1] == Approx(std::cos(7000.0) + std::sin(7000.0)).epsilon(1e-6));
}
