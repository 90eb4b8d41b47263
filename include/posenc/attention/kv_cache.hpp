// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Cached keys and values of one attention layer: what contiguous_cache.hpp, ring_cache.hpp and paged_cache.hpp share.
///   cache.append(k, v, policy);  // keys are turned for the positions that come next
///   attention(q, cache.keys(), cache.values(), out, policy,
///             {.query_positions = cache.last_positions(n),
///              .key_positions = cache.positions(),
///              .keys = cache.state()});
/// Token t of the cache stands at first_position() + t, whatever slot holds it. Storage S is float, double or a 16-bit
/// type; new keys and values may be of another type.
/// Rotated    (the default) keys go through the transforms of the encoder or policy on their way in, in compute type,
///            and are rounded to S once. `append_rotated` stores keys that carry their positions already.
/// Unrotated  keys are stored as they come, attention turns them while it reads (`.keys = cache.state()` says so); a
///            shift then moves positions alone, and no length-dependent scaling can go stale.
/// Domain     positions in int64 below 2^63 - 1; an encoder that takes the first and the last new position must take
///            those between.
/// Cost       append: one rotation per token, one more where several come at once, and one store per element; nothing
///            is allocated.
/// Throws     std::invalid_argument for shapes, positions and encoders that do not fit, std::out_of_range where there
///            is no room; before anything is written.
/// Threads    a cache may be read by any number of threads while none writes to it. What was moved from may be assigned
///            to or destroyed.
/// Example    examples/kv_cache_example.cpp

#include <posenc/attention/cached_keys.hpp>
#include <posenc/attention/call.hpp>
#include <posenc/core/paged_view.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/rerotate.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace posenc {

/// Of contiguous_cache and ring_cache.
struct cache_options {
  std::int64_t batch = 1;
  /// Tokens of each batch row.
  std::int64_t capacity = 0;
  std::int64_t kv_heads = 1;
  std::int64_t dim = 0;
  /// That of values where it is not `dim`.
  std::optional<std::int64_t> value_dim{};
  key_state keys = key_state::rotated;
  std::int64_t first_position = 0;
};

/// What the caches have in common; Derived says where tokens lie.
template <class Derived, simd_storage S>
class kv_cache {
  static_assert(!std::is_const_v<S>, "posenc: a cache is written to");

 public:
  using value_type = S;

  /// Tokens held, the same in every batch row.
  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::int64_t batch() const noexcept { return batch_; }
  [[nodiscard]] std::int64_t kv_heads() const noexcept { return heads_; }
  [[nodiscard]] std::int64_t dim() const noexcept { return dim_; }
  [[nodiscard]] std::int64_t value_dim() const noexcept { return value_dim_; }
  /// What attention is to be told about the keys.
  [[nodiscard]] key_state state() const noexcept { return state_; }
  [[nodiscard]] std::int64_t bytes_per_token() const noexcept {
    return heads_ * (dim_ + value_dim_) * static_cast<std::int64_t>(sizeof(S));
  }

  /// Position of token 0, and of the token that is appended next.
  [[nodiscard]] std::int64_t first_position() const noexcept { return first_; }
  [[nodiscard]] std::int64_t next_position() const noexcept { return first_ + size_; }
  /// Those of all tokens, for `.key_positions`.
  [[nodiscard]] posenc::positions positions() const noexcept { return posenc::positions::from(first_); }
  /// Those of the last n tokens, for `.query_positions` after n tokens were appended.
  [[nodiscard]] posenc::positions last_positions(std::int64_t n) const {
    detail::require(n >= 0 && n <= size_, Derived::name, "n", "must lie in 0..size", n);
    return posenc::positions::from(next_position() - n);
  }

  /// Adds the tokens of k [1 or batch, n, kv_heads, dim] and v [.., value_dim] at the positions next_position(), ...;
  /// one batch row is given to all of them. Keys are turned by `encoder`, an encoder or a policy, unless they are kept
  /// unrotated. @throws see the file comment.
  template <class K, class V, class Encoder>
    requires simd_storage<K> && simd_storage<V>
  void append(view<K> k, view<V> v, const Encoder& encoder) { add(view<const K>(k), view<const V>(v), encoder); }
  /// Adds keys that carry their positions already, or need none.
  /// @throws std::invalid_argument where keys are kept unrotated, and as append does.
  template <class K, class V>
    requires simd_storage<K> && simd_storage<V>
  void append_rotated(view<K> k, view<V> v) {
    detail::require(state_ == key_state::rotated, Derived::name, "state", "must not be unrotated for append_rotated",
                    "key_state::unrotated");
    add(view<const K>(k), view<const V>(v), nope{});
  }

  /// Moves every token by `delta` positions: keys are turned where the encoder says so, and rounded to S once more.
  /// @throws std::invalid_argument with the reason of an encoder whose keys must be computed again, or for positions
  /// outside int64; before anything is written.
  template <class Encoder>
  void shift(std::int64_t delta, const Encoder& encoder) {
    check_move(delta);
    turn(0, delta, encoder);
    first_ += delta;
  }
  /// Takes the tokens from .. from + n - 1 out and moves what follows up by n positions, as `shift` does.
  template <class Encoder>
  void erase(std::int64_t from, std::int64_t n, const Encoder& encoder) {
    detail::require(from >= 0 && from <= size_, Derived::name, "from", "must lie in 0..size", from);
    detail::require(n >= 0 && n <= size_ - from, Derived::name, "n", "must end inside the tokens", n);
    if (from + n == size_) return self().truncate(from);  // nothing follows
    turn(from + n, -n, encoder, from);
    for (std::int64_t b = 0; b < batch_; ++b)
      for (std::int64_t t = from + n; t < size_; ++t)
        for (std::int64_t h = 0; h < heads_; ++h) {
          std::copy_n(self().key_row(b, t, h), dim_, self().key_row(b, t - n, h));
          std::copy_n(self().value_row(b, t, h), value_dim_, self().value_row(b, t - n, h));
        }
    self().truncate(size_ - n);
  }
  /// Keys rotated under `from` become those of `to` (a length-dependent scaling whose length has grown); nothing to do
  /// where keys are unrotated. @throws as posenc::rerotate does, before anything is written.
  template <class T, class U>
  void rerotate(const rope<T>& from, const rope<U>& to) {
    if (state_ == key_state::unrotated || size_ == 0) return;
    posenc::rerotate(blank_token(), positions(), from, to);
    self().own(0);
    for_runs(0, [&](const view<S>& keys, std::int64_t t) {
      posenc::rerotate(keys, posenc::positions::from(first_ + t), from, to);
    });
  }

 protected:
  kv_cache(const cache_options& o)
      : size_(0),
        first_(o.first_position),
        batch_(o.batch),
        capacity_(o.capacity),
        heads_(o.kv_heads),
        dim_(o.dim),
        value_dim_(o.value_dim.value_or(o.dim)),
        state_(o.keys) {
    detail::check_cache_shape(Derived::name, {batch_, capacity_, heads_, std::max(dim_, value_dim_)},
                              std::min(dim_, value_dim_));
    detail::require(first_ <= std::numeric_limits<std::int64_t>::max() - 1, Derived::name, "first_position",
                    "must lie below 2^63 - 1", first_);
    line_.resize(static_cast<std::size_t>(heads_ * std::max(dim_, value_dim_)) * sizeof(double));
  }
  ~kv_cache() = default;
  kv_cache(const kv_cache&) = default;
  kv_cache(kv_cache&&) = default;
  kv_cache& operator=(const kv_cache&) = default;
  kv_cache& operator=(kv_cache&&) = default;

  void check_kept(std::int64_t n) const {
    detail::require(n >= 0 && n <= size_, Derived::name, "the tokens to keep", "must lie in 0..size", n);
  }
  void check_dropped(std::int64_t n) const {
    detail::require(n >= 0 && n <= size_, Derived::name, "the tokens to drop", "must lie in 0..size", n);
  }

  std::int64_t size_;
  std::int64_t first_;

 private:
  Derived& self() noexcept { return static_cast<Derived&>(*this); }

  /// Room for the keys of one token in type C.
  template <class C>
  [[nodiscard]] view<C> token_of() noexcept {
    return {reinterpret_cast<C*>(line_.data()), {.tokens = 1, .heads = heads_, .dim = dim_}};
  }
  /// A token of zeros on which an encoder may show that it fits.
  [[nodiscard]] view<S> blank_token() {
    const view<S> blank = token_of<S>();
    std::fill_n(blank.data(), heads_ * dim_, narrow<S>(0.0f));
    return blank;
  }

  template <class K, class V, class Encoder>
  void add(const view<const K>& k, const view<const V>& v, const Encoder& encoder) {
    using C = detail::attention_compute_t<K, S>;
    const char* const function = Derived::name;
    detail::require(k.batch() == 1 || k.batch() == batch_, function, "k batch", "must be 1 or that of the cache",
                    k.batch());
    detail::require(v.batch() == k.batch(), function, "v batch", "must equal that of k", v.batch());
    detail::require(v.tokens() == k.tokens(), function, "v tokens", "must equal those of k", v.tokens());
    const std::int64_t n = k.tokens();
    if (n == 0) return;
    detail::require(k.heads() == heads_, function, "k heads", "must equal kv_heads", k.heads());
    detail::require(v.heads() == heads_, function, "v heads", "must equal kv_heads", v.heads());
    detail::require(k.dim() == dim_, function, "k dim", "must equal dim", k.dim());
    detail::require(v.dim() == value_dim_, function, "v dim", "must equal value_dim", v.dim());
    detail::require(next_position() <= 0 || n <= std::numeric_limits<std::int64_t>::max() - next_position(), function,
                    "k tokens", "must leave positions below 2^63 - 1", n);
    self().check_room(n);
    self().check_outside_storage(k, v);
    // Of a run longer than a ring, the end is kept.
    const std::int64_t begin = std::max<std::int64_t>(0, n - capacity_);
    const bool turns = state_ == key_state::rotated && detail::turns_keys<Encoder, C>;
    const std::int64_t base = next_position();
    std::int64_t held = -1;  // the token that `line_` holds turned
    const auto turned = [&](std::int64_t b, std::int64_t t) {
      if (held == b * n + t) return;
      held = b * n + t;
      const view<C> token = token_of<C>();
      for (std::int64_t h = 0; h < heads_; ++h)
        detail::convert_row(token.row(0, 0, h), k.row(b, t, h), k.steps().dim, dim_);
      detail::turn_keys(encoder, token, posenc::positions::from(base + t));
    };
    // An encoder that refuses a position does so here; the loop finds the first token turned.
    if (turns) turned(0, n - 1);
    if (turns && n - begin > 1) turned(0, begin);
    const std::int64_t place = self().make_room(n) - begin;
    for (std::int64_t b = 0; b < batch_; ++b)
      for (std::int64_t t = begin; t < n; ++t) {
        const std::int64_t from = k.batch() == 1 ? 0 : b;
        if (turns) turned(from, t);
        for (std::int64_t h = 0; h < heads_; ++h) {
          S* const key = self().key_row(b, place + t, h);
          if (turns) {
            detail::convert_row(key, token_of<C>().row(0, 0, h), 1, dim_);
          } else {
            detail::convert_row(key, k.row(from, t, h), k.steps().dim, dim_);
          }
          detail::convert_row(self().value_row(b, place + t, h), v.row(from, t, h), v.steps().dim, value_dim_);
        }
      }
  }

  void check_move(std::int64_t delta) const {
    constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();
    const std::int64_t last = size_ > 0 ? next_position() - 1 : first_;
    detail::require(delta <= 0 ? first_ >= std::numeric_limits<std::int64_t>::min() - delta : last < highest - delta,
                    Derived::name, "delta", "must keep positions inside int64 and below 2^63 - 1", delta);
  }
  /// Turns the keys of the tokens from .. by delta; those from `owned` on will be written to.
  template <class Encoder>
  void turn(std::int64_t from, std::int64_t delta, const Encoder& encoder, std::optional<std::int64_t> owned = {}) {
    detail::check_shift(Derived::name, encoder, state_);
    const bool turns = state_ == key_state::rotated && detail::shifts_keys<Encoder, S> && delta != 0;
    if (turns) detail::shift_keys(encoder, blank_token(), delta);
    if (owned) self().own(*owned);
    if (!turns) return;
    if (!owned) self().own(from);
    for_runs(from, [&](const view<S>& keys, std::int64_t) { detail::shift_keys(encoder, keys, delta); });
  }

  /// f(keys, t) for every run of tokens from t on that lie one stride apart.
  template <class F>
  void for_runs(std::int64_t from, F&& f) {
    const auto rows = self().keys();
    for (std::int64_t b = 0; b < batch_; ++b)
      for (std::int64_t t = from, n = 0; t < size_; t += n) {
        n = rows.run(b, t);
        f(view<S>(self().key_row(b, t, 0), {.tokens = n, .heads = heads_, .dim = dim_},
                  {.token = rows.steps().token, .head = rows.steps().head}),
          t);
      }
  }

  std::int64_t batch_;
  std::int64_t capacity_;
  std::int64_t heads_;
  std::int64_t dim_;
  std::int64_t value_dim_;
  key_state state_;
  detail::cache_memory<std::byte> line_;
};

}  // namespace posenc
