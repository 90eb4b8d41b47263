// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/dense_attention.hpp"
#include "support/catch.hpp"
#include "unit/encoders/attended.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/alibi.hpp>

#include <unsupported/Eigen/AutoDiff>

#include <limits>

using posenc::alibi_form;
using posenc::alibi_options;
using posenc::positions;
using posenc_test::attended;
using posenc_test::refusal;
using posenc_test::values;

namespace {

std::vector<double> slopes(const alibi_options& o) { return posenc::alibi<double>{o}.slopes(); }

/// Bias [heads, queries, keys], queries from `from` on, keys at `at`.
std::vector<double> bias(const posenc::alibi<double>& e, std::int64_t from, std::int64_t queries,
                         const std::vector<std::int64_t>& at) {
  std::vector<double> out(static_cast<std::size_t>(e.heads() * queries) * at.size());
  posenc::fill_bias(e, e.heads(), positions::from(from), queries, positions::listed(at),
                    static_cast<std::int64_t>(at.size()), std::span<double>(out));
  return out;
}

}  // namespace

TEST_CASE("alibi: slopes of every head count", "[alibi]") {
  for (std::int64_t heads = 1; heads <= 128; ++heads) {
    const auto exact = slopes({.heads = heads});
    const auto wide = slopes({.heads = heads, .bias_max = 16});
    const auto single = posenc::alibi<float>{heads}.slopes();
    posenc_test::worst worst;
    posenc_test::worst wide_worst;
    bool rounded = true;
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto i = static_cast<std::size_t>(h);
      worst.see(std::abs(exact[i] / dense::alibi_slope(h, heads) - 1), static_cast<long double>(h));
      wide_worst.see(std::abs(wide[i] / std::pow(dense::alibi_slope(h, heads), 2) - 1), static_cast<long double>(h));
      rounded = rounded && single[i] == static_cast<float>(exact[i]);
    }
    CAPTURE(heads);
    CHECK(worst.error < 5e-16);
    CHECK(wide_worst.error < 5e-16);
    CHECK(rounded);
  }
}

TEST_CASE("alibi: slopes known by hand", "[alibi]") {
  const auto powers = [](std::initializer_list<double> exponents) {
    std::vector<double> out;
    for (const double e : exponents) out.push_back(std::exp2(-e));
    return out;
  };
  CHECK(slopes({.heads = 1}) == powers({8}));
  CHECK(slopes({.heads = 6}) == powers({2, 4, 6, 8, 1, 3}));
  CHECK(slopes({.heads = 8}) == powers({1, 2, 3, 4, 5, 6, 7, 8}));
  CHECK(slopes({.heads = 12}) == powers({1, 2, 3, 4, 5, 6, 7, 8, .5, 1.5, 2.5, 3.5}));
  // 2^(-4/3), 2^(-8/3), 2^-4, 2^(-16/3), 2^(-20/3), 2^-8.
  const auto geometric = slopes({.heads = 6, .rule = posenc::slope_rule::geometric});
  for (std::size_t h = 0; h < 6; ++h)
    CHECK(geometric[h] ==
          Approx(static_cast<double>(std::exp2(-8.0L * static_cast<long double>(h + 1) / 6))).epsilon(3e-16));
  CHECK(slopes({.heads = 4, .bias_max = 16}) == powers({4, 8, 12, 16}));
}

TEST_CASE("alibi: a subset of heads, shards and rounding", "[alibi]") {
  const auto some = slopes({.heads = 8, .biased_heads = 6});
  const auto six = slopes({.heads = 6});
  for (std::size_t h = 0; h < 8; ++h) CHECK(some[h] == (h < 6 ? six[h] : 0.0));
  // A shard is a slice of the whole, whatever else was asked for.
  for (const bool rounded : {false, true})
    for (const std::int64_t heads : {8, 12, 71}) {
      const alibi_options o{.heads = heads,
                            .rounding = rounded ? posenc::slope_rounding::bfloat16 : posenc::slope_rounding::none,
                            .biased_heads = heads - 2};
      const auto whole = slopes(o);
      for (std::int64_t first = 0; first < heads; first += 3) {
        auto part = o;
        part.shard = posenc::head_shard{.first = first, .count = std::min<std::int64_t>(3, heads - first), .of = heads};
        const auto mine = slopes(part);
        CHECK(mine == std::vector(whole.begin() + first, whole.begin() + first + part.shard->count));
      }
    }
  const auto plain = slopes({.heads = 71});
  const auto rounded = slopes({.heads = 71, .rounding = posenc::slope_rounding::bfloat16});
  posenc_test::worst worst;
  for (std::size_t h = 0; h < 71; ++h) {
    // Eight bits of significand, to the nearest: an integer below 256 times a power of two.
    int exponent = 0;
    const double fraction = std::frexp(rounded[h], &exponent) * 256;
    CHECK(fraction == std::nearbyint(fraction));
    CHECK(rounded[h] == std::ldexp(std::nearbyint(std::frexp(plain[h], &exponent) * 256), exponent - 8));
    worst.see(std::abs(rounded[h] / plain[h] - 1), static_cast<long double>(h));
  }
  CHECK(worst.error > 1e-3);
  CHECK(worst.error <= 0x1p-8);
}

TEST_CASE("alibi: the bias in its three forms", "[alibi]") {
  const std::vector<std::int64_t> at{-5, 0, 3, 4, 1000, std::int64_t{1} << 40};
  for (const auto form : {alibi_form::symmetric, alibi_form::causal, alibi_form::key_only}) {
    const posenc::alibi<double> e{{.heads = 6, .form = form}};
    CHECK(e.form() == form);
    const auto b = bias(e, 3, 2, at);
    bool same = true;
    for (std::int64_t h = 0; h < 6; ++h)
      for (std::int64_t i = 0; i < 2; ++i)
        for (std::size_t j = 0; j < at.size(); ++j) {
          const double d = static_cast<double>(at[j] - 3 - i);
          const double m = dense::alibi_slope(h, 6);
          const double want = form == alibi_form::symmetric ? -m * std::abs(d)
                              : form == alibi_form::causal  ? m * d
                                                            : m * static_cast<double>(at[j]);
          same = same && b[static_cast<std::size_t>(h * 2 + i) * at.size() + j] == want;
        }
    CHECK(same);
  }
  // The same on lanes, for contiguous keys from anywhere; exact because the slopes are powers of two.
  const posenc::alibi<float> e{8};
  std::vector<float> logits(37, 0.5f);
  posenc::add_bias_row(e, {.head = 2, .query_position = 1000020}, 1000000, std::span<float>(logits));
  bool same = true;
  for (std::size_t j = 0; j < 37; ++j) same = same && logits[j] == 0.5f - 0.125f * std::abs(static_cast<float>(j) - 20);
  CHECK(same);
}

TEST_CASE("alibi: explicit slopes", "[alibi]") {
  const posenc::alibi<double> e{std::vector<double>{0.25, 3, 0}};
  CHECK(e.heads() == 3);
  CHECK(e.form() == alibi_form::symmetric);
  CHECK(bias(e, 0, 1, {2}) == std::vector<double>{-0.5, -6, 0});
  CHECK(e.describe().parameters == 3);
  CHECK(e.describe().table_bytes == 24);
  CHECK(e.describe().monotone);
  CHECK(posenc::alibi<double>{8}.describe().parameters == 0);
  CHECK(posenc::alibi<float>{8}.describe().table_bytes == 32);
  CHECK(!posenc::alibi<double>{8}.describe().position_limit);
  // A learned slope below 0 prefers what is far away.
  CHECK(!posenc::alibi<double>{std::vector<double>{0.25, -1}}.describe().monotone);
  CHECK(!posenc::alibi<double>{std::vector<double>{0.25}, alibi_form::causal}.describe().monotone);
}

TEST_CASE("alibi: a learned scale per head, held at 0 from below", "[alibi]") {
  const std::vector<double> scale{2, -3, 0.5, 1};
  const posenc::alibi<double> e{{.heads = 4}, scale};
  CHECK(e.slopes() == std::vector<double>{0.5, 0, 0.0078125, 0.00390625});
  CHECK(e.describe().parameters == 4);
  CHECK(refusal([&] {
          posenc::alibi<double>{{.heads = 3}, scale};
        }) == "posenc::alibi: scale must list one factor per head, got 4");
  const std::vector<float> nan(1, std::numeric_limits<float>::quiet_NaN());
  CHECK(refusal([&] {
          posenc::alibi<float>{{.heads = 1}, nan};
        }) == "posenc::alibi: scale must hold numbers, got a NaN");
  const std::vector<float> infinite(1, std::numeric_limits<float>::infinity());
  CHECK(refusal([&] {
          posenc::alibi<float>{{.heads = 1}, infinite};
        }) == "posenc::alibi: scale must be finite, got inf");
}

TEST_CASE("alibi refuses", "[alibi]") {
  const auto make = [](const alibi_options& o) { return refusal([&] { posenc::alibi<float>{o}; }); };
  CHECK(make({.heads = 0}) == "posenc::alibi: heads must be at least 1, got 0");
  for (const double bad : {0.0, -8.0, std::numeric_limits<double>::quiet_NaN(), HUGE_VAL})
    CHECK(make({.heads = 4, .bias_max = bad}).find("bias_max must be positive and finite") != std::string::npos);
  CHECK(make({.heads = 4, .biased_heads = 0}) == "posenc::alibi: biased_heads must lie in 1..heads, got 0");
  CHECK(make({.heads = 4, .biased_heads = 5}) == "posenc::alibi: biased_heads must lie in 1..heads, got 5");
  CHECK(make({.heads = 4, .shard = posenc::head_shard{0, 2, 8}}) == "posenc::alibi: shard.of must equal heads, got 8");
  for (const auto bad : {posenc::head_shard{-1, 2, 4}, {3, 2, 4}, {4, 1, 4}})
    CHECK(make({.heads = 4, .shard = bad}).find("posenc::alibi: shard.first must leave room for count heads, got ") ==
          0);
  for (const std::int64_t bad : {0, -1, 5})
    CHECK(make({.heads = 4, .shard = posenc::head_shard{0, bad, 4}}) ==
          "posenc::alibi: shard.count must lie in 1..heads, got " + std::to_string(bad));
  CHECK(refusal([] { posenc::alibi<float>{std::vector<float>{}}; }) ==
        "posenc::alibi: slopes must not be empty, got 0");
  // Attention over another number of heads.
  std::vector<double> x(4);
  const posenc::view v{x.data(), {.tokens = 1, .heads = 2, .dim = 2}};
  std::vector<double> out(4, 7.0);
  CHECK(refusal([&] {
          posenc::attention_reference(v, v, v, posenc::view{out.data(), {.tokens = 1, .heads = 2, .dim = 2}},
                                      posenc::alibi<double>{3});
        }) == "posenc::attention_reference: the heads of an encoder of the policy must equal those of q, got 3");
  CHECK(out == std::vector<double>(4, 7.0));
}

TEST_CASE("alibi: the derivative of attention by a slope", "[alibi]") {
  using dual = Eigen::AutoDiffScalar<Eigen::Vector2d>;
  constexpr std::int64_t tokens = 5;
  const posenc::shape s{.tokens = tokens, .heads = 2, .dim = 3};
  const auto q = values<double>(s.elements());
  const auto k = values<double>(s.elements(), 1);
  const auto v = values<double>(s.elements(), 2);
  const std::vector<double> m{0.3, 0.7};
  const auto lift = [](const std::vector<double>& x) {
    std::vector<dual> y;
    for (const double e : x) y.emplace_back(e, Eigen::Vector2d::Zero());
    return y;
  };
  auto dq = lift(q);
  auto dk = lift(k);
  auto dv = lift(v);
  std::vector<dual> out(q.size());
  const posenc::alibi<dual> e{std::vector<dual>{dual(m[0], 2, 0), dual(m[1], 2, 1)}};
  posenc::attention_reference(posenc::view{dq.data(), s}, posenc::view{dk.data(), s}, posenc::view{dv.data(), s},
                              posenc::view{out.data(), s}, e);
  const auto by_oracle = [&](double m0, double m1) {
    return attended(q, k, v, tokens, 3, [&](auto, std::int64_t h, std::int64_t i, std::int64_t j, double x) {
      return x - (h == 0 ? m0 : m1) * static_cast<double>(std::abs(j - i));
    });
  };
  constexpr double step = 1e-5;
  const auto value = by_oracle(m[0], m[1]);
  const auto up0 = by_oracle(m[0] + step, m[1]);
  const auto down0 = by_oracle(m[0] - step, m[1]);
  const auto up1 = by_oracle(m[0], m[1] + step);
  const auto down1 = by_oracle(m[0], m[1] - step);
  posenc_test::worst worst;
  posenc_test::worst slope_worst;
  posenc_test::worst largest;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto where = static_cast<long double>(i);
    worst.see(std::abs(out[i].value() - value[i]), where);
    slope_worst.see(std::abs(out[i].derivatives()[0] - (up0[i] - down0[i]) / (2 * step)), where);
    slope_worst.see(std::abs(out[i].derivatives()[1] - (up1[i] - down1[i]) / (2 * step)), where);
    largest.see(out[i].derivatives().norm(), where);
  }
  CHECK(worst.error < 1e-15);
  CHECK(slope_worst.error < 1e-9);
  CHECK(largest.error > 0.01);
}

TEST_CASE("alibi in long double", "[alibi]") {
  const posenc::alibi<long double> e{12};
  std::vector<long double> out(12);
  posenc::fill_bias(e, 12, positions::from(3), 1, positions::from(0), 1, std::span<long double>(out));
  for (std::size_t h = 0; h < 12; ++h) CHECK(out[h] == -3 * e.slopes()[h]);
}
