// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Faults that were reported against other code of scores, masks and softmax.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/mask_tensor.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/alibi.hpp>

#include "support/catch.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace {

using posenc::positions;
using posenc::view;
using list = std::vector<std::int64_t>;

constexpr float inf = std::numeric_limits<float>::infinity();

template <class Mask>
list seen(const Mask& mask, std::int64_t query, std::int64_t keys) {
  const auto allowed = posenc::detail::positions_allowed(std::make_tuple(mask), {.query_position = query});
  list all;
  for (std::int64_t k = 0; k < keys; ++k)
    if (allowed.contains(k)) all.push_back(k);
  return all;
}

struct result {
  std::vector<float> weights;  // [query, key]
  std::vector<float> lse;      // [query]
};

using policy = posenc::run_time_policy<posenc::alibi<float>>;
policy plain() { return {.bias = posenc::alibi<float>(std::vector<float>{0.0f})}; }

/// Softmax weights of one row of scores: width 1, keys of the scores, values of unit vectors.
result weights_of(const std::vector<float>& scores, const policy& p, std::int64_t queries = 1,
                  posenc::attention_options<float> options = {}) {
  const auto n = static_cast<std::int64_t>(scores.size());
  const std::vector<float> q(static_cast<std::size_t>(queries), 1.0f);
  std::vector<float> v(static_cast<std::size_t>(n * n), 0.0f);
  for (std::size_t i = 0; i < scores.size(); ++i) v[i * scores.size() + i] = 1;
  result r{std::vector<float>(static_cast<std::size_t>(queries * n), 9),
           std::vector<float>(static_cast<std::size_t>(queries), 9)};
  options.scale = 1.0;
  options.lse = view(r.lse.data(), {.tokens = queries, .dim = 1});
  posenc::attention(view(q.data(), {.tokens = queries, .dim = 1}), view(scores.data(), {.tokens = n, .dim = 1}),
                    view(v.data(), {.tokens = n, .dim = n}), view(r.weights.data(), {.tokens = queries, .dim = n}), p,
                    options);
  return r;
}

}  // namespace

TEST_CASE("F58: a window of W keys counts the query's own") {
  CHECK(seen(posenc::sliding_window(3), 5, 10) == list{3, 4, 5});
  CHECK(seen(posenc::sliding_window(1), 5, 10) == list{5});
  CHECK(seen(posenc::sliding_window(10), 5, 10) == seen(posenc::causal{}, 5, 10));
  CHECK(seen(posenc::sliding_window(6), 5, 10) == seen(posenc::causal{}, 5, 10));
}

TEST_CASE("F59: positions say which corner is causal, nothing is guessed from the lengths") {
  policy p = plain();
  p.masks.causal = true;
  const auto seen_by = [&](std::int64_t queries, std::int64_t keys, std::int64_t first) {
    std::vector<int> truth;
    const std::vector<float> scores(static_cast<std::size_t>(keys), 0.0f);
    for (const float w : weights_of(scores, p, queries, {.query_positions = positions::from(first)}).weights)
      truth.push_back(w > 0 ? 1 : 0);
    return truth;
  };
  CHECK(seen_by(2, 5, 0) == std::vector<int>{1, 0, 0, 0, 0, 1, 1, 0, 0, 0});
  CHECK(seen_by(2, 5, 3) == std::vector<int>{1, 1, 1, 1, 0, 1, 1, 1, 1, 1});
  CHECK(seen_by(5, 2, -3) == std::vector<int>{0, 0, 0, 0, 0, 0, 1, 0, 1, 1});
}

TEST_CASE("F60: a row without a legal key gives zeros and leaves the others alone") {
  policy p = plain();
  p.masks.window = posenc::sliding_window(3);
  const list ids{2, -1, 1};
  const result r = weights_of({0.5f, 0.5f, 0.5f}, p, 3, {.query_positions = positions::listed(ids)});
  CHECK(r.weights == std::vector<float>{r.weights[0], r.weights[0], r.weights[0], 0, 0, 0, 0.5f, 0.5f, 0});
  CHECK(r.weights[0] == Approx(1.0 / 3));
  CHECK(r.lse[1] == -inf);
  CHECK(r.lse[0] == Approx(0.5 + std::log(3.0)));
}

TEST_CASE("F61: two lowest finite masks do not make infinity, masks are joined by and") {
  const std::array<Eigen::half, 3> first{Eigen::half(-65504), Eigen::half(0), Eigen::half(0)};
  const std::array<Eigen::half, 3> second{Eigen::half(-16), Eigen::half(0), Eigen::half(0)};
  const std::array<Eigen::bfloat16, 3> lowest{std::numeric_limits<Eigen::bfloat16>::lowest(), Eigen::bfloat16(0),
                                              Eigen::bfloat16(0)};
  const posenc::mask_shape s{.queries = 1, .keys = 3};
  const posenc::contiguous_keys where{};
  const auto op = posenc::detail::make_logit_op<float>(
      std::make_tuple(posenc::additive_mask(first.data(), s), posenc::additive_mask(second.data(), s)), posenc::row{},
      where);
  CHECK(op(0.0f, 0) == -65520.0f);
  const auto truth = posenc::detail::make_lane_mask<float>(
      std::make_tuple(posenc::additive_mask(first.data(), s), posenc::additive_mask(second.data(), s)), posenc::row{},
      where);
  CHECK(truth(0));
  const auto wide = posenc::detail::make_logit_op<float>(std::make_tuple(posenc::additive_mask(lowest.data(), s)),
                                                         posenc::row{}, where);
  CHECK(std::isfinite(wide(0.0f, 0)));
  // Hidden by both masks or by one of them is hidden.
  posenc::interval_list both;
  both.intersect(posenc::sliding_window(2).allow_positions({.query_position = 5}));
  both.intersect(posenc::chunked(4).allow_positions({.query_position = 5}));
  CHECK(both.contains(5));
  CHECK(both.contains(4));
  CHECK_FALSE(both.contains(3));
}

TEST_CASE("F62: half data is masked without a sentinel") {
  // Scores of half data reach below -1e4; a hidden key has weight 0, not that of a large negative number.
  const std::vector<Eigen::half> q{Eigen::half(200)};
  const std::vector<Eigen::half> k{Eigen::half(-300), Eigen::half(-300.25f), Eigen::half(300)};
  const std::vector<Eigen::half> v{Eigen::half(1), Eigen::half(2), Eigen::half(1000)};
  std::vector<Eigen::half> out(1);
  float lse = 0;
  posenc::attention(view(q.data(), {.tokens = 1, .dim = 1}), view(k.data(), {.tokens = 3, .dim = 1}),
                    view(v.data(), {.tokens = 3, .dim = 1}), view(out.data(), {.tokens = 1, .dim = 1}),
                    posenc::causal{},
                    {.query_positions = positions::from(1), .scale = 1.0, .lse = view(&lse, {.tokens = 1, .dim = 1})});
  CHECK(static_cast<float>(out[0]) == 1.0f);
  CHECK(lse == Approx(-60000));
}

TEST_CASE("F63: softcap comes before the mask") {
  policy p = plain();
  p.softcap = 2;
  p.masks.causal = true;
  CHECK(weights_of({1, 2}, p).weights == std::vector<float>{1, 0});
  const auto cap = posenc::softcap(2).row<double>({}, posenc::contiguous_keys{});
  CHECK(cap(1.0, 0) == Approx(0.924234315).epsilon(0).margin(1e-9));
  CHECK(cap(2.0, 0) == Approx(1.523188312).epsilon(0).margin(1e-9));
}

TEST_CASE("F64: softcap works on the scaled score at its stated place") {
  const auto weight = [](const policy& p) { return static_cast<double>(weights_of({30, 2}, p).weights[1]); };
  const auto right = [](double cap) {
    const auto capped = [cap](double s) { return cap == 0 ? s : cap * std::tanh(s / cap); };
    return 1 / (1 + std::exp(capped(15.0) - capped(1.0)));
  };
  for (const double cap : {0.0, 5.0, 50.0}) {
    policy p = plain();
    p.softcap = cap;
    p.logit_scale = 0.5;
    CHECK(weight(p) == Approx(right(cap)).epsilon(1e-5));
  }
  CHECK(right(0) != Approx(right(5)));
  CHECK(right(0) != Approx(right(50)));
  CHECK_THROWS_AS(posenc::softcap(-1), std::invalid_argument);
  // Before and after a bias are two policies.
  const posenc::alibi<double> alibi(std::vector<double>{1.0});
  const auto value = [](const auto& pack) {
    return posenc::detail::make_logit_op<double>(pack.parts, {.query_position = 3}, posenc::contiguous_keys{})(8.0, 0);
  };
  CHECK(value(posenc::compose(posenc::softcap(5), alibi)) == Approx(5 * std::tanh(1.6) - 3));
  CHECK(value(posenc::compose(alibi, posenc::softcap(5))) == Approx(5 * std::tanh(1.0)));
}

TEST_CASE("F65: kept keys stand at their own positions or at their places in the cache, as the caller says") {
  const policy p{.bias = posenc::alibi<float>(std::vector<float>{0.5f})};
  const list kept{0, 7, 8, 9};
  const list places{0, 1, 2, 3};
  const auto ratio = [&](const list& ids, std::int64_t query) {
    const result r = weights_of({0, 0, 0, 0}, p, 1,
                                {.query_positions = positions::from(query), .key_positions = positions::listed(ids)});
    return std::log(static_cast<double>(r.weights[3] / r.weights[0]));
  };
  CHECK(ratio(kept, 9) == Approx(0.5 * 9).epsilon(1e-5));
  CHECK(ratio(places, 3) == Approx(0.5 * 3).epsilon(1e-5));
}

TEST_CASE("F66: scores that half can not hold are float throughout") {
  const std::vector<Eigen::half> q(128, Eigen::half(256));
  std::vector<Eigen::half> k(256, Eigen::half(256));
  k[255] = Eigen::half(255);
  const std::vector<Eigen::half> v{Eigen::half(1), Eigen::half(3)};
  Eigen::half out;
  float lse = 0;
  posenc::attention(view(q.data(), {.tokens = 1, .dim = 128}), view(k.data(), {.tokens = 2, .dim = 128}),
                    view(v.data(), {.tokens = 2, .dim = 1}), view(&out, {.tokens = 1, .dim = 1}), posenc::causal{},
                    {.query_positions = positions::from(1), .lse = view(&lse, {.tokens = 1, .dim = 1})});
  CHECK(lse == Approx(741455.2002).epsilon(1e-6));
  CHECK(static_cast<float>(out) == 1.0f);
}

TEST_CASE("F67: weights over legal keys sum to one, and +inf appears nowhere") {
  policy p = plain();
  p.masks.window = posenc::sliding_window(4);
  std::vector<float> scores(12);
  for (std::size_t i = 0; i < 12; ++i) scores[i] = static_cast<float>((i * 5) % 7) - 3;
  const result r = weights_of(scores, p, 12);
  for (std::size_t i = 0; i < 12; ++i) {
    double total = 0;
    for (std::size_t j = 0; j < 12; ++j) {
      const float w = r.weights[i * 12 + j];
      CHECK(std::isfinite(w));
      CHECK((w > 0) == (j <= i && j + 4 > i));
      total += static_cast<double>(w);
    }
    CHECK(total == Approx(1).epsilon(1e-6));
    CHECK(std::isfinite(r.lse[i]));
  }
}

TEST_CASE("F68: subnormal weights are right with and without flush-to-zero, and the mode is the caller's") {
  const std::vector<float> scores{0, -88, -100, -104};
  const std::array<double, 4> right{1, 6.0546e-39, 3.78e-44, 0};
  const auto check = [&] {
    const std::vector<float> found = weights_of(scores, plain()).weights;
    for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(static_cast<double>(found[i]) - right[i]) <= 1e-30);
  };
  check();
#if defined(__SSE2__)
  const unsigned before = _mm_getcsr();
  const auto mode = [](unsigned m) { return m & ~0x3fu; };  // without the sticky flags
  check();
  CHECK(mode(_mm_getcsr()) == mode(before));
  _mm_setcsr(before | 0x8040u);  // flush to zero, denormals are zero
  const std::vector<float> flushed = weights_of(scores, plain()).weights;
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK(mode(after) == mode(before | 0x8040u));
  for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(static_cast<double>(flushed[i]) - right[i]) <= 1e-30);
#endif
}
