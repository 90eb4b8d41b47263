// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/distances.hpp>
#include <posenc/simd/batch.hpp>

#include "support/catch.hpp"
#include "support/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using posenc::lane_slack;
using posenc::listed_keys;
using posenc_test::random_source;

/// n ids over least .. least + span, both ends among them, and their slack.
std::vector<std::int64_t> ids_of(std::int64_t least, std::int64_t span, std::size_t n) {
  random_source source(3);
  std::vector<std::int64_t> ids(n + lane_slack);
  for (std::int64_t& id : ids) id = least + source.integer(0, span);
  ids[n / 2] = least;
  ids[n / 3] = least + span;
  for (std::size_t i = n; i < ids.size(); ++i) ids[i] = ids[n - 1];
  return ids;
}

/// The step of T at |x|.
template <class T>
double step_at(double x) {
  return std::ldexp(1.0, std::max(std::ilogb(std::max(std::abs(x), 1.0)) - std::numeric_limits<T>::digits + 1, 0));
}

/// Distances on the lanes of B that are not exact though they could be, or off by more than a step.
template <class B, class Keys>
int wrong_distances(const Keys& keys, std::int64_t count, std::int64_t query) {
  using L = posenc::lanes<B>;
  using T = typename L::scalar;
  // Lanes of contiguous keys are counted from the first one, which may be rounded already: less exact by one batch, and
  // two steps off.
  constexpr double exact = (std::is_same_v<T, float> ? 0x1p24 : 0x1p53) - (Keys::contiguous ? 16 : 0);
  const posenc::row_distances<B, Keys> distance(keys, {.query_position = query});
  int wrong = 0;
  for (std::int64_t k = 0; k < count; k += L::size) {
    T found[L::size];
    L::store(found, distance(k));
    for (std::int64_t i = 0; i < L::size; ++i) {
      const auto right = static_cast<long double>(keys.position(k + i)) - static_cast<long double>(query);
      const auto error = std::abs(static_cast<long double>(found[i]) - right);
      wrong += std::abs(right) <= exact ? error != 0
                                        : error > (Keys::contiguous ? 2 : 1) * step_at<T>(static_cast<double>(right));
    }
  }
  return wrong;
}

template <class B>
void check_distances() {
  constexpr std::int64_t n = 203;
  for (const std::int64_t span : {std::int64_t{0}, std::int64_t{1000}, (std::int64_t{1} << 24) - 1,
                                  std::int64_t{1} << 24, (std::int64_t{1} << 24) + 1, std::int64_t{1} << 40})
    for (const std::int64_t least : {std::int64_t{0}, std::int64_t{-77}, std::int64_t{1000000007},
                                     (std::int64_t{1} << 55) + 1, -(std::int64_t{1} << 61)}) {
      const std::vector<std::int64_t> ids = ids_of(least, span, n);
      std::vector<float> offsets(ids.size(), -1);
      const listed_keys plain{ids.data()};
      const listed_keys keys =
          posenc::offsets_to_base(ids.data(), static_cast<std::int64_t>(ids.size()), offsets.data());
      REQUIRE((keys.offsets == nullptr) == (span > std::int64_t{1} << 24));
      REQUIRE(keys.ids == ids.data());
      for (std::size_t i = 0; keys.offsets && i < ids.size(); ++i) {
        REQUIRE(std::abs(offsets[i]) <= 0x1p23f);
        REQUIRE(keys.base + static_cast<std::int64_t>(offsets[i]) == ids[i]);
      }
      // Queries among the keys, at their ends, and so far that the base is no float any more while a key is near.
      for (const std::int64_t from :
           {std::int64_t{0}, std::int64_t{-5}, span / 2 + 1, span, span + 9, span + (1 << 23), span + (1 << 24) + 1,
            std::int64_t{-(1 << 24) - 3}, std::int64_t{3} << 26, std::int64_t{5} << 40, std::int64_t{-7} << 40}) {
        INFO("span " << span << ", least " << least << ", query at least + " << from);
        REQUIRE(wrong_distances<B>(keys, n, least + from) == 0);
        REQUIRE(wrong_distances<B>(plain, n, least + from) == 0);
        REQUIRE(wrong_distances<B>(posenc::contiguous_keys{least}, n, least + from) == 0);
      }
    }
}

template <class B, class S>
void check_look_up() {
  using L = posenc::lanes<B>;
  using T = typename L::scalar;
  constexpr std::int64_t n = 130;
  for (const std::int64_t span : {std::int64_t{300}, std::int64_t{1} << 22, std::int64_t{1} << 30})
    for (const auto& [lo, hi] : {std::pair<std::int64_t, std::int64_t>{-100, 100}, {-500, -2}, {0, 0}, {7, 90}}) {
      const std::vector<std::int64_t> ids = ids_of(1000000000, span, n);
      std::vector<float> offsets(ids.size());
      const listed_keys plain{ids.data()};
      const listed_keys keys =
          posenc::offsets_to_base(ids.data(), static_cast<std::int64_t>(ids.size()), offsets.data());
      const std::vector<S> table = posenc_test::random_values<S>(static_cast<std::size_t>(hi - lo + 1), 9);
      for (const std::int64_t query :
           {std::int64_t{1000000000}, 1000000000 + span, std::int64_t{0}, 1000000000 + span / 2}) {
        const posenc::row r{.query_position = query};
        const posenc::listed_look_up<B, S> from_offsets(keys, r, table.data(), lo, hi);
        const posenc::listed_look_up<B, S> from_ids(plain, r, table.data(), lo, hi);
        int wrong = 0;
        for (std::int64_t k = 0; k < n; k += L::size) {
          T a[L::size];
          T b[L::size];
          L::store(a, from_offsets(k));
          L::store(b, from_ids(k));
          for (std::int64_t i = 0; i < L::size; ++i) {
            const std::int64_t d = std::clamp(ids[static_cast<std::size_t>(k + i)] - query, lo, hi);
            const auto right = static_cast<T>(table[static_cast<std::size_t>(d - lo)]);
            wrong += a[i] != right;
            wrong += b[i] != right;
          }
        }
        REQUIRE(wrong == 0);
      }
    }
}

}  // namespace

TEST_CASE("distances: exact up to 2^24 in float and 2^53 in double, wherever ids, base and query lie") {
  check_distances<float>();
  check_distances<double>();
  check_distances<posenc::simd::batch<float>>();
  check_distances<posenc::simd::batch<double>>();
}

TEST_CASE("distances: a table is read at the distance held to its ends") {
  check_look_up<float, float>();
  check_look_up<double, float>();
  check_look_up<posenc::simd::batch<float>, float>();
  check_look_up<posenc::simd::batch<double>, double>();
  check_look_up<posenc::simd::batch<double>, float>();
}

TEST_CASE("distances: a table too wide for lanes is read all the same") {
  constexpr std::int64_t reach = (std::int64_t{1} << 23) + 5;
  std::vector<float> table(2 * reach + 1);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i % 1021);
  std::vector<std::int64_t> ids(40 + lane_slack);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = reach - 20 + static_cast<std::int64_t>(i);
  std::vector<float> offsets(ids.size());
  const listed_keys keys = posenc::offsets_to_base(ids.data(), static_cast<std::int64_t>(ids.size()), offsets.data());
  using B = posenc::simd::batch<float>;
  const posenc::listed_look_up<B, float> value(keys, {}, table.data(), -reach, reach);
  for (std::int64_t k = 0; k < 40; k += posenc::lanes<B>::size) {
    float found[posenc::lanes<B>::size];
    posenc::lanes<B>::store(found, value(k));
    for (std::int64_t i = 0; i < posenc::lanes<B>::size; ++i)
      REQUIRE(found[i] ==
              table[static_cast<std::size_t>(std::min(ids[static_cast<std::size_t>(k + i)], reach) + reach)]);
  }
}

TEST_CASE("distances: no ids have no offsets") {
  CHECK(posenc::offsets_to_base(nullptr, 0, nullptr).offsets == nullptr);
  const std::vector<std::int64_t> ends{std::numeric_limits<std::int64_t>::min(),
                                       std::numeric_limits<std::int64_t>::max()};
  CHECK(posenc::offsets_to_base(ends.data(), 2, nullptr).offsets == nullptr);
}
