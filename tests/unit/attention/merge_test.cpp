// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/merge.hpp>

#include "support/catch.hpp"
#include "support/tolerance.hpp"
#include "unit/attention/tensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace {

using namespace posenc_test;

constexpr posenc::shape extents{2, 3, 4, 70};
constexpr posenc::shape rows{2, 3, 4, 1};

/// The formula in long double, over what is stored.
template <class P, class M>
struct exact {
  std::vector<long double> out, lse;
  exact(const std::vector<stored<P>>& outs, const std::vector<stored<M>>& lses)
      : out(outs[0].data.size()), lse(lses[0].data.size()) {
    const std::size_t dim = outs[0].data.size() / lse.size();
    for (std::size_t r = 0; r < lse.size(); ++r) {
      long double highest = -INFINITY;
      for (const auto& l : lses) highest = std::max(highest, static_cast<long double>(l.data[r]));
      long double total = 0;
      for (const auto& l : lses) total += std::exp(static_cast<long double>(l.data[r]) - highest);
      lse[r] = highest + std::log(total);
      for (std::size_t p = 0; p < outs.size(); ++p)
        for (std::size_t d = 0; d < dim; ++d)
          out[r * dim + d] += std::exp(static_cast<long double>(lses[p].data[r]) - highest) / total *
                              static_cast<long double>(posenc::widen(outs[p].data[r * dim + d]));
    }
  }
};

template <class P, class M>
struct parts {
  std::vector<stored<P>> out;
  std::vector<stored<M>> lse;
  parts(std::size_t n, unsigned seed, double spread = 4) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < n; ++i) {
      out.push_back(random_stored<P>(random, extents));
      lse.push_back(random_stored<M>(random, rows, spread));
    }
  }
  [[nodiscard]] std::vector<posenc::attention_part<P, M>> views() const {
    std::vector<posenc::attention_part<P, M>> all;
    for (std::size_t i = 0; i < out.size(); ++i) all.push_back({out[i].read(), lse[i].read()});
    return all;
  }
};

/// Merges at once through a span of parts.
template <class P, class M, class O, class L>
void merge_all(const std::vector<posenc::attention_part<P, M>>& all, stored<O>& out, stored<L>& lse) {
  posenc::merge(std::span<const posenc::attention_part<P, M>>(all), out.view(), lse.view());
}

template <class T>
double ulps(const std::vector<T>& found, const std::vector<long double>& expected) {
  worst w;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto x = posenc::widen(found[i]);
    w.see(std::fabs(static_cast<long double>(x) - expected[i]) / ulp<T>(expected[i]), static_cast<long double>(i));
  }
  return static_cast<double>(w.error);
}

/// Half a step, and for 16-bit storage the rounding to float before: 2^-13 of a step of half.
template <class P>
constexpr double once = sizeof(P) == 2 ? 0.5002 : 0.5001;

template <class P, class M>
void check_pair() {
  const parts<P, M> given(2, 7);
  const exact<P, M> expected(given.out, given.lse);
  stored<P> out = given.out[0];
  stored<M> lse = given.lse[0];
  posenc::merge(out.view(), lse.view(), given.out[1].read(), given.lse[1].read());
  CHECK(ulps(out.data, expected.out) <= once<P>);
  if constexpr (sizeof(M) == sizeof(float)) {
    CHECK(ulps(lse.data, expected.lse) <= 0.5001);
  } else {  // the sum is formed in double too
    worst w;
    for (std::size_t i = 0; i < lse.data.size(); ++i)
      w.see(std::fabs(static_cast<long double>(lse.data[i]) - expected.lse[i]));
    CHECK(w.error <= 4 * 0x1p-52L);
  }
}

}  // namespace

TEST_CASE("merge: two parts are the formula, rounded once, in every storage") {
  check_pair<float, float>();
  check_pair<Eigen::half, float>();
  check_pair<Eigen::bfloat16, float>();
  check_pair<float, double>();
}

TEST_CASE("merge: two parts of doubles are within 4 ulp of what their size allows") {
  const parts<double, double> given(2, 8);
  const exact<double, double> expected(given.out, given.lse);
  stored<double> out = given.out[0];
  stored<double> lse = given.lse[0];
  posenc::merge(out.view(), lse.view(), given.out[1].read(), given.lse[1].read());
  worst w;
  for (std::size_t i = 0; i < out.data.size(); ++i)
    w.see(std::fabs(static_cast<long double>(out.data[i]) - expected.out[i]));
  INFO(w);
  CHECK(w.error <= 4 * 0x1p-53L);
}

TEST_CASE("merge: a part may have a storage of its own") {
  const parts<float, float> a(1, 9);
  const parts<Eigen::bfloat16, double> b(1, 10);
  stored<float> out = a.out[0];
  stored<float> lse = a.lse[0];
  posenc::merge(out.view(), lse.view(), b.out[0].read(), b.lse[0].read());
  // The same with everything widened beforehand.
  stored<float> wide(extents);
  for (std::size_t i = 0; i < wide.data.size(); ++i) wide.data[i] = posenc::widen(b.out[0].data[i]);
  stored<double> out_again(extents), lse_again(rows), lse_a(rows);
  std::copy(a.out[0].data.begin(), a.out[0].data.end(), out_again.data.begin());
  std::copy(a.lse[0].data.begin(), a.lse[0].data.end(), lse_a.data.begin());
  posenc::merge(out_again.view(), lse_a.view(), wide.read(), b.lse[0].read());
  for (std::size_t i = 0; i < out.data.size(); ++i) CHECK(out.data[i] == static_cast<float>(out_again.data[i]));
  for (std::size_t i = 0; i < lse.data.size(); ++i) CHECK(lse.data[i] == static_cast<float>(lse_a.data[i]));
}

TEST_CASE("merge: any strides") {
  const parts<float, float> given(2, 11);
  stored<float> packed = given.out[0];
  stored<float> packed_lse = given.lse[0];
  posenc::merge(packed.view(), packed_lse.view(), given.out[1].read(), given.lse[1].read());

  const auto channels = posenc::strides{.batch = 12, .token = 4, .head = 1, .dim = 24};
  std::vector<float> out(packed.data.size()), lse(packed_lse.data.size());
  const posenc::view<float> a(out.data(), extents, channels);
  const posenc::view<float> l(lse.data() + lse.size() - 1, rows, {.batch = -12, .token = -4, .head = -1});
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t t = 0; t < 3; ++t)
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t d = 0; d < 70; ++d) a(b, t, h, d) = given.out[0].read()(b, t, h, d);
        l(b, t, h, 0) = given.lse[0].read()(b, t, h, 0);
      }
  posenc::merge(a, l, given.out[1].read(), given.lse[1].read());
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t t = 0; t < 3; ++t)
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t d = 0; d < 70; ++d) REQUIRE(a(b, t, h, d) == packed(b, t, h, d));
        REQUIRE(l(b, t, h, 0) == packed_lse(b, t, h, 0));
      }
}

TEST_CASE("merge: rows without keys, NaN, and weights of nothing") {
  parts<float, float> given(2, 12);
  auto& a = given.out[0];
  auto& b = given.out[1];
  auto& la = given.lse[0];
  auto& lb = given.lse[1];
  la(0, 0, 0, 0) = -inf_f;  // b alone, signs of zero kept
  b(0, 0, 0, 0) = -0.0f;
  a(0, 0, 0, 1) = nan_f;
  lb(0, 0, 1, 0) = -inf_f;  // a alone, whatever lies in b
  b(0, 0, 1, 3) = nan_f;
  a(0, 0, 1, 4) = -0.0f;
  la(0, 0, 2, 0) = lb(0, 0, 2, 0) = -inf_f;  // neither
  a(0, 0, 2, 5) = nan_f;
  la(0, 0, 3, 0) = nan_f;  // that row
  b(0, 1, 0, 6) = nan_f;   // that channel
  la(0, 1, 1, 0) = 60;     // b weighs e^-110, nothing in float
  lb(0, 1, 1, 0) = -50;
  b(0, 1, 1, 7) = inf_f;
  lb(0, 1, 2, 0) = inf_f;  // no softmax has a weight for it

  const auto whole = [&](auto merge) {
    stored<float> out = a;
    stored<float> lse = la;
    merge(out, lse);
    for (std::int64_t d = 0; d < 70; ++d) {
      INFO("channel " << d);
      CHECK(same_bits(out(0, 0, 0, d), b(0, 0, 0, d)));
      CHECK(same_bits(out(0, 0, 1, d), a(0, 0, 1, d)));
      CHECK(same_bits(out(0, 0, 2, d), 0.0f));
      CHECK(std::isnan(out(0, 0, 3, d)));
      CHECK(std::isnan(out(0, 1, 0, d)) == (d == 6));
      CHECK(same_bits(out(0, 1, 1, d), a(0, 1, 1, d)));
      CHECK(std::isnan(out(0, 1, 2, d)));
    }
    CHECK(same_bits(lse(0, 0, 0, 0), lb(0, 0, 0, 0)));
    CHECK(same_bits(lse(0, 0, 1, 0), la(0, 0, 1, 0)));
    CHECK(lse(0, 0, 2, 0) == -inf_f);
    CHECK(std::isnan(lse(0, 0, 3, 0)));
    CHECK(std::isfinite(lse(0, 1, 0, 0)));
    CHECK(lse(0, 1, 1, 0) == 60);
    CHECK(std::isnan(lse(0, 1, 2, 0)));
    for (std::int64_t h = 0; h < 4; ++h) CHECK(std::isfinite(lse(1, 2, h, 0)));
  };
  SECTION("in place") {
    whole([&](auto& out, auto& lse) { posenc::merge(out.view(), lse.view(), b.read(), lb.read()); });
  }
  SECTION("at once") {
    whole([&](auto& out, auto& lse) { merge_all(given.views(), out, lse); });
  }
  SECTION("at once, in the other order") {
    auto views = given.views();
    std::swap(views[0], views[1]);
    whole([&](auto& out, auto& lse) { merge_all(views, out, lse); });
  }
}

TEST_CASE("merge: an empty row beside a lse of -0 keeps its sign") {
  stored<float> a({1, 1, 1, 1}, 1), b({1, 1, 1, 1}, 2);
  stored<float> la({1, 1, 1, 1}, -0.0), lb({1, 1, 1, 1}, -std::numeric_limits<double>::infinity());
  posenc::merge(a.view(), la.view(), b.read(), lb.read());
  CHECK(same_bits(la.data[0], -0.0f));
  posenc::merge(b.view(), lb.view(), a.read(), la.read());
  CHECK(same_bits(lb.data[0], -0.0f));
  CHECK(b.data[0] == 1);
}

TEST_CASE("merge: at once is one rounding for any number of parts, a fold rounds at every step") {
  const parts<Eigen::half, float> given(16, 13);
  const exact<Eigen::half, float> expected(given.out, given.lse);
  stored<Eigen::half> out(extents);
  stored<float> lse(rows);
  merge_all(given.views(), out, lse);
  const double at_once = ulps(out.data, expected.out);
  CHECK(at_once <= once<Eigen::half>);
  CHECK(ulps(lse.data, expected.lse) <= 0.5001);

  stored<Eigen::half> folded = given.out[0];
  stored<float> folded_lse = given.lse[0];
  for (std::size_t p = 1; p < given.out.size(); ++p)
    posenc::merge(folded.view(), folded_lse.view(), given.out[p].read(), given.lse[p].read());
  CHECK(ulps(folded.data, expected.out) > 2 * at_once);
  // A fold of 16 parts: 15 roundings of values of at most 1.
  worst w;
  for (std::size_t i = 0; i < out.data.size(); ++i)
    w.see(std::fabs(static_cast<long double>(posenc::widen(folded.data[i])) - expected.out[i]));
  INFO(w);
  CHECK(w.error <= 15 * 0x1p-12L);
}

TEST_CASE("merge: at once the order of the parts moves no bit of a float here, in a fold it does") {
  const parts<float, float> given(9, 14);
  const auto views = given.views();
  stored<float> out(extents), lse(rows), other(extents), other_lse(rows);
  merge_all(views, out, lse);
  stored<float> folded(extents), folded_lse(rows);
  const auto fold = [&](const std::vector<std::size_t>& order) {
    stored<float> sum = given.out[order[0]];
    stored<float> sum_lse = given.lse[order[0]];
    for (std::size_t p = 1; p < order.size(); ++p)
      posenc::merge(sum.view(), sum_lse.view(), given.out[order[p]].read(), given.lse[order[p]].read());
    return sum.data;
  };
  std::vector<std::size_t> order(9);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto first_fold = fold(order);
  std::mt19937 random(15);
  int fold_differs = 0;
  for (int round = 0; round < 10; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<posenc::attention_part<float, float>> shuffled;
    for (const std::size_t p : order) shuffled.push_back(views[p]);
    merge_all(shuffled, other, other_lse);
    CHECK(same_bits(out.data.data(), other.data.data(), out.data.size()));
    CHECK(same_bits(lse.data.data(), other_lse.data.data(), lse.data.size()));
    const auto again = fold(order);
    fold_differs += !same_bits(first_fold.data(), again.data(), again.size());
  }
  CHECK(fold_differs == 10);
}

TEST_CASE("merge: one part is itself, none is a row without keys") {
  const parts<float, float> given(1, 16);
  stored<float> out(extents, 5), lse(rows, 5);
  merge_all(given.views(), out, lse);
  CHECK(same_bits(out.data.data(), given.out[0].data.data(), out.data.size()));
  CHECK(same_bits(lse.data.data(), given.lse[0].data.data(), lse.data.size()));
  merge_all(std::vector<posenc::attention_part<float, float>>{}, out, lse);
  CHECK(out.data == std::vector<float>(out.data.size(), 0));
  CHECK(lse.data == std::vector<float>(lse.data.size(), -inf_f));
}

TEST_CASE("merge: what does not fit is refused before anything is written") {
  parts<float, float> given(2, 17);
  auto& a = given.out[0];
  auto& la = given.lse[0];
  const auto before = a.data;
  stored<float> narrow_out({2, 3, 4, 69}), wide_lse({2, 3, 4, 2}), few({2, 3, 3, 70});
  const auto refused = [&](const auto& call, const char* text) {
    CHECK_THROWS_WITH(call(), text);
    CHECK(a.data == before);
  };
  refused([&] { posenc::merge(a.view(), la.view(), narrow_out.read(), given.lse[1].read()); },
          "posenc::merge: b must have the shape of the result, here the dim, got 69");
  refused([&] { posenc::merge(a.view(), wide_lse.view(), given.out[1].read(), given.lse[1].read()); },
          "posenc::merge: a must have an lse of the shape [batch, query, head, 1], here the dim, got 2");
  refused([&] { posenc::merge(a.view(), la.view(), a.read(), given.lse[1].read()); },
          "posenc::merge: out must not overlap what is read to the end, got out_b");
  refused([&] { posenc::merge(a.view(), la.view(), given.out[1].read(), la.read()); },
          "posenc::merge: out must not overlap what is read to the end, got lse_b");
  const posenc::view<float> repeated(a.data.data(), extents, {.batch = 0, .token = 0, .head = 0});
  refused([&] { posenc::merge(repeated, la.view(), given.out[1].read(), given.lse[1].read()); },
          "posenc::merge: out must not repeat elements through a stride of 0, got a stride of 0");
  const posenc::view<float> inside(a.data.data(), rows);
  refused([&] { posenc::merge(a.view(), inside, given.out[1].read(), given.lse[1].read()); },
          "posenc::merge: lse must not overlap out, got overlapping memory");
  auto views = given.views();
  refused([&] { merge_all(views, a, la); }, "posenc::merge: out must not overlap what is read to the end, got a part");
  views[1].out = few.read();
  stored<float> out(extents), lse(rows);
  CHECK_THROWS_AS(merge_all(views, out, lse), std::invalid_argument);
}

TEST_CASE("a merged half is rounded once, whatever the stride of the result") {
  constexpr posenc::shape many{1, 400, 8, 128};
  constexpr posenc::shape one{1, 400, 8, 1};
  std::mt19937 random(2);
  const auto a = random_stored<float>(random, many), b = random_stored<float>(random, many);
  const auto lse_a = random_stored<float>(random, one), lse_b = random_stored<float>(random, one);
  const std::array<posenc::attention_part<float>, 2> both{{{a.read(), lse_a.read()}, {b.read(), lse_b.read()}}};
  stored<Eigen::half> packed(many), apart({1, 400, 8, 256});
  stored<float> lse(one);
  const posenc::view<Eigen::half> every_second(apart.data.data(), many, {.token = 8 * 256, .head = 256, .dim = 2});
  posenc::merge(std::span<const posenc::attention_part<float>>(both), packed.view(), lse.view());
  posenc::merge(std::span<const posenc::attention_part<float>>(both), every_second, lse.view());
  int different = 0;
  for (std::size_t i = 0; i < packed.data.size(); ++i)
    different += static_cast<float>(packed.data[i]) != static_cast<float>(apart.data[2 * i]);
  CHECK(different == 0);
}
