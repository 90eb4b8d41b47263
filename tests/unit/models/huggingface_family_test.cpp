// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/models/huggingface_family.hpp>

#include "support/catch.hpp"

using namespace posenc::models;
using namespace posenc::models::detail;

namespace {
model_settings two_layers(std::int64_t head_dim = 64) {
  model_settings m;
  m.layers.resize(2);
  for (auto& l : m.layers) l.head_dim = head_dim;
  return m;
}
const json wide = {{"hidden_size", 768}, {"max_position_embeddings", 512}, {"pad_token_id", 1}};
}  // namespace

TEST_CASE("family rules: scores of GPT-2") {
  const json c = {
      {"n_embd", 128}, {"n_positions", 1024}, {"scale_attn_weights", false}, {"scale_attn_by_inverse_layer_idx", true}};
  model_settings m = two_layers();
  finish_gpt2(config_object(&c, nullptr, ""), m, stack::decoder);
  // q.k itself, and that over 2 in the second layer; the multiplier stands on 1 / sqrt(64).
  CHECK((m.layers[0].logit_multiplier == 8 && m.layers[1].logit_multiplier == 4));
  CHECK((m.embedding.kind == embedding_kind::learned && m.embedding.rows == 1024 && m.embedding.dim == 128));
}

TEST_CASE("family rules: rows of learned positions") {
  const config_object c(&wide, nullptr, "");
  model_settings opt = two_layers();
  finish_opt(c, opt, stack::decoder);
  CHECK((opt.embedding.ids == id_rule::opt && opt.embedding.rows == 514 && opt.embedding.offset == 2));
  CHECK(opt.layers[0].causal);
  model_settings bert = two_layers();
  finish_bert(c, bert, stack::decoder);
  CHECK((bert.embedding.ids == id_rule::sequential && bert.embedding.rows == 512 && bert.embedding.padding_idx == 1));
  CHECK((!bert.layers[0].causal && !bert.layers[1].causal));
  model_settings roberta = two_layers();
  finish_roberta(c, roberta, stack::decoder);
  CHECK((roberta.embedding.ids == id_rule::roberta && roberta.embedding.padding_idx == 1));
  json relative = wide;
  relative["position_embedding_type"] = "relative_key";
  CHECK_THROWS_WITH(finish_bert(config_object(&relative, nullptr, ""), bert, stack::decoder),
                    posenc_test::contains("position_embedding_type must be absolute"));
}
