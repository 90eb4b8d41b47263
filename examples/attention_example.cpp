// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Attention under a policy: grouped heads, a bias, masks, a softcap, the log-sum-exp, a workspace of one's own.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/alibi.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

// [executor]
/// The calling thread and one more, each with every second item.
struct two_threads {
  [[nodiscard]] static constexpr std::int64_t concurrency() noexcept { return 2; }
  template <class F>
  void parallel_for(std::int64_t n, F&& f) const {
    const auto work = [&](std::int64_t worker) {
      for (std::int64_t item = worker; item < n; item += 2) f(item, worker);
    };
    std::thread other(work, 1);
    work(0);
    other.join();
  }
};
// [/executor]

std::vector<float> waves(std::int64_t n, double step) {
  std::vector<float> x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(static_cast<float>(std::sin(step * static_cast<double>(i))));
  return x;
}

}  // namespace

int main() {
  bool good = true;
  // 40 queries against 100 keys: 60 tokens came before. Eight query heads share two key heads.
  std::vector<float> q = waves(40 * 8 * 32, 0.7);
  std::vector<float> k = waves(100 * 2 * 32, 1.3);
  std::vector<float> v = waves(100 * 2 * 16, 0.9);
  std::vector<float> out(40 * 8 * 16);
  std::vector<float> sums(40 * 8);

  // [attention]
  const posenc::view queries{q.data(), {.tokens = 40, .heads = 8, .dim = 32}};
  const posenc::view keys{k.data(), {.tokens = 100, .heads = 2, .dim = 32}};
  const posenc::view values{v.data(), {.tokens = 100, .heads = 2, .dim = 16}};
  const posenc::view result{out.data(), {.tokens = 40, .heads = 8, .dim = 16}};
  const posenc::view lse{sums.data(), {.tokens = 40, .heads = 8, .dim = 1}};

  // Softcap first, then the bias; of the masks both must let a key through.
  const auto policy =
      posenc::compose(posenc::softcap{50}, posenc::alibi<float>{8}, posenc::causal{}, posenc::sliding_window{64});
  posenc::attention(
      queries, keys, values, result, policy,
      {.query_positions = posenc::positions::from(60), .key_positions = posenc::positions::from(0), .lse = lse});
  // [/attention]

  // [workspace]
  // With a workspace of the caller's nothing is allocated.
  std::vector<std::byte> workspace(posenc::attention_workspace(queries, keys, values, result, policy));
  posenc::attention(queries, keys, values, result, policy,
                    {.query_positions = posenc::positions::from(60), .lse = lse, .workspace = workspace});
  // [/workspace]

  std::vector<float> threaded(out.size());
  // [threads]
  // The same call on two threads gives the same bits.
  posenc::attention(queries, keys, values, posenc::view(threaded.data(), result.extents()), policy,
                    {.query_positions = posenc::positions::from(60)}, two_threads{});
  // [/threads]
  good = good && threaded == out;

  std::vector<double> q64(q.begin(), q.end());
  std::vector<double> k64(k.begin(), k.end());
  std::vector<double> v64(v.begin(), v.end());
  std::vector<double> out64(out.size());
  std::vector<double> weights(40 * 8 * 100);
  // [reference]
  // One score at a time, in any scalar; it can also hand out logits and weights.
  posenc::attention_reference(posenc::view(q64.data(), queries.extents()), posenc::view(k64.data(), keys.extents()),
                              posenc::view(v64.data(), values.extents()), posenc::view(out64.data(), result.extents()),
                              policy,
                              {.query_positions = posenc::positions::from(60),
                               .weights = posenc::view(weights.data(), {.tokens = 40, .heads = 8, .dim = 100})});
  // [/reference]
  double error = 0;
  double largest = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    error = std::max(error, std::abs(static_cast<double>(out[i]) - out64[i]));
    largest = std::max(largest, std::abs(out64[i]));
  }
  std::printf("fused float against reference double: %.1e of %.2f\n", error, largest);
  good = good && error <= 2e-6 * largest;
  // The last query stands at 99 and sees 64 keys: 36 .. 99.
  good = good && weights[(39 * 8 + 5) * 100 + 35] == 0 && weights[(39 * 8 + 5) * 100 + 36] > 0;

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
