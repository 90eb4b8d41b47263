// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// A GPT-2 of random weights with its learned table of positions: the same five tokens alone, behind two of padding in a
// batch, and one at a time from a cache give the same logits.

#include "gpt2/gpt2.hpp"
#include "support/expected.hpp"
#include "support/program.hpp"
#include "support/text_table.hpp"

#include <posenc/encoders/position_ids.hpp>

namespace pe = posenc_examples;

namespace {

int run(const std::string& folder, const std::vector<std::string>& words) {
  if (!words.empty()) throw std::invalid_argument("takes no words");
  const pe::gpt2<float> model{pe::safetensors(folder + "model.safetensors")};
  const pe::expected values(folder + "expected.json");
  const pe::matrix<double> wanted = values.values("logits1");
  const pe::token_ids ids = values.ids("logits1_ids");

  pe::text_table table("llr", {"how", "most likely next tokens", "differs by"});
  bool right = true;
  const auto report = [&](const char* how, const pe::matrix<float>& logits) {
    std::string best;
    for (Eigen::Index t = 0; t < logits.rows(); ++t)
      best += (t == 0 ? "" : " ") + std::to_string(pe::most_likely(pe::matrix<float>(logits.row(t))));
    const double off = pe::largest_difference(logits, wanted);
    // float32 against numbers of a float64 program.
    right = right && off < 2e-4;
    std::ostringstream number;
    number << off;
    table.add({how, best, number.str()});
  };

  report("alone", model.run(ids, {}));

  // The shorter text of a batch is padded in front; positions count real tokens.
  // [padding]
  pe::token_ids batch = values.ids("pad1_ids");
  pe::token_ids real = values.ids("pad1_valid");
  for (std::int64_t id = 1; id <= 7; ++id) {
    batch.push_back(id);
    real.push_back(1);
  }
  const std::vector<std::int64_t> begin{2, 0};
  const std::vector<std::int64_t> at = posenc::masked_ids<std::int64_t>(real, 2);
  const pe::matrix<float> logits = model.run(batch, posenc::positions::listed(at, 2), model.causal_behind(begin), 2);
  // [/padding]
  report("padded, in a batch", logits.middleRows(2, 5));

  pe::kv_cache<float> cache = model.make_cache(5);
  pe::matrix<float> steps(5, model.vocabulary);
  for (std::size_t t = 0; t < ids.size(); ++t)
    steps.row(static_cast<Eigen::Index>(t)) =
        model.run(std::span(ids).subspan(t, 1), posenc::positions::from(cache.size()), model.causal(), cache);
  report("one at a time", steps);

  std::cout << table;
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return pe::run_program(
      {.name = "gpt2", .usage = "usage: gpt2 [--model DIR]\n", .model = "gpt2_tiny", .file = "model.safetensors"},
      std::span(argv + 1, argv + argc), run);
}
