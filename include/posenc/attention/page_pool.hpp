// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Pages of keys and values that the sequences of one layer share (paged_cache.hpp): each page holds `page_tokens`
/// tokens, [head, token, dim], and counts the sequences that hold it.
///   posenc::page_pool<float> pool({.pages = 1024, .page_tokens = 64, .kv_heads = 8, .dim = 128});
/// Cost     all memory is taken when the pool is made; pages are taken and given back under a lock.
/// Threads  sequences of one pool may be written to by different threads, one thread each.
/// Throws   std::invalid_argument for extents below 1.

#include <posenc/attention/cached_keys.hpp>

#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace posenc {

struct page_pool_options {
  std::int64_t pages = 0;
  std::int64_t page_tokens = 64;
  std::int64_t kv_heads = 1;
  std::int64_t dim = 0;
  /// That of values where it is not `dim`.
  std::optional<std::int64_t> value_dim{};
};

template <simd_storage S>
class paged_cache;

/// It neither moves nor copies, and outlives its sequences.
template <simd_storage S>
class page_pool {
 public:
  explicit page_pool(const page_pool_options& o)
      : options_(o), value_dim_(o.value_dim.value_or(o.dim)), holders_(), free_() {
    detail::require(o.pages >= 1 && o.pages <= std::numeric_limits<std::int32_t>::max(), "page_pool", "pages",
                    "must lie in 1..2^31-1", o.pages);
    detail::require(o.page_tokens >= 1, "page_pool", "page_tokens", "must be at least 1", o.page_tokens);
    detail::check_cache_shape("page_pool", {o.pages, o.page_tokens, o.kv_heads, std::max(o.dim, value_dim_)},
                              std::min(o.dim, value_dim_));
    keys_.resize(static_cast<std::size_t>(o.pages * page_elements(o.dim)));
    values_.resize(static_cast<std::size_t>(o.pages * page_elements(value_dim_)));
    holders_.resize(static_cast<std::size_t>(o.pages));
    for (std::int64_t i = o.pages - 1; i >= 0; --i) free_.push_back(static_cast<std::int32_t>(i));
  }
  page_pool(const page_pool&) = delete;
  page_pool& operator=(const page_pool&) = delete;

  [[nodiscard]] std::int64_t pages() const noexcept { return options_.pages; }
  [[nodiscard]] std::int64_t page_tokens() const noexcept { return options_.page_tokens; }
  [[nodiscard]] std::int64_t kv_heads() const noexcept { return options_.kv_heads; }
  [[nodiscard]] std::int64_t dim() const noexcept { return options_.dim; }
  [[nodiscard]] std::int64_t value_dim() const noexcept { return value_dim_; }
  /// Pages that no sequence holds.
  [[nodiscard]] std::int64_t free_pages() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(free_.size());
  }

 private:
  friend class paged_cache<S>;

  [[nodiscard]] std::int64_t page_elements(std::int64_t dim) const noexcept {
    return options_.page_tokens * options_.kv_heads * dim;
  }
  /// Fills `to` with pages held once, or takes none; how many were free.
  std::int64_t take(std::span<std::int32_t> to) {
    const std::lock_guard lock(mutex_);
    const auto available = static_cast<std::int64_t>(free_.size());
    if (available < static_cast<std::int64_t>(to.size())) return available;
    for (std::int32_t& page : to) {
      page = free_.back();
      free_.pop_back();
      holders_[static_cast<std::size_t>(page)] = 1;
    }
    return available;
  }
  void hold(std::span<const std::int32_t> pages) {
    const std::lock_guard lock(mutex_);
    for (const std::int32_t page : pages) ++holders_[static_cast<std::size_t>(page)];
  }
  /// `free_` has room for every page: nothing is allocated.
  void give_back(std::span<const std::int32_t> pages) noexcept {
    const std::lock_guard lock(mutex_);
    for (const std::int32_t page : pages)
      if (--holders_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
  }
  /// Whether another sequence holds the page too.
  [[nodiscard]] bool shared(std::int32_t page) const {
    const std::lock_guard lock(mutex_);
    return holders_[static_cast<std::size_t>(page)] > 1;
  }

  page_pool_options options_;
  std::int64_t value_dim_;
  detail::cache_memory<S> keys_;
  detail::cache_memory<S> values_;
  std::vector<std::int32_t> holders_;
  std::vector<std::int32_t> free_;
  mutable std::mutex mutex_;
};

}  // namespace posenc
