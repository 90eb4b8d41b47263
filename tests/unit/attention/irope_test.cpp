// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/irope.hpp>
#include <posenc/attention/reference.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

namespace {

using namespace posenc_test;

posenc::irope_options small() {
  return {.layers = 8,
          .chunk = 4,
          .temperature = {.scale = 0.5, .floor_scale = 4},
          .rope = {.head_dim = 8, .layout = posenc::interleaved}};
}

}  // namespace

TEST_CASE("every fourth layer is a NoPE layer unless a list says otherwise") {
  const posenc::irope<float> model(small());
  for (std::int64_t l = 0; l < 8; ++l) CHECK(model.schedule().uses_rope(l) == (l % 4 != 3));
  posenc::irope_options o = small();
  o.uses_rope = {0, 1, 1, 1, 0, 0, 1, 1};
  const posenc::irope<float> listed(o);
  for (std::int64_t l = 0; l < 8; ++l)
    CHECK(listed.schedule().uses_rope(l) == (o.uses_rope[static_cast<std::size_t>(l)] == 1));
  o.uses_rope.pop_back();
  CHECK_THROWS_WITH(posenc::irope<float>(o), contains("posenc::rope_schedule: uses_rope must list every layer, got 7"));
  CHECK_THROWS_AS(model.schedule().uses_rope(8), std::out_of_range);
  CHECK_THROWS_AS(model.visit_layer(-1, [](const auto&) {}), std::out_of_range);
  o = small();
  o.interval = 0;
  CHECK_THROWS_AS(posenc::irope<float>(o), std::invalid_argument);
  o = small();
  o.chunk = 0;
  CHECK_THROWS_AS(posenc::irope<float>(o), std::invalid_argument);
}

TEST_CASE("RoPE layers rotate and see their chunk, NoPE layers see the whole past with a temperature") {
  const posenc::irope<double> model(small());
  std::mt19937 random(4);
  constexpr std::int64_t n = 11;
  auto q = random_stored<double>(random, {1, n, 2, 8});
  auto k = random_stored<double>(random, {1, n, 1, 8});
  auto v = random_stored<double>(random, {1, n, 1, 8});
  for (const std::int64_t layer : {2, 3}) {
    dense::problem p{.q = to_dense(q), .k = to_dense(k), .v = to_dense(v), .scale = 0.5};
    if (layer == 2) {
      // Pairs (2i, 2i + 1) turned by position / 10000^(2i / 8).
      const auto turn = [](dense::tensor& x) {
        for (std::int64_t t = 0; t < x.tokens; ++t)
          for (std::int64_t h = 0; h < x.heads; ++h)
            for (std::int64_t i = 0; i < 4; ++i) {
              const double angle = static_cast<double>(t) * std::pow(10000.0, -static_cast<double>(i) / 4);
              const double a = x(0, t, h, 2 * i);
              const double b = x(0, t, h, 2 * i + 1);
              x(0, t, h, 2 * i) = a * std::cos(angle) - b * std::sin(angle);
              x(0, t, h, 2 * i + 1) = a * std::sin(angle) + b * std::cos(angle);
            }
      };
      turn(p.q);
      turn(p.k);
      p.visible = [](auto, auto, auto i, auto j) { return j <= i && j / 4 == i / 4; };
    } else {
      p.visible = [](auto, auto, auto i, auto j) { return j <= i; };
      p.row_factor = [](auto, auto, auto i) {
        return 1 + 0.5 * std::log(1 + std::floor(static_cast<double>(i + 1) / 4));
      };
    }
    stored<double> out({1, n, 2, 8});
    model.visit_layer(layer, [&](const auto& policy) {
      posenc::attention_reference(q.view(), k.view(), v.view(), out.view(), policy,
                                  {.scale = 0.5, .keys = posenc::key_state::unrotated});
    });
    INFO("layer " << layer);
    CHECK(relative_error(out.data, dense::attention(p).out.data) <= 1e-12);
  }
}

TEST_CASE("rotate leaves a NoPE layer alone, bit for bit") {
  const posenc::irope<float> model(small());
  std::mt19937 random(4);
  auto x = random_stored<float>(random, {1, 5, 2, 8});
  const std::vector<float> before = x.data;
  model.rotate(3, x.view(), posenc::positions::from(9));
  CHECK(x.data == before);
  model.rotate(2, x.view(), posenc::positions::from(9));
  CHECK(x.data != before);
  CHECK(model.visit_layer(3, [](const auto& policy) { return sizeof(policy); }) <
        model.visit_layer(2, [](const auto& policy) { return sizeof(policy); }));
  CHECK(model.describe().shift == posenc::cache_shift::rotate_keys);
}
