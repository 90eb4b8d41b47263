// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A [batch, token, head, dim] window over tokens that lie in pages of one pool:
///   at(b, t)     = first(b) + t
///   row(b, t, h) = data + entries[b * pages_per_row + at / page_tokens] * steps.page
///                       + (at % page_tokens) * steps.token + h * steps.head
///   posenc::paged_view k{pool,
///                        {.tokens = 40, .heads = 8, .dim = 128},
///                        {.page = 16 * 1024, .token = 1024, .head = 128},
///                        {.entries = table, .pages_per_row = 3, .page_tokens = 16, .pages = 64}};
/// A ring of W slots whose oldest token lies in slot s is the same with W tokens a page, a table that names its page
/// twice and first = s. It owns nothing, is passed by value, and its table and firsts must outlive it.
/// Domain  any positive page size; powers of two are found by shift and mask. Strides count elements, of any sign.
///         The entries that `tokens` need are checked when the view is made; the others may hold anything.
/// Cost    one step per page when it is made; row() reads one entry.
/// Throws  std::invalid_argument for what view refuses, a table that is too short or of another size, or a page outside
///         the pool.

#include <posenc/core/view.hpp>

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

namespace posenc {

/// Distances in elements between pages of the pool, and inside a page.
struct page_strides {
  std::int64_t page = 0;
  std::int64_t token = 0;
  std::int64_t head = 0;
  std::int64_t dim = 1;

  friend constexpr bool operator==(const page_strides&, const page_strides&) = default;
};

/// Which pages hold the tokens of each batch row.
struct page_table {
  /// [batch][pages_per_row]: pages of the pool, the caller's memory.
  std::span<const std::int32_t> entries{};
  std::int64_t pages_per_row = 0;
  std::int64_t page_tokens = 0;
  /// Pages in the pool: entries lie in 0..pages-1.
  std::int64_t pages = 0;
  /// Tokens of the first page that come before token 0, in every batch row ...
  std::int64_t first = 0;
  /// ... or in each of them where this is not empty: the caller's memory.
  std::span<const std::int64_t> firsts{};
};

/// See the file comment.
template <class T>
class paged_view {
 public:
  using value_type = std::remove_cv_t<T>;

  constexpr paged_view() = default;
  constexpr paged_view(T* data, const shape& s, const page_strides& step, const page_table& table)
      : data_(data),
        entries_(table.entries.data()),
        firsts_(table.firsts.empty() ? nullptr : table.firsts.data()),
        shape_(s),
        strides_(step),
        pages_per_row_(table.pages_per_row),
        page_tokens_(table.page_tokens),
        first_(table.first) {
    const auto require = [](bool ok, const char* name, const char* rule, std::int64_t got) {
      detail::require(ok, "paged_view", name, rule, got);
    };
    require(s.batch >= 0, "batch", "must not be negative", s.batch);
    require(s.tokens >= 0, "tokens", "must not be negative", s.tokens);
    require(s.heads >= 0, "heads", "must not be negative", s.heads);
    require(s.dim >= 0, "dim", "must not be negative", s.dim);
    require(table.page_tokens >= 1, "page_tokens", "must be at least 1", table.page_tokens);
    require(table.pages_per_row >= 0, "pages_per_row", "must not be negative", table.pages_per_row);
    const auto size = static_cast<std::uint64_t>(page_tokens_);
    shift_ = std::has_single_bit(size) ? std::countr_zero(size) : -1;
    if (empty()) return;
    detail::require(data != nullptr, "paged_view", "data", "must not be null for a shape with elements",
                    "a null pointer");
    const auto listed = static_cast<std::int64_t>(table.entries.size());
    require(table.pages_per_row >= 1 && listed / table.pages_per_row == s.batch && listed % table.pages_per_row == 0,
            "entries", "must list pages_per_row pages for each batch row", listed);
    const auto offsets = static_cast<std::int64_t>(table.firsts.size());
    require(offsets == 0 || offsets == s.batch, "firsts", "must list one offset for each batch row", offsets);
    pages_ = {table.pages, -1};
    slots_ = {page_tokens_, -1};
    for (std::int64_t b = 0; b < s.batch; ++b) {
      const std::int64_t start = first(b);
      require(start >= 0, "first", "must not be negative", start);
      require(start <= std::numeric_limits<std::int64_t>::max() - s.tokens &&
                  page_of(start + s.tokens - 1) < pages_per_row_,
              "tokens", "must end inside the pages of a row", s.tokens);
      const std::int64_t begin = page_of(start);
      const std::int64_t end = page_of(start + s.tokens - 1);
      for (std::int64_t i = begin; i <= end; ++i) {
        const std::int64_t page = entries_[b * pages_per_row_ + i];
        require(page >= 0 && page < table.pages, "entries", "must name pages of the pool", page);
        pages_ = {std::min(pages_.lo, page), std::max(pages_.hi, page)};
      }
      slots_.lo = begin == end ? std::min(slots_.lo, slot_of(start)) : 0;
      slots_.hi = begin == end ? std::max(slots_.hi, slot_of(start + s.tokens - 1)) : page_tokens_ - 1;
    }
  }
  /// A view of const elements from a view of mutable ones.
  constexpr operator paged_view<const T>() const noexcept  // NOLINT: the conversion loses nothing
      requires(!std::is_const_v<T>) {
    paged_view<const T> v;
    v.data_ = data_;
    v.entries_ = entries_;
    v.firsts_ = firsts_;
    v.shape_ = shape_;
    v.strides_ = strides_;
    v.pages_per_row_ = pages_per_row_;
    v.page_tokens_ = page_tokens_;
    v.first_ = first_;
    v.shift_ = shift_;
    v.pages_ = {pages_.lo, pages_.hi};
    v.slots_ = {slots_.lo, slots_.hi};
    return v;
  }

  /// The first element of the pool.
  [[nodiscard]] constexpr T* data() const noexcept { return data_; }
  [[nodiscard]] constexpr const shape& extents() const noexcept { return shape_; }
  [[nodiscard]] constexpr const page_strides& steps() const noexcept { return strides_; }
  [[nodiscard]] constexpr std::int64_t batch() const noexcept { return shape_.batch; }
  [[nodiscard]] constexpr std::int64_t tokens() const noexcept { return shape_.tokens; }
  [[nodiscard]] constexpr std::int64_t heads() const noexcept { return shape_.heads; }
  [[nodiscard]] constexpr std::int64_t dim() const noexcept { return shape_.dim; }
  [[nodiscard]] constexpr bool empty() const noexcept {
    return shape_.batch == 0 || shape_.tokens == 0 || shape_.heads == 0 || shape_.dim == 0;
  }
  /// Whether rows are contiguous, so that SIMD kernels may run.
  [[nodiscard]] constexpr bool unit_dim_stride() const noexcept { return strides_.dim == 1 || shape_.dim <= 1; }
  [[nodiscard]] constexpr std::int64_t page_tokens() const noexcept { return page_tokens_; }
  /// Tokens that come before token 0 in the pages of batch row b.
  [[nodiscard]] constexpr std::int64_t first(std::int64_t b) const noexcept { return firsts_ ? firsts_[b] : first_; }

  /// The first element of one row.
  [[nodiscard]] constexpr T* row(std::int64_t b, std::int64_t t, std::int64_t h) const noexcept {
    const std::int64_t at = first(b) + t;
    const std::int64_t page = entries_[b * pages_per_row_ + page_of(at)];
    return data_ + page * strides_.page + slot_of(at) * strides_.token + h * strides_.head;
  }
  [[nodiscard]] constexpr T& operator()(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) const noexcept {
    return row(b, t, h)[d * strides_.dim];
  }
  /// How many tokens from t on have rows steps().token apart: those that are left of its page.
  [[nodiscard]] constexpr std::int64_t run(std::int64_t b, std::int64_t t) const noexcept {
    return std::min(shape_.tokens - t, page_tokens_ - slot_of(first(b) + t));
  }

  /// The least and greatest page that is used, and slot inside a page.
  struct extent {
    std::int64_t lo = 0;
    std::int64_t hi = 0;
  };
  [[nodiscard]] constexpr extent used_pages() const noexcept { return pages_; }
  [[nodiscard]] constexpr extent used_slots() const noexcept { return slots_; }

 private:
  template <class>
  friend class paged_view;

  [[nodiscard]] constexpr std::int64_t page_of(std::int64_t at) const noexcept {
    return shift_ >= 0 ? at >> shift_ : at / page_tokens_;
  }
  [[nodiscard]] constexpr std::int64_t slot_of(std::int64_t at) const noexcept {
    return shift_ >= 0 ? at & (page_tokens_ - 1) : at % page_tokens_;
  }

  T* data_ = nullptr;
  const std::int32_t* entries_ = nullptr;
  const std::int64_t* firsts_ = nullptr;
  shape shape_{.batch = 0, .tokens = 0, .heads = 0, .dim = 0};
  page_strides strides_{};
  std::int64_t pages_per_row_ = 0;
  std::int64_t page_tokens_ = 1;
  std::int64_t first_ = 0;
  /// log2 of page_tokens, or -1.
  int shift_ = 0;
  extent pages_{};
  extent slots_{};
};

template <class T>
paged_view(T*, const shape&, const page_strides&, const page_table&) -> paged_view<T>;

/// What `view` and `paged_view` have in common: kernels that read tokens row by row, or run by run, take either.
template <class V>
concept token_rows = requires(const V& v, std::int64_t i) {
  typename V::value_type;
  { *v.row(i, i, i) } -> std::convertible_to<typename V::value_type>;
  { v.run(i, i) } -> std::same_as<std::int64_t>;
  { v.batch() } -> std::same_as<std::int64_t>;
  { v.tokens() } -> std::same_as<std::int64_t>;
  { v.heads() } -> std::same_as<std::int64_t>;
  { v.dim() } -> std::same_as<std::int64_t>;
  { v.extents() } -> std::convertible_to<shape>;
  { v.steps().token } -> std::convertible_to<std::int64_t>;
  { v.steps().head } -> std::convertible_to<std::int64_t>;
  { v.steps().dim } -> std::convertible_to<std::int64_t>;
  { v.empty() } -> std::same_as<bool>;
  { v.unit_dim_stride() } -> std::same_as<bool>;
};

namespace detail {

/// Lowest and one past the highest address of the elements from the first to the last page that is used.
template <class T>
[[nodiscard]] address_range addresses(const paged_view<T>& v) noexcept {
  std::int64_t lo = 0;
  std::int64_t hi = 0;
  const auto reach = [&](std::int64_t from, std::int64_t to, std::int64_t step) {
    lo += (step < 0 ? to : from) * step;
    hi += (step < 0 ? from : to) * step;
  };
  reach(v.used_pages().lo, v.used_pages().hi, v.steps().page);
  reach(v.used_slots().lo, v.used_slots().hi, v.steps().token);
  reach(0, v.heads() - 1, v.steps().head);
  reach(0, v.dim() - 1, v.steps().dim);
  const auto base = reinterpret_cast<std::uintptr_t>(v.data());
  const auto size = static_cast<std::int64_t>(sizeof(T));
  return {base + static_cast<std::uintptr_t>(lo * size), base + static_cast<std::uintptr_t>((hi + 1) * size)};
}

/// Whether no byte of the view lies between the first and the last byte of the pages that are used.
template <class A, class B>
[[nodiscard]] bool separate(const paged_view<A>& a, const view<B>& b) noexcept {
  const address_range ra = addresses(a);
  const address_range rb = addresses(b);
  return ra.hi <= rb.lo || rb.hi <= ra.lo;
}

/// Refuses an output that reaches into memory which is read until the end.
template <class A, class B>
void check_outside(const paged_view<A>& in, const view<B>& out, std::string_view function, std::string_view name) {
  if (in.empty() || out.empty()) return;
  require(separate(in, out), function, "out", "must not overlap what is read to the end", name);
}

}  // namespace detail
}  // namespace posenc
