// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The readers of configurations, compiled once for all tests of what they read: a file that holds them takes 10 s.
/// usage_test.cpp calls the public functions themselves.

#include <posenc/models/gguf_rope.hpp>
#include <posenc/models/model.hpp>

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace posenc_test {

enum class stack { decoder, encoder };

/// `posenc::models::from_huggingface` with its option `part`.
posenc::models::model from_huggingface(const nlohmann::json& config, stack part = stack::decoder);
posenc::models::model from_huggingface(const char* text, stack part = stack::decoder);
posenc::models::model from_huggingface(const std::string& text, stack part = stack::decoder);

/// `posenc::models::from_gguf` and `gguf_settings`.
posenc::models::model from_gguf(const posenc::models::gguf_lookup& lookup,
                                const posenc::models::gguf_options& options = {});
posenc::models::model_settings gguf_settings(const posenc::models::gguf_lookup& lookup,
                                             const posenc::models::gguf_options& options = {});

}  // namespace posenc_test
