// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/eigen.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/simd/batch.hpp>

#include "support/archs.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "support/tolerance.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace simd = posenc::simd;
using posenc_test::archs;

namespace {

template <class T, class Arch>
void check_batch() {
  using B = simd::batch<T, Arch>;
  constexpr int w = simd::width<T, Arch>;
  constexpr std::size_t n = static_cast<std::size_t>(w);
  static_assert(w >= 2 && w % 2 == 0 && w <= posenc::lane_slack);
  posenc_test::random_source source(41);
  int wrong_swap = 0;
  int wrong_greatest = 0;
  posenc_test::worst sum_error;
  for (int round = 0; round < 200; ++round) {
    std::vector<T> x = posenc_test::random_values<T>(n, source.bits(), -100, 100);
    const B b = B::load_unaligned(x.data());
    std::vector<T> out(n);
    simd::swap_pairs(b).store_unaligned(out.data());
    T best = x[0];
    long double total = 0;
    long double size = 0;
    for (std::size_t i = 0; i < n; ++i) {
      wrong_swap += out[i] != x[i ^ 1u];
      best = std::max(best, x[i]);
      total += x[i];
      size += std::fabs(x[i]);
    }
    wrong_greatest += simd::greatest(b) != best;
    const double allowed = posenc_test::reduction<T>(w, static_cast<double>(size));
    sum_error.see(std::fabs(static_cast<long double>(simd::sum(b)) - total) / allowed, round);
  }
  CHECK(wrong_swap == 0);
  CHECK(wrong_greatest == 0);
  CAPTURE(sum_error);
  CHECK(sum_error.error <= 1);
  CHECK(simd::sum(B(T(3))) == T(3 * w));
  CHECK(simd::greatest(B(-std::numeric_limits<T>::infinity())) == -std::numeric_limits<T>::infinity());
  // The greatest lane wherever it stands.
  for (std::size_t at = 0; at < n; ++at) {
    std::vector<T> x(n, T(-5));
    x[at] = T(-4);
    CHECK(simd::greatest(B::load_unaligned(x.data())) == T(-4));
  }
}

template <class T, class Arch>
void check_lanes() {
  using B = simd::batch<T, Arch>;
  using L = posenc::lanes<B>;
  constexpr std::size_t n = static_cast<std::size_t>(L::size);
  static_assert(std::is_same_v<typename L::scalar, T> && L::size == simd::width<T, Arch>);
  const auto values = [](const B& b) {
    std::vector<T> out(n);
    L::store(out.data(), b);
    return out;
  };
  std::vector<T> counting(n);
  std::vector<std::int64_t> integers(n);
  std::vector<double> doubles(n);
  std::vector<Eigen::half> halves(n);
  for (std::size_t i = 0; i < n; ++i) {
    counting[i] = static_cast<T>(i);
    integers[i] = static_cast<std::int64_t>(i);
    doubles[i] = static_cast<double>(i);
    halves[i] = Eigen::half(static_cast<float>(i));
  }
  CHECK(values(L::iota()) == counting);
  CHECK(values(L::load(counting.data())) == counting);
  CHECK(values(L::load(integers.data())) == counting);
  CHECK(values(L::load(doubles.data())) == counting);
  CHECK(values(L::load(halves.data())) == counting);
  CHECK(values(L::broadcast(2.5)) == std::vector<T>(n, T(2.5)));
  CHECK(values(L::abs(L::broadcast(-2))) == std::vector<T>(n, T(2)));
  CHECK(values(L::sqrt(L::broadcast(2))) == std::vector<T>(n, std::sqrt(T(2))));
  int wrong = 0;
  for (std::uint32_t pattern = 0; pattern < (1u << std::min<std::size_t>(n, 10)); ++pattern) {
    bool truth[posenc::lane_slack] = {};
    for (std::size_t i = 0; i < n; ++i) truth[i] = (pattern >> (i % 10)) & 1u;
    const auto mask = L::mask_from(truth);
    wrong += L::any(mask) != (pattern != 0);
    const std::vector<T> chosen = values(L::select(mask, L::broadcast(1), L::iota()));
    for (std::size_t i = 0; i < n; ++i) wrong += chosen[i] != (truth[i] ? T(1) : static_cast<T>(i));
  }
  CHECK(wrong == 0);
  const std::vector<T> above =
      values(L::select(L::greater(L::iota(), L::broadcast(0)), L::broadcast(7), L::broadcast(8)));
  for (std::size_t i = 0; i < n; ++i) wrong += above[i] != (i > 0 ? T(7) : T(8));
  CHECK(wrong == 0);
}

template <class T, class Arch>
void check_distance() {
  using B = simd::batch<T, Arch>;
  constexpr std::int64_t n = posenc::lanes<B>::size;
  std::vector<std::int64_t> ids(40 + posenc::lane_slack);
  posenc_test::random_source source(42);
  for (auto& id : ids) id = 1000000000 + source.integer(-1000, 1000);
  int wrong = 0;
  for (const std::int64_t query : {std::int64_t{0}, std::int64_t{1000000001}, std::int64_t{999999990}}) {
    const posenc::row r{.query_position = query};
    const posenc::contiguous_keys line{query - 17};
    const posenc::listed_keys list{ids.data()};
    for (std::int64_t k = 0; k < 40; k += n) {
      T a[posenc::lane_slack];
      T b[posenc::lane_slack];
      posenc::distance<B>(line, r, k).store_unaligned(a);
      posenc::distance<B>(list, r, k).store_unaligned(b);
      for (std::int64_t i = 0; i < n; ++i) {
        wrong += a[i] != static_cast<T>(k + i - 17);
        wrong += b[i] != static_cast<T>(ids[static_cast<std::size_t>(k + i)] - query);
      }
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("batch: swapped pairs, sum and greatest", "[simd][batch]", archs) {
  check_batch<float, TestType>();
  check_batch<double, TestType>();
}

TEMPLATE_LIST_TEST_CASE("batch: lanes do what the scalar form does, lane by lane", "[simd][batch]", archs) {
  check_lanes<float, TestType>();
  check_lanes<double, TestType>();
}

TEMPLATE_LIST_TEST_CASE("batch: distances of lanes are exact at positions that no float holds", "[simd][batch]",
                        archs) {
  check_distance<float, TestType>();
  check_distance<double, TestType>();
}

TEMPLATE_LIST_TEST_CASE("batch: bits are read as another type without change", "[simd][batch]", archs) {
  using U = simd::batch<std::uint32_t, TestType>;
  using W = simd::batch<std::uint64_t, TestType>;
  float one[posenc::lane_slack];
  simd::bits_as<float>(U(0x3f800000u)).store_unaligned(one);
  CHECK(one[0] == 1.0f);
  double two[posenc::lane_slack];
  simd::bits_as<double>(W(std::uint64_t{0x4000000000000000u})).store_unaligned(two);
  CHECK(two[0] == 2.0);
}

TEMPLATE_TEST_CASE("transpose turns a square of lanes", "", float, double) {
  using B = posenc::simd::batch<TestType>;
  constexpr std::size_t n = B::size;
  std::array<B, n> rows;
  std::array<TestType, n * n> values;
  for (std::size_t i = 0; i < n * n; ++i) values[i] = static_cast<TestType>(i);
  for (std::size_t i = 0; i < n; ++i) rows[i] = B::load_unaligned(values.data() + i * n);
  posenc::simd::transpose(rows);
  std::array<TestType, n * n> turned;
  for (std::size_t i = 0; i < n; ++i) rows[i].store_unaligned(turned.data() + i * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) CHECK(turned[i * n + j] == values[j * n + i]);
}
