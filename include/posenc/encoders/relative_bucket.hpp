// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// T5's relative bias (Raffel et al. 2020): bias(h, i, j) = scale * table[bucket(pos_k(j) - pos_q(i)), h], a learned
/// value per head for exact small distances and logarithmic buckets of larger ones (see math/buckets.hpp).
/// Conventions  added to unscaled scores (T5 uses scale 1); the encoder is bidirectional, the decoder causal; one table
///              per stack, shared by its layers; cross attention has no bias.
/// Domain   every int64 position; borders as integer arithmetic puts them, for any num_buckets and max_distance.
/// Cost     num_buckets * heads parameters; lines of 2 * max_distance + 1 values per head, one load per batch of
///          logits.
/// Throws   std::invalid_argument for impossible options or a table of another size.
/// Who uses it  T5, mT5, UMT5, FLAN-T5, MPNet, WavLM.
/// Example  examples/relative_bucket_example.cpp

#include <posenc/encoders/toeplitz.hpp>
#include <posenc/math/buckets.hpp>

namespace posenc {

/// Order of the axes of a bucket table: Hugging Face [bucket, head], T5X [head, bucket].
enum class table_layout { bucket_head, head_bucket };

struct relative_bucket_options {
  std::int64_t heads = 0;
  std::int64_t num_buckets = 32;
  std::int64_t max_distance = 128;
  bool bidirectional = true;
  table_layout layout = table_layout::bucket_head;
  /// Multiplies the table (x-transformers and GPT-NeoX use sqrt(head_dim)).
  double table_scale = 1;
};

template <class T = float>
class relative_bucket {
 public:
  static constexpr encoder_traits traits{.name = "relative_bucket",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};

  /// The table is copied.
  relative_bucket(const relative_bucket_options& o, std::span<const T> table)
      : options_(checked(o)),
        buckets_(o.num_buckets, o.max_distance, o.bidirectional),
        bias_(o.heads, o.max_distance, [&](std::int64_t h, std::int64_t distance) {
          detail::require(static_cast<std::int64_t>(table.size()) == o.num_buckets * o.heads, "relative_bucket",
                          "table", "must hold num_buckets * heads values", table.size());
          const std::int64_t bucket = buckets_(distance);
          const std::int64_t at =
              o.layout == table_layout::bucket_head ? bucket * o.heads + h : h * o.num_buckets + bucket;
          return T(table[static_cast<std::size_t>(at)] * T(o.table_scale));
        }) {}

  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
    return bias_.template row<B>(r, keys);
  }

  /// The bucket of a distance key - query.
  [[nodiscard]] std::int64_t bucket(std::int64_t relative) const noexcept { return buckets_(relative); }
  [[nodiscard]] const toeplitz<T>& lines() const noexcept { return bias_; }
  [[nodiscard]] std::int64_t heads() const noexcept { return options_.heads; }

  [[nodiscard]] encoder_description describe() const {
    encoder_description d = bias_.describe();
    d.parameters = options_.num_buckets * options_.heads;
    return d;
  }

 private:
  static const relative_bucket_options& checked(const relative_bucket_options& o) {
    detail::require(o.heads >= 1, "relative_bucket", "heads", "must be at least 1", o.heads);
    detail::require(std::isfinite(o.table_scale), "relative_bucket", "table_scale", "must be finite", o.table_scale);
    return o;
  }

  relative_bucket_options options_;
  math::t5_buckets buckets_;
  toeplitz<T> bias_;
};

}  // namespace posenc
