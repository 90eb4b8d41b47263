// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>
#include <posenc/attention/compose.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/rope.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

#include <cstring>

namespace {

using namespace posenc_test;

/// A bias of a user's own: the square root of the distance.
struct root_bias {
  double weight;
  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
    using L = posenc::lanes<B>;
    return [r, keys, w = L::broadcast(weight)](const B& s, std::int64_t k) {
      using std::sqrt;
      const B d = L::abs(posenc::distance<B>(keys, r, k));
      return B(s - w * sqrt(d));
    };
  }
};

/// A length-dependent encoder: the line of values for every distance is made once per call, in its workspace.
struct bound_line {
  struct closure {
    const float* zero;
    template <class B, class Keys>
    [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
      return [at = zero, keys, r](const B& s, std::int64_t k) {
        float value[posenc::lanes<B>::size];
        for (int i = 0; i < posenc::lanes<B>::size; ++i)
          value[i] =
              at[std::max<std::int64_t>(std::min<std::int64_t>(keys.position(k + i) - r.query_position, 200), -200)];
        return B(s + posenc::lanes<B>::load(value));
      };
    }
  };
  float weight;
  [[nodiscard]] std::size_t workspace_bytes(const posenc::call&) const { return 401 * sizeof(float); }
  [[nodiscard]] closure bind(std::byte* memory, const posenc::call& c) const {
    auto* line = reinterpret_cast<float*>(memory);
    for (int d = -200; d <= 200; ++d) line[d + 200] = weight * static_cast<float>(d) / static_cast<float>(c.keys);
    return {line + 200};
  }
};

/// Transforms that do not commute, to see the order of the chain; heads and positions to see what they are given.
struct add_one {
  template <class C>
  void transform_q(C* x, std::int64_t dim, const posenc::position&, std::int64_t) const {
    for (std::int64_t d = 0; d < dim; ++d) x[d] = C(x[d] + C(1));
  }
  template <class C>
  void transform_k(C* x, std::int64_t dim, const posenc::position& at, std::int64_t head) const {
    transform_q(x, dim, at, head);
  }
};
struct times_head_and_position {
  template <class C>
  void transform_q(C* x, std::int64_t dim, const posenc::position& at, std::int64_t head) const {
    for (std::int64_t d = 0; d < dim; ++d) x[d] = C(x[d] * C(static_cast<float>(1 + head + at.value() % 3)));
  }
  template <class C>
  void transform_k(C* x, std::int64_t dim, const posenc::position& at, std::int64_t head) const {
    for (std::int64_t d = 0; d < dim; ++d) x[d] = C(x[d] * C(static_cast<float>(2 + head + at.value() % 2)));
  }
};

/// Scales by what a row sees (a scaled softmax).
struct by_visible_keys {
  static constexpr bool needs_visible_keys = true;
  [[nodiscard]] static double query_scale(std::int64_t, const posenc::position&, std::int64_t visible) {
    return 0.1 * static_cast<double>(visible);
  }
};

struct call {
  stored<float> q;
  stored<float> k;
  stored<float> v;
  dense::problem expected;
  call(std::int64_t queries, std::int64_t keys) {
    std::mt19937 random(9);
    q = random_stored<float>(random, {1, queries, 4, 8});
    k = random_stored<float>(random, {1, keys, 2, 8});
    v = random_stored<float>(random, {1, keys, 2, 5});
    expected = {.q = to_dense(q), .k = to_dense(k), .v = to_dense(v), .scale = 0.2};
  }
  template <class Policy>
  double error(const Policy& policy, posenc::attention_options<float> options) {
    stored<float> out({1, q.extents.tokens, 4, 5}, 9);
    options.scale = 0.2;
    posenc::attention(q.view(), k.view(), v.view(), out.view(), policy, options);
    return relative_error(out.data, dense::attention(expected).out.data);
  }
};

}  // namespace

TEST_CASE("packs nest and keep their order") {
  using posenc::causal;
  using posenc::softcap;
  const auto nested = posenc::compose(softcap(1), posenc::compose(posenc::compose(), root_bias{2}), causal{});
  static_assert(std::is_same_v<decltype(nested), const posenc::policy<softcap, root_bias, causal>>);
  CHECK(std::get<0>(nested.parts).cap == 1);
  CHECK(std::get<1>(nested.parts).weight == 2);
  static_assert(std::is_same_v<decltype(posenc::compose()), posenc::policy<>>);
  static_assert(std::is_empty_v<std::tuple<>>);
}

TEST_CASE("logit transforms run in pack order, masks last") {
  const posenc::contiguous_keys keys{0};
  const posenc::row r{.query_position = 4};
  const auto value = [&](const auto& policy) {
    return posenc::detail::make_logit_op<double>(policy.parts, r, keys)(3.0, 0);  // distance 4
  };
  using posenc::softcap;
  CHECK(value(posenc::compose(softcap(2), root_bias{1})) == Approx(2 * std::tanh(1.5) - 2));
  CHECK(value(posenc::compose(root_bias{1}, softcap(2))) == Approx(2 * std::tanh(0.5)));
  CHECK(value(posenc::compose(posenc::causal{}, root_bias{1}, softcap(2))) == Approx(2 * std::tanh(0.5)));
  CHECK(value(posenc::compose()) == 3);
}

TEST_CASE("a user's own bias of ten lines works in the fused kernel, contiguous and listed") {
  for (const std::int64_t queries : {2, 20}) {
    call c(queries, 140);
    c.expected.logit = [](auto, auto, auto i, auto j, double s) {
      return s - 0.25 * std::sqrt(std::abs(static_cast<double>(j - 100 - i)));
    };
    c.expected.visible = [](auto, auto, auto i, auto j) { return j <= 100 + i; };
    std::vector<std::int64_t> ids(140);
    for (std::int64_t j = 0; j < 140; ++j) ids[static_cast<std::size_t>(j)] = j;
    const auto policy = posenc::compose(root_bias{0.25}, posenc::causal{});
    const auto at = posenc::positions::from(100);
    CHECK(c.error(policy, {.query_positions = at}) <= 2e-6);
    CHECK(c.error(policy, {.query_positions = at, .key_positions = posenc::positions::listed(ids)}) <= 2e-6);
  }
}

TEST_CASE("a length-dependent encoder binds its line once per call, each one its own memory") {
  for (const std::int64_t queries : {2, 20}) {
    call c(queries, 140);
    c.expected.logit = [](auto, auto, auto i, auto j, double s) {
      return s + (0.5 - 2.0) * static_cast<double>(j - 100 - i) / 140;
    };
    const auto policy = posenc::compose(bound_line{0.5f}, posenc::causal{}, bound_line{-2.0f});
    c.expected.visible = [](auto, auto, auto i, auto j) { return j <= 100 + i; };
    posenc::attention_options<float> options{.query_positions = posenc::positions::from(100)};
    CHECK(c.error(policy, options) <= 2e-6);
    stored<float> out({1, queries, 4, 5});
    const std::size_t with =
        posenc::attention_workspace(c.q.view(), c.k.view(), c.v.view(), out.view(), policy, options);
    const std::size_t without = posenc::attention_workspace(c.q.view(), c.k.view(), c.v.view(), out.view(),
                                                            posenc::compose(posenc::causal{}), options);
    CHECK(with >= without + 2 * 401 * sizeof(float));
    std::vector<std::byte> memory(with);
    options.workspace = memory;
    CHECK(c.error(policy, options) <= 2e-6);

    // The reference binds too.
    posenc::attention_reference(c.q.view(), c.k.view(), c.v.view(), out.view(), policy,
                                {.query_positions = posenc::positions::from(100), .scale = 0.2});
    CHECK(relative_error(out.data, dense::attention(c.expected).out.data) <= 2e-6);
  }
}

TEST_CASE("transforms of q and k run in pack order, k only where keys are unrotated") {
  for (const std::int64_t queries : {2, 20}) {
    call c(queries, 60);
    const auto options = [](posenc::key_state keys) {
      return posenc::attention_options<float>{.query_positions = posenc::positions::from(40), .keys = keys};
    };
    const dense::problem before = c.expected;
    const auto transformed = [&](bool add_first, bool keys_too) {
      c.expected = before;
      for (std::int64_t i = 0; i < queries; ++i)
        for (std::int64_t h = 0; h < 4; ++h)
          for (std::int64_t d = 0; d < 8; ++d) {
            double& x = c.expected.q(0, i, h, d);
            const auto factor = static_cast<double>(1 + h + (40 + i) % 3);
            x = add_first ? (x + 1) * factor : x * factor + 1;
          }
      for (std::int64_t j = 0; j < 60 && keys_too; ++j)
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t d = 0; d < 8; ++d) {
            double& x = c.expected.k(0, j, h, d);
            const auto factor = static_cast<double>(2 + h + j % 2);
            x = add_first ? (x + 1) * factor : x * factor + 1;
          }
      c.expected.scale = 0.01;
    };
    const auto error = [&](const auto& policy, posenc::key_state keys) {
      stored<float> out({1, queries, 4, 5});
      posenc::attention_options<float> o = options(keys);
      o.scale = 0.01;
      posenc::attention(c.q.view(), c.k.view(), c.v.view(), out.view(), policy, o);
      return relative_error(out.data, dense::attention(c.expected).out.data);
    };
    const auto add_first = posenc::compose(add_one{}, times_head_and_position{});
    const auto add_last = posenc::compose(times_head_and_position{}, add_one{});
    transformed(true, false);
    CHECK(error(add_first, posenc::key_state::rotated) <= 2e-6);
    transformed(true, true);
    CHECK(error(add_first, posenc::key_state::unrotated) <= 2e-6);
    CHECK(error(add_last, posenc::key_state::unrotated) > 1e-3);
    transformed(false, true);
    CHECK(error(add_last, posenc::key_state::unrotated) <= 2e-6);
  }
}

TEST_CASE("unrotated keys give what keys rotated beforehand give") {
  for (const posenc::rope_layout layout : {posenc::half_split, posenc::interleaved})
    for (const std::int64_t queries : {2, 20}) {
      call c(queries, 140);
      const posenc::rope<float> rope({.head_dim = 8, .layout = layout});
      const auto policy = posenc::compose(rope, posenc::causal{});
      posenc::attention_options<float> options{.query_positions = posenc::positions::from(120),
                                               .key_positions = posenc::positions::from(-3),
                                               .keys = posenc::key_state::unrotated};
      stored<float> reading({1, queries, 4, 5});
      posenc::attention(c.q.view(), c.k.view(), c.v.view(), reading.view(), policy, options);
      stored<float> k = c.k;
      rope.rotate(k.view(), options.key_positions);
      options.keys = posenc::key_state::rotated;
      stored<float> before({1, queries, 4, 5});
      posenc::attention(c.q.view(), k.view(), c.v.view(), before.view(), policy, options);
      CHECK(relative_error(reading.data, to_dense(before).data) <= 1e-6);
      CHECK(c.k.data != k.data);  // the cache itself is never written
    }
}

TEST_CASE("a query scale that asks for the visible keys is told how many a row sees") {
  std::vector<std::int64_t> ring(140);
  for (std::int64_t j = 0; j < 140; ++j) ring[static_cast<std::size_t>(j)] = (j + 30) % 140;
  for (const std::int64_t queries : {2, 20})
    for (const bool listed : {false, true}) {
      call c(queries, 140);
      const auto position = [&](std::int64_t j) { return listed ? ring[static_cast<std::size_t>(j)] : j; };
      c.expected.visible = [&](auto, auto, auto i, auto j) {
        return position(j) <= 100 + i && position(j) > 100 + i - 30;
      };
      c.expected.row_factor = [](auto, auto, auto) { return 3.0 * 0.5; };
      CHECK(c.error(posenc::compose(by_visible_keys{}, posenc::sliding_window(30), posenc::logit_scale(0.5)),
                    {.query_positions = posenc::positions::from(100),
                     .key_positions = listed ? posenc::positions::listed(ring) : posenc::positions::from(0)}) <= 2e-6);
    }
}

TEST_CASE("an empty policy is plain attention, and empty calls return at once") {
  call c(15, 30);
  CHECK(c.error(posenc::compose(), {}) <= 2e-6);
  const auto none = posenc::compose();
  for (const posenc::shape s : {posenc::shape{.batch = 0, .tokens = 3, .heads = 2, .dim = 4},
                                posenc::shape{.batch = 1, .tokens = 0, .heads = 2, .dim = 4},
                                posenc::shape{.batch = 1, .tokens = 3, .heads = 0, .dim = 4},
                                posenc::shape{.batch = 0, .tokens = 0, .heads = 0, .dim = 0}}) {
    const posenc::view<float> empty(nullptr, s);
    CHECK_NOTHROW(posenc::attention(empty, empty, empty, empty, none));
    CHECK_NOTHROW(posenc::attention_reference(empty, empty, empty, empty, none));
  }
}
