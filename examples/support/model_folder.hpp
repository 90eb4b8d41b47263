// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Where a model lies that is not part of the project: models/NAME of the folder that POSENC_TEST_DATA names.

#include <cstdlib>
#include <filesystem>
#include <string>

namespace posenc_examples {

/// With a slash at its end; empty where the folder or its `file` is absent.
[[nodiscard]] inline std::string model_folder(const std::string& name, const std::string& file) {
  const char* data = std::getenv("POSENC_TEST_DATA");
  const std::string path = data ? std::string(data) + "/models/" + name + "/" : std::string();
  return data && std::filesystem::exists(path + file) ? path : std::string();
}

}  // namespace posenc_examples
