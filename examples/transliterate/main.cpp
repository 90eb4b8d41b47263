// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Writes Arabic words in Latin letters: an encoder-decoder with sinusoidal positions, decoded greedily from a cache.
// Without words it reads those of the model's pairs.tsv, and compares.

#include "support/pairs.hpp"
#include "support/program.hpp"
#include "support/text_table.hpp"
#include "transliterate/transliterator.hpp"

namespace pe = posenc_examples;

namespace {

int run(const std::string& folder, const std::vector<std::string>& words) {
  const pe::transliterator<float> model(folder);
  const posenc::sinusoidal<float> sines(pe::ctranslate2_positions(model.width));
  const auto policies = model.policies();
  std::vector<pe::pair> pairs;
  for (const std::string& word : words) pairs.push_back({.source = word});
  if (words.empty()) pairs = pe::read_pairs(folder + "pairs.tsv");

  pe::text_table table("lr", {"word", "log-probability"});
  int wrong = 0;
  for (const pe::pair& pair : pairs) {
    const pe::decoded d = model.transliterate(pair.source, sines, policies, 30);
    const std::string text = model.text(d);
    table.add({text + (d.ended ? "" : " (no end)"), pe::decimals(d.log_probability, 6)});
    // float32 against numbers of a float64 program.
    const bool right = text == pair.target && std::abs(d.log_probability - pair.log_probability) < 2e-4;
    if (words.empty() && !right) ++wrong;
  }
  std::cout << table;
  if (words.empty())
    std::cout << pairs.size() - static_cast<std::size_t>(wrong) << " of " << pairs.size() << " as expected\n";
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return pe::run_program({.name = "transliterate",
                          .usage = "usage: transliterate [--model DIR] [WORD...]\n",
                          .model = "aren",
                          .file = "model.bin"},
                         std::span(argv + 1, argv + argc), run);
}
