// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/compose.hpp>
#include <posenc/attention/layer_schedule.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"
#include "unit/encoders/refusal.hpp"

namespace {

using namespace posenc_test;
using posenc::causal;
using posenc::compose;
using posenc::input_schedule;
using posenc::layer_pattern;
using posenc::layer_schedule;
using posenc::rope;
using posenc::sliding_window;

std::vector<int> kinds(const layer_pattern& p) {
  std::vector<int> out;
  for (std::int64_t l = 0; l < p.layers(); ++l) out.push_back(p.kind(l));
  return out;
}

template <class Part, class Policy>
constexpr bool holds = false;
template <class Part, class... Parts>
constexpr bool holds<Part, posenc::policy<Parts...>> = (std::is_same_v<Part, Parts> || ...);

/// One letter per layer: which of rope and a window its policy holds.
template <class Schedule>
std::string letters(const Schedule& s) {
  std::string out;
  for (std::int64_t l = 0; l < s.layers(); ++l)
    out += s.visit_layer(l, []<class P>(const P&) {
      const bool turns = holds<rope<float>, P>;
      return holds<sliding_window, P> ? (turns ? 'w' : '?') : (turns ? 'r' : '-');
    });
  return out;
}

/// Stands for a layer without softmax.
struct recurrent {};

}  // namespace

TEST_CASE("layer patterns") {
  CHECK(kinds(layer_pattern({0, 2, 1})) == std::vector<int>{0, 2, 1});
  CHECK(kinds(layer_pattern::repeated({0, 1, 2}, 7)) == std::vector<int>{0, 1, 2, 0, 1, 2, 0});
  CHECK(kinds(layer_pattern::every(3, 7)) == std::vector<int>{0, 0, 1, 0, 0, 1, 0});
  CHECK(kinds(layer_pattern::every(1, 2)) == std::vector<int>{1, 1});
  CHECK(kinds(layer_pattern::first(2, 4)) == std::vector<int>{0, 0, 1, 1});
  CHECK(kinds(layer_pattern::one(1, 3)) == std::vector<int>{0, 1, 0});
  CHECK(kinds(layer_pattern::every(4, 0)).empty());
  CHECK(refusal([] { (void)layer_pattern::every(0, 3); }) ==
        "posenc::layer_pattern::every: interval must be at least 1, got 0");
  CHECK(refusal([] { (void)layer_pattern::first(1, -1); }) ==
        "posenc::layer_pattern::first: layers must not be negative, got -1");
  CHECK(refusal([] { (void)layer_pattern::repeated({}, 3); }) ==
        "posenc::layer_pattern::repeated: cycle must not be empty, got 0");
  CHECK(refusal([] { (void)layer_pattern::one(3, 3); }) ==
        "posenc::layer_pattern::one: layer must be one of the layers, got 3");
  CHECK(refusal([] { layer_pattern p({0, -1}); }) == "posenc::layer_pattern: kind must not be negative, got -1");
  CHECK(refusal<std::out_of_range>([] { (void)layer_pattern::every(4, 8).kind(8); }) ==
        "posenc::layer_pattern::kind: layer must lie in 0..7, got 8");
}

TEST_CASE("the schedules of Gemma 3, SmolLM3, Cohere 2 and Kimi Linear are one line each") {
  const rope<float> near({.head_dim = 8});
  const rope<float> far({.head_dim = 8, .base = 1e6});
  const auto gemma =
      layer_schedule(layer_pattern::every(6, 13), compose(near, sliding_window(1024)), compose(far, causal{}));
  const auto smollm = layer_schedule(layer_pattern::every(4, 9), compose(near, causal{}), compose(causal{}));
  const auto cohere =
      layer_schedule(layer_pattern::every(4, 9), compose(near, sliding_window(4096)), compose(causal{}));
  const auto kimi = layer_schedule(layer_pattern::every(4, 9), recurrent{}, compose(causal{}));
  CHECK(letters(gemma) == "wwwwwrwwwwwrw");
  CHECK(letters(smollm) == "rrr-rrr-r");
  CHECK(letters(cohere) == "www-www-w");
  std::string mixed;
  for (std::int64_t l = 0; l < kimi.layers(); ++l)
    mixed += kimi.visit_layer(l, []<class P>(const P&) { return std::is_same_v<P, recurrent> ? 'k' : 'a'; });
  CHECK(mixed == "kkkakkkak");
  // The bases of Gemma's two kinds.
  CHECK(gemma.visit_layer(4, [](const auto& p) { return std::get<0>(p.parts).inv_freq()[1]; }) == near.inv_freq()[1]);
  CHECK(gemma.visit_layer(5, [](const auto& p) { return std::get<0>(p.parts).inv_freq()[1]; }) == far.inv_freq()[1]);

  CHECK(refusal([&] {
          layer_schedule(layer_pattern({0, 2}), recurrent{}, compose(causal{}));
        }) == "posenc::layer_schedule: pattern must name kinds that have a policy, got 2");
  CHECK_THROWS_AS(gemma.visit_layer(13, [](const auto&) {}), std::out_of_range);
}

TEST_CASE("rotate and shift act on layers that rotate, bit for bit on no other") {
  const rope<float> near({.head_dim = 8});
  const layer_schedule model(layer_pattern({0, 1, 2}), compose(near, causal{}), compose(causal{}), near);
  std::mt19937 random(4);
  const auto start = random_stored<float>(random, {1, 5, 2, 8});
  auto turned = start;
  near.rotate(turned.view(), posenc::positions::from(9));
  for (const std::int64_t layer : {0, 1, 2}) {
    auto x = start;
    model.rotate(layer, x.view(), posenc::positions::from(9));
    CHECK(x.data == (layer == 1 ? start.data : turned.data));
    auto moved = start;
    near.shift(moved.view(), 3);
    auto y = start;
    model.shift(layer, y.view(), 3);
    CHECK(y.data == (layer == 1 ? start.data : moved.data));
  }
}

TEST_CASE("an absolute encoder at the stem, at every layer, or at every layer from one table") {
  constexpr std::int64_t layers = 3;
  constexpr std::int64_t width = 4;
  std::vector<posenc::learned<float>> tables;
  for (int l = 0; l < layers; ++l)
    tables.emplace_back(posenc::learned_options{.rows = 6, .dim = width}, posenc_test::values<float>(6 * width, l));
  const auto added = [&](const auto& schedule, std::int64_t layer) {
    std::vector<float> x(2 * width, 0.0f);
    schedule.embed(layer, posenc::view{x.data(), {.tokens = 2, .dim = width}}, posenc::positions::from(3));
    return x;
  };
  const auto rows = [&](std::size_t l) {
    const auto t = tables[l].table();
    return std::vector<float>(t.begin() + 3 * width, t.begin() + 5 * width);
  };
  const std::vector<float> nothing(2 * width, 0.0f);

  const auto stem = input_schedule<posenc::learned<float>>::stem(tables[1], layers);
  const auto shared = input_schedule<posenc::learned<float>>::shared(tables[1], layers);
  const input_schedule<posenc::learned<float>> each(tables);
  for (std::int64_t l = 0; l < layers; ++l) {
    CHECK(added(stem, l) == (l == 0 ? rows(1) : nothing));
    CHECK(added(shared, l) == rows(1));
    CHECK(added(each, l) == rows(static_cast<std::size_t>(l)));
  }
  CHECK(stem.tables() == 1);
  CHECK(shared.tables() == 1);
  CHECK(each.tables() == 3);
  CHECK(each.layers() == 3);
  CHECK_THROWS_AS(added(stem, 3), std::out_of_range);
  CHECK(refusal([&] {
          input_schedule<posenc::learned<float>>(tables[0], layer_pattern({0, 2}));
        }) == "posenc::input_schedule: pattern must be of kinds 0 and 1, got 2");
}

TEST_CASE("relative layers first, then absolute ones, in one schedule") {
  const posenc::sinusoidal<float> absolute{{.dim = 8}};
  const layer_schedule model(layer_pattern::first(2, 4), compose(posenc::alibi<float>(2), causal{}),
                             compose(absolute, causal{}));
  for (std::int64_t l = 0; l < 4; ++l) {
    stored<float> x({1, 3, 1, 8});
    model.embed(l, x.view(), posenc::positions::from(5));
    stored<float> expected({1, 3, 1, 8});
    if (l >= 2) absolute.embed(expected.view(), posenc::positions::from(5));
    CHECK(x.data == expected.data);
  }
}

TEST_CASE("DeBERTa's mask decoder: the last layer twice over, its queries with absolute positions the first time") {
  // A layer is attention and a residual, under a relative bias; n layers, and two steps of the last one after n - 1.
  constexpr std::int64_t n = 3;
  constexpr std::int64_t tokens = 5;
  constexpr std::int64_t width = 4;
  const posenc::sinusoidal<double> absolute{{.dim = width}};
  const auto relative = compose(posenc::alibi<double>(1));
  std::mt19937 random(7);
  const auto start = random_stored<double>(random, {1, tokens, 1, width});
  const auto layer = [&](const stored<double>& query, const stored<double>& memory, std::int64_t l) {
    stored<double> out(query.extents);
    posenc::attention_reference(query.read(), memory.read(), memory.read(), out.view(), relative,
                                {.scale = 0.5 + static_cast<double>(l)});
    for (std::size_t i = 0; i < out.data.size(); ++i) out.data[i] += query.data[i];
    return out;
  };

  // By schedule: n + 1 steps; absolute rows enter the query at step n - 1 alone.
  const input_schedule<posenc::sinusoidal<double>> schedule(absolute, layer_pattern::one(n - 1, n + 1));
  stored<double> hidden = start;
  stored<double> memory = start;
  for (std::int64_t step = 0; step < schedule.layers(); ++step) {
    if (step < n) memory = hidden;  // the second run still reads what the first one read
    schedule.embed(step, hidden.view());
    hidden = layer(hidden, memory, std::min(step, n - 1));
  }

  // By hand, as in the authors' code.
  stored<double> h = start;
  for (std::int64_t l = 0; l + 1 < n; ++l) h = layer(h, h, l);
  stored<double> z = h;
  const auto rows = absolute.table(0, tokens);
  for (std::size_t i = 0; i < z.data.size(); ++i) z.data[i] += rows[i];
  z = layer(z, h, n - 1);
  z = layer(z, h, n - 1);
  CHECK(hidden.data == z.data);
}
