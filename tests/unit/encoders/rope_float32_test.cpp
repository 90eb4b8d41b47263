// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The float32 compatibility modes against the loops they stand for, every operation forced to float.
#include "reference/rope_scalings.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/encoders/rope.hpp>

using posenc::angle_mode;
using posenc::rope_axes;
using posenc_test::refusal;
using posenc_test::same_bits;

namespace {

/// One float operation, neither widened nor fused with the next.
float f(double x) {
  const volatile float y = static_cast<float>(x);
  return y;
}
float times(float a, float b) {
  const volatile float y = a * b;
  return y;
}
float plus(float a, float b) {
  const volatile float y = a + b;
  return y;
}
float minus(float a, float b) {
  const volatile float y = a - b;
  return y;
}
float over(float a, float b) {
  const volatile float y = a / b;
  return y;
}
/// The correctly rounded float power.
float power(double a, float b) {
  return static_cast<float>(std::pow(static_cast<long double>(f(a)), static_cast<long double>(b)));
}

using floats = std::vector<float>;

floats torch_powers(double base, int r) {
  floats out;
  for (int i = 0; i < r; i += 2) out.push_back(power(base, over(static_cast<float>(i), static_cast<float>(r))));
  return out;
}
floats torch_ladder(double base, int r) {
  floats out = torch_powers(base, r);
  for (float& x : out) x = over(1.0f, x);
  return out;
}

floats frequencies_of(int r, double base, const posenc::rope_scaling& s) {
  return posenc::rope<float>{{.head_dim = r, .base = base, .scaling = s, .angles = angle_mode::float32}}
      .float32_inv_freq();
}
/// How many differ by a bit.
int different(const floats& a, const floats& b) {
  int n = a.size() != b.size();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) n += !same_bits(a[i], b[i]);
  return n;
}

struct ladder_case {
  int r;
  double base;
};
constexpr ladder_case ladders[] = {{128, 1e4}, {128, 5e5}, {64, 1.5e5}, {96, 1e4}, {128, 1e6}, {6, 1e4}, {2, 1e4}};
constexpr std::int64_t places[] = {0, 1, 17, -9, 4095, 131071, 10000000, 16777217, -16777217, 1000000007};

}  // namespace

TEST_CASE("float32: frequencies step by step", "[rope][float32]") {
  for (const auto& [r, base] : ladders) {
    CAPTURE(r, base);
    const floats plain = torch_ladder(base, r);
    CHECK(different(frequencies_of(r, base, posenc::no_scaling{}), plain) == 0);
    for (const double s : {4.0, 3.0, 1.1}) {
      floats slower = plain;
      for (float& x : slower) x = over(x, f(s));
      CHECK(different(frequencies_of(r, base, posenc::linear{s}), slower) == 0);
      if (r == 2) continue;
      const double exponent = static_cast<double>(r) / (r - 2);
      CHECK(different(frequencies_of(r, base, posenc::ntk_aware{s}), torch_ladder(base * std::pow(s, exponent), r)) ==
            0);
      const double grown = base * std::pow(s * 5000 / 2048 - (s - 1), exponent);
      CHECK(different(frequencies_of(r, base, posenc::dynamic_ntk{s, 2048, 5000}), torch_ladder(grown, r)) == 0);
      CHECK(different(frequencies_of(r, base, posenc::dynamic_ntk{s, 2048, 2048}), plain) == 0);
    }
  }
}

TEST_CASE("float32: YaRN as PyTorch forms it", "[rope][float32]") {
  for (const auto& [r, base] : ladders)
    for (const double s : {4.0, 40.0, 1.3})
      for (const bool whole : {true, false}) {
        CAPTURE(r, base, s, whole);
        double lo = static_cast<double>(oracle::pair_that_turns(32, 4096, base, r));
        double hi = static_cast<double>(oracle::pair_that_turns(1, 4096, base, r));
        if (whole) lo = std::floor(lo), hi = std::ceil(hi);
        lo = std::max(lo, 0.0);
        hi = std::min(hi, r - 1.0);
        if (lo > hi) continue;
        if (lo == hi) hi += 0.001;
        floats right;
        for (const float p : torch_powers(base, r)) {
          const float i = static_cast<float>(right.size());
          const float ramp = std::min(std::max(over(minus(i, f(lo)), f(hi - lo)), 0.0f), 1.0f);
          const float kept = minus(1.0f, ramp);
          const float stretched = over(1.0f, times(f(s), p));
          right.push_back(plus(times(stretched, minus(1.0f, kept)), times(over(1.0f, p), kept)));
        }
        CHECK(different(
                  frequencies_of(
                      r, base, posenc::yarn{.factor = s, .original_max_position_embeddings = 4096, .truncate = whole}),
                  right) == 0);
      }
}

TEST_CASE("float32: LongRoPE, Llama 3 and proportional as PyTorch forms them", "[rope][float32]") {
  for (const auto& [r, base] : ladders) {
    CAPTURE(r, base);
    const floats plain = torch_ladder(base, r);
    posenc::longrope lists{.original_max_position_embeddings = 4096, .factor = 32, .length = 5000};
    floats divided;
    for (const float p : torch_powers(base, r)) {
      lists.short_factor.push_back(1);
      lists.long_factor.push_back(1 + 0.37 * static_cast<double>(divided.size()));
      divided.push_back(over(1.0f, times(f(lists.long_factor.back()), p)));
    }
    CHECK(different(frequencies_of(r, base, lists), divided) == 0);
    lists.length = 4096;
    CHECK(different(frequencies_of(r, base, lists), plain) == 0);

    for (const auto& [s, low, high, L] :
         {std::tuple{8.0, 1.0, 4.0, 8192}, {32.0, 1.0, 4.0, 8192}, {16.0, 1.0, 1.0, 8192}, {3.0, 2.0, 7.5, 1000}}) {
      floats right;
      for (const float x : plain) {
        const float wave = over(f(6.283185307179586), x);
        const float slow = over(x, f(s));
        float y = wave > f(L / low) ? slow : x;
        if (low != high && !(wave < f(L / high)) && !(wave > f(L / low))) {
          const float smooth = over(minus(over(static_cast<float>(L), wave), f(low)), f(high - low));
          y = plus(over(times(minus(1.0f, smooth), x), f(s)), times(smooth, x));
        }
        right.push_back(y);
      }
      CHECK(different(frequencies_of(r, base, posenc::llama3{s, low, high, L}), right) == 0);
    }

    floats part = plain;
    for (std::size_t i = 0; i < part.size(); ++i)
      part[i] = i < static_cast<std::size_t>(r / 8) ? over(part[i], 2.0f) : 0.0f;
    CHECK(different(frequencies_of(r, base, posenc::proportional{0.25, 2}), part) == 0);
  }
}

TEST_CASE("float32: angles, cosines and magnitudes are floats too, at every position", "[rope][float32]") {
  for (const auto& [r, base] : ladders)
    for (const double magnitude : {1.0, 1.1902380714}) {
      const posenc::rope<float> e{
          {.head_dim = r, .base = base, .attention_factor = magnitude, .angles = angle_mode::float32}};
      const floats inv_freq = torch_ladder(base, r);
      floats c(inv_freq.size());
      floats s(inv_freq.size());
      int wrong = 0;
      for (const std::int64_t p : places) {
        e.cos_sin(p, c.data(), s.data());
        for (std::size_t i = 0; i < inv_freq.size(); ++i) {
          const float angle = times(static_cast<float>(p), inv_freq[i]);
          wrong +=
              !same_bits(c[i], times(f(static_cast<double>(std::cos(static_cast<long double>(angle)))), f(magnitude)));
          wrong += s[i] != times(f(static_cast<double>(std::sin(static_cast<long double>(angle)))), f(magnitude));
        }
      }
      CHECK(wrong == 0);
    }
}

namespace {

struct ggml_rule {
  int n_dims;
  double base;
  double freq_scale = 1;
  double ext_factor = 0;
  int n_ctx_orig = 0;
  std::vector<double> freq_factors{};
};
/// The loop of ggml on the CPU, one running angle per coordinate; `restarts` begins it again where a section begins.
floats ggml_angles(const ggml_rule& g, const std::vector<int>& axis, const std::vector<bool>& restarts,
                   const std::array<std::int64_t, 4>& at) {
  const float theta_scale = power(g.base, over(-2.0f, static_cast<float>(g.n_dims)));
  const auto border = [&](float turns) {
    return static_cast<float>(g.n_dims) * std::log(static_cast<float>(g.n_ctx_orig) / (turns * 2 * 3.14159265f)) /
           (2 * std::log(static_cast<float>(g.base)));
  };
  const float start = std::max(0.0f, std::floor(border(32)));
  const float end = std::min(static_cast<float>(g.n_dims - 1), std::ceil(border(1)));
  std::array<float, 4> theta{};
  for (std::size_t a = 0; a < 4; ++a) theta[a] = static_cast<float>(at[a]);
  floats out;
  for (std::size_t i = 0; i < axis.size(); ++i) {
    const auto a = static_cast<std::size_t>(axis[i]);
    if (restarts[i]) theta[a] = static_cast<float>(at[a]);
    const float whole = over(theta[a], g.freq_factors.empty() ? 1.0f : f(g.freq_factors[i]));
    float angle = times(f(g.freq_scale), whole);
    if (g.ext_factor != 0) {
      const float y = over(minus(static_cast<float>(i), start), std::max(0.001f, minus(end, start)));
      const float mix = times(minus(1.0f, std::min(1.0f, std::max(0.0f, y))), f(g.ext_factor));
      angle = plus(times(angle, minus(1.0f, mix)), times(whole, mix));
    }
    out.push_back(angle);
    for (float& t : theta) t = times(t, theta_scale);
  }
  return out;
}
int wrong_rows(const posenc::rope_options& given, const ggml_rule& g, std::vector<int> axis = {},
               std::vector<bool> restarts = {}, bool same_axes = true) {
  posenc::rope_options o = given;
  o.angles = angle_mode::ggml_recurrence;
  const posenc::rope<float> e{o};
  const auto n = static_cast<std::size_t>(e.pairs());
  if (axis.empty()) axis.assign(n, 0);
  if (restarts.empty()) restarts.assign(n, false);
  floats c(n);
  floats s(n);
  int wrong = 0;
  for (const std::int64_t p : places) {
    posenc::position at = p;
    if (!same_axes) at.axis = {p, p / 3 + 1, -p / 7, 5};
    e.cos_sin(at, c.data(), s.data());
    const floats angles = ggml_angles(g, axis, restarts, at.axis);
    for (std::size_t i = 0; i < n; ++i) {
      const auto x = static_cast<long double>(angles[i]);
      wrong += !same_bits(c[i], times(f(static_cast<double>(std::cos(x))), f(e.magnitude())));
      wrong += s[i] != times(f(static_cast<double>(std::sin(x))), f(e.magnitude()));
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("float32: the recurrence of ggml", "[rope][float32]") {
  for (const auto& [r, base] : ladders) {
    CAPTURE(r, base);
    CHECK(wrong_rows({.head_dim = r, .base = base}, {.n_dims = r, .base = base}) == 0);
    // Parts of a row: more pairs than a block.
    CHECK(wrong_rows({.head_dim = 600, .base = base}, {.n_dims = 600, .base = base}) == 0);
    for (const double s : {4.0, 3.0})
      CHECK(wrong_rows({.head_dim = r, .base = base, .scaling = posenc::linear{s}},
                       {.n_dims = r, .base = base, .freq_scale = 1 / s}) == 0);
    std::vector<double> factors;
    for (int i = 0; i < r / 2; ++i) factors.push_back(1 + 0.61 * i);
    CHECK(wrong_rows({.head_dim = r, .base = base, .freq_factors = factors},
                     {.n_dims = r, .base = base, .freq_factors = factors}) == 0);
    // Factors come before the scale.
    CHECK(wrong_rows({.head_dim = r, .base = base, .scaling = posenc::linear{3}, .freq_factors = factors},
                     {.n_dims = r, .base = base, .freq_scale = 1.0 / 3, .freq_factors = factors}) == 0);
    for (const double ext : {1.0, 0.5, 0.0})
      CHECK(wrong_rows({.head_dim = r,
                        .base = base,
                        .scaling = posenc::yarn{.factor = 4,
                                                .original_max_position_embeddings = 4096,
                                                .inverted_range = posenc::yarn_inverted_range::ggml,
                                                .ext_factor = ext}},
                       {.n_dims = r, .base = base, .freq_scale = 0.25, .ext_factor = ext, .n_ctx_orig = 4096}) == 0);
  }
}

TEST_CASE("float32: scalings without a parameter in ggml become divisors", "[rope][float32]") {
  const posenc::llama3 s{};
  std::vector<double> divisors;
  const auto plain = oracle::plain_rope(5e5L, 128);
  const auto scaled = oracle::llama3_rope(plain, 8, 1, 4, 8192);
  for (std::size_t i = 0; i < plain.size(); ++i) divisors.push_back(static_cast<double>(plain[i] / scaled[i]));
  CHECK(wrong_rows({.head_dim = 128, .base = 5e5, .scaling = s},
                   {.n_dims = 128, .base = 5e5, .freq_factors = divisors}) == 0);
  // With divisors of one's own, which come before the scaling: a pair that they slow down is stretched further.
  std::vector<double> own;
  for (std::size_t i = 0; i < 64; ++i) own.push_back(1 + 0.03 * static_cast<double>(i));
  auto slowed = plain;
  for (std::size_t i = 0; i < 64; ++i) slowed[i] /= own[i];
  const auto both = oracle::llama3_rope(slowed, 8, 1, 4, 8192);
  for (std::size_t i = 0; i < 64; ++i) divisors[i] = static_cast<double>(plain[i] / both[i]);
  CHECK(wrong_rows({.head_dim = 128, .base = 5e5, .scaling = s, .freq_factors = own},
                   {.n_dims = 128, .base = 5e5, .freq_factors = divisors}) == 0);
  // No rotation is a divisor of 1e30: exactly the identity.
  const posenc::rope<float> part{
      {.head_dim = 512, .base = 1e6, .scaling = posenc::proportional{}, .angles = angle_mode::ggml_recurrence}};
  floats c(256);
  floats sine(256);
  part.cos_sin(16777217, c.data(), sine.data());
  for (std::size_t i = 64; i < 256; ++i) CHECK((c[i] == 1 && std::abs(sine[i]) < 1e-22f));
}

TEST_CASE("float32: several running angles, sections and restarts", "[rope][float32]") {
  std::vector<int> chunks;
  for (int i = 0; i < 64; ++i) chunks.push_back(i < 16 ? 0 : i < 40 ? 1 : 2);
  CHECK(wrong_rows({.head_dim = 128, .base = 1e6, .axes = rope_axes::chunked({16, 24, 24})},
                   {.n_dims = 128, .base = 1e6}, chunks, {}, false) == 0);
  std::vector<int> dealt;
  for (int i = 0; i < 64; ++i) dealt.push_back(i == 61 || i == 62 ? 3 : i >= 60 ? 0 : i % 3);
  CHECK(wrong_rows({.head_dim = 128, .base = 5e6, .axes = rope_axes::imrope_ggml({24, 20, 20, 0})},
                   {.n_dims = 128, .base = 5e6}, dealt, {}, false) == 0);
  // Vision: the angle of each section starts again, on a ladder of half the head.
  std::vector<int> halves;
  std::vector<bool> restarts;
  for (int i = 0; i < 40; ++i) {
    halves.push_back(i < 20 ? 0 : 1);
    restarts.push_back(i == 0 || i == 20);
  }
  CHECK(wrong_rows({.head_dim = 80, .axes = rope_axes::blocks({40, 40})}, {.n_dims = 40, .base = 1e4}, halves, restarts,
                   false) == 0);
  // A ladder that is not climbed rung by rung is no recurrence.
  CHECK(refusal([] {
          posenc::rope<float>{{.head_dim = 8, .axes = rope_axes::pixtral(8), .angles = angle_mode::ggml_recurrence}};
        }).find("posenc::rope: axes must climb one ladder rung by rung") == 0);
  CHECK(
      refusal([] {
        posenc::rope<float>{{.head_dim = 12, .axes = rope_axes::blocks({4, 8}), .angles = angle_mode::ggml_recurrence}};
      }).find("posenc::rope: axes must climb one ladder rung by rung") == 0);
}

TEST_CASE("float32: an axis turns its pairs by its own coordinate in the Hugging Face mode", "[rope][float32]") {
  const posenc::rope<float> e{
      {.head_dim = 128, .base = 1e6, .axes = rope_axes::interleaved({24, 20, 20}), .angles = angle_mode::float32}};
  const floats inv_freq = torch_ladder(1e6, 128);
  posenc::position at;
  at.axis = {100003, 70, 16777217, 0};
  floats c(64);
  floats s(64);
  e.cos_sin(at, c.data(), s.data());
  int wrong = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    const auto p = static_cast<float>(at[i < 60 ? static_cast<int>(i % 3) : 0]);
    wrong += c[i] != f(static_cast<double>(std::cos(static_cast<long double>(times(p, inv_freq[i])))));
    wrong += s[i] != f(static_cast<double>(std::sin(static_cast<long double>(times(p, inv_freq[i])))));
  }
  CHECK(wrong == 0);
}

TEST_CASE("float32 frequencies: ladders that begin again, divisors and multipliers in float", "[rope]") {
  // Each block has the frequencies of a head of its own width, bit for bit.
  const auto frequencies = [](posenc::rope_options o) {
    o.angles = posenc::angle_mode::float32;
    return posenc::rope<float>(o).float32_inv_freq();
  };
  const auto blocks = frequencies({.head_dim = 128, .base = 256, .axes = posenc::rope_axes::blocks({16, 56, 56})});
  std::vector<float> apart;
  for (const std::int64_t d : {16, 56, 56})
    for (const float f : frequencies({.head_dim = d, .base = 256})) apart.push_back(f);
  CHECK(blocks == apart);
  const auto plain = frequencies({.head_dim = 128});
  CHECK(frequencies({.head_dim = 128, .freq_factors = std::vector<double>(64, 1.0)}) == plain);
  const auto third = frequencies({.head_dim = 128, .freq_factors = std::vector<double>(64, 3.0)});
  posenc::rope_axes twice;
  twice.multiplier = 2;
  const auto doubled = frequencies({.head_dim = 128, .axes = twice});
  for (std::size_t i = 0; i < 64; ++i) {
    const volatile float quotient = plain[i] / 3.0f;
    CHECK(third[i] == quotient);
    CHECK(doubled[i] == 2 * plain[i]);
  }
}
