// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// A T5 that was trained to reverse strings of digits: a learned bias per bucket of distances, decoded greedily from a
// cache. Without words it compares with the numbers of the model's folder; any T5 folder with such numbers will do.

#include "support/expected.hpp"
#include "support/program.hpp"
#include "t5_reverse/t5.hpp"

namespace pe = posenc_examples;

namespace {

/// The ten symbols are the ids from 3 on.
constexpr std::int64_t first_symbol = 3;

std::string digits(const pe::token_ids& ids) {
  std::string text;
  for (const std::int64_t id : ids)
    if (id >= first_symbol && id < first_symbol + 10) text += static_cast<char>('0' + (id - first_symbol));
  return text;
}
pe::token_ids symbols(const std::string& word) {
  pe::token_ids ids;
  for (const char c : word) {
    if (c < '0' || c > '9') throw std::invalid_argument(word + " is not a string of digits");
    ids.push_back(first_symbol + (c - '0'));
  }
  ids.push_back(pe::t5<float>::end_id);
  return ids;
}

int run(const std::string& folder, const std::vector<std::string>& words) {
  const pe::t5<float> model(folder);
  const auto policies = model.policies();
  for (const std::string& word : words) {
    const pe::token_ids ids = symbols(word);
    std::cout << word << " -> " << digits(model.answer(ids, policies, static_cast<std::int64_t>(ids.size())).ids)
              << '\n';
  }
  if (!words.empty()) return 0;

  const pe::expected values(folder + "expected.json");
  const pe::matrix<float> memory = model.encode(values.ids("enc1_ids"), policies.encoder);
  const pe::token_ids in = values.ids("dec1_in");
  auto remembered = model.net().remember(memory);
  auto cache = model.net().make_cache(static_cast<std::int64_t>(in.size()));
  const pe::matrix<float> logits = model.decode(in, policies, remembered, cache, {});
  const double memory_off = pe::largest_difference(memory, values.values("enc1_out"));
  // Of a large vocabulary the folder holds the first logits.
  const pe::matrix<double> wanted = values.values(values.has("dec1_logits") ? "dec1_logits" : "dec1_logits64");
  const double logits_off = pe::largest_difference(logits.leftCols(wanted.cols()), wanted);
  std::cout << "memory differs by " << memory_off << ", logits differ by " << logits_off << '\n';
  // float32 against numbers of a float64 program.
  bool right = memory_off < 2e-4 && logits_off < 2e-4;

  if (values.has("eval8_in")) {
    const pe::matrix<double> strings = values.values("eval8_in");
    const pe::matrix<double> answers = values.values("eval8_out");
    int as_expected = 0;
    int reversed = 0;
    for (Eigen::Index i = 0; i < strings.rows(); ++i) {
      const auto row = [](const auto& r) { return pe::token_ids(r.begin(), r.end()); };
      const pe::token_ids ids = row(strings.row(i));
      pe::token_ids out = model.answer(ids, policies, strings.cols()).ids;
      std::string backwards = digits(ids);
      std::reverse(backwards.begin(), backwards.end());
      if (i < 4) std::cout << digits(ids) << " -> " << digits(out) << '\n';
      if (digits(out) == backwards && out.back() == pe::t5<float>::end_id) ++reversed;
      out.resize(static_cast<std::size_t>(answers.cols()), 0);
      if (out == row(answers.row(i))) ++as_expected;
    }
    std::cout << reversed << " of " << strings.rows() << " reversed, " << as_expected << " as expected\n";
    right = right && as_expected == strings.rows();
  }
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
#ifdef POSENC_EXAMPLES_DIR
  const std::string built_from = POSENC_EXAMPLES_DIR;
#else
  const std::string built_from = "examples";
#endif
  return pe::run_program({.name = "t5_reverse",
                          .usage = "usage: t5_reverse [--model DIR] [DIGITS...]\n",
                          .model = "t5_reverse",
                          .file = "model.safetensors",
                          .folder = built_from + "/models/t5_reverse/"},
                         std::span(argv + 1, argv + argc), run);
}
