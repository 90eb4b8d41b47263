// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"

#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/attention/two_pass.hpp>
#include <posenc/encoders/cope.hpp>

#include <Eigen/Core>
#include <unsupported/Eigen/AutoDiff>

#include "reference/contextual.hpp"
#include "unit/attention/tensors.hpp"
#include "unit/encoders/refusal.hpp"

namespace {

using namespace posenc_test;
using dense::extent;

struct setting {
  extent heads, kv_heads, queries, keys, dim, npos;
  double amplitude;
  double float_bound;  // 2e-5 for logits of the size that amplitude 2 and 3 give
};

template <class C>
struct data {
  stored<C> q, k, v;
  std::vector<C> table;
  dense::problem problem;
  dense::contextual contextual;
  explicit data(const setting& s, unsigned seed = 3) {
    std::mt19937 random(seed);
    q = random_stored<C>(random, {1, s.queries, s.heads, s.dim}, s.amplitude);
    k = random_stored<C>(random, {1, s.keys, s.kv_heads, s.dim}, s.amplitude);
    v = random_stored<C>(random, {1, s.keys, s.kv_heads, 7});
    table = random_stored<C>(random, {1, s.npos, 1, s.dim}).data;
    problem = {.q = to_dense(q), .k = to_dense(k), .v = to_dense(v), .scale = 0.3};
    contextual.table.assign(table.begin(), table.end());
  }
};

const std::array<setting, 4> settings{setting{4, 2, 70, 70, 10, 9, 1, 3e-6}, setting{2, 2, 3, 333, 16, 64, 2, 2e-5},
                                      setting{2, 1, 200, 200, 8, 1, 1, 3e-6}, setting{1, 1, 1, 2000, 8, 300, 3, 2e-5}};

template <class C>
void check(const setting& s, bool causal, double bound) {
  data<C> x(s);
  const extent past = s.keys - s.queries;
  if (causal) x.problem.visible = [&](extent, extent, extent i, extent j) { return j <= past + i; };
  const dense::answer expected = dense::attention(dense::with_contextual(x.problem, x.contextual));
  const posenc::cope<C> encoder({.head_dim = s.dim}, x.table);
  stored<C> out({1, s.queries, s.heads, 7}, 5);
  stored<C> lse({1, s.queries, s.heads, 1}, 5);
  stored<C> weights({1, s.queries, s.heads, s.keys}, 5);
  const auto run = [&](const auto& policy) {
    posenc::attention_two_pass(x.q.view(), x.k.view(), x.v.view(), out.view(), policy,
                               {.query_positions = posenc::positions::from(past), .scale = 0.3, .lse = lse.view()});
    INFO("two passes, keys " << s.keys << ", causal " << causal);
    CHECK(relative_error(out.data, expected.out.data) <= bound);
    CHECK(relative_error(lse.data, expected.lse.data) <= bound);
    posenc::attention_reference(
        x.q.view(), x.k.view(), x.v.view(), out.view(), policy,
        {.query_positions = posenc::positions::from(past), .scale = 0.3, .lse = lse.view(), .weights = weights.view()});
    CHECK(relative_error(out.data, expected.out.data) <= bound);
    CHECK(relative_error(lse.data, expected.lse.data) <= bound);
    CHECK(relative_error(weights.data, expected.weights.data) <= bound);
  };
  if (causal) {
    run(posenc::compose(encoder, posenc::causal{}));
  } else {
    run(encoder);
  }
}

}  // namespace

TEST_CASE("contextual positions are those of the definition") {
  for (const setting& s : settings)
    for (const bool causal : {false, true}) {
      check<double>(s, causal, 1e-13);
      check<float>(s, causal, s.float_bound);
    }
}

TEST_CASE("the bias joins the logits at its place in the pack, scaled as its order says") {
  const setting s{2, 2, 20, 20, 6, 5, 2, 2e-5};
  data<double> x(s);
  stored<double> out({1, 20, 2, 7});
  const auto error = [&](const auto& policy, const dense::problem& p) {
    posenc::attention_two_pass(x.q.view(), x.k.view(), x.v.view(), out.view(), policy, {.scale = 0.3});
    return relative_error(out.data, dense::attention(p).out.data);
  };
  const posenc::cope<double> encoder({.head_dim = 6}, x.table);
  const auto cap = [](double t) { return 2 * std::tanh(t / 2); };

  SECTION("a cap before it is part of the gates, a cap after it of the whole") {
    dense::problem capped = x.problem;
    capped.logit = [&](extent, extent, extent, extent, double t) { return cap(t); };
    CHECK(error(posenc::compose(posenc::softcap(2), encoder), dense::with_contextual(capped, x.contextual)) <= 1e-13);
    dense::problem after = dense::with_contextual(x.problem, x.contextual);
    after.logit = [&, before = after.logit](extent b, extent h, extent i, extent j, double t) {
      return cap(before(b, h, i, j, t));
    };
    CHECK(error(posenc::compose(encoder, posenc::softcap(2)), after) <= 1e-13);
  }
  SECTION("two in one pack: the second one's gates see the first") {
    const dense::problem once = dense::with_contextual(x.problem, x.contextual);
    CHECK(error(posenc::compose(encoder, encoder), dense::with_contextual(once, x.contextual)) <= 1e-13);
  }
  SECTION("a query scale moves the gates and leaves the bias alone, but in RAM's order") {
    dense::problem warm = x.problem;
    warm.row_factor = [](extent, extent, extent) { return 1.7; };
    CHECK(error(posenc::compose(posenc::logit_scale(1.7), encoder), dense::with_contextual(warm, x.contextual)) <=
          1e-13);
    x.contextual.inside_scale = true;
    x.contextual.bias_scale = 0.5;
    const posenc::cope<double> ram({.head_dim = 6, .bias_scale = 0.5, .order = posenc::cope_order::before_scale},
                                   x.table);
    CHECK(error(posenc::compose(posenc::logit_scale(1.7), ram), dense::with_contextual(warm, x.contextual)) <= 1e-13);
  }
  SECTION("a factor of 0 leaves gates of one half and the whole bias") {
    dense::problem none = x.problem;
    none.row_factor = [](extent, extent, extent) { return 0.0; };
    CHECK(error(posenc::compose(posenc::logit_scale(0), encoder), dense::with_contextual(none, x.contextual)) <= 1e-13);
  }
}

TEST_CASE("a cached step gives the last row of the whole sequence") {
  const setting s{2, 2, 90, 90, 8, 12, 2, 2e-5};
  data<float> x(s);
  const auto policy = posenc::compose(posenc::cope<float>({.head_dim = 8}, x.table), posenc::causal{});
  stored<float> whole({1, 90, 2, 7});
  posenc::attention_two_pass(x.q.view(), x.k.view(), x.v.view(), whole.view(), policy);
  for (const extent n : {1, 2, 40, 90}) {
    stored<float> out({1, 1, 2, 7});
    const posenc::view<float> query(&x.q(0, n - 1, 0, 0), {.tokens = 1, .heads = 2, .dim = 8});
    const posenc::view<float> keys(x.k.data.data(), {.tokens = n, .heads = 2, .dim = 8});
    const posenc::view<float> sums(x.v.data.data(), {.tokens = n, .heads = 2, .dim = 7});
    posenc::attention_two_pass(query, keys, sums, out.view(), policy,
                               {.query_positions = posenc::positions::from(n - 1)});
    std::vector<double> expected;
    for (extent h = 0; h < 2; ++h)
      for (extent d = 0; d < 7; ++d) expected.push_back(static_cast<double>(whole(0, n - 1, h, d)));
    CHECK(relative_error(out.data, expected) <= 2e-6);
  }
}

TEST_CASE("logits without bound: gates of 0 and 1, NaN in its row alone") {
  const setting s{1, 1, 8, 8, 4, 5, 1, 3e-6};
  data<float> x(s);
  const auto policy = posenc::compose(posenc::cope<float>({.head_dim = 4}, x.table), posenc::causal{});
  SECTION("large") {
    for (float& value : x.q.data) value *= 1e4f;
    for (float& value : x.k.data) value *= 1e4f;
    x.problem.q = to_dense(x.q);
    x.problem.k = to_dense(x.k);
    x.problem.visible = [](extent, extent, extent i, extent j) { return j <= i; };
    stored<float> out({1, 8, 1, 7});
    posenc::attention_two_pass(x.q.view(), x.k.view(), x.v.view(), out.view(), policy, {.scale = 0.3});
    CHECK(relative_error(out.data, dense::attention(dense::with_contextual(x.problem, x.contextual)).out.data) <= 2e-6);
  }
  SECTION("NaN") {
    stored<float> before({1, 8, 1, 7});
    stored<float> after({1, 8, 1, 7});
    posenc::attention_two_pass(x.q.view(), x.k.view(), x.v.view(), before.view(), policy);
    x.q(0, 5, 0, 2) = nan_f;
    posenc::attention_two_pass(x.q.view(), x.k.view(), x.v.view(), after.view(), policy);
    for (extent i = 0; i < 8; ++i)
      for (extent d = 0; d < 7; ++d) {
        if (i == 5) {
          CHECK(std::isnan(after(0, i, 0, d)));
        } else {
          CHECK(after(0, i, 0, d) == before(0, i, 0, d));
        }
      }
    x.q(0, 5, 0, 2) = 1;
    x.k(0, 6, 0, 1) = nan_f;  // hidden from the rows before it, seen by itself and the last
    posenc::attention_two_pass(x.q.view(), x.k.view(), x.v.view(), after.view(), policy);
    for (extent i = 0; i < 8; ++i) CHECK(std::isnan(after(0, i, 0, 0)) == (i >= 6));
    for (extent d = 0; d < 7; ++d) CHECK(after(0, 4, 0, d) == before(0, 4, 0, d));
  }
}

TEST_CASE("derivatives run through gates and table") {
  using dual = Eigen::AutoDiffScalar<Eigen::Matrix<double, 1, 1>>;
  const extent n = 6, dim = 3;
  const auto q = values<double>(n * dim), k = values<double>(n * dim, 1), v = values<double>(n, 2),
             e = values<double>(4 * dim, 3);
  // The sum of the outputs as q, k and e move along fixed directions.
  const auto sum = [&]<class C>(const C& t) {
    const auto moved = [&](const std::vector<double>& x, int seed) {
      const auto direction = values<double>(static_cast<std::int64_t>(x.size()), seed);
      std::vector<C> out;
      for (std::size_t i = 0; i < x.size(); ++i) out.push_back(C(C(x[i]) + C(direction[i]) * t));
      return out;
    };
    std::vector<C> mq = moved(q, 4), mk = moved(k, 5), me = moved(e, 6), mv = moved(v, 7);
    std::vector<C> out(static_cast<std::size_t>(n), C(0.0));
    const posenc::cope<C> encoder({.head_dim = dim}, me);
    posenc::attention_reference(
        posenc::view<C>(mq.data(), {.tokens = n, .dim = dim}), posenc::view<C>(mk.data(), {.tokens = n, .dim = dim}),
        posenc::view<C>(mv.data(), {.tokens = n, .dim = 1}), posenc::view<C>(out.data(), {.tokens = n, .dim = 1}),
        posenc::compose(encoder, posenc::causal{}));
    C total = C(0.0);
    for (std::size_t i = 0; i < out.size(); ++i) total = C(total + C(1.0 + static_cast<double>(i)) * out[i]);
    return total;
  };
  dual t(0.0);
  t.derivatives()(0) = 1;
  const double step = 1e-5;
  const double quotient = (sum(step) - sum(-step)) / (2 * step);
  const dual found = sum(t);
  CHECK(std::abs(found.value() - sum(0.0)) <= 1e-14 * std::abs(found.value()));
  CHECK(std::abs(found.derivatives()(0) - quotient) <= 1e-8 * std::abs(quotient));
}

TEST_CASE("cope refuses what it does not fit") {
  using posenc::positions;
  const std::vector<float> table(12);
  const auto text = [&](const posenc::cope_options& o, std::size_t n) {
    return refusal([&] { posenc::cope<float>(o, std::span(table).first(n)); });
  };
  CHECK_THAT(text({.head_dim = 0}, 12), contains("head_dim"));
  CHECK_THAT(text({.head_dim = 5}, 12), contains("pos_emb"));
  CHECK_THAT(text({.head_dim = 4}, 0), contains("pos_emb"));
  CHECK_THAT(text({.head_dim = 4, .bias_scale = HUGE_VAL}, 12), contains("bias_scale"));

  const posenc::cope<float> encoder({.head_dim = 4}, table);
  const auto call = [&](extent queries, extent keys, extent dim, const positions& q_at, const positions& k_at) {
    std::vector<float> q(static_cast<std::size_t>(queries * dim)), k(static_cast<std::size_t>(keys * dim)), out(q);
    return refusal([&] {
      posenc::attention_two_pass(posenc::view<const float>(q.data(), {.tokens = queries, .dim = dim}),
                                 posenc::view<const float>(k.data(), {.tokens = keys, .dim = dim}),
                                 posenc::view<const float>(k.data(), {.tokens = keys, .dim = dim}),
                                 posenc::view<float>(out.data(), {.tokens = queries, .dim = dim}), encoder,
                                 {.query_positions = q_at, .key_positions = k_at});
    });
  };
  const std::vector<std::int64_t> wrapped{4, 5, 2, 3};
  const std::vector<std::int64_t> apart{0, 2, 7, 9};
  const std::vector<std::int64_t> last{9};
  CHECK(call(2, 4, 4, positions::from(2), {}) == "nothing thrown");
  CHECK(call(4, 4, 4, positions::from(-3), positions::from(-3)) == "nothing thrown");
  CHECK(call(4, 4, 4, positions::listed(apart), positions::listed(apart)) == "nothing thrown");
  CHECK(call(1, 4, 4, positions::listed(last), positions::listed(apart)) == "nothing thrown");
  CHECK(call(0, 4, 4, {}, {}) == "nothing thrown");
  CHECK_THAT(call(2, 4, 6, positions::from(2), {}), contains("head_dim"));
  CHECK_THAT(call(2, 4, 4, {}, {}), contains("cross attention"));
  CHECK_THAT(call(6, 4, 4, {}, {}), contains("cross attention"));
  CHECK_THAT(call(1, 4, 4, positions::from(5), positions::listed(wrapped)), contains("query_positions"));
}

TEST_CASE("cope describes itself") {
  const std::vector<float> table(12);
  const posenc::cope<float> encoder({.head_dim = 4}, table);
  CHECK(encoder.npos() == 3);
  CHECK(encoder.describe().parameters == 12);
  CHECK(encoder.describe().table_bytes == 48);
  CHECK(encoder.describe().shift == posenc::cache_shift::keep_keys);
}
