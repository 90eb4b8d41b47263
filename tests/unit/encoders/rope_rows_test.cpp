// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/rotation.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/rope_rows.hpp>

namespace detail = posenc::detail;
using posenc::kernels::row_form;
using posenc_test::values;
using arch = posenc::simd::default_arch;

namespace {
std::vector<posenc::math::turns> steps_of(std::int64_t rotary_dim) {
  std::vector<posenc::math::turns> steps;
  for (const auto& f : detail::rope_frequencies({.head_dim = rotary_dim}, rotary_dim)) steps.emplace_back(f);
  return steps;
}
}  // namespace

TEST_CASE("rope rows: separate and neighbouring forms hold the same numbers", "[rope]") {
  const auto steps = steps_of(20);
  const detail::rope_frame frame{posenc::half_split, 0, 20, 20, steps.data(), nullptr};
  float c[10];
  float s[10];
  float cc[20];
  float ss[20];
  detail::rope_row<arch, row_form::separate>(frame, 0, 10, std::int64_t{77}, 1.5, -1.0, c, s);
  detail::rope_row<arch, row_form::neighbours>(frame, 0, 10, std::int64_t{77}, 1.5, -1.0, cc, ss);
  for (int i = 0; i < 10; ++i) {
    const auto t = oracle::turn_by(77, oracle::frequency(10000, i, 10));
    CHECK(c[i] == static_cast<float>(1.5 * t.cos));
    CHECK(s[i] == static_cast<float>(-1.5 * t.sin));
    CHECK((cc[2 * i] == c[i] && cc[2 * i + 1] == c[i]));
    CHECK((ss[2 * i] == -s[i] && ss[2 * i + 1] == s[i]));
  }
  // A part of the row is that part of the whole.
  float part_c[3];
  float part_s[3];
  detail::rope_row<arch, row_form::separate>(frame, 4, 3, std::int64_t{77}, 1.5, -1.0, part_c, part_s);
  CHECK(std::equal(part_c, part_c + 3, c + 4));
  CHECK(std::equal(part_s, part_s + 3, s + 4));
}

TEST_CASE("rope rows: interleaved kernels read neighbours only where rows are contiguous", "[rope]") {
  const detail::rope_frame paired{posenc::interleaved, 0, 4, 4, nullptr, nullptr};
  const detail::rope_frame split{posenc::half_split, 0, 4, 4, nullptr, nullptr};
  float x[8] = {};
  const detail::row_span<const float> in{x, 4, 1};
  const detail::row_span<float> out{x, 4, 1};
  CHECK(detail::wants_neighbours(paired, in, out));
  CHECK(!detail::wants_neighbours(split, in, out));
  CHECK(!detail::wants_neighbours(paired, detail::row_span<const float>{x, 4, 2}, out));
  CHECK(!detail::wants_neighbours(paired, in, detail::row_span<float>{x, 4, 2}));
  long double wide[4] = {};
  CHECK(!detail::wants_neighbours(paired, detail::row_span<const long double>{wide, 4, 1},
                                  detail::row_span<long double>{wide, 4, 1}));
}

TEST_CASE("rope rows: channels outside the block are copied, also into other strides", "[rope]") {
  const detail::rope_frame frame{posenc::half_split, 1, 2, 5, nullptr, nullptr};
  const auto x = values<float>(10);
  std::vector<float> out(20, 7.0f);
  detail::copy_rest(frame, detail::row_span<const float>{x.data(), 5, 1}, detail::row_span<float>{out.data(), 10, 2},
                    2);
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t d = 0; d < 5; ++d) CHECK(out[10 * h + 2 * d] == (d == 1 || d == 2 ? 7.0f : x[5 * h + d]));
  CHECK(out[1] == 7.0f);
}

TEST_CASE("rope rows: one token at an integer, a real and a constant position", "[rope]") {
  const auto steps = steps_of(6);
  for (const auto layout : {posenc::half_split, posenc::interleaved}) {
    const detail::rope_frame frame{layout, 0, 6, 6, steps.data(), nullptr};
    const auto x = values<double>(6);
    auto expected = x;
    oracle::rope(expected.data(), {.rotary_dim = 6, .interleaved = layout == posenc::interleaved, .magnitude = 2}, 13);
    auto whole = x;
    auto real = x;
    detail::rotate_token<arch>(frame, detail::row_span<const double>{whole.data(), 0, 1},
                               detail::row_span<double>{whole.data(), 0, 1}, 1, std::int64_t{13}, 2, 1);
    detail::rotate_token<arch>(frame, detail::row_span<const double>{real.data(), 0, 1},
                               detail::row_span<double>{real.data(), 0, 1}, 1, 13.0, 2, 1);
    CHECK(posenc_test::largest_difference(whole, expected) < 2e-15);
    CHECK(posenc_test::largest_difference(real, expected) < 2e-15);
  }
  CHECK(detail::position_of(detail::constant_position{-4}, 1, 2) == -4);
  CHECK(detail::position_of(posenc::positions::from(10), 1, 2) == 12);
  const std::vector<double> at{0.5, 1.5};
  CHECK(detail::position_of(posenc::real_positions{at}, 1, 1) == 1.5);
}
