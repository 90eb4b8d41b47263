// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/policy.hpp>

#include "support/catch.hpp"
#include "support/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <set>
#include <vector>

using posenc::interval;
using posenc::interval_list;
using posenc::interval_pair;

namespace {

constexpr std::int64_t universe = 40;  // the oracle looks at -1 .. universe

std::set<std::int64_t> members(const interval& i) {
  std::set<std::int64_t> out;
  for (std::int64_t x = -1; x <= universe; ++x)
    if (x >= i.lo && x < i.hi) out.insert(x);
  return out;
}
std::set<std::int64_t> both(const std::set<std::int64_t>& a, const std::set<std::int64_t>& b) {
  std::set<std::int64_t> out;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(out, out.end()));
  return out;
}
std::set<std::int64_t> either(const std::set<std::int64_t>& a, const std::set<std::int64_t>& b) {
  std::set<std::int64_t> out = a;
  out.insert(b.begin(), b.end());
  return out;
}
/// Sorted, disjoint, none empty, and the members are the oracle's.
bool agrees(const interval_list& list, const std::set<std::int64_t>& right) {
  for (int i = 0; i < list.size(); ++i) {
    if (list[i].empty()) return false;
    if (i > 0 && list[i - 1].hi > list[i].lo) return false;
  }
  for (std::int64_t x = -1; x <= universe; ++x)
    if (list.contains(x) != right.contains(x)) return false;
  return true;
}
interval any_interval(posenc_test::random_source& source) {
  const std::int64_t kind = source.integer(0, 9);
  const std::int64_t a = source.integer(0, universe);
  const std::int64_t b = source.integer(0, universe);
  if (kind == 0) return {interval::lowest, b};
  if (kind == 1) return {a, interval::highest};
  if (kind == 2) return {};
  if (kind == 3) return {a, b};  // empty half of the time
  return {std::min(a, b), std::max(a, b)};
}

}  // namespace

TEST_CASE("policy: intersections of masks are the set intersections", "[core][policy]") {
  posenc_test::random_source source(11);
  int wrong = 0;
  int wrong_totals = 0;
  int most = 0;
  for (int n = 0; n < 4000; ++n) {
    interval_list list{interval{0, universe}};
    std::set<std::int64_t> right = members({0, universe});
    for (std::int64_t masks = source.integer(0, 8); masks > 0; --masks) {
      if (source.integer(0, 3) == 0) {
        const interval one = any_interval(source);
        list.intersect(one);
        right = both(right, members(one));
      } else {
        // Mostly wide unions with a small gap, so that the list grows.
        interval_pair pair{any_interval(source), any_interval(source)};
        if (source.integer(0, 2) != 0) {
          const std::int64_t gap = source.integer(0, universe);
          pair = {interval{gap + source.integer(0, 3), interval::highest}, interval{interval::lowest, gap}};
        }
        list.intersect(pair);
        right = both(right, either(members(pair[0]), members(pair[1])));
      }
      wrong += !agrees(list, right);
    }
    wrong_totals += list.total() != static_cast<std::int64_t>(right.size());
    most = std::max(most, list.size());
  }
  CHECK(wrong == 0);
  CHECK(wrong_totals == 0);
  CHECK(most >= 6);  // the cases are not trivial
}

TEST_CASE("policy: n masks of two intervals leave at most n + 1", "[core][policy]") {
  interval_list list{interval{0, 1000}};
  for (int n = 1; n < interval_list::capacity; ++n) {
    list.intersect(interval_pair{interval{interval::lowest, 10 * n}, interval{10 * n + 5, interval::highest}});
    CHECK(list.size() == n + 1);
  }
  CHECK(list.total() == 1000 - 5 * (interval_list::capacity - 1));
  CHECK(list[interval_list::capacity - 1] == interval{115, 1000});
}

TEST_CASE("policy: a union of intervals that touch or overlap is one interval", "[core][policy]") {
  for (const interval_pair& pair :
       {interval_pair{interval{0, 5}, interval{5, 9}}, interval_pair{interval{5, 9}, interval{0, 5}},
        interval_pair{interval{0, 7}, interval{2, 9}}, interval_pair{interval{0, 9}, interval{3, 4}},
        interval_pair{interval{0, 9}, interval{7, 7}}, interval_pair{interval{8, 8}, interval{0, 9}}}) {
    interval_list list;
    list.intersect(pair);
    REQUIRE(list.size() == 1);
    CHECK(list[0] == interval{0, 9});
  }
}

TEST_CASE("policy: append extends, joins or adds", "[core][policy]") {
  posenc_test::random_source source(12);
  int wrong = 0;
  for (int n = 0; n < 2000; ++n) {
    interval_list list{interval{0, 0}};
    std::set<std::int64_t> right;
    std::int64_t at = 0;
    for (std::int64_t parts = source.integer(0, 10); parts > 0 && at < universe; --parts) {
      const std::int64_t lo = at + source.integer(0, 3);
      const std::int64_t hi = std::min(lo + source.integer(-1, 4), universe);
      list.append({lo, hi});
      right = either(right, members({lo, hi}));
      at = std::max(at, hi);
    }
    wrong += !agrees(list, right);
    for (int i = 1; i < list.size(); ++i) wrong += list[i - 1].hi == list[i].lo;  // touching ones were joined
  }
  CHECK(wrong == 0);
}

TEST_CASE("policy: a fresh list holds every integer, an empty interval none", "[core][policy]") {
  const interval_list all;
  CHECK(all.size() == 1);
  CHECK(all[0] == interval{interval::lowest, interval::highest});
  CHECK(interval_list(interval{3, 3}).size() == 0);
  CHECK(interval_list(interval{4, 3}).total() == 0);
  CHECK(interval{5, 5}.empty());
  CHECK(interval{5, 6}.contains(5));
  CHECK(!interval{5, 6}.contains(6));
}

namespace {
template <class Keys>
int wrong_distances(const Keys& keys, std::int64_t count, std::int64_t query) {
  int wrong = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    const posenc::row r{.query_position = query};
    wrong += posenc::distance<float>(keys, r, k) != static_cast<float>(keys.position(k) - query);
    wrong += posenc::distance<double>(keys, r, k) != static_cast<double>(keys.position(k) - query);
  }
  return wrong;
}
}  // namespace

TEST_CASE("policy: distance is key minus query, formed in int64", "[core][policy]") {
  std::vector<std::int64_t> ids{5, -9, 0, 1000000007, -1000000007, (std::int64_t{1} << 53) + 1, 3};
  const posenc::listed_keys listed{ids.data()};
  for (const std::int64_t query :
       {std::int64_t{0}, std::int64_t{-3}, std::int64_t{1000000006}, std::int64_t{1} << 53}) {
    CHECK(wrong_distances(listed, static_cast<std::int64_t>(ids.size()), query) == 0);
    CHECK(wrong_distances(posenc::contiguous_keys{query - 20}, 40, query) == 0);
    CHECK(wrong_distances(posenc::contiguous_keys{query - (1 << 24) + 1}, 40, query) == 0);
  }
  // Beyond 2^24 two roundings in float: within one step.
  int wrong = 0;
  for (std::int64_t k = 0; k < 40; ++k) {
    const posenc::contiguous_keys keys{(std::int64_t{1} << 25) + 1};
    const double right = static_cast<double>(keys.position(k));
    wrong += std::abs(static_cast<double>(posenc::distance<float>(keys, {}, k)) - right) > 4;
  }
  CHECK(wrong == 0);
  // Positions that no float holds, one apart.
  const posenc::contiguous_keys far{1000000000};
  CHECK(posenc::distance<float>(far, {.query_position = 1000000001}, 0) == -1.0f);
  CHECK(posenc::distance<float>(far, {.query_position = 1000000001}, 3) == 2.0f);
}

TEST_CASE("policy: differences of positions are held, never wrapped", "[core][policy]") {
  constexpr std::int64_t bound = std::int64_t{1} << 62;
  const auto difference = [](std::int64_t a, std::int64_t b) { return posenc::position_difference(a, b); };
  CHECK(difference(5, 9) == -4);
  CHECK(difference(-7, -7) == 0);
  CHECK(difference(interval::highest, interval::lowest) == bound);
  CHECK(difference(interval::lowest, interval::highest) == -bound);
  CHECK(difference(interval::highest, -1) == bound);
  CHECK(difference(0, interval::lowest) == bound);
  CHECK(difference(interval::lowest, 0) == -bound);
  CHECK(difference(interval::highest, interval::highest - 3) == 3);
  CHECK(difference(bound - 1, 0) == bound - 1);
  CHECK(difference(bound + 1, 0) == bound);
}

namespace {
struct nothing {};
struct everything {
  interval allow_positions(const posenc::row&) const { return {}; }
  interval_pair allow_index(const posenc::row&) const { return {}; }
  template <class B, class Keys>
  auto allow_lanes(const posenc::row&, const Keys&) const {
    return [](std::int64_t) { return true; };
  }
  template <class B, class Keys>
  auto row(const posenc::row&, const Keys&) const {
    return [](B s, std::int64_t) { return s; };
  }
  float sink(std::int64_t) const { return 0; }
  float query_scale(std::int64_t, const posenc::position&, std::int64_t) const { return 1; }
  void transform_q(float*, std::int64_t, const posenc::position&, std::int64_t) const {}
  void transform_k(float*, std::int64_t, const posenc::position&, std::int64_t) const {}
  std::size_t workspace_bytes(const posenc::call&) const { return 0; }
  everything bind(std::byte*, const posenc::call&) const { return *this; }
};
template <class P>
constexpr int hooks() {
  return posenc::has_allow_positions<P> + posenc::has_allow_index<P> +
         posenc::has_allow_lanes<P, float, posenc::contiguous_keys> + posenc::has_row<P, float, posenc::listed_keys> +
         posenc::has_sink<P> + posenc::has_query_scale<P> + posenc::has_transform_q<P, float> +
         posenc::has_transform_k<P, float> + posenc::has_bind<P>;
}
}  // namespace

TEST_CASE("policy: hooks are found where they are and nowhere else", "[core][policy]") {
  STATIC_REQUIRE(hooks<nothing>() == 0);
  STATIC_REQUIRE(hooks<int>() == 0);
  STATIC_REQUIRE(hooks<everything>() == 9);
  STATIC_REQUIRE(!posenc::has_transform_q<everything, double>);
}
