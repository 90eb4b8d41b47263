// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/distance_bias.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/fire.hpp>

#include <unsupported/Eigen/AutoDiff>

#include <limits>

using posenc::positions;
using posenc_test::refusal;
using posenc_test::values;

namespace {

constexpr double c = 0.1;
constexpr double threshold = 40;

struct network {
  distance_reference::layer first;
  distance_reference::layer second;
};
network network_of(std::int64_t units, std::int64_t heads, int seed) {
  return {{values<double>(units, seed), values<double>(units, seed + 1)},
          {values<double>(units * heads, seed + 2), values<double>(heads, seed + 3)}};
}
/// Parameters that float holds, so that one oracle serves all types.
network rounded(network n) {
  for (auto* l : {&n.first, &n.second})
    for (auto* list : {&l->weight, &l->bias})
      for (double& x : *list) x = static_cast<double>(static_cast<float>(x));
  return n;
}
template <class T>
posenc::fire_options<T> options(const network& n, double limit = threshold) {
  const auto to = [](const std::vector<double>& x) { return std::vector<T>(x.begin(), x.end()); };
  return {.c = T(c),
          .threshold = T(limit),
          .threshold_multiplier = T(1),
          .eps = 1e-6,
          .weight1 = to(n.first.weight),
          .bias1 = to(n.first.bias),
          .weight2 = to(n.second.weight),
          .bias2 = to(n.second.bias)};
}
template <class T>
long double wanted(const network& n, std::size_t head, std::int64_t q, std::int64_t k, double limit = threshold) {
  return distance_reference::fire(static_cast<double>(T(c)), limit, 1e-6, n.first, n.second, head, q, k);
}

}  // namespace

TEMPLATE_TEST_CASE("fire: rows on lanes against the network itself", "[fire]", float, double) {
  // A few roundings of |slope t| + |intercept|.
  const long double bound = std::is_same_v<TestType, float> ? 1e-5L : 3e-14L;
  for (int seed = 0; seed < 12; ++seed) {
    const std::int64_t units = seed == 0 ? 1 : 8 * seed;
    const network n = rounded(network_of(units, 2, 10 * seed));
    const posenc::fire<TestType> e{options<TestType>(n)};
    posenc_test::worst worst;
    // Queries below, at and above the threshold; keys on both sides, and far away on one.
    for (const std::int64_t q : {0, 5, 39, 40, 41, 90, 1000})
      for (const std::int64_t first : {q - 70, q + 3, std::int64_t{-4}, std::int64_t{5000}})
        for (std::int64_t h = 0; h < 2; ++h) {
          std::vector<TestType> row(101);
          posenc::add_bias_row(e, {.head = h, .query_position = q}, first, std::span<TestType>(row));
          for (std::size_t j = 0; j < row.size(); ++j)
            worst.see(
                std::fabs(static_cast<long double>(row[j]) -
                          wanted<TestType>(n, static_cast<std::size_t>(h), q, first + static_cast<std::int64_t>(j))),
                static_cast<long double>(q));
        }
    CAPTURE(seed, worst);
    CHECK(worst.error < bound);
  }
}

TEMPLATE_TEST_CASE("fire: rows of one call, listed ids, and pairs on their own", "[fire]", float, double, long double) {
  const long double bound = std::is_same_v<TestType, float> ? 1e-5L : 3e-14L;
  const network n = rounded(network_of(32, 3, 5));
  const posenc::fire<TestType> e{options<TestType>(n)};
  CHECK(e.heads() == 3);
  // One finished line (no query beyond the threshold), lines of t, and ids so far apart that there is no line.
  for (const std::int64_t stride : {1, 5, 100000})
    for (const std::int64_t q0 : {-20, 20, 35}) {
      std::vector<std::int64_t> q;
      std::vector<std::int64_t> k;
      for (std::int64_t i = 0; i < 12; ++i) q.push_back(q0 + i * stride);
      for (std::int64_t j = 0; j < 30; ++j) k.push_back((j * 7 % 30 - 4) * stride);
      std::vector<TestType> bias(3 * 12 * 30);
      posenc::fill_bias(e, 3, positions::listed(q), 12, positions::listed(k), 30, std::span<TestType>(bias));
      posenc_test::worst worst;
      for (std::size_t h = 0; h < 3; ++h)
        for (std::size_t i = 0; i < 12; ++i)
          for (std::size_t j = 0; j < 30; ++j) {
            const long double want = wanted<TestType>(n, h, q[i], k[j]);
            worst.see(std::fabs(static_cast<long double>(bias[(h * 12 + i) * 30 + j]) - want));
            worst.see(std::fabs(static_cast<long double>(e(static_cast<std::int64_t>(h), q[i], k[j])) - want));
          }
      CAPTURE(stride, q0, worst);
      CHECK(worst.error < bound);
    }
}

TEST_CASE("fire: units that never or always work", "[fire]") {
  // Rising from a knot below 0, falling from below 0, constant, a knot at 0, two knots in one place.
  const network n{{{1, -1, 0, 0, 2, -3, 1, -1}, {0.5, -0.5, 0.7, -0.7, 0, 0, -0.4, 0.4}},
                  {{1, 2, 3, 4, 5, 6, 7, 8}, {0.25}}};
  const posenc::fire<double> e{options<double>(n)};
  posenc_test::worst worst;
  for (std::int64_t k = -300; k < 300; ++k)
    worst.see(std::fabs(static_cast<long double>(e(0, 50, k)) - wanted<double>(n, 0, 50, k)));
  CAPTURE(worst);
  CHECK(worst.error < 1e-14L);
}

TEST_CASE("fire: a row of a call in any order of its keys", "[fire]") {
  const network n = network_of(32, 1, 2);
  const posenc::fire<double> e{options<double>(n)};
  const posenc::call call{.batch = 1,
                          .heads = 1,
                          .kv_heads = 1,
                          .queries = 200,
                          .keys = 200,
                          .dim = 0,
                          .value_dim = 0,
                          .query_positions = {},
                          .key_positions = {}};
  // Nothing outside the workspace is written: one line of t.
  const std::size_t bytes = e.workspace_bytes(call);
  CHECK(bytes == sizeof(double) * (399 + posenc::lane_slack));
  posenc_test::guarded<std::byte> memory(bytes);
  const auto bound = e.bind(memory.data(), call);
  CHECK(memory.intact());
  // The stretch that an op remembers is no more than a guess.
  using B = posenc::simd::batch<double>;
  const posenc::row r{.query_index = 150, .query_position = 150};
  const auto op = bound.row<B>(r, posenc::contiguous_keys{0});
  posenc_test::random_source any(4);
  posenc_test::worst worst;
  for (int n_th = 0; n_th < 2000; ++n_th) {
    const std::int64_t k = any.integer(0, 199);
    double lane[posenc::lane_slack];
    posenc::lanes<B>::store(lane, op(B(1.0), k));
    for (std::int64_t i = 0; i < posenc::lanes<B>::size && k + i < 200; ++i)
      worst.see(std::fabs(static_cast<long double>(lane[i]) - 1 - wanted<double>(n, 0, 150, k + i)));
  }
  CAPTURE(worst);
  CHECK(worst.error < 1e-13L);
  // Within the threshold, one finished line per head.
  const posenc::fire<float> near{options<float>(network_of(8, 4, 1), 200)};
  CHECK(near.workspace_bytes(call) == 4 * sizeof(float) * (399 + posenc::lane_slack));
}

TEST_CASE("fire: refusals and description", "[fire]") {
  const auto make = [](auto&& change) {
    auto o = options<float>(network_of(4, 2, 0));
    change(o);
    return refusal([&] { posenc::fire<float>{o}; });
  };
  using options_type = posenc::fire_options<float>;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(make([](options_type& o) { o.bias2.clear(); }) == "posenc::fire: bias2 must list one value per head, got 0");
  CHECK(make([](options_type& o) { o.bias1.clear(); }) ==
        "posenc::fire: bias1 must list one value per hidden unit, got 0");
  CHECK(make([](options_type& o) { o.weight1.pop_back(); }) == "posenc::fire: weight1 must be as long as bias1, got 3");
  CHECK(make([](options_type& o) { o.weight2.pop_back(); }) ==
        "posenc::fire: weight2 must hold heads * hidden units values, got 7");
  CHECK(make([](options_type& o) { o.eps = 0; }) == "posenc::fire: eps must be positive and finite, got 0");
  CHECK(make([&](options_type& o) { o.c = nan; }) == "posenc::fire: c must hold numbers, got a NaN");
  CHECK(make([](options_type& o) { o.threshold = HUGE_VALF; }) == "posenc::fire: threshold must be finite, got inf");
  CHECK(make([&](options_type& o) { o.threshold_multiplier = nan; }) ==
        "posenc::fire: threshold_multiplier must hold numbers, got a NaN");
  CHECK(make([&](options_type& o) { o.weight1[2] = nan; }) == "posenc::fire: weight1 must hold numbers, got a NaN");
  CHECK(make([](options_type& o) { o.weight2[5] = -HUGE_VALF; }) == "posenc::fire: weight2 must be finite, got -inf");
  CHECK(make([](options_type&) {}) == "nothing thrown");

  const posenc::fire<float> e{options<float>(network_of(4, 2, 0))};
  CHECK(e.describe().parameters == 4 + 4 + 8 + 2 + 2);
  CHECK(!e.describe().monotone);
  CHECK(e.options().weight2.size() == 8);
  STATIC_REQUIRE(!posenc::fire<float>::traits.translation_invariant);
}

TEST_CASE("fire: derivatives by c, the threshold and the network", "[fire]") {
  using dual = Eigen::AutoDiffScalar<Eigen::VectorXd>;
  const network n = network_of(6, 1, 7);
  const auto constant = [](double x) { return dual(x, Eigen::VectorXd::Zero(3)); };
  posenc::fire_options<dual> o{
      .c = dual(c, 3, 0), .threshold = constant(threshold), .threshold_multiplier = dual(1, 3, 1), .eps = 1e-6};
  for (const double x : n.first.weight) o.weight1.push_back(constant(x));
  for (const double x : n.first.bias) o.bias1.push_back(constant(x));
  for (const double x : n.second.weight) o.weight2.push_back(constant(x));
  for (const double x : n.second.bias) o.bias2.push_back(constant(x));
  o.weight1[2] = dual(n.first.weight[2], 3, 2);
  const posenc::fire<dual> e{o};
  for (const std::int64_t q : {20, 90}) {
    std::vector<dual> bias(1);
    posenc::fill_bias(e, 1, positions::from(q), 1, positions::from(3), 1, std::span<dual>(bias));
    const auto value = [&](double by_c, double by_limit, double by_weight) {
      auto moved = n;
      moved.first.weight[2] += by_weight;
      return distance_reference::fire(c + by_c, threshold * (1 + by_limit), 1e-6, moved.first, moved.second, 0, q, 3);
    };
    constexpr double h = 1e-5;
    const auto slope = [&](double up_c, double up_limit, double up_weight) {
      return static_cast<double>((value(up_c, up_limit, up_weight) - value(-up_c, -up_limit, -up_weight)) / (2 * h));
    };
    CAPTURE(q);
    CHECK(bias[0].value() == Approx(static_cast<double>(value(0, 0, 0))).epsilon(1e-13));
    CHECK(bias[0].derivatives()[0] == Approx(slope(h, 0, 0)).epsilon(1e-6));
    CHECK(bias[0].derivatives()[1] == Approx(slope(0, h, 0)).margin(1e-8).epsilon(1e-6));
    CHECK(bias[0].derivatives()[2] == Approx(slope(0, 0, h)).margin(1e-9).epsilon(1e-6));
    // The threshold counts only where it is what divides.
    CHECK((bias[0].derivatives()[1] == 0) == (q > 40));
  }
}
