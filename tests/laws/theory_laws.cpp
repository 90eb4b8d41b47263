// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What the theory of positions says about attention: a model without positions and masks is blind to order, a causal
// mask alone is not, and every encoder breaks the symmetry.
#include "laws/network.hpp"
#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include <algorithm>

using laws::network;
using laws::permuted;
using laws::tokens;
using posenc::positions;
using posenc::view;

namespace {

constexpr std::uint64_t cases = 12;

// One instantiation of attention serves no positions, a causal mask, and rope.
const posenc::run_time_policy<> nothing{};
const posenc::run_time_policy<> causal{.masks = {.causal = true}};
const posenc::run_time_policy<> rotary{.rotation = posenc::rope<float>{{.head_dim = laws::head_dim}}};
const posenc::run_time_policy<posenc::alibi<double>> linear_bias{.bias = posenc::alibi<double>{laws::heads}};

posenc::run_time_policy<posenc::relative_bucket<double>> bucket_bias() {
  laws::random_case any(77);
  const auto table = any.vector(8 * laws::heads);
  return {.bias = posenc::relative_bucket<double>{{.heads = laws::heads, .num_buckets = 8, .max_distance = 16},
                                                  std::span<const double>(table)}};
}
template <class Encoder>
tokens embedded(const Encoder& e, tokens x, const positions& at = {}) {
  e.embed(view{x.data(), {.tokens = laws::count(x), .dim = laws::width}}, at);
  return x;
}
posenc::sinusoidal<double> waves() { return posenc::sinusoidal<double>{{.dim = laws::width}}; }
posenc::learned<double> rows() {
  laws::random_case any(78);
  return {{.rows = 64, .dim = laws::width}, any.vector(64 * laws::width)};
}

/// An order that moves something.
std::vector<std::int64_t> shuffle(laws::random_case& any, std::int64_t n) {
  auto order = any.order(n);
  if (std::is_sorted(order.begin(), order.end())) std::swap(order.front(), order.back());
  return order;
}

}  // namespace

TEST_CASE("without positions and mask, permuting tokens permutes the output", "[laws][theory]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const auto x = any.vector(any.whole(2, 12) * laws::width);
    const auto order = shuffle(any, laws::count(x));
    for (const int layers : {1, 2})
      CHECK(laws::difference(network(permuted(x, order), nothing, layers),
                             permuted(network(x, nothing, layers), order)) < 2e-12);
    // The positions given to attention do not matter to a model that looks at none.
    CHECK(network(x, nothing, 2, positions::from(5)) == network(x, nothing, 2));
  }
}

TEST_CASE("with each encoder it does not", "[laws][theory]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const auto x = any.vector(any.whole(4, 12) * laws::width);
    const auto order = shuffle(any, laws::count(x));
    const auto moved = [&](const auto& f) { return laws::difference(f(permuted(x, order)), permuted(f(x), order)); };
    CHECK(moved([](const tokens& y) { return network(embedded(waves(), y), nothing, 1); }) > 1e-3);
    CHECK(moved([](const tokens& y) { return network(embedded(rows(), y), nothing, 1); }) > 1e-3);
    CHECK(moved([](const tokens& y) { return network(y, rotary, 1); }) > 1e-3);
    CHECK(moved([](const tokens& y) { return network(y, linear_bias, 1); }) > 1e-3);
    CHECK(moved([](const tokens& y) { return network(y, bucket_bias(), 1); }) > 1e-3);
    CHECK(moved([](const tokens& y) { return network(y, causal, 1); }) > 1e-3);
    // Tokens that take their positions with them are the same sentence in another order of memory.
    const auto with_ids = [&](const auto& policy) {
      return laws::difference(network(permuted(x, order), policy, 2, positions::listed(order)),
                              permuted(network(x, policy, 2), order));
    };
    CHECK(with_ids(rotary) < 2e-12);
    CHECK(with_ids(linear_bias) < 2e-12);
    CHECK(with_ids(bucket_bias()) < 2e-12);
    CHECK(with_ids(causal) < 2e-12);
  }
}

TEST_CASE("causal without positions: earlier tokens may be swapped under one layer, not under two", "[laws][theory]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t n = any.whole(4, 12);
    const auto x = any.vector(n * laws::width);
    auto order = shuffle(any, n - 1);
    order.push_back(n - 1);
    const auto last = [&](const tokens& y, int layers) {
      const auto out = network(y, causal, layers);
      return tokens(out.end() - laws::width, out.end());
    };
    CHECK(laws::difference(last(permuted(x, order), 1), last(x, 1)) < 2e-13);
    CHECK(laws::difference(last(permuted(x, order), 2), last(x, 2)) > 1e-4);
  }
}

TEST_CASE("uniform causal attention counts its tokens: 1, 1/2, 1/3, ...", "[laws][theory]") {
  constexpr std::int64_t n = 300;
  const posenc::shape s{.tokens = n, .dim = 3};
  std::vector<double> none(static_cast<std::size_t>(s.elements()));
  std::vector<double> first_alone(n);
  first_alone[0] = 1;
  std::vector<double> out(n, -1.0);
  posenc::attention(view{none.data(), s}, view{none.data(), s}, view{first_alone.data(), {.tokens = n, .dim = 1}},
                    view{out.data(), {.tokens = n, .dim = 1}}, causal);
  std::size_t broken = 0;
  for (std::int64_t t = 0; t < n; ++t) broken += out[static_cast<std::size_t>(t)] != 1.0 / static_cast<double>(t + 1);
  CHECK(broken == 0);
}

TEST_CASE("two sentences of the same words differ only through positions", "[laws][theory]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const auto words = any.vector(3 * laws::width);  // dog, bites, man
    const auto dog_bites_man = words;
    const auto man_bites_dog = permuted(words, {2, 1, 0});
    const auto apart = [&](const auto& f) {
      return laws::difference(laws::pooled(f(dog_bites_man)), laws::pooled(f(man_bites_dog)));
    };
    CHECK(apart([](const tokens& y) { return network(y, nothing, 2); }) < 2e-13);
    CHECK(apart([](const tokens& y) { return network(embedded(waves(), y), nothing, 2); }) > 1e-4);
    CHECK(apart([](const tokens& y) { return network(embedded(rows(), y), nothing, 2); }) > 1e-4);
    CHECK(apart([](const tokens& y) { return network(y, rotary, 2); }) > 1e-4);
    CHECK(apart([](const tokens& y) { return network(y, bucket_bias(), 2); }) > 1e-4);
    CHECK(apart([](const tokens& y) { return network(y, causal, 2); }) > 1e-4);
    // A symmetric bias reads a sentence and its mirror image alike.
    CHECK(apart([](const tokens& y) { return network(y, linear_bias, 2); }) < 2e-13);
    const auto rotated = permuted(words, {1, 2, 0});
    CHECK(laws::difference(laws::pooled(network(words, linear_bias, 2)),
                           laws::pooled(network(rotated, linear_bias, 2))) > 1e-4);
  }
}

TEST_CASE("symmetric and causal ALiBi give the same bits under a causal mask", "[laws][theory]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const auto x = any.vector(any.whole(2, 40) * laws::width);
    auto policy = linear_bias;
    policy.masks.causal = true;
    const auto symmetric = network(x, policy, 2);
    policy.bias = posenc::alibi<double>{{.heads = laws::heads, .form = posenc::alibi_form::causal}};
    CHECK(network(x, policy, 2) == symmetric);
    // Without the mask they are two different encodings.
    policy.masks.causal = false;
    CHECK(laws::difference(network(x, policy, 1), network(x, linear_bias, 1)) > 1e-4);
    // Adding m * pk instead differs by a constant per row, which softmax does not see.
    policy.masks.causal = true;
    policy.bias = posenc::alibi<double>{{.heads = laws::heads, .form = posenc::alibi_form::key_only}};
    CHECK(laws::difference(network(x, policy, 2), symmetric) < 2e-12);
  }
}
