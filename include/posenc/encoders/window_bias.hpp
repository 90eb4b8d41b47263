// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A bias by the places of query and key inside an image window, one matrix per head:
///   bias(h, i, j) = table[index(i, j), h], index as in encoders/window_index.hpp,
/// unfolded once to [head, query, key], so that a row is a contiguous slice. It goes by the index of query and key, not
/// by their positions; every batch row of the call is one window. A shifted window is this bias and a caller's mask
/// (attention/mask_tensor.hpp).
/// Domain   calls of exactly the window's tokens. Error: none beyond the addition.
/// Cost     heads * tokens^2 * sizeof(T) bytes: 0.6 MiB for 16 heads of a window of 10 x 10 in float, 4 MiB for
///          16 x 16; one load and one addition per batch of logits.
/// Throws   std::invalid_argument for a table of another size and for a call of other extents; std::out_of_range from
///          add_bias_row for a query index beyond the window.
/// Who uses it  Swin, BEiT, data2vec-vision, LeViT, CoAtNet, MaxViT.
/// Example  examples/window_bias_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/resize.hpp>
#include <posenc/encoders/window_index.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace posenc {

struct window_bias_options {
  std::int64_t heads = 0;
  window_kind kind = window_kind::swin;
  window_shape window{};
  /// bucket_head: [entries, heads] as Swin and BEiT store it; head_bucket: [heads, entries] as LeViT does.
  table_layout layout = table_layout::bucket_head;
};

/// A table [entries, heads] for a window of another size: the offsets are a grid of (2h - 1) x (2w - 1) rows that is
/// resampled (encoders/resize.hpp), the three rows of beit's class token are copied. Swin resamples bicubic, Hugging
/// Face's BEiT bilinear. @throws std::invalid_argument for levit, whose offsets have no sign, and for another size.
template <class T>
[[nodiscard]] std::vector<T> resize_window_table(window_kind kind, const window_shape& from, const window_shape& to,
                                                 std::span<const T> table, resize_mode mode = resize_mode::bicubic) {
  detail::check_window("resize_window_table", "from", from);
  detail::check_window("resize_window_table", "to", to);
  detail::require(kind != window_kind::levit, "resize_window_table", "kind", "must be swin or beit", "levit");
  return table_resize({.from = {.rows = 2 * from.height - 1, .columns = 2 * from.width - 1},
                       .to = table_extent{.rows = 2 * to.height - 1, .columns = 2 * to.width - 1},
                       .mode = mode,
                       .suffix_rows = kind == window_kind::beit ? 3 : 0})(table);
}

template <class T = float>
class window_bias {
 public:
  static constexpr encoder_traits traits{.name = "window_bias",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};

  /// The table is copied.
  window_bias(const window_bias_options& o, std::span<const T> table)
      : heads_(checked_heads(o.heads)), queries_(window_tokens(o.kind, o.window)), keys_(queries_) {
    const std::int64_t entries = window_entries(o.kind, o.window);
    detail::require(table.size() % static_cast<std::size_t>(heads_) == 0 &&
                        static_cast<std::int64_t>(table.size()) / heads_ == entries,
                    "window_bias", "table", "must hold one value per head and entry", table.size());
    parameters_ = heads_ * entries;
    const std::vector<std::int32_t> index = window_index(o.kind, o.window);
    values_.reserve(size());
    for (std::int64_t h = 0; h < heads_; ++h)
      for (const std::int32_t entry : index) {
        const std::int64_t at = o.layout == table_layout::bucket_head ? entry * heads_ + h : h * entries + entry;
        values_.push_back(table[static_cast<std::size_t>(at)]);
      }
    values_.resize(size(), T(0));
  }
  /// From the whole bias [head, query, key], for windows of another shape; it is copied.
  window_bias(std::int64_t heads, std::int64_t queries, std::int64_t keys, std::span<const T> bias)
      : heads_(checked_heads(heads)), queries_(queries), keys_(keys) {
    constexpr std::int64_t most = 1 << 20;
    detail::require(queries >= 1 && queries <= most, "window_bias", "queries", "must lie in 1..2^20", queries);
    detail::require(keys >= 1 && keys <= most, "window_bias", "keys", "must lie in 1..2^20", keys);
    detail::require(bias.size() % static_cast<std::size_t>(heads) == 0 &&
                        static_cast<std::int64_t>(bias.size()) / heads == queries * keys,
                    "window_bias", "bias", "must hold heads * queries * keys values", bias.size());
    parameters_ = heads * queries * keys;
    values_.reserve(size());
    values_.assign(bias.begin(), bias.end());
    values_.resize(size(), T(0));
  }

  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys&) const {
    if (r.query_index >= queries_)
      detail::outside("window_bias", "query index", "must lie in the window's 0.." + std::to_string(queries_ - 1),
                      r.query_index);
    return [line = this->line(r.head, r.query_index), keys = keys_](const B& s, std::int64_t k) {
      return B(s + lanes<B>::load(line + std::min(k, keys)));
    };
  }

  void check(const call& c) const {
    detail::require(c.queries == queries_, "window_bias", "queries", "must be the window's tokens", c.queries);
    detail::require(c.keys == keys_, "window_bias", "keys", "must be the window's tokens", c.keys);
  }

  /// The values of one row, keys() of them.
  [[nodiscard]] const T* line(std::int64_t head, std::int64_t query) const noexcept {
    return values_.data() + (head * queries_ + query) * keys_;
  }
  [[nodiscard]] std::int64_t heads() const noexcept { return heads_; }
  [[nodiscard]] std::int64_t queries() const noexcept { return queries_; }
  [[nodiscard]] std::int64_t keys() const noexcept { return keys_; }

  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = keys_,
            .parameters = parameters_,
            .table_bytes = static_cast<std::int64_t>(values_.size() * sizeof(T)),
            .monotone = false,
            .shift = cache_shift::keep_keys};
  }

 private:
  static std::int64_t checked_heads(std::int64_t heads) {
    detail::require(heads >= 1, "window_bias", "heads", "must be at least 1", heads);
    return heads;
  }
  [[nodiscard]] std::size_t size() const noexcept {
    return static_cast<std::size_t>(heads_ * queries_ * keys_ + lane_slack);
  }

  std::int64_t heads_;
  std::int64_t queries_;
  std::int64_t keys_;
  std::int64_t parameters_ = 0;
  std::vector<T> values_;
};

}  // namespace posenc
