// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Faults that were reported against other code: position ids, offsets, caches.
#include <posenc/attention/masks.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/irope.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/position_ids.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/rope_table.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include "support/catch.hpp"
#include "support/tolerance.hpp"

#include <array>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

namespace {

using posenc::positions;
using posenc::rope;
using posenc::view;
using posenc_test::largest_difference;

const std::vector<double> x4{1, 2, 3, 4};
const std::vector<double> k4{0.5, -1, 2, 0.25};

std::vector<double> turned(const rope<double>& r, std::vector<double> x, const positions& at) {
  r.rotate(view(x.data(), {.tokens = static_cast<std::int64_t>(x.size()) / 4, .dim = 4}), at);
  return x;
}
std::vector<double> random_numbers(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> draw(-1, 1);
  std::vector<double> x(n);
  for (double& e : x) e = draw(random);
  return x;
}
}  // namespace

TEST_CASE("F14: left padding takes no positions, row by row") {
  const std::vector<int> mask{0, 0, 1, 1, 1, 1, 1, 1};
  const std::vector<std::int64_t> ids = posenc::masked_ids(std::span<const int>(mask), 2);
  CHECK(std::vector(ids.begin() + 2, ids.end()) == std::vector<std::int64_t>{0, 1, 0, 1, 2, 3});
  // With a table the fault shows: the padded row must take rows 0 and 1.
  const std::vector<float> table{10, 20, 30, 40};
  const posenc::learned<float> learned({.rows = 4, .dim = 1}, std::span<const float>(table));
  std::vector<float> x(8, 0);
  learned.embed(view(x.data(), {.batch = 2, .tokens = 4, .dim = 1}), positions::listed(ids, 2));
  CHECK(std::vector(x.begin() + 2, x.end()) == std::vector<float>{10, 20, 10, 20, 30, 40});
  // With RoPE it is hidden inside a row, and shows against an unpadded cache.
  const rope<double> r({.head_dim = 4});
  const std::vector<double> q1 = turned(r, x4, positions::from(1));
  const std::vector<double> k0 = turned(r, k4, positions::from(0));
  CHECK(q1[0] * k0[0] + q1[1] * k0[1] + q1[2] * k0[2] + q1[3] * k0[3] == Approx(2.977749730).epsilon(0).margin(1e-9));
  std::vector<double> padded{0, 0, 0, 0, 0, 0, 0, 0, 0.5, -1, 2, 0.25, 1, 2, 3, 4};
  r.rotate(view(padded.data(), {.tokens = 4, .dim = 4}), positions::listed(std::span(ids).first(4)));
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(padded[8 + i] == k0[i]);
    CHECK(padded[12 + i] == q1[i]);
  }
}

TEST_CASE("F15: negative positions turn the other way") {
  const rope<double> half({.head_dim = 4});
  const rope<double> inter({.head_dim = 4, .layout = posenc::interleaved});
  const std::array<double, 4> right_half{3.064715260, 2.039899334, 0.779435933, 3.979800335};
  const std::array<double, 4> right_inter{2.223244275, 0.239133627, 3.039849335, 3.969800502};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(turned(half, x4, positions::from(-1))[i] == Approx(right_half[i]).epsilon(0).margin(1e-9));
    CHECK(turned(inter, x4, positions::from(-1))[i] == Approx(right_inter[i]).epsilon(0).margin(1e-9));
  }
  for (const std::int64_t p : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{1000000000}}) {
    const std::vector<double> back = turned(half, turned(half, x4, positions::from(p)), positions::from(-p));
    CHECK(largest_difference(back, x4) <= 1e-9);
  }
}

TEST_CASE("F16: given position ids are the ones used") {
  const std::array<std::int64_t, 5> ids{0, 1, 2, 0, 1};
  std::vector<double> x;
  for (int t = 0; t < 5; ++t) x.insert(x.end(), x4.begin(), x4.end());
  const std::vector<double> y = turned(rope<double>({.head_dim = 4}), x, positions::listed(ids));
  for (std::size_t i = 0; i < 8; ++i) CHECK(y[12 + i] == y[i]);
  CHECK(y[0] != y[8]);
}

TEST_CASE("F17: a table refuses what runs over its end, and never gives a short slice") {
  const rope<double> r({.head_dim = 4});
  const posenc::rope_table<double> table(r, 0, 8);
  std::vector<double> x = random_numbers(16, 1);
  const std::vector<double> before = x;
  const auto run = [&](std::int64_t first) {
    table.rotate(view(x.data(), {.tokens = 4, .dim = 4}), positions::from(first));
  };
  CHECK_THROWS_AS(run(6), std::out_of_range);
  CHECK(x == before);  // the first two tokens had rows, and were not turned
  CHECK_THROWS_AS(table.slice(6, 4), std::out_of_range);
  run(4);
  CHECK(x != before);
}

TEST_CASE("F18: the last row of a table is served, the one after it is refused") {
  const rope<float> r({.head_dim = 4});
  const posenc::rope_table<float> table(r, 0, 4096);
  std::vector<float> x{1, 2, 3, 4};
  const view<float> one(x.data(), {.tokens = 1, .dim = 4});
  std::vector<float> right = x;
  r.rotate(view(right.data(), {.tokens = 1, .dim = 4}), positions::from(4095));
  table.rotate(one, positions::from(4095));
  for (std::size_t i = 0; i < 4; ++i) CHECK(x[i] == Approx(right[i]).epsilon(0).margin(1e-6));
  CHECK_THROWS_AS(table.rotate(one, positions::from(4096)), std::out_of_range);
  CHECK_THROWS_AS(table.rotate(one, positions::from(-1)), std::out_of_range);
}

TEST_CASE("F19: a shorter call uses the rows that are there") {
  const rope<double> r({.head_dim = 4});
  const posenc::rope_table<double> table(r, 0, 16);
  const double* rows = table.cos(0);
  const std::vector<double> x = random_numbers(64, 2);
  std::vector<double> first = x;
  std::vector<double> second(x.begin(), x.begin() + 16);
  std::vector<double> third = x;
  table.rotate(view(first.data(), {.tokens = 16, .dim = 4}));
  table.rotate(view(second.data(), {.tokens = 4, .dim = 4}));
  table.rotate(view(third.data(), {.tokens = 16, .dim = 4}));
  CHECK(first == third);
  CHECK(std::equal(second.begin(), second.end(), first.begin()));
  CHECK(table.cos(0) == rows);  // built once, where it was
  CHECK(table.slice(0, 4).rows() == 4);
}

TEST_CASE("F20: token by token is the whole, with offsets 0, 6, 7, 8") {
  const rope<double> r({.head_dim = 4});
  const std::vector<double> q = random_numbers(9 * 4, 3);
  const std::vector<double> k = random_numbers(9 * 4, 4);
  const auto policy = posenc::compose(r, posenc::causal{});
  const auto attend = [&](std::int64_t past, std::int64_t tokens) {
    std::vector<double> cache(k.begin(), k.begin() + 4 * (past + tokens));
    std::vector<double> out(static_cast<std::size_t>(4 * tokens));
    const view<const double> keys(cache.data(), {.tokens = past + tokens, .dim = 4});
    posenc::attention_reference(view<const double>(q.data() + 4 * past, {.tokens = tokens, .dim = 4}), keys, keys,
                                view(out.data(), {.tokens = tokens, .dim = 4}), policy,
                                {.query_positions = positions::from(past), .keys = posenc::key_state::unrotated});
    return out;
  };
  const std::vector<double> whole = attend(0, 9);
  std::vector<double> steps = attend(0, 6);
  for (std::int64_t past = 6; past < 9; ++past) {
    const std::vector<double> step = attend(past, 1);
    steps.insert(steps.end(), step.begin(), step.end());
  }
  CHECK(largest_difference(whole, steps) <= 1e-14);
}

TEST_CASE("F21: a query stands behind its cached keys, and no offset is a type of its own") {
  const rope<double> r({.head_dim = 4});
  CHECK(turned(r, x4, positions::from(4)) != turned(r, x4, positions()));
  CHECK(turned(r, x4, positions()) == x4);                        // nothing said: position 0
  CHECK(turned(r, x4, positions::from(-1)) != x4);                // -1 is a position
  static_assert(!std::is_convertible_v<int, posenc::positions>);  // and no number becomes an offset by accident
}

TEST_CASE("F22: every encoder says whether cached keys can be moved") {
  using posenc::cache_shift;
  const rope<double> r({.head_dim = 4});
  CHECK(r.describe().shift == cache_shift::rotate_keys);
  CHECK(posenc::alibi<float>(4).describe().shift == cache_shift::keep_keys);
  const std::vector<float> table(64);
  CHECK(posenc::relative_bucket<float>({.heads = 2}, table).describe().shift == cache_shift::keep_keys);
  CHECK(posenc::nope::describe().shift == cache_shift::keep_keys);
  CHECK(posenc::learned<float>({.rows = 8, .dim = 8}, table).describe().shift == cache_shift::recompute_keys);
  CHECK(posenc::sinusoidal<float>({.dim = 8}).describe().shift == cache_shift::recompute_keys);

  // RoPE: keys turned by the difference are the keys of the new positions; scores against a moved query stay.
  const std::vector<double> keys = random_numbers(20, 5);
  std::vector<double> moved = turned(r, keys, positions::from(7));
  r.shift(view(moved.data(), {.tokens = 5, .dim = 4}), -7);
  const std::vector<double> fresh = turned(r, keys, positions::from(0));
  CHECK(largest_difference(moved, fresh) <= 1e-12);

  // ALiBi and T5: only positions change, the bias of a pair stays.
  const posenc::alibi<double> alibi(1);
  const auto bias = [&](std::int64_t query, std::int64_t key) {
    return alibi.row<double>({.query_position = query}, posenc::contiguous_keys{key})(0.0, 0);
  };
  CHECK(bias(9, 7) == bias(2, 0));
}
