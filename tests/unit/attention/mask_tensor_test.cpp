// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>
#include <posenc/attention/mask_tensor.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

#include <array>

namespace {

using namespace posenc_test;

constexpr std::int64_t batch = 2;
constexpr std::int64_t heads = 4;
constexpr std::int64_t keys = 133;

/// Entries of a mask by (batch, head, query, key), whatever the extents that are shared.
template <class M>
struct tensor {
  posenc::mask_shape extent;
  posenc::mask_strides step;
  std::vector<M> data;

  /// Rows are `gap` entries longer than they need to be; keys run backwards if `key` is -1.
  tensor(std::int64_t b, std::int64_t h, std::int64_t queries, std::int64_t gap, std::int64_t key)
      : extent{b, h, queries, keys}, data(static_cast<std::size_t>(b * h * queries * (2 * keys + gap)), M(1)) {
    const std::int64_t row = 2 * keys + gap;
    step = {.batch = h * queries * row, .head = queries * row, .query = row, .key = key};
  }
  [[nodiscard]] const M* start() const { return data.data() + (step.key < 0 ? (keys - 1) * -step.key : 0); }
  M& operator()(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const std::int64_t at = (extent.batch == 1 ? 0 : b) * step.batch + (extent.heads == 1 ? 0 : h) * step.head +
                            i * step.query + j * step.key;
    return data[static_cast<std::size_t>((start() - data.data()) + at)];
  }
};

struct shared {
  std::int64_t b;
  std::int64_t h;
};
constexpr std::array<shared, 4> extents{{{1, 1}, {batch, 1}, {1, heads}, {batch, heads}}};

bool hidden(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  return (b * 3 + h * 5 + i * 7 + j * 11 + j * j) % 3 == 0;
}

struct problem {
  stored<float> q;
  stored<float> k;
  stored<float> v;
  dense::problem expected;
  explicit problem(std::int64_t queries) {
    std::mt19937 random(6);
    q = random_stored<float>(random, {batch, queries, heads, 6});
    k = random_stored<float>(random, {batch, keys, 2, 6});
    v = random_stored<float>(random, {batch, keys, 2, 7});
    expected = {.q = to_dense(q), .k = to_dense(k), .v = to_dense(v), .scale = 1};
  }
  template <class Policy>
  double error(const Policy& policy, const posenc::positions& key_positions = {}) {
    stored<float> out({batch, q.extents.tokens, heads, 7}, 9);
    posenc::attention(q.view(), k.view(), v.view(), out.view(), policy,
                      {.query_positions = posenc::positions::from(60), .key_positions = key_positions, .scale = 1.0});
    return relative_error(out.data, dense::attention(expected).out.data);
  }
};

}  // namespace

TEST_CASE("a boolean mask of any strides and shared extents hides what it says") {
  for (const std::int64_t queries : {3, 17})
    for (const shared s : extents)
      for (const std::int64_t step : {1, 2, -1, -2}) {
        problem p(queries);
        tensor<std::uint8_t> mask(s.b, s.h, queries, 3, step);
        for (std::int64_t b = 0; b < s.b; ++b)
          for (std::int64_t h = 0; h < s.h; ++h)
            for (std::int64_t i = 0; i < queries; ++i)
              for (std::int64_t j = 0; j < keys; ++j) mask(b, h, i, j) = hidden(b, h, i, j) ? 0 : 2;
        p.expected.visible = [&](auto b, auto h, auto i, auto j) {
          return j <= 60 + i && !hidden(s.b == 1 ? 0 : b, s.h == 1 ? 0 : h, i, j);
        };
        INFO("queries " << queries << ", extents " << s.b << " x " << s.h << ", key step " << step);
        CHECK(p.error(posenc::compose(posenc::boolean_mask(mask.start(), mask.extent, mask.step), posenc::causal{})) <=
              2e-6);
      }
}

TEST_CASE("a packed mask needs no strides") {
  problem p(3);
  std::vector<std::uint8_t> mask;
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < keys; ++j) mask.push_back(hidden(0, 0, i, j) ? 0 : 1);
  p.expected.visible = [&](auto, auto, auto i, auto j) { return j <= 60 + i && !hidden(0, 0, i, j); };
  CHECK(p.error(posenc::compose(posenc::boolean_mask(mask.data(), {.queries = 3, .keys = keys}), posenc::causal{})) <=
        2e-6);
}

TEST_CASE("an additive mask adds at its place in the pack, and -inf hides") {
  for (const std::int64_t queries : {3, 17})
    for (const shared s : extents) {
      problem p(queries);
      tensor<float> mask(s.b, s.h, queries, 1, 1);
      const auto value = [](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
        return static_cast<float>((b + 2 * h + 3 * i + 5 * j) % 7 - 3) * 0.5f;
      };
      for (std::int64_t b = 0; b < s.b; ++b)
        for (std::int64_t h = 0; h < s.h; ++h)
          for (std::int64_t i = 0; i < queries; ++i)
            for (std::int64_t j = 0; j < keys; ++j) mask(b, h, i, j) = hidden(b, h, i, j) ? -inf_f : value(b, h, i, j);
      p.expected.visible = [&](auto b, auto h, auto i, auto j) {
        return j <= 60 + i && !hidden(s.b == 1 ? 0 : b, s.h == 1 ? 0 : h, i, j);
      };
      // A softcap after the mask caps the sum, and brings no hidden key back.
      p.expected.logit = [&](auto b, auto h, auto i, auto j, double x) {
        return 2 * std::tanh((x + static_cast<double>(value(s.b == 1 ? 0 : b, s.h == 1 ? 0 : h, i, j))) / 2);
      };
      const posenc::additive_mask add(mask.start(), mask.extent, mask.step);
      INFO("queries " << queries << ", extents " << s.b << " x " << s.h);
      CHECK(p.error(posenc::compose(add, posenc::softcap(2), posenc::causal{})) <= 2e-6);
    }
}

TEST_CASE("keys and values that a mask tensor hides may hold anything") {
  for (const std::int64_t queries : {3, 17})
    for (const float poison : {nan_f, inf_f, -inf_f}) {
      problem p(queries);
      tensor<float> mask(1, 1, queries, 0, 1);
      for (std::int64_t i = 0; i < queries; ++i)
        for (std::int64_t j = 0; j < keys; ++j) mask(0, 0, i, j) = j % 4 == 1 ? -inf_f : 0.0f;
      p.expected.visible = [](auto, auto, auto i, auto j) { return j <= 60 + i && j % 4 != 1; };
      p.expected.logit = [](auto, auto, auto, auto, double x) { return 2 * std::tanh(x / 2); };
      for (std::int64_t j = 1; j < keys; j += 4)
        for (std::int64_t b = 0; b < batch; ++b)
          for (std::int64_t h = 0; h < 2; ++h) {
            for (std::int64_t d = 0; d < 6; ++d) p.k(b, j, h, d) = poison;
            for (std::int64_t d = 0; d < 7; ++d) p.v(b, j, h, d) = poison;
          }
      INFO("queries " << queries << ", poison " << poison);
      const posenc::additive_mask add(mask.start(), mask.extent, mask.step);
      CHECK(p.error(posenc::compose(add, posenc::softcap(2), posenc::causal{})) <= 2e-6);
      tensor<std::uint8_t> truth(1, 1, queries, 0, 1);
      for (std::int64_t i = 0; i < queries; ++i)
        for (std::int64_t j = 0; j < keys; ++j) truth(0, 0, i, j) = j % 4 != 1;
      p.expected.logit = nullptr;
      CHECK(p.error(posenc::compose(posenc::boolean_mask(truth.start(), truth.extent, truth.step), posenc::causal{})) <=
            2e-6);
    }
}

TEST_CASE("a mask tensor goes by index where positions are in no order") {
  std::vector<std::int64_t> ring(keys);
  for (std::int64_t j = 0; j < keys; ++j) ring[static_cast<std::size_t>(j)] = (j + 50) % keys;
  for (const std::int64_t queries : {3, 17}) {
    problem p(queries);
    std::vector<std::uint8_t> mask;
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j) mask.push_back(hidden(0, 0, i, j) ? 0 : 1);
    p.expected.visible = [&](auto, auto, auto i, auto j) {
      return ring[static_cast<std::size_t>(j)] <= 60 + i && !hidden(0, 0, i, j);
    };
    const posenc::boolean_mask by_index(mask.data(), {.queries = queries, .keys = keys});
    CHECK(p.error(posenc::compose(by_index, posenc::causal{}), posenc::positions::listed(ring)) <= 2e-6);
  }
}

TEST_CASE("a mask that hides a whole row leaves zeros") {
  problem p(17);
  std::vector<std::uint8_t> mask(17 * keys, 1);
  std::fill_n(mask.begin() + 5 * keys, keys, std::uint8_t{0});
  p.expected.visible = [](auto, auto, auto i, auto j) { return i != 5 && j <= 60 + i; };
  CHECK(p.error(posenc::compose(posenc::boolean_mask(mask.data(), {.queries = 17, .keys = keys}), posenc::causal{})) <=
        2e-6);
}

TEST_CASE("mask tensors of half, bfloat16, double and bool widen to the same logits") {
  // The hooks themselves: the scalar form.
  const std::array<float, 3> values{0.5f, -inf_f, -65504.0f};
  const posenc::mask_shape s{.queries = 1, .keys = 3};
  const posenc::contiguous_keys where{};
  const auto check = [&]<class M>(M) {
    std::array<M, 3> stored_values;
    for (std::size_t j = 0; j < 3; ++j) stored_values[j] = posenc::narrow<M>(values[j]);
    const posenc::additive_mask<M> mask(stored_values.data(), s);
    const auto add = mask.template row<double>({}, where);
    const auto seen = mask.template allow_lanes<double>({}, where);
    CHECK(add(1.0, 0) == 1.5);
    CHECK(add(1.0, 1) == 1.0);  // -inf adds nothing: it hides
    CHECK(add(0.0, 2) == Approx(-65504).epsilon(0.01));
    CHECK(seen(0));
    CHECK_FALSE(seen(1));
    CHECK(seen(2));
  };
  check(float{});
  check(double{});
  check(Eigen::half{});
  check(Eigen::bfloat16{});
  const std::array<bool, 3> truth{true, false, true};
  const auto seen = posenc::boolean_mask(truth.data(), s).allow_lanes<float>({}, where);
  CHECK(seen(0));
  CHECK_FALSE(seen(1));
  CHECK(seen(2));
}

TEST_CASE("mask tensors that do not fit are refused before anything is written") {
  problem p(3);
  std::vector<std::uint8_t> mask(2 * 4 * 4 * 200, 1);
  stored<float> out({batch, 3, heads, 7}, 9);
  const auto refused = [&](const posenc::mask_shape& s, const std::string& words) {
    const auto run = [&] {
      posenc::attention(p.q.view(), p.k.view(), p.v.view(), out.view(),
                        posenc::compose(posenc::boolean_mask(mask.data(), s), posenc::causal{}));
    };
    CHECK_THROWS_AS(run(), std::invalid_argument);
    CHECK_THROWS_WITH(run(), contains(words));
    for (const float x : out.data) REQUIRE(x == 9);
  };
  refused({3, 1, 3, keys}, "mask: batch must be 1 or that of the call, got 3");
  refused({1, 2, 3, keys}, "mask: heads must be 1 or those of the call, got 2");
  refused({1, 1, 4, keys}, "mask: queries must equal those of the call, got 4");
  refused({1, 1, 3, keys + 1}, "mask: keys must equal those of the call, got 134");
  CHECK_THROWS_WITH(posenc::boolean_mask(mask.data(), {.queries = -1, .keys = 2}), contains("got -1"));
  CHECK_THROWS_WITH(posenc::boolean_mask<bool>(nullptr, {.queries = 1, .keys = 2}), contains("must not be null"));
}
