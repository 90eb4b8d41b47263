// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Heads of one layer that follow different encodings:
///   compose(per_head([](std::int64_t h) { return h < 4; }, alibi<float>{8}, nope{}), causal{})
/// A head for which select(head) is true follows the first part, the others the second. Each part is made for all heads
/// of the model (alibi<float>{8} above), so its tables keep their order.
/// Parts    any with logit rows, masks by interval, q and k transforms, query scales and lines bound once per call;
///          content terms, whole rows, sinks and free-form masks are refused.
/// Cost     the choice is made when a row begins; its op holds both chains and one predictable branch per batch.
/// A part that transforms keys is chosen by the query heads that share the key head, which must agree: `group` is their
/// number. Keys of such a layer are cached unrotated (key_state::unrotated), or rotated head by head by the caller.
/// Throws   std::invalid_argument where they do not agree, for parts of different head counts, and what the parts
///          throw.
/// Example  examples/cope_example.cpp

#include <posenc/attention/compose.hpp>
#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>

#include <concepts>
#include <utility>

namespace posenc {

namespace detail {
template <class P>
concept selectable =
    !has_sink<P> && !has_allow_lanes<P, float, contiguous_keys> && !has_prepare<P, float, contiguous_keys> &&
    !has_values<P, float, contiguous_keys> && !has_transform_logits<P, float, contiguous_keys> && !is_policy<P>::value;
template <class P>
concept counts_heads = requires(const P& p) {
  { p.heads() } -> std::convertible_to<std::int64_t>;
};
}  // namespace detail

template <class Select, class A, class B>
  requires std::predicate<const Select&, std::int64_t>
class per_head {
  static_assert(
      detail::selectable<A> && detail::selectable<B>,
      "posenc::per_head: takes one part per choice, with rows, interval masks, transforms or query scales; no "
      "content terms, whole rows, sinks or free-form masks");

 public:
  static constexpr bool no_hooks = true;  // either part may be an encoder without any
  static constexpr bool needs_visible_keys =
      detail::pack_needs_visible_keys<std::tuple<A>> || detail::pack_needs_visible_keys<std::tuple<B>>;

  per_head(Select select, A first, B second, std::int64_t group = 1)
      : select_(std::move(select)), first_(std::move(first)), second_(std::move(second)), group_(group) {
    detail::require(group >= 1, "per_head", "group", "must be at least 1", group);
    if constexpr (detail::counts_heads<A> && detail::counts_heads<B>)
      detail::require(first_.heads() == second_.heads(), "per_head", "the heads of the parts", "must be equal",
                      second_.heads());
  }

  template <class L, class Keys>
    requires(has_row<A, L, Keys> || has_row<B, L, Keys>)
  [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
    return [one = op_of<L>(first_, r, keys), two = op_of<L>(second_, r, keys), chosen = bool(select_(r.head))](
               const L& s, std::int64_t k) { return chosen ? L(one(s, k)) : L(two(s, k)); };
  }

  [[nodiscard]] interval_pair allow_positions(const posenc::row& r) const
      requires(has_allow_positions<A> || has_allow_positions<B>) {
    return visit(r.head, [&]<class P>(const P& part) -> interval_pair {
      if constexpr (has_allow_positions<P>) return as_pair(part.allow_positions(r));
      return as_pair(interval{});
    });
  }
  [[nodiscard]] interval_pair allow_index(const posenc::row& r) const
      requires(has_allow_index<A> || has_allow_index<B>) {
    return visit(r.head, [&]<class P>(const P& part) -> interval_pair {
      if constexpr (has_allow_index<P>) return as_pair(part.allow_index(r));
      return as_pair(interval{});
    });
  }

  [[nodiscard]] double query_scale(std::int64_t head, const position& at, std::int64_t visible) const
      requires(has_query_scale<A> || has_query_scale<B>) {
    return visit(head, [&]<class P>(const P& part) {
      if constexpr (has_query_scale<P>) return static_cast<double>(part.query_scale(head, at, visible));
      return 1.0;
    });
  }
  template <class C>
    requires(has_transform_q<A, C> || has_transform_q<B, C>)
  void transform_q(C* x, std::int64_t dim, const position& at, std::int64_t head) const {
    visit(head, [&]<class P>(const P& part) {
      if constexpr (has_transform_q<P, C>) part.transform_q(x, dim, at, head);
    });
  }
  template <class C>
    requires(has_transform_k<A, C> || has_transform_k<B, C>)
  void transform_k(C* x, std::int64_t dim, const position& at, std::int64_t kv_head) const {
    visit(kv_head * group_, [&]<class P>(const P& part) {
      if constexpr (has_transform_k<P, C>) part.transform_k(x, dim, at, kv_head);
    });
  }

  [[nodiscard]] std::size_t workspace_bytes(const call& c) const requires(has_bind<A> || has_bind<B>) {
    return detail::part_bytes(first_, c) + detail::part_bytes(second_, c);
  }
  template <class Arch = void>
  [[nodiscard]] auto bind(std::byte* memory, const call& c) const requires(has_bind<A> || has_bind<B>) {
    std::remove_cvref_t<decltype(detail::bind_part<Arch>(first_, memory, c))> one =
        detail::bind_part<Arch>(first_, memory, c);
    std::remove_cvref_t<decltype(detail::bind_part<Arch>(second_, memory, c))> two =
        detail::bind_part<Arch>(second_, memory, c);
    return per_head<Select, decltype(one), decltype(two)>(select_, std::move(one), std::move(two), group_);
  }

  void check(const call& c) const {
    const auto fits = [&]<class P>(const P& part) {
      if constexpr (requires { part.check(c); }) part.check(c);
    };
    fits(first_);
    fits(second_);
    if constexpr (has_transform_k<A, float> || has_transform_k<B, float>) {
      detail::require(c.keys == 0 || group_ * c.kv_heads == c.heads, "per_head", "group",
                      "must be the query heads of one key head", group_);
      for (std::int64_t h = 0; h < c.heads; ++h)
        detail::require(bool(select_(h)) == bool(select_(h / group_ * group_)), "per_head", "select",
                        "must choose the same for heads that share a key head, head", h);
    }
  }

  /// Those of the parts, each of which is made for all of them.
  [[nodiscard]] std::int64_t heads() const noexcept requires(detail::counts_heads<A> || detail::counts_heads<B>) {
    if constexpr (detail::counts_heads<A>) return first_.heads();
    if constexpr (!detail::counts_heads<A>) return second_.heads();
  }
  [[nodiscard]] const A& first() const noexcept { return first_; }
  [[nodiscard]] const B& second() const noexcept { return second_; }

 private:
  template <class F>
  decltype(auto) visit(std::int64_t head, const F& f) const {
    return select_(head) ? f(first_) : f(second_);
  }
  template <class L, class P, class Keys>
  static auto op_of(const P& part, const posenc::row& r, const Keys& keys) {
    if constexpr (has_row<P, L, Keys>) {
      return part.template row<L>(r, keys);
    } else {
      return [](const L& s, std::int64_t) { return s; };
    }
  }
  static interval_pair as_pair(const interval& v) noexcept { return {v, interval{0, 0}}; }
  static interval_pair as_pair(const interval_pair& v) noexcept { return v; }

  Select select_;
  A first_;
  B second_;
  std::int64_t group_;
};

}  // namespace posenc
