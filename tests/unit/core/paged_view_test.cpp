// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/paged_view.hpp>

#include "support/catch.hpp"
#include "support/inputs.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <vector>

using posenc_test::contains;

namespace {

static_assert(posenc::token_rows<posenc::view<float>> && posenc::token_rows<posenc::view<const double>>);
static_assert(posenc::token_rows<posenc::paged_view<float>> && posenc::token_rows<posenc::paged_view<const double>>);
static_assert(!posenc::token_rows<std::vector<float>>);
static_assert(std::is_convertible_v<posenc::paged_view<float>, posenc::paged_view<const float>>);
static_assert(!std::is_convertible_v<posenc::paged_view<const float>, posenc::paged_view<float>>);

/// A window whose table, firsts and extents are random.
struct random_window {
  posenc::shape extents;
  posenc::page_strides steps;
  std::int64_t page_tokens;
  std::int64_t pages_per_row;
  std::int64_t pages;
  std::vector<std::int32_t> entries;
  std::vector<std::int64_t> firsts;

  random_window(posenc_test::random_source& source, std::int64_t tokens_of_a_page) : page_tokens(tokens_of_a_page) {
    extents = {.batch = source.integer(1, 3), .tokens = source.integer(1, 40), .heads = source.integer(1, 3), .dim = 5};
    steps = {.page = source.integer(-300, 300),
             .token = source.integer(-20, 20),
             .head = source.integer(-9, 9),
             .dim = source.integer(-3, 3)};
    pages = source.integer(1, 9);
    std::int64_t longest = 0;
    for (std::int64_t b = 0; b < extents.batch; ++b) {
      firsts.push_back(source.integer(0, 2 * page_tokens));
      longest = std::max(longest, firsts.back());
    }
    pages_per_row = (longest + extents.tokens + page_tokens - 1) / page_tokens;
    for (std::int64_t i = 0; i < extents.batch * pages_per_row; ++i)
      entries.push_back(static_cast<std::int32_t>(source.integer(0, pages - 1)));
  }
  /// The offset of a token, by walking over the pages one token at a time.
  std::int64_t offset(std::int64_t b, std::int64_t t) const {
    std::size_t entry = static_cast<std::size_t>(b * pages_per_row);
    std::int64_t slot = 0;
    for (std::int64_t i = 0; i < firsts[static_cast<std::size_t>(b)] + t; ++i)
      if (++slot == page_tokens) {
        slot = 0;
        ++entry;
      }
    return entries[entry] * steps.page + slot * steps.token;
  }
  posenc::page_table table() const {
    return {.entries = entries,
            .pages_per_row = pages_per_row,
            .page_tokens = page_tokens,
            .pages = pages,
            .firsts = firsts};
  }
};

}  // namespace

TEST_CASE("paged_view: a row lies in the page that the table names, pages of any size", "[core][paged_view]") {
  posenc_test::random_source source(11);
  std::vector<float> data(20001);
  float* const middle = data.data() + 10000;
  int wrong = 0;
  for (int n = 0; n < 300; ++n) {
    const random_window w(source, n % 3 == 0 ? std::int64_t{1} << source.integer(0, 5) : source.integer(1, 33));
    const posenc::paged_view<const float> v = posenc::paged_view(middle, w.extents, w.steps, w.table());
    std::set<std::uintptr_t> all;
    for (std::int64_t b = 0; b < w.extents.batch; ++b)
      for (std::int64_t t = 0; t < w.extents.tokens; ++t)
        for (std::int64_t h = 0; h < w.extents.heads; ++h)
          for (std::int64_t d = 0; d < w.extents.dim; ++d) {
            const float* const right = middle + w.offset(b, t) + h * w.steps.head + d * w.steps.dim;
            wrong += &v(b, t, h, d) != right;
            all.insert(reinterpret_cast<std::uintptr_t>(right));
          }
    // The range holds every element.
    const posenc::detail::address_range range = posenc::detail::addresses(v);
    wrong += range.lo > *all.begin() || range.hi < *all.rbegin() + sizeof(float);
  }
  CHECK(wrong == 0);
}

TEST_CASE("paged_view: a run ends with its page or with the tokens", "[core][paged_view]") {
  posenc_test::random_source source(12);
  std::vector<float> data(20001);
  int wrong = 0;
  int runs = 0;
  for (int n = 0; n < 100; ++n) {
    const random_window w(source, source.integer(1, 16));
    const posenc::paged_view v(data.data() + 10000, w.extents, w.steps, w.table());
    for (std::int64_t b = 0; b < w.extents.batch; ++b) {
      std::int64_t covered = 0;
      for (std::int64_t t = 0; t < w.extents.tokens; t += v.run(b, t)) {
        const std::int64_t length = v.run(b, t);
        wrong += length < 1 || length > w.page_tokens || t + length > w.extents.tokens;
        for (std::int64_t i = 0; i < length; ++i) {
          wrong += v.row(b, t + i, 0) != v.row(b, t, 0) + i * w.steps.token;
          wrong += v.run(b, t + i) != length - i;
        }
        covered += length;
        ++runs;
      }
      wrong += covered != w.extents.tokens;
    }
  }
  CHECK(wrong == 0);
  CHECK(runs > 500);
  const posenc::view whole(data.data(), {.tokens = 9, .dim = 4});
  CHECK(whole.run(0, 0) == 9);
  CHECK(whole.run(0, 7) == 2);
}

TEST_CASE("paged_view: a ring is one page named twice", "[core][paged_view]") {
  std::vector<float> data(2 * 5 * 3);
  const std::array<std::int32_t, 4> entries{0, 0, 1, 1};
  for (std::int64_t oldest = 0; oldest < 5; ++oldest) {
    const posenc::paged_view v(data.data(), {.batch = 2, .tokens = 5, .heads = 1, .dim = 3}, {.page = 15, .token = 3},
                               {.entries = entries, .pages_per_row = 2, .page_tokens = 5, .pages = 2, .first = oldest});
    for (std::int64_t t = 0; t < 5; ++t) {
      CHECK(v.row(0, t, 0) == data.data() + (oldest + t) % 5 * 3);
      CHECK(v.row(1, t, 0) == data.data() + 15 + (oldest + t) % 5 * 3);
    }
    CHECK(v.run(0, 0) == 5 - oldest);
    CHECK(v.first(1) == oldest);
  }
}

TEST_CASE("paged_view: only the pages that are used count for overlap", "[core][paged_view]") {
  std::vector<float> data(10 * 8);
  const std::array<std::int32_t, 4> entries{-7, 5, 3, 99};
  const posenc::page_strides steps{.page = 8, .token = 2};
  const auto window = [&](std::int64_t first, std::int64_t tokens) {
    return posenc::paged_view<const float>(
        data.data(), {.tokens = tokens, .dim = 2}, steps,
        {.entries = entries, .pages_per_row = 4, .page_tokens = 4, .pages = 10, .first = first});
  };
  const auto check = [&](const posenc::paged_view<const float>& in, std::int64_t from, std::int64_t to) {
    const posenc::view out(data.data() + from, {.tokens = 1, .dim = to - from});
    posenc::detail::check_outside(in, out, "attention", "k");
  };
  // Tokens 4..11 lie in pages 5 and 3: elements 24..47.
  CHECK_NOTHROW(check(window(4, 8), 0, 24));
  CHECK_NOTHROW(check(window(4, 8), 48, 80));
  CHECK_THROWS_WITH(check(window(4, 8), 0, 25),
                    "posenc::attention: out must not overlap what is read to the end, got k");
  CHECK_THROWS_AS(check(window(4, 8), 47, 48), std::invalid_argument);
  CHECK_THROWS_AS(check(window(4, 8), 34, 36), std::invalid_argument);
  // Two tokens of one page: elements 42..45.
  CHECK_NOTHROW(check(window(5, 2), 0, 42));
  CHECK_NOTHROW(check(window(5, 2), 46, 80));
  CHECK_THROWS_AS(check(window(5, 2), 45, 46), std::invalid_argument);
  CHECK_NOTHROW(check(window(4, 0), 0, 80));
  CHECK(posenc::detail::separate(window(5, 2), posenc::view(data.data(), {.tokens = 1, .dim = 42})));
}

TEST_CASE("paged_view: mutable converts to const and nothing is lost", "[core][paged_view]") {
  posenc_test::random_source source(13);
  std::vector<float> data(20001);
  const random_window w(source, 7);
  const posenc::paged_view v(data.data() + 10000, w.extents, w.steps, w.table());
  const posenc::paged_view<const float> c = v;
  CHECK(c.data() == v.data());
  CHECK(c.extents() == v.extents());
  CHECK(c.steps() == v.steps());
  CHECK(c.page_tokens() == 7);
  for (std::int64_t t = 0; t < w.extents.tokens; ++t) {
    CHECK(c.row(0, t, 0) == v.row(0, t, 0));
    CHECK(c.run(0, t) == v.run(0, t));
  }
  CHECK(posenc::detail::addresses(c).lo == posenc::detail::addresses(v).lo);
  CHECK(posenc::detail::addresses(c).hi == posenc::detail::addresses(v).hi);
  const posenc::paged_view<const float> none = posenc::paged_view<float>();
  CHECK(none.empty());
  CHECK(none.data() == nullptr);
  CHECK(none.unit_dim_stride());
}

TEST_CASE("paged_view: refuses tables that do not cover the tokens", "[core][paged_view]") {
  std::vector<float> data(1000);
  const posenc::page_strides steps{.page = 8, .token = 2};
  const std::array<std::int32_t, 4> entries{0, 1, 2, 4};
  const std::array<std::int64_t, 2> firsts{0, 3};
  posenc::page_table table{.entries = entries, .pages_per_row = 2, .page_tokens = 4, .pages = 5};
  const posenc::shape extents{.batch = 2, .tokens = 5, .dim = 2};
  const auto make = [&](const posenc::page_table& t, const posenc::shape& s) {
    return posenc::paged_view<float>(data.data(), s, steps, t);
  };
  const auto with = [&](auto change) {
    posenc::page_table t = table;
    change(t);
    return t;
  };
  CHECK_NOTHROW(make(table, extents));
  CHECK_NOTHROW(make(with([&](auto& t) { t.firsts = firsts; }), extents));
  CHECK_NOTHROW(make(with([](auto& t) { t.first = 3; }), extents));
  CHECK_THROWS_WITH(make(with([](auto& t) { t.first = 4; }), extents),
                    "posenc::paged_view: tokens must end inside the pages of a row, got 5");
  CHECK_THROWS_WITH(make(with([](auto& t) { t.first = -1; }), extents),
                    "posenc::paged_view: first must not be negative, got -1");
  CHECK_THROWS_WITH(make(with([](auto& t) { t.first = INT64_MAX; }), extents), contains("tokens must end inside"));
  CHECK_THROWS_WITH(make(table, {.batch = 2, .tokens = 9, .dim = 2}), contains("tokens must end inside"));
  CHECK_THROWS_WITH(make(table, {.batch = 1, .tokens = 5, .dim = 2}),
                    "posenc::paged_view: entries must list pages_per_row pages for each batch row, got 4");
  CHECK_THROWS_WITH(make(with([](auto& t) { t.pages_per_row = 3; }), extents), contains("entries must list"));
  CHECK_THROWS_WITH(make(with([](auto& t) { t.pages_per_row = 0; }), extents), contains("entries must list"));
  CHECK_THROWS_WITH(make(with([](auto& t) { t.pages_per_row = -1; }), extents), contains("must not be negative"));
  CHECK_THROWS_WITH(make(with([](auto& t) { t.page_tokens = 0; }), extents),
                    "posenc::paged_view: page_tokens must be at least 1, got 0");
  CHECK_THROWS_WITH(make(with([&](auto& t) { t.firsts = std::span(firsts).first(1); }), extents),
                    "posenc::paged_view: firsts must list one offset for each batch row, got 1");
  CHECK_THROWS_WITH(make(with([](auto& t) { t.pages = 4; }), extents),
                    "posenc::paged_view: entries must name pages of the pool, got 4");
  // Entry 4 belongs to token 4 of row 1: four tokens do without it.
  CHECK_NOTHROW(make(with([](auto& t) { t.pages = 4; }), {.batch = 2, .tokens = 4, .dim = 2}));
  const std::array<std::int32_t, 4> negative{0, -1, 2, 4};
  CHECK_THROWS_WITH(make(with([&](auto& t) { t.entries = negative; }), extents), contains("got -1"));
  CHECK_THROWS_WITH(posenc::paged_view<float>(nullptr, extents, steps, table), contains("data must not be null"));
  for (const posenc::shape& s :
       {posenc::shape{.batch = -1, .tokens = 1, .dim = 1}, posenc::shape{.tokens = -1, .dim = 1},
        posenc::shape{.tokens = 1, .heads = -1, .dim = 1}, posenc::shape{.tokens = 1, .dim = -1}})
    CHECK_THROWS_AS(make(table, s), std::invalid_argument);
  CHECK_NOTHROW(posenc::paged_view<float>(nullptr, {.tokens = 0, .dim = 2}, steps, {.page_tokens = 4}));
}
