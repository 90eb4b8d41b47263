// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Faults that were reported against other code of NoPE and iRoPE.
#include <posenc/attention/compose.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/encoders/irope.hpp>
#include <posenc/encoders/position_ids.hpp>

#include "support/catch.hpp"

#include <vector>

namespace {
std::vector<std::int64_t> seen(std::int64_t query, const std::vector<std::int64_t>& key_positions) {
  const auto list = posenc::detail::positions_allowed(std::make_tuple(posenc::chunked(4)), {.query_position = query});
  std::vector<std::int64_t> keys;
  for (std::size_t j = 0; j < key_positions.size(); ++j)
    if (list.contains(key_positions[j])) keys.push_back(static_cast<std::int64_t>(j));
  return keys;
}
}  // namespace

TEST_CASE("F56: a list of layers says which of them use RoPE") {
  const auto uses = [](const posenc::rope_schedule& s) {
    std::vector<int> all;
    for (std::int64_t l = 0; l < s.layers(); ++l) all.push_back(s.uses_rope(l) ? 1 : 0);
    return all;
  };
  const std::vector<int> right{1, 1, 1, 0, 1, 1, 1, 0};
  CHECK(uses(posenc::rope_schedule::every(4, 8)) == right);
  CHECK(uses(posenc::rope_schedule::listed({}, 8)) == right);
  CHECK(uses(posenc::rope_schedule::listed(right, 8)) == right);
  const std::vector<int> two{1, 0};
  CHECK(uses(posenc::rope_schedule::listed(two, 2)) == two);
  CHECK_THROWS_AS(posenc::rope_schedule::listed(two, 8), std::invalid_argument);
}

TEST_CASE("F57: chunk borders come from positions, for decode, a trimmed cache and left padding") {
  using list = std::vector<std::int64_t>;
  const list whole{0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(seen(3, whole) == list{0, 1, 2, 3});
  CHECK(seen(4, whole) == list{4});
  CHECK(seen(7, whole) == list{4, 5, 6, 7});
  CHECK(seen(5, {0, 1, 2, 3, 4, 5}) == list{4, 5});  // a step of one token
  CHECK(seen(5, {3, 4, 5}) == list{1, 2});           // a cache that lost its first keys
  // Two tokens of padding in front: the chunk comes from position - 2.
  const std::vector<int> mask{0, 0, 1, 1, 1, 1, 1, 1};
  const list ids = posenc::masked_ids(std::span<const int>(mask), 1, -1000);
  CHECK(seen(ids[5], ids) == list{2, 3, 4, 5});
  CHECK(seen(ids[6], ids) == list{6});
}
