// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What the comparison finds: everything that is printed, and the same as JSON.

#include "support/progress.hpp"

#include <posenc/core/traits.hpp>

#include <array>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace compare {

/// Characters per window of held-out text.
inline constexpr std::array<std::int64_t, 4> lengths{96, 192, 384, 768};

/// One encoding put into the trained model.
struct swapped_encoding {
  std::string name;
  /// Whether the model has the parameters that the encoding needs.
  bool trained = true;
  /// Nothing where the text is too short for the windows of a length.
  std::array<std::optional<double>, lengths.size()> losses{};
};

struct swap_results {
  std::string text_path;
  std::int64_t text_bytes = 0;
  std::int64_t held_out_bytes = 0;
  std::vector<swapped_encoding> encodings;
  std::string prompt;
  /// The model's continuation of the prompt with its own encoding.
  std::string sample;
};

/// One encoder as measured.
struct measured_encoder {
  posenc::encoder_traits traits;
  posenc::encoder_description description;
  std::string options;
  /// What its own work per token is; empty where there is none.
  std::string work;
  /// Median time of that work.
  double ns_per_token = 0;
  /// Median times of attention per layer, its rotations included, and the medians of the ratio to NoPE's in the same
  /// round.
  double prefill_us = 0;
  double prefill_ratio = 0;
  double decode_us = 0;
  double decode_ratio = 0;
};

struct measure_results {
  std::string cpu;
  std::string instructions;
  std::string compiler;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t prefill_keys = 0;
  std::int64_t decode_keys = 0;
  std::int64_t rounds = 0;
  std::vector<measured_encoder> encoders;
};

/// Reads the model and the text and fills the first table. @throws std::runtime_error with one line.
[[nodiscard]] swap_results swap_encodings(const std::string& model_folder, const std::string& text_path,
                                          posenc_examples::progress& progress);
/// Fills the second table.
[[nodiscard]] measure_results measure_encoders(posenc_examples::progress& progress);

void print(std::ostream& out, const swap_results& results);
void print(std::ostream& out, const measure_results& results);
/// Every number of both tables, one object.
void write_json(std::ostream& out, const swap_results& swapped, const measure_results& measured, double seconds);

// The second table's words, from what encoders say of themselves.
[[nodiscard]] std::string relations_enter(const posenc::encoder_traits& traits);
[[nodiscard]] std::string length_limit(const posenc::encoder_traits& traits, const posenc::encoder_description& d);

}  // namespace compare
