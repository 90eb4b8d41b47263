// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Laws of attention in parts: the keys of a sequence are dealt to shards that keep their global positions, each shard
// is attended on its own, and what is merged is attention over all keys.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/merge.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/shaw.hpp>

#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace {

using laws::random_case;

constexpr std::int64_t heads = 4, kv_heads = 2, dim = 16;

struct tensor {
  posenc::shape extents;
  std::vector<float> data;
  tensor() = default;
  tensor(random_case& random, const posenc::shape& s) : extents(s), data(random.vector<float>(s.elements())) {}
  explicit tensor(const posenc::shape& s) : extents(s), data(static_cast<std::size_t>(s.elements())) {}
  [[nodiscard]] posenc::view<float> view() { return {data.data(), extents}; }
  [[nodiscard]] posenc::view<const float> read() const { return {data.data(), extents}; }
};

/// Which keys a shard holds.
using shard = std::vector<std::int64_t>;

/// Stretches between cuts at any points; some are empty.
std::vector<shard> stretches(random_case& random, std::int64_t keys, std::int64_t count) {
  std::vector<std::int64_t> cuts{0, keys};
  for (std::int64_t i = 1; i < count; ++i) cuts.push_back(random.coin() ? random.whole(0, keys) : cuts.back());
  std::sort(cuts.begin(), cuts.end());
  std::vector<shard> all;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    all.emplace_back();
    for (std::int64_t j = cuts[i]; j < cuts[i + 1]; ++j) all.back().push_back(j);
  }
  return all;
}
/// Every count-th key, as ring attention deals them so that causal work is even.
std::vector<shard> stripes(std::int64_t keys, std::int64_t count) {
  std::vector<shard> all(static_cast<std::size_t>(count));
  for (std::int64_t j = 0; j < keys; ++j) all[static_cast<std::size_t>(j % count)].push_back(j);
  return all;
}

struct result {
  tensor out, lse;
  explicit result(std::int64_t queries) : out({1, queries, heads, dim}), lse({1, queries, heads, 1}) {}
};

struct problem {
  tensor q, k, v;
  std::int64_t first_query = 0;
  std::int64_t first_key = 0;
  posenc::key_state state = posenc::key_state::rotated;
  std::vector<std::int64_t> visible{};  // of all keys; empty: not asked

  problem(random_case& random, std::int64_t queries, std::int64_t keys)
      : q(random, {1, queries, heads, dim}), k(random, {1, keys, kv_heads, dim}), v(random, {1, keys, kv_heads, dim}) {}
  [[nodiscard]] std::int64_t queries() const { return q.extents.tokens; }
  [[nodiscard]] std::int64_t keys() const { return k.extents.tokens; }
  [[nodiscard]] posenc::attention_options<float> options() const {
    posenc::attention_options<float> o{.query_positions = posenc::positions::from(first_query), .keys = state};
    if (!visible.empty()) o.visible_keys = {visible.data(), {1, queries(), heads, 1}};
    return o;
  }
};

template <class Policy>
result attended(const problem& p, const Policy& policy, const shard& held, bool sink) {
  tensor k({1, static_cast<std::int64_t>(held.size()), kv_heads, dim}), v(k.extents);
  std::vector<std::int64_t> ids;
  bool consecutive = true;
  for (std::size_t i = 0; i < held.size(); ++i) {
    constexpr std::int64_t row = kv_heads * dim;
    std::copy_n(p.k.data.begin() + held[i] * row, row, k.data.begin() + static_cast<std::int64_t>(i) * row);
    std::copy_n(p.v.data.begin() + held[i] * row, row, v.data.begin() + static_cast<std::int64_t>(i) * row);
    ids.push_back(p.first_key + held[i]);
    consecutive = consecutive && ids.back() == ids.front() + static_cast<std::int64_t>(i);
  }
  result r(p.queries());
  auto o = p.options();
  o.key_positions = consecutive ? posenc::positions::from(ids.empty() ? 0 : ids[0]) : posenc::positions::listed(ids);
  o.lse = r.lse.view();
  o.count_sink = sink;
  posenc::attention(p.q.read(), k.read(), v.read(), r.out.view(), policy, o);
  return r;
}

double relative(const std::vector<float>& found, const std::vector<float>& expected) {
  double largest = 0, off = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;  // -inf too
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    const double d = std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
    off = d >= 0 ? std::max(off, d) : INFINITY;
  }
  for (const float x : expected)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(static_cast<double>(x)));
  return largest == 0 ? off : off / largest;
}

/// Attends all shards, merges them at once and one by one, and compares with attention over all keys.
template <class Policy>
void check_shards(random_case& random, problem p, const Policy& policy, const std::vector<shard>& shards) {
  shard everything;
  for (std::int64_t j = 0; j < p.keys(); ++j) everything.push_back(j);
  const std::vector<std::int64_t> visible = std::exchange(p.visible, {});
  const result whole = attended(p, policy, everything, true);  // counts what a row sees by itself
  p.visible = visible;
  const std::int64_t counts = random.whole(0, static_cast<std::int64_t>(shards.size()) - 1);
  std::vector<result> parts;
  for (std::size_t s = 0; s < shards.size(); ++s)
    parts.push_back(attended(p, policy, shards[s], static_cast<std::int64_t>(s) == counts));

  std::vector<posenc::attention_part<float>> views;
  for (const result& r : parts) views.push_back({r.out.read(), r.lse.read()});
  result merged(p.queries());
  posenc::merge(std::span<const posenc::attention_part<float>>(views), merged.out.view(), merged.lse.view());
  CHECK(relative(merged.out.data, whole.out.data) <= 2e-6);
  CHECK(relative(merged.lse.data, whole.lse.data) <= 2e-6);

  const std::vector<std::int64_t> order = random.order(static_cast<std::int64_t>(parts.size()));
  result& sum = parts[static_cast<std::size_t>(order[0])];
  for (std::size_t i = 1; i < order.size(); ++i) {
    const result& next = parts[static_cast<std::size_t>(order[i])];
    posenc::merge(sum.out.view(), sum.lse.view(), next.out.read(), next.lse.read());
  }
  CHECK(relative(sum.out.data, whole.out.data) <= 2e-6);
  CHECK(relative(sum.lse.data, whole.lse.data) <= 2e-6);
}

/// What a policy of the tests is made of; what is off has values that change nothing, so that all are one type.
struct parts_of_policy {
  bool causal = true;
  std::int64_t window = 0;
  bool alibi = false, bucket = false, rope = false, sink = false, ssmax = false;
};

auto policy_of(random_case& random, const parts_of_policy& on) {
  posenc::run_time_policy<> rest;
  rest.masks.causal = on.causal;
  if (on.window > 0) rest.masks.window = posenc::sliding_window{on.window};
  if (on.rope) rest.rotation.emplace(posenc::rope_options{.head_dim = dim});
  if (on.sink) rest.sinks = {1.5, 0, -2, 3};
  std::vector<float> table = random.vector<float>(32 * heads);
  if (!on.bucket) std::fill(table.begin(), table.end(), 0.0f);
  return posenc::compose(
      posenc::ssmax(on.ssmax ? 0.4 : 0.0, on.ssmax ? 0.1 : 1.0),
      posenc::alibi<float>(on.alibi ? std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f} : std::vector<float>(heads)),
      posenc::relative_bucket<float>({.heads = heads}, table), rest);
}

/// Several calls: whole prefill, the end of a sequence, decode over keys that each shard splits again, and queries that
/// stand before all keys.
void check_policy(std::uint64_t seed, const parts_of_policy& on) {
  for (const auto& [queries, keys, first] :
       {std::array<std::int64_t, 3>{70, 70, 0}, {20, 300, 280}, {1, 2600, 2599}, {3, 40, -2}}) {
    INFO("seed " << seed << ", " << queries << " queries from " << first << ", " << keys << " keys");
    random_case random(seed);
    const auto policy = policy_of(random, on);
    problem p(random, queries, keys);
    p.first_query = first;
    if (on.rope) {
      p.state = posenc::key_state::unrotated;
      p.first_key = 1000;  // positions far from indices
      p.first_query += 1000;
    }
    if (on.ssmax)
      for (std::int64_t i = 0; i < queries * heads; ++i) {
        const std::int64_t at = p.first_query + i / heads - p.first_key + 1;
        const std::int64_t seen = std::clamp<std::int64_t>(on.causal ? at : keys, 0, keys);
        p.visible.push_back(on.window > 0 ? std::min(seen, on.window) : seen);
      }
    check_shards(random, p, policy, stretches(random, keys, 2));
    check_shards(random, p, policy, stretches(random, keys, 6));
    check_shards(random, p, policy, stripes(keys, 3));
  }
}

}  // namespace

TEST_CASE("laws: shards of a sequence merge to attention over all of it", "[laws]") {
  SECTION("without a mask") { check_policy(1, {.causal = false}); }
  SECTION("causal") { check_policy(2, {}); }
  SECTION("a sliding window") { check_policy(3, {.window = 37}); }
  SECTION("ALiBi") { check_policy(4, {.alibi = true}); }
  SECTION("T5 buckets") { check_policy(5, {.bucket = true}); }
  SECTION("RoPE") { check_policy(6, {.rope = true}); }
  SECTION("a sink, counted by one shard, as gpt-oss has it") {
    check_policy(7, {.window = 128, .rope = true, .sink = true});
  }
  SECTION("ssmax, told how many keys a row sees in all shards") { check_policy(8, {.ssmax = true}); }
  SECTION("everything at once") {
    check_policy(9, {.window = 50, .alibi = true, .bucket = true, .rope = true, .sink = true, .ssmax = true});
  }
}

TEST_CASE("laws: shards merge under Shaw's vectors on keys and values", "[laws]") {
  for (const std::uint64_t seed : {10u, 11u}) {
    INFO("seed " << seed);
    random_case random(seed);
    const std::vector<float> key_table = random.vector<float>(9 * dim), value_table = random.vector<float>(9 * dim);
    const auto policy = posenc::compose(
        posenc::shaw<float>({.head_dim = dim, .left = 4, .right = 4}, key_table, value_table), posenc::causal{});
    problem p(random, 60, 60);
    check_shards(random, p, policy, stretches(random, 60, 4));
    problem decode(random, 1, 200);
    decode.first_query = 199;
    check_shards(random, decode, policy, stretches(random, 200, 3));
  }
}

TEST_CASE("laws: a sink counted in every shard, and a length seen by one shard alone, are noticed", "[laws]") {
  random_case random(12);
  problem p(random, 8, 100);
  p.first_query = 92;
  const auto two_shards = [&](const auto& policy, bool sink_in_second) {
    shard first, second;
    for (std::int64_t j = 0; j < 100; ++j) (j < 60 ? first : second).push_back(j);
    result a = attended(p, policy, first, true);
    const result b = attended(p, policy, second, sink_in_second);
    posenc::merge(a.out.view(), a.lse.view(), b.out.read(), b.lse.read());
    shard everything = first;
    everything.insert(everything.end(), second.begin(), second.end());
    return relative(a.out.data, attended(p, policy, everything, true).out.data);
  };
  CHECK(two_shards(policy_of(random, {.sink = true}), false) <= 2e-6);
  CHECK(two_shards(policy_of(random, {.sink = true}), true) >= 1e-2);
  // Here `visible` stays empty: each shard takes the keys that it sees for all.
  CHECK(two_shards(policy_of(random, {.ssmax = true}), false) >= 1e-3);
}

TEST_CASE("laws: a shard that does not count the sink has rows without keys", "[laws]") {
  random_case random(13);
  problem p(random, 5, 10);
  const auto policy = policy_of(random, {.sink = true});
  shard later;  // query 0 .. 4 at 0 .. 4 see none of them
  for (std::int64_t j = 5; j < 10; ++j) later.push_back(j);
  for (const shard& held : {later, shard{}}) {
    const result silent = attended(p, policy, held, false);
    const result counting = attended(p, policy, held, true);
    for (std::int64_t i = 0; i < 5; ++i)
      for (std::int64_t h = 0; h < heads; ++h) {
        CHECK(silent.lse.read()(0, i, h, 0) == -std::numeric_limits<float>::infinity());
        CHECK(counting.lse.read()(0, i, h, 0) == std::vector<float>{1.5f, 0, -2, 3}[static_cast<std::size_t>(h)]);
        CHECK(silent.out.read()(0, i, h, 0) == 0);
      }
  }
}

TEST_CASE("laws: numbers of visible keys that do not fit are refused before anything is written", "[laws]") {
  random_case random(14);
  problem p(random, 5, 10);
  const auto policy = policy_of(random, {.ssmax = true});
  result r(5);
  std::fill(r.out.data.begin(), r.out.data.end(), 7.0f);
  std::vector<std::int64_t> visible(5 * heads, 3);
  const auto attend = [&](const posenc::shape& s) {
    posenc::attention(p.q.read(), p.k.read(), p.v.read(), r.out.view(), policy,
                      {.visible_keys = posenc::view<const std::int64_t>(visible.data(), s)});
  };
  CHECK_THROWS_WITH(attend({1, 4, heads, 1}),
                    "posenc::attention: visible_keys must have the shape [batch, query, head, 1], got 1");
  visible[7] = -1;
  CHECK_THROWS_WITH(attend({1, 5, heads, 1}), "posenc::attention: visible_keys must not be negative, got -1");
  CHECK(r.out.data == std::vector<float>(r.out.data.size(), 7));
}
