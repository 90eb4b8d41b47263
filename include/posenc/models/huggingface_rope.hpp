// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The rotary keys of a config.json as rope_options: `rope_scaling` beside `rope_theta` (old), `rope_parameters` (new,
/// also one per layer type), partial factors, sections of axes. What differs from Hugging Face's own reading is chosen
/// so that no key is dropped in silence:
///   kind           rope_type or type; mrope is default, su is longrope; a block without a known kind throws
///   partial        partial_rotary_factor counts for every kind, the default one too
///   truncate       is read where the other YaRN keys stand, in parameters per layer type too
///   original       original_max_position_embeddings beside or inside the block; absent: max_position_embeddings
///   YaRN           beta_fast and beta_slow of 0 or null are 32 and 1; a range that ends before it begins keeps the
///                  frequencies, as there
///   dynamic        counts from max_position_embeddings, as there; with `alpha` it is ntk_aware{alpha} (HunYuan)

#include <posenc/encoders/rope_options.hpp>
#include <posenc/models/huggingface_keys.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace posenc::models::detail {

/// How a family deals axes out to pairs where its configuration lists sections.
enum class axis_rule { none, chunked, interleaved, alternating_hw };

/// What a family says about its rotation.
struct rope_family {
  rope_layout layout = half_split;
  axis_rule axes = axis_rule::none;
  /// Phi-3 calls LongRoPE yarn.
  bool yarn_is_longrope = false;
  /// A key of the block that the family reads by itself.
  const char* also = nullptr;
};

/// Keys of one rotation: the block, and the object it stands in.
struct rope_keys {
  config_object outer;
  /// Absent where the configuration has neither rope_parameters nor rope_scaling.
  std::optional<config_object> block;
  /// The block holds for one layer type only, so that keys beside it may differ.
  bool nested = false;

  /// A key that may stand in the block or beside it. @throws std::invalid_argument where both say it and differ.
  template <class Read>
  auto either(Read&& read) const -> decltype(read(outer)) {
    const auto inner = block ? read(*block) : decltype(read(outer)){};
    return inner ? inner : read(outer);
  }
  void agree(const char* key) const {
    if (!nested) agree(key, key);
  }
  void agree(const char* within, const char* without) const {
    if (!block || !block->says(within) || !outer.says(without)) return;
    const json& inside = block->given()[within];
    const json& beside = outer.given()[without];
    if (inside != beside)
      block->fail(within, "must agree with " + outer.path() + without + " = " + beside.dump(), inside);
  }
  /// A number that the kind of scaling cannot do without.
  [[nodiscard]] double needed(const char* key) const {
    const auto value = block->number({key});
    if (!value) block->fail(key, "must be given for this rope_type", "nothing");
    return *value;
  }
  [[nodiscard]] std::int64_t trained() const {
    return outer.count({"max_position_embeddings", "n_positions", "seq_length", "max_seq_len"});
  }
  [[nodiscard]] std::int64_t original() const {
    agree("original_max_position_embeddings");
    const auto value = either([](const config_object& o) { return o.integer({"original_max_position_embeddings"}); });
    return value ? *value : trained();
  }
  /// Extension beyond the original length, where `factor` does not say it.
  [[nodiscard]] double ratio() const { return static_cast<double>(trained()) / static_cast<double>(original()); }
};

inline rope_scaling read_linear(const rope_keys& k) { return linear{k.needed("factor")}; }
inline rope_scaling read_dynamic(const rope_keys& k) {
  if (const auto alpha = k.block->number({"alpha"}); alpha && *alpha != 0) return ntk_aware{*alpha};
  return dynamic_ntk{.factor = k.needed("factor"), .max_position_embeddings = k.trained()};
}
inline rope_scaling read_yarn(const rope_keys& k) {
  const auto unless_zero = [&](const char* key, double otherwise) {
    const double value = k.block->number({key}).value_or(0);
    return value == 0 ? otherwise : value;
  };
  const auto factor = k.block->number({"factor"});
  if (!factor && k.ratio() == 1)
    k.block->fail("factor", "must be given where original_max_position_embeddings is not", "nothing");
  return yarn{.factor = factor ? *factor : k.ratio(),
              .original_max_position_embeddings = k.original(),
              .beta_fast = unless_zero("beta_fast", 32),
              .beta_slow = unless_zero("beta_slow", 1),
              .truncate = k.block->flag({"truncate"}, true),
              .attention_factor = k.block->number({"attention_factor"}),
              .mscale = k.block->number({"mscale"}),
              .mscale_all_dim = k.block->number({"mscale_all_dim"}),
              .inverted_range = yarn_inverted_range::hugging_face};
}
inline rope_scaling read_longrope(const rope_keys& k) {
  for (const char* key : {"short_mscale", "long_mscale"})
    k.block->require(!k.block->says(key), key, "must be absent: a magnitude per regime is not read,", "one");
  const auto factors = [&](const char* key) {
    auto list = k.block->list<double>({key});
    if (!list) k.block->fail(key, "must be given for this rope_type", "nothing");
    return *list;
  };
  return longrope{.short_factor = factors("short_factor"),
                  .long_factor = factors("long_factor"),
                  .original_max_position_embeddings = k.original(),
                  .factor = k.block->number({"factor"}),
                  .max_position_embeddings = k.trained(),
                  .attention_factor = k.block->number({"attention_factor"})};
}
inline rope_scaling read_llama3(const rope_keys& k) {
  const auto original = k.block->integer({"original_max_position_embeddings"});
  if (!original) k.block->fail("original_max_position_embeddings", "must be given for this rope_type", "nothing");
  k.agree("original_max_position_embeddings");
  return llama3{.factor = k.needed("factor"),
                .low_freq_factor = k.needed("low_freq_factor"),
                .high_freq_factor = k.needed("high_freq_factor"),
                .original_max_position_embeddings = *original};
}
inline rope_scaling read_proportional(const rope_keys& k) {
  k.agree("partial_rotary_factor");
  const auto partial = k.either([](const config_object& o) { return o.number({"partial_rotary_factor"}); });
  return proportional{.partial_rotary_factor = partial.value_or(0.25),
                      .factor = k.block->number({"factor"}).value_or(1)};
}

struct rope_kind {
  const char* name;
  rope_scaling (*read)(const rope_keys&);
  /// Its keys beside those of every kind. dynamic: HunYuan writes those of YaRN along, and means alpha.
  std::array<const char*, 8> keys;
};
inline constexpr rope_kind rope_kinds[] = {
    {"linear", read_linear, {"factor"}},
    {"dynamic", read_dynamic, {"factor", "alpha", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}},
    {"yarn",
     read_yarn,
     {"factor", "beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim"}},
    {"longrope", read_longrope, {"factor", "short_factor", "long_factor", "attention_factor"}},
    {"llama3", read_llama3, {"factor", "low_freq_factor", "high_freq_factor"}},
    {"proportional", read_proportional, {"factor"}},
    {"default", [](const rope_keys&) { return rope_scaling(no_scaling{}); }, {"factor"}}};

/// Present-day name of a kind.
[[nodiscard]] inline std::string present_kind(const std::string& name, const rope_family& family) {
  if (name == "mrope") return "default";
  return name == "su" || (name == "yarn" && family.yarn_is_longrope) ? "longrope" : name;
}

/// Refuses what the block says and nothing reads.
inline void refuse_unread(const rope_keys& k, const rope_family& family, const rope_kind& kind) {
  // Of every kind; a note on training; and what is read where a model has several axes.
  static constexpr const char* common[] = {
      "rope_type",  "type",      "rope_theta",  "partial_rotary_factor",
      "rotary_pct", "finetuned", "interleaved", "original_max_position_embeddings"};
  const auto listed = [](const auto& list, const std::string& key) {
    return std::any_of(std::begin(list), std::end(list), [&](const char* one) { return one && key == one; });
  };
  for (const auto& [key, value] : k.block->given().items()) {
    if (value.is_null() || listed(common, key) || listed(kind.keys, key)) continue;
    if (family.also && key == family.also) continue;
    if (family.axes != axis_rule::none && (key == "mrope_section" || key == "mrope_interleaved")) continue;
    const bool on_magnitude = key == "attention_factor" || key == "attn_factor" || key == "extrapolation_factor";
    if (on_magnitude && value == 1) continue;
    k.block->fail(key, std::string("must be absent: it is not read for this family and rope_type ") + kind.name, value);
  }
  for (const char* key : {"rope_type", "type"})
    if (family.axes == axis_rule::none && k.block->text({key}) == "mrope")
      k.block->fail(key, "must not be mrope: this family has one axis", "mrope");
}

/// The kind that the block names, by its present-day name. @throws std::invalid_argument
[[nodiscard]] inline std::string rope_kind_of(const rope_keys& k, const rope_family& family) {
  if (!k.block) return "default";
  const auto present = [&](const std::string& name) { return present_kind(name, family); };
  const auto now = k.block->text({"rope_type"});
  const auto old = k.block->text({"type"});
  if (now && old && present(*now) != present(*old))
    k.block->fail("type", "must agree with " + k.block->path() + "rope_type = " + *now, *old);
  if (!now && !old) {
    // Parameters without a kind are those of plain RoPE; anything else would be a scaling that is not applied.
    for (const auto& [key, value] : k.block->given().items()) {
      static constexpr const char* plain[] = {"rope_theta", "partial_rotary_factor", "mrope_section",
                                              "mrope_interleaved", "interleaved"};
      if (!value.is_null() && std::find(std::begin(plain), std::end(plain), key) == std::end(plain))
        k.block->fail("rope_type", "must be given beside " + key, "nothing");
    }
    return "default";
  }
  const std::string name = present(now ? *now : *old);
  if (name == "default" && k.block->says("factor") && k.block->number({"factor"}) != 1.0)
    k.block->fail("factor", "must be absent for the rope_type default", k.block->given()["factor"]);
  const bool known =
      std::any_of(std::begin(rope_kinds), std::end(rope_kinds), [&](const rope_kind& one) { return name == one.name; });
  if (!known)
    k.block->fail(now ? "rope_type" : "type",
                  "must be one of default, linear, dynamic, yarn, longrope, llama3, proportional", now ? *now : *old);
  return name;
}

/// The block of a layer type: rope_parameters, nested or not, or rope_scaling. @throws std::invalid_argument
[[nodiscard]] inline rope_keys rope_block(const config_object& config, const std::string& layer_type,
                                          const rope_family& family = {}) {
  const auto now = config.object("rope_parameters");
  if (!now) return {config, config.object("rope_scaling")};
  // The default of a family yields to parameters.
  const auto old = config.says("rope_scaling") ? config.object("rope_scaling") : std::nullopt;
  const bool nested =
      std::any_of(now->given().begin(), now->given().end(), [](const json& value) { return value.is_object(); });
  if (old && nested) config.fail("rope_scaling", "must be absent beside rope_parameters per layer type", old->given());
  // Everything the old block says has to be said by the new one, or it would be dropped.
  if (old)
    for (const auto& [key, value] : old->given().items()) {
      if (value.is_null()) continue;
      const bool names_kind = key == "type" || key == "rope_type";
      const char* in_new = names_kind && !now->says(key.c_str()) ? (key == "type" ? "rope_type" : "type") : key.c_str();
      const json* other = now->find({in_new}).first;
      const bool same_kind =
          names_kind && other && other->is_string() && value.is_string() &&
          present_kind(other->get<std::string>(), family) == present_kind(value.get<std::string>(), family);
      if (!same_kind && (!other || *other != value))
        config.fail("rope_scaling." + key,
                    "must agree with rope_parameters." + key + " = " + (other ? other->dump() : "nothing"), value);
    }
  if (!nested) return {config, now};
  if (!now->says(layer_type.c_str())) now->fail(layer_type, "must hold the parameters of such layers", "nothing");
  return {config, now->object(layer_type.c_str()), true};
}

/// Sections of pairs per axis. Written twice in some configurations; given once here.
inline void read_axes(const rope_keys& k, const rope_family& family, rope_options& o, std::int64_t pairs) {
  if (family.axes == axis_rule::none) return;
  k.agree("mrope_section");
  auto sections = k.either([](const config_object& c) { return c.list<std::int64_t>({"mrope_section"}); });
  const config_object& where = k.block ? *k.block : k.outer;
  if (!sections) where.fail("mrope_section", "must be given for a model with several axes", "nothing");
  std::int64_t total = 0;
  for (const std::int64_t n : *sections) {
    if (n < 0 || n > pairs)
      where.fail("mrope_section", "must list numbers in 0.." + std::to_string(pairs) + ", the rotated pairs", json(n));
    total = std::min(total + n, pairs + 1);
  }
  if (sections->size() == 3 && family.axes == axis_rule::alternating_hw && (*sections)[0] != (*sections)[1])
    where.fail("mrope_section", "must give height and width alike", json(*sections));
  if (sections->size() != 3 || total != pairs)
    where.fail("mrope_section",
               "must list three numbers that sum to half the rotated channels, " + std::to_string(pairs),
               json(*sections));
  const bool says_interleaved = k.block && k.block->says("mrope_interleaved");
  const axis_rule rule = !says_interleaved || family.axes == axis_rule::alternating_hw ? family.axes
                         : k.block->flag({"mrope_interleaved"})                        ? axis_rule::interleaved
                                                                                       : axis_rule::chunked;
  o.axes = rule == axis_rule::chunked       ? rope_axes::chunked(*sections)
           : rule == axis_rule::interleaved ? rope_axes::interleaved(*sections)
                                            : rope_axes::alternating_hw(*sections);
}

/// The rotation of layers of one type. `theta_key` names the base beside the block; without `scaled` the block is not
/// heard (windowed layers of old Gemma 3 and ModernBERT configurations, which no scaling touches).
[[nodiscard]] inline rope_options read_rope(const config_object& config, const rope_family& family,
                                            std::int64_t head_dim, const std::string& layer_type,
                                            const char* theta_key = "rope_theta", bool scaled = true) {
  rope_keys k = rope_block(config, layer_type, family);
  if (!scaled) k.block.reset();
  rope_options o{.head_dim = head_dim, .layout = family.layout};
  // A block for layers of another type than these keys speak of may differ.
  k.agree("rope_theta", std::string_view(theta_key) == "rope_theta" && k.nested ? "" : theta_key);
  if (!k.nested || layer_type == "full_attention")
    for (const char* key : {"rope_theta", "rotary_emb_base"}) k.agree("rope_theta", key);
  const auto inside = k.block ? k.block->number({"rope_theta"}) : std::nullopt;
  const auto beside = config.number({theta_key, "rotary_emb_base"});
  o.base = inside ? *inside : beside.value_or(10000);
  if (!(o.base > 0)) {
    if (inside) k.block->fail("rope_theta", "must be positive", json(o.base));
    config.fail(config.find({theta_key, "rotary_emb_base"}).second, "must be positive", json(o.base));
  }
  const std::string kind = rope_kind_of(k, family);
  for (const rope_kind& one : rope_kinds)
    if (kind == one.name) {
      o.scaling = one.read(k);
      if (k.block) refuse_unread(k, family, one);
    }

  k.agree("partial_rotary_factor");
  if (!k.nested) k.agree("partial_rotary_factor", "rotary_pct");
  const names partials = {"partial_rotary_factor", "rotary_pct"};
  const bool within = k.block && k.block->number(partials);
  const config_object& at = within ? *k.block : config;
  const auto partial = at.number(partials);
  const std::string partial_key = at.find(partials).second;
  const auto rotary_dim = config.integer({"rotary_dim"});
  if (kind != "proportional") {
    if (partial && !(*partial > 0 && *partial <= 1)) at.fail(partial_key, "must lie in (0, 1]", json(*partial));
    o.partial_rotary_factor = partial.value_or(1);
    if (rotary_dim) {
      o.rotary_dim = *rotary_dim;
      if (partial && *rotary_dim != static_cast<std::int64_t>(static_cast<double>(head_dim) * *partial))
        config.fail("rotary_dim", "must agree with " + at.path() + partial_key, json(*rotary_dim));
    }
  }
  const std::int64_t r =
      o.rotary_dim.value_or(static_cast<std::int64_t>(static_cast<double>(head_dim) * o.partial_rotary_factor));
  if (r < 2 || r % 2 != 0 || r > head_dim) {
    const std::string rule = "must leave an even number of channels to rotate, 2 to " + std::to_string(head_dim);
    if (o.rotary_dim) config.fail("rotary_dim", rule, json(r));
    if (partial) at.fail(partial_key, rule, json(*partial));
    config.fail("head_dim", rule, json(r));
  }
  if (const auto* s = std::get_if<longrope>(&o.scaling))
    for (const auto* list : {&s->short_factor, &s->long_factor})
      if (static_cast<std::int64_t>(list->size()) != r / 2)
        k.block->fail(list == &s->short_factor ? "short_factor" : "long_factor",
                      "must list one number per pair, " + std::to_string(r / 2), json(list->size()));
  read_axes(k, family, o, r / 2);
  return o;
}

}  // namespace posenc::models::detail
