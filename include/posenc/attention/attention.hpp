// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Fused attention under any policy:
///   out(i) = sum_j softmax_j(op(scale * q(i).k(j))) v(j)
/// Shapes   q [batch, query, head, dim], k and v [batch, key, kv_head, ...], out as q with v's dim. heads is a multiple
///          of kv_heads; consecutive query heads share a key head. k and v are views of any strides, or paged views of
///          a cache (paged_view.hpp), whose keys stand in the order of their positions wherever they lie; float,
///          double, half or bfloat16 storage, each argument its own; arithmetic in float, in double where one of them
///          is double.
/// Rules    masked keys and values never contribute, not even NaN or Inf; a row without a visible key gives zeros and a
///          log-sum-exp of -inf (of its sink, if the policy has one). NaN stays in its row. q is rotated if the policy
///          holds a rotation, k only with `.keys = key_state::unrotated`.
/// Error    float: within 2e-6 of max|out| of a double reference for |logits| up to 5, 2e-5 up to 50.
/// Cost     4 * dim flops per visible pair; tiles outside every row's interval are never read, keys and values are
///          packed once per 192 rows of (query, head of the group). Fewer than 12 rows read them as they lie, at the
///          speed of memory; keys beyond 1024 are then items of their own. Memory: the workspace, independent of
///          queries * keys. Results are bitwise the same for every executor.
/// Refuses  at compile time a policy with a part that needs whole rows of logits: two_pass.hpp is for it.
/// Throws   std::invalid_argument for shapes, positions or a policy that do not fit, before anything is written; the
///          position 2^63 - 1 is refused, because masks name the position above the last one they let through.
/// Example  examples/attention_example.cpp

#include <posenc/attention/fused.hpp>
#include <posenc/attention/listed_rows.hpp>
#include <posenc/core/paged_view.hpp>
#include <posenc/core/parallel.hpp>

#include <memory>
#include <new>

namespace posenc {

namespace detail {

/// Bytes of one worker: its block and what content terms keep beside it. Sizes are asked of the parts themselves, so a
/// part with content terms binds nothing.
template <class C, class Arch, bool Whole, class Policy>
std::size_t worker_bytes(const Policy& policy, const call& c) {
  const scratch_layout<C, Arch> layout(c, Whole);
  const auto parts = as_references(policy);
  using work = content_work<simd::batch<C, Arch>, contiguous_keys, std::remove_const_t<decltype(parts)>>;
  return layout.bytes + work::bytes(parts, layout.rows, layout.band, layout.tile, c.dim, c.value_dim);
}

/// Into how many items the keys of a block are split: one, but where few rows face many keys. It follows from shapes
/// and policy, so results do not depend on the executor. Sums over values that depend on the position stay whole.
template <class C, class Arch, bool Whole, class Policy>
std::int64_t split_count(const Policy& policy, const call& c) {
  const auto parts = as_references(policy);
  if (Whole || scratch_layout<C, Arch>(c, Whole).packed) return 1;
  if (any_values<simd::batch<C, Arch>, contiguous_keys, std::remove_const_t<decltype(parts)>>) return 1;
  return std::max<std::int64_t>(1, (c.keys + split_keys - 1) / split_keys);
}

/// Elements that the parts of split rows take until they are merged.
template <class C, class Arch>
std::int64_t split_elements(const call& c, std::int64_t splits) {
  if (splits == 1) return 0;
  return c.batch * c.heads * c.queries * splits * (scratch_layout<C, Arch>(c).value_step + 2);
}

template <class C, class Arch, bool Whole, class Policy>
std::size_t workspace_bytes(const Policy& policy, const call& c, std::int64_t workers) {
  const auto rounded = [](std::size_t n) { return (n + 63) / 64 * 64; };
  const std::size_t scratch = worker_bytes<C, Arch, Whole>(policy, c);
  const std::int64_t saved = split_elements<C, Arch>(c, split_count<C, Arch, Whole>(policy, c));
  return 64 + rounded(listed_bytes(c)) + bound_bytes(policy, c) + rounded(static_cast<std::size_t>(saved) * sizeof(C)) +
         static_cast<std::size_t>(workers) * scratch;
}

/// Every row gets its empty value: no key to see.
template <class C, class O, class Pack>
void write_without_keys(const view<O>& out, const attention_options<C>& options, const Pack& pack) {
  for (std::int64_t b = 0; b < out.batch(); ++b)
    for (std::int64_t t = 0; t < out.tokens(); ++t)
      for (std::int64_t h = 0; h < out.heads(); ++h) {
        for (std::int64_t d = 0; d < out.dim(); ++d) out(b, t, h, d) = narrow<O>(0.0);
        if (!options.lse.data()) continue;
        options.lse(b, t, h, 0) = -std::numeric_limits<C>::infinity();
        for_parts(pack, [&]<class P>(const P& part) {
          if constexpr (has_sink<P>)
            if (options.count_sink) options.lse(b, t, h, 0) = static_cast<C>(part.sink(h));
        });
      }
}

/// The memory of a call after its lines and ids: the parts of split rows, then each worker's own.
template <class C>
struct call_memory {
  C* saved;
  std::byte* workers;
  std::size_t worker_size;
  std::int64_t splits;
};

template <class Arch, class C, class Keys, bool Whole, class Inputs, class Executor>
void run_blocks(const Inputs& in, const listed_row* listed, const call_memory<C>& memory, Executor& executor) {
  using Pack = typename Inputs::pack_type;
  static_assert(all_speak<simd::batch<C, Arch>, Keys, Pack>,
                "posenc: a part of the policy has no hook that attention knows; hooks are const members");
  static_assert(Whole || !any_whole_row<simd::batch<C, Arch>, Keys, Pack>,
                "posenc::attention: a part of the policy needs whole rows of logits; call attention_two_pass");
  const call& c = in.c;
  const scratch_layout<C, Arch> layout(c, Whole);
  const std::int64_t rows = c.queries * (c.heads / c.kv_heads);
  const std::int64_t blocks = (rows + layout.rows - 1) / layout.rows;
  const std::int64_t splits = memory.splits;
  const std::int64_t row_step = layout.value_step + 2;
  // Saved rows lie [batch, kv head][split][row].
  const auto saved = [&](std::int64_t group, std::int64_t split, std::int64_t r) {
    return memory.saved + ((group * splits + split) * rows + r) * row_step;
  };
  executor.parallel_for(c.batch * c.kv_heads * blocks * splits, [&](std::int64_t item, std::int64_t worker) {
    const std::int64_t split = item % splits;
    const std::int64_t block = item / splits % blocks;
    const std::int64_t group = item / splits / blocks;
    const std::int64_t head = group % c.kv_heads;
    const std::int64_t b = group / c.kv_heads;
    fused_block<Arch, C, Inputs, Keys, Whole> work(
        in, memory.workers + static_cast<std::size_t>(worker) * memory.worker_size);
    const std::int64_t first = block * layout.rows;
    const std::int64_t n = std::min(layout.rows, rows - first);
    const interval within{split * split_keys, splits == 1 ? c.keys : std::min(c.keys, (split + 1) * split_keys)};
    const bool with_sink = in.options.count_sink && split == 0;
    if constexpr (Keys::contiguous) {
      work.run(b, head, first, n, contiguous_keys{c.key_positions.first(b)}, true, within, with_sink);
    } else {
      work.run(b, head, first, n, listed[b].keys, listed[b].sorted, within, with_sink);
    }
    if (splits == 1) {
      work.finish();
    } else {
      work.save(saved(group, split, first));
    }
  });
  if (splits == 1) return;
  executor.parallel_for(c.batch * c.kv_heads, [&](std::int64_t group, std::int64_t) {
    const std::int64_t heads = c.heads / c.kv_heads;
    for (std::int64_t r = 0; r < rows; ++r) {
      const row at = row_of(c, group / c.kv_heads, group % c.kv_heads * heads + r % heads, r / heads);
      merge_splits<Arch>(in, at, saved(group, 0, r), splits, rows * row_step, layout.value_step);
    }
  });
}

/// The call behind `attention` and `attention_two_pass`.
template <class Arch, bool Whole, class Q, class K, class V, class O, class Policy, class C, class Executor>
void attend(const char* function, const view<Q>& q, const K& k, const V& v, const view<O>& out, const Policy& policy,
            const attention_options<C>& options, Executor& executor) {
  static_assert(posenc::executor<std::remove_cvref_t<Executor>>,
                "posenc::attention: an executor has concurrency() and parallel_for(n, f(item, worker))");
  const call c = checked_call(function, q, k, v, out, options.query_positions, options.key_positions);
  check_policy(function, policy, c);
  check_lse(function, options.lse, c);
  check_written(function, "lse", options.lse, q, k, v, out);
  check_visible_keys(function, options.visible_keys, out, options.lse, c);
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

  std::byte* ids = memory;
  memory += (listed_bytes(c) + 63) / 64 * 64;
  const auto pack = bind_policy<Arch>(policy, memory, c);
  memory += bound_bytes(policy, c);
  if (c.keys == 0) return write_without_keys(out, options, pack);
  const std::int64_t splits = split_count<C, Arch, Whole>(policy, c);
  const auto saved = static_cast<std::size_t>(split_elements<C, Arch>(c, splits)) * sizeof(C);
  const call_memory<C> rest{reinterpret_cast<C*>(memory), memory + (saved + 63) / 64 * 64,
                            worker_bytes<C, Arch, Whole>(policy, c), splits};
  const attention_inputs<Q, K, V, O, C, std::remove_const_t<decltype(pack)>> in{
      q, k, v, out, options, c, pack, scale_of(options.scale, c.dim)};
  if (c.key_positions.contiguous()) {
    run_blocks<Arch, C, contiguous_keys, Whole>(in, nullptr, rest, executor);
  } else {
    run_blocks<Arch, C, listed_keys, Whole>(in, list_rows(c, ids), rest, executor);
  }
}

}  // namespace detail

/// Bytes of workspace that the same call of `attention` takes on an executor of `workers` workers.
template <class Q, token_rows K, token_rows V, class O, class Policy, class Arch = simd::default_arch>
[[nodiscard]] std::size_t attention_workspace(
    view<Q> q, K k, V v, view<O> out, const Policy& policy,
    const std::type_identity_t<attention_options<detail::attention_compute_t<Q, K, V, O>>>& options = {},
    std::int64_t workers = 1) {
  const call c =
      detail::checked_call("attention_workspace", q, k, v, out, options.query_positions, options.key_positions);
  detail::require(workers >= 1, "attention_workspace", "workers", "must be at least 1", workers);
  return detail::workspace_bytes<detail::attention_compute_t<Q, K, V, O>, Arch, false>(policy, c, workers);
}

/// See the file comment.
template <class Q, token_rows K, token_rows V, class O, class Policy, class Executor = serial_executor,
          class Arch = simd::default_arch>
  requires simd_storage<Q> && simd_storage<typename K::value_type> && simd_storage<typename V::value_type> &&
      simd_storage<O>
void attention(view<Q> q, K k, V v, view<O> out, const Policy& policy,
               const std::type_identity_t<attention_options<detail::attention_compute_t<Q, K, V, O>>>& options = {},
               Executor&& executor = {}) {
  detail::attend<Arch, false>("attention", q, k, v, out, policy, options, executor);
}

}  // namespace posenc
