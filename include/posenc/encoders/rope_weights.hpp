// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Weights of one rotary layout for another: the same model, with the channels of each head in another order.
/// With P = [0, 2, 4, .., r - 2, 1, 3, .., r - 1] a half-split head is the P of an interleaved one,
///   half_split(P x) = P interleaved(x),
/// so P is applied to the output rows of Wq and Wk, to their biases and to gains of a norm between them and the
/// rotation; within each head only to the rotated block. Values and the output projection keep their order.
///   relayout_rows(wk, kv_heads, inputs, {.head_dim = 128, .from = half_split, .to = interleaved});
/// For grouped queries the heads of Wk are the key heads; a span of another size is refused.
/// Cost     one swap per moved element in place, one copy per element otherwise; rotary_dim indices are allocated.
/// Throws   std::invalid_argument for an impossible block, another layout or a wrong size, before anything is written.

#include <posenc/core/error.hpp>
#include <posenc/core/view.hpp>
#include <posenc/encoders/rope_options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace posenc {

struct rope_relayout {
  /// Channels of a head.
  std::int64_t head_dim = 0;
  /// Rotated channels; absent: all.
  std::optional<std::int64_t> rotary_dim{};
  /// First rotated channel.
  std::int64_t offset = 0;
  /// Each half_split or interleaved.
  rope_layout from = rope_layout::half_split;
  rope_layout to = rope_layout::interleaved;
};

/// For each channel of a head in the layout `to`, the channel in the layout `from` that it takes: head_dim indices.
/// @throws std::invalid_argument
[[nodiscard]] inline std::vector<std::int64_t> rope_permutation(const rope_relayout& how) {
  const auto pure = [](rope_layout l) { return l == rope_layout::half_split || l == rope_layout::interleaved; };
  detail::require(pure(how.from) && pure(how.to), "rope_permutation", "from and to",
                  "must be half_split or interleaved", "another layout");
  const std::int64_t r = how.rotary_dim.value_or(how.head_dim);
  detail::require(how.head_dim >= 1, "rope_permutation", "head_dim", "must be at least 1", how.head_dim);
  detail::require(how.head_dim <= detail::most_channels, "rope_permutation", "head_dim", "must not exceed 2^24",
                  how.head_dim);
  detail::require(r >= 2 && r % 2 == 0, "rope_permutation", "rotary_dim", "must be even and at least 2", r);
  detail::require(how.offset >= 0 && how.offset <= how.head_dim - r, "rope_permutation", "offset",
                  "must lie in 0..head_dim - rotary_dim", how.offset);
  std::vector<std::int64_t> source(static_cast<std::size_t>(how.head_dim));
  std::iota(source.begin(), source.end(), 0);
  if (how.from == how.to) return source;
  for (std::int64_t i = 0; i < r / 2; ++i) {
    for (std::int64_t side = 0; side < 2; ++side) {
      const std::int64_t adjacent = how.offset + 2 * i + side;
      const std::int64_t split = how.offset + i + side * (r / 2);
      const bool to_split = how.to == rope_layout::half_split;
      source[static_cast<std::size_t>(to_split ? split : adjacent)] = to_split ? adjacent : split;
    }
  }
  return source;
}

/// The same for the rows of a projection: heads * head_dim indices, head after head.
[[nodiscard]] inline std::vector<std::int64_t> rope_row_permutation(std::int64_t heads, const rope_relayout& how) {
  detail::require(heads >= 0, "rope_row_permutation", "heads", "must not be negative", heads);
  detail::require(heads <= detail::most_channels, "rope_row_permutation", "heads", "must not exceed 2^24", heads);
  const std::vector<std::int64_t> head = rope_permutation(how);
  std::vector<std::int64_t> source;
  source.reserve(static_cast<std::size_t>(heads) * head.size());
  for (std::int64_t h = 0; h < heads; ++h)
    for (const std::int64_t s : head) source.push_back(h * how.head_dim + s);
  return source;
}

/// Reorders the channels of every row of x, in place: keys in a cache, or weights seen as one token per input.
template <class T>
void relayout(view<T> x, const rope_relayout& how) {
  const std::vector<std::int64_t> source = rope_permutation(how);
  if (x.empty()) return;
  detail::require(x.dim() == how.head_dim, "relayout", "dim", "must equal head_dim", x.dim());
  detail::check_output(x, "relayout", "x");
  const std::int64_t step = x.steps().dim;
  std::vector<char> moved(source.size(), 0);
  // Each cycle of the permutation as swaps of whole columns.
  for (std::int64_t first = 0; first < how.head_dim; ++first) {
    std::int64_t at = first;
    while (!moved[static_cast<std::size_t>(at)]) {
      moved[static_cast<std::size_t>(at)] = 1;
      const std::int64_t from = source[static_cast<std::size_t>(at)];
      if (from == first) break;
      for (std::int64_t b = 0; b < x.batch(); ++b)
        for (std::int64_t h = 0; h < x.heads(); ++h)
          for (std::int64_t t = 0; t < x.tokens(); ++t) {
            T* row = x.row(b, t, h);
            std::swap(row[at * step], row[from * step]);
          }
      at = from;
    }
  }
}

/// The same into `out`, which has the shape of `in` and is `in` itself or lies apart from it.
template <class V, class T>
void relayout_to(view<V> in, view<T> out, const rope_relayout& how) {
  static_assert(std::is_same_v<std::remove_cv_t<V>, T>, "posenc: a reordering does not convert");
  const std::vector<std::int64_t> source = rope_permutation(how);
  detail::require(in.extents() == out.extents(), "relayout_to", "out", "must have the shape of in", out.dim());
  if (in.empty()) return;
  detail::require(in.dim() == how.head_dim, "relayout_to", "dim", "must equal head_dim", in.dim());
  detail::check_apart(in, out, "relayout_to");
  if (static_cast<const void*>(in.data()) == static_cast<const void*>(out.data())) return relayout(out, how);
  for (std::int64_t b = 0; b < in.batch(); ++b)
    for (std::int64_t h = 0; h < in.heads(); ++h)
      for (std::int64_t d = 0; d < in.dim(); ++d)
        for (std::int64_t t = 0; t < in.tokens(); ++t)
          out(b, t, h, d) = in(b, t, h, source[static_cast<std::size_t>(d)]);
}

/// Row-major rows [heads * head_dim, inputs] as a view for `relayout`: one token per input.
template <class T>
[[nodiscard]] view<T> projection_rows(std::span<T> rows, std::int64_t heads, std::int64_t head_dim,
                                      std::int64_t inputs) {
  detail::require(heads >= 0, "projection_rows", "heads", "must not be negative", heads);
  detail::require(inputs >= 1, "projection_rows", "inputs", "must be at least 1", inputs);
  detail::require(head_dim >= 1, "projection_rows", "head_dim", "must be at least 1", head_dim);
  detail::require(heads <= detail::most_channels && head_dim <= detail::most_channels, "projection_rows",
                  "heads and head_dim", "must not exceed 2^24", std::max(heads, head_dim));
  const auto channels = static_cast<std::size_t>(heads * head_dim);
  detail::require(channels == 0
                      ? rows.empty()
                      : rows.size() % channels == 0 && rows.size() / channels == static_cast<std::size_t>(inputs),
                  "projection_rows", "rows", "must hold heads * head_dim * inputs elements", rows.size());
  return view<T>(rows.data(), {.tokens = inputs, .heads = heads, .dim = head_dim},
                 {.token = 1, .head = head_dim * inputs, .dim = inputs});
}

/// Rows of Wq or Wk, [heads * head_dim, inputs] row-major, in place. inputs = 1 for a bias or the gains of a norm per
/// head, and heads = 1 as well for gains that all heads share.
template <class T>
void relayout_rows(std::span<T> rows, std::int64_t heads, std::int64_t inputs, const rope_relayout& how) {
  relayout(projection_rows(rows, heads, how.head_dim, inputs), how);
}
template <class T>
void relayout_rows_to(std::span<const T> in, std::span<T> out, std::int64_t heads, std::int64_t inputs,
                      const rope_relayout& how) {
  relayout_to(projection_rows(in, heads, how.head_dim, inputs), projection_rows(out, heads, how.head_dim, inputs), how);
}

}  // namespace posenc
