// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/gated_bias.hpp>
#include <posenc/encoders/toeplitz.hpp>

using posenc::positions;
using posenc::view;
using posenc_test::refusal;
using posenc_test::values;

namespace {

/// A bias that binds its slopes per call.
struct bound_slopes {
  [[maybe_unused]] static constexpr posenc::encoder_traits traits{.name = "bound_slopes",
                                                                  .site = posenc::site::logit,
                                                                  .relation = posenc::relation::relative,
                                                                  .origin = posenc::origin::designed,
                                                                  .translation_invariant = true,
                                                                  .symmetric = false};
  struct bound {
    const double* slope;
    template <class B, class Keys>
    [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
      return [m = slope[r.head], r, keys](const B& s, std::int64_t k) {
        return B(s + posenc::lanes<B>::broadcast(m) * posenc::distance<B>(keys, r, k));
      };
    }
  };
  [[nodiscard]] std::size_t workspace_bytes(const posenc::call& c) const {
    return sizeof(double) * static_cast<std::size_t>(c.heads);
  }
  [[nodiscard]] bound bind(std::byte* memory, const posenc::call& c) const {
    auto* slope = reinterpret_cast<double*>(memory);
    for (std::int64_t h = 0; h < c.heads; ++h) slope[h] = static_cast<double>(h + 1);
    return {slope};
  }
  [[nodiscard]] posenc::encoder_description describe() const { return {}; }
};

}  // namespace

TEST_CASE("gated_bias: a gate per batch row, query and head times the bias", "[gated_bias]") {
  constexpr std::int64_t tokens = 11;
  const posenc::alibi<double> bias({.heads = 2, .form = posenc::alibi_form::causal});
  const auto gates = values<double>(2 * tokens * 2);
  const posenc::shape gate_shape{.batch = 2, .tokens = tokens, .heads = 2, .dim = 1};
  const posenc::gated_bias gated(bias, view{gates.data(), gate_shape});
  REQUIRE(gated.heads() == 2);
  const auto x = values<double>(2 * tokens * 2 * 4, 3);
  std::vector<double> out(x.size()), logits(2 * tokens * 2 * tokens);
  const posenc::shape s{.batch = 2, .tokens = tokens, .heads = 2, .dim = 4};
  const view in{x.data(), s};
  posenc::attention_reference(in, in, in, view{out.data(), s}, gated,
                              {.scale = 0.0, .logits = {logits.data(), {2, tokens, 2, tokens}}});
  double worst = 0;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t i = 0; i < tokens; ++i)
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t j = 0; j < tokens; ++j) {
          const auto at = static_cast<std::size_t>((b * tokens + i) * 2 + h);
          const double right = gates[at] * (h == 0 ? 0.0625 : 1.0 / 256) * static_cast<double>(j - i);
          worst = std::max(worst, std::abs(logits[at * tokens + static_cast<std::size_t>(j)] - right));
        }
  CHECK(worst < 1e-15);
  // A row on lanes, onto logits that the gate must leave alone. Gates of another scalar and stride.
  std::vector<float> every_other(2 * gates.size());
  for (std::size_t i = 0; i < gates.size(); ++i) every_other[2 * i] = static_cast<float>(gates[i]);
  const posenc::gated_bias strided(bias,
                                   view{every_other.data(), gate_shape, {.batch = 4 * tokens, .token = 4, .head = 2}});
  std::vector<double> line(tokens, 3.0);
  posenc::add_bias_row(strided, {.batch = 1, .head = 1, .query_index = 4, .query_position = 4}, 0,
                       std::span<double>(line));
  for (std::int64_t j = 0; j < tokens; ++j)
    CHECK(line[static_cast<std::size_t>(j)] ==
          3.0 + static_cast<double>(every_other[2 * ((tokens + 4) * 2 + 1)]) / 256 * static_cast<double>(j - 4));
}

TEST_CASE("gated_bias: over a bias that binds per call", "[gated_bias]") {
  const bound_slopes bias;
  const std::vector<double> gates{1, 2, 3, 4, 5, 6};
  const posenc::gated_bias gated(bias, view{gates.data(), {.tokens = 3, .heads = 2, .dim = 1}});
  std::vector<double> out(2 * 3 * 3);
  posenc::fill_bias<double>(gated, 2, {}, 3, {}, 3, out);
  for (std::int64_t h = 0; h < 2; ++h)
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < 3; ++j)
        CHECK(out[static_cast<std::size_t>((h * 3 + i) * 3 + j)] ==
              static_cast<double>((i * 2 + h + 1) * (h + 1) * (j - i)));
}

TEST_CASE("wavlm_gates: the formula head by head", "[gated_bias]") {
  constexpr std::int64_t d = 3;
  const auto x = values<double>(2 * 4 * 2 * d, 1);
  const auto w = values<double>(8 * d, 2);
  const auto c = values<double>(8, 3);
  const std::vector<double> constant{1, 0.5};
  std::vector<double> gates(2 * 4 * 2);
  posenc::wavlm_gates<double>({w, c, constant}, view{x.data(), {.batch = 2, .tokens = 4, .heads = 2, .dim = d}},
                              view{gates.data(), {.batch = 2, .tokens = 4, .heads = 2, .dim = 1}});
  for (std::size_t r = 0; r < 16; ++r) {
    double half[2] = {0, 0};
    for (std::size_t o = 0; o < 8; ++o) {
      half[o / 4] += c[o];
      for (std::size_t i = 0; i < d; ++i) half[o / 4] += w[o * d + i] * x[r * d + i];
    }
    const double a = 1 / (1 + std::exp(-half[0]));
    const double b = 1 / (1 + std::exp(-half[1]));
    CHECK(gates[r] == Approx(a * (b * constant[r % 2] - 1) + 2).epsilon(1e-14));
  }
}

TEST_CASE("gated_bias: refusals and description", "[gated_bias]") {
  const posenc::toeplitz<float> bias(2, 3, [](std::int64_t, std::int64_t d) { return static_cast<float>(d); });
  std::vector<float> gates(24, 1.0f);
  const posenc::gated_bias gated(bias, view{gates.data(), {.tokens = 5, .heads = 2, .dim = 1}});
  std::vector<float> out(2 * 4 * 5);
  CHECK(refusal([&] { posenc::fill_bias<float>(gated, 2, {}, 4, {}, 5, out); }) ==
        "posenc::gated_bias: gates must have the batch, queries and heads of the call, tokens, got 5");
  CHECK(refusal<std::out_of_range>([&] {
          posenc::add_bias_row(gated, {.query_index = 5}, 0, std::span<float>(out).first(4));
        }) == "posenc::gated_bias: query must lie inside the gates, query index, got 5");
  CHECK(refusal([&] {
          posenc::gated_bias(bias, view{gates.data(), {.tokens = 5, .heads = 2, .dim = 2}});
        }) == "posenc::gated_bias: gates must have the shape [batch, query, head, 1], dim, got 2");
  CHECK(gated.describe().parameters == 14);
  CHECK(gated.traits.relation == posenc::relation::relative);

  const std::vector<float> x(24), w(32), c(8), constant(2);
  const auto run = [&](std::size_t weights, std::size_t biases, std::size_t constants, std::int64_t dim) {
    return refusal([&] {
      posenc::wavlm_gates<float>(
          {std::span(w).first(weights), std::span(c).first(biases), std::span(constant).first(constants)},
          view{x.data(), {.tokens = 3, .heads = 2, .dim = 4}},
          view{gates.data(), {.tokens = 3, .heads = 2, .dim = dim}});
    });
  };
  CHECK(run(32, 8, 2, 1) == "nothing thrown");
  CHECK(run(31, 8, 2, 1) == "posenc::wavlm_gates: weight must hold 8 rows of x's dim, got 31");
  CHECK(run(32, 7, 2, 1) == "posenc::wavlm_gates: bias must hold 8 values, got 7");
  CHECK(run(32, 8, 1, 1) == "posenc::wavlm_gates: constant must hold one value per head, got 1");
  CHECK(run(32, 8, 2, 3) == "posenc::wavlm_gates: gates must have the shape [batch, token, head, 1], got 3");
}
