// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Attention one score at a time: for reading, for small sizes, for every scalar (float, double, long double, autodiff)
/// and every policy. It can also hand out the logits and the weights.
///   out(i) = sum_j softmax_j(op(scale * q(i).k(j))) v(j)
/// Cost     O(queries * keys * dim) per head; allocates one row. Rules for masked keys, empty rows and sinks are those
///          of `attention`.

#include <posenc/attention/call.hpp>
#include <posenc/attention/content.hpp>
#include <posenc/core/scalar.hpp>

#include <array>
#include <functional>
#include <limits>
#include <vector>

namespace posenc {

/// C is the compute scalar.
template <class C>
struct reference_options {
  positions query_positions{};
  positions key_positions{};
  std::optional<double> scale{};
  key_state keys = key_state::rotated;
  view<C> lse{};
  /// [batch, query, head, keys]: logits after the whole pack, -inf where masked; and softmax weights.
  view<C> logits{};
  view<C> weights{};
};

namespace detail {

/// One row, every step spelled out.
template <class C, class Keys, class Pack>
struct reference_row {
  const Pack& pack;
  const row& r;
  const Keys& keys;
  interval_list by_position;
  interval_list by_index;

  [[nodiscard]] bool visible(std::int64_t k) const {
    if (!by_position.contains(keys.position(k)) || !by_index.contains(k)) return false;
    if constexpr (any_lane_mask<C, Keys, Pack>) return make_lane_mask<C>(pack, r, keys)(k);
    return true;
  }
};

/// Content terms and value states of one row, over all keys at once.
template <class C, class Keys, class Pack>
class reference_content {
 public:
  template <class ReadKey>
  reference_content(const Pack& pack, const row& r, const Keys& keys, const call& c, const std::vector<C>& query,
                    const std::vector<C>& unscaled, const C& factor, const ReadKey& read_key)
      : r_(r), keys_(keys) {
    const interval seen{0, c.keys};
    const content_tile<C> tile{
        1,
        c.keys,
        0,
        c.dim,
        &r,
        query.data(),
        unscaled.data(),
        &factor,
        &seen,
        &read_key,
        [](const void* self, std::int64_t j, C* to) { (*static_cast<const ReadKey*>(self))(j, to); }};
    std::size_t i = 0;
    for_parts(pack, [&]<class P>(const P& part) {
      scratch_[i].resize(static_cast<std::size_t>(scratch_of<C, Keys>(part, 1, c.keys, c.dim)));
      state_[i].resize(static_cast<std::size_t>(state_of<C, Keys>(part, c.value_dim)), C(0));
      if constexpr (has_prepare<P, C, Keys>) part.template prepare<C>(tile, keys, scratch_[i].data(), &lines_[i]);
      if constexpr (has_values<P, C, Keys>)
        add_.push_back([this, i, &part](std::int64_t j, const C& p) {
          part.template add_weights<C>(state_[i].data(), r_, keys_, j, &p, 1);
        });
      if constexpr (has_values<P, C, Keys>)
        finish_.push_back([this, i, &part](std::vector<C>& sum) {
          part.template add_values<C>(state_[i].data(), r_, sum.data(), static_cast<std::int64_t>(sum.size()));
        });
      ++i;
    });
  }
  [[nodiscard]] auto lines() const {
    return [this]<class I>(I) { return content_line<C>{lines_[I::value], 0}; };
  }
  void add_weight(std::int64_t j, const C& p) const {
    for (const auto& add : add_) add(j, p);
  }
  void add_values(std::vector<C>& sum) const {
    for (const auto& finish : finish_) finish(sum);
  }

 private:
  static constexpr std::size_t parts_ = std::tuple_size_v<Pack>;
  const row& r_;
  const Keys& keys_;
  std::array<std::vector<C>, parts_> scratch_{};
  std::array<std::vector<C>, parts_> state_{};
  std::array<const C*, parts_> lines_{};
  std::vector<std::function<void(std::int64_t, const C&)>> add_{};
  std::vector<std::function<void(std::vector<C>&)>> finish_{};
};

/// The scalar of q, or of the widest argument where all are SIMD storage.
template <class Q, class K, class V, class O>
using reference_compute_t = std::conditional_t<simd_storage<Q> && simd_storage<K> && simd_storage<V> && simd_storage<O>,
                                               attention_compute_t<Q, K, V, O>, compute_t<Q>>;

/// Finite, infinite or NaN as the value of an autodiff scalar has it.
template <class C>
bool is_lowest(const C& x) {
  return x == C(-std::numeric_limits<double>::infinity());
}

template <class Q, class K, class V, class O, class Keys, class Pack, class C>
void reference_one_row(const view<Q>& q, const view<K>& k, const view<V>& v, const view<O>& out, const call& c,
                       const row& r, const Keys& keys, const Pack& pack, double scale,
                       const reference_options<C>& options) {
  using std::exp;
  using std::log;
  static_assert(all_speak<C, Keys, Pack>,
                "posenc: a part of the policy has no hook that attention knows; hooks are const members");
  reference_row<C, Keys, Pack> look{pack, r, keys, positions_allowed(pack, r), interval_list({0, c.keys})};
  allow_by_index(pack, r, look.by_index);
  std::int64_t visible = 0;
  std::vector<bool> seen(static_cast<std::size_t>(c.keys));
  for (std::int64_t j = 0; j < c.keys; ++j)
    if (look.visible(j)) {
      seen[static_cast<std::size_t>(j)] = true;
      ++visible;
    }
  std::vector<C> query(static_cast<std::size_t>(c.dim));
  for (std::int64_t d = 0; d < c.dim; ++d)
    query[static_cast<std::size_t>(d)] = C(widen(q(r.batch, r.query_index, r.head, d)));
  const position at = c.query_positions.at(r.batch, r.query_index);
  transform_query(pack, query.data(), c.dim, at, r.head);
  const C factor = C(scale * pack_query_scale(pack, r.head, at, visible));
  const std::vector<C> raw = query;
  for (C& x : query) x = C(x * factor);

  const C lowest = C(-std::numeric_limits<double>::infinity());
  const auto read_key = [&](std::int64_t j, C* to) {
    for (std::int64_t d = 0; d < c.dim; ++d) to[d] = C(widen(k(r.batch, j, r.kv_head, d)));
    if (options.keys == key_state::unrotated) transform_key(pack, to, c.dim, c.key_positions.at(r.batch, j), r.kv_head);
  };
  reference_content<C, Keys, Pack> content(pack, r, keys, c, query, raw, factor, read_key);
  std::vector<C> logit(static_cast<std::size_t>(c.keys), lowest);
  std::vector<C> key(static_cast<std::size_t>(c.dim));
  for (std::int64_t j = 0; j < c.keys; ++j) {
    const auto sj = static_cast<std::size_t>(j);
    if (!seen[sj]) continue;
    read_key(j, key.data());
    logit[sj] = C(0);
    for (std::int64_t d = 0; d < c.dim; ++d)
      logit[sj] = C(logit[sj] + query[static_cast<std::size_t>(d)] * key[static_cast<std::size_t>(d)]);
  }
  C highest = lowest;
  for_logit_stages<C>(
      pack, r, keys, content.lines(),
      [&](const auto& op) {
        highest = lowest;
        for (std::int64_t j = 0; j < c.keys; ++j) {
          C& s = logit[static_cast<std::size_t>(j)];
          s = seen[static_cast<std::size_t>(j)] ? C(op(s, j)) : lowest;
          if (highest == highest && (s != s || s > highest)) highest = s;
        }
      },
      [&](const auto& part, auto) {
        const auto first = std::find(seen.begin(), seen.end(), true) - seen.begin();
        const auto last = std::find(seen.rbegin(), seen.rend(), true) - seen.rbegin();
        if (first == c.keys) return;
        std::vector<C> scratch(static_cast<std::size_t>(part.scratch_size(1, c.keys, c.dim)));
        const logit_row<C> line{r, c.dim, raw.data(), factor, {first, c.keys - last}, logit.data()};
        part.template transform_logits<C>(line, keys, scratch.data());
      });
  C total = C(0);
  for_parts(pack, [&]<class P>(const P& part) {
    if constexpr (has_sink<P>) {
      const C start = C(part.sink(r.head));
      if (start > highest || is_lowest(highest)) highest = start;
      total = C(exp(C(start - highest)));
    }
  });
  const bool empty = is_lowest(highest);
  std::vector<C> sum(static_cast<std::size_t>(c.value_dim), C(0));
  for (std::int64_t j = 0; j < c.keys && !empty; ++j) {
    const auto sj = static_cast<std::size_t>(j);
    if (!seen[sj] || is_lowest(logit[sj])) continue;
    const C p = C(exp(C(logit[sj] - highest)));
    total = C(total + p);
    for (std::int64_t d = 0; d < c.value_dim; ++d)
      sum[static_cast<std::size_t>(d)] =
          C(sum[static_cast<std::size_t>(d)] + p * C(widen(v(r.batch, j, r.kv_head, d))));
    content.add_weight(j, p);
  }
  if (!empty) content.add_values(sum);
  for (std::int64_t d = 0; d < c.value_dim; ++d)
    out(r.batch, r.query_index, r.head, d) = narrow<O>(empty ? C(0) : C(sum[static_cast<std::size_t>(d)] / total));
  if (options.lse.data()) options.lse(r.batch, r.query_index, r.head, 0) = empty ? lowest : C(highest + log(total));
  for (std::int64_t j = 0; j < c.keys; ++j) {
    const auto sj = static_cast<std::size_t>(j);
    if (options.logits.data()) options.logits(r.batch, r.query_index, r.head, j) = logit[sj];
    if (options.weights.data()) {
      const bool none = empty || !seen[sj] || is_lowest(logit[sj]);
      options.weights(r.batch, r.query_index, r.head, j) = none ? C(0) : C(exp(C(logit[sj] - highest)) / total);
    }
  }
}

}  // namespace detail

/// q [batch, query, head, dim], k and v [batch, key, kv_head, dim], out [batch, query, head, value dim]; query heads
/// share a key head in consecutive groups. @throws std::invalid_argument for shapes that do not fit.
template <class Q, class K, class V, class O, class Policy, class C = detail::reference_compute_t<Q, K, V, O>>
void attention_reference(view<Q> q, view<K> k, view<V> v, view<O> out, const Policy& policy,
                         const std::type_identity_t<reference_options<C>>& options = {}) {
  const char* function = "attention_reference";
  const call c = detail::checked_call(function, q, k, v, out, options.query_positions, options.key_positions);
  detail::check_policy(function, policy, c);
  detail::check_lse(function, options.lse, c);
  detail::check_written(function, "lse", options.lse, q, k, v, out);
  detail::check_written(function, "logits", options.logits, q, k, v, out);
  detail::check_written(function, "weights", options.weights, q, k, v, out);
  detail::check_scale(function, options.scale);
  const shape scores{c.batch, c.queries, c.heads, c.keys};
  detail::require(!options.logits.data() || options.logits.extents() == scores, function, "logits",
                  "must have the shape [batch, query, head, keys]", options.logits.dim());
  detail::require(!options.weights.data() || options.weights.extents() == scores, function, "weights",
                  "must have the shape [batch, query, head, keys]", options.weights.dim());
  std::vector<std::byte> memory(detail::bound_bytes(policy, c) + 64);
  auto* aligned = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
  const auto pack = detail::bind_policy<void>(policy, aligned, c);
  const double scale = detail::scale_of(options.scale, c.dim);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(c.keys + lane_slack));
  for (std::int64_t b = 0; b < c.batch; ++b) {
    const bool contiguous = c.key_positions.contiguous();
    if (!contiguous)
      for (std::int64_t j = 0; j < c.keys; ++j) ids[static_cast<std::size_t>(j)] = c.key_positions(b, j);
    for (std::int64_t i = 0; i < c.queries; ++i)
      for (std::int64_t h = 0; h < c.heads; ++h) {
        const row r = detail::row_of(c, b, h, i);
        if (contiguous) {
          detail::reference_one_row<Q, K, V, O>(q, k, v, out, c, r, contiguous_keys{c.key_positions.first(b)}, pack,
                                                scale, options);
        } else {
          detail::reference_one_row<Q, K, V, O>(q, k, v, out, c, r, listed_keys{ids.data()}, pack, scale, options);
        }
      }
  }
}

}  // namespace posenc
