// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Attention on threads of one's own and on those of a pool, the keys of a sequence in shards, and ragged batches.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/merge.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/ragged.hpp>
#include <posenc/core/parallel_pool.hpp>
#include <posenc/core/parallel_threads.hpp>
#include <posenc/encoders/rope.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <future>
#include <vector>

namespace {

constexpr std::int64_t heads = 4;
constexpr std::int64_t kv_heads = 2;
constexpr std::int64_t dim = 32;

std::vector<float> waves(std::int64_t n, double step) {
  std::vector<float> x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(static_cast<float>(std::sin(step * static_cast<double>(i))));
  return x;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

int main() {
  bool good = true;
  const std::int64_t queries = 50;
  const std::int64_t keys = 1000;
  const std::vector<float> q = waves(queries * heads * dim, 0.37);
  const std::vector<float> k = waves(keys * kv_heads * dim, 0.91);
  const std::vector<float> v = waves(keys * kv_heads * dim, 0.53);
  const posenc::view query{q.data(), {.tokens = queries, .heads = heads, .dim = dim}};
  const posenc::view key{k.data(), {.tokens = keys, .heads = kv_heads, .dim = dim}};
  const posenc::view value{v.data(), {.tokens = keys, .heads = kv_heads, .dim = dim}};
  const auto policy = posenc::compose(posenc::rope<float>({.head_dim = dim}), posenc::causal{},
                                      posenc::sinks<float>(std::vector<float>{1, 0, -1, 2}));
  const auto at = posenc::positions::from(keys - queries);
  std::vector<float> expected(q.size());
  posenc::attention(query, key, value, posenc::view(expected.data(), query.extents()), policy,
                    {.query_positions = at, .keys = posenc::key_state::unrotated});

  std::vector<float> out(q.size());
  const posenc::view result{out.data(), query.extents()};
  {
    // [threads]
    posenc::thread_executor threads(4);  // this thread and three more, kept until the end of the scope
    const posenc::attention_options<float> options{.query_positions = at, .keys = posenc::key_state::unrotated};
    posenc::attention(query, key, value, result, policy, options, threads);
    // [/threads]
    good = good && out == expected;
  }
  {
    std::fill(out.begin(), out.end(), 0.0f);
    const posenc::attention_options<float> options{.query_positions = at, .keys = posenc::key_state::unrotated};
    // [pool]
    // Whatever runs a task some day will do; here each has a thread of its own.
    std::vector<std::future<void>> tasks;
    const posenc::pool_executor pool(
        3, [&](auto task) { tasks.push_back(std::async(std::launch::async, std::move(task))); });
    posenc::attention(query, key, value, result, policy, options, pool);
    // [/pool]
    good = good && out == expected;
  }

  // [shards]
  // 1000 keys in two shards, 600 here and 400 elsewhere. Each keeps its global positions; one counts the sinks.
  const posenc::view first_k{k.data(), {.tokens = 600, .heads = kv_heads, .dim = dim}};
  const posenc::view first_v{v.data(), first_k.extents()};
  const posenc::view second_k{k.data() + 600 * kv_heads * dim, {.tokens = 400, .heads = kv_heads, .dim = dim}};
  const posenc::view second_v{v.data() + 600 * kv_heads * dim, second_k.extents()};
  std::vector<float> lse(queries * heads);
  std::vector<float> other(q.size());
  std::vector<float> other_lse(queries * heads);
  const posenc::shape rows{.tokens = queries, .heads = heads, .dim = 1};
  posenc::attention(query, first_k, first_v, result, policy,
                    {.query_positions = at,
                     .key_positions = posenc::positions::from(0),
                     .keys = posenc::key_state::unrotated,
                     .lse = {lse.data(), rows}});
  posenc::attention(query, second_k, second_v, posenc::view(other.data(), query.extents()), policy,
                    {.query_positions = at,
                     .key_positions = posenc::positions::from(600),
                     .keys = posenc::key_state::unrotated,
                     .lse = {other_lse.data(), rows},
                     .count_sink = false});
  posenc::merge(result, posenc::view(lse.data(), rows), posenc::view(other.data(), query.extents()),
                posenc::view(other_lse.data(), rows));
  // [/shards]
  const float largest = largest_difference(expected, std::vector<float>(expected.size()));
  std::printf("two shards against one call: %.1e of %.3f\n", static_cast<double>(largest_difference(out, expected)),
              static_cast<double>(largest));
  good = good && largest_difference(out, expected) <= 2e-6f * largest;

  {
    const std::vector<float> a(q.size(), 1), b(q.size(), 2), c(q.size(), 4), even(rows.elements(), 0.5f);
    const auto part = [&](const std::vector<float>& x) {
      return posenc::attention_part<float>{{x.data(), query.extents()}, {even.data(), rows}};
    };
    std::vector<float> merged(q.size());
    std::vector<float> merged_lse(even.size());
    // [parts]
    const std::vector<posenc::attention_part<float>> parts{part(a), part(b), part(c)};
    posenc::merge(std::span(parts), posenc::view(merged.data(), query.extents()),
                  posenc::view(merged_lse.data(), rows));
    // [/parts]
    good = good && std::abs(merged[7] - 7.0f / 3) < 1e-6f && std::abs(merged_lse[7] - 0.5f - std::log(3.0f)) < 1e-6f;
  }

  // [ragged]
  // Three sequences in one buffer: a prompt of 20, one new token of a sequence of 700, a chunk of 29 after 251.
  const std::vector<std::int64_t> query_ends{0, 20, 21, 50};
  const std::vector<std::int64_t> key_ends{0, 20, 720, 1000};
  const std::vector<std::int64_t> first_queries{0, 699, 251};
  posenc::attention_ragged(query, key, value, result, policy, query_ends, key_ends,
                           {.query_firsts = first_queries, .keys = posenc::key_state::unrotated});
  // [/ragged]
  // The new token, on its own.
  std::vector<float> alone(heads * dim);
  posenc::attention(posenc::view(q.data() + 20 * heads * dim, {.tokens = 1, .heads = heads, .dim = dim}),
                    posenc::view(k.data() + 20 * kv_heads * dim, {.tokens = 700, .heads = kv_heads, .dim = dim}),
                    posenc::view(v.data() + 20 * kv_heads * dim, {.tokens = 700, .heads = kv_heads, .dim = dim}),
                    posenc::view(alone.data(), {.tokens = 1, .heads = heads, .dim = dim}), policy,
                    {.query_positions = posenc::positions::from(699), .keys = posenc::key_state::unrotated});
  good = good && std::equal(alone.begin(), alone.end(), out.begin() + 20 * heads * dim);

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
