// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// One token of a rotation: a row of cos and sin is built once and applied to all its heads, layout by layout. Whatever
/// fills the rows (one position, a table, the difference of two encoders) runs through the same kernels.

#include <posenc/encoders/rope_rows.hpp>
#include <posenc/kernels/rotate.hpp>

#include <array>
#include <vector>

namespace posenc::detail {

/// The heads of one token.
template <class T>
struct row_span {
  T* data;
  std::int64_t head;
  std::int64_t dim;

  [[nodiscard]] row_span from_head(std::int64_t h) const noexcept { return {data + h * head, head, dim}; }
};

/// Pairs per row on the stack.
inline constexpr std::int64_t rope_block = 128;

template <class U>
using row_scalar = std::conditional_t<simd_storage<U>, compute_t<U>, double>;

/// Channels outside the rotated block are copied as they are.
template <class U>
void copy_rest(const rope_frame& f, row_span<const U> in, row_span<U> out, std::int64_t heads) {
  if (in.data == out.data) return;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t d = 0; d < f.head_dim; ++d)
      if (d < f.offset || d >= f.offset + f.rotary_dim)
        out.data[h * out.head + d * out.dim] = in.data[h * in.head + d * in.dim];
}

/// Pairs (channel + i, channel + i + second) of all heads by a row in the form `separate`.
template <class Arch, class U, class C>
void rotate_split(row_span<const U> in, row_span<U> out, std::int64_t heads, std::int64_t channel, std::int64_t second,
                  std::int64_t count, const C* cos, const C* sin) {
  if constexpr (simd_storage<U>)
    if (in.dim == 1 && out.dim == 1)
      return kernels::rotate_half<Arch>(in.data + channel, in.head, out.data + channel, out.head, heads, cos, sin,
                                        second, count);
  for (std::int64_t h = 0; h < heads; ++h)
    kernels::rotate_pairs<U, C, Arch>(in.data + h * in.head + channel * in.dim, in.dim,
                                      out.data + h * out.head + channel * out.dim, out.dim, second, 1, cos, sin, count);
}

/// A run of pairs that lies in halves: half_split is one, half_split_in_blocks one per block.
template <class Arch, class U, class Rows>
void rotate_halves(row_span<const U> in, row_span<U> out, std::int64_t heads, std::int64_t set, std::int64_t channel,
                   std::int64_t first, std::int64_t count, const Rows& rows) {
  using C = row_scalar<U>;
  alignas(64) C cos[rope_block];
  alignas(64) C sin[rope_block];
  for (std::int64_t i = 0; i < count; i += rope_block) {
    const std::int64_t n = std::min(rope_block, count - i);
    rows.template fill<kernels::row_form::separate>(set, first + i, n, cos, sin);
    rotate_split<Arch>(in, out, heads, channel + i, count, n, static_cast<const C*>(cos), static_cast<const C*>(sin));
  }
}

template <class Arch, class U, class Rows>
void rotate_interleaved_block(const rope_frame& f, row_span<const U> in, row_span<U> out, std::int64_t heads,
                              std::int64_t set, const Rows& rows) {
  using C = row_scalar<U>;
  alignas(64) C cos[2 * rope_block];
  alignas(64) C sin[2 * rope_block];
  for (std::int64_t i = 0; i < f.pairs(); i += rope_block) {
    const std::int64_t n = std::min(rope_block, f.pairs() - i);
    const std::int64_t channel = f.offset + 2 * i;
    if constexpr (simd_storage<U>) {
      if (in.dim == 1 && out.dim == 1) {
        rows.template fill<kernels::row_form::neighbours>(set, i, n, cos, sin);
        kernels::rotate_interleaved<Arch>(in.data + channel, in.head, out.data + channel, out.head, heads,
                                          static_cast<const C*>(cos), static_cast<const C*>(sin), n);
        continue;
      }
    }
    rows.template fill<kernels::row_form::separate>(set, i, n, cos, sin);
    for (std::int64_t h = 0; h < heads; ++h)
      kernels::rotate_pairs<U, C, Arch>(in.data + h * in.head + channel * in.dim, in.dim,
                                        out.data + h * out.head + channel * out.dim, out.dim, 1, 2,
                                        static_cast<const C*>(cos), static_cast<const C*>(sin), n);
  }
}

/// Between interleaved and half order: each head through a copy of its block, so that in place works. Forwards reads
/// interleaved and writes halves, backwards the other way.
template <class Arch, class U, class Rows>
void rotate_permuted(const rope_frame& f, row_span<const U> in, row_span<U> out, std::int64_t heads, std::int64_t set,
                     bool forwards, const Rows& rows) {
  using C = row_scalar<U>;
  constexpr std::int64_t most = permuted_rotary_dim / 2;
  alignas(64) C cos[most];
  alignas(64) C sin[most];
  const std::int64_t half = f.pairs();
  for (std::int64_t i = 0; i < half; i += rope_block)
    rows.template fill<kernels::row_form::separate>(set, i, std::min(rope_block, half - i), cos + i, sin + i);
  using buffer = std::conditional_t<simd_storage<U>, std::array<U, permuted_rotary_dim>, std::vector<U>>;
  buffer block{};
  if constexpr (!simd_storage<U>) block.resize(static_cast<std::size_t>(f.rotary_dim));
  U* const first = block.data();
  U* const second = first + half;
  for (std::int64_t h = 0; h < heads; ++h) {
    const row_span<const U> from{in.data + h * in.head + f.offset * in.dim, 0, in.dim};
    const row_span<U> to{out.data + h * out.head + f.offset * out.dim, 0, out.dim};
    if (forwards) {
      kernels::split_pairs<Arch>(from.data, from.dim, first, second, half);
      rotate_split<Arch>(row_span<const U>{first, 0, 1}, to, 1, 0, half, half, static_cast<const C*>(cos),
                         static_cast<const C*>(sin));
    } else {
      rotate_split<Arch>(from, row_span<U>{first, 0, 1}, 1, 0, half, half, static_cast<const C*>(cos),
                         static_cast<const C*>(sin));
      kernels::join_pairs<Arch>(static_cast<const U*>(first), static_cast<const U*>(second), to.data, to.dim, half);
    }
  }
}

/// Pairs (2i, 2i + 1) of all heads by a row in the form `neighbours`, at most 2 * rope_block channels from `channel`;
/// strided ones through a copy, so that they have the bits of packed ones.
template <class Arch, class U, class C>
void rotate_channels(row_span<const U> in, row_span<U> out, std::int64_t heads, std::int64_t channel, const C* cos,
                     const C* sin, std::int64_t channels) {
  if constexpr (simd_storage<U>)
    if (in.dim == 1 && out.dim == 1)
      return kernels::rotate_interleaved<Arch>(in.data + channel, in.head, out.data + channel, out.head, heads, cos,
                                               sin, channels / 2);
  for (std::int64_t h = 0; h < heads; ++h) {
    const U* from = in.data + h * in.head + channel * in.dim;
    U* to = out.data + h * out.head + channel * out.dim;
    if constexpr (simd_storage<U>) {
      U block[2 * rope_block] = {};
      for (std::int64_t k = 0; k < channels; ++k) block[k] = from[k * in.dim];
      kernels::rotate_interleaved<Arch>(static_cast<const U*>(block), 0, block, 0, 1, cos, sin, channels / 2);
      for (std::int64_t k = 0; k < channels; ++k) to[k * out.dim] = block[k];
    } else {
      for (std::int64_t k = 0; k < channels; k += 2) {
        const compute_t<U> u = widen(from[k * in.dim]);
        const compute_t<U> v = widen(from[(k + 1) * in.dim]);
        const compute_t<U> x = u * cos[k] + v * sin[k];
        const compute_t<U> y = v * cos[k + 1] + u * sin[k + 1];
        to[k * out.dim] = narrow<U>(x);
        to[(k + 1) * out.dim] = narrow<U>(y);
      }
    }
  }
}

/// V-JEPA 2: channel k of a pair (2i, 2i + 1) takes the angle of pair k mod r/2. Backwards is the transposed map.
template <class Arch, class U, class Rows>
void rotate_mixed(const rope_frame& f, row_span<const U> in, row_span<U> out, std::int64_t heads, std::int64_t set,
                  bool forwards, const Rows& rows) {
  using C = row_scalar<U>;
  alignas(64) C cos[2 * rope_block];
  alignas(64) C sin[2 * rope_block];
  for (std::int64_t i = 0; i < f.pairs(); i += rope_block) {
    const std::int64_t channels = 2 * std::min(rope_block, f.pairs() - i);
    for (std::int64_t k = 0; k < channels;) {
      const std::int64_t pair = (2 * i + k) % f.pairs();
      const std::int64_t n = std::min({channels - k, f.pairs() - pair, rope_block});
      if (k >= f.pairs()) {  // the same pairs as at the start of this row
        std::copy_n(cos + k - f.pairs(), n, cos + k);
        std::copy_n(sin + k - f.pairs(), n, sin + k);
      } else {
        rows.template fill<kernels::row_form::separate>(set, pair, n, cos + k, sin + k);
      }
      k += n;
    }
    for (std::int64_t k = 0; k < channels; k += 2) {
      // `sin` already carries the direction: forwards (u c - v s, v c' + u s'), backwards (u c + v s', v c' - u s).
      if (!forwards) std::swap(sin[k], sin[k + 1]);
      sin[k] = -sin[k];
    }
    rotate_channels<Arch>(in, out, heads, f.offset + 2 * i, static_cast<const C*>(cos), static_cast<const C*>(sin),
                          channels);
  }
}

/// Halves within each block; one row for all of them where it fits the stack.
template <class Arch, class U, class Rows>
void rotate_blocks(const rope_frame& f, row_span<const U> in, row_span<U> out, std::int64_t heads, std::int64_t set,
                   const Rows& rows) {
  using C = row_scalar<U>;
  alignas(64) C cos[rope_block];
  alignas(64) C sin[rope_block];
  const bool one_row = f.pairs() <= rope_block;
  if (one_row) rows.template fill<kernels::row_form::separate>(set, 0, f.pairs(), cos, sin);
  std::int64_t first = 0;
  for (const std::int64_t dim : f.block_dims) {
    const std::int64_t channel = f.offset + 2 * first;
    if (one_row) {
      rotate_split<Arch>(in, out, heads, channel, dim / 2, dim / 2, static_cast<const C*>(cos + first),
                         static_cast<const C*>(sin + first));
    } else {
      rotate_halves<Arch>(in, out, heads, set, channel, first, dim / 2, rows);
    }
    first += dim / 2;
  }
}

/// All heads of one token by `rows`, which fill themselves block by block, so nothing is allocated (but in
/// `rotate_permuted` for scalars without SIMD). `forwards` tells layouts that permute which way to go.
template <class Arch, class U, class Rows>
void rotate_token(const rope_frame& f, row_span<const U> in, row_span<U> out, std::int64_t heads, std::int64_t set,
                  bool forwards, const Rows& rows) {
  switch (f.layout) {
    case interleaved: return rotate_interleaved_block<Arch>(f, in, out, heads, set, rows);
    case interleaved_in_half_out: return rotate_permuted<Arch>(f, in, out, heads, set, forwards, rows);
    case vjepa2_mixed: return rotate_mixed<Arch>(f, in, out, heads, set, forwards, rows);
    case half_split_in_blocks: return rotate_blocks<Arch>(f, in, out, heads, set, rows);
    default: return rotate_halves<Arch>(in, out, heads, set, f.offset, 0, f.pairs(), rows);
  }
}

/// The same for encoders with frequencies per head, from `head` on.
template <class Arch, class U, class Rows>
void rotate_heads(const rope_frame& f, row_span<const U> in, row_span<U> out, std::int64_t head, std::int64_t heads,
                  bool forwards, const Rows& rows) {
  copy_rest(f, in, out, heads);
  if (f.frequency_heads == 1) return rotate_token<Arch>(f, in, out, heads, 0, forwards, rows);
  for (std::int64_t h = 0; h < heads; ++h)
    rotate_token<Arch>(f, in.from_head(h), out.from_head(h), 1, head + h, forwards, rows);
}

}  // namespace posenc::detail
