// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/models/huggingface_rope.hpp>

#include "support/catch.hpp"

#include <variant>

using namespace posenc::models::detail;
using posenc_test::contains;

namespace {
posenc::rope_options read(const json& c, const rope_family& family = {}, const char* layer_type = "full_attention") {
  return read_rope(config_object(&c, nullptr, ""), family, 64, layer_type);
}
json with(const json& block) {
  return {{"rope_theta", 5e5}, {"max_position_embeddings", 8192}, {"rope_scaling", block}};
}
}  // namespace

TEST_CASE("huggingface rope: old and new keys, flat and per layer type") {
  CHECK((read(json::object()).base == 10000 && read({{"rope_theta", 5e5}}).base == 5e5));
  CHECK(read({{"rope_parameters", {{"rope_theta", 1e6}, {"rope_type", "default"}}}}).base == 1e6);
  const json nested = {{"rope_parameters",
                        {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
                         {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}}}};
  CHECK(std::get<posenc::linear>(read(nested).scaling).factor == 8);
  CHECK(read(nested, {}, "sliding_attention").scaling.index() == 0);
  CHECK(read(nested, {}, "sliding_attention").base == 1e4);
  CHECK_THROWS_WITH(read(nested, {}, "chunked_attention"), contains("rope_parameters.chunked_attention must hold"));
}

TEST_CASE("huggingface rope: every kind, by either name of the key") {
  const auto holds = [](const json& block, std::size_t index) {
    json old = block;
    old["type"] = old["rope_type"];
    old.erase("rope_type");
    return read(with(block)).scaling.index() == index && read(with(old)).scaling.index() == index;
  };
  using posenc::rope_scaling;
  CHECK(holds({{"rope_type", "default"}}, 0));
  CHECK(holds({{"rope_type", "linear"}, {"factor", 2}}, rope_scaling(posenc::linear{}).index()));
  CHECK(holds({{"rope_type", "dynamic"}, {"factor", 2}}, rope_scaling(posenc::dynamic_ntk{}).index()));
  CHECK(holds({{"rope_type", "dynamic"}, {"alpha", 1000}}, rope_scaling(posenc::ntk_aware{}).index()));
  CHECK(holds({{"rope_type", "yarn"}, {"factor", 4}}, rope_scaling(posenc::yarn{}).index()));
  CHECK(holds({{"rope_type", "proportional"}}, rope_scaling(posenc::proportional{}).index()));
  CHECK(holds({{"rope_type", "llama3"},
               {"factor", 8},
               {"low_freq_factor", 1},
               {"high_freq_factor", 4},
               {"original_max_position_embeddings", 8192}},
              rope_scaling(posenc::llama3{}).index()));
  const json lists = {{"rope_type", "su"},
                      {"short_factor", std::vector<double>(32, 1)},
                      {"long_factor", std::vector<double>(32, 2)},
                      {"original_max_position_embeddings", 4096}};
  CHECK(holds(lists, rope_scaling(posenc::longrope{}).index()));
  CHECK_THROWS_WITH(read(with({{"rope_type", "ntk"}})),
                    contains("rope_scaling.rope_type must be one of default, linear"));
  CHECK_THROWS_WITH(read(with({{"factor", 2}})), contains("rope_scaling.rope_type must be given beside factor"));
  CHECK_THROWS_WITH(read(with({{"rope_type", "linear"}})), contains("rope_scaling.factor must be given"));
  CHECK_THROWS_WITH(read(with({{"rope_type", "linear"}, {"factor", 2}, {"beta_fast", 1}})),
                    contains("rope_scaling.beta_fast must be absent"));
}

TEST_CASE("huggingface rope: YaRN's zeros and nulls are its defaults, and no factor is the ratio of the lengths") {
  const auto y = std::get<posenc::yarn>(read(with({{"rope_type", "yarn"},
                                                   {"factor", nullptr},
                                                   {"beta_fast", 0},
                                                   {"original_max_position_embeddings", 2048}}))
                                            .scaling);
  CHECK((y.factor == 4 && y.beta_fast == 32 && y.beta_slow == 1 && y.truncate));
  CHECK(!std::get<posenc::yarn>(read(with({{"rope_type", "yarn"}, {"factor", 4}, {"truncate", false}})).scaling)
             .truncate);
}

TEST_CASE("huggingface rope: partial factors and sections") {
  CHECK(posenc::detail::checked_rotary_dim(read({{"partial_rotary_factor", 0.29}})) == 18);  // 18.56, truncated
  CHECK_THROWS_WITH(read({{"partial_rotary_factor", 0.3}}),
                    contains("partial_rotary_factor must leave an even number"));
  CHECK_THROWS_WITH(read({{"rotary_dim", 16}, {"partial_rotary_factor", 0.5}}), contains("rotary_dim must agree with"));
  const rope_family vision{.axes = axis_rule::chunked};
  const auto sections = [](std::vector<int> s) { return with({{"rope_type", "mrope"}, {"mrope_section", s}}); };
  CHECK(read(sections({8, 12, 12}), vision).axes.pairs == posenc::rope_axes::chunked({8, 12, 12}).pairs);
  CHECK_THROWS_WITH(read(sections({8, 12, 11}), vision),
                    contains("rope_scaling.mrope_section must list three numbers"));
  CHECK_THROWS_WITH(read(sections({8, 12, 12})), contains("rope_scaling"));
}
