// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The two tables as text and as JSON.

#include "compare/results.hpp"
#include "support/text_table.hpp"

#include <nlohmann/json.hpp>

namespace compare {

namespace {
namespace pe = posenc_examples;

/// The sample with a bar before every line; anything but printable ASCII is a question mark.
std::string quoted(const std::string& text) {
  std::string out = "  | ";
  std::size_t column = 0;
  for (const char c : text) {
    if (c == '\n' || (c == ' ' && column > 80)) {
      out += "\n  | ";
      column = 0;
      continue;
    }
    out += c >= ' ' && c <= '~' ? c : '?';
    ++column;
  }
  return out + "\n";
}

nlohmann::json to_json(const swap_results& r) {
  nlohmann::json rows = nlohmann::json::array();
  for (const swapped_encoding& e : r.encodings) {
    nlohmann::json losses = nlohmann::json::object();
    for (std::size_t i = 0; i < lengths.size(); ++i)
      losses[std::to_string(lengths[i])] = e.losses[i] ? nlohmann::json(*e.losses[i]) : nlohmann::json();
    rows.push_back({{"encoding", e.name}, {"trained", e.trained}, {"losses", losses}});
  }
  return {{"ranks", "nothing: the weights were trained with ALiBi only"},
          {"text", r.text_path},
          {"text_bytes", r.text_bytes},
          {"held_out_bytes", r.held_out_bytes},
          {"encodings", rows},
          {"prompt", r.prompt},
          {"sample_of_the_model", r.sample}};
}

nlohmann::json to_json(const measure_results& r) {
  nlohmann::json rows = nlohmann::json::array();
  for (const measured_encoder& e : r.encoders)
    rows.push_back({{"encoder", e.traits.name},
                    {"position_enters_at", to_string(e.traits.site)},
                    {"relative_relations", relations_enter(e.traits)},
                    {"length_limit", length_limit(e.traits, e.description)},
                    {"options", e.options},
                    {"parameters", e.description.parameters},
                    {"table_bytes", e.description.table_bytes},
                    {"work", e.work.empty() ? nlohmann::json() : nlohmann::json(e.work)},
                    {"ns_per_token", e.work.empty() ? nlohmann::json() : nlohmann::json(e.ns_per_token)},
                    {"prefill_us", e.prefill_us},
                    {"prefill_ratio", e.prefill_ratio},
                    {"decode_us", e.decode_us},
                    {"decode_ratio", e.decode_ratio}});
  return {
      {"cpu", r.cpu},           {"instructions", r.instructions}, {"compiler", r.compiler},       {"heads", r.heads},
      {"head_dim", r.head_dim}, {"prefill_keys", r.prefill_keys}, {"decode_keys", r.decode_keys}, {"rounds", r.rounds},
      {"encoders", rows}};
}

}  // namespace

std::string relations_enter(const posenc::encoder_traits& t) {
  if (t.relation == posenc::relation::none) return "not at all, the mask alone orders";
  if (t.relation == posenc::relation::absolute)
    return t.site == posenc::site::input ? "through weights that learn them" : "q.k by distance, in some layers";
  std::string words = t.site == posenc::site::logit
                          ? std::string("a value per distance, ") + (t.symmetric ? "sides alike" : "sides differ")
                          : std::string("q.k by distance");
  if (!t.translation_invariant) words += ", and positions";
  return words;
}

std::string length_limit(const posenc::encoder_traits& t, const posenc::encoder_description& d) {
  if (d.position_limit) return "its table, " + pe::grouped(*d.position_limit) + " positions";
  // Nothing in the formula ends there; what the weights do at lengths they never saw is another matter.
  if (t.relation == posenc::relation::none) return "the lengths trained on";
  if (d.monotone) return "no key gains with distance";
  return t.relation == posenc::relation::absolute ? "the positions trained on" : "the distances trained on";
}

void print(std::ostream& out, const swap_results& r) {
  out << "What breaks when the encoding of a trained model is swapped\n"
      << "These losses rank nothing: the weights were trained with ALiBi only, at 96 characters, so every other line\n"
      << "shows damage, not quality. Loss per character (nats), mean of 4 windows of held-out text.\n"
      << "Text: the last " << pe::grouped(r.held_out_bytes) << " of " << pe::grouped(r.text_bytes) << " bytes of "
      << r.text_path << "\n\n";
  pe::text_table table("lrrrr", {"encoding", "96", "192", "384", "768"});
  bool too_short = false;
  for (const swapped_encoding& e : r.encodings) {
    std::vector<std::string> row{e.name};
    for (const auto& loss : e.losses) {
      row.push_back(loss ? pe::decimals(*loss, 4) : e.trained ? "n/a" : "-");
      too_short = too_short || (e.trained && !loss);
    }
    table.add(row);
  }
  out << table << "\n  -    its parameters were never trained for this model\n";
  if (too_short) out << "  n/a  the text is too short for 4 windows of this length\n";
  out << "\nA sample. These are a model's words, not the licence's: the " << r.sample.size()
      << " most likely characters, one by one,\nafter \"" << r.prompt << "\"\n"
      << quoted(r.prompt + r.sample) << "\n";
}

void print(std::ostream& out, const measure_results& r) {
  out << "The seven encoders on this machine\n"
      << "CPU " << r.cpu << ", instructions " << r.instructions << ", " << r.compiler << ", one thread, float\n\n";
  pe::text_table words("llll",
                       {"encoder", "position enters at", "how relative relations enter", "what limits the length"});
  for (const measured_encoder& e : r.encoders)
    words.add({std::string(e.traits.name), std::string(to_string(e.traits.site)), relations_enter(e.traits),
               length_limit(e.traits, e.description)});
  out << words << "\n";

  pe::text_table figures("llrrrrrl", {"encoder", "options", "parameters", "table bytes", "prefill", "decode",
                                      "ns/token", "work per token"});
  for (const measured_encoder& e : r.encoders)
    figures.add({std::string(e.traits.name), e.options, pe::grouped(e.description.parameters),
                 pe::grouped(e.description.table_bytes), pe::decimals(e.prefill_ratio, 2),
                 pe::decimals(e.decode_ratio, 2), e.work.empty() ? "-" : pe::decimals(e.ns_per_token, 0), e.work});
  out << figures << "\n"
      << "  Sizes: " << r.heads << " heads of " << r.head_dim << "; prefill " << r.prefill_keys
      << " causal queries and keys, decode 1 query over " << pe::grouped(r.decode_keys) << " keys.\n"
      << "  prefill, decode: time of one layer's attention over that of nope, rotations of q and of new keys "
         "included.\n"
      << "  ns/token: the encoder's own work on one token, alone. Encoders of the input act once, before the first "
         "layer;\n"
      << "  their attention is nope's own, so how far their ratios lie from 1 is the noise of this run.\n"
      << "  Processor time, medians of " << r.rounds << " rounds with every encoder in each.\n";
  for (const measured_encoder& e : r.encoders)
    if (e.traits.site == posenc::site::none)
      out << "  nope itself: prefill " << pe::decimals(e.prefill_us, 0) << " us, decode "
          << pe::decimals(e.decode_us, 0) << " us.\n";
  out << "\n";
}

void write_json(std::ostream& out, const swap_results& swapped, const measure_results& measured, double seconds) {
  // Text may hold any byte; what is not UTF-8 is replaced.
  out << nlohmann::json{{"swapped", to_json(swapped)}, {"measured", to_json(measured)}, {"seconds", seconds}}.dump(
             2, ' ', false, nlohmann::json::error_handler_t::replace)
      << '\n';
}

}  // namespace compare
