// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The parts that scalings are made of, and what is refused; what scalings make of frequencies is in
// rope_scaling_test.cpp.
#include "reference/rope_scalings.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/rope_frequencies.hpp>

#include <limits>

namespace detail = posenc::detail;
using dd = posenc::math::double_double;
using posenc_test::refusal;

namespace {

long double wide(dd x) { return static_cast<long double>(x.hi) + static_cast<long double>(x.lo); }

detail::scaling_rule rule(double base, std::int64_t r, bool with_ladder = true) {
  const auto ladder = [r](dd b) { return posenc::math::ladder(b, r / 2, static_cast<double>(r / 2)); };
  return {ladder(base), base, r, r, with_ladder ? decltype(detail::scaling_rule::ladder)(ladder) : nullptr};
}

std::string refused(const posenc::rope_scaling& scaling, std::int64_t r = 64) {
  return refusal([&] { posenc::rope<double>{{.head_dim = r, .scaling = scaling}}; });
}
bool starts(const std::string& text, const std::string& with) { return text.substr(0, with.size()) == with; }
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("frequencies: more bits than double in every rule without a logarithm in double", "[rope][scaling]") {
  const auto one = [](const posenc::rope_scaling& s) { return std::visit(rule(5e5, 128), s).inv_freq; };
  const auto check = [](const std::vector<dd>& got, const oracle::wides& right) {
    posenc_test::worst w;
    bool both_parts = false;
    for (std::size_t i = 0; i < right.size(); ++i) {
      w.see(std::fabs(wide(got[i]) / right[i] - 1), static_cast<long double>(i));
      both_parts = both_parts || got[i].lo != 0;
    }
    CAPTURE(w);
    CHECK(w.error <= 2e-18L);  // what the formula in long double is good to
    CHECK(both_parts);
  };
  check(one(posenc::no_scaling{}), oracle::plain_rope(5e5L, 128));
  auto third = oracle::plain_rope(5e5L, 128);
  for (auto& f : third) f /= 3;
  check(one(posenc::linear{3}), third);
  check(one(posenc::ntk_aware{3}), oracle::ntk_aware_rope(5e5L, 128, 3));
  check(one(posenc::ntk_fixed_su{3}), oracle::ntk_fixed_rope(5e5L, 128, 3));
  check(one(posenc::ntk_base{3}), oracle::ntk_base_rope(5e5L, 128, 3));
  check(one(posenc::dynamic_ntk{4, 1024, 4096}), oracle::dynamic_rope(5e5L, 128, 4, 1024, 4096));
  check(one(posenc::pixel{10}), oracle::pixel_rope(128, 10));
}

TEST_CASE("frequencies: the stretched base", "[rope][scaling]") {
  const auto base = [](double b, double s, std::int64_t r) {
    return static_cast<double>(detail::ntk_scaled_base("f", b, s, r));
  };
  CHECK(base(1e4, 4, 128) == Approx(40889.942432).epsilon(1e-10));
  CHECK(base(1e4, 8, 128) == Approx(82684.622641).epsilon(1e-10));
  CHECK(base(1e4, 4, 64) == Approx(41829.365929).epsilon(1e-10));
  CHECK(base(1e4, 1, 64) == 1e4);
  CHECK(base(1e4, 2, 4) == 4e4);
  CHECK(refusal([&] { base(1e4, 2, 2); }) ==
        "posenc::f: rotary_dim must exceed 2: the exponent divides by rotary_dim - 2, got 2");
  // Also while the length leaves the base alone: the encoder would break when it grows.
  const posenc::dynamic_ntk short_yet{.factor = 2, .max_position_embeddings = 64, .length = 10};
  CHECK(refusal([&] { posenc::rope<double>{{.head_dim = 2, .scaling = short_yet}}; }) ==
        "posenc::dynamic_ntk: rotary_dim must exceed 2: the exponent divides by rotary_dim - 2, got 2");
}

TEST_CASE("frequencies: a blend is exactly one of its ends at 0 and 1", "[rope][scaling]") {
  const dd a = dd(1) / dd(3);
  const dd b = dd(1) / dd(7);
  CHECK((detail::blend(a, b, 0).hi == a.hi && detail::blend(a, b, 0).lo == a.lo));
  CHECK((detail::blend(a, b, 1).hi == b.hi && detail::blend(a, b, 1).lo == b.lo));
  CHECK(wide(detail::blend(a, b, 0.25)) == Approx(0.25 + 1.0 / 28).epsilon(1e-15));
}

TEST_CASE("frequencies: the ramp over the pairs", "[rope][scaling]") {
  const detail::pair_ramp ramp("f", {.fast = 32, .slow = 1, .truncate = true, .original = 2048}, 1e4, 64);
  CHECK(ramp.lo == 8);
  CHECK(ramp.hi == 21);
  for (std::size_t i = 0; i < 32; ++i) {
    const double right = i <= 8 ? 0 : i >= 21 ? 1 : (static_cast<double>(i) - 8) / 13;
    CHECK(ramp(i) == Approx(right).epsilon(1e-15));
  }
  const detail::pair_ramp exact("f", {.fast = 32, .slow = 1, .truncate = false, .original = 2048}, 1e4, 64);
  CHECK(exact.lo == Approx(8.064).epsilon(1e-3));
  CHECK(exact.hi == Approx(20.105).epsilon(1e-4));
  CHECK(exact.lo == Approx(static_cast<double>(oracle::pair_that_turns(32, 2048, 1e4L, 64))).epsilon(1e-14));
  CHECK(exact.hi == Approx(static_cast<double>(oracle::pair_that_turns(1, 2048, 1e4L, 64))).epsilon(1e-14));
  // Held at r - 1, which lies behind the last pair.
  CHECK(detail::pair_ramp("f", {.fast = 32, .slow = 1, .truncate = true, .original = 1000}, 4, 16).hi == 15);
}

TEST_CASE("frequencies: dynamic lengths and lists", "[rope][scaling]") {
  CHECK(detail::scaling_rule::dynamic_factor({2, 8, 8}) == 1);
  CHECK(detail::scaling_rule::dynamic_factor({2, 8, 9}) == 1.25);
  CHECK(detail::scaling_rule::dynamic_factor({2, 8, 16}) == 3);
  CHECK(detail::scaling_rule::dynamic_factor({1, 8, 16}) == 2);
  posenc::longrope s{.short_factor = {1}, .long_factor = {2}, .original_max_position_embeddings = 16};
  for (const std::int64_t n : {0, 1, 16}) {
    s.length = n;
    CHECK(&detail::scaling_rule::factors_of(s) == &s.short_factor);
  }
  s.length = 17;
  CHECK(&detail::scaling_rule::factors_of(s) == &s.long_factor);
  // int(p d // 2) of a product in double.
  CHECK(detail::scaling_rule::rotated_pairs({.25, 1}, 512) == 64);
  CHECK(detail::scaling_rule::rotated_pairs({.29, 1}, 100) == 14);
  CHECK(detail::scaling_rule::rotated_pairs({.5, 1}, 6) == 1);
  CHECK(detail::scaling_rule::rotated_pairs({1, 1}, 6) == 3);
}

TEST_CASE("frequencies: a rule without a ladder refuses to count rungs", "[rope][scaling]") {
  const auto outright = rule(1e4, 8, false);
  CHECK(refusal([&] { (void)outright(posenc::ntk_base{2}); }) ==
        "posenc::ntk_base: inv_freq and axes must be absent: the rule counts the rungs of one ladder, not, got "
        "frequencies of your own");
  CHECK(outright(posenc::linear{2}).inv_freq[0].hi == 0.5);
}

TEST_CASE("frequencies: impossible settings are refused by field, rule and value", "[rope][scaling]") {
  for (const double bad : {0.0, -1.0, not_a_number, infinity, -infinity}) {
    CAPTURE(bad);
    CHECK(starts(refused(posenc::linear{bad}), "posenc::linear: factor must be positive and finite, got "));
    CHECK(starts(refused(posenc::ntk_aware{bad}), "posenc::ntk_aware: factor must be positive and finite, got "));
    CHECK(starts(refused(posenc::ntk_fixed_su{bad}), "posenc::ntk_fixed_su: factor must be positive and finite, got "));
    CHECK(starts(refused(posenc::ntk_mixed_su{bad}), "posenc::ntk_mixed_su: factor must be positive and finite, got "));
    CHECK(starts(refused(posenc::ntk_mixed_su{2, bad}),
                 "posenc::ntk_mixed_su: mixed_b must be positive and finite, got "));
    CHECK(starts(refused(posenc::ntk_base{bad}), "posenc::ntk_base: factor must be positive and finite, got "));
    CHECK(starts(refused(posenc::dynamic_ntk{bad, 8, 4}),
                 "posenc::dynamic_ntk: factor must be positive and finite, got "));
    CHECK(starts(refused(posenc::ntk_by_parts{bad, 2048}),
                 "posenc::ntk_by_parts: factor must be positive and finite, got "));
    CHECK(starts(refused(posenc::yarn{.factor = bad, .original_max_position_embeddings = 2048}),
                 "posenc::yarn: factor must be positive and finite, got "));
    CHECK(starts(refused(posenc::llama3{.factor = bad}), "posenc::llama3: factor must be positive and finite, got "));
    CHECK(starts(refused(posenc::llama3{.low_freq_factor = bad}),
                 "posenc::llama3: low_freq_factor must be positive and finite, got "));
    CHECK(starts(refused(posenc::llama3{.high_freq_factor = bad}), "posenc::llama3: high_freq_factor must "));
    CHECK(starts(refused(posenc::proportional{.factor = bad}),
                 "posenc::proportional: factor must be positive and finite, got "));
    CHECK(starts(refused(posenc::proportional{.partial_rotary_factor = bad}),
                 "posenc::proportional: partial_rotary_factor must lie in (0, 1], got "));
    CHECK(starts(refused(posenc::pixel{bad}), "posenc::pixel: max_freq must be positive and finite, got "));
    posenc::yarn y{.factor = 4, .original_max_position_embeddings = 4096};
    y.attention_factor = bad;
    CHECK(starts(refused(y), "posenc::rope: attention_factor must be positive and finite, got "));
  }
  CHECK(refused(posenc::proportional{.partial_rotary_factor = 1.5}) ==
        "posenc::proportional: partial_rotary_factor must lie in (0, 1], got 1.5");
  CHECK(refused(posenc::llama3{.low_freq_factor = 4, .high_freq_factor = 1}) ==
        "posenc::llama3: high_freq_factor must not be below low_freq_factor, got 1");
  for (const std::int64_t bad : {0, -1}) {
    const std::string tail = " must be at least 1, got " + std::to_string(bad);
    CHECK(refused(posenc::dynamic_ntk{2, bad, 4}) == "posenc::dynamic_ntk: max_position_embeddings" + tail);
    CHECK(refused(posenc::ntk_by_parts{2, bad}) == "posenc::ntk_by_parts: original_max_position_embeddings" + tail);
    CHECK(refused(posenc::yarn{.factor = 2, .original_max_position_embeddings = bad}) ==
          "posenc::yarn: original_max_position_embeddings" + tail);
    CHECK(refused(posenc::llama3{.original_max_position_embeddings = bad}) ==
          "posenc::llama3: original_max_position_embeddings" + tail);
  }
  CHECK(refused(posenc::dynamic_ntk{2, 8, -1}) == "posenc::dynamic_ntk: length must not be negative, got -1");
  // NaN in the settings of the magnitudes does not pass.
  posenc::yarn y{.factor = 4, .original_max_position_embeddings = 4096, .attention_factor = 1};
  for (const double bad : {not_a_number, infinity}) {
    y.mscale_all_dim = bad;
    CHECK(starts(refused(y), "posenc::rope: the softmax factor of the scaling must be positive and finite, got "));
  }
  y.mscale_all_dim.reset();
  y.ext_factor = not_a_number;
  CHECK(starts(refused(y), "posenc::yarn: ext_factor must be finite, got "));
}

TEST_CASE("frequencies: two channels have no stretched base", "[rope][scaling]") {
  const std::string rule = "rotary_dim must exceed 2: the exponent divides by rotary_dim - 2, got 2";
  CHECK(refused(posenc::ntk_aware{4}, 2) == "posenc::ntk_aware: " + rule);
  CHECK(refused(posenc::dynamic_ntk{2, 8, 9}, 2) == "posenc::dynamic_ntk: " + rule);
  CHECK(refused(posenc::ntk_by_parts{2, 2048}, 2) == "posenc::ntk_by_parts: " + rule);
  // Rules without that exponent have a pair to turn.
  for (const posenc::rope_scaling& s :
       {posenc::rope_scaling(posenc::linear{2}), posenc::rope_scaling(posenc::ntk_fixed_su{2}),
        posenc::rope_scaling(posenc::ntk_base{2}), posenc::rope_scaling(posenc::ntk_mixed_su{2}),
        posenc::rope_scaling(posenc::llama3{}), posenc::rope_scaling(posenc::pixel{})})
    CHECK(refused(s, 2) == "nothing thrown");
}

TEST_CASE("frequencies: borders of ramps in the wrong order are refused", "[rope][scaling]") {
  posenc::yarn y{.factor = 4, .original_max_position_embeddings = 4096, .beta_fast = 1, .beta_slow = 32};
  CHECK(refused(y) == "posenc::yarn: beta_fast must exceed beta_slow, and that 0, got 1");
  y.beta_slow = 1;
  CHECK(refused(y) == "posenc::yarn: beta_fast must exceed beta_slow, and that 0, got 1");
  for (const double bad : {not_a_number, infinity}) {
    y.beta_fast = bad;
    CHECK(starts(refused(y), "posenc::yarn: beta_fast must exceed beta_slow"));
  }
  y.beta_fast = 32;
  for (const double bad : {not_a_number, 0.0, -1.0}) {
    y.beta_slow = bad;
    CHECK(starts(refused(y), "posenc::yarn: beta_fast must exceed beta_slow"));
  }
  CHECK(refused(posenc::ntk_by_parts{.factor = 2, .original_max_position_embeddings = 2048, .beta_0 = 0.5}) ==
        "posenc::ntk_by_parts: beta_0 must exceed beta_1, and that 0, got 0.5");
  CHECK(refused(posenc::ntk_by_parts{.factor = 2, .original_max_position_embeddings = 2048, .gamma_0 = 2}) ==
        "posenc::ntk_by_parts: gamma_0 must exceed gamma_1, and that 0, got 2");
}

TEST_CASE("frequencies: LongRoPE lists are checked", "[rope][scaling]") {
  const posenc::longrope good{.short_factor = {1, 1, 1, 1},
                              .long_factor = {1, 2, 4, 8},
                              .original_max_position_embeddings = 4096,
                              .factor = 32};
  CHECK(refused(good, 8) == "nothing thrown");
  auto s = good;
  s.short_factor = {1, 1, 1};
  CHECK(refused(s, 8) == "posenc::longrope: short_factor must list one divisor per pair, got 3");
  s = good;
  s.long_factor.clear();
  CHECK(refused(s, 8) == "posenc::longrope: long_factor must list one divisor per pair, got 0");
  CHECK(refused(good, 10) == "posenc::longrope: short_factor must list one divisor per pair, got 4");
  for (const double bad : {0.0, -1.0, not_a_number, infinity}) {
    s = good;
    s.long_factor[2] = bad;
    CHECK(starts(refused(s, 8), "posenc::longrope: long_factor must be positive and finite, got "));
    s = good;
    s.factor = bad;
    CHECK(starts(refused(s, 8), "posenc::longrope: factor must be positive and finite, got "));
  }
  s = good;
  s.original_max_position_embeddings = 0;
  CHECK(refused(s, 8) == "posenc::longrope: original_max_position_embeddings must be at least 1, got 0");
  s = good;
  s.factor.reset();
  CHECK(refused(s, 8) ==
        "posenc::longrope: max_position_embeddings must be given where neither factor "
        "nor attention_factor is, got 0");
  s.attention_factor = 1.5;
  CHECK(posenc::rope<double>{{.head_dim = 8, .scaling = s}}.magnitude() == 1.5);
  s = good;
  s.length = -1;
  CHECK(refused(s, 8) == "posenc::longrope: length must not be negative, got -1");
}

TEST_CASE("frequencies: rules that count rungs take no frequencies of one's own", "[rope][scaling]") {
  const std::vector<double> f{1, 0.5, 0.25, 0.125};
  const auto with = [&](const posenc::rope_scaling& s) {
    return refusal([&] { posenc::rope<double>{{.head_dim = 8, .scaling = s, .inv_freq = f}}; });
  };
  const auto over_blocks = [&](const posenc::rope_scaling& s) {
    return refusal([&] {
      posenc::rope<double>{{.head_dim = 8, .scaling = s, .axes = posenc::rope_axes::blocks({4, 4})}};
    });
  };
  const std::pair<const char*, posenc::rope_scaling> counting[] = {
      {"ntk_aware", posenc::ntk_aware{2}},
      {"ntk_fixed_su", posenc::ntk_fixed_su{2}},
      {"ntk_mixed_su", posenc::ntk_mixed_su{2}},
      {"ntk_base", posenc::ntk_base{2}},
      {"dynamic_ntk", posenc::dynamic_ntk{2, 8, 9}},
      {"ntk_by_parts", posenc::ntk_by_parts{2, 2048}},
      {"yarn", posenc::yarn{.factor = 2, .original_max_position_embeddings = 2048}},
      {"proportional", posenc::proportional{}},
      {"pixel", posenc::pixel{}}};
  for (const auto& [name, s] : counting) {
    CAPTURE(name);
    const std::string rule = std::string("posenc::") + name + ": inv_freq and axes must be absent";
    CHECK(starts(with(s), rule));
    CHECK(starts(over_blocks(s), rule));
  }
  const posenc::longrope halves{.short_factor = {1, 1, 1, 1},
                                .long_factor = {2, 2, 2, 4},
                                .original_max_position_embeddings = 8,
                                .factor = 1,
                                .length = 9};
  CHECK(posenc::rope<double>{{.head_dim = 8, .scaling = halves, .inv_freq = f}}.inv_freq() ==
        std::vector<double>{0.5, 0.25, 0.125, 0.03125});
  for (const posenc::rope_scaling& s :
       {posenc::rope_scaling(posenc::linear{2}), posenc::rope_scaling(halves), posenc::rope_scaling(posenc::llama3{}),
        posenc::rope_scaling(posenc::no_scaling{})}) {
    CHECK(with(s) == "nothing thrown");
    CHECK(over_blocks(s) == "nothing thrown");
  }
  // One ladder that runs through the axes is still one ladder.
  const auto chunks = posenc::rope_axes::chunked({1, 1, 2});
  for (const auto& [name, s] : counting) {
    const posenc::rope<double> on_axes{{.head_dim = 8, .scaling = s, .axes = chunks}};
    const posenc::rope<double> on_one{{.head_dim = 8, .scaling = s}};
    CHECK(on_axes.inv_freq() == on_one.inv_freq());
  }
}
