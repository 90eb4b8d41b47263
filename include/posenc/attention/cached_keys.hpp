// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// What a cache asks of encoders, masks and policies: to turn keys on their way in, and to say whether and how cached
/// keys move. Also the memory caches keep and the rows they convert.
///   turn on the way in   rotate(x, positions), else rotate_keys(x, positions), else transform_k of every row, part by
///                        part in pack order; a part without any of them leaves keys alone
///   move                 shift(keys, delta); a part that turns keys and has no shift is refused, and so is one whose
///                        describe() says that keys are to be computed again

#include <posenc/attention/call.hpp>
#include <posenc/attention/qk_norm.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/kernels/rows.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

namespace posenc::detail {

/// Memory that starts at a cache line.
template <class T>
struct cache_line_allocator {
  using value_type = T;
  cache_line_allocator() = default;
  template <class U>
  cache_line_allocator(const cache_line_allocator<U>&) noexcept {}  // NOLINT: what allocators do
  [[nodiscard]] T* allocate(std::size_t n) {
    return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* p, std::size_t) noexcept { ::operator delete (p, std::align_val_t{64}); }
  template <class U>
  friend bool operator==(const cache_line_allocator&, const cache_line_allocator<U>&) noexcept {
    return true;
  }
};
template <class T>
using cache_memory = std::vector<T, cache_line_allocator<T>>;

/// Refuses extents that are too small, or more elements than 2^56.
inline void check_cache_shape(const char* function, const shape& s, std::int64_t least_dim) {
  require(s.batch >= 1, function, "batch", "must be at least 1", s.batch);
  require(s.tokens >= 1, function, "capacity", "must be at least 1", s.tokens);
  require(s.heads >= 1, function, "kv_heads", "must be at least 1", s.heads);
  require(least_dim >= 1, function, "dim and value_dim", "must be at least 1", least_dim);
  const double elements = static_cast<double>(s.batch) * static_cast<double>(s.tokens) * static_cast<double>(s.heads) *
                          static_cast<double>(s.dim);
  require(elements <= 0x1p56, function, "batch * capacity * kv_heads * dim", "must not exceed 2^56", elements);
}

/// Refuses new keys and values that lie in the memory of a cache.
template <class S, class K, class V>
void check_outside_memory(const char* function, const S* data, std::size_t size, const view<K>& k, const view<V>& v) {
  const view<const S> memory(data, {.tokens = 1, .dim = static_cast<std::int64_t>(size)});
  require(separate(memory, k), function, "k", "must lie outside the memory of the cache", "overlapping memory");
  require(separate(memory, v), function, "v", "must lie outside the memory of the cache", "overlapping memory");
}

/// n channels in another type, rounded once; bits are kept where the type stays.
template <class Arch = simd::default_arch, class To, class From>
void convert_row(To* to, const From* from, std::int64_t step, std::int64_t n) {
  if constexpr (std::same_as<compute_t<To>, compute_t<From>>) {
    if (step == 1) {
      if constexpr (std::same_as<To, From>) {
        std::copy_n(from, n, to);
      } else {
        simd::for_lanes<Arch, compute_t<To>>(
            n, [&](std::int64_t i, auto at) POSENC_LAMBDA_INLINE { at.store(to + i, at.load(from + i)); });
      }
      return;
    }
  }
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (std::same_as<To, From>) {
      to[i] = from[i * step];
    } else {
      to[i] = narrow<To>(widen(from[i * step]));
    }
  }
}

template <class P, class U>
concept rotates_view = requires(const P& p, view<U> x, const positions& at) {
  p.rotate(x, at);
};
template <class P, class U>
concept rotates_keys_of_view = requires(const P& p, view<U> x, const positions& at) {
  p.rotate_keys(x, at);
};
template <class P, class U>
concept shifts_view = requires(const P& p, view<U> x, std::int64_t delta) {
  p.shift(x, delta);
};
template <class P>
concept describes_itself = requires(const P& p) {
  { p.describe() } -> std::convertible_to<encoder_description>;
};

template <class P, class C>
struct turns : std::bool_constant<rotates_view<P, C> || rotates_keys_of_view<P, C> || has_transform_k<P, C>> {};
template <class... Parts, class C>
struct turns<policy<Parts...>, C> : std::bool_constant<(turns<Parts, C>::value || ...)> {};
/// Whether some part changes keys.
template <class P, class C>
inline constexpr bool turns_keys = turns<P, C>::value;

template <class P, class S>
struct shifts : std::bool_constant<shifts_view<P, S>> {};
template <class... Parts, class S>
struct shifts<policy<Parts...>, S> : std::bool_constant<(shifts<Parts, S>::value || ...)> {};
/// Whether some part moves keys.
template <class P, class S>
inline constexpr bool shifts_keys = shifts<P, S>::value;

/// Keys as attention would make them of unrotated ones.
template <class Policy, class C>
void turn_keys(const Policy& p, const view<C>& x, const positions& at) {
  for_parts(as_references(p), [&]<class P>(const P& part) {
    if constexpr (rotates_view<P, C>) {
      part.rotate(x, at);
    } else if constexpr (rotates_keys_of_view<P, C>) {
      part.rotate_keys(x, at);
    } else if constexpr (has_transform_k<P, C>) {
      for (std::int64_t b = 0; b < x.batch(); ++b)
        for (std::int64_t t = 0; t < x.tokens(); ++t)
          for (std::int64_t h = 0; h < x.heads(); ++h) part.transform_k(x.row(b, t, h), x.dim(), at.at(b, t), h);
    }
  });
}

/// Refuses parts whose keys cannot be moved.
template <class Policy>
void check_shift(const char* function, const Policy& p, key_state state) {
  std::int64_t turning = 0;
  for_parts(as_references(p), [&]<class P>(const P& part) {
    constexpr bool changes = turns_keys<P, float>;
    if constexpr (describes_itself<P>) {
      const encoder_description d = part.describe();
      // Raw keys do not hold what is turned in later; they do hold what was added to the input.
      require(d.shift != cache_shift::recompute_keys || (changes && state == key_state::unrotated), function, "encoder",
              "must leave cached keys movable", std::string(d.shift_reason));
    }
    if (state == key_state::unrotated) return;
    if constexpr (std::same_as<P, qk_norm>) {
      // A norm commutes with the turn, a gain does not.
      require(turning == 0 || part.k_gain.empty(), function, "encoder", "must not scale channels after the rotation",
              "a gain");
    } else if constexpr (changes) {
      require(shifts_view<P, float>, function, "encoder", "must have a shift of cached keys",
              "a part that turns keys and has none");
      require(++turning == 1, function, "encoder", "must hold one part that turns keys, not", turning);
    }
  });
}

template <class Policy, class S>
void shift_keys(const Policy& p, const view<S>& keys, std::int64_t delta) {
  for_parts(as_references(p), [&]<class P>(const P& part) {
    if constexpr (shifts_view<P, S>) part.shift(keys, delta);
  });
}

}  // namespace posenc::detail
