// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Numbers that the documentation and the pictures quote, to every digit they are quoted with.
#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <posenc/attention/irope.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include <algorithm>
#include <numbers>

using posenc::positions;
using posenc::view;

namespace {

std::vector<double> wavelengths(std::int64_t channels, double base = 1e4) {
  std::vector<double> out;
  for (const double f : posenc::rope<double>{{.head_dim = channels, .base = base}}.inv_freq())
    out.push_back(2 * std::numbers::pi / f);
  return out;
}

using waves = posenc::sinusoidal<double>;

std::vector<double> wave(const waves& e, std::int64_t at) {
  std::vector<double> out(static_cast<std::size_t>(e.dim()));
  e.table(view{out.data(), {.tokens = 1, .dim = e.dim()}}, positions::from(at));
  return out;
}
double product(const waves& e, std::int64_t p, std::int64_t k) {
  return laws::dot(wave(e, p).data(), wave(e, p + k).data(), e.dim());
}

std::vector<double> turned(const posenc::rope<double>& r, std::vector<double> x, double at) {
  const std::vector<double> where{at};
  r.rotate(view{x.data(), {.tokens = 1, .dim = r.head_dim()}}, posenc::real_positions{where});
  return x;
}
double rope_score(const posenc::rope<double>& r, const std::vector<double>& q, double m, const std::vector<double>& k,
                  double n) {
  return laws::dot(turned(r, q, m).data(), turned(r, k, n).data(), r.head_dim());
}

}  // namespace

TEST_CASE("wavelengths", "[facts][rope]") {
  const auto fifty = wavelengths(100);
  CHECK(fifty.front() == Approx(6.2832).epsilon(0).margin(5e-5));
  CHECK(fifty[1] == Approx(7.5541).epsilon(0).margin(5e-5));
  CHECK(fifty.back() == Approx(52261.26).epsilon(0).margin(5e-3));
  for (std::size_t i = 1; i < 50; ++i) CHECK(fifty[i] / fifty[i - 1] == Approx(1.2022644).epsilon(0).margin(5e-8));
  CHECK(wavelengths(64).back() == Approx(47117.24).epsilon(0).margin(5e-3));
  CHECK(wavelengths(128).back() == Approx(54410.14).epsilon(0).margin(5e-3));
  CHECK(wavelengths(512).back() == Approx(60611.48).epsilon(0).margin(5e-3));
  const double limit = 2 * std::numbers::pi * 1e4;
  CHECK(limit == Approx(62831.85).epsilon(0).margin(5e-3));
  CHECK(wavelengths(20000).back() < limit);
  CHECK(wavelengths(20000).back() == Approx(limit).epsilon(1e-3));
}

TEST_CASE("pairs whose wavelength exceeds the context", "[facts][rope]") {
  constexpr std::int64_t contexts[] = {512, 2048, 4096, 8192, 131072};
  constexpr std::int64_t at_1e4[] = {33, 23, 18, 14, 0};
  constexpr std::int64_t at_5e5[] = {42, 35, 32, 29, 15};
  for (std::size_t i = 0; i < 5; ++i) {
    const auto slower = [&](double base) {
      const auto all = wavelengths(128, base);
      return std::count_if(all.begin(), all.end(), [&](double w) { return w > static_cast<double>(contexts[i]); });
    };
    CHECK(slower(1e4) == at_1e4[i]);
    CHECK(slower(5e5) == at_5e5[i]);
  }
}

TEST_CASE("frequencies of dim 8", "[facts][rope]") {
  const auto f = posenc::rope<double>{{.head_dim = 8}}.inv_freq();
  CHECK(f[0] == 1);
  CHECK(f[1] == Approx(0.1).epsilon(1e-16));
  CHECK(f[2] == Approx(0.01).epsilon(1e-16));
  CHECK(f[3] == Approx(0.001).epsilon(1e-16));
}

TEST_CASE("products of sinusoids", "[facts][sinusoidal]") {
  constexpr std::int64_t distances[] = {0, 1, 10, 100};
  constexpr double at_512[] = {256, 249.1021, 173.7897, 111.9502};
  constexpr double at_128[] = {64, 62.0937, 42.8200, 30.5435};
  const waves wide{{.dim = 512}};
  const waves narrow{{.dim = 128}};
  for (std::size_t i = 0; i < 4; ++i)
    for (const std::int64_t p : {0, 17, 5000}) {
      CHECK(product(wide, p, distances[i]) == Approx(at_512[i]).epsilon(0).margin(5e-5));
      CHECK(product(wide, p, -distances[i]) == Approx(at_512[i]).epsilon(0).margin(5e-5));
      CHECK(product(narrow, p, distances[i]) == Approx(at_128[i]).epsilon(0).margin(5e-5));
    }
}

TEST_CASE("products of sinusoids are not monotone", "[facts][sinusoidal]") {
  const waves d8{{.dim = 8}};
  const waves d128{{.dim = 128}};
  const waves d512{{.dim = 512}};
  const auto first = [](const waves& e, const auto& holds) {
    double before = product(e, 0, 0);
    for (std::int64_t k = 1;; ++k) {
      const double now = product(e, 0, k);
      if (holds(before, now) || k == 3000) return k;
      before = now;
    }
  };
  const auto rises = [](double before, double now) { return now > before; };
  const auto negative = [](double, double now) { return now < 0; };
  CHECK(first(d8, rises) == 4);
  CHECK(first(d128, rises) == 12);
  CHECK(first(d512, rises) == 44);
  CHECK(first(d8, negative) == 91);
  CHECK(first(d128, negative) == 1707);
  CHECK(product(d8, 0, 3) == Approx(1.9649).epsilon(0).margin(5e-5));
  CHECK(product(d8, 0, 4) == Approx(2.2666).epsilon(0).margin(5e-5));
  CHECK(product(d128, 0, 11) == Approx(42.3443).epsilon(0).margin(5e-5));
  CHECK(product(d128, 0, 12) == Approx(42.3814).epsilon(0).margin(5e-5));
}

TEST_CASE("the linear shift of a pair of sinusoids", "[facts][sinusoidal]") {
  const waves e{{.dim = 8}};
  for (const std::int64_t p : {0, 5, 1234}) {
    const auto here = wave(e, p);
    const auto there = wave(e, p + 3);
    // Pair 1 of dim 8 has w = 0.1.
    CHECK(there[2] == Approx(0.9553365 * here[2] + 0.2955202 * here[3]).epsilon(0).margin(1e-7));
    CHECK(there[3] == Approx(-0.2955202 * here[2] + 0.9553365 * here[3]).epsilon(0).margin(1e-7));
  }
}

TEST_CASE("projected sinusoids are not relative, rotations are", "[facts][sinusoidal][rope]") {
  constexpr std::int64_t dim = 64;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const auto content_q = any.vector(dim);
    const auto content_k = any.vector(dim);
    const auto w_q = any.vector(dim * dim);
    const auto w_k = any.vector(dim * dim);
    const auto project = [](const std::vector<double>& w, const std::vector<double>& x) {
      std::vector<double> y(dim);
      for (std::int64_t o = 0; o < dim; ++o)
        y[static_cast<std::size_t>(o)] = laws::dot(w.data() + o * dim, x.data(), dim) / 8;
      return y;
    };
    const waves e{{.dim = dim}};
    const auto with_wave = [&e](std::vector<double> x, std::int64_t at) {
      e.embed(view{x.data(), {.tokens = 1, .dim = dim}}, positions::from(at));
      return x;
    };
    const posenc::rope<double> r{{.head_dim = dim}};
    double added_lo = INFINITY;
    double added_hi = -INFINITY;
    double turned_lo = INFINITY;
    double turned_hi = -INFINITY;
    for (std::int64_t i = 3; i < 32; ++i) {
      const auto q = project(w_q, with_wave(content_q, i));
      const auto k = project(w_k, with_wave(content_k, i - 3));
      const double added = laws::dot(q.data(), k.data(), dim);
      REQUIRE(std::isfinite(added));  // min and max pass over a NaN
      added_lo = std::min(added_lo, added);
      added_hi = std::max(added_hi, added);
      const double score = rope_score(r, content_q, static_cast<double>(i), content_k, static_cast<double>(i - 3));
      REQUIRE(std::isfinite(score));
      turned_lo = std::min(turned_lo, score);
      turned_hi = std::max(turned_hi, score);
    }
    CHECK(added_hi - added_lo > 0.1);
    CHECK(turned_hi - turned_lo < 1e-12);
  }
}

TEST_CASE("rope's score under translation", "[facts][rope]") {
  const std::vector<double> x{1, 2, 3, 4};
  const std::vector<double> y{0.5, -1, 2, 0.25};
  for (const double t : {0.0, 7.0, 100.5}) {
    CHECK(rope_score(posenc::rope<double>{{.head_dim = 4, .layout = posenc::interleaved}}, x, 5 + t, y, 3 + t) ==
          Approx(5.659235114).epsilon(0).margin(5e-10));
    CHECK(rope_score(posenc::rope<double>{{.head_dim = 4}}, x, 5 + t, y, 3 + t) ==
          Approx(-3.160111731).epsilon(0).margin(5e-10));
  }
}

TEST_CASE("the phase of query and key matters", "[facts][rope]") {
  const posenc::rope<double> r{{.head_dim = 2}};
  const std::vector<double> q{1, 2};
  const std::vector<double> k{0.5, -1};
  constexpr double expected[] = {-1.5, -2.4933954, -1.1943746};
  constexpr double without_phase[] = {2.5, 1.3507558, -1.0403671};
  const double lengths = std::sqrt(laws::dot(q.data(), q.data(), 2) * laws::dot(k.data(), k.data(), 2));
  for (int d = 0; d < 3; ++d) {
    CHECK(rope_score(r, q, 4 + d, k, 4) == Approx(expected[d]).epsilon(0).margin(5e-8));
    CHECK(lengths * std::cos(d) == Approx(without_phase[d]).epsilon(0).margin(5e-8));
  }
}

TEST_CASE("a grid read as a line", "[facts][rope]") {
  const posenc::rope<double> r{{.head_dim = 64}};
  const std::vector<double> ones(64, 1.0);
  const auto relative = [&](std::int64_t distance) {
    return rope_score(r, ones, 100, ones, 100 + static_cast<double>(distance)) / 64;
  };
  CHECK(relative(1) == Approx(0.9662).epsilon(0).margin(5e-5));   // right
  CHECK(relative(14) == Approx(0.6313).epsilon(0).margin(5e-5));  // down
  CHECK(relative(15) == Approx(0.6084).epsilon(0).margin(5e-5));  // down and right
  CHECK(relative(13) == Approx(0.6565).epsilon(0).margin(5e-5));  // down and left
}

TEST_CASE("ALiBi's weights", "[facts][alibi]") {
  const posenc::alibi<double> e{8};
  for (std::size_t h = 0; h < 8; ++h) CHECK(e.slopes()[h] == std::exp2(-static_cast<double>(h + 1)));
  CHECK(std::exp(-10 * e.slopes()[0]) == Approx(0.0067379).epsilon(0).margin(5e-8));
  // One query at distance 10 from one key and 0 from the other, whose content is worse by the advantage.
  for (const double advantage : {0.0, 4.99, 5.01}) {
    const std::vector<double> q(8, 1.0);
    std::vector<double> k(16);
    std::fill(k.begin(), k.begin() + 8, advantage);
    std::vector<double> out(8);
    std::vector<double> weights(16);
    std::vector<double> logits(16);
    const std::vector<std::int64_t> at{90, 100};
    posenc::attention_reference(
        view{q.data(), {.tokens = 1, .heads = 8, .dim = 1}}, view{k.data(), {.tokens = 2, .heads = 8, .dim = 1}},
        view{k.data(), {.tokens = 2, .heads = 8, .dim = 1}}, view{out.data(), {.tokens = 1, .heads = 8, .dim = 1}}, e,
        {.query_positions = positions::from(100),
         .key_positions = positions::listed(at),
         .scale = 1.0,
         .logits = {logits.data(), {.tokens = 1, .heads = 8, .dim = 2}},
         .weights = {weights.data(), {.tokens = 1, .heads = 8, .dim = 2}}});
    CHECK((weights[0] > weights[1]) == (advantage > 5));
    if (advantage == 0) {
      CHECK(weights[0] / weights[1] == Approx(0.0067379).epsilon(0).margin(5e-8));
      for (std::size_t h = 0; h < 8; ++h)
        CHECK(weights[2 * h] / weights[2 * h + 1] == Approx(std::exp(-10 / std::exp2(static_cast<double>(h + 1)))));
    }
  }
  // 1/e at distance 2, 4, ..., 256.
  for (std::size_t h = 0; h < 8; ++h) CHECK(e.slopes()[h] * std::exp2(static_cast<double>(h + 1)) == 1);
}

TEST_CASE("T5's ranges", "[facts][relative_bucket]") {
  const std::vector<double> table(32);
  const posenc::relative_bucket<double> e{{.heads = 1}, std::span<const double>(table)};
  std::vector<std::int64_t> members(16);
  for (std::int64_t n = 0; n < 128; ++n) ++members[static_cast<std::size_t>(e.bucket(-n))];
  for (std::size_t b = 0; b < 8; ++b) CHECK(members[b] == 1);
  CHECK(members[8] == 4);  // 8 .. 11
  CHECK((e.bucket(-8) == 8 && e.bucket(-11) == 8 && e.bucket(-12) == 9));
  CHECK(members[9] == 4);
  for (std::size_t b = 10; b < 16; ++b) CHECK(members[b] > members[b - 1]);
  for (std::int64_t n = 1; n < 300; ++n) {
    REQUIRE(e.bucket(-n) >= e.bucket(1 - n));
    REQUIRE(e.bucket(n + 1) >= e.bucket(n));
  }
}

TEST_CASE("interpolation from 4096 to 16384", "[facts][rope]") {
  const posenc::rope<double> plain{{.head_dim = 128}};
  const posenc::rope<double> wide{{.head_dim = 128, .scaling = posenc::linear{16384.0 / 4096.0}}};
  CHECK(plain.inv_freq().front() == 1);
  CHECK(wide.inv_freq().front() == 0.25);
  CHECK(plain.inv_freq().back() == Approx(1.1548e-4).epsilon(0).margin(5e-9));
  CHECK(wide.inv_freq().back() == Approx(2.8870e-5).epsilon(0).margin(5e-10));
}

TEST_CASE("Llama 4's temperature and layers", "[facts][irope]") {
  const posenc::query_temperature t;
  const auto at = [&](std::int64_t p) { return t.query_scale(0, posenc::position{p}, 0); };
  for (std::int64_t p = 0; p <= 8190; ++p) REQUIRE(at(p) == 1);
  CHECK(at(8191) == Approx(1.0693147).epsilon(0).margin(5e-8));
  CHECK(at(16383) == Approx(1.1098612).epsilon(0).margin(5e-8));
  CHECK(at(131071) == Approx(1.2833213).epsilon(0).margin(5e-8));
  const posenc::irope<float> model{{.layers = 12, .rope = {.head_dim = 4}}};
  for (std::int64_t l = 0; l < 12; ++l) CHECK(model.schedule().uses_rope(l) == (l != 3 && l != 7 && l != 11));
}

TEST_CASE("parameter counts", "[facts]") {
  const auto learned = [](std::int64_t rows, std::int64_t dim) {
    const std::vector<float> table(static_cast<std::size_t>(rows * dim));
    return posenc::learned<float>{{.rows = rows, .dim = dim}, std::span<const float>(table)}.describe().parameters;
  };
  CHECK(learned(512, 768) == 393216);   // BERT
  CHECK(learned(1024, 768) == 786432);  // GPT-2
  const std::vector<float> table(32 * 12);
  CHECK(posenc::relative_bucket<float>{{.heads = 12}, std::span<const float>(table)}.describe().parameters ==
        384);  // T5
  CHECK(posenc::sinusoidal<float>{{.dim = 512}}.describe().parameters == 0);
  CHECK(posenc::rope<float>{{.head_dim = 128}}.describe().parameters == 0);
  CHECK(posenc::alibi<float>{8}.describe().parameters == 0);
  CHECK(posenc::nope::describe().parameters == 0);
}
