// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>
#include <posenc/attention/bias.hpp>
#include <posenc/attention/index_masks.hpp>
#include <posenc/attention/mask_tensor.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/alibi.hpp>

#include "support/catch.hpp"

#include <cstring>
#include <limits>
#include <vector>

namespace {

using posenc::view;
using posenc_test::contains;

constexpr double inf = std::numeric_limits<double>::infinity();

/// Two queries and two keys of four channels; out holds 7 until something is written.
struct small {
  std::vector<float> q{1, 2, 3, 4, 5, 6, 7, 8}, k{1, 0, 0, 1, 0, 1, 1, 0}, v{1, 2, 3, 4, 5, 6, 7, 8},
      out{7, 7, 7, 7, 7, 7, 7, 7};
  posenc::shape s{.tokens = 2, .dim = 4};

  template <class Policy>
  void run(const Policy& policy, const posenc::attention_options<float>& o = {}) {
    posenc::attention(view{q.data(), s}, view{k.data(), s}, view{v.data(), s}, view{out.data(), s}, policy, o);
  }
  [[nodiscard]] bool untouched() const { return out == std::vector<float>(8, 7); }
};

struct no_workers {
  static std::int64_t concurrency() { return 0; }
  template <class F>
  void parallel_for(std::int64_t n, F&& f) const {
    for (std::int64_t i = 0; i < n; ++i) f(i, std::int64_t{0});
  }
};

/// A part that is bound: its memory holds one sink per head.
struct bound_sinks {
  struct closure {
    const float* values;
    [[nodiscard]] float sink(std::int64_t head) const { return values[head]; }
  };
  [[nodiscard]] static std::size_t workspace_bytes(const posenc::call& c) {
    return static_cast<std::size_t>(c.heads) * sizeof(float);
  }
  [[nodiscard]] static closure bind(std::byte* memory, const posenc::call& c) {
    auto* values = reinterpret_cast<float*>(memory);
    for (std::int64_t h = 0; h < c.heads; ++h) values[h] = 0.25f;
    return {values};
  }
};

}  // namespace

TEST_CASE("attention refuses an executor without workers before it writes") {
  small x;
  CHECK_THROWS_WITH(posenc::attention(view{x.q.data(), x.s}, view{x.k.data(), x.s}, view{x.v.data(), x.s},
                                      view{x.out.data(), x.s}, posenc::compose(), {}, no_workers{}),
                    contains("executor.concurrency() must be at least 1, got 0"));
  CHECK(x.untouched());
  CHECK_THROWS_WITH(posenc::attention_workspace(view{x.q.data(), x.s}, view{x.k.data(), x.s}, view{x.v.data(), x.s},
                                                view{x.out.data(), x.s}, posenc::compose(), {}, -1),
                    contains("workers must be at least 1, got -1"));
}

TEST_CASE("without keys a bound part still has its memory") {
  small x;
  std::vector<float> lse(2);
  const posenc::shape none{.tokens = 0, .dim = 4};
  posenc::attention(view{x.q.data(), x.s}, view<float>(nullptr, none), view<float>(nullptr, none),
                    view{x.out.data(), x.s}, bound_sinks{}, {.lse = view{lse.data(), {.tokens = 2, .dim = 1}}});
  CHECK(x.out == std::vector<float>(8, 0));
  CHECK(lse == std::vector<float>(2, 0.25f));
}

TEST_CASE("lse may lie in none of the arrays of the call") {
  small x;
  for (float* where : {x.q.data(), x.k.data(), x.v.data(), x.out.data()})
    CHECK_THROWS_WITH(x.run(posenc::compose(), {.lse = view{where, {.tokens = 2, .dim = 1}}}),
                      contains("lse must not overlap q, k, v or out"));
  CHECK(x.untouched());
}

TEST_CASE("attention may write over q in a packed buffer, and not over a part of k") {
  std::vector<float> packed(2 * 3 * 4);
  small x;
  for (std::size_t t = 0; t < 2; ++t) {
    std::memcpy(&packed[t * 12], &x.q[t * 4], 16);
    std::memcpy(&packed[t * 12 + 4], &x.k[t * 4], 16);
    std::memcpy(&packed[t * 12 + 8], &x.v[t * 4], 16);
  }
  const posenc::strides by{.batch = 24, .token = 12, .head = 4, .dim = 1};
  const auto slot = [&](std::size_t i) { return view<float>(packed.data() + 4 * i, x.s, by); };
  posenc::attention(slot(0), slot(1), slot(2), slot(0), posenc::causal{});
  x.run(posenc::causal{});
  for (std::size_t t = 0; t < 2; ++t)
    for (std::size_t d = 0; d < 4; ++d) CHECK(packed[t * 12 + d] == x.out[t * 4 + d]);
  CHECK_THROWS_WITH(
      posenc::attention(slot(0), slot(1), slot(2), view<float>(packed.data() + 2, x.s, by), posenc::causal{}),
      contains("out must"));
  CHECK_THROWS_WITH(posenc::attention(slot(0), slot(1), slot(2), view<float>(x.out.data(), x.s, {.token = 2, .dim = 1}),
                                      posenc::causal{}),
                    contains("out must not overlap itself"));
}

TEST_CASE("masks by index lie inside the call") {
  small x;
  CHECK_THROWS_WITH(x.run(posenc::cache_length(3)), contains("length must lie in 0..keys of the call, got 3"));
  CHECK_THROWS_WITH(x.run(posenc::cache_length(std::span<const std::int64_t>{})),
                    contains("must list one length per batch row"));
  const std::vector<std::int64_t> begin{2}, end{1}, beyond{9};
  CHECK_THROWS_WITH(x.run(posenc::padding{begin, end}), contains("begin must lie in 0..end, got 2"));
  CHECK_THROWS_WITH(x.run(posenc::padding{{}, beyond}), contains("end must not exceed the keys of the call, got 9"));
  CHECK(x.untouched());
}

TEST_CASE("modifiers and options are finite numbers") {
  small x;
  CHECK_THROWS_WITH(x.run(posenc::compose(), {.scale = inf}), contains("scale must be finite"));
  CHECK_THROWS_WITH(posenc::logit_scale(inf), contains("factor must be finite"));
  CHECK_THROWS_WITH(x.run(posenc::sinks<float>(std::numeric_limits<float>::infinity())),
                    contains("must be numbers below infinity"));
  CHECK_THROWS_WITH(posenc::alibi<float>(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()}),
                    contains("slopes must be numbers"));
  CHECK(x.untouched());
}

TEST_CASE("positions of several axes are refused where no part takes them") {
  small x;
  const std::vector<std::int64_t> ids{0, 1, 0, 1};
  CHECK_THROWS_WITH(x.run(posenc::alibi<float>{1}, {.query_positions = posenc::positions::axes(ids, 2)}),
                    contains("positions must have one axis"));
  CHECK(x.untouched());
}

TEST_CASE("rotate reaches the rotation of a run-time policy") {
  posenc::run_time_policy<> p;
  const posenc::rope<float> r{{.head_dim = 4}};
  p.rotation = r;
  small direct;
  small packed;
  r.rotate(view{direct.q.data(), direct.s}, posenc::positions::from(3));
  posenc::rotate(posenc::compose(p), view{packed.q.data(), packed.s}, posenc::positions::from(3));
  CHECK(direct.q == packed.q);
  p.shift(view{packed.q.data(), packed.s}, 2);
  r.shift(view{direct.q.data(), direct.s}, 2);
  CHECK(direct.q == packed.q);
}

TEST_CASE("bias functions refuse heads and masks that do not fit") {
  std::vector<float> line(3), bias(2 * 2 * 3);
  const posenc::alibi<float> two{2};
  CHECK_THROWS_WITH(posenc::distance_line<float>(two, -1, 0, line), contains("head must not be negative"));
  CHECK_THROWS_WITH(posenc::add_bias_row<float>(two, {.head = -1}, 0, line),
                    contains("must not hold a negative index"));
  const std::vector<float> mask(2 * 2);
  CHECK_THROWS_WITH(
      posenc::fill_bias<float>(posenc::compose(posenc::additive_mask<float>(mask.data(), {.queries = 2, .keys = 2})), 2,
                               {}, 2, {}, 3, bias),
      contains("mask: keys must equal those of the call"));
}
