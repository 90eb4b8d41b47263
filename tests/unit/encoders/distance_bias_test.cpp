// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/distance_bias.hpp>

using posenc::positions;
using posenc_test::refusal;
using posenc_test::values;

namespace {

constexpr posenc::encoder_traits own_traits(bool symmetric) {
  return {.name = "own",
          .site = posenc::site::logit,
          .relation = posenc::relation::relative,
          .origin = posenc::origin::designed,
          .translation_invariant = true,
          .symmetric = symmetric};
}

/// Counts how often it is asked.
template <bool Symmetric>
struct counting_rule {
  static constexpr posenc::encoder_traits traits = own_traits(Symmetric);
  std::int64_t of = 2;
  std::int64_t* asked = nullptr;
  [[nodiscard]] std::int64_t heads() const { return of; }
  [[nodiscard]] posenc::encoder_description describe() const { return {.parameters = 7}; }
  double operator()(std::int64_t head, std::int64_t distance) const {
    ++*asked;
    const auto d = static_cast<double>(distance);
    return static_cast<double>(head + 1) * (Symmetric ? std::abs(d) : d);
  }
};
struct factor_rule {
  static constexpr bool multiplies = true;
  static constexpr posenc::encoder_traits traits = own_traits(false);
  [[nodiscard]] std::int64_t heads() const { return 1; }
  [[nodiscard]] posenc::encoder_description describe() const { return {}; }
  float operator()(std::int64_t, std::int64_t distance) const { return static_cast<float>(distance); }
};

posenc::call call_of(std::int64_t queries, std::int64_t keys, const positions& query_at, const positions& key_at,
                     std::int64_t batch = 1) {
  return {.batch = batch,
          .heads = 2,
          .kv_heads = 2,
          .queries = queries,
          .keys = keys,
          .dim = 0,
          .value_dim = 0,
          .query_positions = query_at,
          .key_positions = key_at};
}

/// How often the rule is asked while the call is bound.
template <bool Symmetric>
std::int64_t asked_by(const posenc::call& c) {
  std::int64_t asked = 0;
  const posenc::distance_bias encoder{counting_rule<Symmetric>{2, &asked}};
  std::vector<std::byte> memory(encoder.workspace_bytes(c));
  (void)encoder.bind(memory.data(), c);
  return asked;
}

}  // namespace

TEST_CASE("distance_bias: a line is as long as the distances of a call are many", "[distance_bias]") {
  // 2 heads, queries + keys - 1 distances.
  CHECK(asked_by<false>(call_of(10, 30, {}, {})) == 2 * 39);
  CHECK(asked_by<false>(call_of(1, 2048, positions::from(2047), {})) == 2 * 2048);
  CHECK(asked_by<false>(call_of(2048, 2048, {}, {})) == 2 * 4095);
  // Both signs at once: 0 .. 29 instead of -9 .. 29, and -39 .. -21 has no mirror image.
  CHECK(asked_by<true>(call_of(10, 30, {}, {})) == 2 * 30);
  CHECK(asked_by<true>(call_of(30, 10, {}, {})) == 2 * 30);
  CHECK(asked_by<true>(call_of(10, 10, positions::from(30), {})) == 2 * 19);
  // Batch rows share the line: distances -14 .. 29.
  const std::vector<std::int64_t> firsts{0, 5};
  CHECK(asked_by<false>(call_of(10, 30, positions::per_row(firsts), positions::per_row(firsts), 2)) == 2 * 39);
  CHECK(asked_by<false>(call_of(10, 30, positions::per_row(firsts), {}, 2)) == 2 * 44);
  // Nothing for an empty call, and for ids that lie further apart than logits are many.
  CHECK(asked_by<false>(call_of(0, 30, {}, {})) == 0);
  const std::vector<std::int64_t> apart{0, 1000, 2000, 3000};
  CHECK(asked_by<false>(call_of(4, 4, positions::listed(apart), positions::listed(apart))) == 0);
  const std::vector<std::int64_t> near{0, 3, 6, 9};
  CHECK(asked_by<false>(call_of(4, 4, positions::listed(near), positions::listed(near))) == 2 * 19);
  const std::vector<std::int64_t> ends{INT64_MIN, INT64_MAX - 1};
  CHECK(asked_by<false>(call_of(2, 2, positions::listed(ends), positions::listed(ends))) == 0);
}

TEST_CASE("distance_bias: rows on lanes, listed ids, lines and the rule itself agree", "[distance_bias]") {
  std::int64_t asked = 0;
  const posenc::distance_bias encoder{counting_rule<false>{2, &asked}};
  CHECK(encoder.heads() == 2);
  CHECK(encoder.describe().parameters == 7);
  CHECK(encoder.rule().asked == &asked);
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{-70}, std::int64_t{1} << 61}) {
    CAPTURE(first);
    // The sums are exact: a scalar of 53 bits, distances far below that or held at 2^62.
    for (const std::int64_t query : {first + 4, first + 69, first - 500, std::int64_t{0}}) {
      CAPTURE(query);
      std::vector<double> logits(61, 1.0);
      posenc::add_bias_row(encoder, {.head = 1, .query_position = query}, first, std::span<double>(logits));
      std::vector<std::int64_t> at(61);
      for (std::size_t j = 0; j < 61; ++j) at[j] = first + static_cast<std::int64_t>(60 - j);
      std::vector<double> bias(2 * 61);
      posenc::fill_bias(encoder, 2, positions::from(query), 1, positions::listed(at), 61, std::span<double>(bias));
      bool same = true;
      for (std::size_t j = 0; j < 61; ++j) {
        const auto d = 2 * static_cast<double>(first + static_cast<std::int64_t>(j) - query);
        same = same && logits[j] == 1 + d && bias[61 + 60 - j] == d;
      }
      CHECK(same);
    }
  }
  // Ids with gaps, so far apart that no line is made.
  const std::vector<std::int64_t> ids{5000, -40000, 7, 8, std::int64_t{1} << 40};
  std::vector<double> bias(2 * 5);
  posenc::fill_bias(encoder, 2, positions::from(7), 1, positions::listed(ids), 5, std::span<double>(bias));
  for (std::size_t j = 0; j < 5; ++j) CHECK(bias[5 + j] == 2 * static_cast<double>(ids[j] - 7));
}

TEST_CASE("distance_bias: batch rows whose contiguous positions lie far apart", "[distance_bias]") {
  std::int64_t asked = 0;
  const posenc::distance_bias encoder{counting_rule<true>{1, &asked}};
  const std::vector<std::int64_t> query_firsts{0, 1000000};
  const std::vector<std::int64_t> key_firsts{0, 0};
  const posenc::shape s{.batch = 2, .tokens = 3, .heads = 1, .dim = 1};
  const std::vector<double> zero(6);
  std::vector<double> out(6);
  std::vector<double> logits(18);
  const posenc::view<const double> x(zero.data(), s);
  posenc::attention_reference(
      x, x, x, posenc::view<double>(out.data(), s), encoder,
      {.query_positions = positions::per_row(query_firsts),
       .key_positions = positions::per_row(key_firsts),
       .logits = posenc::view<double>(logits.data(), {.batch = 2, .tokens = 3, .heads = 1, .dim = 3})});
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 3; ++j)
        CHECK(logits[(b * 3 + i) * 3 + j] ==
              std::abs(static_cast<double>(query_firsts[b]) + static_cast<double>(i) - static_cast<double>(j)));
}

TEST_CASE("distance_bias: a table for all calls", "[distance_bias]") {
  std::int64_t asked = 0;
  const posenc::distance_bias encoder{counting_rule<false>{2, &asked}};
  const auto table = encoder.tabulated(40);
  CHECK(asked == 2 * 81);
  CHECK(table.heads() == 2);
  for (std::int64_t d = -40; d <= 40; ++d) CHECK(table.line(1)[d] == 2 * static_cast<double>(d));
  const std::string mirrored = refusal([&] { (void)encoder.tabulated(-1); });
  CHECK(mirrored == "posenc::distance_bias::tabulated: max_distance must lie in 0..2^40, got -1");
  const posenc::distance_bias even{counting_rule<true>{2, &asked}};
  const auto both = even.tabulated(9);
  for (std::int64_t d = -9; d <= 9; ++d) CHECK(both.line(0)[d] == std::abs(static_cast<double>(d)));

  // What is bound per call is no part of a run-time policy; the table is.
  STATIC_REQUIRE(posenc::has_bind<posenc::distance_bias<counting_rule<false>>>);
  const posenc::run_time_policy<posenc::toeplitz<double>> policy{.bias = table};
  const std::vector<double> zero(4);
  std::vector<double> out(4);
  std::vector<double> logits(8);
  const posenc::shape s{.tokens = 2, .heads = 2, .dim = 1};
  const posenc::view<const double> x(zero.data(), s);
  posenc::attention_reference(x, x, x, posenc::view<double>(out.data(), s), policy,
                              {.logits = posenc::view<double>(logits.data(), {.tokens = 2, .heads = 2, .dim = 2})});
  CHECK(logits == std::vector<double>{0, 1, 0, 2, -1, 0, -2, 0});
}

TEST_CASE("distance_bias: a rule that multiplies", "[distance_bias]") {
  const posenc::distance_bias encoder{factor_rule{}};
  std::vector<float> logits(20, 3.0f);
  posenc::add_bias_row(encoder, {.query_position = 5}, 0, std::span<float>(logits));
  for (std::size_t j = 0; j < 20; ++j) CHECK(logits[j] == 3 * (static_cast<float>(j) - 5));
  // It has no table: a toeplitz adds.
  const auto tabulates = [](const auto& e) {
    return requires { e.tabulated(3); };
  };
  CHECK(!tabulates(encoder));
  std::int64_t asked = 0;
  CHECK(tabulates(posenc::distance_bias{counting_rule<true>{1, &asked}}));
}

TEST_CASE("distance_bias: lines of another type than the lanes are converted", "[distance_bias]") {
  std::int64_t asked = 0;
  const posenc::distance_bias encoder{counting_rule<false>{2, &asked}};  // lines of double
  std::vector<float> logits(19, 0.5f);
  posenc::add_bias_row(encoder, {.head = 1, .query_position = 3}, 0, std::span<float>(logits));
  for (std::size_t j = 0; j < 19; ++j) CHECK(logits[j] == 0.5f + 2 * (static_cast<float>(j) - 3));
}

TEST_CASE("distance_bias: nothing outside the workspace is written", "[distance_bias]") {
  std::int64_t asked = 0;
  const posenc::distance_bias encoder{counting_rule<true>{2, &asked}};
  for (const std::int64_t queries : {1, 7, 40}) {
    const posenc::call c = call_of(queries, 23, positions::from(5), {});
    posenc_test::guarded<std::byte> memory(encoder.workspace_bytes(c));
    (void)encoder.bind(memory.data(), c);
    CHECK(memory.intact());
    CHECK(!memory.untouched(memory.size() - 1));
  }
}
