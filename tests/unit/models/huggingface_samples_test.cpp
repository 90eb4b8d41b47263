// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Every configuration of configs/ against what its file expects of it. Expected numbers come from formulas that share
// no line with the library.
#include "support/catch.hpp"
#include "unit/models/readers.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

using nlohmann::json;
namespace models = posenc::models;

struct sample {
  std::string name;
  json file;
  [[nodiscard]] const json& expect() const { return file.at("expect"); }
  [[nodiscard]] models::model read() const {
    const bool encoder = expect().value("part", "") == "encoder";
    return posenc_test::from_huggingface(file.at("config"),
                                         encoder ? posenc_test::stack::encoder : posenc_test::stack::decoder);
  }
};

std::vector<sample> samples() {
  std::vector<sample> out;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(POSENC_TESTS_DIR) + "/unit/models/configs")) {
    std::ifstream in(entry.path());
    out.push_back({entry.path().stem().string(), json::parse(in)});
  }
  std::sort(out.begin(), out.end(), [](const sample& a, const sample& b) { return a.name < b.name; });
  return out;
}

const std::vector<std::string> layouts{"half_split", "interleaved"};
const std::vector<std::string> places{"none", "before_rotation", "after_rotation"};
const std::vector<std::string> biases{"none", "alibi", "relative_bucket", "content"};
const std::vector<std::string> embeddings{"none", "learned", "sinusoidal"};
const std::vector<std::string> id_rules{"sequential", "masked", "roberta", "opt", "bart"};

template <class E>
std::string name_of(const std::vector<std::string>& names, E value) {
  return names.at(static_cast<std::size_t>(value));
}

void check_spots(const posenc::rope<float>& rope, const json& spots) {
  for (const auto& [index, value] : spots.items())
    CHECK(rope.inv_freq().at(std::stoul(index)) == Approx(value.get<double>()).epsilon(1e-12));
}

void check_rotation(const posenc::rope<float>& rope, const posenc::rope_options& options, const json& e) {
  CHECK(rope.head_dim() == e.at("head_dim").get<std::int64_t>());
  CHECK(rope.rotary_dim() == e.at("rotary_dim").get<std::int64_t>());
  CHECK(rope.offset() == e.at("offset").get<std::int64_t>());
  CHECK(name_of(layouts, rope.layout()) == e.at("layout").get<std::string>());
  CHECK(rope.magnitude() == Approx(e.at("magnitude").get<double>()).epsilon(1e-13));
  check_spots(rope, e.at("inv_freq"));
  std::vector<int> axes;
  for (const posenc::rope_pair& p : options.axes.pairs) axes.push_back(p.axis);
  CHECK(axes == e.value("axes", std::vector<int>{}));
}

std::optional<std::int64_t> width(const json& e, const char* key) {
  return e.contains(key) ? std::optional<std::int64_t>(e.at(key).get<std::int64_t>()) : std::nullopt;
}

void check_layer(const models::layer_settings& s, const json& e) {
  CHECK(s.head_dim == e.at("head_dim").get<std::int64_t>());
  CHECK(s.kv_heads == e.at("kv_heads").get<std::int64_t>());
  CHECK(s.causal == e.value("causal", true));
  CHECK(s.window == width(e, "window"));
  CHECK(s.both_sides == width(e, "both_sides"));
  CHECK(s.chunk == width(e, "chunk"));
  CHECK(s.log_scaled_from == width(e, "log_scaled_from"));
  CHECK(s.softcap == e.value("softcap", 0.0));
  CHECK(s.logit_multiplier == Approx(e.value("logit_multiplier", 1.0)).epsilon(1e-12));
  CHECK(s.sinks == e.value("sinks", false));
  CHECK(name_of(places, s.norm.place) == e.value("norm", "none"));
  CHECK(s.norm.has_gain == e.value("gain", false));
  CHECK(s.norm.one_plus_weight == e.value("one_plus", false));
  CHECK(s.norm.over_all_heads == e.value("over_all_heads", false));
  if (e.contains("eps")) CHECK(s.norm.eps == e.at("eps").get<double>());
  REQUIRE(s.temperature.has_value() == e.contains("temperature"));
  if (!s.temperature) return;
  CHECK(s.temperature->scale == e.at("temperature").at("scale").get<double>());
  CHECK(s.temperature->floor_scale == e.at("temperature").at("floor_scale").get<double>());
  CHECK(s.temperature->position_offset == e.at("temperature").at("position_offset").get<std::int64_t>());
}

void check_bias(const models::model& m, const json& e) {
  const models::bias_settings& b = m.settings().bias;
  CHECK(name_of(biases, b.kind) == e.value("bias", "none"));
  if (e.contains("slopes")) {
    const auto& slopes = m.policy<posenc::alibi<float>>(0).bias.slopes();
    const auto expected = e.at("slopes").get<std::vector<double>>();
    REQUIRE(slopes.size() == expected.size());
    for (std::size_t h = 0; h < slopes.size(); ++h) CHECK(double(slopes[h]) == Approx(expected[h]).epsilon(1e-7));
  }
  if (e.contains("buckets")) {
    CHECK(b.relative.heads == m.settings().heads);
    CHECK(b.relative.num_buckets == e.at("buckets").at("num_buckets").get<std::int64_t>());
    CHECK(b.relative.max_distance == e.at("buckets").at("max_distance").get<std::int64_t>());
    CHECK(b.relative.bidirectional == e.at("buckets").at("bidirectional").get<bool>());
  }
}

void check_embedding(const models::embedding_settings& s, const json& e) {
  CHECK(name_of(embeddings, s.kind) == e.value("kind", "none"));
  if (s.kind == models::embedding_kind::none) return;
  CHECK(name_of(id_rules, s.ids) == e.at("ids").get<std::string>());
  CHECK(s.rows == e.at("rows").get<std::int64_t>());
  CHECK(s.dim == e.at("dim").get<std::int64_t>());
  CHECK(s.offset == e.value("offset", 0));
  CHECK(s.padding_idx == e.value("padding_idx", s.padding_idx));
  if (s.kind != models::embedding_kind::sinusoidal) return;
  // One value of the table: position, channel, frequency of that sine.
  const json& spot = e.at("last_frequency_row");
  std::vector<double> row(static_cast<std::size_t>(s.dim));
  posenc::sinusoidal<double>(s.sinusoidal)
      .table(posenc::view{row.data(), {.tokens = 1, .dim = s.dim}}, posenc::positions::from(spot[0].get<int>()));
  const double angle = spot[0].get<double>() * spot[2].get<double>();
  CHECK(row[spot[1].get<std::size_t>()] == Approx(std::sin(angle)).epsilon(1e-9));
  CHECK(row[spot[1].get<std::size_t>() + row.size() / 2] == Approx(std::cos(angle)).epsilon(1e-9));
}

}  // namespace

TEST_CASE("configurations of every family are read as their samples expect") {
  const auto all = samples();
  CHECK(all.size() >= 55);
  for (const sample& s : all) {
    INFO(s.name);
    const models::model m = s.read();
    const json& e = s.expect();
    const std::string layers = e.at("layers").get<std::string>();
    REQUIRE(m.layers() == static_cast<std::int64_t>(layers.size()));
    CHECK(m.settings().heads == e.at("heads").get<std::int64_t>());
    if (e.contains("max_positions")) CHECK(m.settings().max_positions == e.at("max_positions").get<std::int64_t>());
    for (std::int64_t l = 0; l < m.layers(); ++l) {
      INFO("layer " << l);
      const json& kind = e.at("kinds").at(std::string(1, layers[static_cast<std::size_t>(l)]));
      check_layer(m.layer(l), kind);
      REQUIRE(m.rotation(l).has_value() == kind.contains("rotation"));
      if (m.rotation(l))
        check_rotation(*m.rotation(l), *m.layer(l).rotation, e.at("rotations").at(kind.at("rotation")));
    }
    CHECK(m.depends_on_length() == e.value("depends_on_length", false));
    const json lengths = e.value("at_length", json::object());
    for (const auto& [length, spots] : lengths.items())
      check_spots(*m.at_length(std::stoll(length)).rotation(0), spots);
    check_bias(m, e);
    check_embedding(m.settings().embedding, e.value("embedding", json::object()));
  }
}
