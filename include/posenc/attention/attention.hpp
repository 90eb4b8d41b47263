// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Fused attention under any policy:
///   out(i) = sum_j softmax_j(op(scale * q(i).k(j))) v(j)
/// Shapes   q [batch, query, head, dim], k and v [batch, key, kv_head, ...], out as q with v's dim. heads is a multiple
///          of kv_heads; consecutive query heads share a key head. Any strides; float, double, half or bfloat16
///          storage, each argument its own; arithmetic in float, in double where one of them is double.
/// Rules    masked keys and values never contribute, not even NaN or Inf; a row without a visible key gives zeros and a
///          log-sum-exp of -inf (of its sink, if the policy has one). NaN stays in its row. q is rotated if the policy
///          holds a rotation, k only with `.keys = key_state::unrotated`.
/// Error    float: within 2e-6 of max|out| of a double reference for |logits| up to 5, 2e-5 up to 50.
/// Cost     4 * dim flops per visible pair; tiles outside every row's interval are never read. Memory: the workspace,
///          independent of queries * keys. Results are bitwise the same for every executor.
/// Refuses  at compile time a policy with a part that needs whole rows of logits: two_pass.hpp is for it.
/// Throws   std::invalid_argument for shapes, positions or a policy that do not fit, before anything is written; the
///          position 2^63 - 1 is refused, because masks name the position above the last one they let through.
/// Example  examples/attention_example.cpp

#include <posenc/attention/fused.hpp>
#include <posenc/core/parallel.hpp>

#include <memory>
#include <new>

namespace posenc {

namespace detail {

/// Bytes of the id lists: one per batch row that has its own.
inline std::size_t id_bytes(const call& c) noexcept {
  if (c.key_positions.contiguous()) return 0;
  return static_cast<std::size_t>(c.batch * (c.keys + lane_slack)) * sizeof(std::int64_t);
}

/// Bytes of one worker: its block and what content terms keep beside it. Sizes are asked of the parts themselves, so a
/// part with content terms binds nothing.
template <class C, class Arch, bool Whole, class Policy>
std::size_t worker_bytes(const Policy& policy, const call& c) {
  const scratch_layout<C, Arch> layout(c, Whole);
  const auto parts = as_references(policy);
  using work = content_work<simd::batch<C, Arch>, contiguous_keys, std::remove_const_t<decltype(parts)>>;
  return layout.bytes + work::bytes(parts, layout.rows, layout.tile, c.dim, c.value_dim);
}

template <class C, class Arch, bool Whole, class Policy>
std::size_t workspace_bytes(const Policy& policy, const call& c, std::int64_t workers) {
  const auto rounded = [](std::size_t n) { return (n + 63) / 64 * 64; };
  const std::size_t scratch = worker_bytes<C, Arch, Whole>(policy, c);
  return 64 + rounded(id_bytes(c)) + bound_bytes(policy, c) + static_cast<std::size_t>(workers) * scratch;
}

/// Every row gets its empty value: no key to see.
template <class C, class O, class Pack>
void write_without_keys(const view<O>& out, const view<C>& lse, const Pack& pack) {
  for (std::int64_t b = 0; b < out.batch(); ++b)
    for (std::int64_t t = 0; t < out.tokens(); ++t)
      for (std::int64_t h = 0; h < out.heads(); ++h) {
        for (std::int64_t d = 0; d < out.dim(); ++d) out(b, t, h, d) = narrow<O>(0.0);
        if (!lse.data()) continue;
        lse(b, t, h, 0) = -std::numeric_limits<C>::infinity();
        for_parts(pack, [&]<class P>(const P& part) {
          if constexpr (has_sink<P>) lse(b, t, h, 0) = static_cast<C>(part.sink(h));
        });
      }
}

template <class Arch, class C, class Keys, bool Whole, class Q, class K, class V, class O, class Pack, class Executor>
void run_blocks(const view<Q>& q, const view<K>& k, const view<V>& v, const view<O>& out,
                const attention_options<C>& options, const call& c, const Pack& pack, const std::int64_t* ids,
                std::byte* scratch, std::size_t worker_size, Executor& executor) {
  static_assert(all_speak<simd::batch<C, Arch>, Keys, Pack>,
                "posenc: a part of the policy has no hook that attention knows; hooks are const members");
  static_assert(Whole || !any_whole_row<simd::batch<C, Arch>, Keys, Pack>,
                "posenc::attention: a part of the policy needs whole rows of logits; call attention_two_pass");
  const scratch_layout<C, Arch> layout(c, Whole);
  const std::int64_t rows = c.queries * (c.heads / c.kv_heads);
  const std::int64_t blocks = (rows + layout.rows - 1) / layout.rows;
  const double scale = scale_of(options.scale, c.dim);
  executor.parallel_for(c.batch * c.kv_heads * blocks, [&](std::int64_t item, std::int64_t worker) {
    const std::int64_t block = item % blocks;
    const std::int64_t head = item / blocks % c.kv_heads;
    const std::int64_t b = item / blocks / c.kv_heads;
    fused_block<Arch, C, Q, K, V, O, Keys, Pack, Whole> work(q, k, v, out, options.lse, c, pack, scale, options.keys,
                                                             scratch + static_cast<std::size_t>(worker) * worker_size);
    const std::int64_t first = block * layout.rows;
    const std::int64_t n = std::min(layout.rows, rows - first);
    if constexpr (Keys::contiguous) {
      work.run(b, head, first, n, contiguous_keys{c.key_positions.first(b)}, true);
    } else {
      const std::int64_t* mine = ids + b * (c.keys + lane_slack);
      work.run(b, head, first, n, listed_keys{mine}, std::is_sorted(mine, mine + c.keys));
    }
  });
}

/// The call behind `attention` and `attention_two_pass`.
template <class Arch, bool Whole, class Q, class K, class V, class O, class Policy, class C, class Executor>
void attend(const char* function, const view<Q>& q, const view<K>& k, const view<V>& v, const view<O>& out,
            const Policy& policy, const attention_options<C>& options, Executor& executor) {
  static_assert(posenc::executor<std::remove_cvref_t<Executor>>,
                "posenc::attention: an executor has concurrency() and parallel_for(n, f(item, worker))");
  const call c = checked_call(function, q, k, v, out, options.query_positions, options.key_positions);
  check_policy(function, policy, c);
  check_lse(function, options.lse, c);
  check_written(function, "lse", options.lse, q, k, v, out);
  check_scale(function, options.scale);
  const std::int64_t workers = executor.concurrency();
  require(workers >= 1, function, "executor.concurrency()", "must be at least 1", workers);
  if (c.batch == 0 || c.queries == 0 || c.heads == 0) return;

  const std::size_t needed = workspace_bytes<C, Arch, Whole>(policy, c, workers);
  std::unique_ptr<std::byte[]> own;
  std::byte* memory = options.workspace.data();
  if (options.workspace.empty()) {
    own = std::make_unique_for_overwrite<std::byte[]>(needed);
    memory = own.get();
  } else {
    if (options.workspace.size() < needed)  // the text of the rule is built only where it is needed
      invalid(function, "workspace",
              "must hold " + std::string(function) + "_workspace(...) bytes, " + std::to_string(needed),
              options.workspace.size());
  }
  memory = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory) + 63) / 64 * 64);

  auto* ids = reinterpret_cast<std::int64_t*>(memory);
  memory += (id_bytes(c) + 63) / 64 * 64;
  const auto pack = bind_policy<Arch>(policy, memory, c);
  memory += bound_bytes(policy, c);
  if (c.keys == 0) return write_without_keys(out, options.lse, pack);
  const std::size_t worker = worker_bytes<C, Arch, Whole>(policy, c);
  if (c.key_positions.contiguous()) {
    run_blocks<Arch, C, contiguous_keys, Whole>(q, k, v, out, options, c, pack, nullptr, memory, worker, executor);
  } else {
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t j = 0; j < c.keys + lane_slack; ++j)
        ids[b * (c.keys + lane_slack) + j] = c.key_positions(b, std::min(j, c.keys - 1));
    run_blocks<Arch, C, listed_keys, Whole>(q, k, v, out, options, c, pack, ids, memory, worker, executor);
  }
}

}  // namespace detail

/// Bytes of workspace that the same call of `attention` takes on an executor of `workers` workers.
template <class Q, class K, class V, class O, class Policy, class Arch = simd::default_arch>
[[nodiscard]] std::size_t attention_workspace(
    view<Q> q, view<K> k, view<V> v, view<O> out, const Policy& policy,
    const std::type_identity_t<attention_options<detail::attention_compute_t<Q, K, V, O>>>& options = {},
    std::int64_t workers = 1) {
  const call c =
      detail::checked_call("attention_workspace", q, k, v, out, options.query_positions, options.key_positions);
  detail::require(workers >= 1, "attention_workspace", "workers", "must be at least 1", workers);
  return detail::workspace_bytes<detail::attention_compute_t<Q, K, V, O>, Arch, false>(policy, c, workers);
}

/// See the file comment.
template <class Q, class K, class V, class O, class Policy, class Executor = serial_executor,
          class Arch = simd::default_arch>
  requires simd_storage<Q> && simd_storage<K> && simd_storage<V> && simd_storage<O>
void attention(view<Q> q, view<K> k, view<V> v, view<O> out, const Policy& policy,
               const std::type_identity_t<attention_options<detail::attention_compute_t<Q, K, V, O>>>& options = {},
               Executor&& executor = {}) {
  detail::attend<Arch, false>("attention", q, k, v, out, policy, options, executor);
}

}  // namespace posenc
