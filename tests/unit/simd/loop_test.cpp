// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/eigen.hpp>
#include <posenc/simd/loop.hpp>

#include "support/archs.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "support/tolerance.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace simd = posenc::simd;
using posenc_test::archs;
using posenc_test::guarded;

namespace {

/// y = 2 x + 1 over n elements, by lanes: each element once, nothing outside [0, n) written.
template <class S, class Arch>
void check_lengths() {
  using C = posenc::compute_t<S>;
  using B = simd::batch<C, Arch>;
  int wrong = 0;
  int visits_wrong = 0;
  int spilled = 0;
  for (std::size_t n = 0; n <= 70; ++n) {
    for (const std::size_t shift : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
      // Sized exactly, so that an address sanitizer sees a read past the end.
      const std::vector<S> x = posenc_test::random_values<S>(n, n + 7);
      guarded<S> y(n, shift + 1);
      std::vector<int> visits(n);
      simd::for_lanes<Arch, C>(static_cast<std::int64_t>(n), [&](std::int64_t i, auto at) {
        const std::int64_t count = at.count;
        for (std::int64_t j = i; j < i + count; ++j) ++visits[static_cast<std::size_t>(j)];
        at.store(y.data() + i, at.load(x.data() + i) * B(C(2)) + B(C(1)));
      });
      for (std::size_t i = 0; i < n; ++i) {
        // Doubling is exact, so a fused step gives the same bits.
        const S right = posenc::narrow<S>(posenc::widen(x[i]) * C(2) + C(1));
        wrong += !posenc_test::same_bits(y[i], right);
        visits_wrong += visits[i] != 1;
      }
      spilled += !y.intact();
    }
  }
  CHECK(wrong == 0);
  CHECK(visits_wrong == 0);
  CHECK(spilled == 0);
}

template <class Arch>
void check_in_place() {
  int wrong = 0;
  for (std::size_t n = 0; n <= 70; ++n) {
    const std::vector<float> before = posenc_test::random_values<float>(n, n);
    guarded<float> x(n);
    x.fill(before);
    simd::for_lanes<Arch, float>(static_cast<std::int64_t>(n),
                                 [&](std::int64_t i, auto at) { at.store(x.data() + i, -at.load(x.data() + i)); });
    for (std::size_t i = 0; i < n; ++i) wrong += x[i] != -before[i];
    wrong += !x.intact();
  }
  CHECK(wrong == 0);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("loop: every length from 0 to 70, nothing outside is touched", "[simd][loop]", archs) {
  check_lengths<float, TestType>();
  check_lengths<double, TestType>();
  check_lengths<Eigen::half, TestType>();
  check_lengths<Eigen::bfloat16, TestType>();
}

TEMPLATE_LIST_TEST_CASE("loop: input may be output", "[simd][loop]", archs) { check_in_place<TestType>(); }

TEMPLATE_LIST_TEST_CASE("loop: lanes past the end of a part load as zero", "[simd][loop]", archs) {
  constexpr int w = simd::width<float, TestType>;
  const std::vector<float> ones(static_cast<std::size_t>(w), 1.0f);
  int wrong = 0;
  for (int count = 0; count < w; ++count) {
    const simd::part<TestType, float> at{count};
    wrong += simd::sum(at.load(ones.data())) != static_cast<float>(count);
  }
  CHECK(wrong == 0);
}

TEMPLATE_LIST_TEST_CASE("loop: a value does not depend on where it falls", "[simd][loop]", archs) {
  // The same element as lane of a batch and as part of a tail: the same arithmetic, the same bits.
  const std::vector<float> x = posenc_test::random_values<float>(70, 3, 0.5, 2);
  std::vector<float> whole(70);
  using B = simd::batch<float, TestType>;
  const auto run = [&](const float* from, float* to, std::int64_t n) {
    simd::for_lanes<TestType, float>(n, [&](std::int64_t i, auto at) {
      const B v = at.load(from + i);
      at.store(to + i, xsimd::fma(v, v, v * B(0.1f)));
    });
  };
  run(x.data(), whole.data(), 70);
  int wrong = 0;
  for (std::size_t first = 0; first < 70; ++first)
    for (std::size_t n = 1; first + n <= 70; n += 5) {
      std::vector<float> part(n);
      run(x.data() + first, part.data(), static_cast<std::int64_t>(n));
      wrong += !posenc_test::same_bits(part.data(), whole.data() + first, n);
    }
  CHECK(wrong == 0);
}
