// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// A model with a learned table of positions, end to end: a GPT-2 of five layers with random weights. Expected numbers
// come from a separate implementation in float64. The wrong encodings show that these tests can fail.

#include "gpt2/gpt2.hpp"
#include "support/catch.hpp"
#include "support/expected.hpp"
#include "support/model_folder.hpp"
#include "support/tolerance.hpp"

#include <posenc/encoders/position_ids.hpp>

using namespace posenc_examples;
using posenc::positions;

namespace {

std::string folder() { return model_folder("gpt2_tiny", "model.safetensors"); }
constexpr const char* absent = "models/gpt2_tiny is not in POSENC_TEST_DATA";

template <class T>
const gpt2<T>& model() {
  static const gpt2<T> m{safetensors(folder() + "model.safetensors")};
  return m;
}
const expected& values() {
  static const expected e(folder() + "expected.json");
  return e;
}

/// Logits of rows that already hold their positions.
matrix<double> run_layers(const matrix<double>& x, const gpt2<double>::policy& p, const positions& visible_at = {}) {
  auto cache = model<double>().make_cache(x.rows());
  return model<double>().run_layers(x, p, cache, visible_at, visible_at);
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
  const auto behind = gpt2<double>::causal_behind(two);
  // Whether visibility goes by position or by index.
  matrix<double> x = model<double>().token_rows(ids);
  model<double>().encoder().embed(posenc::as_view(x), counted);
  for (const positions& visible_at : {counted, positions{}})
    CHECK(largest_difference(run_layers(x, behind, visible_at).bottomRows(5), wanted) < 1e-9);

  const auto differs_by = [&](const matrix<double>& logits) {
    return largest_difference(logits.bottomRows(5), wanted);
  };
  CHECK(differs_by(model<double>().run(ids, positions::from(0), behind)) == Approx(0.4898).epsilon(0).margin(5e-5));
  CHECK(differs_by(model<double>().run(ids, counted)) == Approx(0.2805).epsilon(0).margin(5e-5));
}

TEST_CASE("gpt2: logits equal the float64 reference", "[models][learned]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const token_ids ids = values().ids("logits1_ids");
  const token_ids at = values().ids("logits1_pos");
  const matrix<double> wanted = values().values("logits1");
  REQUIRE(values().ids("logits1_rows") == token_ids{0, 1, 2, 3, 4});
  for (const positions& where : {positions{}, positions::listed(at)}) {
    const matrix<double> logits = model<double>().run(ids, where);
    CHECK(largest_difference(logits, wanted) < 1e-9);
    CHECK(logits.cwiseAbs().maxCoeff() == Approx(0.5964).epsilon(0).margin(5e-5));
    token_ids best;
    for (Eigen::Index t = 0; t < logits.rows(); ++t) best.push_back(most_likely(matrix<double>(logits.row(t))));
    CHECK(best == token_ids{292, 641, 706, 786, 50});
    CHECK(largest_difference(model<float>().run(ids, where), wanted) < 2e-4);
  }
}

TEMPLATE_TEST_CASE("gpt2: one token at a time equals the whole text at once", "[models][learned]", float, double) {
  if (folder().empty()) POSENC_SKIP(absent);
  const double bound = std::is_same_v<TestType, double> ? 1e-12 : 2e-5;
  token_ids ids;
  for (std::int64_t t = 0; t < 60; ++t) ids.push_back(t * 379 % 1000);
  const auto& m = model<TestType>();
  const matrix<TestType> whole = m.run(ids, {});
  auto cache = m.make_cache(static_cast<std::int64_t>(ids.size()));
  posenc_test::worst worst;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const auto step = m.run(std::span(ids).subspan(t, 1), positions::from(cache.size()), m.causal(), cache);
    worst.see(largest_difference(step.row(0), whole.row(static_cast<Eigen::Index>(t))), static_cast<long double>(t));
  }
  INFO(worst);
  CHECK(worst.error < bound);
}

TEST_CASE("gpt2: texts of a batch with other paddings say what they say alone", "[models][learned]") {
  if (folder().empty()) POSENC_SKIP(absent);
  // Three texts of 7, 5 and 1 tokens, padded in front to 7 and continued by one cached step.
  const std::vector<std::int64_t> begin{0, 2, 6};
  const auto& m = model<double>();
  token_ids ids;
  token_ids real;
  for (std::size_t b = 0; b < begin.size(); ++b)
    for (std::int64_t t = 0; t < 7; ++t) {
      real.push_back(t >= begin[b] ? 1 : 0);
      ids.push_back(real.back() * (100 * static_cast<std::int64_t>(b) + 10 * t));
    }
  const token_ids at = posenc::masked_ids<std::int64_t>(real, 3);
  auto cache = m.make_cache(8, 3);
  const matrix<double> logits = m.run(ids, positions::listed(at, 3), m.causal_behind(begin), cache);
  const token_ids next{5, 6, 7};
  const token_ids next_at{7, 5, 1};
  const matrix<double> step = m.run(next, positions::listed(next_at, 3), m.causal_behind(begin), cache);
  for (std::size_t b = 0; b < begin.size(); ++b) {
    token_ids alone(ids.begin() + static_cast<std::ptrdiff_t>(7 * b) + begin[b],
                    ids.begin() + static_cast<std::ptrdiff_t>(7 * b) + 7);
    const auto n = static_cast<Eigen::Index>(alone.size());
    alone.push_back(next[b]);
    const matrix<double> wanted = m.run(alone, {});
    CHECK(largest_difference(logits.middleRows(static_cast<Eigen::Index>(7 * (b + 1)) - n, n), wanted.topRows(n)) <
          1e-12);
    CHECK(largest_difference(step.row(static_cast<Eigen::Index>(b)), wanted.row(n)) < 1e-12);
  }
}

TEST_CASE("gpt2: wrong rows give the differences that they should", "[models][learned]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const token_ids ids = values().ids("logits1_ids");
  const matrix<double> wanted = values().values("logits1");
  const auto check = [&](const char* name, const token_ids& at, double differs_by) {
    INFO(name);
    CHECK(largest_difference(model<double>().run(ids, positions::listed(at)), wanted) ==
          Approx(differs_by).epsilon(0).margin(5e-5));
  };
  check("rows one too high", {1, 2, 3, 4, 5}, 0.5176);
  check("rows in reverse order", {4, 3, 2, 1, 0}, 0.5019);
  check("row 0 for every token", {0, 0, 0, 0, 0}, 0.4651);
  check("the last token alone takes row 0", {0, 1, 2, 3, 0}, 0.2979);
  CHECK(largest_difference(run_layers(model<double>().token_rows(ids), gpt2<double>::causal()), wanted) ==
        Approx(0.3887).epsilon(0).margin(5e-5));
}

TEST_CASE("gpt2: a position without a row is refused before anything is written", "[models][learned]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const matrix<double> before = model<double>().token_rows(values().ids("logits1_ids"));
  matrix<double> x = before;
  CHECK_THROWS_AS(model<double>().encoder().embed(posenc::as_view(x), positions::from(508)), std::out_of_range);
  CHECK_THROWS_WITH(model<double>().encoder().embed(posenc::as_view(x), positions::from(508)),
                    posenc_test::contains("512"));
  CHECK(x == before);
  // The last row is served.
  CHECK_NOTHROW(model<double>().encoder().embed(posenc::as_view(x), positions::from(507)));
  CHECK(x != before);
}
