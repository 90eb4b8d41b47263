// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// A trained model with sinusoidal positions, end to end: a transliterator in the CTranslate2 format, through
// examples/transliterate. Expected numbers come from a separate implementation in float64. The wrong encodings show
// that these tests can fail.

#include "support/catch.hpp"
#include "support/expected.hpp"
#include "support/model_folder.hpp"
#include "support/pairs.hpp"
#include "support/tolerance.hpp"
#include "transliterate/transliterator.hpp"

#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/position_ids.hpp>

using namespace posenc_examples;
using posenc::positions;
using posenc::sinusoidal_denominator;
using posenc::sinusoidal_layout;

namespace {

std::string folder() { return model_folder("aren", "model.bin"); }
constexpr const char* absent = "models/aren is not in POSENC_TEST_DATA";

template <class T>
const transliterator<T>& model() {
  static const transliterator<T> m(folder());
  return m;
}
const expected& values() {
  static const expected e(folder() + "expected.json");
  return e;
}
posenc::sinusoidal_options right() { return ctranslate2_positions(32); }

/// The memory of a source, and the log-probabilities of every step of a target.
template <class T>
struct outputs {
  matrix<T> memory;
  matrix<double> log_probability;
  template <class Input>
  outputs(const transliterator<T>& m, const std::string& which, const Input& input) {
    const auto policies = m.policies();
    memory = m.encode(values().ids("enc" + which + "_ids"), input, policies.encoder);
    const token_ids target = values().ids("dec" + which + "_in");
    auto remembered = m.net().remember(memory);
    auto cache = m.net().make_cache(static_cast<std::int64_t>(target.size()));
    log_probability = log_softmax(m.decode(target, input, policies, remembered, cache, {}));
  }
};

}  // namespace

TEST_CASE("aren: the rows of the positions 1 .. 8", "[models][sinusoidal]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const std::vector<double> rows = posenc::sinusoidal<double>(right()).table(0, 8);
  const std::vector<double> wanted = values().numbers("position_table");
  REQUIRE(rows.size() == wanted.size());
  for (std::size_t i = 0; i < rows.size(); ++i) CHECK(std::abs(rows[i] - wanted[i]) < 2e-15);
}

TEMPLATE_TEST_CASE("aren: memory and log-probabilities equal the float64 reference", "[models][sinusoidal]", float,
                   double) {
  if (folder().empty()) POSENC_SKIP(absent);
  const double bound = std::is_same_v<TestType, double> ? 1e-9 : 2e-4;
  for (const std::string which : {"1", "2"}) {
    const outputs<TestType> out(model<TestType>(), which, posenc::sinusoidal<TestType>(right()));
    CHECK(largest_difference(out.memory, values().values("enc" + which + "_out")) < bound);
    CHECK(largest_difference(out.log_probability, values().values("dec" + which + "_logprob")) < bound);
  }
}

TEMPLATE_TEST_CASE("aren: six words, decoded from a cache", "[models][sinusoidal]", float, double) {
  if (folder().empty()) POSENC_SKIP(absent);
  const double bound = std::is_same_v<TestType, double> ? 1e-9 : 2e-4;
  const auto& m = model<TestType>();
  const std::vector<pair> pairs = read_pairs(folder() + "pairs.tsv");
  REQUIRE(pairs.size() == 6);
  CHECK(m.source().encode(pairs[0].source) == values().ids("enc1_ids"));
  CHECK(m.source().encode(pairs[1].source) == values().ids("enc2_ids"));
  // What no line of the vocabulary holds has the last row.
  CHECK(m.source().encode("x") == token_ids{50});
  for (const pair& p : pairs) {
    const decoded d = m.transliterate(p.source, posenc::sinusoidal<TestType>(right()), m.policies(), 30);
    CHECK(d.ended);
    CHECK(m.text(d) == p.target);
    CHECK(std::abs(d.log_probability - p.log_probability) < bound);
  }
}

TEMPLATE_TEST_CASE("aren: one symbol at a time equals the whole target at once", "[models][sinusoidal]", float,
                   double) {
  if (folder().empty()) POSENC_SKIP(absent);
  const double bound = std::is_same_v<TestType, double> ? 1e-12 : 2e-5;
  const auto& m = model<TestType>();
  const posenc::sinusoidal<TestType> sines(right());
  const token_ids target = values().ids("dec1_in");
  auto memory = m.net().remember(m.encode(values().ids("enc1_ids"), sines, posenc::nope{}));
  auto at_once = m.net().make_cache(7);
  const matrix<TestType> whole = m.decode(target, sines, m.policies(), memory, at_once, {});
  for (const std::size_t n : {1U, 3U}) {
    auto cache = m.net().make_cache(7);
    posenc_test::worst worst;
    for (std::size_t t = 0; t < target.size(); t += n) {
      const auto piece = std::span(target).subspan(t, std::min(n, target.size() - t));
      const auto step = m.decode(piece, sines, m.policies(), memory, cache, positions::from(cache.size()));
      worst.see(largest_difference(step, whole.middleRows(static_cast<Eigen::Index>(t), step.rows())),
                static_cast<long double>(t));
    }
    INFO(worst);
    CHECK(worst.error < bound);
  }
}

TEST_CASE("aren: texts of a batch with other paddings say what they say alone", "[models][sinusoidal]") {
  if (folder().empty()) POSENC_SKIP(absent);
  // Words of 6 and 3 symbols and targets of 7 and 5, padded in front; positions count real symbols.
  const auto& m = model<double>();
  const posenc::sinusoidal<double> sines(right());
  token_ids source = values().ids("enc1_ids");
  token_ids target = values().ids("dec1_in");
  const auto append = [](token_ids& ids, const token_ids& shorter) {
    ids.resize(2 * ids.size() - shorter.size(), 0);
    ids.insert(ids.end(), shorter.begin(), shorter.end());
  };
  append(source, values().ids("enc2_ids"));
  append(target, values().ids("dec2_in"));
  const token_ids source_real{1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1};
  const token_ids target_real{1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1};
  const token_ids source_at = posenc::masked_ids<std::int64_t>(source_real, 2);
  const token_ids target_at = posenc::masked_ids<std::int64_t>(target_real, 2);
  const std::vector<std::int64_t> source_begin{0, 3};
  const std::vector<std::int64_t> target_begin{0, 2};
  using policy = posenc::run_time_policy<posenc::nope>;
  const policy over_source{.masks = {.padding = posenc::padding{.begin = source_begin, .end = {}}}};
  const policy over_target{.masks = {.causal = true, .padding = posenc::padding{.begin = target_begin, .end = {}}}};
  const attention_policies policies{over_source, over_target, over_source};

  const auto differ_by = [&](const auto& p, const positions& at) {
    const matrix<double> memory = m.encode(source, sines, p.encoder, at, 2);
    CHECK(largest_difference(memory.topRows(6), values().values("enc1_out")) < 1e-9);
    auto remembered = m.net().remember(memory, 2);
    auto cache = m.net().make_cache(7, 2);
    const positions where = positions::listed(target_at, 2);
    const matrix<double> y = log_softmax(m.decode(target, sines, p, remembered, cache, where, where));
    CHECK(largest_difference(y.topRows(7), values().values("dec1_logprob")) < 1e-9);
    return std::pair{largest_difference(memory.bottomRows(3), values().values("enc2_out")),
                     largest_difference(y.bottomRows(5), values().values("dec2_logprob"))};
  };
  const auto [memory_off, target_off] = differ_by(policies, positions::listed(source_at, 2));
  CHECK(memory_off < 1e-9);
  CHECK(target_off < 1e-9);
  // Positions that count the padding are seen, and so are padded keys of the memory.
  CHECK(differ_by(policies, {}).first > 0.1);
  const attention_policies open{over_source, over_target, policy{}};
  const auto [same_memory, seen] = differ_by(open, positions::listed(source_at, 2));
  CHECK(same_memory < 1e-9);
  CHECK(seen > 0.1);
}

TEST_CASE("aren: wrong encodings give the words that they should", "[models][sinusoidal]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const std::vector<pair> pairs = read_pairs(folder() + "pairs.tsv");
  const outputs<double> wanted(model<double>(), "1", posenc::sinusoidal<double>(right()));
  const auto check = [&](const char* name, const transliterator<double>& m, const auto& input, std::string words,
                         double score, double memory_off, double target_off) {
    INFO(name);
    const outputs<double> wrong(m, "1", input);
    // Differences are given to four digits, some to three.
    CHECK(largest_difference(wrong.memory, wanted.memory) == Approx(memory_off).epsilon(6e-4));
    CHECK(largest_difference(wrong.log_probability, wanted.log_probability) == Approx(target_off).epsilon(2e-3));
    std::string said;
    for (const pair& p : pairs) {
      const decoded d = m.transliterate(p.source, input, m.policies(), 30);
      if (said.empty()) CHECK(std::abs(d.log_probability - score) < 1e-6);
      said += (said.empty() ? "" : " ") + (d.ended ? m.text(d) : std::string("-"));
    }
    if (!words.empty()) CHECK(said == words);
  };
  const auto sines = [](const auto& change) {
    posenc::sinusoidal_options o = right();
    change(o);
    return posenc::sinusoidal<double>(o);
  };
  const auto& m = model<double>();
  check("first position 0", m, sines([](auto& o) { o.start = 0; }), "azmun aza mahmad brellin deshak lenden", -2.424784,
        1.801, 4.957);
  check("first position 2", m, sines([](auto& o) { o.start = 2; }), "atzmon aza muhmad berlin demschik lenden",
        -0.570430, 1.364, 3.619);
  check("interleaved", m, sines([](auto& o) { o.layout = sinusoidal_layout::interleaved_sin_cos; }),
        "suamat a'azazaza demm nerpes - nelennnn", -2.792813, 5.635, 11.6);
  check("cosines first", m, sines([](auto& o) { o.layout = sinusoidal_layout::concat_cos_sin; }), "", -8.672717, 4.388,
        10.56);
  check("step 1 / h", m, sines([](auto& o) { o.denominator = sinusoidal_denominator::half; }),
        "atzmon azza mahmad berlin demshk lenden", -0.994968, 0.1676, 0.3961);
  check("no positions", m, posenc::nope{}, "must aza med nel mushid neld", -2.381591, 4.402, 12.75);
  check("embeddings as they are", transliterator<double>(folder(), 1), posenc::sinusoidal<double>(right()),
        "hhm hah hhhm hhh mhhsk hhh", -2.188146, 2.513, 11.01);
}

TEST_CASE("F36: of the tables under one name one is that of aren", "[models][sinusoidal]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const std::vector<double> wanted = values().numbers("position_table");
  int equal = 0;
  for (const auto layout : {sinusoidal_layout::interleaved_sin_cos, sinusoidal_layout::interleaved_cos_sin,
                            sinusoidal_layout::concat_sin_cos, sinusoidal_layout::concat_cos_sin})
    for (const auto denominator : {sinusoidal_denominator::half, sinusoidal_denominator::half_minus_1})
      for (const std::int64_t start : {0, 1, 2}) {
        const std::vector<double> rows =
            posenc::sinusoidal<double>({.dim = 32, .layout = layout, .denominator = denominator, .start = start})
                .table(0, 8);
        double off = 0;
        for (std::size_t i = 0; i < rows.size(); ++i) off = std::max(off, std::abs(rows[i] - wanted[i]));
        if (off < 2e-15) {
          ++equal;
          CHECK(layout == sinusoidal_layout::concat_sin_cos);
          CHECK(denominator == sinusoidal_denominator::half_minus_1);
          CHECK(start == 1);
        } else {
          CHECK(off > 0.1);
        }
      }
  CHECK(equal == 1);
}

TEST_CASE("F38: rows of squared norm 16 need embeddings times sqrt(32)", "[models][sinusoidal]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const matrix<double> rows = values().values("position_table");
  for (Eigen::Index p = 0; p < rows.rows(); ++p) CHECK(rows.row(p).squaredNorm() == Approx(16).epsilon(1e-14));
  const posenc::sinusoidal<double> sines(right());
  const auto off = [&](double scale) {
    return largest_difference(outputs<double>(transliterator<double>(folder(), scale), "1", sines).memory,
                              values().values("enc1_out"));
  };
  CHECK(off(std::sqrt(32.0)) < 1e-9);
  CHECK(off(1) == Approx(2.513).epsilon(6e-4));
}
