// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// One sequence whose tokens lie in pages of a pool (page_pool.hpp). `fork` and `prefix` share pages instead of copying
/// them; a page that another sequence holds too is copied before it is written to. Pages return to the pool when
/// truncate, drop_first or the destructor let go of them. `keys()` and `values()` are paged views. See kv_cache.hpp for
/// append, shift, erase and rerotate.
///   posenc::paged_cache<float> first(pool), second = first.prefix(200);
/// Cost     append and truncate never allocate: a sequence reserves its table, 4 bytes per page of `capacity`.
/// Throws   std::out_of_range where the pool has too few free pages, or tokens exceed `capacity`; before anything is
///          written. `pages_needed(n)` says beforehand what an append of n tokens takes.

#include <posenc/attention/kv_cache.hpp>
#include <posenc/attention/page_pool.hpp>

#include <utility>

namespace posenc {

struct paged_cache_options {
  /// Most tokens of the sequence; as many as the pool holds unless given.
  std::optional<std::int64_t> capacity{};
  key_state keys = key_state::rotated;
  std::int64_t first_position = 0;
};

template <simd_storage S>
class paged_cache : public kv_cache<paged_cache<S>, S> {
  using base = kv_cache<paged_cache, S>;

 public:
  static constexpr const char* name = "paged_cache";

  /// An empty sequence of the pool, which must outlive it.
  explicit paged_cache(page_pool<S>& pool, const paged_cache_options& o = {})
      : base({.capacity = o.capacity.value_or(pool.pages() * pool.page_tokens()),
              .kv_heads = pool.kv_heads(),
              .dim = pool.dim(),
              .value_dim = pool.value_dim(),
              .keys = o.keys,
              .first_position = o.first_position}),
        pool_(&pool) {
    // One page more than the tokens fill: token 0 may lie anywhere in its page.
    const std::int64_t most = this->capacity() / pool.page_tokens() + 2;
    reserve(static_cast<std::size_t>(std::min(most, pool.pages())));
  }
  paged_cache(const paged_cache&) = delete;
  paged_cache(paged_cache&& other) noexcept : base(std::move(other)), pool_(other.pool_) { take_from(other); }
  paged_cache& operator=(const paged_cache&) = delete;
  paged_cache& operator=(paged_cache&& other) noexcept {
    if (this == &other) return *this;
    pool_->give_back(pages_);
    base::operator=(std::move(other));
    pool_ = other.pool_;
    take_from(other);
    return *this;
  }
  ~paged_cache() { pool_->give_back(pages_); }

  /// [1, size, kv_heads, dim]; valid until the sequence is written to.
  [[nodiscard]] paged_view<const S> keys() const { return window(pool_->keys_.data(), this->dim()); }
  [[nodiscard]] paged_view<const S> values() const { return window(pool_->values_.data(), this->value_dim()); }

  /// A sequence of the same tokens at the same positions, which shares every page.
  [[nodiscard]] paged_cache fork() const { return prefix(this->size_); }
  /// A sequence of the first n tokens, which shares their pages; positions go on after them.
  [[nodiscard]] paged_cache prefix(std::int64_t n) const {
    this->check_kept(n);
    paged_cache other(*pool_, {.capacity = this->capacity(), .keys = this->state(), .first_position = this->first_});
    if (n == 0) return other;
    other.pages_.assign(pages_.begin(), pages_.begin() + page_of(n - 1) + 1);
    pool_->hold(other.pages_);
    other.start_ = start_;
    other.size_ = n;
    return other;
  }

  /// Keeps the first n tokens.
  void truncate(std::int64_t n) {
    this->check_kept(n);
    const std::int64_t kept = n == 0 ? 0 : page_of(n - 1) + 1;
    pool_->give_back(std::span(pages_).subspan(static_cast<std::size_t>(kept)));
    pages_.resize(static_cast<std::size_t>(kept));
    this->size_ = n;
    if (n == 0) start_ = 0;
  }
  /// Drops the n oldest tokens; the others keep their positions.
  void drop_first(std::int64_t n) {
    this->check_dropped(n);
    if (n == this->size_) {
      truncate(0);
    } else {
      const std::int64_t gone = page_of(n);
      pool_->give_back(std::span(pages_).first(static_cast<std::size_t>(gone)));
      pages_.erase(pages_.begin(), pages_.begin() + gone);
      start_ += n - gone * pool_->page_tokens();
      this->size_ -= n;
    }
    this->first_ += n;
  }

  /// Pages this sequence holds, shared ones too.
  [[nodiscard]] std::int64_t pages() const noexcept { return static_cast<std::int64_t>(pages_.size()); }
  /// Pages that appending n tokens takes from the pool.
  [[nodiscard]] std::int64_t pages_needed(std::int64_t n) const { return n <= 0 ? 0 : pages_needed(n, copies_last()); }

 private:
  friend base;

  void reserve(std::size_t pages) {
    pages_.reserve(pages);
    taken_.reserve(pages);
  }
  void take_from(paged_cache& other) noexcept {
    pages_ = std::exchange(other.pages_, {});
    taken_ = std::exchange(other.taken_, {});
    start_ = std::exchange(other.start_, 0);
    other.size_ = 0;
  }
  /// Index in the table of the page of token t.
  [[nodiscard]] std::int64_t page_of(std::int64_t t) const noexcept { return (start_ + t) / pool_->page_tokens(); }
  [[nodiscard]] std::int64_t pages_needed(std::int64_t n, bool copies) const noexcept {
    return page_of(this->size_ + n - 1) + 1 - pages() + (copies ? 1 : 0);
  }
  /// Whether the next token goes into a page that another sequence holds too.
  [[nodiscard]] bool copies_last() const {
    return this->size_ > 0 && page_of(this->size_) < pages() && pool_->shared(pages_.back());
  }

  [[nodiscard]] paged_view<const S> window(const S* data, std::int64_t dim) const {
    const std::int64_t head = pool_->page_tokens() * dim;
    return {data,
            {.batch = 1, .tokens = this->size_, .heads = this->kv_heads(), .dim = dim},
            {.page = this->kv_heads() * head, .token = dim, .head = head},
            {.entries = pages_,
             .pages_per_row = pages(),
             .page_tokens = pool_->page_tokens(),
             .pages = pool_->pages(),
             .first = start_}};
  }
  [[nodiscard]] std::size_t row(std::int64_t t, std::int64_t h) const noexcept {
    const std::int64_t page = pages_[static_cast<std::size_t>(page_of(t))];
    const std::int64_t slot = (start_ + t) % pool_->page_tokens();
    return static_cast<std::size_t>((page * this->kv_heads() + h) * pool_->page_tokens() + slot);
  }
  [[nodiscard]] S* key_row(std::int64_t, std::int64_t t, std::int64_t h) noexcept {
    return pool_->keys_.data() + row(t, h) * static_cast<std::size_t>(this->dim());
  }
  [[nodiscard]] S* value_row(std::int64_t, std::int64_t t, std::int64_t h) noexcept {
    return pool_->values_.data() + row(t, h) * static_cast<std::size_t>(this->value_dim());
  }

  [[noreturn]] static void no_pages(std::int64_t needed, std::int64_t available) {
    detail::outside(name, "pages", "must be free in the pool, which has " + std::to_string(available) + " left",
                    needed);
  }
  /// `count` pages into taken_.
  void take(std::int64_t count) {
    taken_.resize(static_cast<std::size_t>(count));
    const std::int64_t available = pool_->take(taken_);
    if (available < count) {
      taken_.clear();
      no_pages(count, available);
    }
  }
  /// Page i of the table becomes `fresh`, with the same content.
  void replace(std::int64_t i, std::int32_t fresh) {
    std::int32_t& page = pages_[static_cast<std::size_t>(i)];
    const std::int64_t keys = pool_->page_elements(this->dim());
    const std::int64_t values = pool_->page_elements(this->value_dim());
    std::copy_n(pool_->keys_.data() + page * keys, keys, pool_->keys_.data() + fresh * keys);
    std::copy_n(pool_->values_.data() + page * values, values, pool_->values_.data() + fresh * values);
    pool_->give_back(std::span(&page, 1));
    page = fresh;
  }

  void check_room(std::int64_t n) {
    if (n > this->capacity() - this->size_)
      detail::outside(name, "tokens",
                      "must fit the capacity, room for " + std::to_string(this->capacity() - this->size_), n);
    const std::int64_t needed = pages_needed(n);
    const std::int64_t available = pool_->free_pages();
    if (needed > available) no_pages(needed, available);
  }
  template <class K, class V>
  void check_outside_storage(const view<K>& k, const view<V>& v) const {
    detail::check_outside_memory(name, pool_->keys_.data(), pool_->keys_.size(), k, v);
    detail::check_outside_memory(name, pool_->values_.data(), pool_->values_.size(), k, v);
  }
  std::int64_t make_room(std::int64_t n) {
    const bool copies = copies_last();
    take(pages_needed(n, copies));
    if (copies) {
      replace(pages() - 1, taken_.back());
      taken_.pop_back();
    }
    pages_.insert(pages_.end(), taken_.begin(), taken_.end());
    this->size_ += n;
    return this->size_ - n;
  }
  /// Copies the shared pages of the tokens from t on.
  void own(std::int64_t t) {
    if (t >= this->size_) return;
    std::int64_t count = 0;
    for (std::int64_t i = page_of(t); i < pages(); ++i) count += pool_->shared(pages_[static_cast<std::size_t>(i)]);
    take(count);
    for (std::int64_t i = page_of(t); i < pages(); ++i)
      if (!taken_.empty() && pool_->shared(pages_[static_cast<std::size_t>(i)])) {
        replace(i, taken_.back());
        taken_.pop_back();
      }
    pool_->give_back(taken_);
    taken_.clear();
  }

  page_pool<S>* pool_;
  std::vector<std::int32_t> pages_;
  std::vector<std::int32_t> taken_;
  /// Slot of token 0 in the first page.
  std::int64_t start_ = 0;
};

}  // namespace posenc
