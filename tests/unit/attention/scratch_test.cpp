// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"

#include <posenc/attention/scratch.hpp>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

using posenc::interval;
using posenc::detail::indices_of;

namespace {

constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();

/// Whether the indices found are those of the keys, one by one, that the interval contains.
template <class Keys>
bool right(const Keys& keys, std::int64_t count, const interval& positions) {
  const interval found = indices_of(keys, count, positions);
  for (std::int64_t k = 0; k < count; ++k)
    if ((found.lo <= k && k < found.hi) != (positions.contains(keys.position(k)) && !positions.empty())) return false;
  return found.lo >= 0 && found.lo <= count && found.hi >= 0 && found.hi <= count;
}

/// Every interval whose ends are `near` or next to one of them, whatever their order.
template <class Keys>
void check_intervals(const Keys& keys, std::int64_t count, const std::vector<std::int64_t>& near) {
  std::vector<std::int64_t> ends{lowest, lowest + 1, -1, 0, 1, highest - 1, highest};
  for (const std::int64_t p : near) {
    ends.push_back(p);
    if (p != lowest) ends.push_back(p - 1);
    if (p != highest) ends.push_back(p + 1);
  }
  for (const std::int64_t lo : ends)
    for (const std::int64_t hi : ends) {
      CAPTURE(count, lo, hi);
      CHECK(right(keys, count, {lo, hi}));
    }
}

using span = std::pair<std::size_t, std::size_t>;

/// [start, end) of every field of the scratch, as attention uses it.
template <class C, class Arch>
std::vector<span> fields(const posenc::detail::scratch_layout<C, Arch>& l) {
  const auto rows = static_cast<std::size_t>(l.rows);
  const auto dim = static_cast<std::size_t>(l.dim);
  const auto value = static_cast<std::size_t>(l.value_step);
  const auto keys = static_cast<std::size_t>(posenc::detail::tile_keys);
  std::vector<span> out;
  const auto field = [&](std::size_t start, std::size_t bytes) {
    if (bytes > 0) out.push_back({start, start + bytes});
  };
  field(l.query, rows * dim * sizeof(C));
  field(l.score, static_cast<std::size_t>(l.band) * keys * sizeof(C));
  field(l.sum, rows * value * sizeof(C));
  field(l.partial, l.packed ? 0 : rows * value * sizeof(C));
  field(l.highest, rows * sizeof(C));
  field(l.total, rows * sizeof(C));
  field(l.key, l.packed ? keys * dim * sizeof(C) : 0);
  field(l.value, l.packed ? keys * value * sizeof(C) : 0);
  field(l.line, static_cast<std::size_t>(posenc::detail::line_rows<C, Arch> * l.line_step) * sizeof(C));
  field(l.state, rows * sizeof(posenc::detail::row_state));
  return out;
}

posenc::call shape_of(std::int64_t queries, std::int64_t keys, std::int64_t dim, std::int64_t value_dim) {
  return {.batch = 2, .heads = 4, .kv_heads = 2, .queries = queries, .keys = keys, .dim = dim, .value_dim = value_dim};
}

}  // namespace

TEST_CASE("scratch: indices of contiguous keys, to both ends of int64", "[attention][scratch]") {
  for (const std::int64_t count : {0, 1, 5})
    for (const std::int64_t first :
         {lowest, lowest + 1, std::int64_t{-3}, std::int64_t{0}, std::int64_t{100}, highest - 5, highest - 4})
      check_intervals(posenc::contiguous_keys{first}, count, {first, first + 2, first + 4});
}

TEST_CASE("scratch: indices of sorted keys, duplicates and both ends of int64", "[attention][scratch]") {
  const std::vector<std::vector<std::int64_t>> lists{
      {},
      {7},
      {-5, -5, 0, 3, 3, 3, 9},
      {4, 4, 4, 4},
      {lowest, lowest, -1, highest - 1},
      {lowest + 1, 0, highest - 1, highest, highest},
      {highest},
      {lowest},
  };
  for (const auto& ids : lists)
    check_intervals(posenc::listed_keys{ids.data()}, static_cast<std::int64_t>(ids.size()), ids);
}

TEST_CASE("scratch: indices known by hand", "[attention][scratch]") {
  const posenc::contiguous_keys from_ten{10};
  CHECK(indices_of(from_ten, 8, {12, 15}) == interval{2, 5});
  CHECK(indices_of(from_ten, 8, {}) == interval{0, 8});
  CHECK(indices_of(from_ten, 8, {lowest, 11}) == interval{0, 1});
  CHECK(indices_of(from_ten, 8, {13, 13}) == interval{3, 3});
  CHECK(indices_of(from_ten, 8, {18, 30}).empty());
  // An upper end of `highest` is open: the last position there is belongs to it.
  CHECK(indices_of(posenc::contiguous_keys{highest - 1}, 2, {highest, highest}) == interval{1, 2});
  const std::vector<std::int64_t> ids{2, 5, 5, 9};
  const posenc::listed_keys listed{ids.data()};
  CHECK(indices_of(listed, 4, {5, 6}) == interval{1, 3});
  CHECK(indices_of(listed, 4, {6, 9}).empty());
  CHECK(indices_of(listed, 4, {3, highest}) == interval{1, 4});
}

TEMPLATE_TEST_CASE("scratch: fields start on 64 bytes, apart from each other and inside", "[attention][scratch]", float,
                   double) {
  using layout = posenc::detail::scratch_layout<TestType, posenc::simd::default_arch>;
  for (const std::int64_t queries : {0, 1, 5, 6, 47, 48, 95, 1000})
    for (const std::int64_t dim : {1, 3, 64, 129})
      for (const std::int64_t value_dim : {1, 17, 128}) {
        CAPTURE(queries, dim, value_dim);
        const auto c = shape_of(queries, 300, dim, value_dim);
        const layout l(c);
        // Two heads share a key head, so 6 queries make the 12 rows from which keys are packed.
        CHECK(l.packed == (queries >= 6));
        CHECK(l.rows == std::min<std::int64_t>(2 * queries, 192));
        CHECK(l.band == std::min<std::int64_t>(2 * queries, 96));
        CHECK(l.line_step == std::max(dim, value_dim));
        CHECK(l.value_step >= value_dim);
        auto all = fields(l);
        std::sort(all.begin(), all.end());
        std::size_t end = 0;
        for (const span& f : all) {
          CHECK(f.first % 64 == 0);
          CHECK(f.first >= end);
          end = f.second;
        }
        CHECK(end <= l.bytes);
        CHECK(l.bytes % 64 == 0);
      }
}

TEST_CASE("scratch: its size follows neither the number of keys nor, past a block, that of queries",
          "[attention][scratch]") {
  using layout = posenc::detail::scratch_layout<float, posenc::simd::default_arch>;
  for (const std::int64_t queries : {1, 6, 48, 1000}) {
    const std::size_t bytes = layout(shape_of(queries, 1, 64, 64)).bytes;
    for (const std::int64_t keys : {std::int64_t{0}, std::int64_t{127}, std::int64_t{129}, std::int64_t{1} << 40})
      CHECK(layout(shape_of(queries, keys, 64, 64)).bytes == bytes);
  }
  CHECK(layout(shape_of(96, 9, 64, 64)).bytes == layout(shape_of(1'000'000, 9, 64, 64)).bytes);
  CHECK(layout(shape_of(1, 9, 64, 64)).bytes < layout(shape_of(48, 9, 64, 64)).bytes);
}
