// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Biases of the distance: KERPLE, Sandwich, dynamic bias, FIRE, ALiBi's relatives, and a rule of one's own.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/bias.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/alibi_asymmetric.hpp>
#include <posenc/encoders/alibi_grid.hpp>
#include <posenc/encoders/dynamic_bias.hpp>
#include <posenc/encoders/fire.hpp>
#include <posenc/encoders/kerple.hpp>
#include <posenc/encoders/sandwich.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

// [rule]
/// -strength * sqrt(distance) per head: too dear for every logit, so it becomes a line per call.
struct root_rule {
  static constexpr posenc::encoder_traits traits{.name = "root",
                                                 .site = posenc::site::logit,
                                                 .relation = posenc::relation::relative,
                                                 .origin = posenc::origin::designed,
                                                 .translation_invariant = true,
                                                 .symmetric = true};
  std::vector<float> strength;

  std::int64_t heads() const { return static_cast<std::int64_t>(strength.size()); }
  posenc::encoder_description describe() const { return {.monotone = true}; }
  float operator()(std::int64_t head, std::int64_t distance) const {
    return -strength[static_cast<std::size_t>(head)] * std::sqrt(std::abs(static_cast<float>(distance)));
  }
};
// [/rule]

namespace {

bool good = true;

/// The bias of head 0 for a query at 9 and the key at `key`.
template <class Encoder>
float bias_at(const Encoder& encoder, std::int64_t key) {
  std::vector<float> row(10, 0.0f);
  posenc::add_bias_row<float>(encoder, {.query_position = 9}, 0, row);
  return row[static_cast<std::size_t>(key)];
}
void check(const char* what, float got, double want) {
  std::printf("%-40s %10.6f\n", what, static_cast<double>(got));
  good = good && std::abs(static_cast<double>(got) - want) < 1e-5;
}

}  // namespace

int main() {
  const std::vector<float> r1{1.5f, 0.5f};
  const std::vector<float> r2{0.2f, 2.0f};

  // [kerple]
  // -r1 ln(1 + r2 t) per head, t the distance into the past.
  const posenc::kerple<float> kerple{{.scale = r1, .shape = r2}};
  const auto policy = posenc::compose(kerple, posenc::causal{});
  // [/kerple]
  check("kerple, 7 back", bias_at(kerple, 2), -1.5 * std::log(1 + 0.2 * 7));

  // Equal scores, and a value that says whether its key stands at position 2: its weight is a share of (1 + r2 t)^-r1.
  const posenc::shape shape{.tokens = 10, .heads = 2, .dim = 4};
  std::vector<float> zero(80, 0.0f);
  std::vector<float> v(zero);
  for (std::size_t i = 16; i < 24; ++i) v[i] = 1;
  std::vector<float> out(80);
  const posenc::view queries{zero.data(), shape};
  const posenc::view values{v.data(), shape};
  const posenc::view result{out.data(), shape};
  posenc::attention(queries, queries, values, result, policy);
  double total = 0;
  for (int t = 0; t < 10; ++t) total += std::pow(1 + 0.2 * t, -1.5);
  check("its weight in attention", result(0, 9, 0, 0), std::pow(1 + 0.2 * 7, -1.5) / total);

  // [tabulated]
  // One table for every call of up to 128 tokens: decoding pays for no line, and a run-time policy takes it.
  const posenc::run_time_policy<posenc::toeplitz<float>> decoder{.bias = kerple.tabulated(127),
                                                                 .masks = {.causal = true}};
  // [/tabulated]
  check("the same from a table", bias_at(decoder.bias, 2), -1.5 * std::log(1 + 0.2 * 7));

  // [weight]
  // The weight kernel of KERPLE multiplies the scores and stands before the bias.
  const posenc::kerple_weight<float> weight{{.kernel = posenc::kerple_kernel::power, .scale = {0.1f}, .shape = {0.5f}}};
  const auto both = posenc::compose(weight, posenc::kerple<float>{{.scale = {1}, .shape = {1}}}, posenc::causal{});
  // [/weight]
  std::vector<float> row(10, 2.0f);
  posenc::add_bias_row<float>(both, {.query_position = 9}, 0, row);
  check("kerple_weight and kerple, 4 back", row[5], 2 * std::exp(-0.1 * 2) - std::log(5.0));

  // [sandwich]
  const posenc::sandwich<float> sandwich{{.heads = 2, .dim = 128}};
  // [/sandwich]
  double cosines = 0;
  for (int m = 0; m < 64; ++m) cosines += std::cos(7 * std::pow(10000.0, -2.0 * m / 128));
  check("sandwich, 7 back", bias_at(sandwich, 2), cosines / 4);

  // [dynamic]
  // Three hidden units, one head: layers of weights [out, in] and biases.
  const posenc::dynamic_bias<float> dynamic{
      {.layers = {{{1.0f, -0.5f, 0.25f}, {0.1f, 0.2f, 0.3f}}, {{1.0f, 2.0f, -1.0f}, {0.5f}}}, .log_distance = true}};
  // [/dynamic]
  const double u = std::log(8.0);
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  check("dynamic_bias, 7 back", bias_at(dynamic, 2),
        silu(u + 0.1) + 2 * silu(-0.5 * u + 0.2) - silu(0.25 * u + 0.3) + 0.5);

  // [fire]
  // Two hidden units, one head. The distance counts as a share of the query's position, from position 4 on.
  const posenc::fire<float> fire{{.c = 0.1f,
                                  .threshold = 4,
                                  .weight1 = {1.0f, -2.0f},
                                  .bias1 = {-0.25f, 1.0f},
                                  .weight2 = {3.0f, 1.0f},
                                  .bias2 = {0.5f}}};
  // [/fire]
  const double x = std::log(1 + 0.1 * 7) / (std::log(1 + 0.1 * 9) + 1e-6);
  check("fire, 7 back", bias_at(fire, 2), 3 * std::max(x - 0.25, 0.0) + std::max(1 - 2 * x, 0.0) + 0.5);

  // [split]
  // Of four heads, two look back and two look ahead.
  const posenc::alibi_split<float> split{4};
  // [/split]
  good = good && split.allow_positions({.head = 1, .query_position = 9}).contains(3) &&
         !split.allow_positions({.head = 2, .query_position = 9}).contains(3);
  check("alibi_split, 7 back", bias_at(split, 2), -7.0 / 16);

  // [two_sided]
  const posenc::alibi_two_sided<float> two_sided{{0.5f}, {0.125f}};  // past, future
  // [/two_sided]
  check("alibi_two_sided, 7 back", bias_at(two_sided, 2), -3.5);

  // [grid]
  // A picture of 2 x 5 patches: rows, then columns.
  const std::vector<std::int64_t> patches{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
  const posenc::positions at = posenc::positions::axes(patches, 2);
  const posenc::alibi_grid<float> grid{2, posenc::grid_metric::euclidean};
  // [/grid]
  std::vector<float> table(200);
  posenc::fill_bias<float>(grid, 2, at, 10, at, 10, table);
  check("alibi_grid, from corner to corner", table[9], -std::sqrt(1.0 + 16.0) / 16);

  // [learned]
  // A learned factor per head on the slopes, held at 0 from below.
  const posenc::alibi<float> learned{{.heads = 2}, std::vector<float>{2.0f, -0.3f}};
  // [/learned]
  good = good && learned.slopes() == std::vector<float>{0.125f, 0};

  // [own]
  const posenc::distance_bias own{root_rule{{1.0f, 0.5f}}};
  // [/own]
  check("a rule of one's own, 9 back", bias_at(own, 0), -3);

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
