// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// encoder_table           prints the table of encoders that README.md shows, from their traits and descriptions.
// encoder_table README    compares it with what stands there between `<!-- encoder table -->` and
//                         `<!-- /encoder table -->`; exit code 1 and the right table where they differ.
#include <posenc/attention/irope.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/sinusoidal.hpp>
#include <posenc/encoders/toeplitz.hpp>
#include <posenc/encoders/xpos.hpp>

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

// The model that the numbers of the table belong to; its caption says so.
constexpr std::int64_t width = 512;
constexpr std::int64_t heads = 8;
constexpr std::int64_t head_dim = width / heads;
constexpr std::int64_t length = 512;

// `users` is the one thing that code can not say of itself.
template <class Encoder>
void print_row(std::ostream& out, const Encoder& encoder, std::string_view header, std::string_view users) {
  const posenc::encoder_traits t = Encoder::traits;
  const posenc::encoder_description d = encoder.describe();
  out << "| [" << t.name << "](docs/encoders/" << t.name << ".md) | " << to_string(t.site) << " | "
      << to_string(t.relation) << " | " << to_string(t.origin) << " | " << d.parameters << " | "
      << (d.position_limit ? std::to_string(*d.position_limit - 1) : "no limit") << " | " << to_string(d.shift) << " | "
      << users << " | `" << header << "` |\n";
}

void print_table(std::ostream& out) {
  using namespace posenc;
  out << "| encoder | where position enters | relation | values | parameters | longest position | cached keys after a "
         "shift "
         "| who uses it | header |\n|---|---|---|---|---|---|---|---|---|\n";
  print_row(out, sinusoidal<float>({.dim = width}), "encoders/sinusoidal.hpp",
            "the Transformer, Marian, M2M100, Whisper's encoder, MusicGen, MAE");
  print_row(out, learned<float>({.rows = length, .dim = width}, std::vector<float>(length * width)),
            "encoders/learned.hpp", "BERT, GPT-2, OPT, RoBERTa, ViT, Whisper's decoder");
  print_row(out, relative_bucket<float>({.heads = heads}, std::vector<float>(32 * heads)),
            "encoders/relative_bucket.hpp", "T5, mT5, UMT5, FLAN-T5, MPNet, WavLM");
  print_row(out, toeplitz<float>(heads, length - 1, [](std::int64_t, std::int64_t) { return 0.0f; }),
            "encoders/toeplitz.hpp", "any bias that depends on distance alone");
  print_row(out, alibi<float>(heads), "encoders/alibi.hpp", "BLOOM, MPT, Falcon-RW, Baichuan-13B, JAIS, Jina-BERT");
  print_row(out, rope<float>({.head_dim = head_dim}), "encoders/rope.hpp",
            "Llama, Mistral, Qwen, Gemma, Phi, GPT-NeoX, GPT-J, GLM, Cohere, DeepSeek");
  print_row(out, xpos<float>({.head_dim = head_dim}), "encoders/xpos.hpp", "torchscale's models");
  print_row(out, nope{}, "encoders/nope.hpp",
            "every fourth layer of Llama 4 and SmolLM3; Cohere 2's full-attention layers");
  print_row(out, irope<float>({.layers = 4, .rope = {.head_dim = head_dim}}), "attention/irope.hpp", "Llama 4");
}

// What stands between the two marks, or nothing where they are missing.
std::string region(const std::string& text) {
  const std::string begin = "<!-- encoder table -->\n";
  const std::string end = "<!-- /encoder table -->";
  const std::size_t from = text.find(begin);
  if (from == std::string::npos) return {};
  const std::size_t to = text.find(end, from);
  if (to == std::string::npos) return {};
  return text.substr(from + begin.size(), to - from - begin.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::ostringstream table;
  print_table(table);
  if (argc < 2) {
    std::cout << table.str();
    return 0;
  }
  std::ifstream file(argv[1]);
  std::ostringstream text;
  text << file.rdbuf();
  if (region(text.str()) == table.str()) {
    std::cout << "the table in " << argv[1] << " is up to date\n";
    return 0;
  }
  std::cout << argv[1] << ": the table of encoders must read\n" << table.str();
  return 1;
}
