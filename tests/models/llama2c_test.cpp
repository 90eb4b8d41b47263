// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// A trained RoPE model, end to end: stories260K in the llama2.c format, through examples/llama2c. Expected numbers come
// from a separate implementation in float64. The wrong encodings show that these tests can fail.

#include "llama2c/llama.hpp"
#include "support/catch.hpp"
#include "support/expected.hpp"
#include "support/llama2c_tokenizer.hpp"
#include "support/model_folder.hpp"
#include "support/tolerance.hpp"

#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/position_ids.hpp>
#include <posenc/encoders/rope_table.hpp>

#include <filesystem>
#include <map>

using namespace posenc_examples;

namespace {

std::string folder() { return model_folder("stories260K", "stories260K.bin"); }
constexpr const char* absent = "models/stories260K is not in POSENC_TEST_DATA";

template <class T>
const llama<T>& model() {
  static const llama<T> m(read_llama2c<T>(folder() + "stories260K.bin"));
  return m;
}
const expected& values() {
  static const expected e(folder() + "expected.json");
  return e;
}
template <class T>
posenc::rope<T> right() {
  return posenc::rope<T>(llama2c_rope(model<T>().config()));
}
posenc::rope<double> with_frequencies(std::vector<double> inv_freq) {
  posenc::rope_options o = llama2c_rope(model<double>().config());
  o.inv_freq = std::move(inv_freq);
  return posenc::rope<double>(o);
}
posenc::rope<double> with_base(double base) {
  posenc::rope_options o = llama2c_rope(model<double>().config());
  o.base = base;
  return posenc::rope<double>(o);
}

matrix<double> rows_of(const matrix<double>& m, const token_ids& rows) {
  matrix<double> picked(static_cast<Eigen::Index>(rows.size()), m.cols());
  for (std::size_t i = 0; i < rows.size(); ++i) picked.row(static_cast<Eigen::Index>(i)) = m.row(rows[i]);
  return picked;
}

/// The model with every query turned `by` positions further: R(p + by) = R(p) R(by), and R(by) goes into the weights.
llama<double> with_queries_shifted(std::int64_t by) {
  llama2c_checkpoint<double> w = model<double>().weights();
  for (auto& layer : w.layers) {
    matrix<double> columns = layer.wq.transpose();
    const std::vector<std::int64_t> at(static_cast<std::size_t>(columns.rows()), by);
    right<double>().rotate(posenc::as_view(columns, w.config.heads), posenc::positions::listed(at));
    layer.wq = columns.transpose();
  }
  return llama<double>(std::move(w));
}
/// The model with query head h reading key head h mod 4: the heads 0, 4, 1, 5, ... stand where those are read.
llama<double> with_tiled_key_heads() {
  llama2c_checkpoint<double> w = model<double>().weights();
  for (auto& layer : w.layers) {
    const matrix<double> wq = layer.wq;
    const matrix<double> wo = layer.wo;
    for (int place = 0; place < 8; ++place) {
      const int head = place / 2 + 4 * (place % 2);
      layer.wq.middleRows(8 * place, 8) = wq.middleRows(8 * head, 8);
      layer.wo.middleCols(8 * place, 8) = wo.middleCols(8 * head, 8);
    }
  }
  return llama<double>(std::move(w));
}

/// texts.tsv: key, tab, text with \n and \\ escaped.
std::map<std::string, std::string> texts() {
  std::map<std::string, std::string> all;
  std::string file = read_file(folder() + "texts.tsv");
  for (std::size_t at = 0; at < file.size();) {
    const std::size_t end = file.find('\n', at);
    const std::string line = file.substr(at, end - at);
    at = end == std::string::npos ? file.size() : end + 1;
    const std::size_t tab = line.find('\t');
    if (tab == std::string::npos) continue;
    std::string text;
    for (std::size_t i = tab + 1; i < line.size(); ++i)
      text += line[i] != '\\' ? line[i] : line[++i] == 'n' ? '\n' : line[i];
    all[line.substr(0, tab)] = text;
  }
  return all;
}

}  // namespace

TEMPLATE_TEST_CASE("llama2c: greedy ids of three texts are exact", "[models][rope]", float, double) {
  if (folder().empty()) POSENC_SKIP(absent);
  for (const std::string name : {"greedy1", "greedy2", "greedy3"}) {
    const token_ids prompt = values().ids(name + "_prompt");
    const token_ids ids = values().ids(name + "_ids");
    CAPTURE(name);
    CHECK(generate(model<TestType>(), right<TestType>(), prompt, static_cast<std::int64_t>(ids.size() - prompt.size()),
                   [](std::int64_t, std::int64_t) {}) == ids);
  }
}

TEST_CASE("llama2c: the tokenizer encodes prompts and decodes stories", "[models]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const llama2c_tokenizer tokenizer(folder() + "tok512.bin");
  CHECK(tokenizer.size() == 512);
  CHECK(tokenizer.encode("Once upon a time") == token_ids{1, 403, 407, 261, 378});
  CHECK(tokenizer.encode("") == token_ids{1});
  // A line feed has no piece and becomes its byte.
  CHECK(tokenizer.encode("\n") == token_ids{1, 410, 13});
  const auto text = texts();
  for (const std::string name : {"greedy1", "greedy2", "greedy3"}) {
    CHECK(tokenizer.decode(values().ids(name + "_ids")) == text.at(name));
    CHECK(tokenizer.encode(text.at(name + "_prompt")) == values().ids(name + "_prompt"));
  }
  CHECK(tokenizer.encode(text.at("text1")) == values().ids("text1_ids"));
  CHECK(tokenizer.decode(values().ids("text1_ids")) == text.at("text1"));
  CHECK(text.at("greedy1").starts_with("Once upon a time, there was a little girl named Lily. She loved to play"));
}

TEMPLATE_TEST_CASE("llama2c: losses and logits equal the float64 reference", "[models][rope]", float, double) {
  if (folder().empty()) POSENC_SKIP(absent);
  const bool wide = std::is_same_v<TestType, double>;
  const double loss_bound = wide ? 1e-9 : 2e-4;
  const double logit_bound = wide ? 1e-9 : 2e-4;

  const token_ids text = values().ids("text1_ids");
  const matrix<TestType> text_logits = model<TestType>().run(text, right<TestType>());
  CHECK(std::abs(mean_loss(text_logits, text) - values().number("text1_nll")) < loss_bound);
  const std::vector<double> each = token_losses(text_logits, text);
  const std::vector<double> wanted = values().numbers("text1_token_nll");
  REQUIRE(each.size() == wanted.size());
  for (std::size_t i = 0; i < each.size(); ++i) CHECK(std::abs(each[i] - wanted[i]) < loss_bound);

  const token_ids story = values().ids("logits1_ids");
  const matrix<double> logits = model<TestType>().run(story, right<TestType>()).template cast<double>();
  CHECK(std::abs(mean_loss(logits, story) - values().number("logits1_nll")) < loss_bound);
  CHECK(largest_difference(rows_of(logits, values().ids("logits1_pos")), values().values("logits1")) < logit_bound);
}

TEMPLATE_TEST_CASE("llama2c: queries and keys of the first layer, before and after the rotation", "[models][rope]",
                   float, double) {
  if (folder().empty()) POSENC_SKIP(absent);
  const double bound = std::is_same_v<TestType, double> ? 1e-12 : 5e-6;
  const token_ids story = values().ids("logits1_ids");
  const token_ids at = values().ids("probe_pos");
  const auto& m = model<TestType>();
  auto [q, k, v] = m.project(embedding_rows<TestType>(m.weights().embedding, story), 0);
  const auto probe = [&](const matrix<TestType>& x, const std::string& name) {
    const std::vector<double> wanted = values().numbers(name);
    const matrix<double> seen = rows_of(x.template cast<double>(), at);
    return largest_difference(
        seen, matrix<double>(Eigen::Map<const matrix<double>>(wanted.data(), seen.rows(), seen.cols())));
  };
  CHECK(probe(q, "probe_q_before") < bound);
  CHECK(probe(k, "probe_k_before") < bound);
  right<TestType>().rotate(posenc::as_view(q, m.config().heads));
  right<TestType>().rotate(posenc::as_view(k, m.config().kv_heads));
  CHECK(probe(q, "probe_q_after") < bound);
  CHECK(probe(k, "probe_k_after") < bound);
}

TEST_CASE("llama2c: the checkpoint's float32 tables are ours to their accuracy", "[models][rope]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const auto& w = model<double>().weights();
  const posenc::rope_table<double> table(right<double>(), 0, w.config.seq_len);
  posenc_test::worst worst;
  for (std::int64_t p = 0; p < w.config.seq_len; ++p)
    for (std::int64_t i = 0; i < w.config.head_dim() / 2; ++i) {
      worst.see(std::abs(w.cos(p, i) - table.cos(p)[i]), static_cast<long double>(p));
      worst.see(std::abs(w.sin(p, i) - table.sin(p)[i]), static_cast<long double>(p));
    }
  // The distance of the file's tables from exact values, as measured by the reference.
  CHECK(static_cast<double>(worst.error) == Approx(2.289e-6).epsilon(1e-3));
}

TEMPLATE_TEST_CASE("llama2c: one token at a time equals the whole text at once", "[models][rope]", float, double) {
  if (folder().empty()) POSENC_SKIP(absent);
  const double bound = std::is_same_v<TestType, double> ? 1e-12 : 2e-5;
  const token_ids ids = values().ids("text1_ids");
  const auto& m = model<TestType>();
  const matrix<TestType> whole = m.run(ids, right<TestType>());
  kv_cache<TestType> cache = m.make_cache(static_cast<std::int64_t>(ids.size()));
  posenc_test::worst worst;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const matrix<TestType> step = m.run(std::span(ids).subspan(t, 1), right<TestType>(), cache);
    const matrix<TestType> same = whole.row(static_cast<Eigen::Index>(t));
    worst.see(largest_difference(step, same), static_cast<long double>(t));
  }
  INFO(worst);
  CHECK(worst.error < bound);
  // Pieces of several tokens go the same way.
  kv_cache<TestType> pieces = m.make_cache(static_cast<std::int64_t>(ids.size()));
  for (std::size_t t = 0; t < ids.size(); t += 7) {
    const std::size_t n = std::min<std::size_t>(7, ids.size() - t);
    const matrix<TestType> part = m.run(std::span(ids).subspan(t, n), right<TestType>(), pieces);
    const matrix<TestType> same = whole.middleRows(static_cast<Eigen::Index>(t), part.rows());
    CHECK(largest_difference(part, same) < bound);
  }
}

TEST_CASE("llama2c: wrong encodings give the losses that they should", "[models][rope]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const token_ids story = values().ids("logits1_ids");
  const token_ids text = values().ids("text1_ids");
  const matrix<double> logits = model<double>().run(story, right<double>());
  const auto check = [&](const char* name, const llama<double>& m, const posenc::rope<double>& rotation,
                         double story_loss, double differs_by, double text_loss) {
    INFO(name);
    const matrix<double> wrong = m.run(story, rotation);
    CHECK(std::abs(mean_loss(wrong, story) - story_loss) < 1e-6);
    // Differences are given to three digits.
    CHECK(largest_difference(logits, wrong) == Approx(differs_by).epsilon(6e-3));
    CHECK(std::abs(mean_loss(m.run(text, rotation), text) - text_loss) < 1e-6);
  };
  posenc::rope_options half = llama2c_rope(model<double>().config());
  half.layout = posenc::rope_layout::half_split;
  const auto power = [](double exponent) {
    return with_frequencies(
        {1, std::pow(10000, exponent), std::pow(10000, 2 * exponent), std::pow(10000, 3 * exponent)});
  };
  const auto& m = model<double>();
  check("half pairing", m, posenc::rope<double>(half), 4.853862, 23.1, 4.112848);
  check("no rotation", m, with_frequencies({0, 0, 0, 0}), 4.263978, 20.9, 4.221367);
  check("sign turned", m, with_frequencies({-1, -0.1, -0.01, -0.001}), 5.999023, 21.8, 5.293934);
  check("query position one too high", with_queries_shifted(1), right<double>(), 1.284229, 18, 2.807321);
  check("query position one too low", with_queries_shifted(-1), right<double>(), 0.813671, 15.1, 1.994338);
  check("exponent -i/8", m, power(-1.0 / 8), 5.071690, 27, 4.012464);
  check("exponent -2i/64", m, power(-2.0 / 64), 6.488368, 24.3, 6.060700);
  check("exponent -i/3", m, power(-1.0 / 3), 0.837557, 11.1, 1.788414);
  check("base 9000", m, with_base(9000), 0.455199, 0.385, 1.419656);
  check("base 11000", m, with_base(11000), 0.457102, 0.33, 1.425586);
  check("key heads tiled", with_tiled_key_heads(), right<double>(), 4.897403, 22.9, 5.062516);
}

TEST_CASE("llama2c: shifting every position changes nothing", "[models][rope]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const auto& m = model<double>();
  const token_ids story = values().ids("logits1_ids");
  const matrix<double> logits = m.run(story, right<double>());
  CHECK(largest_difference(logits, m.run(story, right<double>(), 100)) < 1e-12);
  // Far out, where float32 angles would be noise.
  CHECK(largest_difference(logits, m.run(story, right<double>(), 100'000'000)) < 1e-7);
}

TEST_CASE("llama2c: texts of a batch with other paddings say what they say alone", "[models][rope]") {
  if (folder().empty()) POSENC_SKIP(absent);
  // Three texts of 20, 13 and 1 tokens, padded in front; positions count real tokens.
  const auto& m = model<double>();
  const token_ids story = values().ids("logits1_ids");
  const std::vector<std::int64_t> begin{0, 7, 19};
  token_ids ids;
  token_ids real;
  for (const std::int64_t b : begin)
    for (std::int64_t t = 0; t < 20; ++t) {
      real.push_back(t >= b ? 1 : 0);
      ids.push_back(t >= b ? story[static_cast<std::size_t>(t - b + 2 * b)] : 0);
    }
  const token_ids counted = posenc::masked_ids<std::int64_t>(real, 3);
  const auto at = posenc::positions::listed(counted, 3);
  const posenc::run_time_policy<> mask{
      .masks = {.causal = true, .padding = posenc::padding{.begin = begin, .end = {}}}};
  auto cache = m.make_cache(20, 3);
  const matrix<double> logits = m.run(ids, right<double>(), mask, cache, at, at);
  for (std::size_t b = 0; b < begin.size(); ++b) {
    const auto n = static_cast<std::size_t>(20 - begin[b]);
    const matrix<double> alone = m.run(std::span(ids).subspan(20 * (b + 1) - n, n), right<double>());
    CHECK(largest_difference(logits.middleRows(static_cast<Eigen::Index>(20 * (b + 1) - n), alone.rows()), alone) <
          1e-12);
  }
}

TEST_CASE("llama2c: damaged files are refused in one line", "[models]") {
  if (folder().empty()) POSENC_SKIP(absent);
  const std::string path = (std::filesystem::temp_directory_path() / "posenc_damaged.bin").string();
  const std::string whole = read_file(folder() + "stories260K.bin");
  const auto write = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; };
  for (const std::size_t size : {std::size_t{0}, std::size_t{27}, std::size_t{28}, whole.size() - 1}) {
    write(whole.substr(0, size));
    CHECK_THROWS_WITH(read_llama2c<float>(path), posenc_test::contains("ends early"));
  }
  write(whole + "x");
  CHECK_THROWS_WITH(read_llama2c<float>(path), posenc_test::contains("1 bytes follow"));
  std::string zeros = whole;
  zeros.replace(0, 28, std::string(28, '\0'));
  write(zeros);
  CHECK_THROWS_WITH(read_llama2c<float>(path), posenc_test::contains("is not a llama2.c checkpoint"));
  CHECK_THROWS_WITH(llama2c_tokenizer(path), posenc_test::contains("tokenizer") || posenc_test::contains("no pieces") ||
                                                 posenc_test::contains("ends early"));
  std::filesystem::remove(path);
  CHECK_THROWS_WITH(read_llama2c<float>(path), posenc_test::contains("cannot be opened"));
}
