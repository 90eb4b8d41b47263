// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Which axis of a position (time, height, width, ...) turns which pair, and by which rung of which ladder:
///   angle of pair i = position[axis(i)] * multiplier * base^(-rung(i) / rungs(i)).
/// Text has one coordinate on every axis, so a text token is turned as by plain RoPE, bit for bit, under every builder
/// whose ladder runs through (chunked, interleaved, alternating_hw).
/// Throws   std::invalid_argument for sections or blocks that cannot be paired.
/// Source   Qwen2-VL (chunked), Qwen3-VL (interleaved), Ernie 4.5 VL (alternating_hw), ggml (imrope_ggml); vision:
///          Qwen-VL, Llama 4, EVA-02, SAM 2, RoPE-ViT, DINOv3, Gemma 4 (blocks), Pixtral (pixtral); video: Wan,
///          HunyuanVideo, CogVideoX, Flux (blocks).

#include <posenc/core/error.hpp>
#include <posenc/core/positions.hpp>

#include <cstdint>
#include <numeric>
#include <vector>

namespace posenc {

namespace detail {
/// No head has more channels; sums and products of such numbers stay within int64.
inline constexpr std::int64_t most_channels = std::int64_t{1} << 24;
}  // namespace detail

/// One pair: its axis, and its rung on a ladder of `rungs`.
struct rope_pair {
  int axis = 0;
  std::int64_t rung = 0;
  std::int64_t rungs = 1;
  friend constexpr bool operator==(const rope_pair&, const rope_pair&) = default;
};

struct rope_axes {
  /// One per pair; empty: every pair on the first axis, on one ladder.
  std::vector<rope_pair> pairs{};
  /// Channels per block for the layout half_split_in_blocks; `blocks` fills it.
  std::vector<std::int64_t> block_dims{};
  /// On every frequency (DINOv3: 2 pi).
  double multiplier = 1;

  /// Sections of pairs one after the other: pairs 0 .. s[0]-1 on axis 0, the next s[1] on axis 1, ...; one ladder runs
  /// through. Qwen2-VL: {16, 24, 24}. (Hugging Face writes the list twice; give it once.)
  [[nodiscard]] static rope_axes chunked(const std::vector<std::int64_t>& sections) {
    const std::int64_t n = total("rope_axes::chunked", "sections", sections);
    rope_axes out;
    std::int64_t i = 0;
    for (std::size_t a = 0; a < sections.size(); ++a)
      for (std::int64_t j = 0; j < sections[a]; ++j) out.pairs.push_back({static_cast<int>(a), i++, n});
    return out;
  }
  /// Pair i on axis i mod 3 while i < 3 s[axis], else on axis 0. Qwen3-VL: {24, 20, 20}. This concerns the axes; the
  /// layout of the pairs is a choice of its own.
  [[nodiscard]] static rope_axes interleaved(const std::vector<std::int64_t>& sections) {
    detail::require(sections.size() != 4 || sections[3] == 0, "rope_axes::interleaved", "sections",
                    "must give a fourth axis nothing", sections.size() == 4 ? sections[3] : 0);
    return by_remainder("rope_axes::interleaved", sections, 0);
  }
  /// The same as ggml has it: pairs past 3 s[0] that match no other rule take the fourth coordinate. With {24, 20, 20,
  /// 0} these are pairs 61 and 62, which the published model turns by the first.
  [[nodiscard]] static rope_axes imrope_ggml(const std::vector<std::int64_t>& sections) {
    return by_remainder("rope_axes::imrope_ggml", sections, 3);
  }
  /// Even pairs on axis 1 (height), odd ones on axis 2 (width), the last s[2] on axis 0 (time). Ernie 4.5 VL:
  /// {22, 22, 20}.
  [[nodiscard]] static rope_axes alternating_hw(const std::vector<std::int64_t>& sections) {
    const std::int64_t n = total("rope_axes::alternating_hw", "sections", sections);
    detail::require(sections.size() == 3 && sections[0] == sections[1], "rope_axes::alternating_hw", "sections",
                    "must be three, height and width alike", sections.size());
    rope_axes out;
    for (std::int64_t i = 0; i < n; ++i)
      out.pairs.push_back({i >= n - sections[2] ? 0 : static_cast<int>(1 + i % 2), i, n});
    return out;
  }
  /// Consecutive blocks of dims[a] channels, one per axis, each with a ladder of its own: base^(-2j / dims[a]).
  /// Qwen-VL's vision tower: {40, 40}; Flux and HunyuanVideo: {16, 56, 56}; Wan: {44, 42, 42}.
  [[nodiscard]] static rope_axes blocks(const std::vector<std::int64_t>& dims) {
    (void)total("rope_axes::blocks", "dims", dims);
    rope_axes out;
    out.block_dims = dims;
    for (std::size_t a = 0; a < dims.size(); ++a) {
      detail::require(dims[a] % 2 == 0, "rope_axes::blocks", "dims", "must be even", dims[a]);
      for (std::int64_t j = 0; j < dims[a] / 2; ++j) out.pairs.push_back({static_cast<int>(a), j, dims[a] / 2});
    }
    return out;
  }
  /// One ladder over the head, dealt out: rows (axis 0) take its even rungs in the first half of the pairs, columns
  /// (axis 1) the odd rungs in the second.
  [[nodiscard]] static rope_axes pixtral(std::int64_t head_dim) {
    detail::require(head_dim >= 4 && head_dim % 4 == 0, "rope_axes::pixtral", "head_dim", "must be a multiple of 4",
                    head_dim);
    detail::require(head_dim <= detail::most_channels, "rope_axes::pixtral", "head_dim", "must not exceed 2^24",
                    head_dim);
    rope_axes out;
    for (int a = 0; a < 2; ++a)
      for (std::int64_t j = 0; j < head_dim / 4; ++j) out.pairs.push_back({a, 2 * j + a, head_dim / 2});
    return out;
  }

 private:
  static std::int64_t total(const char* function, const char* argument, const std::vector<std::int64_t>& parts) {
    detail::require(!parts.empty() && parts.size() <= position::max_axes, function, argument,
                    "must list one to four axes", parts.size());
    for (const std::int64_t p : parts) {
      detail::require(p >= 0, function, argument, "must not be negative", p);
      detail::require(p <= detail::most_channels, function, argument, "must not exceed 2^24", p);
    }
    const std::int64_t n = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
    detail::require(n >= 1, function, argument, "must sum to at least 1", n);
    return n;
  }
  /// `rest` is the axis of pairs that no section claims.
  static rope_axes by_remainder(const char* function, const std::vector<std::int64_t>& sections, int rest) {
    const std::int64_t n = total(function, "sections", sections);
    detail::require(sections.size() >= 3, function, "sections", "must list time, height and width", sections.size());
    rope_axes out;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto a = static_cast<std::size_t>(i % 3);
      out.pairs.push_back({i < 3 * sections[a] ? static_cast<int>(a) : rest, i, n});
    }
    return out;
  }
};

}  // namespace posenc
