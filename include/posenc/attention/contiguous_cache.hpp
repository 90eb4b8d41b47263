// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Keys and values of a layer in one block of fixed capacity, [batch, head, token, dim], so that a decode step streams
/// the keys of a head from end to end. `keys()` and `values()` are plain views of what is filled. A copy of the cache,
/// truncated to what two texts share, continues a common prefix. See kv_cache.hpp for append, shift, erase and
/// rerotate.
///   posenc::contiguous_cache<Eigen::half> cache({.capacity = 4096, .kv_heads = 8, .dim = 128});
/// Cost     drop_first moves what is left.

#include <posenc/attention/kv_cache.hpp>

namespace posenc {

template <simd_storage S>
class contiguous_cache : public kv_cache<contiguous_cache<S>, S> {
  using base = kv_cache<contiguous_cache, S>;

 public:
  static constexpr const char* name = "contiguous_cache";

  explicit contiguous_cache(const cache_options& o)
      : base(o), keys_(elements(this->dim())), values_(elements(this->value_dim())) {}

  /// [batch, size, kv_heads, dim]; valid until the cache is assigned to or destroyed.
  [[nodiscard]] view<const S> keys() const { return window(keys_.data(), this->dim()); }
  [[nodiscard]] view<const S> values() const { return window(values_.data(), this->value_dim()); }

  /// Keeps the first n tokens.
  void truncate(std::int64_t n) {
    this->check_kept(n);
    this->size_ = n;
  }
  /// Drops the n oldest tokens; the others keep their positions.
  void drop_first(std::int64_t n) {
    this->check_dropped(n);
    const std::int64_t kept = this->size_ - n;
    for (std::int64_t b = 0; b < this->batch() && n > 0; ++b)
      for (std::int64_t h = 0; h < this->kv_heads(); ++h) {
        std::copy_n(key_row(b, n, h), kept * this->dim(), key_row(b, 0, h));
        std::copy_n(value_row(b, n, h), kept * this->value_dim(), value_row(b, 0, h));
      }
    this->size_ = kept;
    this->first_ += n;
  }

 private:
  friend base;

  [[nodiscard]] std::size_t elements(std::int64_t dim) const noexcept {
    return static_cast<std::size_t>(this->batch() * this->capacity() * this->kv_heads() * dim);
  }
  [[nodiscard]] view<const S> window(const S* data, std::int64_t dim) const {
    const std::int64_t head = this->capacity() * dim;
    return {data,
            {.batch = this->batch(), .tokens = this->size_, .heads = this->kv_heads(), .dim = dim},
            {.batch = this->kv_heads() * head, .token = dim, .head = head}};
  }
  [[nodiscard]] std::size_t row(std::int64_t b, std::int64_t t, std::int64_t h) const noexcept {
    return static_cast<std::size_t>((b * this->kv_heads() + h) * this->capacity() + t);
  }
  [[nodiscard]] S* key_row(std::int64_t b, std::int64_t t, std::int64_t h) noexcept {
    return keys_.data() + row(b, t, h) * static_cast<std::size_t>(this->dim());
  }
  [[nodiscard]] S* value_row(std::int64_t b, std::int64_t t, std::int64_t h) noexcept {
    return values_.data() + row(b, t, h) * static_cast<std::size_t>(this->value_dim());
  }
  void check_room(std::int64_t n) const {
    if (n > this->capacity() - this->size_)
      detail::outside(name, "tokens",
                      "must fit the capacity, room for " + std::to_string(this->capacity() - this->size_), n);
  }
  template <class K, class V>
  void check_outside_storage(const view<K>& k, const view<V>& v) const {
    detail::check_outside_memory(name, keys_.data(), keys_.size(), k, v);
    detail::check_outside_memory(name, values_.data(), values_.size(), k, v);
  }
  std::int64_t make_room(std::int64_t n) noexcept {
    this->size_ += n;
    return this->size_ - n;
  }
  void own(std::int64_t) noexcept {}

  detail::cache_memory<S> keys_;
  detail::cache_memory<S> values_;
};

}  // namespace posenc
