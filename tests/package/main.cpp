// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What a user's first program does: the version it asked for, and a call that reaches SIMD code.
#include <posenc/posenc.hpp>

#include <cmath>
#include <cstdio>
#include <string>

int main() {
  const std::string version = std::to_string(POSENC_VERSION_MAJOR) + "." + std::to_string(POSENC_VERSION_MINOR) + "." +
                              std::to_string(POSENC_VERSION_PATCH);
  // The first pair of a rotation turns by one radian per position.
  float x[2] = {1, 0};
  const posenc::rope<float> encoder{{.head_dim = 2}};
  encoder.rotate(posenc::view<float>(x, {.tokens = 1, .dim = 2}), posenc::positions::from(1));
  std::printf("posenc %s turns (1, 0) at position 1 to (%.9g, %.9g)\n", version.c_str(), static_cast<double>(x[0]),
              static_cast<double>(x[1]));
  const bool turned = x[0] == static_cast<float>(std::cos(1.0)) && x[1] == static_cast<float>(std::sin(1.0));
  return version == POSENC_EXPECTED_VERSION && turned ? 0 : 1;
}
