// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// What caches ask of encoders and policies: the same turn as attention gives raw keys, and moves where they are legal.
#include <posenc/attention/cached_keys.hpp>
#include <posenc/attention/compose.hpp>
#include <posenc/attention/contiguous_cache.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/rope_table.hpp>
#include <posenc/encoders/sinusoidal.hpp>
#include <posenc/encoders/xpos.hpp>

#include "support/catch.hpp"
#include "unit/attention/cache_model.hpp"

namespace {

using namespace posenc_test;
using posenc::key_state;

constexpr std::int64_t kv_heads = 2;
constexpr std::int64_t dim = 8;
constexpr std::int64_t tokens = 9;

const posenc::rope<float> turning{{.head_dim = dim}};

struct fixture {
  std::mt19937 random{21};
  stored<float> k = random_stored<float>(random, {.tokens = tokens, .heads = kv_heads, .dim = dim});
  stored<float> v = random_stored<float>(random, {.tokens = tokens, .heads = kv_heads, .dim = dim});

  template <class Encoder>
  posenc::contiguous_cache<float> filled(const Encoder& encoder, key_state state = key_state::rotated,
                                         std::int64_t first = 50) const {
    posenc::contiguous_cache<float> cache(
        {.capacity = 20, .kv_heads = kv_heads, .dim = dim, .keys = state, .first_position = first});
    cache.append(k.read(), v.read(), encoder);
    return cache;
  }
  /// Keys as `attention` makes them of unrotated ones: the hook transform_k of every part, row by row.
  template <class Policy>
  stored<float> transformed(const Policy& policy, std::int64_t first) const {
    stored<float> out = k;
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t h = 0; h < kv_heads; ++h)
        posenc::detail::transform_key(posenc::detail::as_references(policy), out.view().row(0, t, h), dim,
                                      posenc::position(first + t), h);
    return out;
  }
};

double distance(const stored<float>& a, const stored<float>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(a.data[i]) - static_cast<double>(b.data[i])));
  return worst;
}

/// A rotation with nothing but the hooks of attention.
struct hooks_only {
  template <class C>
  void transform_q(C* x, std::int64_t n, const posenc::position& at, std::int64_t head) const {
    turning.transform_q(x, n, at, head);
  }
  template <class C>
  void transform_k(C* x, std::int64_t n, const posenc::position& at, std::int64_t head) const {
    turning.transform_k(x, n, at, head);
  }
};

posenc::qk_norm norm_with(float gain) { return {.k_gain = std::vector<float>{gain, 1, 2, 1, 1, 0.5f, 1, 3}}; }

}  // namespace

TEST_CASE("cached_keys: append turns keys as attention turns raw ones, bit by bit") {
  const fixture f;
  const auto check = [&](const auto& policy) {
    const auto cache = f.filled(policy);
    CHECK(same_bits(gathered(cache.keys()), f.transformed(policy, 50)));
    CHECK(!same_bits(gathered(cache.keys()), f.k));
    CHECK(same_bits(gathered(f.filled(policy, key_state::unrotated).keys()), f.k));
  };
  check(turning);
  check(hooks_only{});
  check(posenc::compose(turning, posenc::causal{}));
  check(posenc::compose(norm_with(1.5f), turning, posenc::causal{}));
  check(posenc::compose(turning, norm_with(1.5f)));
  check(posenc::xpos<float>({.head_dim = dim, .scale_base = 64}));
  check(posenc::compose(posenc::alibi<float>(4), hooks_only{}));
  check(posenc::run_time_policy<>{.normalization = norm_with(2), .rotation = turning});
  // A table has the same rows and no hook of attention.
  CHECK(same_bits(gathered(f.filled(turning.table(40, 30)).keys()), f.transformed(turning, 50)));
}

TEST_CASE("cached_keys: an encoder that refuses the last position does so before anything is written") {
  const fixture f;
  posenc::contiguous_cache<float> cache({.capacity = 20, .kv_heads = kv_heads, .dim = dim, .first_position = 50});
  CHECK_THROWS(cache.append(f.k.read(), f.v.read(), turning.table(50, tokens - 1)));
  CHECK_THROWS(cache.append(f.k.read(), f.v.read(), turning.table(51, tokens)));
  CHECK(cache.empty());
  CHECK(cache.first_position() == 50);
  CHECK_NOTHROW(cache.append(f.k.read(), f.v.read(), turning.table(50, tokens)));
}

TEST_CASE("cached_keys: a shift turns rotated keys by the difference") {
  const fixture f;
  const auto check = [&](const auto& policy, double bound) {
    auto cache = f.filled(policy);
    cache.shift(-43, policy);
    CHECK(cache.first_position() == 7);
    CHECK(distance(gathered(cache.keys()), f.transformed(policy, 7)) <= bound);
    CHECK(same_bits(gathered(cache.values()), f.v));
    // Raw keys stay as they are.
    auto raw = f.filled(policy, key_state::unrotated);
    raw.shift(-43, policy);
    CHECK(raw.first_position() == 7);
    CHECK(same_bits(gathered(raw.keys()), f.k));
  };
  check(turning, 5e-7);
  check(posenc::compose(posenc::causal{}, turning), 5e-7);
  check(posenc::compose(norm_with(1.5f), turning), 4e-6);
  check(posenc::compose(turning, posenc::qk_norm{}), 2e-6);
  check(posenc::xpos<float>({.head_dim = dim, .scale_base = 64}), 2e-6);
  check(posenc::run_time_policy<>{.normalization = norm_with(2), .rotation = turning}, 4e-6);
}

TEST_CASE("cached_keys: where keys carry no position a shift changes positions alone") {
  const fixture f;
  const std::vector<float> table(32 * 4, 0.5f);
  const auto check = [&](const auto& encoder) {
    auto cache = f.filled(encoder);
    cache.shift(1000, encoder);
    CHECK(cache.first_position() == 1050);
    CHECK(same_bits(gathered(cache.keys()), f.k));
  };
  check(posenc::nope{});
  check(posenc::alibi<float>(4));
  check(posenc::relative_bucket<float>({.heads = 4}, table));
  check(posenc::compose(posenc::alibi<float>(4), posenc::causal{}));
}

TEST_CASE("cached_keys: a shift that is not legal is refused with its reason and changes nothing") {
  const fixture f;
  const std::vector<float> table(8 * dim, 0.5f);
  const auto refuses = [&](const auto& encoder, key_state state, const std::string& reason) {
    INFO(reason);
    auto cache = f.filled(turning, state);
    const auto before = gathered(cache.keys());
    CHECK_THROWS_WITH(cache.shift(-5, encoder), contains(reason));
    CHECK_THROWS_WITH(cache.erase(1, 2, encoder), contains(reason));
    CHECK(cache.first_position() == 50);
    CHECK(cache.size() == tokens);
    CHECK(same_bits(gathered(cache.keys()), before));
  };
  for (const key_state state : {key_state::rotated, key_state::unrotated}) {
    refuses(posenc::sinusoidal<float>({.dim = dim}), state, "rows are added to the input and lie inside the keys");
    refuses(posenc::learned<float>({.rows = 8, .dim = dim}, table), state, "lie inside the keys");
    refuses(posenc::compose(posenc::causal{}, posenc::sinusoidal<float>({.dim = dim})), state, "lie inside the keys");
  }
  const posenc::rope<float> rounded({.head_dim = dim, .angles = posenc::angle_mode::float32});
  refuses(rounded, key_state::rotated, "float32 angles do not add up");
  refuses(posenc::run_time_policy<>{.rotation = rounded}, key_state::rotated, "float32 angles do not add up");
  refuses(hooks_only{}, key_state::rotated,
          "must have a shift of cached keys, got a part that turns keys and has none");
  refuses(turning.table(0, 100), key_state::rotated, "must have a shift of cached keys");
  refuses(posenc::compose(turning, norm_with(2)), key_state::rotated, "must not scale channels after the rotation");
  refuses(posenc::compose(turning, turning), key_state::rotated, "must hold one part that turns keys");
  refuses(posenc::rope<float>({.head_dim = 4}), key_state::rotated, "must equal head_dim");
  // Raw keys move under all of them.
  const auto moves = [&](const auto& encoder) {
    auto cache = f.filled(encoder, key_state::unrotated);
    cache.shift(-5, encoder);
    CHECK(cache.first_position() == 45);
  };
  moves(rounded);
  moves(hooks_only{});
  moves(posenc::compose(turning, norm_with(2)));
}

TEST_CASE("cached_keys: keys are turned again when a length-dependent scaling changes") {
  const fixture f;
  const auto at_length = [](std::int64_t n) {
    return posenc::rope<float>(
        {.head_dim = dim, .scaling = posenc::dynamic_ntk{.factor = 2, .max_position_embeddings = 8, .length = n}});
  };
  auto cache = f.filled(at_length(8), key_state::rotated, 0);
  CHECK(distance(gathered(cache.keys()), f.transformed(at_length(16), 0)) > 0.01);
  cache.rerotate(at_length(8), at_length(16));
  CHECK(distance(gathered(cache.keys()), f.transformed(at_length(16), 0)) <= 5e-7);
  const auto before = gathered(cache.keys());
  CHECK_THROWS_WITH(cache.rerotate(at_length(16), posenc::rope<float>({.head_dim = 4})), contains("rerotate"));
  CHECK(same_bits(gathered(cache.keys()), before));
  auto raw = f.filled(at_length(8), key_state::unrotated, 0);
  raw.rerotate(at_length(8), at_length(16));
  CHECK(same_bits(gathered(raw.keys()), f.k));
}

TEST_CASE("cached_keys: converted rows are rounded once and keep their bits where the type stays") {
  std::mt19937 random(22);
  const auto check = [&]<class To, class From>(To, From) {
    for (const std::int64_t step : {1, 2})
      for (const std::int64_t n : {1, 7, 8, 19, 64}) {
        const auto from = random_stored<From>(random, {.tokens = n, .dim = step});
        std::vector<To> to(static_cast<std::size_t>(n));
        posenc::detail::convert_row(to.data(), from.data.data(), step, n);
        int wrong = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          const auto x = static_cast<double>(posenc::widen(from.data[static_cast<std::size_t>(i * step)]));
          wrong += to[static_cast<std::size_t>(i)] != posenc::narrow<To>(x);
        }
        CHECK(wrong == 0);
      }
  };
  check(float{}, float{});
  check(float{}, double{});
  check(Eigen::half{}, float{});
  check(Eigen::half{}, double{});
  check(Eigen::bfloat16{}, float{});
  check(float{}, Eigen::half{});
  check(Eigen::half{}, Eigen::half{});
  check(double{}, Eigen::bfloat16{});
}
