// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Products of a table of rows by distance with queries or keys, for one tile of scores:
///   query_terms   term(i, j) = query(i) . row(pos_k(j) - pos_q(i))       Shaw, Transformer-XL, DeBERTa c2p
///   key_terms     term(i, j) += factor(i) key(j) . row(pos_k(j) - pos_q(i))                     DeBERTa p2c
/// Distances of contiguous keys are consecutive: the rows of a tile are one stretch of the table, one matrix product
/// serves the block, and a row of terms is a slice of it. Listed ids take one dot per pair.
/// Memory   per worker (rows + 12) * (keys + 128) + (keys + rows + 64) * dim elements, whatever the length.

#include <posenc/core/policy.hpp>
#include <posenc/encoders/relative_rows.hpp>
#include <posenc/kernels/row_products.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

namespace posenc {

namespace detail {

/// Rows of a tile whose query positions lie within this many of each other share one product.
inline constexpr std::int64_t shared_spread = 16;
/// Rows of one block of products with the table, and keys of one.
inline constexpr std::int64_t term_rows = 6;
inline constexpr std::int64_t term_keys = 24;
/// Distances whose places one block holds; blocks of more go pair by pair.
inline constexpr std::int64_t most_places = 256;

/// The scratch of `relative_terms`: a line of terms per row, products of one register block, packed rows of the table.
struct relative_scratch {
  std::int64_t step;
  std::int64_t packed;
  std::int64_t line, block, keys, panels, total;
  relative_scratch(std::int64_t rows, std::int64_t columns, std::int64_t dim)
      : step(columns + shared_spread + 80 + lane_slack), packed(columns + rows) {
    line = 0;
    block = line + rows * step;
    keys = block + term_keys * std::max(step, rows + 80 + lane_slack);
    panels = keys + term_keys * dim;
    total = panels + (packed + 64) * dim;
  }
};

/// The terms of one tile for one table.
template <class B, class T, class Keys>
class relative_terms {
  using C = typename lanes<B>::scalar;
  static constexpr bool simd = lanes<B>::size > 1;
  static constexpr std::int64_t w = kernels::product_width<B>;

 public:
  relative_terms(const relative_rows<T>& table, const content_tile<C>& t, const Keys& keys, C* scratch)
      : table_(table), t_(t), keys_(keys), size_(t.rows, t.keys, t.dim), scratch_(scratch) {
    // Rows of a GQA group alternate between its heads.
    if (table.tables() != 1)
      for (stride_ = 1; stride_ < t.rows && t.at[stride_].head != t.at[0].head;) ++stride_;
  }

  /// lines[r][j] = query(r) . row(distance). `dense` asks for a line of its own in every row, to which more is added.
  void query_terms(const C* query, const C** lines, bool dense) {
    for_runs([&](std::int64_t from, std::int64_t n, bool shared) {
      for (std::int64_t i = 0; i < n; i += term_rows) {
        const std::int64_t m = std::min(term_rows, n - i);
        const stretch s = shared ? stretch_of(from + i * stride_, m, 0, t_.keys) : stretch{};
        if (shared && s.spread <= shared_spread && s.greatest - s.least < most_places) {
          if (s.count > 0) query_block(query, lines, from + i * stride_, m, s, dense);
        } else {
          for (std::int64_t r = from + i * stride_, left = m; left > 0; --left, r += stride_)
            query_row(query, lines, r);
        }
      }
    });
  }

  /// line(r)[j] += factor(r) key(j) . row(distance), for lines that `query_terms(dense)` or `clear` made.
  void key_terms() {
    for_runs([&](std::int64_t from, std::int64_t n, bool shared) {
      if (shared && one_row_) return key_constant(from, n);
      for (std::int64_t j = 0; j < t_.keys; j += term_keys) {
        const std::int64_t m = std::min(term_keys, t_.keys - j);
        if (!seen_by_any(from, n, j, m)) continue;
        C* key = scratch_ + size_.keys;
        for (std::int64_t i = 0; i < m; ++i) t_.copy_key(t_.first + j + i, key + i * t_.dim);
        if (shared) {
          key_block(key, from, n, j, m);
        } else {
          for (std::int64_t i = 0; i < m; ++i) key_column(key + i * t_.dim, from, n, j + i);
        }
      }
    });
  }

  /// Lines of zeros.
  void clear(const C** lines) {
    for (std::int64_t r = 0; r < t_.rows; ++r) {
      std::fill_n(line(r), size_.step, C(0));
      lines[r] = line(r);
    }
  }
  [[nodiscard]] C* line(std::int64_t r) const { return scratch_ + size_.line + r * size_.step; }

 private:
  struct stretch {
    std::int64_t place = 0;
    std::int64_t count = 0;
    std::int64_t spread = 0;
    std::int64_t least = 0;
    std::int64_t greatest = 0;
  };

  /// Consecutive where keys are: the bound of a difference is met once per row, not per key.
  [[nodiscard]] std::int64_t distance_at(std::int64_t r, std::int64_t j) const {
    const std::int64_t q = t_.at[r].query_position;
    if constexpr (Keys::contiguous) return position_difference(keys_.position(t_.first), q) + j;
    return position_difference(keys_.position(t_.first + j), q);
  }
  [[nodiscard]] static bool sees(const interval& v) { return v.lo < v.hi; }

  /// The table rows that n rows from `from` on need for the keys j .. j + m - 1.
  [[nodiscard]] stretch stretch_of(std::int64_t from, std::int64_t n, std::int64_t j, std::int64_t m) const {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::int64_t greatest = std::numeric_limits<std::int64_t>::min();
    std::int64_t low = least, high = greatest;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t r = from + i * stride_;
      const interval v = cut(t_.seen[r], j, m);
      if (!sees(v)) continue;
      least = std::min(least, distance_at(r, v.lo));
      greatest = std::max(greatest, distance_at(r, v.hi - 1));
      low = std::min(low, t_.at[r].query_position);
      high = std::max(high, t_.at[r].query_position);
    }
    if (least > greatest) return {};
    return {table_.place(least), table_.place(greatest) - table_.place(least) + 1,
            std::max<std::int64_t>(position_difference(high, low), 0), least, greatest};
  }

  /// f(first row, rows, shared) for runs of rows of one table; `shared`: the rows they need are packed.
  template <class F>
  void for_runs(const F& f) {
    for (std::int64_t p = 0; p < stride_; ++p) {
      const std::int64_t n = (t_.rows - p + stride_ - 1) / stride_;
      head_ = t_.at[p].head;
      bool shared = false;
      if constexpr (simd && Keys::contiguous) {
        const stretch all = stretch_of(p, n, 0, t_.keys);
        if (all.count == 0) continue;
        // Few rows are not worth the packing.
        shared = n >= 4 && all.count <= size_.packed && all.spread <= t_.rows && t_.rows + term_keys <= most_places;
        one_row_ = all.count == 1;
        if (shared) {
          base_ = all.place;
          kernels::pack_rows<B>(scratch_ + size_.panels, table_.table(head_) + base_ * t_.dim, all.count, t_.dim);
        }
      }
      f(p, n, shared);
    }
  }

  /// Products of m rows with the table's places s, from whole panels; returns the place of the first column.
  std::int64_t multiply(const C* rows, std::int64_t step, std::int64_t m, const stretch& s, C* out,
                        std::int64_t out_step) {
    const std::int64_t skip = (s.place - base_) / w * w;
    kernels::multiply_packed<B>(m, rows, step, scratch_ + size_.panels + skip * t_.dim,
                                s.place + s.count - base_ - skip, t_.dim, out, out_step);
    return base_ + skip;
  }

  void query_block(const C* query, const C** lines, std::int64_t from, std::int64_t m, const stretch& s, bool dense) {
    bool slices = table_.exact() && !dense;
    for (std::int64_t i = 0; i < m && slices; ++i) {
      const std::int64_t r = from + i * stride_;
      const interval& v = t_.seen[r];
      slices = !sees(v) || (distance_at(r, v.lo) >= table_.least() && distance_at(r, v.hi - 1) <= table_.greatest());
    }
    C* out = slices ? line(from) : scratch_ + size_.block;
    const std::int64_t step = slices ? stride_ * size_.step : size_.step;
    const std::int64_t first = multiply(query + from * t_.dim, stride_ * t_.dim, m, s, out, step);
    if (!slices && !one_row_) read_places(s.least, s.greatest - s.least + 1, first);
    for (std::int64_t i = 0; i < m; ++i) {
      const std::int64_t r = from + i * stride_;
      if (!sees(t_.seen[r])) continue;
      const C* products = out + i * step;
      lines[r] = line(r);
      if (slices) {
        lines[r] = products + (distance_at(r, 0) - table_.least() - first);
      } else if (one_row_) {
        std::fill(line(r) + t_.seen[r].lo, line(r) + t_.seen[r].hi, products[s.place - first]);
      } else {
        expand(products, r);
      }
    }
  }

  /// The places of n distances from `from` on, less `first`, where the caller's memory holds them.
  void read_places(std::int64_t from, std::int64_t n, std::int64_t first) {
    from_ = from;
    for (std::int64_t i = 0; i < n; ++i)
      places_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(table_.place(from + i) - first);
  }

  /// line(r)[j] = products at the place of key j, for the keys that row r sees; places were read.
  void expand(const C* products, std::int64_t r) {
    const interval& v = t_.seen[r];
    C* to = line(r);
    const std::int32_t* place = places_.data() + (distance_at(r, v.lo) - from_);
    const std::int64_t last = v.hi - 1 - v.lo;
    if (place[last] - place[0] == last) {  // places rise by one at most, so each distance has its own
      std::copy_n(products + *place, last + 1, to + v.lo);
      return;
    }
    for (std::int64_t j = v.lo; j < v.hi; ++j) to[j] = products[*place++];
  }

  void query_row(const C* query, const C** lines, std::int64_t r) {
    const interval& v = t_.seen[r];
    if (!sees(v)) return;
    C* to = line(r);
    std::int64_t before = -1;  // neighbours of one bucket share a product
    for (std::int64_t j = v.lo; j < v.hi; ++j) {
      const std::int64_t place = table_.place(distance_at(r, j));
      to[j] = place == before ? to[j - 1]
                              : kernels::product<B>(query + r * t_.dim, table_.table(head_) + place * t_.dim, t_.dim);
      before = place;
    }
    lines[r] = to;
  }

  [[nodiscard]] bool seen_by_any(std::int64_t from, std::int64_t n, std::int64_t j, std::int64_t m) const {
    for (std::int64_t i = 0; i < n; ++i) {
      const interval& v = t_.seen[from + i * stride_];
      if (sees(v) && v.lo < j + m && j < v.hi) return true;
    }
    return false;
  }

  /// Keys j .. j + m - 1 against every row of the run.
  void key_block(const C* key, std::int64_t from, std::int64_t n, std::int64_t j, std::int64_t m) {
    const stretch s = stretch_of(from, n, j, m);
    const std::int64_t step = std::max(size_.step, t_.rows + 80 + lane_slack);
    C* products = scratch_ + size_.block;
    const std::int64_t first = multiply(key, t_.dim, m, s, products, step);
    read_places(s.least, s.greatest - s.least + 1, first);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t r = from + i * stride_;
      const interval v = cut(t_.seen[r], j, m);
      if (!sees(v)) continue;
      C* to = line(r);
      const std::int32_t* at = places_.data() + (distance_at(r, v.lo) - from_);
      const C factor = t_.factor[r];
      for (std::int64_t x = v.lo; x < v.hi; ++x) to[x] += factor * products[(x - j) * step + *at++];
    }
  }

  /// The whole tile has one row of the table: a product per key, then a multiple of that line per query.
  void key_constant(std::int64_t from, std::int64_t n) {
    C* key = scratch_ + size_.keys;
    C* products = scratch_ + size_.block;
    for (std::int64_t j = 0; j < t_.keys; ++j) {
      t_.copy_key(t_.first + j, key);
      products[j] = kernels::product<B>(key, table_.table(head_) + base_ * t_.dim, t_.dim);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t r = from + i * stride_;
      const interval& v = t_.seen[r];
      if (sees(v)) kernels::add_multiple<B>(line(r) + v.lo, t_.factor[r], products + v.lo, v.hi - v.lo);
    }
  }

  void key_column(const C* key, std::int64_t from, std::int64_t n, std::int64_t j) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t r = from + i * stride_;
      if (j < t_.seen[r].lo || j >= t_.seen[r].hi) continue;
      const C p = kernels::product<B>(key, table_.row(head_, distance_at(r, j)), t_.dim);
      line(r)[j] = C(line(r)[j] + t_.factor[r] * p);
    }
  }

  [[nodiscard]] static interval cut(const interval& v, std::int64_t j, std::int64_t m) {
    return {std::max(v.lo, j), std::min(v.hi, j + m)};
  }

  const relative_rows<T>& table_;
  const content_tile<C>& t_;
  const Keys& keys_;
  relative_scratch size_;
  C* scratch_;
  std::int64_t stride_ = 1;
  std::int64_t head_ = 0;
  std::int64_t base_ = 0;
  std::int64_t from_ = 0;
  bool one_row_ = false;
  std::array<std::int32_t, most_places> places_;
};

}  // namespace detail
}  // namespace posenc
