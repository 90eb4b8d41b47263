// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The two products of attention for a few query rows, as a decode step has them: keys and values are read as they lie,
/// once, two keys and four values at a time; of any storage, widened in registers. Rows that come next are asked for in
/// the order of their addresses: without that the several streams run at half the speed of memory.
/// Cost     bound by reading keys and values up to four query rows; 2 rows * keys * dim flops.

#include <posenc/kernels/tile.hpp>

#include <algorithm>
#include <cstdint>

namespace posenc::kernels {

/// n rows of storage S that lie `step` apart, and the row that is read after them, null where there is none.
template <class S>
struct row_run {
  const S* first;
  std::int64_t step;
  std::int64_t n;
  const S* next = nullptr;
};

namespace detail {

/// Asks for `Count` rows of a run, or of what comes after it, that lie `prefetched` bytes of rows behind row j.
template <int Count, class S>
POSENC_ALWAYS_INLINE void prefetch_rows(const row_run<S>& rows, std::int64_t j, std::int64_t dim) noexcept {
#if defined(__GNUC__)
  constexpr std::int64_t prefetched = 8192;
  constexpr std::int64_t line = 64 / static_cast<std::int64_t>(sizeof(S));
  const std::int64_t bytes = dim * static_cast<std::int64_t>(sizeof(S));
  // What comes after the run is known for as many rows as the run has.
  const std::int64_t ahead = std::max<std::int64_t>(prefetched / std::max<std::int64_t>(bytes, 64), Count);
  const std::int64_t at = j + std::min(ahead, rows.n);
  for (std::int64_t i = at; i < at + Count; ++i) {
    if (i >= rows.n && !rows.next) return;
    const S* row = i < rows.n ? rows.first + i * rows.step : rows.next + (i - rows.n) * rows.step;
    for (std::int64_t d = 0; d < dim; d += line) __builtin_prefetch(row + d);
  }
#else
  static_cast<void>(rows), static_cast<void>(j), static_cast<void>(dim);
#endif
}

/// Sums of query rows with two keys, nested row in row as in `register_rows`.
template <int Rows, class B>
struct key_pair_sums {
  B first;
  B second;
  key_pair_sums<Rows - 1, B> below;

  POSENC_ALWAYS_INLINE void clear() noexcept {
    first = second = B(0);
    below.clear();
  }
  template <class Access, class C>
  POSENC_ALWAYS_INLINE void add(const Access& at, const C* query, std::int64_t step, const B& x, const B& y) noexcept {
    const B q = at.load(query);
    first = xsimd::fma(q, x, first);
    second = xsimd::fma(q, y, second);
    below.add(at, query + step, step, x, y);
  }
  POSENC_ALWAYS_INLINE void add(const key_pair_sums& other) noexcept {
    first += other.first;
    second += other.second;
    below.add(other.below);
  }
  POSENC_ALWAYS_INLINE void list(B* out) const noexcept {
    out[0] = first;
    out[1] = second;
    below.list(out + 2);
  }
};
template <class B>
struct key_pair_sums<0, B> {
  POSENC_ALWAYS_INLINE void clear() noexcept {}
  template <class Access, class C>
  POSENC_ALWAYS_INLINE void add(const Access&, const C*, std::int64_t, const B&, const B&) noexcept {}
  POSENC_ALWAYS_INLINE void add(const key_pair_sums&) noexcept {}
  POSENC_ALWAYS_INLINE void list(B*) const noexcept {}
};

/// The weights of four values in each row.
template <int Rows, class B>
struct value_weights {
  B first, second, third, fourth;
  value_weights<Rows - 1, B> below;

  template <class C>
  POSENC_ALWAYS_INLINE void read(const C* weight, std::int64_t step, std::int64_t values) noexcept {
    first = B(weight[0]);
    second = B(values > 1 ? weight[1] : C(0));
    third = B(values > 2 ? weight[2] : C(0));
    fourth = B(values > 3 ? weight[3] : C(0));
    below.read(weight + step, step, values);
  }
  template <class Access, class C>
  POSENC_ALWAYS_INLINE void add(const Access& at, C* out, std::int64_t step, const B& x, const B& y, const B& z,
                                const B& u) const noexcept {
    const B sum = xsimd::fma(second, y, xsimd::fma(first, x, at.load(out)));
    at.store(out, xsimd::fma(fourth, u, xsimd::fma(third, z, sum)));
    below.add(at, out + step, step, x, y, z, u);
  }
};
template <class B>
struct value_weights<0, B> {
  template <class C>
  POSENC_ALWAYS_INLINE void read(const C*, std::int64_t, std::int64_t) noexcept {}
  template <class Access, class C>
  POSENC_ALWAYS_INLINE void add(const Access&, C*, std::int64_t, const B&, const B&, const B&,
                                const B&) const noexcept {}
};

/// The lanes of each sum added up, in groups of a batch where they fill some.
template <int Rows, class B, class C>
POSENC_ALWAYS_INLINE void store_sums(const key_pair_sums<Rows, B>& sums, C* score, std::int64_t step,
                                     std::int64_t keys) noexcept {
  constexpr int w = static_cast<int>(B::size);
  B listed[2 * Rows];
  sums.list(listed);
  C total[2 * Rows];
  if constexpr (2 * Rows % w == 0) {
    for (int i = 0; i < 2 * Rows; i += w) xsimd::haddp(listed + i).store_unaligned(total + i);
  } else {
    for (int i = 0; i < 2 * Rows; ++i) total[i] = simd::sum(listed[i]);
  }
  for (int r = 0; r < Rows; ++r) {
    score[r * step] = total[2 * r];
    if (keys > 1) score[r * step + 1] = total[2 * r + 1];
  }
}

template <class Arch, int Rows, class C, simd_storage S>
void score_key_pairs(const C* query, std::int64_t query_step, const row_run<S>& keys, bool ask, std::int64_t dim,
                     C* score, std::int64_t score_step) noexcept {
  using B = simd::batch<C, Arch>;
  constexpr std::int64_t w = simd::width<C, Arch>;
  constexpr simd::whole<Arch, C> all;
  for (std::int64_t j = 0; j < keys.n; j += 2) {
    if (ask) prefetch_rows<2>(keys, j, dim);
    const S* x = keys.first + j * keys.step;
    const S* y = keys.n - j > 1 ? x + keys.step : x;
    key_pair_sums<Rows, B> even;
    even.clear();
    std::int64_t d = 0;
    if constexpr (Rows <= 2) {  // one sum per row and key would wait for its own additions
      key_pair_sums<Rows, B> odd;
      odd.clear();
      for (; d + 2 * w <= dim; d += 2 * w) {
        even.add(all, query + d, query_step, simd::held(all.load(x + d)), simd::held(all.load(y + d)));
        odd.add(all, query + d + w, query_step, simd::held(all.load(x + d + w)), simd::held(all.load(y + d + w)));
      }
      even.add(odd);
    }
    for (; d + w <= dim; d += w)
      even.add(all, query + d, query_step, simd::held(all.load(x + d)), simd::held(all.load(y + d)));
    if (d < dim) {
      const simd::part<Arch, C> rest{dim - d};
      even.add(rest, query + d, query_step, rest.load(x + d), rest.load(y + d));
    }
    store_sums(even, score + j, score_step, keys.n - j);
  }
}

/// Four values into one or two rows.
template <class Arch, int Rows, class C, simd_storage S>
POSENC_ALWAYS_INLINE void add_four_values(const C* weight, std::int64_t weight_step, const S* values,
                                          std::int64_t value_step, std::int64_t n, std::int64_t dim, C* out,
                                          std::int64_t out_step) noexcept {
  value_weights<Rows, simd::batch<C, Arch>> weights;
  weights.read(weight, weight_step, n);
  // Where there are fewer, the first stands for those that are missing, its weight 0.
  const S* y = n > 1 ? values + value_step : values;
  const S* z = n > 2 ? values + 2 * value_step : values;
  const S* u = n > 3 ? values + 3 * value_step : values;
  simd::for_lanes<Arch, C>(dim, [&](std::int64_t d, auto at) POSENC_LAMBDA_INLINE {
    weights.add(at, out + d, out_step, simd::held(at.load(values + d)), simd::held(at.load(y + d)),
                simd::held(at.load(z + d)), simd::held(at.load(u + d)));
  });
}

}  // namespace detail

/// score[r * score_step + j] = query row r . key j, for `rows` query rows and the keys of a run.
template <class Arch, class C, simd_storage S>
void score_keys(std::int64_t rows, const C* query, std::int64_t query_step, const row_run<S>& keys, std::int64_t dim,
                C* score, std::int64_t score_step) noexcept {
  const auto some = [&]<int Rows>(std::integral_constant<int, Rows>, std::int64_t r) {
    detail::score_key_pairs<Arch, Rows>(query + r * query_step, query_step, keys, r == 0, dim, score + r * score_step,
                                        score_step);
  };
  for (std::int64_t r = 0; r < rows; r += 4) switch (rows - r) {
      case 1: some(std::integral_constant<int, 1>{}, r); break;
      case 2: some(std::integral_constant<int, 2>{}, r); break;
      case 3: some(std::integral_constant<int, 3>{}, r); break;
      default: some(std::integral_constant<int, 4>{}, r);
    }
}

/// out[r * out_step + d] += sum over the values j of a run of weight[r * weight_step + j] * value j[d].
template <class Arch, class C, simd_storage S>
void add_values(std::int64_t rows, const C* weight, std::int64_t weight_step, const row_run<S>& values,
                std::int64_t dim, C* out, std::int64_t out_step) noexcept {
  for (std::int64_t j = 0; j < values.n; j += 4) {
    detail::prefetch_rows<4>(values, j, dim);
    const S* some = values.first + j * values.step;
    std::int64_t r = 0;
    for (; r + 2 <= rows; r += 2)
      detail::add_four_values<Arch, 2>(weight + r * weight_step + j, weight_step, some, values.step, values.n - j, dim,
                                       out + r * out_step, out_step);
    if (r < rows)
      detail::add_four_values<Arch, 1>(weight + r * weight_step + j, weight_step, some, values.step, values.n - j, dim,
                                       out + r * out_step, out_step);
  }
}

}  // namespace posenc::kernels
