// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The median of measured times.

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace posenc_examples {

/// The middle value, the mean of the two middle ones for an even count. @throws std::invalid_argument for no values.
[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) throw std::invalid_argument("median of no values");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace posenc_examples
