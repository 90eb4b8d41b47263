// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Greedy generation with a llama2.c checkpoint: each step attends to a cache of rotated keys.

#include "llama2c/llama.hpp"
#include "support/llama2c_tokenizer.hpp"

#include <charconv>
#include <iostream>

namespace {

constexpr const char* usage = "usage: llama2c MODEL TOKENIZER [--prompt TEXT] [--tokens N]\n";

struct options {
  std::string model;
  std::string tokenizer;
  std::string prompt;
  std::int64_t tokens = 0;  // 0: as many as the model was trained for
};

options parse(std::span<char*> arguments) {
  options o;
  std::vector<std::string> files;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view a = arguments[i];
    if (!a.starts_with("--")) {
      files.emplace_back(a);
      continue;
    }
    if (a != "--prompt" && a != "--tokens") throw std::invalid_argument("unknown option " + std::string(a));
    if (++i == arguments.size()) throw std::invalid_argument(std::string(a) + " needs a value");
    const std::string_view value = arguments[i];
    if (a == "--prompt") {
      o.prompt = value;
    } else {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), o.tokens);
      if (error != std::errc{} || end != value.data() + value.size() || o.tokens < 1)
        throw std::invalid_argument("--tokens needs a number of at least 1");
    }
  }
  if (files.size() != 2) throw std::invalid_argument("a model and a tokenizer are needed");
  o.model = files[0];
  o.tokenizer = files[1];
  return o;
}

void run(const options& o) {
  namespace pe = posenc_examples;
  const pe::llama2c_tokenizer tokenizer(o.tokenizer);
  const pe::llama<float> model(pe::read_llama2c<float>(o.model));
  if (tokenizer.size() != model.config().vocabulary)
    throw std::runtime_error("the tokenizer has " + std::to_string(tokenizer.size()) + " pieces, the model " +
                             std::to_string(model.config().vocabulary));
  const pe::token_ids prompt = tokenizer.encode(o.prompt);
  const std::int64_t room = model.config().seq_len - static_cast<std::int64_t>(prompt.size());
  if (room < 1) throw std::runtime_error("the prompt fills all " + std::to_string(model.config().seq_len) + " tokens");
  const posenc::rope<float> rotation(pe::llama2c_rope(model.config()));
  std::cout << tokenizer.decode(prompt);
  pe::generate(model, rotation, prompt, o.tokens == 0 ? room : std::min(o.tokens, room),
               [&](std::int64_t before, std::int64_t id) { std::cout << tokenizer.decode(before, id) << std::flush; });
  std::cout << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  const std::span arguments(argv + 1, argv + argc);
  for (const char* a : arguments)
    if (std::string_view(a) == "--help") {
      std::cout << usage;
      return 0;
    }
  try {
    run(parse(arguments));
  } catch (const std::invalid_argument& e) {
    std::cerr << "llama2c: " << e.what() << "; " << usage;
    return 2;
  } catch (const std::exception& e) {
    std::cerr << "llama2c: " << e.what() << '\n';
    return 2;
  }
}
