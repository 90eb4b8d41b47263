// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/math/buckets.hpp>

#include "reference/natural.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

using posenc::math::t5_buckets;
using posenc_test::contains;
using reference::natural;
using reference::power;

namespace {

/// Bucket of distance n on one side, in integers: e + k is right when (n/e)^(side-e) >= (m/e)^k, that is
/// n^(side-e) e^k >= m^k e^(side-e).
class exact_side {
 public:
  exact_side(std::int64_t side, std::int64_t max_distance) : exact_(side / 2) {
    const auto e = static_cast<std::uint64_t>(exact_);
    const auto steps = static_cast<std::uint64_t>(side - exact_);
    const natural scale = power(natural(e), steps);
    natural mk(1);
    natural ek(1);
    std::int64_t n = exact_;
    for (std::uint64_t k = 1; k < steps; ++k) {
      mk = mk * natural(static_cast<std::uint64_t>(max_distance));
      ek = ek * natural(e);
      const natural right = mk * scale;
      const auto reached = [&](std::int64_t x) {
        return power(natural(static_cast<std::uint64_t>(x)), steps) * ek >= right;
      };
      std::int64_t low = n;  // the first n that reaches k lies in low .. high
      std::int64_t high = max_distance;
      while (low < high) {
        const std::int64_t middle = (low + high) / 2;
        if (reached(middle))
          high = middle;
        else
          low = middle + 1;
      }
      n = low;
      borders_.push_back(n);
    }
  }
  [[nodiscard]] std::int64_t operator()(std::int64_t n) const {
    if (n < exact_) return n;
    std::int64_t bucket = exact_;
    for (const std::int64_t border : borders_) bucket += n >= border;
    return bucket;
  }

 private:
  std::int64_t exact_;
  std::vector<std::int64_t> borders_;
};

struct bucket_options {
  std::int64_t buckets;
  std::int64_t max_distance;
};
constexpr bucket_options many[] = {{32, 128},  {64, 256},   {32, 256},  {320, 800},   {4, 2},     {4, 3},   {8, 5},
                                   {8, 16},    {12, 81},    {16, 64},   {16, 512},    {20, 100},  {32, 17}, {32, 2048},
                                   {40, 1000}, {48, 160},   {100, 333}, {128, 128},   {256, 800}, {6, 27},  {10, 250},
                                   {24, 6000}, {512, 4096}, {36, 6561}, {32, 1 << 16}};

}  // namespace

TEST_CASE("buckets: every border lies where integer arithmetic puts it", "[math][buckets]") {
  for (const bucket_options& o : many) {
    for (const bool bidirectional : {false, true}) {
      const std::int64_t side = bidirectional ? o.buckets / 2 : o.buckets;
      if (o.max_distance <= side / 2) continue;
      const t5_buckets got(o.buckets, o.max_distance, bidirectional);
      const exact_side right(side, o.max_distance);
      int wrong = 0;
      std::int64_t first_wrong = 0;
      for (std::int64_t n = 0; n <= o.max_distance + 3; ++n) {
        const std::int64_t past = right(n);
        const std::int64_t future = bidirectional ? past + side : 0;
        if (got(-n) != past || (n > 0 && got(n) != future)) {
          if (wrong++ == 0) first_wrong = n;
        }
      }
      CAPTURE(o.buckets, o.max_distance, bidirectional, first_wrong);
      CHECK(wrong == 0);
      CHECK(got.max_distance() == o.max_distance);
    }
  }
}

namespace {
/// First distance of each bucket that has one.
std::map<std::int64_t, std::int64_t> first_distances(const t5_buckets& b, std::int64_t sign, std::int64_t up_to) {
  std::map<std::int64_t, std::int64_t> out;
  for (std::int64_t n = 0; n <= up_to; ++n) out.try_emplace(b(sign * n), n);
  return out;
}
using table = std::map<std::int64_t, std::int64_t>;
}  // namespace

TEST_CASE("buckets: the published settings", "[math][buckets]") {
  table past{{8, 8}, {9, 12}, {10, 16}, {11, 23}, {12, 32}, {13, 46}, {14, 64}, {15, 91}};
  for (std::int64_t n = 0; n < 8; ++n) past[n] = n;
  CHECK(first_distances(t5_buckets(32, 128, true), -1, 5000) == past);
  table future{{0, 0}};  // bucket 16 is never used
  for (const auto& [bucket, n] : past)
    if (n > 0) future[bucket + 16] = n;
  CHECK(first_distances(t5_buckets(32, 128, true), 1, 5000) == future);

  table causal{{16, 16}, {17, 19}, {18, 21}, {19, 24}, {20, 27}, {21, 31}, {22, 35}, {23, 40},
               {24, 46}, {25, 52}, {26, 59}, {27, 67}, {28, 77}, {29, 87}, {30, 99}, {31, 113}};
  for (std::int64_t n = 0; n < 16; ++n) causal[n] = n;
  CHECK(first_distances(t5_buckets(32, 128, false), -1, 5000) == causal);
  CHECK(first_distances(t5_buckets(32, 128, false), 1, 5000) == table{{0, 0}});

  table wide{{16, 16}, {17, 20}, {18, 23}, {19, 27},  {20, 32},  {21, 39},  {22, 46},  {23, 54},
             {24, 64}, {25, 77}, {26, 91}, {27, 108}, {28, 128}, {29, 153}, {30, 182}, {31, 216}};
  for (std::int64_t n = 0; n < 16; ++n) wide[n] = n;
  CHECK(first_distances(t5_buckets(64, 256, true), -1, 5000) == wide);
}

TEST_CASE("buckets: never falling with distance, all distances beyond the last share it", "[math][buckets]") {
  for (const bucket_options& o : {bucket_options{32, 128}, bucket_options{320, 800}}) {
    const t5_buckets b(o.buckets, o.max_distance, true);
    const std::int64_t side = o.buckets / 2;
    int falls = 0;
    for (std::int64_t n = 1; n < 2000; ++n) falls += b(-n) < b(1 - n) || (n > 1 && b(n) < b(n - 1));
    CHECK(falls == 0);
    for (const std::int64_t far : {o.max_distance, o.max_distance + 1, std::int64_t{1} << 31, std::int64_t{1} << 40,
                                   std::numeric_limits<std::int64_t>::max()}) {
      CHECK(b(-far) == side - 1);
      CHECK(b(far) == 2 * side - 1);
    }
    CHECK(b(std::numeric_limits<std::int64_t>::min()) == side - 1);
  }
  const t5_buckets causal(32, 128, false);
  CHECK(causal(std::numeric_limits<std::int64_t>::min()) == 31);
  CHECK(causal(std::numeric_limits<std::int64_t>::max()) == 0);
}

TEST_CASE("buckets: refuses what has no borders", "[math][buckets]") {
  CHECK_THROWS_WITH(t5_buckets(2, 128, true), contains("num_buckets must be at least 4 when bidirectional, got 2"));
  CHECK_THROWS_WITH(t5_buckets(1, 128, false), contains("num_buckets must be at least 2, got 1"));
  CHECK_THROWS_WITH(t5_buckets(0, 128, false), contains("num_buckets"));
  CHECK_THROWS_WITH(t5_buckets(-32, 128, true), contains("num_buckets"));
  CHECK_THROWS_WITH(t5_buckets(33, 128, true), contains("num_buckets must be even when bidirectional, got 33"));
  CHECK_THROWS_WITH(t5_buckets(32, 8, true), contains("max_distance must exceed"));
  CHECK_THROWS_WITH(t5_buckets(32, 16, false), contains("max_distance must exceed"));
  CHECK_THROWS_AS(t5_buckets(32, -1, false), std::invalid_argument);
  CHECK_NOTHROW(t5_buckets(32, 9, true));
  CHECK_NOTHROW(t5_buckets(4, 2, true));
  CHECK_NOTHROW(t5_buckets(2, 2, false));
}
