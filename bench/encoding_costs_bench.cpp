// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Every encoding of scores in fused attention, causal, 8 heads of 64: 1024 queries at once, and one query over 4096
// keys. Names: attention/op/encoding/8_heads/keys/64; table_bytes is what the encoder holds, workspace_bytes what a
// call takes. The ratio to `none` of the same run is the cost of an encoding.
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/alibi_asymmetric.hpp>
#include <posenc/encoders/cope.hpp>
#include <posenc/encoders/deberta.hpp>
#include <posenc/encoders/dynamic_bias.hpp>
#include <posenc/encoders/fire.hpp>
#include <posenc/encoders/forgetting.hpp>
#include <posenc/encoders/gated_bias.hpp>
#include <posenc/encoders/kerple.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/projected_bias.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/sandwich.hpp>
#include <posenc/encoders/shaw.hpp>
#include <posenc/encoders/transformer_xl.hpp>
#include <posenc/encoders/tupe.hpp>

#include "support/two_pass.hpp"

#include <functional>
#include <memory>
#include <string>

namespace {

constexpr std::int64_t heads = 8;
constexpr std::int64_t dim = 64;

std::vector<float> numbers(std::int64_t n, unsigned seed = 3) {
  auto x = bench::normal<float>(static_cast<std::size_t>(n), seed);
  for (float& v : x) v *= 0.1f;
  return x;
}

/// `make(queries, keys)` gives the part for a call, kept alive by a shared pointer.
template <class Make>
void add(const std::string& name, const Make& make) {
  const auto run = [make](benchmark::State& state, bool step) {
    const std::int64_t n = state.range(0);
    const auto part = make(step ? 1 : n, n);
    const auto policy = posenc::compose(*part, posenc::causal{});
    if (step) {
      bench::decode_step(state, n, dim, policy);
    } else {
      bench::prefill(state, n, dim, policy, bench::causal_pairs(n));
    }
    if constexpr (requires { part->describe(); })
      state.counters["table_bytes"] = static_cast<double>(part->describe().table_bytes);
  };
  benchmark::RegisterBenchmark(("attention/prefill/" + name + "/8_heads").c_str(),
                               [run](benchmark::State& state) { run(state, false); })
      ->Args({1024, dim})
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark(("attention/decode/" + name + "/8_heads").c_str(),
                               [run](benchmark::State& state) { run(state, true); })
      ->Args({4096, dim})
      ->Unit(benchmark::kMicrosecond);
}

/// Parts that borrow what they read.
struct gated {
  posenc::relative_bucket<float> bias{{.heads = heads}, numbers(32 * heads)};
  std::vector<float> gates;
  posenc::gated_bias<posenc::relative_bucket<float>> part;
  explicit gated(std::int64_t n, std::int64_t)
      : gates(numbers(n * heads)),
        part(bias, posenc::view<const float>(gates.data(), {.tokens = n, .heads = heads, .dim = 1})) {}
};
struct forget {
  posenc::forget_sums<float> sums{{.heads = heads}};
  std::vector<float> gates;
  std::unique_ptr<posenc::forgetting<float>> part;
  explicit forget(std::int64_t queries, std::int64_t n) : gates(numbers(n * heads)) {
    sums.append(posenc::view<const float>(gates.data(), {.tokens = n, .heads = heads, .dim = 1}));
    part = std::make_unique<posenc::forgetting<float>>(sums, n - queries);
  }
};
struct projected {
  posenc::projected_bank<float> bank;
  std::vector<float> mixed;
  posenc::projected_bias<float> part;
  explicit projected(std::int64_t n, std::int64_t keys)
      : bank(16, keys, numbers(16 * keys)),
        mixed(numbers(n * heads * 16)),
        part(bank, posenc::view<const float>(mixed.data(), {.tokens = n, .heads = heads, .dim = 16})) {}
};
/// The part of a holder, owning the holder.
template <class Holder>
auto held(std::int64_t queries, std::int64_t keys) {
  auto whole = std::make_shared<Holder>(queries, keys);
  if constexpr (requires { *whole->part; }) {
    return std::shared_ptr<std::remove_reference_t<decltype(*whole->part)>>(whole, &*whole->part);
  } else {
    return std::shared_ptr<decltype(whole->part)>(whole, &whole->part);
  }
}

template <class Part>
auto shared(Part part) {
  return std::make_shared<Part>(std::move(part));
}

void register_all() {
  const auto ones = std::vector<float>(heads, 0.5f);
  add("none", [](std::int64_t, std::int64_t) { return shared(posenc::nope{}); });
  add("alibi", [](std::int64_t, std::int64_t) { return shared(posenc::alibi<float>(heads)); });
  add("alibi_two_sided",
      [=](std::int64_t, std::int64_t) { return shared(posenc::alibi_two_sided<float>(ones, ones)); });
  add("relative_bucket", [](std::int64_t, std::int64_t) {
    return shared(posenc::relative_bucket<float>({.heads = heads, .bidirectional = false}, numbers(32 * heads)));
  });
  add("kerple_log",
      [=](std::int64_t, std::int64_t) { return shared(posenc::kerple<float>({.scale = ones, .shape = ones})); });
  add("sandwich", [](std::int64_t, std::int64_t) { return shared(posenc::sandwich<float>({.heads = heads})); });
  add("dynamic_bias", [](std::int64_t, std::int64_t) {
    return shared(posenc::dynamic_bias<float>(
        {.layers = {{numbers(64), numbers(64)}, {numbers(64 * heads), numbers(heads)}}, .log_distance = true}));
  });
  add("fire", [](std::int64_t, std::int64_t) {
    return shared(posenc::fire<float>(
        {.weight1 = numbers(32), .bias1 = numbers(32, 4), .weight2 = numbers(32 * heads), .bias2 = numbers(heads)}));
  });
  add("gated_bias", held<gated>);
  add("projected_bias", held<projected>);
  add("forgetting", held<forget>);
  add("shaw_keys",
      [](std::int64_t, std::int64_t) { return shared(posenc::shaw<float>({.head_dim = dim}, numbers(33 * dim))); });
  add("shaw", [](std::int64_t, std::int64_t) {
    return shared(posenc::shaw<float>({.head_dim = dim}, numbers(33 * dim), numbers(33 * dim)));
  });
  add("transformer_xl", [](std::int64_t, std::int64_t n) {
    const auto rows = numbers(heads * n * dim);
    const auto u = numbers(heads * dim);
    return shared(
        posenc::transformer_xl<float>::from_rows({.heads = heads, .head_dim = dim, .past = n - 1}, u, u, rows));
  });
  add("deberta", [](std::int64_t, std::int64_t) {
    const auto rows = numbers(heads * 512 * dim);
    return shared(posenc::deberta<float>({.heads = heads, .head_dim = dim}, rows, rows));
  });
  add("tupe", [](std::int64_t, std::int64_t n) {
    const std::int64_t width = heads * dim;
    const auto rows = numbers((n + 1) * width), one = std::vector<float>(static_cast<std::size_t>(width), 1.0f);
    const auto square = numbers(width * width);
    return shared(posenc::tupe<float>({.heads = heads, .width = width}, {rows, one, one, square, one, square, one}));
  });
  add("rope_of_queries", [](std::int64_t, std::int64_t) { return shared(posenc::rope<float>({.head_dim = dim})); });
  add("softcap", [](std::int64_t, std::int64_t) { return shared(posenc::softcap{50}); });
  add("ssmax", [](std::int64_t, std::int64_t) { return shared(posenc::ssmax(0.43)); });
  add("sinks", [](std::int64_t, std::int64_t) { return shared(posenc::sinks<float>(0.0f)); });
  add("query_temperature", [](std::int64_t, std::int64_t) { return shared(posenc::query_temperature{}); });
}

/// cope needs whole rows; its cost is that of the two-pass path under it.
void two_pass_none(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  bench::two_pass(state, n, n, dim, posenc::compose(posenc::causal{}));
}
void two_pass_cope(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  bench::two_pass(state, n, n, dim,
                  posenc::compose(posenc::cope<float>({.head_dim = dim}, numbers(64 * dim)), posenc::causal{}));
}
BENCHMARK(two_pass_none)
    ->Name("attention_two_pass/prefill/none/8_heads")
    ->Args({1024, dim})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(two_pass_cope)
    ->Name("attention_two_pass/prefill/cope/8_heads")
    ->Args({1024, dim})
    ->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
