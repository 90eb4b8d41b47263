// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What every scaling makes of the frequencies, against formulas in long double.
#include "reference/rope_scalings.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/encoders/rope.hpp>

using posenc_test::refusal;
using posenc_test::worst;

namespace {

struct ladder_case {
  std::int64_t r;
  double base;
};
/// Llama, Llama 3, Qwen, gpt-oss, small heads and odd numbers of pairs.
constexpr ladder_case ladders[] = {{128, 1e4}, {128, 5e5}, {128, 1e6}, {64, 1.5e5}, {96, 1e4}, {6, 1e4}, {50, 3700}};
constexpr double factors[] = {1, 1.5, 4, 32, 1000};

posenc::rope<double> encoder(const ladder_case& l, const posenc::rope_scaling& scaling) {
  return posenc::rope<double>{{.head_dim = l.r, .base = l.base, .scaling = scaling}};
}
/// The largest relative difference of frequencies; infinite where a frequency that is 0 is not.
worst relative(const std::vector<double>& got, const oracle::wides& right) {
  worst w;
  if (got.size() != right.size()) w.see(INFINITY);
  for (std::size_t i = 0; i < std::min(got.size(), right.size()); ++i)
    w.see(right[i] == 0 ? (got[i] == 0 ? 0.0L : static_cast<long double>(INFINITY))
                        : std::fabs(static_cast<long double>(got[i]) / right[i] - 1),
          static_cast<long double>(i));
  return w;
}
/// The largest difference in units of the plain frequencies: what the share of a blend is off by.
worst of_plain(const std::vector<double>& got, const oracle::wides& right, const oracle::wides& plain) {
  worst w;
  if (got.size() != right.size() || got.size() != plain.size()) w.see(INFINITY);
  for (std::size_t i = 0; i < std::min({got.size(), right.size(), plain.size()}); ++i)
    w.see(std::fabs(static_cast<long double>(got[i]) - right[i]) / plain[i], static_cast<long double>(i));
  return w;
}
/// Half a step of double, and what the long double formula is off by.
constexpr long double rounded_once = 0x1.01p-53L;
/// Where shares of a blend are formed in double.
constexpr long double blended = 8e-15L;

std::string refused(const posenc::rope_scaling& scaling, std::int64_t r = 64) {
  return refusal([&] { posenc::rope<double>{{.head_dim = r, .scaling = scaling}}; });
}
bool starts(const std::string& text, const std::string& with) { return text.substr(0, with.size()) == with; }

}  // namespace

TEST_CASE("scaling: none, and the linear one", "[rope][scaling]") {
  for (const auto& l : ladders) {
    CAPTURE(l.r, l.base);
    const auto plain = oracle::plain_rope(l.base, l.r);
    CHECK(relative(encoder(l, posenc::no_scaling{}).inv_freq(), plain).error <= rounded_once);
    for (const double s : {0.5, 1.0, 3.0, 4.0, 8.0}) {
      auto right = plain;
      for (auto& f : right) f /= s;
      const auto e = encoder(l, posenc::linear{s});
      CHECK(relative(e.inv_freq(), right).error <= rounded_once);
      CHECK((e.magnitude() == 1 && e.softmax_scale_multiplier() == 1 && !e.depends_on_length()));
    }
  }
}

TEST_CASE("scaling: the four rules called NTK are four", "[rope][scaling]") {
  for (const auto& l : ladders)
    for (const double s : factors) {
      CAPTURE(l.r, l.base, s);
      CHECK(relative(encoder(l, posenc::ntk_aware{s}).inv_freq(), oracle::ntk_aware_rope(l.base, l.r, s)).error <=
            rounded_once);
      CHECK(relative(encoder(l, posenc::ntk_fixed_su{s}).inv_freq(), oracle::ntk_fixed_rope(l.base, l.r, s)).error <=
            rounded_once);
      CHECK(relative(encoder(l, posenc::ntk_base{s}).inv_freq(), oracle::ntk_base_rope(l.base, l.r, s)).error <=
            rounded_once);
      for (const double b : {0.625, 1.0, 0.3})
        CHECK(relative(encoder(l, posenc::ntk_mixed_su{s, b}).inv_freq(), oracle::ntk_mixed_rope(l.base, l.r, s, b))
                  .error <= blended);
    }
  // Ratios to the plain frequencies at the first and the last pair, factor 4, 128 channels.
  const ladder_case l{128, 1e4};
  const auto plain = encoder(l, posenc::no_scaling{}).inv_freq();
  const auto ends = [&](const posenc::rope_scaling& s) {
    const auto f = encoder(l, s).inv_freq();
    return std::pair(f.front() / plain.front(), f.back() / plain.back());
  };
  CHECK(ends(posenc::ntk_aware{4}).first == 1);
  CHECK(ends(posenc::ntk_aware{4}).second == Approx(0.25).epsilon(1e-14));
  CHECK(ends(posenc::ntk_fixed_su{4}).first == Approx(0.97857).epsilon(1e-5));
  CHECK(ends(posenc::ntk_fixed_su{4}).second == Approx(0.25).epsilon(1e-14));
  CHECK(ends(posenc::ntk_base{4}).first == 1);
  CHECK(ends(posenc::ntk_base{4}).second == Approx(0.25547).epsilon(2e-5));
  CHECK(ends(posenc::ntk_mixed_su{4, 0.625}).second == Approx(0.25).epsilon(1e-14));
}

TEST_CASE("scaling: dynamic NTK below, at and above the trained length", "[rope][scaling]") {
  for (const auto& l : ladders)
    for (const double s : {1.0, 2.0, 8.0})
      for (const std::int64_t trained : {8, 2048})
        for (const std::int64_t n : {0, 1, 7, 8, 9, 16, 2047, 2048, 2049, 4096, 16384, 1000000}) {
          CAPTURE(l.r, l.base, s, trained, n);
          const auto e = encoder(l, posenc::dynamic_ntk{s, trained, n});
          const auto right =
              oracle::dynamic_rope(l.base, l.r, s, static_cast<long double>(trained), static_cast<long double>(n));
          // The factor on the base is formed in double: s n / M - (s - 1).
          CHECK(relative(e.inv_freq(), right).error <= (n <= trained ? rounded_once : 4e-15L));
          CHECK(e.depends_on_length());
          CHECK(e.magnitude() == 1);
          if (n <= trained) CHECK(e.inv_freq() == encoder(l, posenc::no_scaling{}).inv_freq());
        }
  // vLLM's single table for the longest length is this rule at that length: factor 2, twice the length, base * 3.0528.
  const auto e = encoder({128, 1e4}, posenc::dynamic_ntk{2, 4096, 8192});
  CHECK(e.inv_freq()[1] == Approx(std::pow(1e4 * std::pow(3.0, 128.0 / 126), -1.0 / 64)).epsilon(1e-14));
}

TEST_CASE("scaling: NTK by parts", "[rope][scaling]") {
  for (const auto& l : ladders)
    for (const double s : {2.0, 4.0, 16.0})
      for (const std::int64_t original : {2048, 4096, 32768}) {
        CAPTURE(l.r, l.base, s, original);
        const auto L = static_cast<long double>(original);
        CHECK(relative(encoder(l, posenc::ntk_by_parts{s, original}).inv_freq(),
                       oracle::by_parts_rope(l.base, l.r, {.s = s, .L = L}))
                  .error <= blended);
        CHECK(relative(encoder(l, posenc::ntk_by_parts{s, original, 2, 0.5, 20, 1.5}).inv_freq(),
                       oracle::by_parts_rope(
                           l.base, l.r, {.s = s, .L = L, .beta_0 = 2, .beta_1 = 0.5L, .gamma_0 = 20, .gamma_1 = 1.5L}))
                  .error <= blended);
      }
}

TEST_CASE("scaling: YaRN over factors, lengths and ramps", "[rope][scaling]") {
  for (const auto& l : ladders)
    for (const double s : factors)
      for (const std::int64_t original : {2048, 4096, 16384, 32768})
        for (const bool whole : {true, false})
          for (const auto& [fast, slow] : {std::pair{32.0, 1.0}, {64.0, 2.0}, {4.0, 3.0}}) {
            CAPTURE(l.r, l.base, s, original, whole, fast, slow);
            const auto e = encoder(l, posenc::yarn{.factor = s,
                                                   .original_max_position_embeddings = original,
                                                   .beta_fast = fast,
                                                   .beta_slow = slow,
                                                   .truncate = whole});
            const oracle::yarn_rule y{
                .s = s, .L = static_cast<long double>(original), .fast = fast, .slow = slow, .whole = whole};
            // Borders that are not whole are logarithms in double, over the width of the ramp.
            CHECK(of_plain(e.inv_freq(), oracle::yarn_rope(l.base, l.r, y), oracle::plain_rope(l.base, l.r)).error <=
                  (whole ? 4e-16L : 2e-14L));
            CHECK(e.magnitude() == Approx(static_cast<double>(oracle::log_magnitude(s, 1))).epsilon(1e-15));
            CHECK((e.softmax_scale_multiplier() == 1 && !e.depends_on_length()));
          }
}

TEST_CASE("scaling: borders and magnitudes of YaRN in the wild", "[rope][scaling]") {
  struct published {
    ladder_case l;
    posenc::yarn y;
    double from, to, magnitude;
  };
  posenc::yarn ministral{.factor = 16, .original_max_position_embeddings = 16384};
  ministral.mscale = ministral.mscale_all_dim = 1;
  for (const published& m :
       {published{{128, 1e6}, {.factor = 4, .original_max_position_embeddings = 32768}, 23, 40, 1.138629436},
        {{64, 1e4}, {.factor = 40, .original_max_position_embeddings = 4096}, 10, 23, 1.3688879454},
        {{64, 1.5e5},
         {.factor = 32, .original_max_position_embeddings = 4096, .truncate = false},
         8.0927791154,
         17.3980245015,
         1.3465735903},
        {{128, 1e6}, ministral, 20, 37, 1}}) {
    CAPTURE(m.l.r, m.l.base, m.y.factor);
    const auto e = encoder(m.l, m.y);
    CHECK(e.magnitude() == Approx(m.magnitude).epsilon(1e-10));
    const auto plain = encoder(m.l, posenc::no_scaling{}).inv_freq();
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const double gone = std::clamp((static_cast<double>(i) - m.from) / (m.to - m.from), 0.0, 1.0);
      CHECK(e.inv_freq()[i] / plain[i] == Approx(1 - gone + gone / m.y.factor).epsilon(1e-9));
      if (gone == 0) CHECK(e.inv_freq()[i] == plain[i]);
      if (gone == 1) CHECK(e.inv_freq()[i] == Approx(plain[i] / m.y.factor).epsilon(1e-15));
    }
  }
}

TEST_CASE("scaling: magnitudes of YaRN", "[rope][scaling]") {
  const auto of = [](posenc::yarn y) {
    y.original_max_position_embeddings = 4096;
    const auto e = encoder({64, 1e4}, y);
    return std::pair(e.magnitude(), e.softmax_scale_multiplier());
  };
  const auto near = [](double x) { return Approx(x).epsilon(1e-9); };
  // DeepSeek V2 and V3.
  CHECK(of({.factor = 40, .mscale = 0.707, .mscale_all_dim = 0.707}).first == 1);
  CHECK(of({.factor = 40, .mscale = 0.707, .mscale_all_dim = 0.707}).second == near(1.5896261652));
  CHECK(of({.factor = 40, .mscale = 1, .mscale_all_dim = 1}).second == near(1.8738542070));
  // A ratio needs both; one of them alone leaves the default, 0 counts as absent.
  CHECK(of({.factor = 4}).first == near(1.138629436));
  CHECK(of({.factor = 4, .mscale = 0.707}).first == near(1.138629436));
  CHECK(of({.factor = 4, .mscale = 0.707}).second == 1);
  CHECK(of({.factor = 4, .mscale_all_dim = 0.707}).first == near(1.138629436));
  CHECK(of({.factor = 4, .mscale_all_dim = 0.707}).second == near(std::pow(0.0707 * std::log(4) + 1, 2)));
  CHECK(of({.factor = 4, .mscale = 0, .mscale_all_dim = 0}).first == near(1.138629436));
  CHECK(of({.factor = 4, .mscale = 2, .mscale_all_dim = 1}).first ==
        near((0.2 * std::log(4) + 1) / (0.1 * std::log(4) + 1)));
  // Given outright it wins over all of them, and the softmax factor stays.
  CHECK(of({.factor = 4, .attention_factor = 0.5, .mscale = 2, .mscale_all_dim = 1}).first == 0.5);
  CHECK(of({.factor = 4, .attention_factor = 0.5, .mscale = 2, .mscale_all_dim = 1}).second ==
        near(std::pow(0.1 * std::log(4) + 1, 2)));
  // Not stretched: no magnitude.
  CHECK(of({.factor = 1}).first == 1);
  CHECK(of({.factor = 0.5, .mscale_all_dim = 1}) == std::pair(1.0, 1.0));
}

TEST_CASE("scaling: a ramp that would end before it begins has three meanings", "[rope][scaling]") {
  posenc::yarn y{.factor = 4, .original_max_position_embeddings = 4};
  const ladder_case l{64, 1e4};
  const auto plain = encoder(l, posenc::no_scaling{}).inv_freq();
  CHECK(refused(y) ==
        "posenc::yarn: original_max_position_embeddings must let the slow border of the ramp lie behind the fast one "
        "(yarn's inverted_range gives others a meaning), got 4");
  // A context in which every pair turns more than beta_fast times has no ramp either.
  y.original_max_position_embeddings = 1000000;
  CHECK(starts(refusal([&] {
                 encoder({8, 3}, y);
               }),
               "posenc::yarn: original_max_position_embeddings must let the slow border"));
  y.original_max_position_embeddings = 4;
  y.inverted_range = posenc::yarn_inverted_range::hugging_face;
  CHECK(encoder(l, y).inv_freq() == plain);
  y.inverted_range = posenc::yarn_inverted_range::ggml;
  const auto f = encoder(l, y).inv_freq();
  CHECK(f[0] == plain[0]);
  for (std::size_t i = 1; i < 32; ++i) CHECK(f[i] == plain[i] / 4);
  for (const auto how : {posenc::yarn_inverted_range::hugging_face, posenc::yarn_inverted_range::ggml})
    for (const std::int64_t L : {1, 2, 4, 5, 6, 4096}) {
      y.inverted_range = how;
      y.original_max_position_embeddings = L;
      const oracle::yarn_rule rule{.s = 4,
                                   .L = static_cast<long double>(L),
                                   .how = how == posenc::yarn_inverted_range::ggml ? oracle::inverted::held_apart
                                                                                   : oracle::inverted::as_it_stands};
      CAPTURE(L, how);
      CHECK(relative(encoder(l, y).inv_freq(), oracle::yarn_rope(l.base, l.r, rule)).error <= 1e-13L);
    }
  // Where the ramp is in order, the choice changes nothing.
  y.original_max_position_embeddings = 4096;
  y.inverted_range = posenc::yarn_inverted_range::refuse;
  const auto in_order = encoder(l, y).inv_freq();
  y.inverted_range = posenc::yarn_inverted_range::ggml;
  CHECK(encoder(l, y).inv_freq() == in_order);
}

TEST_CASE("scaling: a YaRN ramp of no width, one past the last pair, and a part of it", "[rope][scaling]") {
  // Both borders on pair 0: 6 positions turn no pair once, so a step after the first.
  const posenc::yarn none{.factor = 4, .original_max_position_embeddings = 6};
  const auto f = encoder({64, 1e4}, none).inv_freq();
  const auto plain = encoder({64, 1e4}, posenc::no_scaling{}).inv_freq();
  CHECK(f[0] == plain[0]);
  for (std::size_t i = 1; i < 32; ++i) CHECK(f[i] == plain[i] / 4);
  // The upper border is held at r - 1, not at the last pair: base 2 and a long context keep the ramp below 1.
  const posenc::yarn past{.factor = 4, .original_max_position_embeddings = 1000};
  const auto g = encoder({16, 4}, past).inv_freq();
  const auto four = encoder({16, 4}, posenc::no_scaling{}).inv_freq();
  CHECK(g.back() > four.back() / 4);
  CHECK(relative(g, oracle::yarn_rope(4, 16, {.s = 4, .L = 1000})).error <= 1e-13L);
  // ggml's ext_factor: 0 is plain linear, a half counts half of what is kept.
  posenc::yarn part{.factor = 4, .original_max_position_embeddings = 4096, .ext_factor = 0};
  CHECK(relative(encoder({64, 1e4}, part).inv_freq(), oracle::yarn_rope(1e4L, 64, {.s = 4, .L = 4096, .heard = 0}))
            .error <= blended);
  for (std::size_t i = 0; i < 32; ++i) CHECK(encoder({64, 1e4}, part).inv_freq()[i] == plain[i] / 4);
  part.ext_factor = 0.5;
  CHECK(relative(encoder({64, 1e4}, part).inv_freq(), oracle::yarn_rope(1e4L, 64, {.s = 4, .L = 4096, .heard = 0.5L}))
            .error <= 1e-13L);
}

TEST_CASE("scaling: LongRoPE", "[rope][scaling]") {
  const std::vector<double> shorts{1, 1.05, 1.1, 1.2};
  const std::vector<double> longs{1, 2.5, 19, 64.5};
  const auto plain = oracle::plain_rope(1e4, 8);
  posenc::longrope s{.short_factor = shorts,
                     .long_factor = longs,
                     .original_max_position_embeddings = 4096,
                     .max_position_embeddings = 131072};
  for (const std::int64_t n : {0, 1, 4095, 4096, 4097, 131072}) {
    s.length = n;
    const auto e = encoder({8, 1e4}, s);
    auto right = plain;
    for (std::size_t i = 0; i < 4; ++i) right[i] /= (n > 4096 ? longs : shorts)[i];
    CAPTURE(n);
    CHECK(relative(e.inv_freq(), right).error <= rounded_once);
    // In both regimes.
    CHECK(e.magnitude() == Approx(1.1902380714).epsilon(1e-10));
    CHECK(e.magnitude() == Approx(static_cast<double>(oracle::longrope_magnitude(32, 4096))).epsilon(1e-15));
    CHECK(e.depends_on_length());
  }
  s.factor = 8;  // wins over the ratio
  CHECK(encoder({8, 1e4}, s).magnitude() ==
        Approx(static_cast<double>(oracle::longrope_magnitude(8, 4096))).epsilon(1e-15));
  s.attention_factor = 1.25;
  CHECK(encoder({8, 1e4}, s).magnitude() == 1.25);
  s.attention_factor.reset();
  s.factor = 1;
  CHECK(encoder({8, 1e4}, s).magnitude() == 1);
  s.factor = 0.5;
  CHECK(encoder({8, 1e4}, s).magnitude() == 1);
  // A length of 1 has no logarithm to divide by.
  s.original_max_position_embeddings = 1;
  CHECK(encoder({8, 1e4}, s).magnitude() == 1);
  s.factor = 2;
  CHECK(refusal([&] {
          encoder({8, 1e4}, s);
        }) ==
        "posenc::longrope: original_max_position_embeddings must exceed 1: the magnitude divides by its logarithm, got "
        "1");
  s.attention_factor = 1.5;
  CHECK(encoder({8, 1e4}, s).magnitude() == 1.5);
}

TEST_CASE("scaling: Llama 3", "[rope][scaling]") {
  struct of_model {
    ladder_case l;
    posenc::llama3 s;
  };
  for (const of_model& m : {of_model{{128, 5e5}, {}},
                            {{64, 5e5}, {.factor = 32}},
                            {{128, 5e5}, {.factor = 16, .low_freq_factor = 1, .high_freq_factor = 1}},
                            {{96, 1e4}, {.factor = 3, .low_freq_factor = 2, .high_freq_factor = 7.5}},
                            {{128, 1e4}, {.factor = 8, .original_max_position_embeddings = 64}},
                            {{128, 1e4}, {.factor = 8, .original_max_position_embeddings = 1}},
                            {{6, 1e4}, {.factor = 1}}}) {
    CAPTURE(m.l.r, m.l.base, m.s.factor, m.s.low_freq_factor, m.s.high_freq_factor);
    const auto e = encoder(m.l, m.s);
    CHECK(relative(e.inv_freq(), oracle::llama3_rope(oracle::plain_rope(m.l.base, m.l.r), m.s.factor,
                                                     m.s.low_freq_factor, m.s.high_freq_factor,
                                                     static_cast<long double>(m.s.original_max_position_embeddings)))
              .error <= blended);
    CHECK((e.magnitude() == 1 && e.softmax_scale_multiplier() == 1 && !e.depends_on_length()));
    // The ratio never falls, starts at 1 at the least and ends at the factor at the most.
    const auto plain = encoder(m.l, posenc::no_scaling{}).inv_freq();
    double before = 1;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const double ratio = plain[i] / e.inv_freq()[i];
      CHECK(ratio >= before * (1 - 1e-14));
      CHECK(ratio <= m.s.factor * (1 + 1e-14));
      before = ratio;
    }
  }
}

TEST_CASE("scaling: Llama 3 exactly on a border", "[rope][scaling]") {
  // Frequencies that turn 1, 2 and 4 times in 8192 positions, as near as doubles come; and their neighbours.
  const double turn = 2 * 3.14159265358979323846 / 8192;
  const std::vector<double> f{4 * turn, 2 * turn, turn, std::nextafter(turn, 1), std::nextafter(turn, 0)};
  const auto of = [&](double low, double high) {
    return posenc::rope<double>{
        {.head_dim = 10,
         .scaling = posenc::llama3{.factor = 8, .low_freq_factor = low, .high_freq_factor = high},
         .inv_freq = f}}
        .inv_freq();
  };
  const auto ramp = of(1, 4);
  CHECK(ramp[0] == f[0]);
  CHECK(ramp[2] == Approx(f[2] / 8).epsilon(1e-14));
  CHECK(ramp[1] == Approx(f[1] * (2.0 / 3 / 8 + 1.0 / 3)).epsilon(1e-14));
  // No ramp: a pair on the step is kept, one behind it divided; nothing is NaN.
  const auto step = of(1, 1);
  CHECK(step == std::vector<double>{f[0], f[1], f[2], f[3], f[4] / 8});
  CHECK(of(2, 2) == std::vector<double>{f[0], f[1], f[2] / 8, f[3] / 8, f[4] / 8});
}

TEST_CASE("scaling: proportional turns the first pairs of the whole head", "[rope][scaling]") {
  for (const std::int64_t d : {8, 100, 256, 512})
    for (const double p : {0.25, 0.5, 0.29, 1.0, 0.001})
      for (const double s : {1.0, 8.0}) {
        CAPTURE(d, p, s);
        const auto e = encoder({d, 1e6}, posenc::proportional{p, s});
        // int(p d // 2) of a product in double.
        const double product = p * static_cast<double>(d);
        const auto turning = static_cast<std::int64_t>(std::floor(product / 2));
        CHECK(relative(e.inv_freq(), oracle::proportional_rope(1e6, d, turning, s)).error <= rounded_once);
      }
  // Gemma 4: 64 of 256 pairs; the rest stands still at every position.
  const auto e = encoder({512, 1e6}, posenc::proportional{});
  std::vector<double> c(256);
  std::vector<double> s(256);
  e.cos_sin(123456789, c.data(), s.data());
  CHECK(e.inv_freq()[63] != 0);
  for (std::size_t i = 64; i < 256; ++i) CHECK((e.inv_freq()[i] == 0 && c[i] == 1 && s[i] == 0));
  CHECK(refusal([] { posenc::rope<double>{{.head_dim = 16, .rotary_dim = 8, .scaling = posenc::proportional{}}}; }) ==
        "posenc::proportional: rotary_dim must span the head, got 8");
}

TEST_CASE("scaling: pixel", "[rope][scaling]") {
  for (const std::int64_t r : {2, 4, 16, 50})
    for (const double max_freq : {10.0, 256.0, 2.0}) {
      CAPTURE(r, max_freq);
      CHECK(relative(encoder({r, 1e4}, posenc::pixel{max_freq}).inv_freq(), oracle::pixel_rope(r, max_freq)).error <=
            1e-15L);
    }
  CHECK(encoder({4, 1e4}, posenc::pixel{}).inv_freq()[1] == Approx(5 * 3.14159265358979323846).epsilon(1e-15));
}
