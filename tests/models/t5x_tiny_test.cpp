// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The T5 1.1 form, end to end: a gated feed-forward, an output matrix of its own, random weights, through
// examples/t5_reverse. Expected numbers come from a separate implementation in float64.

#include "support/catch.hpp"
#include "support/expected.hpp"
#include "support/model_folder.hpp"
#include "t5_lines.hpp"

using namespace posenc_examples;
using namespace posenc_test;
using posenc::positions;

namespace {

std::string folder() { return model_folder("t5x_tiny", "model.safetensors"); }
constexpr const char* absent = "models/t5x_tiny is not in POSENC_TEST_DATA";

template <class T>
const t5<T>& model() {
  static const t5<T> m(folder());
  return m;
}
const expected& values() {
  static const expected e(folder() + "expected.json");
  return e;
}
token_ids source() { return values().ids("enc1_ids"); }
token_ids target() { return values().ids("dec1_in"); }

}  // namespace

TEST_CASE("t5x_tiny: the biases of both sides", "[models][relative_bucket]") {
  if (folder().empty()) POSENC_SKIP(absent);
  CHECK(largest_difference(dense(model<double>(), stack::encoder, 40), values().values("enc1_bias")) < 1e-12);
  CHECK(largest_difference(dense(model<double>(), stack::decoder, 40), values().values("dec1_bias")) < 1e-12);
}

TEMPLATE_TEST_CASE("t5x_tiny: memory and logits equal the float64 reference", "[models][relative_bucket]", float,
                   double) {
  if (folder().empty()) POSENC_SKIP(absent);
  const double bound = std::is_same_v<TestType, double> ? 1e-9 : 2e-4;
  const t5_outputs<TestType> out(model<TestType>(), source(), target(), model<TestType>().policies());
  CHECK(largest_difference(out.memory, values().values("enc1_out")) < bound);
  CHECK(largest_difference(out.logits.leftCols(64), values().values("dec1_logits64")) < bound);
  REQUIRE(out.logits.cols() == 32128);
  token_ids best;
  for (Eigen::Index t = 0; t < out.logits.rows(); ++t) best.push_back(most_likely(matrix<TestType>(out.logits.row(t))));
  CHECK(best == values().ids("dec1_argmax"));
  // A float32 program on the same input.
  CHECK(largest_difference(out.memory, values().values("enc1_out_f32")) < 2e-4);
  CHECK(largest_difference(out.logits.leftCols(64), values().values("dec1_logits64_f32")) < 2e-4);
}

TEMPLATE_TEST_CASE("t5x_tiny: one token at a time equals the whole text at once", "[models][relative_bucket]", float,
                   double) {
  if (folder().empty()) POSENC_SKIP(absent);
  const double bound = std::is_same_v<TestType, double> ? 1e-12 : 2e-5;
  const auto& m = model<TestType>();
  // 40 tokens reach buckets of several distances.
  for (const std::size_t n : {1U, 7U}) CHECK(largest_cached_difference(m, target(), source(), m.policies(), n) < bound);
}

TEST_CASE("t5x_tiny: shifting every position changes nothing", "[models][relative_bucket]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const auto& m = model<double>();
  const t5_outputs<double> there(m, source(), target(), m.policies(), positions::from(-500));
  CHECK(largest_difference(there.memory, values().values("enc1_out")) < 1e-9);
  CHECK(largest_difference(there.logits.leftCols(64), values().values("dec1_logits64")) < 1e-9);
}

TEST_CASE("t5x_tiny: wrong encodings give the differences that they should", "[models][relative_bucket]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const auto& m = model<double>();
  const t5_outputs<double> wanted(m, source(), target(), m.policies());
  const auto check = [&](const char* name, const t5<double>& net, const line_policies& policies, double memory_off,
                         double logits_off) {
    INFO(name);
    const t5_outputs<double> wrong(net, source(), target(), policies);
    // Differences are given to three digits.
    CHECK(largest_difference(wrong.memory, wanted.memory) == Approx(memory_off).epsilon(6e-3));
    CHECK(largest_difference(wrong.logits, wanted.logits) == Approx(logits_off).epsilon(6e-3));
  };
  const bias_function encoder = own(m, stack::encoder);
  const bias_function decoder = own(m, stack::decoder);
  const auto changed = [&](stack side, const auto& change) {
    posenc::relative_bucket_options o = m.options(side);
    change(o);
    return bucketed(m, side, o);
  };
  const auto nearer = [](auto& o) { o.max_distance = 64; };
  check("sign of rel turned", m, with_biases(m, at_distance(encoder, turned), at_distance(decoder, turned)), 0.333,
        0.775);
  check("distance off by one", m, with_biases(m, at_distance(encoder, one_further), at_distance(decoder, one_further)),
        0.405, 1.45);
  check("causal buckets in the encoder", m,
        with_biases(m, changed(stack::encoder, [](auto& o) { o.bidirectional = false; }), decoder), 0.487, 0.301);
  check("max_distance 64", m, with_biases(m, changed(stack::encoder, nearer), changed(stack::decoder, nearer)), 0.219,
        0.166);
  check("no bias", m, with_biases(m, none, none), 0.579, 0.694);
  check("scores divided by sqrt(3)", t5<double>(folder(), 1 / std::sqrt(3.0)), with_biases(m, encoder, decoder), 0.747,
        2.01);
}
