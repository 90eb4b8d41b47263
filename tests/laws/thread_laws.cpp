// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Laws of attention on threads: the bits of a result do not depend on how many workers there are, on which of them does
// what, or on the order of the items.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/core/parallel_threads.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/shaw.hpp>

#include "laws/random_case.hpp"
#include "support/catch.hpp"
#include "support/tolerance.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using laws::random_case;

/// Any executor as one type, so that attention is instantiated once per policy.
struct chosen {
  using item = std::function<void(std::int64_t, std::int64_t)>;
  std::string name;
  std::int64_t workers = 1;
  std::function<void(std::int64_t, const item&)> run;

  [[nodiscard]] std::int64_t concurrency() const noexcept { return workers; }
  template <class F>
  void parallel_for(std::int64_t n, F&& f) const {
    run(n, std::ref(f));
  }
};

/// In order, in the calling thread.
chosen serial() {
  return {"serial", 1, [](std::int64_t n, const chosen::item& f) { posenc::serial_executor{}.parallel_for(n, f); }};
}

/// 1 to 8 threads, and executors of one thread that do what threads may do at worst: the last item first, any order,
/// every item on another worker, all of them on the last one.
std::vector<chosen> executors() {
  std::vector<chosen> all;
  for (std::int64_t workers = 1; workers <= 8; ++workers) {
    const auto threads = std::make_shared<posenc::thread_executor>(workers);
    all.push_back({std::to_string(workers) + " threads", workers,
                   [threads](std::int64_t n, const chosen::item& f) { threads->parallel_for(n, f); }});
  }
  all.push_back({"reverse", 1, [](std::int64_t n, const chosen::item& f) {
                   for (std::int64_t i = n; i-- > 0;) f(i, 0);
                 }});
  all.push_back({"reverse, workers in turn", 5, [](std::int64_t n, const chosen::item& f) {
                   for (std::int64_t i = n; i-- > 0;) f(i, (7 * i) % 5);
                 }});
  all.push_back({"the last worker alone", 3, [](std::int64_t n, const chosen::item& f) {
                   for (std::int64_t i = 0; i < n; ++i) f(i, 2);
                 }});
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    all.push_back({"shuffled " + std::to_string(seed), 4, [seed](std::int64_t n, const chosen::item& f) {
                     random_case random(seed);
                     for (const std::int64_t i : random.order(n)) f(i, random.whole(0, 3));
                   }});
  return all;
}

struct sizes {
  const char* name;
  std::int64_t batch, queries, keys, heads, kv_heads;
};
constexpr sizes calls[] = {{"prefill", 2, 130, 130, 4, 2},
                           {"chunked prefill", 1, 50, 400, 6, 3},
                           {"one long sequence and one head", 1, 300, 300, 1, 1},
                           {"decode", 3, 1, 500, 8, 2},
                           {"decode over a long cache", 1, 1, 6000, 4, 4},
                           {"decode over a long cache, grouped heads", 1, 1, 6000, 8, 1},
                           {"four tokens over a long cache", 1, 4, 6000, 4, 2},
                           {"no keys", 1, 3, 0, 2, 1}};

/// Attends on every executor and compares bits; K is the storage of keys and values.
template <class K, class PolicyOf>
void check_bits(const PolicyOf& policy_of, std::int64_t dim) {
  const std::vector<chosen> all = executors();
  for (const sizes& s : calls) {
    random_case random(17);
    const auto count = [](const posenc::shape& e) { return static_cast<std::size_t>(e.elements()); };
    const posenc::shape query{s.batch, s.queries, s.heads, dim}, key{s.batch, s.keys, s.kv_heads, dim};
    const posenc::shape row{s.batch, s.queries, s.heads, 1};
    const std::vector<float> q = random.vector<float>(query.elements());
    std::vector<K> k(count(key)), v(count(key));
    for (K& x : k) x = posenc::narrow<K>(static_cast<float>(random.real(-1, 1)));
    for (K& x : v) x = posenc::narrow<K>(static_cast<float>(random.real(-1, 1)));
    const auto policy = policy_of(s.heads);

    // Keys listed in no order take the other path through the masks.
    std::vector<std::int64_t> ids = random.order(s.keys);
    for (const bool listed : {false, true}) {
      if (listed && s.keys > 500) continue;
      const auto attended = [&](const chosen& executor) {
        std::vector<float> out(count(query), 7), lse(count(row), 7);
        posenc::attention(posenc::view(q.data(), query), posenc::view<const K>(k.data(), key),
                          posenc::view<const K>(v.data(), key), posenc::view(out.data(), query), policy,
                          {.query_positions = posenc::positions::from(std::max<std::int64_t>(s.keys - s.queries, 0)),
                           .key_positions = listed ? posenc::positions::listed(ids) : posenc::positions::from(0),
                           .lse = posenc::view(lse.data(), row)},
                          executor);
        out.insert(out.end(), lse.begin(), lse.end());
        return out;
      };
      const std::vector<float> expected = attended(serial());
      for (const chosen& executor : all) {
        INFO(s.name << (listed ? ", listed ids" : "") << ", on " << executor.name);
        const std::vector<float> found = attended(executor);
        CHECK(posenc_test::same_bits(found.data(), expected.data(), expected.size()));
      }
    }
  }
}

}  // namespace

TEST_CASE("laws: causal ALiBi with sinks has the same bits on every executor", "[laws]") {
  check_bits<float>(
      [](std::int64_t heads) {
        posenc::run_time_policy<posenc::alibi<float>> policy{.bias = posenc::alibi<float>(heads)};
        policy.masks.causal = true;
        for (std::int64_t h = 0; h < heads; ++h) policy.sinks.push_back(0.5 * static_cast<double>(h) - 1);
        return policy;
      },
      24);
}

TEST_CASE("laws: Shaw's vectors over a cache of bfloat16 have the same bits on every executor", "[laws]") {
  random_case random(18);
  const std::vector<float> key_table = random.vector<float>(9 * 8), value_table = random.vector<float>(9 * 8);
  const posenc::shaw<float> part({.head_dim = 8, .left = 4, .right = 4}, key_table, value_table);
  check_bits<Eigen::bfloat16>([&](std::int64_t) { return posenc::compose(part, posenc::run_time_policy<>{}); }, 8);
}

TEST_CASE("laws: the law of threads can fail: an executor that leaves out an item is noticed", "[laws]") {
  const std::vector<float> x(40 * 4, 0.5f);
  std::vector<float> out(x.size(), 7), expected(x.size(), 7);
  const posenc::shape extents{1, 40, 4, 1};
  const auto attended = [&](const chosen& executor, std::vector<float>& to) {
    posenc::run_time_policy<posenc::alibi<float>> policy{.bias = posenc::alibi<float>(4)};
    const posenc::view<const float> in(x.data(), extents);
    posenc::attention(posenc::view(x.data(), extents), in, in, posenc::view(to.data(), extents), policy, {}, executor);
  };
  attended(serial(), expected);
  attended({"leaves out the first", 1,
            [](std::int64_t n, const chosen::item& f) {
              for (std::int64_t i = 1; i < n; ++i) f(i, 0);
            }},
           out);
  CHECK(!posenc_test::same_bits(out.data(), expected.data(), out.size()));
}
