// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/bias.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/alibi_asymmetric.hpp>
#include <posenc/encoders/alibi_grid.hpp>
#include <posenc/encoders/dynamic_bias.hpp>
#include <posenc/encoders/fire.hpp>
#include <posenc/encoders/kerple.hpp>
#include <posenc/encoders/sandwich.hpp>

using posenc::positions;

namespace {

constexpr std::uint64_t cases = 25;

template <class T>
posenc::kerple<T> any_kerple(laws::random_case& any) {
  posenc::kerple_options<T> o;
  o.kernel = any.coin() ? posenc::kerple_kernel::log : posenc::kerple_kernel::power;
  o.distance = any.coin() ? posenc::kerple_distance::past : posenc::kerple_distance::absolute;
  const std::int64_t heads = any.whole(1, 4);
  o.scale = any.vector<T>(heads);
  o.shape = any.vector<T>(heads);
  return posenc::kerple<T>(o);
}
template <class T>
posenc::sandwich<T> any_sandwich(laws::random_case& any) {
  return posenc::sandwich<T>({.heads = any.whole(1, 4),
                              .dim = 2 * any.whole(1, 70),
                              .base = any.real(1, 20000),
                              .first_index = any.whole(0, 2),
                              .subtract = any.real(-5, 5)});
}
template <class T>
posenc::dynamic_bias<T> any_dynamic(laws::random_case& any) {
  posenc::dynamic_bias_options<T> o;
  o.log_distance = any.coin();
  std::int64_t inputs = 1;
  for (std::int64_t left = any.whole(1, 3); left > 0; --left) {
    const std::int64_t outputs = any.whole(1, 9);
    o.layers.push_back({any.vector<T>(inputs * outputs), any.vector<T>(outputs)});
    inputs = outputs;
  }
  return posenc::dynamic_bias<T>(o);
}
template <class T>
posenc::fire<T> any_fire(laws::random_case& any, double threshold) {
  const std::int64_t units = any.whole(1, 40);
  const std::int64_t heads = any.whole(1, 4);
  return posenc::fire<T>({.c = static_cast<T>(any.real(0.05, 2)),
                          .threshold = static_cast<T>(threshold),
                          .weight1 = any.vector<T>(units),
                          .bias1 = any.vector<T>(units),
                          .weight2 = any.vector<T>(units * heads),
                          .bias2 = any.vector<T>(heads)});
}

/// [heads, queries, keys].
template <class T, class Encoder>
std::vector<T> bias(const Encoder& e, const positions& query_at, std::int64_t queries, const positions& key_at,
                    std::int64_t keys) {
  std::vector<T> out(static_cast<std::size_t>(e.heads() * queries * keys));
  posenc::fill_bias(e, e.heads(), query_at, queries, key_at, keys, std::span<T>(out));
  return out;
}

/// Listed ids in random order against contiguous ones; rows on lanes against one by one. The largest difference.
template <class T, class Encoder>
double between_ways(const Encoder& e, std::int64_t q0, std::int64_t queries, std::int64_t k0, std::int64_t keys,
                    laws::random_case& any) {
  const auto b = bias<T>(e, positions::from(q0), queries, positions::from(k0), keys);
  const auto order = any.order(keys);
  std::vector<std::int64_t> ids;
  for (const std::int64_t j : order) ids.push_back(k0 + j);
  const auto mixed = bias<T>(e, positions::from(q0), queries, positions::listed(ids), keys);
  std::vector<T> sorted(b.size());
  std::vector<T> rows(b.size());
  for (std::int64_t h = 0; h < e.heads(); ++h)
    for (std::int64_t i = 0; i < queries; ++i) {
      const std::int64_t row = (h * queries + i) * keys;
      for (std::int64_t j = 0; j < keys; ++j)
        sorted[static_cast<std::size_t>(row + order[static_cast<std::size_t>(j)])] =
            mixed[static_cast<std::size_t>(row + j)];
      posenc::add_bias_row(e, {.head = h, .query_index = i, .query_position = q0 + i}, k0,
                           std::span<T>(rows).subspan(static_cast<std::size_t>(row), static_cast<std::size_t>(keys)));
    }
  return std::max(laws::difference(sorted, b), laws::difference(rows, b));
}

/// What holds for every line of distances, to the bit: constant along diagonals, the same after a shift of all
/// positions, in every way of asking, and in a table.
template <class T, class Encoder>
void check_distances_alone(const Encoder& e, laws::random_case& any) {
  const std::int64_t queries = any.whole(2, 9);
  const std::int64_t keys = any.whole(9, 70);
  const std::int64_t q0 = any.whole(-60, 60);
  const std::int64_t k0 = any.whole(-60, 60);
  const auto b = bias<T>(e, positions::from(q0), queries, positions::from(k0), keys);
  const auto value = [&](std::int64_t h, std::int64_t i, std::int64_t j) {
    return b[static_cast<std::size_t>((h * queries + i) * keys + j)];
  };
  const auto table = e.tabulated(200);
  std::size_t bent = 0;
  std::size_t other = 0;
  std::size_t one_sided = 0;
  for (std::int64_t h = 0; h < e.heads(); ++h)
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j) {
        bent += i > 0 && j > 0 && value(h, i, j) != value(h, i - 1, j - 1);
        const std::int64_t d = k0 + j - q0 - i;
        other += value(h, i, j) != table.line(h)[d];
        one_sided += table.line(h)[d] != table.line(h)[-d];
      }
  CHECK(bent == 0);
  CHECK(other == 0);
  if (Encoder::traits.symmetric) CHECK(one_sided == 0);
  const std::int64_t t = any.whole(-1000000, 1000000) << any.whole(0, 20);
  CHECK(bias<T>(e, positions::from(q0 + t), queries, positions::from(k0 + t), keys) == b);
  CHECK(between_ways<T>(e, q0, queries, k0, keys, any) == 0);
}

}  // namespace

TEMPLATE_TEST_CASE("kerple, sandwich and dynamic_bias: biases of distances alone", "[laws][distance_bias]", float,
                   double) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    check_distances_alone<TestType>(any_kerple<TestType>(any), any);
    check_distances_alone<TestType>(any_sandwich<TestType>(any), any);
    check_distances_alone<TestType>(any_dynamic<TestType>(any), any);
  }
}

TEST_CASE("kerple: what it claims to prefer it prefers", "[laws][kerple]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const auto e = any_kerple<double>(any);
    const auto table = e.tabulated(300);
    std::size_t rises = 0;
    std::size_t one_sided = 0;
    for (std::int64_t h = 0; h < e.heads(); ++h)
      for (std::int64_t d = 1; d <= 300; ++d) {
        rises += table.line(h)[-d] > table.line(h)[1 - d];
        one_sided += table.line(h)[d] != table.line(h)[-d];
      }
    CHECK(rises == 0);
    CHECK((one_sided == 0) == e.describe().monotone);
  }
}

TEMPLATE_TEST_CASE("fire: every way of asking, and rows that do not know of each other", "[laws][fire]", float,
                   double) {
  // Sums of up to 40 units between -1 and 1, each rounded a few times.
  const double bound = std::is_same_v<TestType, float> ? 2e-5 : 5e-14;
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const double threshold = any.real(1, 60);
    const auto e = any_fire<TestType>(any, threshold);
    const std::int64_t queries = any.whole(2, 60);
    const std::int64_t keys = any.whole(2, 90);
    const std::int64_t q0 = any.whole(-20, 60);
    const std::int64_t k0 = any.whole(-60, 60);
    CHECK(between_ways<TestType>(e, q0, queries, k0, keys, any) < bound);
    // The rows of a call that reaches beyond the threshold against one call per row, cached decoding.
    const auto b = bias<TestType>(e, positions::from(q0), queries, positions::from(k0), keys);
    std::vector<TestType> steps(b.size());
    for (std::int64_t i = 0; i < queries; ++i) {
      const auto one = bias<TestType>(e, positions::from(q0 + i), 1, positions::from(k0), keys);
      for (std::int64_t h = 0; h < e.heads(); ++h)
        for (std::int64_t j = 0; j < keys; ++j)
          steps[static_cast<std::size_t>((h * queries + i) * keys + j)] = one[static_cast<std::size_t>(h * keys + j)];
    }
    CHECK(laws::difference(steps, b) < bound);
  }
}

TEST_CASE("fire: up to the threshold it depends on distances alone, beyond it on their share of the query's position",
          "[laws][fire]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const auto within = any_fire<double>(any, 1000);
    const std::int64_t q0 = any.whole(-50, 500);
    const std::int64_t t = any.whole(0, 480);
    CHECK(bias<double>(within, positions::from(q0), 7, positions::from(0), 60) ==
          bias<double>(within, positions::from(q0 + t), 7, positions::from(t), 60));
    // Both sides of the query alike.
    for (std::int64_t d = 0; d < 40; ++d) CHECK(within(0, q0, q0 + d) == within(0, q0, q0 - d));
    // The first key of any query has x = 1 up to eps, whatever the position.
    const auto beyond = any_fire<double>(any, 1);
    const double far = beyond(0, 1000000, 0);
    CHECK(std::abs(beyond(0, any.whole(1000, 1000000000), 0) - far) < 1e-4);
  }
}

TEMPLATE_TEST_CASE("alibi_two_sided and alibi_grid: ALiBi where they are the same", "[laws][alibi]", float, double) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const std::int64_t heads = any.whole(1, 5);
    const auto slopes = any.vector<TestType>(heads);
    const posenc::alibi<TestType> plain(slopes);
    const std::int64_t queries = any.whole(2, 9);
    const std::int64_t keys = any.whole(2, 70);
    const std::int64_t q0 = any.whole(-200, 200);
    const std::int64_t k0 = any.whole(-200, 200);
    const auto b = bias<TestType>(plain, positions::from(q0), queries, positions::from(k0), keys);
    const posenc::alibi_two_sided<TestType> both(slopes, slopes);
    CHECK(bias<TestType>(both, positions::from(q0), queries, positions::from(k0), keys) == b);
    CHECK(between_ways<TestType>(both, q0, queries, k0, keys, any) == 0);
    const auto metric = any.coin() ? posenc::grid_metric::manhattan : posenc::grid_metric::euclidean;
    const posenc::alibi_grid<TestType> grid(plain, metric);
    CHECK(bias<TestType>(grid, positions::from(q0), queries, positions::from(k0), keys) == b);
    CHECK(between_ways<TestType>(grid, q0, queries, k0, keys, any) == 0);
    // Sides that differ: each is ALiBi on its own.
    const auto other = any.vector<TestType>(heads);
    const auto ahead =
        bias<TestType>(posenc::alibi<TestType>(other), positions::from(q0), queries, positions::from(k0), keys);
    const auto mixed = bias<TestType>(posenc::alibi_two_sided<TestType>(slopes, other), positions::from(q0), queries,
                                      positions::from(k0), keys);
    std::size_t wrong = 0;
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < queries; ++i)
        for (std::int64_t j = 0; j < keys; ++j) {
          const auto at = static_cast<std::size_t>((h * queries + i) * keys + j);
          wrong += mixed[at] != (k0 + j > q0 + i ? ahead[at] : b[at]);
        }
    CHECK(wrong == 0);
  }
}

TEST_CASE("alibi_split: a pair of tokens is seen by one half of the heads, itself by both", "[laws][alibi]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const posenc::alibi_split<float> e(2 * any.whole(1, 12));
    const std::int64_t q = any.whole(-1000, 1000);
    const std::int64_t k = any.coin() ? q : any.whole(-1000, 1000);
    std::int64_t seen = 0;
    for (std::int64_t h = 0; h < e.heads(); ++h)
      seen += e.allow_positions({.head = h, .query_position = q}).contains(k);
    CHECK(seen == (k == q ? e.heads() : e.heads() / 2));
  }
}

TEST_CASE("alibi_grid: moved grids, exchanged axes and roles", "[laws][alibi]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const int axes = static_cast<int>(any.whole(2, 4));
    const std::int64_t tokens = any.whole(2, 20);
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < axes * tokens; ++i) ids.push_back(any.whole(-30, 30));
    const auto near = [&](const std::vector<std::int64_t>& at, posenc::grid_metric metric) {
      return bias<double>(posenc::alibi_grid<double>(1, metric), positions::axes(at, axes), tokens,
                          positions::axes(at, axes), tokens);
    };
    auto moved = ids;
    auto exchanged = ids;
    for (std::int64_t i = 0; i < axes * tokens; ++i) {
      moved[static_cast<std::size_t>(i)] += (i / tokens + 1) * 1000003;
      exchanged[static_cast<std::size_t>(i)] = ids[static_cast<std::size_t>((i + tokens) % (axes * tokens))];
    }
    const auto walked = near(ids, posenc::grid_metric::manhattan);
    const auto flown = near(ids, posenc::grid_metric::euclidean);
    CHECK(near(moved, posenc::grid_metric::manhattan) == walked);
    CHECK(near(moved, posenc::grid_metric::euclidean) == flown);
    CHECK(near(exchanged, posenc::grid_metric::manhattan) == walked);
    CHECK(near(exchanged, posenc::grid_metric::euclidean) == flown);  // sums of whole squares are exact
    std::size_t wrong = 0;
    for (std::int64_t i = 0; i < tokens; ++i)
      for (std::int64_t j = 0; j < tokens; ++j) {
        const auto at = static_cast<std::size_t>(i * tokens + j);
        wrong += flown[at] != flown[static_cast<std::size_t>(j * tokens + i)];
        wrong += walked[at] > flown[at];  // no way is shorter than the straight one
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("kerple in fused attention is kerple in attention as defined", "[laws][kerple]") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const auto parameters = any.vector(4);
    const auto policy = posenc::compose(
        posenc::kerple_weight<double>({.kernel = posenc::kerple_kernel::power,
                                       .scale = {parameters[0], parameters[1]},
                                       .shape = {parameters[2], parameters[3]}}),
        posenc::kerple<double>({.scale = {parameters[1], parameters[2]}, .shape = {parameters[3], parameters[0]}}),
        posenc::causal{});
    const std::int64_t keys = any.whole(1, 150);
    const std::int64_t queries = any.whole(1, 20);
    const posenc::shape of_q{.batch = 2, .tokens = queries, .heads = 2, .dim = 8};
    const posenc::shape of_k{.batch = 2, .tokens = keys, .heads = 1, .dim = 8};
    const auto q = any.vector(of_q.elements());
    const auto k = any.vector(of_k.elements());
    const auto v = any.vector(of_k.elements());
    std::vector<double> fused(q.size());
    std::vector<double> defined(q.size());
    const std::vector<std::int64_t> firsts{keys - queries, any.whole(0, 200)};
    std::vector<std::int64_t> ids(static_cast<std::size_t>(keys));
    for (auto& id : ids) id = any.whole(0, 300);
    const bool listed = any.coin();
    const auto query_at = positions::per_row(firsts);
    const auto key_at = listed ? positions::listed(ids) : positions{};
    const posenc::view<const double> queries_at(q.data(), of_q);
    const posenc::view<const double> keys_at(k.data(), of_k);
    const posenc::view<const double> values_at(v.data(), of_k);
    posenc::attention(queries_at, keys_at, values_at, posenc::view<double>(fused.data(), of_q), policy,
                      {.query_positions = query_at, .key_positions = key_at});
    posenc::attention_reference(queries_at, keys_at, values_at, posenc::view<double>(defined.data(), of_q), policy,
                                {.query_positions = query_at, .key_positions = key_at});
    CHECK(laws::difference(fused, defined) < 1e-14);
  }
}
