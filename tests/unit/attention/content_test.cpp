// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/attention.hpp>
#include <posenc/attention/content.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/reference.hpp>

#include "support/catch.hpp"
#include "unit/attention/tensors.hpp"

#include <cmath>

namespace {

using namespace posenc_test;
using dense::extent;

/// term(i, j) = weight * factor(i) * (sum of key j) + (sum of query i as scored): the least part with content terms.
struct sums {
  double weight = 1;

  [[nodiscard]] std::int64_t scratch_size(std::int64_t rows, std::int64_t keys, std::int64_t dim) const {
    return rows * (keys + posenc::lane_slack) + dim;
  }
  template <class B, class Keys, class C = typename posenc::lanes<B>::scalar>
  void prepare(const posenc::content_tile<C>& t, const Keys&, C* scratch, const C** lines) const {
    C* key = scratch + t.rows * (t.keys + posenc::lane_slack);
    for (std::int64_t r = 0; r < t.rows; ++r) {
      C* line = scratch + r * (t.keys + posenc::lane_slack);
      C own = 0;
      for (std::int64_t d = 0; d < t.dim; ++d) own += t.query[r * t.dim + d];
      for (std::int64_t j = t.seen[r].lo; j < t.seen[r].hi; ++j) {
        t.copy_key(t.first + j, key);
        C sum = 0;
        for (std::int64_t d = 0; d < t.dim; ++d) sum += key[d];
        line[j] = own + static_cast<C>(weight) * t.factor[r] * sum;
      }
      lines[r] = line;
    }
  }
};

/// Adds count * (number of keys seen) to every channel: the least part with values.
struct counted_values {
  [[nodiscard]] std::int64_t state_size(std::int64_t) const { return 1; }
  template <class B, class Keys, class C = typename posenc::lanes<B>::scalar>
  void add_weights(C* state, const posenc::row&, const Keys& keys, std::int64_t first, const C* w,
                   std::int64_t n) const {
    for (std::int64_t j = 0; j < n; ++j) state[0] += w[j] * static_cast<C>(keys.position(first + j));
  }
  template <class B, class C = typename posenc::lanes<B>::scalar>
  void add_values(const C* state, const posenc::row&, C* sum, std::int64_t n) const {
    for (std::int64_t d = 0; d < n; ++d) sum[d] += state[0];
  }
};

}  // namespace

TEMPLATE_TEST_CASE("content terms stand at their place in the pack, and values are added before the division", "",
                   float, Eigen::half) {
  using S = TestType;
  constexpr extent heads = 4, kv_heads = 2, dim = 6;
  for (const extent queries : {extent{1}, extent{150}})
    for (const bool cap_first : {false, true}) {
      const extent keys = 270;
      std::mt19937 random(5);
      auto q = random_stored<S>(random, {1, queries, heads, dim});
      auto k = random_stored<S>(random, {1, keys, kv_heads, dim});
      auto v = random_stored<S>(random, {1, keys, kv_heads, dim});
      dense::problem p{.q = to_dense(q), .k = to_dense(k), .v = to_dense(v), .scale = 0.5};
      const auto term = [&](extent h, extent i, extent j) {
        double own = 0, key = 0;
        for (extent d = 0; d < dim; ++d) own += p.q(0, i, h, d), key += p.k(0, j, h / 2, d);
        return 0.5 * own + 2 * 0.5 * key;
      };
      p.logit = [&](extent, extent h, extent i, extent j, double s) {
        return cap_first ? std::tanh(s) + term(h, i, j) : std::tanh(s + term(h, i, j));
      };
      p.visible = [&](extent, extent, extent i, extent j) { return j <= 119 + i; };
      dense::answer expected = dense::attention(p);
      for (extent i = 0; i < queries; ++i)
        for (extent h = 0; h < heads; ++h)
          for (extent j = 0; j < keys; ++j)
            for (extent d = 0; d < dim; ++d)
              expected.out(0, i, h, d) += expected.weights(0, i, h, j) * static_cast<double>(j);
      stored<float> out({1, queries, heads, dim}, 5);
      const auto check = [&](const auto& policy) {
        posenc::attention(q.view(), k.view(), v.view(), out.view(), policy,
                          {.query_positions = posenc::positions::from(119), .scale = 0.5});
        CHECK(relative_error(out.data, expected.out.data) <= 2e-6);
        stored<float> plain({1, queries, heads, dim}, 5);
        posenc::attention_reference(q.view(), k.view(), v.view(), plain.view(), policy,
                                    {.query_positions = posenc::positions::from(119), .scale = 0.5});
        CHECK(relative_error(plain.data, expected.out.data) <= 2e-6);
      };
      if (cap_first) {
        check(posenc::compose(posenc::softcap{1}, sums{2}, posenc::causal{}, counted_values{}));
      } else {
        check(posenc::compose(sums{2}, posenc::softcap{1}, counted_values{}, posenc::causal{}));
      }
    }
}

TEST_CASE("a pack without content terms or values keeps nothing for them") {
  using B = posenc::simd::batch<float>;
  using plain = std::tuple<posenc::softcap, posenc::causal>;
  using with = std::tuple<sums, posenc::causal>;
  using work = posenc::detail::content_work<B, posenc::contiguous_keys, plain>;
  STATIC_REQUIRE_FALSE(work::terms);
  STATIC_REQUIRE_FALSE(work::values);
  CHECK(work::bytes(plain{posenc::softcap{1}, {}}, 96, 96, 128, 64, 64) == 0);
  CHECK(posenc::detail::content_work<B, posenc::contiguous_keys, with>::bytes(with{}, 96, 96, 128, 64, 64) >=
        96 * (128 + posenc::lane_slack) * sizeof(float));
}
