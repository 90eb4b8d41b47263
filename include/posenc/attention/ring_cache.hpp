// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Keys and values of the last `capacity` tokens of a layer with a sliding window: appending to a full ring overwrites
/// the oldest. `keys()` and `values()` are paged views in the order of positions, two runs at most, so masks by
/// position and contiguous positions work as ever. See kv_cache.hpp for append, shift, erase and rerotate.
///   posenc::ring_cache<float> cache({.capacity = 4096 + 255, .kv_heads = 8, .dim = 128});
/// Capacity for a window of W and chunks of n appended tokens the first query of a chunk still asks for W - 1 tokens
///          before it: W + n - 1 slots. A longer text attends to its own keys first; then its end is appended.
/// Cost     truncate and drop_first move nothing.

#include <posenc/attention/kv_cache.hpp>

#include <array>

namespace posenc {

template <simd_storage S>
class ring_cache : public kv_cache<ring_cache<S>, S> {
  using base = kv_cache<ring_cache, S>;

 public:
  static constexpr const char* name = "ring_cache";

  explicit ring_cache(const cache_options& o)
      : base(o), keys_(elements(this->dim())), values_(elements(this->value_dim())) {
    detail::require(o.batch <= std::numeric_limits<std::int32_t>::max(), name, "batch", "must lie below 2^31", o.batch);
    // The ring of a batch row is a page that is named twice.
    for (std::int64_t b = 0; b < o.batch; ++b) table_.insert(table_.end(), 2, static_cast<std::int32_t>(b));
  }

  /// [batch, size, kv_heads, dim] in the order of positions; valid until the cache is written to.
  [[nodiscard]] paged_view<const S> keys() const { return window(keys_.data(), this->dim()); }
  [[nodiscard]] paged_view<const S> values() const { return window(values_.data(), this->value_dim()); }

  /// Keeps the first n of the tokens held. What was overwritten does not come back.
  void truncate(std::int64_t n) {
    this->check_kept(n);
    this->size_ = n;
  }
  /// Drops the n oldest tokens; the others keep their positions.
  void drop_first(std::int64_t n) {
    this->check_dropped(n);
    advance(n);
  }

 private:
  friend base;

  [[nodiscard]] std::size_t elements(std::int64_t dim) const noexcept {
    return static_cast<std::size_t>(this->batch() * this->capacity() * this->kv_heads() * dim);
  }
  [[nodiscard]] paged_view<const S> window(const S* data, std::int64_t dim) const {
    const std::int64_t head = this->capacity() * dim;
    return {data,
            {.batch = this->batch(), .tokens = this->size_, .heads = this->kv_heads(), .dim = dim},
            {.page = this->kv_heads() * head, .token = dim, .head = head},
            {.entries = table_,
             .pages_per_row = 2,
             .page_tokens = this->capacity(),
             .pages = this->batch(),
             .first = oldest_}};
  }
  [[nodiscard]] std::size_t row(std::int64_t b, std::int64_t t, std::int64_t h) const noexcept {
    const std::int64_t slot = oldest_ + t < this->capacity() ? oldest_ + t : oldest_ + t - this->capacity();
    return static_cast<std::size_t>((b * this->kv_heads() + h) * this->capacity() + slot);
  }
  [[nodiscard]] S* key_row(std::int64_t b, std::int64_t t, std::int64_t h) noexcept {
    return keys_.data() + row(b, t, h) * static_cast<std::size_t>(this->dim());
  }
  [[nodiscard]] S* value_row(std::int64_t b, std::int64_t t, std::int64_t h) noexcept {
    return values_.data() + row(b, t, h) * static_cast<std::size_t>(this->value_dim());
  }
  void advance(std::int64_t n) noexcept {
    oldest_ = (oldest_ + n) % this->capacity();
    this->size_ -= n;
    this->first_ += n;
  }
  void check_room(std::int64_t) const noexcept {}
  template <class K, class V>
  void check_outside_storage(const view<K>& k, const view<V>& v) const {
    detail::check_outside_memory(name, keys_.data(), keys_.size(), k, v);
    detail::check_outside_memory(name, values_.data(), values_.size(), k, v);
  }
  /// Token index of the first of the tokens that are kept.
  std::int64_t make_room(std::int64_t n) noexcept {
    const std::int64_t kept = std::min(n, this->capacity());
    const std::int64_t dropped = std::max<std::int64_t>(0, this->size_ + kept - this->capacity());
    advance(dropped);
    this->first_ += n - kept;
    this->size_ += kept;
    return this->size_ - kept;
  }
  void own(std::int64_t) noexcept {}

  detail::cache_memory<S> keys_;
  detail::cache_memory<S> values_;
  std::vector<std::int32_t> table_;
  std::int64_t oldest_ = 0;
};

}  // namespace posenc
