// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

namespace {

using namespace posenc_test;

double capped(double cap, double s) { return posenc::softcap(cap).row<double>({}, posenc::contiguous_keys{})(s, 0); }

}  // namespace

TEST_CASE("softcap is c tanh(s / c), and 0 is off") {
  CHECK(capped(2, 1) == Approx(2 * std::tanh(0.5)));
  CHECK(capped(50, -300) == Approx(-50 * std::tanh(6.0)));
  CHECK(capped(0, 123.5) == 123.5);
  CHECK(capped(0, -1e30) == -1e30);
  CHECK(capped(5, 0) == 0);
  using posenc_test::contains;
  CHECK_THROWS_WITH(posenc::softcap(-1),
                    contains("posenc::softcap: cap must be finite and not negative (0 is off), got -1"));
  CHECK_THROWS_AS(posenc::softcap(std::numeric_limits<double>::infinity()), std::invalid_argument);
  CHECK_THROWS_AS(posenc::softcap(std::numeric_limits<double>::quiet_NaN()), std::invalid_argument);
}

TEST_CASE("the lanes of softcap agree with the scalar form") {
  using B = posenc::simd::batch<float>;
  const auto op = posenc::softcap(3).row<B>({}, posenc::contiguous_keys{});
  for (float s = -40; s <= 40; s += 0.37f) {
    float lane[posenc::lanes<B>::size];
    posenc::lanes<B>::store(lane, op(B(s), 0));
    for (const float x : lane) REQUIRE(x == Approx(capped(3, static_cast<double>(s))).epsilon(1e-6));
  }
}

TEST_CASE("logit_scale is one factor for all heads or one per head") {
  const posenc::logit_scale one(0.5);
  const posenc::logit_scale each(std::vector<double>{1, 2, 3});
  CHECK(one.query_scale(7, {}, 0) == 0.5);
  CHECK(each.query_scale(2, {}, 0) == 3);
  CHECK_THROWS_AS(posenc::logit_scale(std::vector<double>{}), std::invalid_argument);
  CHECK_NOTHROW(each.check({.heads = 3}));
  CHECK_NOTHROW(one.check({.heads = 3}));
  CHECK_THROWS_AS(each.check({.heads = 4}), std::invalid_argument);
}

TEST_CASE("query_temperature is one below its first step and grows with the logarithm") {
  // Llama 4: 1 + 0.1 ln(1 + floor((p + 1) / 8192)).
  const posenc::query_temperature llama{};
  const auto at = [](const posenc::query_temperature& t, std::int64_t p) { return t.query_scale(0, {p}, 0); };
  CHECK(at(llama, 0) == 1);
  CHECK(at(llama, 8190) == 1);
  CHECK(at(llama, 8191) == Approx(1 + 0.1 * std::log(2.0)).epsilon(1e-15));
  CHECK(at(llama, 16382) == at(llama, 8191));
  CHECK(at(llama, 16383) == Approx(1 + 0.1 * std::log(3.0)).epsilon(1e-15));
  CHECK(at(llama, 1000000000) == Approx(1 + 0.1 * std::log(1 + std::floor(1000000001.0 / 8192))).epsilon(1e-15));
  CHECK(at(llama, -1) == 1);
  CHECK(at(llama, -100000) == 1);
  const posenc::query_temperature ministral{.scale = 0.1, .floor_scale = 16384, .position_offset = 0};
  CHECK(at(ministral, 16383) == 1);
  CHECK(at(ministral, 16384) == Approx(1 + 0.1 * std::log(2.0)).epsilon(1e-15));
  CHECK_THROWS_AS((posenc::query_temperature{.floor_scale = 0}.check({})), std::invalid_argument);
}

TEST_CASE("sinks take weight and give no value, one for all heads or one per head") {
  std::mt19937 random(4);
  const std::vector<float> sinks{0.5f, -1.0f, 3.0f, 60.0f};
  for (const std::int64_t queries : {2, 20}) {
    auto q = random_stored<float>(random, {1, queries, 4, 8});
    auto k = random_stored<float>(random, {1, 140, 4, 8});
    auto v = random_stored<float>(random, {1, 140, 4, 8});
    dense::problem p{.q = to_dense(q), .k = to_dense(k), .v = to_dense(v), .scale = 1};
    p.visible = [](auto, auto, auto i, auto j) { return j <= 130 + i - 5; };
    p.row_factor = [](auto, auto h, auto) { return 1.0 + static_cast<double>(h); };
    p.logit = [](auto, auto, auto, auto, double s) { return 4 * std::tanh(s / 4); };
    p.sink = [&](auto h) { return static_cast<double>(sinks[static_cast<std::size_t>(h)]); };
    const dense::answer expected = dense::attention(p);
    stored<float> out({1, queries, 4, 8});
    stored<float> lse({1, queries, 4, 1});
    posenc::attention(q.view(), k.view(), v.view(), out.view(),
                      posenc::compose(posenc::logit_scale({1, 2, 3, 4}), posenc::softcap(4),
                                      posenc::sinks<float>(sinks), posenc::causal{}),
                      {.query_positions = posenc::positions::from(125), .scale = 1.0, .lse = lse.view()});
    CHECK(relative_error(out.data, expected.out.data) <= 2e-6);
    CHECK(relative_error(lse.data, expected.lse.data) <= 2e-6);
  }
  const posenc::sinks<float> shared(0.0f);
  CHECK(shared.sink(9) == 0);
  CHECK_THROWS_AS(posenc::sinks<float>(std::vector<float>{}), std::invalid_argument);
  CHECK_THROWS_WITH(posenc::sinks<float>(sinks).check({.heads = 3}),
                    contains("posenc::sinks: per_head must list one sink per head, got 4"));
}

TEST_CASE("ssmax is s ln n + b for the n keys that a row sees, one for all heads or one per head") {
  using posenc_test::contains;
  const posenc::ssmax one(0.43);
  CHECK(one.query_scale(5, 0, 1) == 0);
  CHECK(one.query_scale(5, 0, 0) == 0);
  CHECK(one.query_scale(5, 0, 1000) == 0.43 * std::log(1000.0));
  const posenc::ssmax two({0.5, 2}, {0.25, -1});
  CHECK(two.query_scale(0, 0, 7) == 0.5 * std::log(7.0) + 0.25);
  CHECK(two.query_scale(1, 99, 7) == 2 * std::log(7.0) - 1);
  CHECK(two.query_scale(1, 0, 1) == -1);
  const auto text = [](const auto& f) {
    try {
      f();
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string("nothing thrown");
  };
  CHECK_THAT(text([] { (void)posenc::ssmax(std::vector<double>{}); }), contains("per_head"));
  CHECK_THAT(text([] { (void)posenc::ssmax(double{nan_f}); }), contains("ssmax: scale must be finite"));
  CHECK_THAT(text([] { (void)posenc::ssmax(1, inf_f); }), contains("ssmax: offset must be finite"));
  CHECK_THAT(text([&] { two.check({.heads = 3}); }), contains("ssmax: per_head must list one scale per head"));
  CHECK(text([&] { two.check({.heads = 2}); }) == "nothing thrown");
}

TEST_CASE("ssmax counts what the masks leave, and leaves biases alone") {
  // Three rows over four keys of q.k = 1: row i sees i + 2 of them.
  stored<float> q({1, 3, 1, 1}, 1), k({1, 4, 1, 1}, 1), out({1, 3, 1, 1}), lse({1, 3, 1, 1});
  posenc::attention(q.view(), k.view(), k.view(), out.view(), posenc::compose(posenc::ssmax(2), posenc::causal{}),
                    {.query_positions = posenc::positions::from(1), .scale = 1, .lse = lse.view()});
  for (int i = 0; i < 3; ++i) CHECK(lse(0, i, 0, 0) == Approx(3 * std::log(i + 2.0)));  // n e^(2 ln n)
}
