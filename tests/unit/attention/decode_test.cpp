// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// A few rows against many keys: read as they lie, split at fixed sizes, merged in order; from pages too.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/encoders/alibi.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

#include <numeric>

namespace {

using namespace posenc_test;
constexpr std::int64_t split = posenc::detail::split_keys;
constexpr std::int64_t window = 700;
const std::vector<float> sink_of_head{1.5F, -2, 0, 3};

/// ALiBi, a window and a sink, so that whole splits are hidden.
auto policy() {
  return posenc::compose(posenc::alibi<float>{4}, posenc::sliding_window{window}, posenc::sinks<float>{sink_of_head});
}

struct step {
  stored<float> q, k, v;
  std::int64_t past;

  step(std::int64_t queries, std::int64_t keys, std::int64_t kv_heads = 2) : past(keys - queries) {
    std::mt19937 random(static_cast<unsigned>(keys + queries));
    q = random_stored<float>(random, {2, queries, 4, 20});
    k = random_stored<float>(random, {2, keys, kv_heads, 20});
    v = random_stored<float>(random, {2, keys, kv_heads, 12});
  }
  [[nodiscard]] dense::answer expected() const {
    dense::problem p{.q = to_dense(q), .k = to_dense(k), .v = to_dense(v)};
    p.scale = 1 / std::sqrt(20.0);
    p.visible = [this](auto, auto, auto i, auto j) { return j <= past + i && j > past + i - window; };
    p.logit = [this](auto, auto h, auto i, auto j, double s) {
      return s + std::exp2(-2.0 * static_cast<double>(h + 1)) * static_cast<double>(j - past - i);
    };
    p.sink = [](auto h) { return static_cast<double>(sink_of_head[static_cast<std::size_t>(h)]); };
    return dense::attention(p);
  }
  [[nodiscard]] posenc::shape out() const { return {2, q.extents.tokens, 4, 12}; }
  [[nodiscard]] posenc::attention_options<float> options(stored<float>& lse) const {
    return {.query_positions = posenc::positions::from(past), .lse = lse.view()};
  }
};

/// The rows of x in pages of `size` tokens, shuffled, `first` slots into the first page.
struct paged {
  std::vector<float> pool;
  std::vector<std::int32_t> table;
  posenc::paged_view<const float> view;

  paged(const stored<float>& x, std::int64_t size, std::int64_t first) {
    const posenc::shape& s = x.extents;
    const std::int64_t per_row = (first + s.tokens + size - 1) / size;
    table.resize(static_cast<std::size_t>(s.batch * per_row));
    std::iota(table.begin(), table.end(), 0);
    std::mt19937 random(8);
    std::shuffle(table.begin(), table.end(), random);
    const std::int64_t page = size * s.heads * s.dim;
    pool.assign(static_cast<std::size_t>(s.batch * per_row * page), nan_f);
    const posenc::page_strides steps{.page = page, .token = s.dim, .head = size * s.dim};
    const posenc::page_table pages{
        .entries = table, .pages_per_row = per_row, .page_tokens = size, .pages = s.batch * per_row, .first = first};
    const posenc::paged_view<float> to(pool.data(), s, steps, pages);
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t t = 0; t < s.tokens; ++t)
        for (std::int64_t h = 0; h < s.heads; ++h)
          for (std::int64_t d = 0; d < s.dim; ++d) to(b, t, h, d) = x.read()(b, t, h, d);
    view = to;
  }
};

}  // namespace

TEST_CASE("decode over as many keys as there are around a split, with bias, window and sink, is right") {
  for (const std::int64_t queries : {1, 2, 3, 5})
    for (const std::int64_t keys : {split - 1, split, split + 1, 2 * split + 77, 5 * split}) {
      INFO(queries << " queries, " << keys << " keys");
      step s(queries, keys);
      stored<float> out(s.out(), 9), lse({2, queries, 4, 1}, 9);
      posenc::attention(s.q.view(), s.k.view(), s.v.view(), out.view(), policy(), s.options(lse));
      const dense::answer right = s.expected();
      CHECK(relative_error(out.data, right.out.data) <= 2e-6);
      CHECK(relative_error(lse.data, right.lse.data) <= 2e-6);
    }
}

TEST_CASE("what hidden keys and values hold reaches no split, and a row that sees none is its sink") {
  step s(1, 3 * split);
  stored<float> out(s.out()), lse({2, 1, 4, 1}), again(s.out()), lse_again({2, 1, 4, 1});
  posenc::attention(s.q.view(), s.k.view(), s.v.view(), out.view(), policy(), s.options(lse));
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t t = 0; t < 3 * split - window; ++t)
      for (std::int64_t h = 0; h < 2; ++h) {
        s.k(b, t, h, t % 20) = t % 2 ? nan_f : inf_f;
        s.v(b, t, h, t % 12) = t % 2 ? inf_f : nan_f;
      }
  posenc::attention(s.q.view(), s.k.view(), s.v.view(), again.view(), policy(), s.options(lse_again));
  CHECK(again.data == out.data);
  CHECK(lse_again.data == lse.data);
  // The query stands before every key.
  posenc::attention_options<float> before = s.options(lse_again);
  before.query_positions = posenc::positions::from(-1);
  posenc::attention(s.q.view(), s.k.view(), s.v.view(), again.view(), policy(), before);
  for (const float x : again.data) CHECK(x == 0);
  for (std::size_t i = 0; i < 8; ++i) CHECK(lse_again.data[i] == sink_of_head[i % 4]);
  before.count_sink = false;
  posenc::attention(s.q.view(), s.k.view(), s.v.view(), again.view(), policy(), before);
  for (const float x : lse_again.data) CHECK(x == -inf_f);
}

TEST_CASE("a value that a row sees and that is not finite gives what the sum of all its terms gives") {
  step s(1, 2 * split);
  s.v(0, split + 3, 0, 2) = inf_f;
  s.v(0, split + 5, 1, 4) = nan_f;
  stored<float> out(s.out());
  posenc::attention(s.q.view(), s.k.view(), s.v.view(), out.view(), posenc::compose(posenc::causal{}),
                    {.query_positions = posenc::positions::from(s.past)});
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t h = 0; h < 4; ++h)
      for (std::int64_t d = 0; d < 12; ++d) {
        const float x = out(b, 0, h, d);
        if (b == 0 && h < 2 && d == 2) {
          CHECK(x == inf_f);
        } else if (b == 0 && h >= 2 && d == 4) {
          CHECK(x != x);
        } else {
          CHECK(std::isfinite(x));
        }
      }
}

TEST_CASE("keys and values in pages give the bits of the same rows in one piece") {
  for (const std::int64_t queries : {1, 3, 40})
    for (const std::int64_t size : {1, 16, 100}) {
      INFO(queries << " queries, pages of " << size);
      step s(queries, queries == 40 ? 300 : split + 50);
      stored<float> out(s.out()), lse({2, queries, 4, 1}), again(s.out()), lse_again({2, queries, 4, 1});
      posenc::attention(s.q.view(), s.k.view(), s.v.view(), out.view(), policy(), s.options(lse));
      const paged k(s.k, size, size / 2), v(s.v, size, size / 3);
      posenc::attention(s.q.view(), k.view, v.view, again.view(), policy(), s.options(lse_again));
      CHECK(again.data == out.data);
      CHECK(lse_again.data == lse.data);
    }
}

TEST_CASE("a count of visible keys that is given takes the place of those seen here") {
  step s(2, 50);
  const auto scaled = posenc::compose(posenc::ssmax(std::vector<double>{0.5, 0.25, 1, 2}), posenc::causal{});
  stored<float> out(s.out()), again(s.out());
  const posenc::positions at = posenc::positions::from(s.past);
  posenc::attention(s.q.view(), s.k.view(), s.v.view(), out.view(), scaled, {.query_positions = at});
  std::vector<std::int64_t> count(16);
  for (std::size_t i = 0; i < 16; ++i) count[i] = i / 4 % 2 ? 50 : 49;
  const posenc::view<const std::int64_t> visible(count.data(), {2, 2, 4, 1});
  posenc::attention(s.q.view(), s.k.view(), s.v.view(), again.view(), scaled,
                    {.query_positions = at, .visible_keys = visible});
  CHECK(again.data == out.data);
  count.assign(16, 4000);
  posenc::attention(s.q.view(), s.k.view(), s.v.view(), again.view(), scaled,
                    {.query_positions = at, .visible_keys = visible});
  CHECK(again.data != out.data);
  count[3] = -1;
  CHECK_THROWS_AS(posenc::attention(s.q.view(), s.k.view(), s.v.view(), again.view(), scaled,
                                    {.query_positions = at, .visible_keys = visible}),
                  std::invalid_argument);
}
