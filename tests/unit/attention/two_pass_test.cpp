// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/attention/mask_tensor.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/attention/two_pass.hpp>
#include <posenc/encoders/alibi.hpp>

#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "unit/attention/tensors.hpp"
#include "unit/encoders/refusal.hpp"

#include <thread>

namespace {

using namespace posenc_test;
using dense::extent;

/// A part of one's own: from every logit the mean of the row is taken away, hidden keys not counted.
struct centred {
  [[nodiscard]] std::int64_t scratch_size(std::int64_t, std::int64_t keys, std::int64_t) const { return keys; }
  template <class B, class Keys, class C = typename posenc::lanes<B>::scalar>
  void transform_logits(const posenc::logit_row<C>& line, const Keys&, C* scratch) const {
    C sum = C(0);
    extent n = 0;
    for (extent j = line.seen.lo; j < line.seen.hi; ++j) {
      scratch[j] = line.logits[j];
      if (scratch[j] == -std::numeric_limits<C>::infinity()) continue;
      sum += scratch[j];
      ++n;
    }
    for (extent j = line.seen.lo; j < line.seen.hi; ++j) line.logits[j] = scratch[j] - sum / static_cast<C>(n);
  }
};
static_assert(posenc::has_transform_logits<centred, float, posenc::listed_keys>);

/// Its meaning, for the oracle: the mean is that of the visible logits of the row.
dense::problem with_centred(const dense::problem& p) {
  dense::problem out = p;
  out.logit = [a = dense::attention(p), keys = p.k.tokens, before = p.logit](extent b, extent h, extent i, extent j,
                                                                             double s) {
    double sum = 0;
    double n = 0;
    for (extent x = 0; x < keys; ++x)
      if (std::isfinite(a.logits(b, i, h, x))) sum += a.logits(b, i, h, x), n += 1;
    return (before ? before(b, h, i, j, s) : s) - sum / n;
  };
  return out;
}

/// One policy type for most of what follows: a bias, the part, a cap, masks.
auto with_masks(const posenc::run_time_masks& masks,
                const posenc::alibi<float>& bias = posenc::alibi<float>(std::vector<float>(4, 0.0f)), double cap = 0) {
  return posenc::compose(bias, centred{}, posenc::run_time_policy<>{.masks = masks, .softcap = cap});
}

struct tensors {
  stored<float> q, k, v;
  dense::problem problem;
  tensors(extent batch, extent queries, extent keys, extent heads, extent kv_heads, extent dim = 10,
          extent width = 13) {
    std::mt19937 random(11);
    q = random_stored<float>(random, {batch, queries, heads, dim});
    k = random_stored<float>(random, {batch, keys, kv_heads, dim});
    v = random_stored<float>(random, {batch, keys, kv_heads, width});
    problem = {.q = to_dense(q), .k = to_dense(k), .v = to_dense(v), .scale = 0.5};
  }
  [[nodiscard]] stored<float> out() const {
    return stored<float>({q.extents.batch, q.extents.tokens, q.extents.heads, v.extents.dim}, 7);
  }
  [[nodiscard]] stored<float> lse() const {
    return stored<float>({q.extents.batch, q.extents.tokens, q.extents.heads, 1}, 7);
  }
};

/// Two threads, every second item each.
struct two_workers {
  [[nodiscard]] std::int64_t concurrency() const { return 2; }
  template <class F>
  void parallel_for(std::int64_t n, F&& f) {
    std::thread other([&] {
      for (std::int64_t i = 1; i < n; i += 2) f(i, std::int64_t{1});
    });
    for (std::int64_t i = 0; i < n; i += 2) f(i, std::int64_t{0});
    other.join();
  }
};

stored<double> widened(const stored<float>& x) {
  stored<double> out(x.extents);
  std::copy(x.data.begin(), x.data.end(), out.data.begin());
  return out;
}

template <class Policy>
void check(tensors& t, const Policy& policy, const dense::problem& p, const posenc::positions& q_at = {},
           const posenc::positions& k_at = {}) {
  const dense::answer expected = dense::attention(p);
  stored<float> out = t.out();
  stored<float> lse = t.lse();
  posenc::attention_two_pass(t.q.view(), t.k.view(), t.v.view(), out.view(), policy,
                             {.query_positions = q_at, .key_positions = k_at, .scale = 0.5, .lse = lse.view()});
  CHECK(relative_error(out.data, expected.out.data) <= 2e-6);
  CHECK(relative_error(lse.data, expected.lse.data) <= 2e-6);
  // One score at a time, in double.
  const auto q = widened(t.q), k = widened(t.k), v = widened(t.v);
  stored<double> wide(out.extents, 7);
  stored<double> sums(lse.extents, 7);
  posenc::attention_reference(q.read(), k.read(), v.read(), wide.view(), policy,
                              {.query_positions = q_at, .key_positions = k_at, .scale = 0.5, .lse = sums.view()});
  CHECK(relative_error(wide.data, expected.out.data) <= 1e-7);
  CHECK(relative_error(sums.data, expected.lse.data) <= 1e-7);
}

}  // namespace

TEST_CASE("a policy without such a part gives what attention gives") {
  for (const auto& [queries, keys] : {std::pair<extent, extent>{1, 700}, {5, 700}, {150, 150}}) {
    tensors t(2, queries, keys, 4, 2);
    const auto policy = posenc::compose(posenc::alibi<float>(4), posenc::causal{}, posenc::sinks<float>(0.5f));
    dense::problem p = t.problem;
    const extent past = keys - queries;
    p.logit = [&](extent, extent h, extent i, extent j, double s) {
      return s - dense::alibi_slope(h, 4) * std::abs(static_cast<double>(j - past - i));
    };
    p.visible = [&](extent, extent, extent i, extent j) { return j <= past + i; };
    p.sink = [](extent) { return 0.5; };
    check(t, policy, p, posenc::positions::from(past));
  }
}

TEST_CASE("a part that needs whole rows sees every logit, those of hidden keys as minus infinity") {
  tensors t(2, 37, 300, 4, 2);
  SECTION("no mask") { check(t, with_masks({}), with_centred(t.problem)); }
  SECTION("keys in no order") {
    std::vector<std::int64_t> at(300);
    for (extent j = 0; j < 300; ++j) at[static_cast<std::size_t>(j)] = (j * 7) % 300;
    t.problem.visible = [&](extent, extent, extent i, extent j) { return at[static_cast<std::size_t>(j)] <= 100 + i; };
    check(t, with_masks({.causal = true}), with_centred(t.problem), posenc::positions::from(100),
          posenc::positions::listed(at));
  }
  SECTION("transforms before and after it") {
    const posenc::alibi<float> bias(4);
    t.problem.logit = [](extent, extent h, extent i, extent j, double s) {
      return s - dense::alibi_slope(h, 4) * std::abs(static_cast<double>(j - i));
    };
    dense::problem p = with_centred(t.problem);
    p.logit = [before = p.logit](extent b, extent h, extent i, extent j, double s) {
      return 2 * std::tanh(before(b, h, i, j, s) / 2);
    };
    check(t, with_masks({}, bias, 2), p);
  }
  SECTION("rows that see nothing") {
    t.problem.visible = [](extent, extent, extent i, extent j) { return i >= 5 && j < 12; };
    const std::vector<std::int64_t> starts{0, 5, 37}, key_starts{0, 0, 12};
    check(t, with_masks({.documents = posenc::documents(starts, key_starts)}), with_centred(t.problem));
  }
}

TEST_CASE("the gap of two intervals and what a free-form mask hides are hidden from such a part too") {
  tensors t(2, 37, 300, 4, 2);
  std::vector<std::uint8_t> sees(37 * 300, 1);
  const bool gaps = GENERATE(false, true);
  if (gaps)
    for (extent x = 0; x < 37 * 300; ++x) sees[static_cast<std::size_t>(x)] = x % 7 == 2 || x % 11 == 5;
  // What no row sees holds NaN and infinity.
  const auto far = [](extent j) { return (20 <= j && j <= 120) || j >= 200; };
  for (extent b = 0; b < 2; ++b)
    for (extent j = 0; j < 300; ++j)
      for (extent g = 0; g < 2 && far(j); ++g) {
        t.k(b, j, g, 3) = nan_f;
        t.v(b, j, g, 3) = inf_f;
      }
  t.problem.visible = [&](extent, extent, extent i, extent j) {
    return !far(j) && sees[static_cast<std::size_t>(i * 300 + j)] != 0;
  };
  const std::vector<std::int64_t> at(37, 160);
  check(t,
        posenc::compose(posenc::any_of(posenc::before{20}, posenc::symmetric_window{40}), centred{},
                        posenc::boolean_mask<std::uint8_t>(sees.data(), {.queries = 37, .keys = 300})),
        with_centred(t.problem), posenc::positions::listed(at));
}

TEST_CASE("long rows are summed in stretches") {
  tensors t(1, 1, 20000, 1, 1, 8, 3);
  check(t, posenc::compose(), t.problem);
  tensors many(1, 12, 20000, 1, 1, 8, 3);
  check(many, posenc::compose(), many.problem);
}

TEST_CASE("the workspace is that of the size query, and the executor changes no bit") {
  tensors t(2, 130, 130, 4, 2);
  const auto policy = with_masks({.causal = true});
  stored<float> alone = t.out();
  posenc::attention_two_pass(t.q.view(), t.k.view(), t.v.view(), alone.view(), policy);
  const std::size_t bytes =
      posenc::attention_two_pass_workspace(t.q.view(), t.k.view(), t.v.view(), alone.view(), policy, {}, 2);
  guarded<unsigned char> memory(bytes, 3);
  const auto space = [&](std::size_t n) { return std::span(reinterpret_cast<std::byte*>(memory.data()), n); };
  stored<float> shared = t.out();
  two_workers executor;
  posenc::attention_two_pass(t.q.view(), t.k.view(), t.v.view(), shared.view(), policy, {.workspace = space(bytes)},
                             executor);
  CHECK(shared.data == alone.data);
  CHECK(memory.intact());
  CHECK_THAT(refusal([&] {
               posenc::attention_two_pass(t.q.view(), t.k.view(), t.v.view(), shared.view(), policy,
                                          {.workspace = space(bytes - 1)}, executor);
             }),
             contains("attention_two_pass_workspace"));
  // A row of a decode call costs its logits, sixteen rows that may have to be widened, and little else.
  tensors step(1, 1, 4096, 1, 1, 64, 64);
  stored<float> out = step.out();
  CHECK(posenc::attention_two_pass_workspace(step.q.view(), step.k.view(), step.v.view(), out.view(), centred{}) <=
        2 * 4096 * sizeof(float) + 16 * 64 * sizeof(float) + 4096);
}

TEST_CASE("no keys, no queries: as attention has it") {
  tensors t(1, 3, 0, 4, 1);
  stored<float> out = t.out();
  stored<float> lse = t.lse();
  posenc::attention_two_pass(t.q.view(), t.k.view(), t.v.view(), out.view(), with_masks({}), {.lse = lse.view()});
  for (const float x : out.data) CHECK(x == 0);
  for (const float x : lse.data) CHECK(x == -inf_f);
  CHECK_THAT(refusal([&] {
               posenc::attention_two_pass(t.q.view(), t.k.view(), t.v.view(), out.view(), with_masks({}),
                                          {.scale = std::numeric_limits<double>::infinity()});
             }),
             contains("attention_two_pass"));
}
