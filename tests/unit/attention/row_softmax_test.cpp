// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/row_softmax.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

#include <cstddef>
#include <tuple>
#include <utility>

namespace {

using namespace posenc_test;
using Arch = posenc::simd::default_arch;

/// One query against 200 keys in two tiles, its logits written by hand; the value of key j is j.
struct fixture {
  stored<float> q{{1, 1, 1, 4}}, k{{1, 200, 1, 4}}, out{{1, 1, 1, 1}, 7}, lse{{1, 1, 1, 1}, 7};
  posenc::view<float> vq = q.view(), vk = k.view(), vo = out.view();
  posenc::attention_options<float> options{.lse = lse.view()};
  posenc::call c{.batch = 1, .heads = 1, .kv_heads = 1, .queries = 1, .keys = 200, .dim = 4, .value_dim = 1};
  alignas(64) std::byte memory[1 << 16]{};

  fixture() { c.query_positions = posenc::positions::from(179); }

  /// The row through both tiles; columns that it does not see are checked to be 0.
  template <class Pack>
  void run(const Pack& pack, const std::vector<float>& logits, bool with_sink) {
    using view = posenc::view<float>;
    using inputs = posenc::detail::attention_inputs<float, view, view, float, float, Pack>;
    const inputs in{vq, vk, vk, vo, options, c, pack, 1.0};
    posenc::detail::row_softmax<Arch, float, inputs, posenc::contiguous_keys, false> rows(in, memory);
    const posenc::contiguous_keys keys{0};
    rows.start_row(0, 0, 0, 0, keys, true, with_sink);
    for (std::int64_t lo = 0; lo < 200; lo += rows.layout.tile) {
      const std::int64_t n = std::min(rows.layout.tile, 200 - lo);
      rows.tile = {lo, lo + n};
      float* s = rows.my.score;
      for (std::int64_t j = 0; j < n; ++j) s[j] = logits[static_cast<std::size_t>(lo + j)];
      rows.score_row(0, s, {0, n});
      for (std::int64_t j = 0; j < n; ++j) {
        if (lo + j > c.query_positions(0, 0)) CHECK(s[j] == 0);
        rows.my.sum[0] += s[j] * static_cast<float>(lo + j);
      }
    }
    rows.finish_row(0);
  }
};

/// What softmax over the first 180 logits makes of the values, and its log-sum-exp.
std::pair<double, double> expected(const std::vector<float>& logits, double sink = -1e300) {
  double total = std::exp(sink);
  double sum = 0;
  for (std::size_t j = 0; j < 180; ++j) {
    total += std::exp(static_cast<double>(logits[j]));
    sum += std::exp(static_cast<double>(logits[j])) * static_cast<double>(j);
  }
  return {sum / total, std::log(total)};
}

}  // namespace

TEST_CASE("a row that goes through its tiles is the softmax of all of them, whether its maximum grows or not") {
  for (const float slope : {0.02F, -0.02F}) {
    fixture f;
    std::vector<float> logits(200);
    for (std::size_t j = 0; j < 200; ++j) logits[j] = slope * static_cast<float>(j);
    f.run(std::tuple<posenc::causal>{}, logits, true);
    const auto [out, lse] = expected(logits);
    CHECK(std::abs(f.out.data[0] - out) <= 2e-6 * out);
    CHECK(std::abs(f.lse.data[0] - lse) <= 2e-6 * lse);
  }
}

TEST_CASE("a row starts with its sink where that is counted, and without keys it is the sink alone") {
  const std::tuple<posenc::sinks<float>, posenc::causal> pack{posenc::sinks<float>(2.0F), {}};
  const std::vector<float> logits(200, 0.5F);
  for (const bool counted : {true, false}) {
    fixture f;
    f.run(pack, logits, counted);
    const auto [out, lse] = counted ? expected(logits, 2) : expected(logits);
    CHECK(std::abs(f.out.data[0] - out) <= 2e-6 * out);
    CHECK(std::abs(f.lse.data[0] - lse) <= 2e-6 * lse);
    f.c.query_positions = posenc::positions::from(-1);
    // No key is seen: the columns of both tiles become 0.
    f.run(pack, logits, counted);
    CHECK(f.out.data[0] == 0);
    CHECK(f.lse.data[0] == (counted ? 2.0F : -inf_f));
  }
}
