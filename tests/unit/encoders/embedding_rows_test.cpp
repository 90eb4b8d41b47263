// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/rotation.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/embedding_rows.hpp>
#include <posenc/math/frequencies.hpp>

#include <array>

using Arch = posenc::simd::default_arch;
using posenc::detail::sine_place;
using posenc_test::refusal;
using posenc_test::values;

TEST_CASE("embedding_rows: a row goes into every head, and what exceeds it is dropped", "[embedding_rows]") {
  const posenc::shape s{.batch = 2, .tokens = 2, .heads = 2, .dim = 5};
  const std::vector<double> row{1, 2, 3, 4};
  for (const bool head_major : {false, true}) {
    std::vector<float> x(static_cast<std::size_t>(s.elements()), 10.0f);
    const posenc::view v{x.data(), s, head_major ? posenc::head_major(s) : posenc::token_major(s)};
    posenc::detail::put_row<Arch, true>(v, 1, 0, 1, row.data(), 4);
    posenc::detail::put_row<Arch, true>(v, 1, 1, 3, row.data(), 4);
    posenc::detail::put_row<Arch, false>(v, 0, 1, 4, row.data(), 4);
    posenc::detail::put_row<Arch, false>(v, 0, 0, 5, row.data(), 4);
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t d = 0; d < 5; ++d) {
        CHECK(v(0, 0, h, d) == 10);
        CHECK(v(0, 1, h, d) == (d == 4 ? 1 : 10));
        CHECK(v(1, 0, h, d) == 10 + static_cast<float>(d));
        CHECK(v(1, 1, h, d) == (d < 3 ? 10 : 8 + static_cast<float>(d)));
      }
  }
}

TEST_CASE("embedding_rows: a sum of mixed storage is rounded once", "[embedding_rows]") {
  // 1 + 2^-11 + 2^-24: rounded to half at once it is 1 + 2^-10, by way of float 1.
  std::vector<Eigen::half> x{Eigen::half(1.0f)};
  const double row[] = {0x1p-11 + 0x1p-24};
  posenc::detail::put_row<Arch, true>(posenc::view{x.data(), {.tokens = 1, .dim = 1}}, 0, 0, 0, row, 1);
  CHECK(static_cast<float>(x[0]) == 1 + 0x1p-10f);
}

TEST_CASE("embedding_rows: sines and cosines where the place says", "[embedding_rows]") {
  // 150 pairs take three blocks of frequencies.
  for (const std::int64_t pairs : {1, 3, 64, 150}) {
    std::vector<posenc::math::turns> steps;
    for (const auto& f : posenc::math::ladder(200, pairs, static_cast<double>(pairs))) steps.emplace_back(f);
    const std::array<sine_place, 9> places{{{0, pairs, 1, pairs, pairs},
                                            {pairs, 0, 1, pairs, pairs},
                                            {0, 1, 2, pairs, pairs},
                                            {1, 0, 2, pairs, pairs},
                                            {0, 1, 2, pairs, pairs - 1},
                                            {1, 0, 2, pairs - 1, pairs},
                                            {1, 4, 6, pairs, pairs},
                                            {2, 5, 3, pairs, 0},
                                            {1, 2, 2, pairs - 1, pairs}}};
    for (const sine_place& p : places)
      for (const std::int64_t dim : {6 * pairs + 5, pairs + 2}) {
        CAPTURE(pairs, p.sine, p.cosine, p.step, p.sines, p.cosines, dim);
        std::vector<double> want(static_cast<std::size_t>(dim), 5.0);
        for (std::int64_t i = 0; i < pairs; ++i) {
          const auto turn = oracle::turn_by(37, oracle::frequency(200, i, static_cast<double>(pairs)));
          if (i < p.sines && p.sine + i * p.step < dim)
            want[static_cast<std::size_t>(p.sine + i * p.step)] += 0.5 * turn.sin;
          if (i < p.cosines && p.cosine + i * p.step < dim)
            want[static_cast<std::size_t>(p.cosine + i * p.step)] += 0.5 * turn.cos;
        }
        std::vector<double> got(want.size(), 5.0);
        posenc::detail::put_sines<Arch, true>(posenc::view{got.data(), {.tokens = 1, .dim = dim}}, 0, 0, steps.data(),
                                              p, 0.5, std::int64_t{37});
        CHECK(posenc_test::largest_difference(got, want) < 4e-15);
      }
  }
}

TEST_CASE("embedding_rows: ids and rows that do not fit are refused", "[embedding_rows]") {
  std::vector<float> x(12);
  const posenc::view v{x.data(), {.batch = 2, .tokens = 2, .dim = 3}};
  const auto check = [&](const std::vector<int>& ids) {
    return refusal([&] { posenc::detail::check_ids("f", v, ids, 2); });
  };
  CHECK(check({0, 1}) == "nothing thrown");
  CHECK(check({0, 1, 1, 0}) == "nothing thrown");
  CHECK(check({0, 1, 1}) == "posenc::f: ids must list one id per token, for one batch row or for each, got 3");
  for (const int bad : {-1, 2})
    CHECK(refusal<std::out_of_range>([&] {
            posenc::detail::check_ids("f", v, std::vector<int>{0, bad}, 2);
          }) == "posenc::f: id must lie in 0..1, got " + std::to_string(bad));
  CHECK(posenc::detail::id_of(v, std::vector<int>{7, 8}, 1, 0) == 7);
  CHECK(posenc::detail::id_of(v, std::vector<int>{7, 8, 9, 10}, 1, 0) == 9);
  CHECK(refusal([&] { posenc::detail::check_rows("f", v, 4); }) == "posenc::f: dim must equal the encoder's, got 3");
  const std::vector<double> reals{1, 2, HUGE_VAL};
  CHECK(refusal([&] {
          posenc::detail::check_cover("f", posenc::real_positions{reals}, 1, 3, 1);
        }).find("positions must be finite") != std::string::npos);
  CHECK(refusal([&] { posenc::detail::check_cover("f", posenc::real_positions{reals}, 1, 2, 1); }) ==
        "posenc::f: positions must list one position per token, got 3");
  CHECK(refusal([&] { posenc::detail::check_cover("f", posenc::positions{}, 1, 2, 2); }) ==
        "posenc::f: positions must have as many axes as the encoder, got 1");
}
