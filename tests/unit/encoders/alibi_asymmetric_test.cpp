// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/dense_attention.hpp"
#include "support/catch.hpp"
#include "unit/encoders/attended.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/alibi_asymmetric.hpp>

#include <unsupported/Eigen/AutoDiff>

#include <limits>

using posenc::positions;
using posenc_test::refusal;
using posenc_test::values;

TEST_CASE("alibi_split: half of the heads look back, half ahead", "[alibi_asymmetric]") {
  const posenc::alibi_split<double> e{12};
  CHECK(e.heads() == 12);
  CHECK(e.slopes().size() == 12);
  for (std::int64_t h = 0; h < 12; ++h) {
    CHECK(e.slopes()[static_cast<std::size_t>(h)] == Approx(dense::alibi_slope(h % 6, 6)).epsilon(5e-16));
    const posenc::interval seen = e.allow_positions({.head = h, .query_position = 7});
    CHECK(seen.contains(7));
    CHECK(seen.contains(6) == (h < 6));
    CHECK(seen.contains(8) == (h >= 6));
    CHECK(seen.contains(-1000000) == (h < 6));
    CHECK(seen.contains(posenc::interval::highest - 1) == (h >= 6));
  }
  // The same in attention, against plain attention with a mask. The slope of one head is 2^-8.
  constexpr std::int64_t tokens = 9;
  const posenc::shape s{.tokens = tokens, .heads = 2, .dim = 3};
  const auto q = values<double>(s.elements());
  const auto k = values<double>(s.elements(), 1);
  const auto v = values<double>(s.elements(), 2);
  std::vector<double> out(q.size());
  posenc::attention_reference(posenc::view<const double>(q.data(), s), posenc::view<const double>(k.data(), s),
                              posenc::view<const double>(v.data(), s), posenc::view<double>(out.data(), s),
                              posenc::alibi_split<double>{2});
  const auto want =
      posenc_test::attended(q, k, v, tokens, 3, [](auto, std::int64_t h, std::int64_t i, std::int64_t j, double x) {
        if (h == 0 ? j > i : j < i) return -std::numeric_limits<double>::infinity();
        return x - static_cast<double>(std::abs(j - i)) / 256;
      });
  CHECK(posenc_test::largest_difference(out, want) < 1e-15);
}

TEST_CASE("alibi_two_sided: a slope per side", "[alibi_asymmetric]") {
  const posenc::alibi_two_sided<double> e{{0.5, 0.25}, {2, 0}};
  CHECK(e.past() == std::vector<double>{0.5, 0.25});
  CHECK(e.future() == std::vector<double>{2, 0});
  std::vector<double> bias(2 * 4);
  const std::vector<std::int64_t> at{7, 10, 11, 13};
  posenc::fill_bias(e, 2, positions::from(10), 1, positions::listed(at), 4, std::span<double>(bias));
  CHECK(bias == std::vector<double>{-1.5, 0, -2, -6, -0.75, 0, 0, 0});
  std::vector<float> row(30, 1.0f);
  posenc::add_bias_row(posenc::alibi_two_sided<float>{{0.5f}, {2}}, {.query_position = 1000020}, 1000005,
                       std::span<float>(row));
  bool same = true;
  for (std::size_t j = 0; j < 30; ++j) {
    const float d = static_cast<float>(j) - 15;
    same = same && row[j] == 1 + (d > 0 ? -2 * d : 0.5f * d);
  }
  CHECK(same);
  // The slopes of ALiBi, scaled.
  const posenc::alibi_two_sided<double> scaled{posenc::alibi<double>{2}, {1, 2}, {3, 4}};
  CHECK(scaled.past() == std::vector<double>{0.0625, 2.0 / 256});
  CHECK(scaled.future() == std::vector<double>{0.1875, 4.0 / 256});
}

TEST_CASE("alibi_two_sided: derivatives by its slopes", "[alibi_asymmetric]") {
  using dual = Eigen::AutoDiffScalar<Eigen::Vector2d>;
  const posenc::alibi_two_sided<dual> e{{dual(0.5, 2, 0)}, {dual(2, 2, 1)}};
  std::vector<dual> bias(5);
  posenc::fill_bias(e, 1, positions::from(2), 1, positions::from(0), 5, std::span<dual>(bias));
  for (std::size_t j = 0; j < 5; ++j) {
    const double d = static_cast<double>(j) - 2;
    CHECK(bias[j].value() == (d > 0 ? -2 * d : 0.5 * d));
    CHECK(bias[j].derivatives()[0] == std::min(d, 0.0));
    CHECK(bias[j].derivatives()[1] == -std::max(d, 0.0));
  }
}

TEST_CASE("alibi_asymmetric: refusals and description", "[alibi_asymmetric]") {
  const auto split = [](const posenc::alibi_options& o) { return refusal([&] { posenc::alibi_split<float>{o}; }); };
  CHECK(split({.heads = 3}) == "posenc::alibi_split: heads must be even and at least 2, got 3");
  CHECK(split({.heads = 0}) == "posenc::alibi_split: heads must be even and at least 2, got 0");
  CHECK(split({.heads = 2, .form = posenc::alibi_form::causal}) ==
        "posenc::alibi_split: form must be symmetric, got another form");
  CHECK(split({.heads = 4, .biased_heads = 2}) ==
        "posenc::alibi_split: options must have neither shard nor biased_heads, got one of them");
  using two_sided = posenc::alibi_two_sided<float>;
  CHECK(refusal([] {
          two_sided{std::vector<float>{}, std::vector<float>{}};
        }) == "posenc::alibi_two_sided: past must not be empty, got 0");
  CHECK(refusal([] {
          two_sided{{1, 2}, {1}};
        }) == "posenc::alibi_two_sided: future must list as many slopes as past, got 1");
  CHECK(refusal([] {
          two_sided{{1}, {std::numeric_limits<float>::quiet_NaN()}};
        }) == "posenc::alibi_two_sided: slopes must be numbers, got a NaN");
  CHECK(refusal([] { two_sided{{HUGE_VALF}, {1}}; }) == "posenc::alibi_two_sided: slopes must be finite, got inf");
  CHECK(refusal([] {
          two_sided{posenc::alibi<float>{2}, {1}, {1, 2}};
        }) == "posenc::alibi_two_sided: past_scale must list one scale per head, got 1");
  CHECK(refusal([] {
          two_sided{posenc::alibi<float>{{1}, posenc::alibi_form::causal}, {1}, {1}};
        }) == "posenc::alibi_two_sided: base must be symmetric, got another form");

  CHECK(posenc::alibi_split<float>{8}.describe().parameters == 0);
  CHECK(posenc::alibi_split<float>{8}.describe().table_bytes == 32);
  CHECK(two_sided{{1, 2}, {1, 2}}.describe().parameters == 4);
  CHECK(two_sided{{1, 2}, {1, 2}}.describe().table_bytes == 16);
  CHECK(two_sided{{1, 2}, {1, 2}}.describe().monotone);
  CHECK(!two_sided{{1, 2}, {1, -2}}.describe().monotone);
}
