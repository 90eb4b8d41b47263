// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>
#include <posenc/attention/qk_norm.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/rope.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

namespace {

using namespace posenc_test;

std::vector<float> gains(std::size_t n, float first) {
  std::vector<float> g(n);
  for (std::size_t i = 0; i < n; ++i) g[i] = first + 0.125f * static_cast<float>(i % 7);
  return g;
}

/// gain x / sqrt(mean x^2 + eps), written anew.
template <class T>
std::vector<double> normed(const stored<T>& x, double eps, const std::vector<float>& gain) {
  const auto dim = static_cast<std::size_t>(x.extents.dim);
  std::vector<double> out;
  for (std::size_t row = 0; row < x.data.size(); row += dim) {
    double squares = 0;
    for (std::size_t i = 0; i < dim; ++i) squares += std::pow(static_cast<double>(posenc::widen(x.data[row + i])), 2);
    for (std::size_t i = 0; i < dim; ++i)
      out.push_back(static_cast<double>(posenc::widen(x.data[row + i])) /
                    std::sqrt(squares / static_cast<double>(dim) + eps) *
                    (gain.empty() ? 1.0 : static_cast<double>(gain[i])));
  }
  return out;
}
template <class T>
double largest_difference(const stored<T>& got, const std::vector<double>& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(posenc::widen(got.data[i])) - expected[i]));
  return worst;
}

struct fixture {
  stored<float> q;
  stored<float> k;
  stored<float> v;
  posenc::qk_norm norm{.eps = 1e-5, .q_gain = gains(16, 0.5f), .k_gain = gains(16, -0.25f)};
  posenc::rope<float> rope{{.head_dim = 16}};
  fixture() {
    std::mt19937 random(31);
    q = random_stored<float>(random, {2, 3, 4, 16}, 2);
    k = random_stored<float>(random, {2, 9, 2, 16}, 5);
    v = random_stored<float>(random, {2, 9, 2, 16});
  }
  template <class Policy>
  std::vector<float> run(const Policy& policy, posenc::key_state keys = posenc::key_state::unrotated) {
    return run(policy, q, k, keys);
  }
  template <class Policy>
  std::vector<float> run(const Policy& policy, stored<float> queries, stored<float> cached, posenc::key_state keys) {
    stored<float> out({2, 3, 4, 16}, 9);
    posenc::attention(queries.view(), cached.view(), v.view(), out.view(), policy,
                      {.query_positions = posenc::positions::from(6), .keys = keys});
    return out.data;
  }
};

double apart(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(a[i] - b[i])));
  return worst;
}

}  // namespace

TEST_CASE("the norm of views: every storage, strides, with and without gain") {
  std::mt19937 random(5);
  for (const std::int64_t dim : {1, 5, 16, 80}) {
    const auto g = gains(static_cast<std::size_t>(dim), 0.5f);
    const posenc::qk_norm n{.eps = 1e-3, .q_gain = g};
    auto x = random_stored<float>(random, {2, 3, 2, dim}, 4);
    auto expected = normed(x, 1e-3, g);
    auto plain = normed(x, 1e-3, {});
    auto y = x;
    n.normalize_q(x.view());
    CHECK(largest_difference(x, expected) < 2e-6);
    n.normalize_k(y.view());
    CHECK(largest_difference(y, plain) < 2e-6);

    auto d = random_stored<double>(random, {1, 2, 3, dim}, 4);
    expected = normed(d, 1e-3, g);
    n.normalize_q(d.view());
    CHECK(largest_difference(d, expected) < 1e-14);

    auto h = random_stored<Eigen::half>(random, {1, 2, 3, dim}, 4);
    expected = normed(h, 1e-3, g);
    n.normalize_q(h.view());
    CHECK(largest_difference(h, expected) < 4e-3);

    // Channels two apart; what lies between stays.
    std::vector<float> memory(static_cast<std::size_t>(2 * dim), 7);
    stored<float> row({1, 1, 1, dim});
    for (std::int64_t i = 0; i < dim; ++i)
      memory[static_cast<std::size_t>(2 * i)] = row.data[static_cast<std::size_t>(i)] = static_cast<float>(i) - 2.5f;
    expected = normed(row, 1e-3, g);
    n.normalize_q(posenc::view{memory.data(), {.tokens = 1, .dim = dim}, {.token = 2 * dim, .dim = 2}});
    for (std::int64_t i = 0; i < dim; ++i) {
      CHECK(double(memory[static_cast<std::size_t>(2 * i)]) ==
            Approx(expected[static_cast<std::size_t>(i)]).epsilon(0).margin(2e-6));
      CHECK(memory[static_cast<std::size_t>(2 * i + 1)] == 7);
    }
  }
}

TEST_CASE("a row of zeros stays one, and the root mean square of any other becomes 1") {
  std::vector<float> x(8, 0.0f);
  const posenc::qk_norm n{.eps = 1e-6};
  n.normalize_q(posenc::view{x.data(), {.tokens = 1, .dim = 8}});
  CHECK(x == std::vector<float>(8, 0.0f));
  x.assign(8, -300.0f);
  n.normalize_k(posenc::view{x.data(), {.tokens = 1, .dim = 8}});
  for (const float e : x) CHECK(e == Approx(-1).epsilon(1e-6));
}

TEST_CASE("gains of Gemma are stored less 1") {
  CHECK(posenc::one_plus(std::vector<float>{-1, 0, 0.5f}) == std::vector<float>{0, 1, 1.5f});
}

TEST_CASE("the place in the pack is the order: before and after the rotation") {
  fixture f;
  // What attention has to do, step by step on copies.
  const auto by_hand = [&](bool before) {
    auto q = f.q;
    auto k = f.k;
    const auto norm = [&] {
      f.norm.normalize_q(q.view());
      f.norm.normalize_k(k.view());
    };
    const auto turn = [&] {
      f.rope.rotate(q.view(), posenc::positions::from(6));
      f.rope.rotate(k.view());
    };
    if (before) norm();
    turn();
    if (!before) norm();
    return f.run(posenc::compose(posenc::causal{}), q, k, posenc::key_state::rotated);
  };
  const auto before = f.run(posenc::compose(f.norm, f.rope, posenc::causal{}));
  const auto after = f.run(posenc::compose(f.rope, f.norm, posenc::causal{}));
  CHECK(apart(before, by_hand(true)) < 1e-6);
  CHECK(apart(after, by_hand(false)) < 1e-6);
  CHECK(apart(before, after) > 1e-2);

  // Without gain the two orders agree, the rotation keeping lengths.
  f.norm.q_gain.clear();
  f.norm.k_gain.clear();
  CHECK(apart(f.run(posenc::compose(f.norm, f.rope, posenc::causal{})),
              f.run(posenc::compose(f.rope, f.norm, posenc::causal{}))) < 1e-6);
}

TEST_CASE("a run-time policy norms in its order, in attention and on the way into a cache") {
  fixture f;
  for (const bool after : {false, true}) {
    posenc::run_time_policy<> p{.normalization = f.norm, .normalize_after_rotation = after, .rotation = f.rope};
    p.masks.causal = true;
    const auto unrotated = f.run(p);
    CHECK(unrotated == (after ? f.run(posenc::compose(f.rope, f.norm, posenc::causal{}))
                              : f.run(posenc::compose(f.norm, f.rope, posenc::causal{}))));
    auto cached = f.k;
    p.rotate(cached.view());
    CHECK(apart(unrotated, f.run(p, f.q, cached, posenc::key_state::rotated)) < 1e-6);
    auto same = f.k;
    if (after) {
      posenc::rotate(posenc::compose(f.rope, f.norm, posenc::causal{}), same.view());
    } else {
      posenc::rotate(posenc::compose(f.norm, f.rope, posenc::causal{}), same.view());
    }
    CHECK(cached.data == same.data);
  }
}

TEST_CASE("keys that were scaled after the rotation cannot be shifted") {
  fixture f;
  posenc::run_time_policy<> p{.normalization = f.norm, .rotation = f.rope};
  auto moved = f.k;
  auto direct = f.k;
  p.rotate(moved.view());
  p.shift(moved.view(), 5);
  p.rotate(direct.view(), posenc::positions::from(5));
  CHECK(apart(moved.data, direct.data) < 2e-6);
  p.normalize_after_rotation = true;
  CHECK_THROWS_WITH(p.shift(moved.view(), 5), contains("must not scale channels after the rotation"));
  p.normalization->k_gain.clear();
  CHECK_NOTHROW(p.shift(moved.view(), 5));
}

TEST_CASE("one norm over all heads of a token") {
  std::mt19937 random(8);
  auto x = random_stored<float>(random, {1, 2, 3, 4}, 3);
  const auto gain = gains(12, 1);
  stored<float> flat({1, 2, 1, 12});
  flat.data = x.data;
  const auto expected = normed(flat, 1e-6, gain);
  posenc::normalize_jointly(x.view(), 1e-6, gain);
  CHECK(largest_difference(x, expected) < 2e-6);
  CHECK_THROWS_WITH(posenc::normalize_jointly(x.view(), 1e-6, std::vector<float>(4)),
                    contains("gain must list one gain per channel of every head, got 4"));
}

TEST_CASE("norms that do not fit are refused") {
  fixture f;
  const auto refused = [&](const posenc::qk_norm& n, const std::string& words) {
    CHECK_THROWS_WITH(f.run(posenc::compose(n, f.rope)), contains(words));
  };
  refused({.eps = 0}, "posenc::qk_norm: eps must be finite and at least 1e-37, got 0");
  refused({.q_gain = {1, 2}}, "posenc::qk_norm: q_gain must list one gain per channel of a head, got 2");
  refused({.k_gain = {1, 2}}, "posenc::qk_norm: k_gain must list one gain per channel of a head, got 2");
  CHECK_THROWS_WITH(f.run(posenc::run_time_policy<>{.normalization = posenc::qk_norm{.eps = -1}}), contains("eps"));
  auto x = f.q;
  CHECK_THROWS_WITH(posenc::qk_norm{.q_gain = std::vector<float>(3)}.normalize_q(x.view()), contains("q_gain"));
  const posenc::view repeated{x.data.data(), {.tokens = 2, .dim = 16}, {.token = 0}};
  CHECK_THROWS_WITH(posenc::qk_norm{}.normalize_q(repeated), contains("stride of 0"));
}

TEST_CASE("masks by position need an order by index where positions have several axes") {
  fixture f;
  // Two text tokens, an image of 2 x 2 at time 2, text again; queries are the last three tokens.
  const std::vector<std::int64_t> keys{0, 1, 2, 2, 2, 2, 4, 5, 6, 0, 1, 2, 2, 3, 3, 4, 5, 6, 0, 1, 2, 3, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> queries{2, 4, 5, 3, 4, 5, 2, 4, 5};
  posenc::run_time_policy<> p;
  p.rotation = posenc::rope<float>({.head_dim = 16, .axes = posenc::rope_axes::chunked({2, 3, 3})});
  p.masks.causal = true;
  stored<float> out({2, 3, 4, 16});
  const auto run = [&] {
    posenc::attention(f.q.view(), f.k.view(), f.v.view(), out.view(), p,
                      {.query_positions = posenc::positions::axes(queries, 3),
                       .key_positions = posenc::positions::axes(keys, 3),
                       .keys = posenc::key_state::unrotated});
  };
  CHECK_THROWS_WITH(run(), contains("masks.order must be given (causal_by_index)"));
  // So do windows on both sides.
  posenc::run_time_policy<> window;
  window.rotation = p.rotation;
  window.masks.both_sides = posenc::symmetric_window(1);
  CHECK_THROWS_WITH(posenc::attention(f.q.view(), f.k.view(), f.v.view(), out.view(), window,
                                      {.query_positions = posenc::positions::axes(queries, 3),
                                       .key_positions = posenc::positions::axes(keys, 3)}),
                    contains("masks.order must be given (causal_by_index)"));
  p.masks.order = posenc::causal_by_index{7};
  CHECK_THROWS_WITH(run(), contains("past must lie in 0..keys - queries of the call, got 7"));
  // The first query is token 4, a corner of the image: it sees tokens 0 .. 4, not the rest of the image.
  p.masks.order = posenc::causal_by_index{4};
  run();
  const auto whole = out.data;
  for (std::int64_t t = 5; t < 9; ++t)
    for (std::int64_t d = 0; d < 16; ++d) f.v(0, t, 0, d) = 100;
  run();
  for (std::int64_t d = 0; d < 16; ++d) CHECK(out(0, 0, 0, d) == whole[static_cast<std::size_t>(d)]);
  // Static packs obey the same rule.
  const auto by_run_time = out.data;
  const auto pack = [&](const auto& policy) {
    posenc::attention(f.q.view(), f.k.view(), f.v.view(), out.view(), policy,
                      {.query_positions = posenc::positions::axes(queries, 3),
                       .key_positions = posenc::positions::axes(keys, 3),
                       .keys = posenc::key_state::unrotated});
  };
  CHECK_THROWS_WITH(pack(posenc::compose(*p.rotation, posenc::causal{})),
                    contains("must have one axis where a mask goes by position, unless causal_by_index orders"));
  pack(posenc::compose(*p.rotation, posenc::causal{}, posenc::causal_by_index{4}));
  CHECK(out.data == by_run_time);
  posenc::run_time_policy<> flat;
  CHECK_THROWS_WITH(posenc::attention(f.q.view(), f.k.view(), f.v.view(), out.view(), flat,
                                      {.query_positions = posenc::positions::axes(queries, 3),
                                       .key_positions = posenc::positions::axes(keys, 3)}),
                    contains("positions must have one axis where there is no rotation, got 3"));
}

TEST_CASE("the logarithm of the length scales queries beyond it") {
  const posenc::log_length_scale s{8192};
  CHECK(s.query_scale(0, {8191}, 0) == 1);
  CHECK(s.query_scale(0, {-1}, 0) == 1);
  CHECK(s.query_scale(0, {16383}, 0) == Approx(std::log(16384.0) / std::log(8192.0)).epsilon(1e-15));
  fixture f;
  posenc::run_time_policy<> p;
  p.length_scale = posenc::log_length_scale{3};
  posenc::run_time_policy<> by_hand;
  by_hand.logit_scale = std::log(7.0) / std::log(3.0);
  const auto a = f.run(p);
  const auto b = f.run(by_hand);
  for (std::size_t i = 0; i < 64; ++i) CHECK(a[i] == b[i]);  // the row of position 6
  p.length_scale = posenc::log_length_scale{1};
  CHECK_THROWS_WITH(f.run(p), contains("length must be at least 2"));
}
