// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The rotary keys of a GGUF file, `<arch>.rope.*`, and its tensors of factors as rope_options:
///   dimension_count, dimension_count_swa       rotated channels; absent: the head
///   freq_base, freq_base_swa                   base, and that of layers with a window
///   dimension_sections                         pairs per axis
///   scaling.type                               none, linear (the default), yarn, longrope; another throws
///   scaling.factor, scale_linear               s; absent or 0: 1
///   scaling.original_context_length            absent: context_length
///   scaling.attn_factor                        on the magnitude; LongRoPE's own magnitude stands here
///   scaling.yarn_attn_factor                   instead of YaRN's magnitude (Hugging Face's attention_factor)
///   scaling.yarn_log_multiplier                mscale_all_dim; deepseek2 holds a tenth of it
///   scaling.yarn_ext_factor, yarn_beta_fast, yarn_beta_slow
///   rope_freqs.weight                          divisors of the frequencies (Llama 3.1, Gemma 4)
///   rope_factors_short.weight, _long.weight    LongRoPE, whatever the scaling type says

#include <posenc/encoders/rope_options.hpp>
#include <posenc/models/gguf_architectures.hpp>
#include <posenc/models/gguf_keys.hpp>

#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace posenc::models {

/// Where llama.cpp runs a model differently from how it was published.
enum class gguf_meaning {
  published,
  /// YaRN's ramp on whole pairs for gpt-oss too, the pairs of IMROPE that no section claims by a fourth coordinate,
  /// and ggml's reading of a YaRN range that ends before it begins. llama.cpp sets that coordinate to 0 for text, so
  /// text takes four coordinates here, {p, p, p, 0}: a position of one axis stands on all four and turns those pairs.
  llama_cpp
};

/// What is not in the keys. Tensors are copied.
struct gguf_options {
  std::span<const float> rope_freqs{};
  std::span<const float> rope_factors_short{};
  std::span<const float> rope_factors_long{};
  /// Of T5, which has two stacks, the encoder.
  bool encoder = false;
  gguf_meaning meaning = gguf_meaning::published;
  angle_mode angles = angle_mode::exact;
};

namespace detail {

/// Rotation of one class of layers: those with a window, or the others.
class gguf_rotation {
 public:
  gguf_rotation(const gguf_keys& keys, const gguf_architecture& about, const gguf_options& options)
      : keys_(keys), about_(about), options_(options) {}

  /// `dim` channels per head. @throws std::invalid_argument naming the key
  [[nodiscard]] rope_options options(std::int64_t dim, bool window) const {
    rope_options o{.head_dim = dim, .angles = options_.angles};
    o.layout = positions() == gguf_positions::normal ? rope_layout::interleaved : rope_layout::half_split;
    const std::string count =
        window && keys_.has("rope.dimension_count_swa") ? "rope.dimension_count_swa" : "rope.dimension_count";
    const std::int64_t r = keys_.integer(count, dim);
    if (r < 2 || r % 2 != 0 || r > dim) keys_.refuse(count, "must be even and within the head", r);
    o.rotary_dim = r;
    // Latent attention keeps the rotated channels behind the others.
    if (keys_.has("attention.kv_lora_rank")) o.offset = dim - r;
    o.base = base(window);
    read_axes(o);
    if (window && about_.window.unscaled) return o;
    if (!options_.rope_freqs.empty()) {
      if (static_cast<std::int64_t>(options_.rope_freqs.size()) != r / 2)
        posenc::detail::invalid("models::from_gguf", "rope_freqs.weight", "must list one divisor per pair",
                                options_.rope_freqs.size());
      o.freq_factors.assign(options_.rope_freqs.begin(), options_.rope_freqs.end());
    }
    read_scaling(o);
    return o;
  }

  /// YaRN's factor on the softmax scale, for latent attention; else 1.
  [[nodiscard]] double softmax_factor() const {
    if (about_.name != "deepseek2" || keys_.text("rope.scaling.type").value_or("") != "yarn") return 1;
    const double m =
        posenc::detail::yarn_magnitude(factor(), log_multiplier()) * keys_.number("rope.scaling.attn_factor", 1);
    return log_multiplier() == 0 ? 1 : m * m;
  }
  /// Positions before the extension.
  [[nodiscard]] std::int64_t original() const {
    const auto given = keys_.integer("rope.scaling.original_context_length");
    const std::int64_t n = given ? *given : keys_.required("context_length");
    if (n < 1) keys_.refuse(given ? "rope.scaling.original_context_length" : "context_length", "must be at least 1", n);
    return n;
  }

 private:
  /// GLM-4's vision models name sections under the architecture of the text models.
  [[nodiscard]] gguf_positions positions() const {
    const bool glm = about_.name == "glm4" || about_.name == "glm4moe";
    return glm && keys_.has("rope.dimension_sections") ? gguf_positions::mrope : about_.positions;
  }
  [[nodiscard]] double base(bool window) const {
    const double shared = positive("rope.freq_base", 10000);
    if (!window) return shared;
    return positive("rope.freq_base_swa", about_.window.base != 0 ? about_.window.base : shared);
  }
  [[nodiscard]] double positive(const char* key, double absent) const {
    const double n = keys_.number(key, absent);
    if (!(n > 0)) keys_.refuse(key, "must be positive", n);
    return n;
  }
  [[nodiscard]] double factor() const {
    const double s = keys_.number("rope.scaling.factor", keys_.number("rope.scale_linear", 0));
    if (s < 0) keys_.refuse("rope.scaling.factor", "must not be negative", s);
    return s == 0 ? 1 : s;
  }
  [[nodiscard]] double log_multiplier() const {
    const double k = keys_.number("rope.scaling.yarn_log_multiplier", 0);
    return about_.name == "deepseek2" ? k * 10 : k;
  }
  [[nodiscard]] std::optional<double> yarn_number(const char* key) const {
    const auto n = keys_.number("rope.scaling.yarn_" + std::string(key));
    return n ? n : keys_.number("rope.scaling." + std::string(key));
  }

  void read_axes(rope_options& o) const {
    if (positions() != gguf_positions::mrope && positions() != gguf_positions::imrope) return;
    const char* key = "rope.dimension_sections";
    std::vector<std::int64_t> sections = keys_.array(key);
    if (sections.size() == 3) sections.push_back(0);
    if (sections.size() != 4) keys_.refuse(key, "must list three or four sections", sections.size());
    for (const std::int64_t s : sections)
      if (s < 0 || s > *o.rotary_dim / 2) keys_.refuse(key, "must lie between 0 and the rotated pairs", s);
    const std::int64_t sum = std::accumulate(sections.begin(), sections.end(), std::int64_t{0});
    if (sum != *o.rotary_dim / 2) keys_.refuse(key, "must sum to the rotated pairs", sum);
    o.axes = positions() == gguf_positions::mrope          ? rope_axes::chunked(sections)
             : options_.meaning == gguf_meaning::llama_cpp ? rope_axes::imrope_ggml(sections)
                                                           : rope_axes::interleaved(sections);
  }

  void read_scaling(rope_options& o) const {
    const std::string type = keys_.text("rope.scaling.type").value_or("linear");
    const auto attn = keys_.number("rope.scaling.attn_factor");
    const bool lists = !options_.rope_factors_short.empty() || !options_.rope_factors_long.empty();
    if (type == "longrope" || lists) return read_longrope(o, attn);
    if (type != "none" && type != "linear" && type != "yarn")
      keys_.refuse("rope.scaling.type", "must be none, linear, yarn or longrope", type);
    if (attn) o.attention_factor = *attn;
    const double s = type == "none" ? 1 : factor();
    const double ext = yarn_number("ext_factor").value_or(1);
    if (type == "yarn" && ext != 0) {
      read_yarn(o, s, ext, attn);
    } else if (s != 1) {
      o.scaling = linear{s};
    }
  }

  void read_yarn(rope_options& o, double s, double ext, std::optional<double> attn) const {
    const bool as_run = options_.meaning == gguf_meaning::llama_cpp;
    yarn y{.factor = s, .original_max_position_embeddings = original()};
    y.beta_fast = yarn_number("beta_fast").value_or(32);
    y.beta_slow = yarn_number("beta_slow").value_or(1);
    y.truncate = as_run || about_.name != "gpt-oss";
    y.inverted_range = as_run ? yarn_inverted_range::ggml : yarn_inverted_range::hugging_face;
    y.ext_factor = ext;
    if (const double k = log_multiplier(); k != 0) {
      y.mscale = about_.name == "deepseek2" ? k : 1;
      y.mscale_all_dim = k;
    }
    y.attention_factor = keys_.number("rope.scaling.yarn_attn_factor");
    o.scaling = y;
    o.attention_factor.reset();
    if (attn && *attn != 1) {
      const double own =
          y.attention_factor.value_or(posenc::detail::yarn_magnitude(s, y.mscale.value_or(1)) /
                                      (y.mscale_all_dim ? posenc::detail::yarn_magnitude(s, *y.mscale_all_dim) : 1.0));
      o.attention_factor = own * *attn;
    }
  }

  void read_longrope(rope_options& o, std::optional<double> attn) const {
    const auto factors = [&](std::span<const float> list, const char* tensor) {
      if (static_cast<std::int64_t>(list.size()) != *o.rotary_dim / 2)
        posenc::detail::invalid("models::from_gguf", tensor, "must list one divisor per pair", list.size());
      return std::vector<double>(list.begin(), list.end());
    };
    longrope l{.short_factor = factors(options_.rope_factors_short, "rope_factors_short.weight"),
               .long_factor = factors(options_.rope_factors_long, "rope_factors_long.weight"),
               .original_max_position_embeddings = original()};
    l.max_position_embeddings = keys_.required("context_length");
    if (factor() != 1) l.factor = factor();
    l.attention_factor = attn;
    o.scaling = l;
  }

  const gguf_keys& keys_;
  const gguf_architecture& about_;
  const gguf_options& options_;
};

}  // namespace detail
}  // namespace posenc::models
