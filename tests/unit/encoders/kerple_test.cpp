// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/distance_bias.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/kerple.hpp>

#include <unsupported/Eigen/AutoDiff>

#include <limits>

using posenc::kerple_distance;
using posenc::kerple_kernel;
using posenc::positions;
using posenc_test::refusal;

namespace {

const std::vector<double> scale{0.3, 1.7};
const std::vector<double> shape{0.9, 1.4};

template <class T>
posenc::kerple_options<T> options(kerple_kernel kernel, kerple_distance distance) {
  return {.kernel = kernel,
          .distance = distance,
          .scale = std::vector<T>(scale.begin(), scale.end()),
          .shape = std::vector<T>(shape.begin(), shape.end())};
}

}  // namespace

TEMPLATE_TEST_CASE("kerple: the two kernels over the two distances, rounded once", "[kerple]", float, double,
                   long double) {
  for (const auto kernel : {kerple_kernel::log, kerple_kernel::power})
    for (const auto distance : {kerple_distance::past, kerple_distance::absolute}) {
      const auto o = options<TestType>(kernel, distance);
      const posenc::kerple<TestType> e{o};
      CHECK(e.heads() == 2);
      std::vector<TestType> bias(2 * 200);
      posenc::fill_bias(e, 2, positions::from(120), 1, positions::from(0), 200, std::span<TestType>(bias));
      posenc_test::worst ulp;
      for (std::size_t h = 0; h < 2; ++h)
        for (std::size_t j = 0; j < 200; ++j)
          ulp.see(posenc_test::ulp_error(
                      bias[200 * h + j],
                      distance_reference::kerple(kernel == kerple_kernel::log, static_cast<double>(o.scale[h]),
                                                 static_cast<double>(o.shape[h]), distance == kerple_distance::absolute,
                                                 120 - static_cast<std::int64_t>(j))),
                  static_cast<long double>(j));
      CAPTURE(ulp);
      CHECK(ulp.error <= (std::is_same_v<TestType, float> ? 0.5001L : 3));
    }
}

TEST_CASE("kerple: values by hand", "[kerple]") {
  const posenc::kerple<double> log{{.scale = {2}, .shape = {3}}};
  const auto at = [](const auto& e, std::int64_t d) { return e.rule()(0, d); };
  CHECK(at(log, 0) == 0);
  CHECK(at(log, 5) == 0);
  CHECK(at(log, -1) == Approx(-2 * std::log(4.0)).epsilon(1e-15));
  const posenc::kerple<double> power{
      {.kernel = kerple_kernel::power, .distance = kerple_distance::absolute, .scale = {0.5}, .shape = {2}}};
  CHECK(at(power, 3) == -4.5);
  CHECK(at(power, -3) == -4.5);
  CHECK(!std::signbit(at(power, 0)));
  // As far as distances go.
  CHECK(at(log, -(std::int64_t{1} << 62)) == Approx(-2 * std::log(3 * std::exp2(62.0))).epsilon(1e-15));
}

TEST_CASE("kerple: parameters are held", "[kerple]") {
  const posenc::kerple<float> log{{.scale = {-1, 0.005f, 3}, .shape = {0, 5, 0.5f}}};
  CHECK(log.rule().options().scale == std::vector<float>{0.01f, 0.01f, 3});
  CHECK(log.rule().options().shape == std::vector<float>{0.01f, 5, 0.5f});
  const posenc::kerple<float> power{{.kernel = kerple_kernel::power, .scale = {3}, .shape = {5}}};
  CHECK(power.rule().options().scale == std::vector<float>{3});
  CHECK(power.rule().options().shape == std::vector<float>{2});
  const posenc::kerple<float> free{{.scale = {0.001f}, .shape = {-1}, .parameter_min = 0}};
  CHECK(free.rule().options().scale == std::vector<float>{0.001f});
  CHECK(free.rule().options().shape == std::vector<float>{0});
}

TEST_CASE("kerple_weight: a factor before the bias", "[kerple]") {
  const posenc::kerple_weight<double> weight{options<double>(kerple_kernel::power, kerple_distance::past)};
  const posenc::kerple<double> bias{options<double>(kerple_kernel::log, kerple_distance::past)};
  const auto both = posenc::compose(weight, bias);
  std::vector<double> logits(40, 3.0);
  posenc::add_bias_row(both, {.head = 1, .query_position = 25}, 0, std::span<double>(logits));
  posenc_test::worst worst;
  for (std::size_t j = 0; j < 40; ++j) {
    const auto r = 25 - static_cast<std::int64_t>(j);
    worst.see(std::fabs(static_cast<long double>(logits[j]) -
                        (3 * std::exp(distance_reference::kerple(false, scale[1], shape[1], false, r)) +
                         distance_reference::kerple(true, scale[1], shape[1], false, r))),
              static_cast<long double>(j));
  }
  CAPTURE(worst);
  CHECK(worst.error < 1e-14L);
  CHECK(weight.rule()(0, 3) == 1);
  CHECK(!weight.describe().monotone);
  CHECK(refusal([] { posenc::kerple_weight<float>{{.scale = {1}, .shape = {1}}}; }) ==
        "posenc::kerple_weight: kernel must be power, got log");
}

TEST_CASE("kerple: refusals and description", "[kerple]") {
  const auto make = [](posenc::kerple_options<float> o) {
    return refusal([&] { posenc::kerple<float>{std::move(o)}; });
  };
  CHECK(make({}) == "posenc::kerple: scale must list one value per head, got 0");
  CHECK(make({.scale = {1, 2}, .shape = {1}}) == "posenc::kerple: shape must be as long as scale, got 1");
  CHECK(make({.scale = {1}, .shape = {1}, .parameter_min = -1}) ==
        "posenc::kerple: parameter_min must lie in 0..2, got -1");
  CHECK(make({.scale = {std::numeric_limits<float>::quiet_NaN()}, .shape = {1}}) ==
        "posenc::kerple: scale must hold numbers, got a NaN");
  CHECK(make({.scale = {1}, .shape = {std::numeric_limits<float>::infinity()}}) ==
        "posenc::kerple: shape must be finite, got inf");
  CHECK(make({.scale = {1}, .shape = {1}}) == "nothing thrown");

  const posenc::kerple<float> e{options<float>(kerple_kernel::log, kerple_distance::past)};
  CHECK(e.describe().parameters == 4);
  CHECK(e.describe().table_bytes == 16);
  CHECK(!e.describe().position_limit);
  CHECK(!e.describe().monotone);  // a later key is not farther
  CHECK(posenc::kerple<float>{options<float>(kerple_kernel::power, kerple_distance::absolute)}.describe().monotone);
}

TEST_CASE("kerple: derivatives by its parameters", "[kerple]") {
  using dual = Eigen::AutoDiffScalar<Eigen::Vector2d>;
  for (const auto kernel : {kerple_kernel::log, kerple_kernel::power})
    for (const std::int64_t d : {-1, -7, -300}) {
      const double a = 0.8;
      const double b = 0.6;
      const posenc::kerple<dual> e{{.kernel = kernel, .scale = {dual(a, 2, 0)}, .shape = {dual(b, 2, 1)}}};
      std::vector<dual> bias(1);
      posenc::fill_bias(e, 1, positions::from(0), 1, positions::from(d), 1, std::span<dual>(bias));
      const auto t = static_cast<double>(-d);
      const bool log = kernel == kerple_kernel::log;
      const double by_scale = log ? -std::log(1 + b * t) : -std::pow(t, b);
      const double by_shape = log ? -a * t / (1 + b * t) : -a * std::pow(t, b) * std::log(t);
      CHECK(bias[0].value() == Approx(a * by_scale).epsilon(1e-14));
      CHECK(bias[0].derivatives()[0] == Approx(by_scale).epsilon(1e-14));
      CHECK(bias[0].derivatives()[1] == Approx(by_shape).epsilon(1e-14));
    }
  // Straight through: what was raised keeps its derivative.
  const posenc::kerple<dual> held{{.scale = {dual(-3, 2, 0)}, .shape = {dual(1, 2, 1)}}};
  const dual x = held.rule()(0, -4);
  CHECK(x.value() == Approx(-0.01 * std::log(5.0)).epsilon(1e-14));
  CHECK(x.derivatives()[0] == Approx(-std::log(5.0)).epsilon(1e-14));
}
