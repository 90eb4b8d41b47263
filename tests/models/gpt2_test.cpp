// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// A model with a learned table of positions, end to end: a GPT-2 of five layers with random weights. Expected numbers
// come from a separate implementation in float64. The wrong encodings show that these tests can fail.

#include "support/catch.hpp"
#include "support/expected.hpp"
#include "support/language_model.hpp"
#include "support/layers.hpp"
#include "support/safetensors.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/run_time.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/position_ids.hpp>

#include <cstdlib>
#include <filesystem>

using namespace posenc_examples;
using posenc::positions;

namespace {

/// The folder of the model; empty where it is absent.
std::string folder() {
  const char* data = std::getenv("POSENC_TEST_DATA");
  const std::string path = data ? std::string(data) + "/models/gpt2_tiny/" : std::string();
  return data && std::filesystem::exists(path + "model.safetensors") ? path : std::string();
}
constexpr const char* absent = "models/gpt2_tiny is not in POSENC_TEST_DATA";

constexpr std::int64_t heads = 4;
constexpr std::int64_t width = 32;
constexpr std::int64_t rows = 512;
constexpr std::int64_t vocabulary = 1000;

/// x W + b: the one model here whose weights are stored [in, out].
struct affine {
  matrix<double> weight;
  row_vector<double> bias;
  affine(const safetensors& f, const std::string& name, std::int64_t in, std::int64_t out)
      : weight(f.tensor<double>(name + ".weight", in, out)), bias(f.vector<double>(name + ".bias", out)) {}
  matrix<double> operator()(const matrix<double>& x) const {
    matrix<double> y = x * weight;
    y.rowwise() += bias;
    return y;
  }
};
struct norm {
  row_vector<double> gain;
  row_vector<double> shift;
  norm(const safetensors& f, const std::string& name)
      : gain(f.vector<double>(name + ".weight", width)), shift(f.vector<double>(name + ".bias", width)) {}
  matrix<double> operator()(const matrix<double>& x) const { return layer_norm(x, gain, shift, 1e-5); }
};

class gpt2 {
 public:
  /// Which keys a token sees; GPT-2 has no bias and no rotation.
  using policy = posenc::run_time_policy<posenc::nope>;

  explicit gpt2(const safetensors& f)
      : tokens_(f.tensor<double>("wte.weight", vocabulary, width)), last_norm_(f, "ln_f") {
    const matrix<double> table = f.tensor<double>("wpe.weight", rows, width);
    table_.assign(table.data(), table.data() + table.size());
    for (int l = 0; l < 5; ++l) layers_.emplace_back(f, "h." + std::to_string(l) + ".");
  }

  /// The encoder over the model's own memory.
  [[nodiscard]] posenc::learned<double> encoder() const {
    return {{.rows = rows, .dim = width}, std::span<const double>(table_)};
  }
  [[nodiscard]] matrix<double> token_rows(const token_ids& ids) const { return embedding_rows(tokens_, ids); }

  /// Logits [tokens, 1000]. A token takes the row of its position. Visibility goes by `visible_at`; left
  /// out, by index, as a causal matrix would have it.
  [[nodiscard]] matrix<double> run(const token_ids& ids, const positions& at, const policy& p = causal(),
                                   const positions& visible_at = {}) const {
    matrix<double> x = token_rows(ids);
    encoder().embed(posenc::as_view(x), at);
    return run_layers(std::move(x), p, visible_at);
  }
  [[nodiscard]] matrix<double> run_layers(matrix<double> x, const policy& p = causal(),
                                          const positions& visible_at = {}) const {
    matrix<double> mixed(x.rows(), width);
    for (const layer& l : layers_) {
      const matrix<double> qkv = l.qkv(l.attention_norm(x));
      const auto part = [&](std::int64_t which) {
        return posenc::as_view(qkv.middleCols(which * width, width), heads);
      };
      posenc::attention(part(0), part(1), part(2), posenc::as_view(mixed, heads), p,
                        {.query_positions = visible_at, .key_positions = visible_at});
      x += l.dense(mixed);
      matrix<double> wide = l.up(l.ffn_norm(x));
      gelu_tanh(wide);
      x += l.down(wide);
    }
    return linear(last_norm_(x), tokens_);
  }

  [[nodiscard]] static policy causal() { return {.masks = {.causal = true}}; }
  /// `begin` must outlive the policy.
  [[nodiscard]] static policy causal_behind(const std::vector<std::int64_t>& begin) {
    return {.masks = {.causal = true, .padding = posenc::padding{.begin = begin, .end = {}}}};
  }

 private:
  struct layer {
    norm attention_norm, ffn_norm;
    affine qkv, dense, up, down;
    layer(const safetensors& f, const std::string& name)
        : attention_norm(f, name + "ln_1"),
          ffn_norm(f, name + "ln_2"),
          qkv(f, name + "attn.c_attn", width, 3 * width),
          dense(f, name + "attn.c_proj", width, width),
          up(f, name + "mlp.c_fc", width, 4 * width),
          down(f, name + "mlp.c_proj", 4 * width, width) {}
  };

  matrix<double> tokens_;
  std::vector<double> table_;
  norm last_norm_;
  std::vector<layer> layers_;
};

const gpt2& model() {
  static const gpt2 m{safetensors(folder() + "model.safetensors")};
  return m;
}
const expected& values() {
  static const expected e(folder() + "expected.json");
  return e;
}

template <class A, class B>
double largest_difference(const A& a, const B& b) {
  return (a - b).cwiseAbs().template maxCoeff<Eigen::PropagateNaN>();
}
/// Five tokens behind two of padding.
const std::vector<std::int64_t> two{2};

}  // namespace

TEST_CASE("F14: a padded GPT-2 gives the logits of the unpadded one", "[models][learned]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const token_ids ids = values().ids("pad1_ids");
  const token_ids valid = values().ids("pad1_valid");
  const matrix<double> wanted = values().values("logits1");
  const token_ids at = posenc::masked_ids<std::int64_t>(valid);
  CHECK(at == values().ids("pad1_pos"));
  const positions counted = positions::listed(at);
  // Whether visibility goes by position or by index.
  for (const positions& visible_at : {counted, positions{}})
    CHECK(largest_difference(model().run(ids, counted, gpt2::causal_behind(two), visible_at).bottomRows(5), wanted) <
          1e-9);

  const auto differs_by = [&](const matrix<double>& logits) {
    return largest_difference(logits.bottomRows(5), wanted);
  };
  CHECK(differs_by(model().run(ids, positions::from(0), gpt2::causal_behind(two))) == Approx(0.4898).margin(5e-5));
  CHECK(differs_by(model().run(ids, counted)) == Approx(0.2805).margin(5e-5));
}

TEST_CASE("gpt2: logits equal the float64 reference", "[models][learned]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const token_ids ids = values().ids("logits1_ids");
  const token_ids at = values().ids("logits1_pos");
  const matrix<double> wanted = values().values("logits1");
  REQUIRE(values().ids("logits1_rows") == token_ids{0, 1, 2, 3, 4});
  for (const positions& where : {positions{}, positions::listed(at)}) {
    const matrix<double> logits = model().run(ids, where);
    CHECK(largest_difference(logits, wanted) < 1e-9);
    CHECK(logits.cwiseAbs().maxCoeff() == Approx(0.5964).margin(5e-5));
    token_ids best;
    for (Eigen::Index t = 0; t < logits.rows(); ++t) best.push_back(most_likely(matrix<double>(logits.row(t))));
    CHECK(best == token_ids{292, 641, 706, 786, 50});
  }
}

TEST_CASE("gpt2: wrong rows give the differences that they should", "[models][learned]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const token_ids ids = values().ids("logits1_ids");
  const matrix<double> wanted = values().values("logits1");
  const auto check = [&](const char* name, const token_ids& at, double differs_by) {
    INFO(name);
    CHECK(largest_difference(model().run(ids, positions::listed(at)), wanted) == Approx(differs_by).margin(5e-5));
  };
  check("rows one too high", {1, 2, 3, 4, 5}, 0.5176);
  check("rows in reverse order", {4, 3, 2, 1, 0}, 0.5019);
  check("row 0 for every token", {0, 0, 0, 0, 0}, 0.4651);
  check("the last token alone takes row 0", {0, 1, 2, 3, 0}, 0.2979);
  CHECK(largest_difference(model().run_layers(model().token_rows(ids)), wanted) == Approx(0.3887).margin(5e-5));
}

TEST_CASE("gpt2: a position without a row is refused before anything is written", "[models][learned]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const matrix<double> before = model().token_rows(values().ids("logits1_ids"));
  matrix<double> x = before;
  CHECK_THROWS_AS(model().encoder().embed(posenc::as_view(x), positions::from(508)), std::out_of_range);
  CHECK_THROWS_WITH(model().encoder().embed(posenc::as_view(x), positions::from(508)), posenc_test::contains("512"));
  CHECK(x == before);
  // The last row is served.
  CHECK_NOTHROW(model().encoder().embed(posenc::as_view(x), positions::from(507)));
  CHECK(x != before);
}
