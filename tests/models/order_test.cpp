// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The attention of real models in other orders: heads and rows processed backwards, queries and keys listed backwards,
// keys cut into blocks whose results are joined by their log-sum-exps. None of it changes anything beyond rounding.

#include "gpt2/gpt2.hpp"
#include "llama2c/llama.hpp"
#include "support/catch.hpp"
#include "support/char_model.hpp"
#include "support/expected.hpp"
#include "support/model_folder.hpp"
#include "t5_reverse/t5.hpp"
#include "transliterate/transliterator.hpp"

#include <posenc/encoders/alibi.hpp>

#include <algorithm>

using namespace posenc_examples;
using posenc::positions;

namespace {

/// Runs the items of a call one by one, from either end, as if on workers that take turns.
struct one_by_one {
  bool backwards = false;
  [[nodiscard]] std::int64_t concurrency() const noexcept { return 3; }
  template <class F>
  void parallel_for(std::int64_t n, F&& f) const {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t item = backwards ? n - 1 - i : i;
      f(item, item % 3);
    }
  }
};

/// Queries, keys and values [token, heads * dim] of one layer.
struct layer_input {
  matrix<double> q{}, k{}, v{};
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::optional<double> scale{};
};

struct result {
  matrix<double> out;
  matrix<double> lse;
};

template <class Policy>
result attend(const layer_input& x, const matrix<double>& q, const positions& query_at, const matrix<double>& k,
              const matrix<double>& v, const positions& key_at, const Policy& policy, one_by_one executor = {}) {
  result r{matrix<double>(q.rows(), q.cols()), matrix<double>(q.rows(), x.heads)};
  posenc::attention(
      posenc::as_view(q, x.heads), posenc::as_view(k, x.kv_heads), posenc::as_view(v, x.kv_heads),
      posenc::as_view(r.out, x.heads), policy,
      {.query_positions = query_at, .key_positions = key_at, .scale = x.scale, .lse = posenc::as_view(r.lse, x.heads)},
      executor);
  return r;
}

/// Two results over different keys as one over all of them.
result joined(const result& a, const result& b) {
  result r = a;
  const Eigen::Index dim = a.out.cols() / a.lse.cols();
  for (Eigen::Index t = 0; t < a.lse.rows(); ++t)
    for (Eigen::Index h = 0; h < a.lse.cols(); ++h) {
      const double highest = std::max(a.lse(t, h), b.lse(t, h));
      const double wa = std::exp(a.lse(t, h) - highest);
      const double wb = std::exp(b.lse(t, h) - highest);
      r.lse(t, h) = highest + std::log(wa + wb);
      r.out.block(t, h * dim, 1, dim) =
          (wa * a.out.block(t, h * dim, 1, dim) + wb * b.out.block(t, h * dim, 1, dim)) / (wa + wb);
    }
  return r;
}

template <class Policy>
void check_orders(const layer_input& x, const Policy& policy) {
  const Eigen::Index n = x.q.rows();
  const result whole = attend(x, x.q, {}, x.k, x.v, {}, policy);
  const double bound = 1e-13 * std::max(1.0, whole.out.cwiseAbs().maxCoeff());
  REQUIRE(whole.out.allFinite());

  const result backwards = attend(x, x.q, {}, x.k, x.v, {}, policy, {.backwards = true});
  CHECK(backwards.out == whole.out);
  CHECK(backwards.lse == whole.lse);

  token_ids down;
  for (Eigen::Index t = 0; t < n; ++t) down.push_back(n - 1 - t);
  const positions listed = positions::listed(down);
  const auto turned = [](const matrix<double>& m) { return matrix<double>(m.colwise().reverse()); };
  const result queries = attend(x, turned(x.q), listed, x.k, x.v, {}, policy);
  CHECK(largest_difference(turned(queries.out), whole.out) < bound);
  const result keys = attend(x, x.q, {}, turned(x.k), turned(x.v), listed, policy);
  CHECK(largest_difference(keys.out, whole.out) < bound);
  CHECK(largest_difference(keys.lse, whole.lse) < 1e-12);

  for (const Eigen::Index cut : {Eigen::Index{1}, n / 3, n - 1}) {
    const result left = attend(x, x.q, {}, x.k.topRows(cut), x.v.topRows(cut), {}, policy);
    const result right =
        attend(x, x.q, {}, x.k.bottomRows(n - cut), x.v.bottomRows(n - cut), positions::from(cut), policy);
    const result both = joined(left, right);
    CHECK(largest_difference(both.out, whole.out) < bound);
    CHECK(largest_difference(both.lse, whole.lse) < 1e-12);
    // One of them alone is not enough.
    CHECK(largest_difference(left.out, whole.out) > 1e-4);
  }
}

using plain = posenc::run_time_policy<>;
const plain causal{.masks = {.causal = true}};

template <class T>
layer_input input_of(const attention_weights<T>& w, const matrix<T>& y, std::int64_t heads,
                     std::optional<double> scale) {
  return {.q = w.q(y), .k = w.k(y), .v = w.v(y), .heads = heads, .kv_heads = heads, .scale = scale};
}

}  // namespace

TEST_CASE("order: stories260K, rope with grouped heads", "[models][rope]") {
  const std::string folder = model_folder("stories260K", "stories260K.bin");
  if (folder.empty()) POSENC_SKIP("models/stories260K is not in POSENC_TEST_DATA");
  const llama<double> m(read_llama2c<double>(folder + "stories260K.bin"));
  const token_ids ids = expected(folder + "expected.json").ids("text1_ids");
  auto [q, k, v] = m.project(embedding_rows<double>(m.weights().embedding, ids), 0);
  const posenc::rope<double> rotation(llama2c_rope(m.config()));
  rotation.rotate(posenc::as_view(q, m.config().heads));
  rotation.rotate(posenc::as_view(k, m.config().kv_heads));
  check_orders({.q = q, .k = k, .v = v, .heads = m.config().heads, .kv_heads = m.config().kv_heads}, causal);
}

TEST_CASE("order: bloom_gpl3_char, ALiBi", "[models][alibi]") {
  const std::string folder = POSENC_TESTS_DIR "/../examples/models/bloom_gpl3_char/";
  const char_model<double> m{safetensors(folder + "model.safetensors")};
  const token_ids ids = expected(folder + "expected.json").ids("text1_ids");
  const matrix<double> qkv = m.project(m.embed(ids, posenc::nope{}, {}), 0);
  layer_input x{.heads = m.heads, .kv_heads = m.heads};
  for (auto [which, to] : {std::pair{0, &x.q}, std::pair{1, &x.k}, std::pair{2, &x.v}}) {
    to->resize(qkv.rows(), m.width);
    const auto part = m.part(qkv, which);
    for (Eigen::Index t = 0; t < qkv.rows(); ++t)
      for (Eigen::Index c = 0; c < m.width; ++c) (*to)(t, c) = part(0, t, c / m.head_dim, c % m.head_dim);
  }
  using policy = posenc::run_time_policy<posenc::alibi<double>>;
  check_orders(x, policy{.bias = posenc::alibi<double>(6), .masks = {.causal = true}});
}

TEST_CASE("order: t5_reverse, both sides", "[models][relative_bucket]") {
  const std::string folder = POSENC_TESTS_DIR "/../examples/models/t5_reverse/";
  const t5<double> m(folder);
  const auto& net = m.net();
  using policy = posenc::run_time_policy<posenc::relative_bucket<double>>;
  // The memory of a string is as good as any rows; a string of 40 reaches buckets of several distances.
  token_ids ids;
  for (std::int64_t t = 0; t < 40; ++t) ids.push_back(3 + t * t % 10);
  const matrix<double> rows = m.encode(ids, m.policies().encoder);
  for (const auto side : {posenc::models::stack::encoder, posenc::models::stack::decoder}) {
    const bool decodes = side == posenc::models::stack::decoder;
    const auto& layer = (decodes ? net.decoder : net.encoder).at(1);
    check_orders(input_of(layer.self, layer.self_norm(rows), net.heads, net.scale),
                 policy{.bias = m.bias(side), .masks = {.causal = decodes}});
  }
}

TEST_CASE("order: aren, without a bias and without a mask", "[models][sinusoidal]") {
  const std::string folder = model_folder("aren", "model.bin");
  if (folder.empty()) POSENC_SKIP("models/aren is not in POSENC_TEST_DATA");
  const transliterator<double> m(folder);
  const token_ids ids = expected(folder + "expected.json").ids("enc1_ids");
  const matrix<double> rows = m.encode(ids, posenc::sinusoidal<double>(ctranslate2_positions(m.width)), posenc::nope{});
  const auto& layer = m.net().encoder.at(2);
  check_orders(input_of(layer.self, layer.self_norm(rows), m.heads, {}), plain{});
}

TEST_CASE("order: gpt2_tiny, causal", "[models][learned]") {
  const std::string folder = model_folder("gpt2_tiny", "model.safetensors");
  if (folder.empty()) POSENC_SKIP("models/gpt2_tiny is not in POSENC_TEST_DATA");
  const gpt2<double> m{safetensors(folder + "model.safetensors")};
  token_ids ids;
  for (std::int64_t t = 0; t < 50; ++t) ids.push_back(t * 379 % 1000);
  matrix<double> x = m.token_rows(ids);
  m.encoder().embed(posenc::as_view(x));
  const matrix<double> qkv = m.project(x, 0);
  check_orders({.q = qkv.leftCols(m.width),
                .k = qkv.middleCols(m.width, m.width),
                .v = qkv.rightCols(m.width),
                .heads = m.heads,
                .kv_heads = m.heads},
               causal);
}
