// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The policies of a model, layer by layer, from its settings: run_time_policy over one of three bias kinds.
///   model.visit_layer(l, [&](const auto& policy) { posenc::attention(q, k, v, out, policy, options); });
/// f is instantiated once per bias kind; where the kind is known, `model.policy<posenc::nope>(l)` saves the other two.
/// Weights  sinks, gains of a norm and T5's table come from the checkpoint by `set_...`; a layer that lacks one is
///          refused with its name.
/// Length   a rotation that depends on the length (dynamic NTK, LongRoPE) is that of the original length until
///          `at_length(n)` makes the model for another; keys that were cached under one length do not fit another.
/// Cost     policies are built once, by the constructor; visit_layer is a branch.
/// Throws   std::out_of_range for a layer the model does not have, std::invalid_argument for what is missing.

#include <posenc/attention/run_time.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/models/settings.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace posenc::models {

class model {
 public:
  explicit model(model_settings s) : settings_(std::move(s)) {
    const auto n = settings_.layers.size();
    posenc::detail::require(n >= 1, "models::model", "layers", "must not be empty", n);
    posenc::detail::require(settings_.heads >= 1, "models::model", "heads", "must be at least 1", settings_.heads);
    for (const layer_settings& l : settings_.layers) plain_.push_back(policy_of(l));
    if (settings_.bias.kind == bias_kind::alibi) {
      const alibi<float> bias = alibi_of(settings_.bias);
      for (const auto& p : plain_) alibi_.push_back(with_bias(p, bias));
    }
    bucket_.resize(settings_.bias.kind == bias_kind::relative_bucket ? n : 0);
  }

  /// These look into the model, or are copies where it is a temporary.
  [[nodiscard]] const model_settings& settings() const& noexcept { return settings_; }
  [[nodiscard]] model_settings settings() const&& { return settings_; }
  [[nodiscard]] std::int64_t layers() const noexcept { return static_cast<std::int64_t>(settings_.layers.size()); }
  [[nodiscard]] const layer_settings& layer(std::int64_t l) const& { return settings_.layers[index("layer", l)]; }
  [[nodiscard]] layer_settings layer(std::int64_t l) const&& { return settings_.layers[index("layer", l)]; }
  /// Absent on a layer without rotation.
  [[nodiscard]] const std::optional<posenc::rope<float>>& rotation(std::int64_t l) const& {
    return plain_[index("rotation", l)].rotation;
  }
  [[nodiscard]] std::optional<posenc::rope<float>> rotation(std::int64_t l) const&& {
    return plain_[index("rotation", l)].rotation;
  }

  /// Whether `at_length` changes some rotation.
  [[nodiscard]] bool depends_on_length() const noexcept {
    return settings_.stepped || std::any_of(plain_.begin(), plain_.end(), [](const run_time_policy<>& p) {
             return p.rotation && p.rotation->depends_on_length();
           });
  }
  /// The same model while it serves n tokens, the highest position plus one; weights that were set stay.
  /// @throws std::invalid_argument for n below 1.
  [[nodiscard]] model at_length(std::int64_t n) const {
    posenc::detail::require(n >= 1, "models::model::at_length", "n", "must be at least 1", n);
    model other = *this;
    for (std::size_t l = 0; l < plain_.size(); ++l) {
      auto& rotation = other.settings_.layers[l].rotation;
      if (!rotation) continue;
      if (auto* s = std::get_if<dynamic_ntk>(&rotation->scaling)) s->length = n;
      if (auto* s = std::get_if<longrope>(&rotation->scaling)) s->length = n;
      if (settings_.stepped) rotation->scaling = stepped_scaling(*settings_.stepped, n);
      other.plain_[l].rotation = posenc::rope<float>(*rotation);
      other.renew(l);
    }
    return other;
  }

  /// One learned sink per head.
  void set_sinks(std::int64_t l, std::vector<double> per_head) {
    const std::size_t i = index("set_sinks", l);
    posenc::detail::require(settings_.layers[i].sinks, "models::model::set_sinks", "layer", "must be one with sinks",
                            l);
    posenc::detail::require(static_cast<std::int64_t>(per_head.size()) == settings_.heads, "models::model::set_sinks",
                            "per_head", "must list one sink per head", per_head.size());
    plain_[i].sinks = std::move(per_head);
    renew(i);
  }
  /// The weights of the norms of q and k as the checkpoint holds them, one per channel; 1 is added where the family
  /// does so.
  void set_norm_weights(std::int64_t l, std::span<const float> q, std::span<const float> k) {
    const std::size_t i = index("set_norm_weights", l);
    const layer_settings& s = settings_.layers[i];
    posenc::detail::require(s.norm.has_gain && !s.norm.over_all_heads, "models::model::set_norm_weights", "layer",
                            "must be one whose norm has a gain per channel of a head", l);
    for (const auto& w : {q, k})
      posenc::detail::require(static_cast<std::int64_t>(w.size()) == s.head_dim, "models::model::set_norm_weights",
                              "weights", "must list one per channel of a head", w.size());
    const auto gain = [&](std::span<const float> w) {
      return s.norm.one_plus_weight ? one_plus(w) : std::vector<float>(w.begin(), w.end());
    };
    plain_[i].normalization->q_gain = gain(q);
    plain_[i].normalization->k_gain = gain(k);
    renew(i);
  }
  /// States that q and k arrive normalised over all heads (OLMo 2): the policies leave that norm out.
  void norm_is_applied_by_caller() noexcept { joint_norm_done_ = true; }
  /// T5's table [num_buckets, heads] for all layers, or for one (UMT5).
  void set_bias_table(std::span<const float> table) {
    for (std::int64_t l = 0; l < layers(); ++l) set_bias_table(l, table);
  }
  void set_bias_table(std::int64_t l, std::span<const float> table) {
    const std::size_t i = index("set_bias_table", l);
    posenc::detail::require(settings_.bias.kind == bias_kind::relative_bucket, "models::model::set_bias_table",
                            "the model", "must have a bias by bucket of the distance", settings_.family);
    bucket_[i] = std::make_shared<const run_time_policy<relative_bucket<float>>>(
        with_bias(plain_[i], relative_bucket<float>(settings_.bias.relative, table)));
  }

  /// f(policy) with the policy of the layer; returns what f returns, of one type for the three kinds.
  template <class F>
  decltype(auto) visit_layer(std::int64_t l, F&& f) const {
    const std::size_t i = checked(l);
    if (settings_.bias.kind == bias_kind::alibi) return std::forward<F>(f)(alibi_[i]);
    if (settings_.bias.kind == bias_kind::relative_bucket) return std::forward<F>(f)(*bucket_[i]);
    return std::forward<F>(f)(plain_[i]);
  }
  /// The policy of a layer for a bias kind that is known: nope, alibi<float> or relative_bucket<float>.
  template <class Bias>
  [[nodiscard]] const run_time_policy<Bias>& policy(std::int64_t l) const& {
    const std::size_t i = checked(l);
    constexpr bias_kind asked = std::is_same_v<Bias, nope>           ? bias_kind::none
                                : std::is_same_v<Bias, alibi<float>> ? bias_kind::alibi
                                                                     : bias_kind::relative_bucket;
    posenc::detail::require(settings_.bias.kind == asked, "models::model::policy", "Bias",
                            "must be the bias of the model", settings_.family);
    if constexpr (asked == bias_kind::none) {
      return plain_[i];
    } else if constexpr (asked == bias_kind::alibi) {
      return alibi_[i];
    } else {
      static_assert(std::is_same_v<Bias, relative_bucket<float>>,
                    "posenc: the bias of a model is nope, alibi<float> or relative_bucket<float>");
      return *bucket_[i];
    }
  }
  template <class Bias>
  [[nodiscard]] run_time_policy<Bias> policy(std::int64_t l) const&& {
    return static_cast<const model&>(*this).policy<Bias>(l);
  }
  /// Keys of a layer before they are appended to a cache: norm and rotation in the order of the model.
  template <class U>
  void rotate(std::int64_t l, view<U> keys, const positions& at = {}) const {
    plain_[checked(l)].rotate(keys, at);
  }

 private:
  template <class Bias>
  static run_time_policy<Bias> with_bias(const run_time_policy<>& p, Bias bias) {
    run_time_policy<Bias> out{.bias = std::move(bias),
                              .masks = p.masks,
                              .softcap = p.softcap,
                              .softcap_first = p.softcap_first,
                              .sinks = p.sinks,
                              .logit_scale = p.logit_scale,
                              .temperature = p.temperature,
                              .length_scale = p.length_scale,
                              .normalization = p.normalization,
                              .normalize_after_rotation = p.normalize_after_rotation,
                              .rotation = p.rotation};
    return out;
  }
  static run_time_policy<> policy_of(const layer_settings& l) {
    run_time_policy<> p;
    p.masks.causal = l.causal;
    if (l.window) p.masks.window = sliding_window(*l.window);
    if (l.both_sides) p.masks.both_sides = symmetric_window(*l.both_sides);
    if (l.chunk) p.masks.chunk = chunked(*l.chunk);
    p.softcap = l.softcap;
    p.softcap_first = true;
    if (l.logit_multiplier != 1) p.logit_scale = l.logit_multiplier;
    p.temperature = l.temperature;
    if (l.log_scaled_from) p.length_scale = log_length_scale{*l.log_scaled_from};
    if (l.norm.place != norm_place::none && !l.norm.over_all_heads) p.normalization = qk_norm{.eps = l.norm.eps};
    p.normalize_after_rotation = l.norm.place == norm_place::after_rotation;
    if (l.rotation) p.rotation = posenc::rope<float>(*l.rotation);
    return p;
  }
  static alibi<float> alibi_of(const bias_settings& b) {
    const alibi<float> whole(b.alibi);
    if (b.scale == 1) return whole;
    std::vector<float> slopes = whole.slopes();
    for (float& m : slopes) m = static_cast<float>(static_cast<double>(m) * b.scale);
    return alibi<float>(std::move(slopes), b.alibi.form);
  }
  static rope_scaling stepped_scaling(const stepped_ntk& s, std::int64_t n) {
    if (n <= s.length) return no_scaling{};
    const double steps = std::ceil(std::log2(static_cast<double>(n) / static_cast<double>(s.length)) + 1);
    return ntk_aware{std::exp2(steps) - 1};
  }
  void renew(std::size_t i) {
    if (!alibi_.empty()) alibi_[i] = with_bias(plain_[i], alibi_[i].bias);
    if (!bucket_.empty() && bucket_[i])
      bucket_[i] =
          std::make_shared<const run_time_policy<relative_bucket<float>>>(with_bias(plain_[i], bucket_[i]->bias));
  }

  [[nodiscard]] std::size_t index(const char* what, std::int64_t l) const {
    if (l < 0 || l >= layers())
      posenc::detail::outside(std::string("models::model::") + what, "layer",
                              "must lie in 0.." + std::to_string(layers() - 1), l);
    return static_cast<std::size_t>(l);
  }
  /// The layer, with everything it needs.
  [[nodiscard]] std::size_t checked(std::int64_t l) const {
    const std::size_t i = index("visit_layer", l);
    const layer_settings& s = settings_.layers[i];
    const char* function = "models::model::visit_layer";
    posenc::detail::require(
        settings_.bias.kind != bias_kind::content, function, "the bias",
        "must not depend on the content of queries and keys: its tables lie in the weights (posenc::deberta), for",
        settings_.family);
    posenc::detail::require(settings_.bias.kind != bias_kind::relative_bucket || bucket_[i], function, "the bias table",
                            "must be set by set_bias_table before layer", l);
    posenc::detail::require(!s.sinks || !plain_[i].sinks.empty(), function, "the sinks",
                            "must be set by set_sinks before layer", l);
    posenc::detail::require(!s.norm.has_gain || s.norm.over_all_heads || !plain_[i].normalization->q_gain.empty(),
                            function, "the weights of the norm", "must be set by set_norm_weights before layer", l);
    posenc::detail::require(
        !s.norm.over_all_heads || joint_norm_done_, function, "the norm over all heads",
        "must be applied to q and k by normalize_jointly and stated by norm_is_applied_by_caller, layer", l);
    return i;
  }

  model_settings settings_;
  bool joint_norm_done_ = false;
  std::vector<run_time_policy<>> plain_;
  std::vector<run_time_policy<alibi<float>>> alibi_;
  /// Null until the table is set; copies of the model share what does not change.
  std::vector<std::shared_ptr<const run_time_policy<relative_bucket<float>>>> bucket_;
};

}  // namespace posenc::models
