// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Cached keys from one encoder to another: keys rotated under `from` become what `to` would have made of them,
///   k -> (A_to / A_from) R(p' f_to - p f_from) k,
/// with the difference formed exactly in 64-bit turns, pair by pair. For dynamic NTK when the length grows, for
/// LongRoPE at its switch, for a cache whose tokens move at the same time.
/// Throws   std::invalid_argument where the encoders turn other channels, or one of them cannot be undone, before
///          anything is written.
/// Cost     that of one rotation.
/// Example  examples/long_context_example.cpp

#include <posenc/encoders/rope.hpp>

namespace posenc {

namespace detail {

/// Fills rows with the difference of two encoders at a position of each.
template <class Arch>
struct rows_between {
  const rope_frame& from;
  const position& before;
  const rope_frame& to;
  const position& after;
  double magnitude;

  template <kernels::row_form Form, class C>
  void fill(std::int64_t set, std::int64_t first, std::int64_t count, C* cos, C* sin) const {
    kernels::cos_sin_row_of<Arch, Form>(
        [&](std::int64_t i) {
          return pair_phase(to, set, first + i, after) - pair_phase(from, set, first + i, before);
        },
        count, magnitude, 1, cos, sin);
  }
};

template <class T, class V>
void check_same_block(const rope<T>& from, const rope<V>& to) {
  const auto [a, b] = std::pair(rope_access::frame(from).of_stored_keys(), rope_access::frame(to).of_stored_keys());
  require(a.head_dim == b.head_dim, "rerotate", "to", "must have the head_dim of from", b.head_dim);
  require(a.rotary_dim == b.rotary_dim, "rerotate", "to", "must have the rotary_dim of from", b.rotary_dim);
  require(a.offset == b.offset, "rerotate", "to", "must have the offset of from", b.offset);
  require(a.layout == b.layout &&
              std::equal(a.block_dims.begin(), a.block_dims.end(), b.block_dims.begin(), b.block_dims.end()),
          "rerotate", "to", "must pair the channels as from does, layout", static_cast<int>(to.layout()));
  require(a.frequency_heads == b.frequency_heads, "rerotate", "to", "must have the frequency_heads of from",
          b.frequency_heads);
  for (const auto refusal : {from.shift_refusal(), to.shift_refusal()})
    require(refusal.empty(), "rerotate", "encoder", "must turn keys by their position alone", std::string(refusal));
}

}  // namespace detail

/// Keys at `before` under `from` become keys at `after` under `to`, in place.
template <class U, class T, class V, class Arch = simd::default_arch>
void rerotate(view<U> keys, const positions& before, const rope<T>& from, const positions& after, const rope<V>& to) {
  detail::check_same_block(from, to);
  if (keys.empty()) return;
  detail::require(keys.dim() == to.head_dim(), "rerotate", "dim", "must equal head_dim", keys.dim());
  detail::check_apart(view<const U>(keys), keys, "rerotate");
  detail::check_cover(before, "rerotate", keys.batch(), keys.tokens(), from.axis_count());
  detail::check_cover(after, "rerotate", keys.batch(), keys.tokens(), to.axis_count());
  const auto a = detail::rope_access::frame(from).of_stored_keys();
  const auto b = detail::rope_access::frame(to).of_stored_keys();
  detail::require(b.frequency_heads == 1 || keys.heads() == b.frequency_heads, "rerotate", "heads",
                  "must equal frequency_heads", keys.heads());
  for (std::int64_t n = 0; n < keys.batch(); ++n)
    for (std::int64_t t = 0; t < keys.tokens(); ++t) {
      const position was = before.at(n, t);
      const position is = after.at(n, t);
      detail::rotate_heads<Arch>(b, detail::row_span<const U>{keys.row(n, t, 0), keys.steps().head, keys.steps().dim},
                                 detail::row_span<U>{keys.row(n, t, 0), keys.steps().head, keys.steps().dim}, 0,
                                 keys.heads(), true,
                                 detail::rows_between<Arch>{a, was, b, is, to.magnitude() / from.magnitude()});
    }
}

/// The same where the keys stay at their positions.
template <class U, class T, class V, class Arch = simd::default_arch>
void rerotate(view<U> keys, const positions& at, const rope<T>& from, const rope<V>& to) {
  rerotate<U, T, V, Arch>(keys, at, from, at, to);
}

}  // namespace posenc
