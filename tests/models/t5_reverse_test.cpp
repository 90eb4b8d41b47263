// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// A trained T5, end to end: examples/models/t5_reverse reverses strings, through examples/t5_reverse. Expected numbers
// come from a separate implementation in float64. The wrong encodings show that these tests can fail.

#include "support/catch.hpp"
#include "support/expected.hpp"
#include "t5_lines.hpp"

#include <posenc/encoders/position_ids.hpp>

#include <filesystem>

using namespace posenc_examples;
using namespace posenc_test;
using posenc::positions;

namespace {

const std::string folder = POSENC_TESTS_DIR "/../examples/models/t5_reverse/";

template <class T>
const t5<T>& model() {
  static const t5<T> m(folder);
  return m;
}
const expected& values() {
  static const expected e(folder + "expected.json");
  return e;
}
token_ids source() { return values().ids("enc1_ids"); }
token_ids target() { return values().ids("dec1_in"); }
line_policies right() {
  const auto& m = model<double>();
  return with_biases(m, own(m, stack::encoder), own(m, stack::decoder));
}

token_ids row_of(const matrix<double>& m, Eigen::Index i) {
  token_ids ids;
  for (const double id : m.row(i)) ids.push_back(static_cast<std::int64_t>(id));
  return ids;
}
/// The strings of `eval8` that come out reversed.
template <class T, class Policies>
int reversed(const t5<T>& m, const Policies& policies) {
  const matrix<double> strings = values().values("eval8_in");
  int count = 0;
  for (Eigen::Index i = 0; i < strings.rows(); ++i) {
    const token_ids ids = row_of(strings, i);
    token_ids wanted(ids.rbegin() + 1, ids.rend());
    wanted.push_back(ids.back());
    count += m.answer(ids, policies, 9).ids == wanted ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("t5_reverse: the biases of both sides", "[models][relative_bucket]") {
  CHECK(model<double>().options(stack::encoder).bidirectional);
  CHECK_FALSE(model<double>().options(stack::decoder).bidirectional);
  CHECK(largest_difference(dense(model<double>(), stack::encoder, 8), values().values("enc1_bias")) < 1e-12);
  CHECK(largest_difference(dense(model<double>(), stack::decoder, 8), values().values("dec1_bias")) < 1e-12);
}

TEMPLATE_TEST_CASE("t5_reverse: memory and logits equal the float64 reference", "[models][relative_bucket]", float,
                   double) {
  const double bound = std::is_same_v<TestType, double> ? 1e-9 : 2e-4;
  const t5_outputs<TestType> out(model<TestType>(), source(), target(), model<TestType>().policies());
  CHECK(largest_difference(out.memory, values().values("enc1_out")) < bound);
  CHECK(largest_difference(out.logits, values().values("dec1_logits")) < bound);
  // A float32 program on the same input.
  CHECK(largest_difference(out.memory, values().values("enc1_out_f32")) < 2e-4);
  CHECK(largest_difference(out.logits, values().values("dec1_logits_f32")) < 2e-4);
}

TEMPLATE_TEST_CASE("t5_reverse: 200 strings, decoded from a cache", "[models][relative_bucket]", float, double) {
  const auto& m = model<TestType>();
  const auto policies = m.policies();
  const matrix<double> strings = values().values("eval8_in");
  const matrix<double> wanted = values().values("eval8_out");
  REQUIRE(strings.rows() == 200);
  for (Eigen::Index i = 0; i < strings.rows(); ++i) {
    const decoded d = m.answer(row_of(strings, i), policies, 9);
    token_ids out = d.ids;
    out.resize(9, 0);
    CHECK(out == row_of(wanted, i));
  }
  CHECK(reversed(m, policies) == 199);
}

TEMPLATE_TEST_CASE("t5_reverse: one token at a time equals the whole text at once", "[models][relative_bucket]", float,
                   double) {
  const double bound = std::is_same_v<TestType, double> ? 1e-12 : 2e-5;
  const auto& m = model<TestType>();
  for (const std::size_t n : {1U, 3U}) CHECK(largest_cached_difference(m, source(), target(), m.policies(), n) < bound);
}

TEST_CASE("t5_reverse: shifting every position changes nothing", "[models][relative_bucket]") {
  const auto& m = model<double>();
  const t5_outputs<double> there(m, source(), target(), m.policies(), positions::from(1'000'000'007));
  CHECK(largest_difference(there.memory, values().values("enc1_out")) < 1e-9);
  CHECK(largest_difference(there.logits, values().values("dec1_logits")) < 1e-9);
}

TEST_CASE("t5_reverse: texts of a batch with other paddings say what they say alone", "[models][relative_bucket]") {
  // Strings of 7 and 3 symbols and targets of 8 and 4, padded in front; positions count real tokens.
  const auto& m = model<double>();
  const token_ids short_source{5, 4, 12, 1};
  const token_ids short_target{0, 12, 4, 5};
  const t5_outputs<double> alone(m, short_source, short_target, right());
  const auto batch = [](token_ids longer, const token_ids& shorter) {
    longer.resize(2 * longer.size() - shorter.size(), 0);
    longer.insert(longer.end(), shorter.begin(), shorter.end());
    return longer;
  };
  const token_ids real{1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1};
  const token_ids counted = posenc::masked_ids<std::int64_t>(real, 2);
  const positions at = positions::listed(counted, 2);
  const std::vector<std::int64_t> begin{0, 4};
  line_policies padded = right();
  for (line_policy* p : {&padded.encoder, &padded.decoder, &padded.cross})
    p->masks.padding = posenc::padding{.begin = begin, .end = {}};

  const matrix<double> memory = m.encode(batch(source(), short_source), padded.encoder, at, 2);
  CHECK(largest_difference(memory.topRows(8), values().values("enc1_out")) < 1e-9);
  CHECK(largest_difference(memory.bottomRows(4), alone.memory) < 1e-12);
  const auto logits = [&](const line_policies& p) {
    auto remembered = m.net().remember(memory, 2);
    auto cache = m.net().make_cache(8, 2);
    return m.decode(batch(target(), short_target), p, remembered, cache, at, at);
  };
  CHECK(largest_difference(logits(padded).topRows(8), values().values("dec1_logits")) < 1e-9);
  CHECK(largest_difference(logits(padded).bottomRows(4), alone.logits) < 1e-12);
  // Padded keys of the memory that are not masked are seen.
  padded.cross.masks.padding.reset();
  CHECK(largest_difference(logits(padded).bottomRows(4), alone.logits) > 0.1);
}

TEST_CASE("t5_reverse: wrong encodings give the strings that they should", "[models][relative_bucket]") {
  const auto& m = model<double>();
  const t5_outputs<double> wanted(m, source(), target(), right());
  // The lines are the encoder's own.
  CHECK(largest_difference(wanted.logits, values().values("dec1_logits")) < 1e-9);
  const auto check = [&](const char* name, const t5<double>& net, const line_policies& policies, int right_strings,
                         double memory_off, double logits_off) {
    INFO(name);
    const t5_outputs<double> wrong(net, source(), target(), policies);
    // Differences are given to three digits.
    CHECK(largest_difference(wrong.memory, wanted.memory) == Approx(memory_off).epsilon(6e-3));
    CHECK(largest_difference(wrong.logits, wanted.logits) == Approx(logits_off).epsilon(6e-3));
    CHECK(reversed(net, policies) == right_strings);
  };
  const bias_function encoder = own(m, stack::encoder);
  const bias_function decoder = own(m, stack::decoder);
  const auto changed = [&](stack table, stack options, const auto& change) {
    posenc::relative_bucket_options o = m.options(options);
    change(o);
    return bucketed(m, table, o);
  };
  const auto keep = [](auto&) {};
  const auto turn = [](auto& o) { o.bidirectional = !o.bidirectional; };
  const auto further = [](auto& o) { o.max_distance = 128; };
  check("sign of rel turned", m, with_biases(m, at_distance(encoder, turned), at_distance(decoder, turned)), 0, 4.81,
        11.4);
  check("distance off by one", m, with_biases(m, at_distance(encoder, one_further), at_distance(decoder, one_further)),
        117, 1.27, 1.56);
  check("causal buckets in the encoder", m, with_biases(m, changed(stack::encoder, stack::encoder, turn), decoder), 0,
        2.86, 11.8);
  check("bidirectional buckets in the decoder", m,
        with_biases(m, encoder, changed(stack::decoder, stack::decoder, turn)), 186, 0, 0.378);
  check("max_distance 128", m,
        with_biases(m, changed(stack::encoder, stack::encoder, further),
                    changed(stack::decoder, stack::decoder, further)),
        192, 0.91, 1.38);
  check("no bias", m, with_biases(m, none, none), 0, 2.94, 10.3);
  check("tables swapped", m,
        with_biases(m, changed(stack::decoder, stack::encoder, keep), changed(stack::encoder, stack::decoder, keep)), 0,
        3.18, 10.5);
  check("scores divided by sqrt(12)", t5<double>(folder, 1 / std::sqrt(12.0)), right(), 127, 0.653, 5.89);
}

TEST_CASE("F45: a T5 whose cross attention has a bias says something else", "[models][relative_bucket]") {
  const auto& m = model<double>();
  const t5_outputs<double> wanted(m, source(), target(), m.policies());
  const line_policies biased = with_biases(m, own(m, stack::encoder), own(m, stack::decoder), own(m, stack::encoder));
  const t5_outputs<double> wrong(m, source(), target(), biased);
  CHECK(largest_difference(wrong.memory, wanted.memory) < 1e-12);
  CHECK(largest_difference(wrong.logits, wanted.logits) == Approx(0.308).epsilon(6e-3));
  CHECK(reversed(m, biased) == 193);
}

TEST_CASE("t5_reverse: configurations that do not fit the weights are refused", "[models]") {
  const auto path = std::filesystem::temp_directory_path() / "posenc_t5_test";
  std::filesystem::create_directories(path);
  std::filesystem::copy_file(folder + "model.safetensors", path / "model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  const auto config = nlohmann::json::parse(read_file(folder + "config.json"));
  const auto refuses = [&](const char* key, const nlohmann::json& value, const char* words) {
    auto other = config;
    other[key] = value;
    std::ofstream(path / "config.json") << other;
    CAPTURE(key, value);
    CHECK_THROWS_WITH(t5<float>(path.string() + "/"), posenc_test::contains(words));
  };
  std::ofstream(path / "config.json") << config;
  CHECK_NOTHROW(t5<float>(path.string() + "/"));
  for (const nlohmann::json& n : {nlohmann::json(0), nlohmann::json(-1), nlohmann::json(std::int64_t{1} << 40),
                                  nlohmann::json(12.5), nlohmann::json("12"), nlohmann::json()}) {
    refuses("d_model", n, "d_model must be a number in 1..2^20");
    refuses("d_ff", n, "d_ff must be a number in 1..2^20");
    refuses("vocab_size", n, "vocab_size must be a number in 1..2^20");
  }
  refuses("d_model", 47, "has not the shape");
  refuses("d_ff", 95, "has not the shape [95,48]");
  refuses("d_kv", 11, "has not the shape [44,48]");
  refuses("num_heads", 3, "has not the shape");
  refuses("vocab_size", 14, "shared.weight has not the shape [14,48]");
  refuses("num_layers", 3, "no tensor encoder.block.2.");
  refuses("relative_attention_num_buckets", 32, "has not the shape [32,4]");
  refuses("feed_forward_proj", "gated-silu", "must be relu or gated-gelu");
  refuses("feed_forward_proj", "gated-gelu", "no tensor encoder.block.0.layer.1.DenseReluDense.wi_0.weight");
  refuses("tie_word_embeddings", false, "no tensor lm_head.weight");
  std::filesystem::remove_all(path);
}
