// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/alibi.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

namespace {

using namespace posenc_test;

using dynamic = posenc::run_time_policy<posenc::alibi<float>>;

struct call {
  stored<float> q;
  stored<float> k;
  stored<float> v;
  explicit call(std::int64_t queries) {
    std::mt19937 random(12);
    q = random_stored<float>(random, {2, queries, 4, 8}, 3);
    k = random_stored<float>(random, {2, 140, 2, 8}, 3);
    v = random_stored<float>(random, {2, 140, 2, 8});
  }
  template <class Policy>
  std::vector<float> run(const Policy& policy) {
    stored<float> out({2, q.extents.tokens, 4, 8}, 9);
    posenc::attention(q.view(), k.view(), v.view(), out.view(), policy,
                      {.query_positions = posenc::positions::from(110), .keys = posenc::key_state::unrotated});
    return out.data;
  }
};

}  // namespace

TEST_CASE("a run-time policy gives the bits of the static one") {
  for (const std::int64_t queries : {2, 20}) {
    call c(queries);
    const posenc::rope<float> rope({.head_dim = 8});
    dynamic p{.bias = posenc::alibi<float>(4)};
    p.masks.window = posenc::sliding_window(60);
    p.masks.cache = posenc::cache_length(130);
    p.softcap = 3;
    p.sinks = {0.5, -1, 0, 2};
    p.logit_scale = 1.5;
    p.temperature = posenc::query_temperature{.scale = 0.1, .floor_scale = 16};
    p.rotation = rope;
    const posenc::sinks<float> sinks({0.5f, -1.0f, 0.0f, 2.0f});
    const posenc::logit_scale scale(1.5);
    CHECK(c.run(p) == c.run(posenc::compose(rope, posenc::alibi<float>(4), posenc::softcap(3), sinks, scale,
                                            *p.temperature, posenc::sliding_window(60), posenc::cache_length(130))));
    p.softcap_first = true;
    CHECK(c.run(p) == c.run(posenc::compose(rope, posenc::softcap(3), posenc::alibi<float>(4), sinks, scale,
                                            *p.temperature, posenc::sliding_window(60), posenc::cache_length(130))));
  }
}

TEST_CASE("fields that are absent change nothing") {
  call c(20);
  const dynamic p{.bias = posenc::alibi<float>(4)};
  CHECK(c.run(p) == c.run(posenc::compose(posenc::alibi<float>(4))));
}

TEST_CASE("masks of a run-time policy intersect as those of a pack do") {
  const std::vector<std::int64_t> begin{2, 5};
  const std::vector<std::int64_t> starts{0, 4, 12};
  posenc::run_time_policy<> p;
  p.masks.window = posenc::sliding_window(9);
  p.masks.both_sides = posenc::symmetric_window(7);
  p.masks.chunk = posenc::chunked(5);
  p.masks.causal = true;
  p.masks.padding = posenc::padding{begin, {}};
  p.masks.documents = posenc::documents(starts);
  p.masks.cache = posenc::cache_length(11);
  const auto pack = std::make_tuple(*p.masks.window, *p.masks.both_sides, *p.masks.chunk, posenc::causal{},
                                    *p.masks.padding, *p.masks.documents, *p.masks.cache);
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t i = 0; i < 13; ++i) {
      const posenc::row r{.batch = b, .query_index = i, .query_position = i - 4};
      posenc::interval_list index({0, 20});
      posenc::detail::allow_by_index(pack, r, index);
      for (std::int64_t j = -8; j < 20; ++j) {
        CHECK(p.allow_positions(r).contains(j) == posenc::detail::positions_allowed(pack, r).contains(j));
        CHECK((p.allow_index(r).contains(j) && j >= 0 && j < 20) == index.contains(j));
      }
    }
  posenc::run_time_policy<> prefix;
  prefix.masks.prefix = posenc::prefix_lm(3);
  prefix.masks.both_sides = posenc::symmetric_window(6);
  for (std::int64_t i = -5; i < 10; ++i)
    for (std::int64_t j = -12; j < 12; ++j)
      CHECK(prefix.allow_positions({.query_position = i}).contains(j) == ((j < 3 || j <= i) && j - i < 6 && i - j < 6));
}

TEST_CASE("fields that do not fit the call are refused") {
  const posenc::call c{.batch = 2, .heads = 4, .kv_heads = 2, .queries = 3, .keys = 9, .dim = 8, .value_dim = 8};
  const auto refused = [&](const dynamic& p, const std::string& words) {
    CHECK_THROWS_AS(p.check(c), std::invalid_argument);
    CHECK_THROWS_WITH(p.check(c), contains(words));
  };
  const dynamic fits{.bias = posenc::alibi<float>(4)};
  CHECK_NOTHROW(fits.check(c));
  dynamic p = fits;
  p.masks.causal = true;
  p.masks.prefix = posenc::prefix_lm(2);
  refused(p, "posenc::run_time_policy: masks must not hold causal beside prefix");
  p = fits;
  p.sinks = {1, 2};
  refused(p, "posenc::run_time_policy: sinks must list one sink per head, got 2");
  p = fits;
  p.rotation = posenc::rope<float>({.head_dim = 6});
  refused(p, "posenc::rope: the dim of queries and keys must equal head_dim, got 8");
  p = fits;
  p.temperature = posenc::query_temperature{.floor_scale = 0};
  refused(p, "floor_scale must be positive");
  const std::vector<std::int64_t> lengths{1, 2, 3};
  p = fits;
  p.masks.cache = posenc::cache_length(lengths);
  refused(p, "posenc::cache_length: lengths must list one length per batch row, got 3");
  p = fits;
  p.masks.padding = posenc::padding{{}, lengths};
  refused(p, "posenc::padding: end must list one index per batch row, got 3");
  refused({.bias = posenc::alibi<float>(5)}, "the heads of the bias must equal those of q, got 5");
  p = fits;
  p.softcap = -2;
  refused(p, "softcap");
}
