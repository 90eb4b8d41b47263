// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "unit/models/readers.hpp"

#include <posenc/models/gguf.hpp>
#include <posenc/models/huggingface.hpp>

namespace posenc_test {

namespace models = posenc::models;

namespace {
models::huggingface_options options(stack part) {
  return {.part = part == stack::encoder ? models::stack::encoder : models::stack::decoder};
}
}  // namespace

models::model from_huggingface(const nlohmann::json& config, stack part) {
  return models::from_huggingface(config, options(part));
}
models::model from_huggingface(const char* text, stack part) { return models::from_huggingface(text, options(part)); }
models::model from_huggingface(const std::string& text, stack part) {
  return models::from_huggingface(text, options(part));
}

models::model from_gguf(const models::gguf_lookup& lookup, const models::gguf_options& options) {
  return models::from_gguf(lookup, options);
}
models::model_settings gguf_settings(const models::gguf_lookup& lookup, const models::gguf_options& options) {
  return models::gguf_settings(lookup, options);
}

}  // namespace posenc_test
