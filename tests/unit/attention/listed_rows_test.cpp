// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/listed_rows.hpp>
#include <posenc/simd/batch.hpp>

#include "support/catch.hpp"
#include "support/inputs.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using posenc::detail::list_rows;
using posenc::detail::listed_bytes;

TEST_CASE("listed rows: every batch row has its ids, their offsets and whether they are sorted") {
  constexpr std::int64_t keys = 21;
  std::vector<std::int64_t> ids;
  for (std::int64_t j = 0; j < keys; ++j) ids.push_back(1000000000 + 3 * j);           // sorted
  for (std::int64_t j = 0; j < keys; ++j) ids.push_back((j * 8) % keys - 5);           // in no order
  for (std::int64_t j = 0; j < keys; ++j) ids.push_back(j * (std::int64_t{1} << 30));  // sorted, far apart
  const posenc::call c{.batch = 3, .keys = keys, .key_positions = posenc::positions::listed(ids, 3)};
  const std::size_t bytes = listed_bytes(c);
  CHECK(bytes == 3 * (32 + (keys + posenc::lane_slack) * 12));
  std::vector<std::byte> memory(bytes + 8, std::byte{0x5a});
  const auto* rows = list_rows(c, memory.data());
  for (std::size_t i = bytes; i < memory.size(); ++i) REQUIRE(memory[i] == std::byte{0x5a});
  for (std::int64_t b = 0; b < 3; ++b) {
    CHECK(rows[b].sorted == (b != 1));
    CHECK((rows[b].keys.offsets != nullptr) == (b != 2));
    for (std::int64_t j = 0; j < keys + posenc::lane_slack; ++j) {
      const std::int64_t right = ids[static_cast<std::size_t>(b * keys + std::min(j, keys - 1))];
      REQUIRE(rows[b].keys.position(j) == right);
      if (rows[b].keys.offsets)
        REQUIRE(rows[b].keys.base + static_cast<std::int64_t>(rows[b].keys.offsets[j]) == right);
    }
  }
}

TEST_CASE("listed rows: one list for all batch rows, and none where keys are contiguous") {
  const std::vector<std::int64_t> ids{4, 2, 9};
  const posenc::call c{.batch = 2, .keys = 3, .key_positions = posenc::positions::listed(ids)};
  std::vector<std::byte> memory(listed_bytes(c));
  const auto* rows = list_rows(c, memory.data());
  CHECK(rows[1].keys.position(2) == 9);
  CHECK(rows[0].keys.ids != rows[1].keys.ids);
  CHECK(listed_bytes(posenc::call{.batch = 2, .keys = 3}) == 0);
}

namespace {

/// Lanes on which the mask differs from the intervals themselves.
template <class B>
int wrong_lanes(const posenc::listed_keys& keys, const posenc::interval_list& allowed, std::int64_t n) {
  using L = posenc::lanes<B>;
  using T = typename L::scalar;
  const posenc::detail::listed_mask<B> mask(keys, allowed);
  int wrong = 0;
  for (std::int64_t k = 0; k < n; k += L::size) {
    T lane[L::size];
    L::store(lane, L::select(mask(k), L::broadcast(T(1)), L::broadcast(T(0))));
    for (std::int64_t i = 0; i < L::size; ++i) wrong += (lane[i] == 1) != allowed.contains(keys.position(k + i));
  }
  return wrong;
}

}  // namespace

TEST_CASE("listed rows: a mask by position sees the keys of its intervals, with offsets and without") {
  using posenc::interval;
  posenc_test::random_source source(6);
  constexpr std::int64_t n = 96;
  for (const std::int64_t span : {std::int64_t{60}, std::int64_t{1} << 24, std::int64_t{1} << 26})
    for (const std::int64_t least :
         {std::int64_t{0}, std::int64_t{-30}, std::int64_t{1} << 40, interval::lowest, interval::highest - span - 1}) {
      std::vector<std::int64_t> ids(n + posenc::lane_slack);
      for (std::int64_t& id : ids) id = least + source.integer(0, span);
      ids[3] = least;
      ids[4] = least + span;
      std::vector<float> offsets(ids.size());
      const auto keys = posenc::offsets_to_base(ids.data(), static_cast<std::int64_t>(ids.size()), offsets.data());
      REQUIRE((keys.offsets == nullptr) == (span > std::int64_t{1} << 24));
      int wrong = 0;
      for (int round = 0; round < 40; ++round) {
        posenc::interval_list allowed;
        for (std::int64_t masks = source.integer(0, 4); masks > 0; --masks) {
          const std::int64_t a = ids[static_cast<std::size_t>(source.integer(0, n - 1))];
          const std::int64_t b = ids[static_cast<std::size_t>(source.integer(0, n - 1))];
          switch (source.integer(0, 3)) {
            case 0: allowed.intersect(interval{std::min(a, b), std::max(a, b)}); break;
            case 1: allowed.intersect(interval{interval::lowest, a}); break;
            case 2: allowed.intersect(interval{a, interval::highest}); break;
            default:
              allowed.intersect(
                  {interval{interval::lowest, std::min(a, b)}, interval{std::max(a, b), interval::highest}});
          }
        }
        wrong += wrong_lanes<posenc::simd::batch<float>>(keys, allowed, n);
        wrong += wrong_lanes<posenc::simd::batch<double>>(keys, allowed, n);
        wrong += wrong_lanes<float>(keys, allowed, n);
      }
      INFO("span " << span << ", least " << least);
      CHECK(wrong == 0);
    }
}
