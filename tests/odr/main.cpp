// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Both units of the program must compute the same, whichever copy of a shared function the linker kept.
#include "support/tolerance.hpp"

#include <cstdio>
#include <vector>

std::vector<double> compute_base(int* lanes);
std::vector<double> compute_high(int* lanes);

int main() {
  int base_lanes = 0, high_lanes = 0;
  const std::vector<double> base = compute_base(&base_lanes);
  const std::vector<double> high = compute_high(&high_lanes);
  const double largest = posenc_test::largest_difference(base, high);
  std::printf("%d and %d lanes, largest difference %.3g\n", base_lanes, high_lanes, largest);
#if defined(__x86_64__)
  if (base_lanes == high_lanes) return 1;
#endif
  // One rounding more or less (a fused product) of values up to 1, in float: 2^-23 covers two.
  return !base.empty() && base.size() == high.size() && largest <= 0x1p-23 ? 0 : 1;
}
