// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A policy is an ordered pack of encoders, masks and modifiers: compose(a, b, c). Its order is the order of the logit
/// transforms (softcap before or after a bias is written down, not left to chance) and of the q and k transforms; masks
/// are applied last whatever their place, and all of them must let a key through. Packs nest: compose(compose(a, b), c)
/// is compose(a, b, c).
///   posenc::compose(posenc::softcap{50}, posenc::alibi<float>{heads}, posenc::causal{})

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/view.hpp>

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace posenc {

struct causal;
struct prefix_lm;

template <class... Parts>
struct policy {
  static_assert(!((std::is_same_v<Parts, causal> || ...) && (std::is_same_v<Parts, prefix_lm> || ...)),
                "posenc::compose: prefix_lm already holds the causal rule for what follows the prefix; a bare causal "
                "beside it would hide the prefix again");
  static_assert(((has_allow_positions<Parts> || has_allow_index<Parts> ? 1 : 0) + ... + 0) <
                    interval_list::capacity - 1,
                "posenc::compose: too many interval masks in one policy");
  std::tuple<Parts...> parts;
};

namespace detail {
template <class T>
struct is_policy : std::false_type {};
template <class... Parts>
struct is_policy<policy<Parts...>> : std::true_type {};

template <class T>
auto as_tuple(T&& part) {
  if constexpr (is_policy<std::remove_cvref_t<T>>::value) {
    return std::forward<T>(part).parts;
  } else {
    return std::tuple<std::remove_cvref_t<T>>(std::forward<T>(part));
  }
}
template <class... Parts>
policy<Parts...> from_tuple(std::tuple<Parts...>&& parts) {
  return {std::move(parts)};
}
}  // namespace detail

/// See the file comment. Copies its arguments.
template <class... Parts>
[[nodiscard]] auto compose(Parts&&... parts) {
  return detail::from_tuple(std::tuple_cat(detail::as_tuple(std::forward<Parts>(parts))...));
}

/// The input side of a policy: every part with an `embed` hook adds to x, in pack order. Attention itself leaves these
/// parts alone, so one pack can describe a model that embeds absolute positions and biases relative ones.
template <class Part, class U>
void embed(const Part& part, view<U> x, const positions& at = {}) {
  if constexpr (detail::is_policy<Part>::value) {
    std::apply([&](const auto&... each) { (embed(each, x, at), ...); }, part.parts);
  } else if constexpr (requires { part.embed(x, at); }) {
    part.embed(x, at);
  }
}

/// Turns x by every part of a policy that rotates, in pack order, e.g. keys before they are appended to a cache. (The
/// form for one encoder is in encoders/nope.hpp.)
template <class... Parts, class U>
void rotate(const policy<Parts...>& pack, view<U> x, const positions& at = {}) {
  const auto one = [&](const auto& part) {
    if constexpr (requires { part.rotate(x, at); }) {
      part.rotate(x, at);
    } else {
      static_assert(
          !requires { part.rotate_keys(x, at); },
          "posenc::rotate: a part turns queries and keys differently; call its rotate_queries or rotate_keys");
    }
  };
  std::apply([&](const auto&... part) { (one(part), ...); }, pack.parts);
}

namespace detail {

/// What runs once per call for one part: the closure it binds, or the part itself. Arch is that of the call, void for
/// scalars; a part whose `bind` is keyed by it prepares its lines on these lanes.
template <class Arch, class Part>
decltype(auto) bind_part(const Part& part, std::byte*& memory, const call& c) {
  if constexpr (has_bind<Part>) {
    std::byte* mine = memory;
    memory += (part.workspace_bytes(c) + 63) / 64 * 64;
    if constexpr (requires { part.template bind<Arch>(mine, c); }) {
      return part.template bind<Arch>(mine, c);
    } else {
      return part.bind(mine, c);
    }
  } else {
    return (part);
  }
}

/// The bound pack: closures by value, the other parts by reference.
template <class Arch, class... Parts>
auto bind_policy(const policy<Parts...>& p, std::byte* memory, const call& c) {
  return std::apply(
      [&](const Parts&... part) {
        // Braces keep the order of evaluation, so every part gets its own memory.
        return std::tuple<decltype(bind_part<Arch>(part, memory, c))...>{bind_part<Arch>(part, memory, c)...};
      },
      p.parts);
}
/// A single part is a policy of one.
template <class Arch, class Part>
  requires(!is_policy<Part>::value)
auto bind_policy(const Part& p, std::byte* memory, const call& c) {
  return std::tuple<decltype(bind_part<Arch>(p, memory, c))>{bind_part<Arch>(p, memory, c)};
}

/// Bytes that `bind_part` takes.
template <class Part>
std::size_t part_bytes(const Part& part, const call& c) {
  if constexpr (has_bind<Part>) {
    return (part.workspace_bytes(c) + 63) / 64 * 64;
  } else {
    return 0;
  }
}
template <class... Parts>
std::size_t bound_bytes(const policy<Parts...>& p, const call& c) {
  return std::apply([&](const Parts&... part) { return (part_bytes(part, c) + ... + std::size_t{0}); }, p.parts);
}
template <class Part>
  requires(!is_policy<Part>::value)
std::size_t bound_bytes(const Part& p, const call& c) { return part_bytes(p, c); }

/// The parts of a policy as a tuple of references.
template <class... Parts>
std::tuple<const Parts&...> as_references(const policy<Parts...>& p) {
  return std::apply([](const Parts&... part) { return std::tuple<const Parts&...>(part...); }, p.parts);
}
template <class Part>
  requires(!is_policy<Part>::value)
std::tuple<const Part&> as_references(const Part& p) { return {p}; }

/// Calls f on every part in order.
template <class Pack, class F>
constexpr void for_parts(const Pack& pack, F&& f) {
  std::apply([&](const auto&... part) { (f(part), ...); }, pack);
}

/// Keys that masks by position let through.
template <class Pack>
interval_list positions_allowed(const Pack& pack, const row& r) {
  interval_list list;
  for_parts(pack, [&]<class P>(const P& part) {
    if constexpr (has_allow_positions<P>) list.intersect(part.allow_positions(r));
  });
  return list;
}

/// Narrows a list of key indices to what masks by index let through.
template <class Pack>
void allow_by_index(const Pack& pack, const row& r, interval_list& list) {
  for_parts(pack, [&]<class P>(const P& part) {
    if constexpr (has_allow_index<P>) list.intersect(part.allow_index(r));
  });
}

/// The prepared terms of one part and row: terms[0] belongs to key `first`.
template <class C>
struct content_line {
  const C* terms = nullptr;
  std::int64_t first = 0;
};
/// Nobody has prepared content terms.
struct no_content {};

/// The logit transforms of the parts First .. First + Count - 1 as one op.
template <class B, std::size_t First, std::size_t Count, class Keys, class Pack, class Lines>
auto logit_op_of(const Pack& pack, const row& r, const Keys& keys, const Lines& line) {
  const auto one = [&]<std::size_t I>(std::integral_constant<std::size_t, I> index) {
    const auto& part = std::get<I>(pack);
    using P = std::remove_cvref_t<decltype(part)>;
    if constexpr (has_prepare<P, B, Keys>) {
      static_assert(!has_row<P, B, Keys>, "posenc: a part has either `row` or `prepare`");
      static_assert(!(std::same_as<Lines, no_content> && has_prepare<P, B, Keys>),
                    "posenc: a content term has no value without queries and keys");
      return std::make_tuple(
          [at = line(index)](const B& s, std::int64_t k) { return B(s + lanes<B>::load(at.terms + (k - at.first))); });
    } else if constexpr (has_row<P, B, Keys>) {
      return std::make_tuple(part.template row<B>(r, keys));
    } else {
      return std::tuple<>();
    }
  };
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return [ops = std::tuple_cat(one(std::integral_constant<std::size_t, First + I>{})...)](B s, std::int64_t k) {
      std::apply([&](const auto&... op) { ((s = op(s, k)), ...); }, ops);
      return s;
    };
  }
  (std::make_index_sequence<Count>{});
}

/// The first part from From on that needs a whole row of logits, or the number of parts.
template <class B, class Keys, std::size_t From, class Pack>
inline constexpr std::size_t next_whole_row = From;
template <class B, class Keys, std::size_t From, class... P>
inline constexpr std::size_t next_whole_row<B, Keys, From, std::tuple<P...>> = [] {
  constexpr bool whole[] = {has_transform_logits<std::remove_cvref_t<P>, B, Keys>..., true};
  std::size_t i = From;
  while (i < sizeof...(P) && !whole[i]) ++i;
  return i;
}();
template <class B, class Keys, class Pack>
inline constexpr bool any_whole_row = next_whole_row<B, Keys, 0, Pack> < std::tuple_size_v<Pack>;

/// The logit transforms of one row, in pack order, as one op. `line(integral_constant i)` is the content_line of part
/// i.
template <class B, class Keys, class Pack, class Lines = no_content>
auto make_logit_op(const Pack& pack, const row& r, const Keys& keys, const Lines& line = {}) {
  static_assert(!any_whole_row<B, Keys, Pack>,
                "posenc: a part of the policy needs whole rows of logits, as only attention_two_pass and "
                "attention_reference have them");
  return logit_op_of<B, 0, std::tuple_size_v<Pack>>(pack, r, keys, line);
}

/// Every logit transform of one row: pass(op) for a stretch of parts, whole(part, integral_constant index) for a part
/// that needs the whole row, in pack order; a pass comes first and last, if need be of an op that does nothing.
template <class B, std::size_t From = 0, class Keys, class Pack, class Lines, class Pass, class Whole>
void for_logit_stages(const Pack& pack, const row& r, const Keys& keys, const Lines& line, const Pass& pass,
                      const Whole& whole) {
  constexpr std::size_t at = next_whole_row<B, Keys, From, Pack>;
  pass(logit_op_of<B, From, at - From>(pack, r, keys, line));
  if constexpr (at < std::tuple_size_v<Pack>) {
    whole(std::get<at>(pack), std::integral_constant<std::size_t, at>{});
    for_logit_stages<B, at + 1>(pack, r, keys, line, pass, whole);
  }
}

template <class B, class Keys, class Pack>
inline constexpr bool any_lane_mask = false;
template <class B, class Keys, class... P>
inline constexpr bool any_lane_mask<B, Keys, std::tuple<P...>> = (has_allow_lanes<std::remove_cvref_t<P>, B, Keys> ||
                                                                  ...);

/// The free-form masks of one row as one op: which lanes are let through by all of them.
template <class B, class Keys, class Pack>
auto make_lane_mask(const Pack& pack, const row& r, const Keys& keys) {
  return std::apply(
      [&](const auto&... part) {
        [[maybe_unused]] const auto one = [&]<class P>(const P& p) {
          if constexpr (has_allow_lanes<P, B, Keys>) {
            return std::make_tuple(p.template allow_lanes<B>(r, keys));
          } else {
            return std::tuple<>();
          }
        };
        return [ops = std::tuple_cat(one(part)...)](std::int64_t k) {
          return std::apply(
              [&](const auto& first, const auto&... op) {
                auto m = first(k);
                ((m = m && op(k)), ...);
                return m;
              },
              ops);
        };
      },
      pack);
}

/// Every part says something: a hook found on it, or `traits` (an encoder without one, such as nope).
template <class B, class Keys, class P>
inline constexpr bool speaks =
    has_row<P, B, Keys> || has_allow_lanes<P, B, Keys> || has_allow_positions<P> || has_allow_index<P> || has_sink<P> ||
    has_query_scale<P> || has_transform_q<P, typename lanes<B>::scalar> || has_bind<P> || has_prepare<P, B, Keys> ||
    has_values<P, B, Keys> || has_transform_logits<P, B, Keys> || requires {
  P::traits;
}
|| requires(const P& p, view<float> x, const positions& at) { p.embed(x, at); }
|| requires { P::no_hooks; };
template <class B, class Keys, class Pack>
inline constexpr bool all_speak = true;
template <class B, class Keys, class... P>
inline constexpr bool all_speak<B, Keys, std::tuple<P...>> = (speaks<B, Keys, std::remove_cvref_t<P>> && ...);

template <class B, class Keys, class Pack>
inline constexpr bool any_content = false;
template <class B, class Keys, class... P>
inline constexpr bool any_content<B, Keys, std::tuple<P...>> = (has_prepare<std::remove_cvref_t<P>, B, Keys> || ...);
template <class B, class Keys, class Pack>
inline constexpr bool any_values = false;
template <class B, class Keys, class... P>
inline constexpr bool any_values<B, Keys, std::tuple<P...>> = (has_values<std::remove_cvref_t<P>, B, Keys> || ...);

/// Elements that a part needs beside a tile for its content terms or beside a row that it transforms as a whole, 0 for
/// one without; and in every row for its values.
template <class B, class Keys, class P>
std::int64_t scratch_of(const P& part, std::int64_t rows, std::int64_t keys, std::int64_t dim) {
  if constexpr (has_prepare<P, B, Keys>) return part.scratch_size(rows, keys, dim);
  if constexpr (has_transform_logits<P, B, Keys>) return part.scratch_size(1, keys, dim);
  return 0;
}
template <class B, class Keys, class P>
std::int64_t state_of(const P& part, std::int64_t value_dim) {
  if constexpr (has_values<P, B, Keys>) return part.state_size(value_dim);
  return 0;
}

/// The start of the softmax: the sink of the one part that has it, or nothing.
template <class Pack>
constexpr bool pack_has_sink() {
  return []<class... P>(std::type_identity<std::tuple<P...>>) {
    constexpr int providers = ((has_sink<std::remove_cvref_t<P>> ? 1 : 0) + ... + 0);
    static_assert(providers <= 1, "posenc::compose: at most one sink per policy");
    return providers == 1;
  }(std::type_identity<Pack>{});
}

/// Whether some query scale asks how many keys a row sees (it says so by `needs_visible_keys`).
template <class Pack>
inline constexpr bool pack_needs_visible_keys = false;
template <class... P>
inline constexpr bool pack_needs_visible_keys<std::tuple<P...>> = ([] {
  if constexpr (requires { std::remove_cvref_t<P>::needs_visible_keys; }) {
    return std::remove_cvref_t<P>::needs_visible_keys;
  } else {
    return false;
  }
}() || ...);

}  // namespace detail
}  // namespace posenc
