// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The first table: a model that was trained with ALiBi reads held-out text under encodings it never saw.

#include "compare/results.hpp"
#include "support/held_out.hpp"
#include "support/text_table.hpp"

#include <posenc/attention/masks.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/rope.hpp>
#include <posenc/encoders/sinusoidal.hpp>

namespace compare {

namespace {
namespace pe = posenc_examples;

constexpr std::int64_t sample_characters = 240;

std::string checked_text(const std::string& path) {
  if (!std::filesystem::is_regular_file(path))
    throw std::runtime_error(path + ": is no file; --text FILE names the text to read");
  const std::string text = pe::read_file(path);
  const auto held_out = static_cast<std::int64_t>(pe::last_tenth(text).size());
  const std::int64_t needed = pe::held_out_windows * lengths.front();
  if (held_out < needed)
    throw std::runtime_error(path + ": is too short: its last tenth has " + std::to_string(held_out) +
                             " bytes, at least " + std::to_string(needed) + " are needed");
  return text;
}

}  // namespace

swap_results swap_encodings(const std::string& model_folder, const std::string& text_path, pe::progress& progress) {
  const std::string text = checked_text(text_path);
  const std::string_view held_out = pe::last_tenth(text);
  using model_type = pe::char_model<float>;
  const model_type model{pe::safetensors(model_folder + "/model.safetensors")};
  progress.stage("Reading the text with a trained model");

  swap_results results;
  results.text_path = text_path;
  results.text_bytes = static_cast<std::int64_t>(text.size());
  results.held_out_bytes = static_cast<std::int64_t>(held_out.size());
  const auto add = [&](const std::string& name, const auto& encoding) {
    swapped_encoding row{.name = name};
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      progress.step(name + ", " + std::to_string(lengths[i]) + " characters");
      row.losses[i] = pe::held_out_loss(model, encoding, held_out, lengths[i]);
    }
    results.encodings.push_back(std::move(row));
  };
  const auto rotated = [](posenc::rope_layout layout) {
    return pe::encoding{
        posenc::compose(posenc::rope<float>({.head_dim = model_type::head_dim, .layout = layout}), posenc::causal{})};
  };
  const pe::encoding own{posenc::compose(posenc::alibi<float>(model_type::heads), posenc::causal{})};
  const pe::encoding geometric{posenc::compose(
      posenc::alibi<float>({.heads = model_type::heads, .rule = posenc::slope_rule::geometric}), posenc::causal{})};
  const auto bare = posenc::compose(posenc::causal{});
  const posenc::sinusoidal<float> sines({.dim = model_type::width});

  add("ALiBi, its own", own);
  add("none", pe::encoding{bare});
  add("RoPE, half pairing", rotated(posenc::half_split));
  add("RoPE, interleaved pairing", rotated(posenc::interleaved));
  add("sinusoidal", pe::encoding{bare, sines});
  add("ALiBi and sinusoidal", pe::encoding{own.policy, sines});
  add("ALiBi, plain geometric slopes", geometric);
  results.encodings.push_back({.name = "learned table", .trained = false});
  results.encodings.push_back({.name = "T5 buckets", .trained = false});

  progress.step("a sample");
  results.prompt = "This License ";
  results.sample = pe::continue_text(model, own, results.prompt, sample_characters).substr(results.prompt.size());
  return results;
}

}  // namespace compare
