// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// The relative bias of TUPE-R (Ke et al. 2021): T5's bidirectional buckets with two values for the class token,
///   bias(h, i, j) = table[index, h], index = num_buckets / 2 where the query stands at position 0, else num_buckets
///   where the key does, else the bucket of pos_k(j) - pos_q(i).
/// Bucket num_buckets / 2 is the one that T5's rule never gives, so the table has num_buckets + 1 rows. Added beside
/// encoders/tupe.hpp: compose(tupe, tupe_bucket).
/// Domain   every int64 position. Error: none beyond the addition.
/// Cost     that of relative_bucket; one branch per batch of logits.
/// Throws   std::invalid_argument for impossible options or a table of another size.
/// Who uses it  TUPE-R.
/// Example  examples/gate_example.cpp

#include <posenc/encoders/relative_bucket.hpp>

namespace posenc {

struct tupe_bucket_options {
  std::int64_t heads = 0;
  std::int64_t num_buckets = 32;
  std::int64_t max_distance = 128;
};

template <class T = float>
class tupe_bucket {
 public:
  static constexpr encoder_traits traits{.name = "tupe_bucket",
                                         .site = site::logit,
                                         .relation = relation::absolute,
                                         .origin = origin::learned,
                                         .translation_invariant = false,
                                         .symmetric = false};

  /// `table` is [num_buckets + 1, heads]; it is copied.
  tupe_bucket(const tupe_bucket_options& o, std::span<const T> table)
      : num_buckets_(o.num_buckets),
        bias_({.heads = o.heads, .num_buckets = o.num_buckets, .max_distance = o.max_distance},
              checked(o, table).first(static_cast<std::size_t>(o.num_buckets * o.heads))),
        from_class_(row_of(table, o.num_buckets / 2, o.heads)),
        to_class_(row_of(table, o.num_buckets, o.heads)) {}

  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
    using L = lanes<B>;
    const auto head = static_cast<std::size_t>(r.head);
    const bool from_class = r.query_position == 0;
    return [op = bias_.template row<B>(r, keys), keys, from_class,
            value = from_class ? from_class_[head] : to_class_[head]](const B& s, std::int64_t k) {
      if (from_class) return B(s + L::broadcast(value));
      const B moved = op(s, k);
      if constexpr (Keys::contiguous) {
        const std::int64_t first = position_difference(keys.position(k), 0);
        if (first > 0 || first <= -L::size) return moved;
      }
      typename L::scalar bare[L::size];
      typename L::scalar biased[L::size];
      L::store(bare, s);
      L::store(biased, moved);
      for (int i = 0; i < L::size; ++i)
        if (keys.position(k + i) == 0) biased[i] = typename L::scalar(bare[i] + typename L::scalar(value));
      return L::load(static_cast<const typename L::scalar*>(biased));
    };
  }

  /// The row of the table that a pair of positions takes.
  [[nodiscard]] std::int64_t index(std::int64_t query, std::int64_t key) const noexcept {
    if (query == 0) return num_buckets_ / 2;
    return key == 0 ? num_buckets_ : bias_.bucket(position_difference(key, query));
  }
  [[nodiscard]] std::int64_t heads() const noexcept { return bias_.heads(); }

  [[nodiscard]] encoder_description describe() const {
    encoder_description d = bias_.describe();
    d.parameters = (num_buckets_ + 1) * heads();
    d.table_bytes += 2 * heads() * static_cast<std::int64_t>(sizeof(T));
    return d;
  }

 private:
  static std::span<const T> checked(const tupe_bucket_options& o, std::span<const T> table) {
    detail::require(o.heads >= 1, "tupe_bucket", "heads", "must be at least 1", o.heads);
    detail::require(o.num_buckets >= 4 && o.num_buckets % 2 == 0, "tupe_bucket", "num_buckets",
                    "must be even and at least 4", o.num_buckets);
    detail::require(table.size() % static_cast<std::size_t>(o.heads) == 0 &&
                        static_cast<std::int64_t>(table.size()) / o.heads == o.num_buckets + 1,
                    "tupe_bucket", "table", "must hold (num_buckets + 1) * heads values", table.size());
    return table;
  }
  static std::vector<T> row_of(std::span<const T> table, std::int64_t row, std::int64_t heads) {
    const auto part = table.subspan(static_cast<std::size_t>(row * heads), static_cast<std::size_t>(heads));
    return {part.begin(), part.end()};
  }

  std::int64_t num_buckets_;
  relative_bucket<T> bias_;
  std::vector<T> from_class_;
  std::vector<T> to_class_;
};

}  // namespace posenc
