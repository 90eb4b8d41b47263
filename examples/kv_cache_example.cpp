// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// A key-value cache: keys are rotated when they are appended, each step sees what is filled, old tokens can be dropped.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/index_masks.hpp>
#include <posenc/attention/masks.hpp>
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

}  // namespace

int main() {
  bool good = true;
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
