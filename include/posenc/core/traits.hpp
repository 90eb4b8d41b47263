// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What an encoder says about itself. The static part is `E::traits`, the part that depends on options `e.describe()`;
/// the table in README.md and the comparison are generated from them, and a test measures that each claim holds.

#include <cstdint>
#include <optional>
#include <string_view>

namespace posenc {

/// Where position enters the transformer.
enum class site { none, input, query_key, logit };
/// What a score can depend on: nothing, absolute positions, or key position - query position alone.
enum class relation { none, absolute, relative };
/// Where the parameters come from.
enum class origin { designed, learned };

struct encoder_traits {
  std::string_view name;
  posenc::site site;
  posenc::relation relation;
  posenc::origin origin;
  /// Adding a constant to every position changes no score.
  bool translation_invariant;
  /// The contribution of distance r equals that of -r.
  bool symmetric;
};

/// What becomes of cached keys when every position moves by the same amount (old tokens dropped, the rest moved up).
enum class cache_shift {
  /// Keys are rotated by the difference.
  rotate_keys,
  /// Keys carry no position: only the positions given to attention change.
  keep_keys,
  /// Positions are inside the keys and cannot be taken out: compute the keys again.
  recompute_keys
};

/// What depends on the options an encoder was made with.
struct encoder_description {
  /// The first position without a value; empty if there is none.
  std::optional<std::int64_t> position_limit{};
  std::int64_t parameters = 0;
  std::int64_t table_bytes = 0;
  /// Whether the preference for a key never grows with its distance, content being equal.
  bool monotone = false;
  cache_shift shift = cache_shift::keep_keys;
  /// Why keys must be computed again; empty otherwise.
  std::string_view shift_reason{};
};

[[nodiscard]] constexpr std::string_view to_string(site s) noexcept {
  switch (s) {
    case site::input: return "input embedding";
    case site::query_key: return "query and key";
    case site::logit: return "logit";
    default: return "nowhere";
  }
}
[[nodiscard]] constexpr std::string_view to_string(relation r) noexcept {
  switch (r) {
    case relation::absolute: return "absolute";
    case relation::relative: return "relative";
    default: return "none";
  }
}
[[nodiscard]] constexpr std::string_view to_string(origin o) noexcept {
  return o == origin::learned ? "learned" : "designed";
}

[[nodiscard]] constexpr std::string_view to_string(cache_shift s) noexcept {
  switch (s) {
    case cache_shift::rotate_keys: return "rotate the keys by the difference";
    case cache_shift::recompute_keys: return "compute the keys again";
    default: return "keep the keys, change the positions";
  }
}

}  // namespace posenc
