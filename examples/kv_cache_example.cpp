// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Key-value caches: keys are rotated when they are appended, each step sees what is filled, old tokens can be dropped.
// First in memory of the caller's own, then in the three cache types.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/contiguous_cache.hpp>
#include <posenc/attention/index_masks.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/paged_cache.hpp>
#include <posenc/attention/ring_cache.hpp>
#include <posenc/encoders/rope.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t heads = 4;
constexpr std::int64_t kv_heads = 2;
constexpr std::int64_t dim = 16;
constexpr std::int64_t capacity = 32;
constexpr std::int64_t tokens = 20;

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

/// A text: queries, keys, values and what attention makes of them at once under a policy.
struct text {
  std::vector<float> q = waves(tokens * heads * dim, 0.37);
  std::vector<float> k = waves(tokens * kv_heads * dim, 0.91);
  std::vector<float> v = waves(tokens * kv_heads * dim, 0.53);
  std::vector<float> out = std::vector<float>(tokens * heads * dim);

  [[nodiscard]] posenc::view<const float> queries(std::int64_t first, std::int64_t n) const {
    return {q.data() + first * heads * dim, {.tokens = n, .heads = heads, .dim = dim}};
  }
  [[nodiscard]] posenc::view<const float> keys(std::int64_t first, std::int64_t n) const {
    return {k.data() + first * kv_heads * dim, {.tokens = n, .heads = kv_heads, .dim = dim}};
  }
  [[nodiscard]] posenc::view<const float> values(std::int64_t first, std::int64_t n) const {
    return {v.data() + first * kv_heads * dim, {.tokens = n, .heads = kv_heads, .dim = dim}};
  }
  [[nodiscard]] posenc::view<float> outputs(std::int64_t first, std::int64_t n) {
    return {out.data() + first * heads * dim, {.tokens = n, .heads = heads, .dim = dim}};
  }
  template <class Policy>
  [[nodiscard]] std::vector<float> whole(const Policy& policy) const {
    std::vector<float> result(tokens * heads * dim);
    posenc::attention(queries(0, tokens), keys(0, tokens), values(0, tokens),
                      posenc::view(result.data(), {.tokens = tokens, .heads = heads, .dim = dim}), policy,
                      {.keys = posenc::key_state::unrotated});
    return result;
  }
};

bool report(const char* what, const std::vector<float>& a, const std::vector<float>& b) {
  std::printf("%s: %.1e\n", what, static_cast<double>(largest_difference(a, b)));
  return largest_difference(a, b) < 2e-6f;
}

/// A prompt of 8 tokens and single steps after it, then a cache that moves.
bool contiguous(text tale) {
  const auto policy = posenc::compose(posenc::rope<float>{{.head_dim = dim}}, posenc::causal{});
  // [append]
  posenc::contiguous_cache<float> cache({.capacity = capacity, .kv_heads = kv_heads, .dim = dim});
  const auto step = [&](std::int64_t first, std::int64_t n) {
    cache.append(tale.keys(first, n), tale.values(first, n), policy);  // turned for the positions that come next
    posenc::attention(
        tale.queries(first, n), cache.keys(), cache.values(), tale.outputs(first, n), policy,
        {.query_positions = cache.last_positions(n), .key_positions = cache.positions(), .keys = cache.state()});
  };
  step(0, 8);
  for (std::int64_t t = 8; t < tokens; ++t) step(t, 1);
  // [/append]
  bool good = report("contiguous cache", tale.whole(policy), tale.out);

  // [move]
  cache.truncate(15);         // the last five tokens are taken back
  cache.drop_first(3);        // the oldest go, the others keep the positions 3 .. 14
  cache.erase(2, 4, policy);  // out of the middle; what follows moves up, its keys turned back by 4
  cache.shift(-3, policy);    // the rest moves to the positions 0 .. 7
  // [/move]
  good = good && cache.size() == 8 && cache.first_position() == 0;

  // [same_prefix]
  // The copy goes on after the tokens it shares.
  posenc::contiguous_cache<float> copy = cache;
  copy.truncate(5);
  copy.append(tale.keys(9, 2), tale.values(9, 2), policy);
  // [/same_prefix]
  return good && copy.next_position() == 7;
}

/// A layer with a window of 6 over a ring.
bool ring(text tale) {
  const auto policy = posenc::compose(posenc::rope<float>{{.head_dim = dim}}, posenc::sliding_window{6});
  // [ring]
  // Chunks of up to 3 tokens: the first query of a chunk still sees 5 tokens before it.
  posenc::ring_cache<float> cache({.capacity = 6 + 3 - 1, .kv_heads = kv_heads, .dim = dim});
  for (std::int64_t t = 0; t < tokens; t += 3) {
    const std::int64_t n = std::min<std::int64_t>(3, tokens - t);
    cache.append(tale.keys(t, n), tale.values(t, n), policy);
    posenc::attention(tale.queries(t, n), cache.keys(), cache.values(), tale.outputs(t, n), policy,
                      {.query_positions = cache.last_positions(n), .key_positions = cache.positions()});
  }
  // [/ring]
  return report("ring cache", tale.whole(policy), tale.out) && cache.size() == 8;
}

/// Two sequences over one pool, the second with the prefix of the first.
bool paged(text tale) {
  const auto policy = posenc::compose(posenc::rope<float>{{.head_dim = dim}}, posenc::causal{});
  // [paged]
  posenc::page_pool<float> pool({.pages = 32, .page_tokens = 4, .kv_heads = kv_heads, .dim = dim});
  posenc::paged_cache<float> first(pool);
  first.append(tale.keys(0, 14), tale.values(0, 14), policy);
  // Ten tokens are shared, not copied: two full pages, and half a page until one of the two writes to it.
  posenc::paged_cache<float> second = first.prefix(10);
  if (second.pages_needed(10) > pool.free_pages()) return false;  // a scheduler asks before it appends
  second.append(tale.keys(10, 10), tale.values(10, 10), policy);
  posenc::attention(tale.queries(10, 10), second.keys(), second.values(), tale.outputs(10, 10), policy,
                    {.query_positions = second.last_positions(10), .key_positions = second.positions()});
  // [/paged]
  const std::vector<float> whole = tale.whole(policy);
  std::copy_n(whole.begin(), 10 * heads * dim, tale.out.begin());  // what is not asked for here
  return report("paged cache", whole, tale.out) && pool.free_pages() == 32 - 4 - 3;
}

/// Keys as they come, turned while attention reads them.
bool unrotated(text tale) {
  const auto policy = posenc::compose(posenc::rope<float>{{.head_dim = dim}}, posenc::causal{});
  // [unrotated]
  posenc::contiguous_cache<float> cache(
      {.capacity = capacity, .kv_heads = kv_heads, .dim = dim, .keys = posenc::key_state::unrotated});
  cache.append(tale.keys(0, tokens), tale.values(0, tokens), policy);  // stored as they are
  cache.shift(1000, policy);                                           // positions alone
  posenc::attention(
      tale.queries(0, tokens), cache.keys(), cache.values(), tale.outputs(0, tokens), policy,
      {.query_positions = cache.last_positions(tokens), .key_positions = cache.positions(), .keys = cache.state()});
  // [/unrotated]
  return report("unrotated keys, 1000 positions further", tale.whole(policy), tale.out);
}

}  // namespace

int main() {
  bool good = contiguous({}) && ring({}) && paged({}) && unrotated({});
  const posenc::rope<float> encoder{{.head_dim = dim}};
  std::vector<float> q = waves(tokens * heads * dim, 0.37);
  std::vector<float> k = waves(tokens * kv_heads * dim, 0.91);
  std::vector<float> v = waves(tokens * kv_heads * dim, 0.53);

  // The whole sequence at once; attention rotates keys too, because it is told that they are not rotated yet.
  std::vector<float> prefill(tokens * heads * dim);
  posenc::attention(posenc::view(q.data(), {.tokens = tokens, .heads = heads, .dim = dim}),
                    posenc::view(k.data(), {.tokens = tokens, .heads = kv_heads, .dim = dim}),
                    posenc::view(v.data(), {.tokens = tokens, .heads = kv_heads, .dim = dim}),
                    posenc::view(prefill.data(), {.tokens = tokens, .heads = heads, .dim = dim}),
                    posenc::compose(encoder, posenc::causal{}), {.keys = posenc::key_state::unrotated});

  // What was never filled is NaN here: hidden keys and values contribute nothing, not even that.
  std::vector<float> key_memory(capacity * kv_heads * dim, NAN);
  std::vector<float> value_memory(capacity * kv_heads * dim, NAN);
  std::vector<float> decoded(tokens * heads * dim);
  const posenc::shape one_key{.tokens = 1, .heads = kv_heads, .dim = dim};
  const posenc::shape one_query{.tokens = 1, .heads = heads, .dim = dim};
  for (std::int64_t t = 0; t < tokens; ++t) {
    const posenc::view new_query{q.data() + t * heads * dim, one_query};
    const posenc::view new_key{k.data() + t * kv_heads * dim, one_key};
    const posenc::view new_out{decoded.data() + t * heads * dim, one_query};
    std::copy_n(v.data() + t * kv_heads * dim, kv_heads * dim, value_memory.data() + t * kv_heads * dim);
    // [step]
    // Append: the key is rotated straight into its slot.
    const posenc::view keys{key_memory.data(), {.tokens = capacity, .heads = kv_heads, .dim = dim}};
    const posenc::view values{value_memory.data(), {.tokens = capacity, .heads = kv_heads, .dim = dim}};
    encoder.rotate_to(new_key, posenc::view(keys.row(0, t, 0), one_key), posenc::positions::from(t));
    // Decode: the query is rotated inside, t + 1 slots are filled.
    const auto policy = posenc::compose(encoder, posenc::causal{}, posenc::cache_length{t + 1});
    posenc::attention(new_query, keys, values, new_out, policy, {.query_positions = posenc::positions::from(t)});
    // [/step]
  }
  const float difference = largest_difference(prefill, decoded);
  std::printf("step by step against the whole: %.1e\n", static_cast<double>(difference));
  good = good && difference < 2e-6f;

  // The last query again, over the last 15 tokens.
  const posenc::view last_query{q.data() + (tokens - 1) * heads * dim, one_query};
  std::vector<float> window(heads * dim);
  posenc::attention(last_query, posenc::view(key_memory.data(), {.tokens = capacity, .heads = kv_heads, .dim = dim}),
                    posenc::view(value_memory.data(), {.tokens = capacity, .heads = kv_heads, .dim = dim}),
                    posenc::view(window.data(), one_query), posenc::compose(encoder, posenc::sliding_window{15}),
                    {.query_positions = posenc::positions::from(tokens - 1)});
  // [drop]
  // Drop five tokens: what is left moves to the front, and its keys are turned back by five positions.
  constexpr std::int64_t dropped = 5;
  constexpr std::int64_t kept = tokens - dropped;
  constexpr std::int64_t slot = kv_heads * dim;
  std::copy_n(key_memory.data() + dropped * slot, kept * slot, key_memory.data());
  std::copy_n(value_memory.data() + dropped * slot, kept * slot, value_memory.data());
  const posenc::view keys{key_memory.data(), {.tokens = kept, .heads = kv_heads, .dim = dim}};
  const posenc::view values{value_memory.data(), {.tokens = kept, .heads = kv_heads, .dim = dim}};
  encoder.shift(keys, -dropped);
  // [/drop]
  std::vector<float> after(heads * dim);
  posenc::attention(last_query, keys, values, posenc::view(after.data(), one_query),
                    posenc::compose(encoder, posenc::causal{}),
                    {.query_positions = posenc::positions::from(tokens - 1 - dropped)});
  std::printf("after dropping five tokens: %.1e\n", static_cast<double>(largest_difference(window, after)));
  good = good && largest_difference(window, after) < 2e-6f;

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
