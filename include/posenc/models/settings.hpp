// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What a model says about positions and attention scores, as plain values: what a reader of a configuration fills in
/// and `model` turns into policies. Everything can be read, changed and written by hand.

#include <posenc/attention/modifiers.hpp>
#include <posenc/config.hpp>
#include <posenc/core/error.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/rope_options.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace posenc::models {

enum class norm_place { none, before_rotation, after_rotation };

/// RMS norm of queries and keys. Gains are weights: the caller hands them to the model.
struct norm_settings {
  norm_place place = norm_place::none;
  double eps = 1e-6;
  bool has_gain = false;
  /// The checkpoint holds w, the gain is 1 + w (Gemma).
  bool one_plus_weight = false;
  /// One norm over all heads of a token (OLMo 2), which is applied before attention: see normalize_jointly.
  bool over_all_heads = false;
};

struct layer_settings {
  std::int64_t head_dim = 0;
  std::int64_t kv_heads = 0;
  /// Absent: nothing is rotated (NoPE layers, ALiBi, T5, learned positions).
  std::optional<rope_options> rotation{};
  bool causal = true;
  /// Keys that a causal query sees, its own included.
  std::optional<std::int64_t> window{};
  /// |key - query| < this, without a causal rule.
  std::optional<std::int64_t> both_sides{};
  std::optional<std::int64_t> chunk{};
  /// 0: none. It comes before the bias; no model here has both.
  double softcap = 0;
  /// On q.k / sqrt(head_dim): other scales (query_pre_attn_scalar, T5's 1) and YaRN's softmax factor (DeepSeek).
  double logit_multiplier = 1;
  std::optional<query_temperature> temperature{};
  /// Queries times ln(p + 1) / ln(length) from this length on (Qwen's use_logn_attn).
  std::optional<std::int64_t> log_scaled_from{};
  norm_settings norm{};
  /// A learned sink per head joins the softmax.
  bool sinks = false;
};

/// content: the bias depends on queries and keys (DeBERTa); it is described, and made from the weights by the caller.
enum class bias_kind { none, alibi, relative_bucket, content };

struct bias_settings {
  bias_kind kind = bias_kind::none;
  alibi_options alibi{};
  /// On the slopes (Falcon divides its bias by sqrt(head_dim), too).
  double scale = 1;
  /// The table itself is a weight.
  relative_bucket_options relative{};
};

enum class embedding_kind { none, learned, sinusoidal };
/// Which of the functions of position_ids.hpp counts the rows.
enum class id_rule { sequential, masked, roberta, opt, bart };

/// What is added to the token embedding.
struct embedding_settings {
  embedding_kind kind = embedding_kind::none;
  id_rule ids = id_rule::sequential;
  /// Rows of the table, those below the first position included.
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  /// Added to positions by the rules opt and bart.
  std::int64_t offset = 0;
  std::int64_t padding_idx = 0;
  sinusoidal_options sinusoidal{};
};

/// Qwen 1 chooses ntk_aware from the length in powers of two: a = 2^ceil(log2(n / length) + 1) - 1, 1 up to it.
struct stepped_ntk {
  std::int64_t length = 0;
};

struct model_settings {
  /// The model_type that was read.
  std::string family;
  std::int64_t heads = 0;
  /// Positions the model was made for; 0 where the configuration does not say.
  std::int64_t max_positions = 0;
  std::vector<layer_settings> layers;
  bias_settings bias{};
  embedding_settings embedding{};
  std::optional<stepped_ntk> stepped{};
};

namespace detail {

/// More is a mistake in the file, not a model: refused before anything of that size is set up.
inline constexpr std::int64_t most_layers = 100000;
inline constexpr std::int64_t most_heads = 100000;
inline constexpr std::int64_t most_channels = std::int64_t{1} << 20;

/// `make()`; its refusal gets the key of the configuration in front. Without exceptions its own message reaches
/// `error_handler()`. @throws std::invalid_argument `posenc::<function>: <key>: <what make said>`
template <class F>
decltype(auto) named(const char* function, const std::string& key, F&& make) {
#if POSENC_EXCEPTIONS
  try {
    return std::forward<F>(make)();
  } catch (const std::invalid_argument& e) {
    posenc::detail::raise<std::invalid_argument>(std::string("posenc::") + function + ": " + key + ": " + e.what());
  }
#else
  (void)function;
  (void)key;
  return std::forward<F>(make)();
#endif
}

}  // namespace detail
}  // namespace posenc::models
