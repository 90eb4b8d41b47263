// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// TUPE's untied absolute positions (Ke et al. 2021): scores between positions with projections of their own,
///   A[a, b] = (U_Q LN(P_a) + b_Q) . (U_K LN(P_b) + b_K) / sqrt(2 d) per head, d = width / heads,
///   bias(h, i, j) = A[pos_q(i) + 1, pos_k(j) + 1]; A[1, 1] where the key, A[0, 0] where the query stands at position 0
/// (the class token). Rows 0 and 1 of the table serve the class token, so `rows` of it reach positions 0 .. rows - 2.
/// The same bias serves every layer: copies of this part share their memory. Content scores are scaled by
/// 1 / sqrt(2 d) too: call `attention` with .scale = 1 / std::sqrt(2.0 * head_dim).
/// Domain   positions 0 .. rows - 2. Error: projections and the table in double, rounded once to T; without the table
///          one sum of d products in T.
/// Cost     2 heads * rows * d values (keys padded to 16 rows), d multiply-adds per logit; with `keep_table`
///          heads * (rows - 1)^2 values (12 MiB for 12 heads of 512 tokens in float), one load per batch of logits.
/// Throws   std::out_of_range for a call with a position outside, std::invalid_argument for weights that do not fit.
/// Who uses it  TUPE-A; TUPE-R beside encoders/tupe_bucket.hpp.
/// Example  examples/gate_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/kernels/column_product.hpp>
#include <posenc/math/affine.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace posenc {

struct tupe_options {
  std::int64_t heads = 0;
  /// Channels of a position row, heads * d.
  std::int64_t width = 0;
  double layer_norm_eps = 1e-5;
  bool keep_table = false;
};

/// position [rows, width]; gamma, beta, bias_q, bias_k [width]; weight_q, weight_k [width, width] (out, in).
template <class T>
struct tupe_weights {
  std::span<const T> position{};
  std::span<const T> gamma{};
  std::span<const T> beta{};
  std::span<const T> weight_q{};
  std::span<const T> bias_q{};
  std::span<const T> weight_k{};
  std::span<const T> bias_k{};
};

template <class T = float>
class tupe {
 public:
  static constexpr encoder_traits traits{.name = "tupe",
                                         .site = site::logit,
                                         .relation = relation::absolute,
                                         .origin = origin::learned,
                                         .translation_invariant = false,
                                         .symmetric = false};

  /// The weights are read here.
  tupe(const tupe_options& o, const tupe_weights<T>& w) : held_(std::make_shared<const held>(o, w)) {}

  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
    const held& t = *held_;
    if (r.query_position < 0 || r.query_position >= t.limit)
      detail::outside("tupe", "query position", "must lie in 0.." + std::to_string(t.limit - 1), r.query_position);
    return [line = line_of(t, r), keys](const B& s, std::int64_t k) { return line.template add<B>(s, keys, k); };
  }

  void check(const call& c) const {
    check_positions("query positions", c.query_positions, c.batch, c.queries);
    check_positions("key positions", c.key_positions, c.batch, c.keys);
  }

  [[nodiscard]] std::int64_t heads() const noexcept { return held_->heads; }
  /// One past the last position.
  [[nodiscard]] std::int64_t limit() const noexcept { return held_->limit; }

  [[nodiscard]] encoder_description describe() const {
    const held& t = *held_;
    return {.position_limit = t.limit,
            .parameters = t.parameters,
            .table_bytes =
                static_cast<std::int64_t>((t.query.size() + t.key.size() + t.table.size() + t.ends.size()) * sizeof(T)),
            .monotone = false,
            .shift = cache_shift::keep_keys};
  }

 private:
  struct held {
    std::int64_t heads;
    std::int64_t dim;
    std::int64_t rows;
    std::int64_t step;
    std::int64_t limit;
    std::int64_t parameters;
    std::vector<T> query;  // [head, row, d], over sqrt(2 d)
    std::vector<T> key;    // [head, d, step] and slack
    std::vector<T> table;  // [head, position, position] and slack, or nothing
    std::vector<T> ends;   // [head, (A[0, 0], A[1, 1])]

    held(const tupe_options& o, const tupe_weights<T>& w) : heads(o.heads) {
      using N = math::table_t<T>;
      using std::sqrt;
      detail::require(o.heads >= 1, "tupe", "heads", "must be at least 1", o.heads);
      detail::require(o.width >= 1 && o.width % o.heads == 0, "tupe", "width", "must be a multiple of heads", o.width);
      detail::require(o.layer_norm_eps >= 0 && std::isfinite(o.layer_norm_eps), "tupe", "layer_norm_eps",
                      "must be finite and not negative", o.layer_norm_eps);
      const auto width = static_cast<std::size_t>(o.width);
      detail::require(w.position.size() % width == 0 && w.position.size() / width >= 2, "tupe", "position",
                      "must hold at least two rows of width values", w.position.size());
      for (const auto& [name, values, size] :
           {std::tuple{"gamma", w.gamma, width}, std::tuple{"beta", w.beta, width},
            std::tuple{"weight_q", w.weight_q, width * width}, std::tuple{"bias_q", w.bias_q, width},
            std::tuple{"weight_k", w.weight_k, width * width}, std::tuple{"bias_k", w.bias_k, width}})
        detail::require(values.size() == size, "tupe", name, "must fit the width", values.size());
      dim = o.width / heads;
      rows = static_cast<std::int64_t>(w.position.size() / width);
      limit = rows - 1;
      // An odd number of cache lines (of float), so that the d lines of one batch do not share a set of the cache.
      step = ((rows + 15) / 16 | 1) * 16;
      parameters = static_cast<std::int64_t>(w.position.size() + 4 * width + 2 * width * width);
      std::vector<N> q(w.position.size());
      std::vector<N> k(w.position.size());
      std::vector<N> y(width);
      const N scale = N(N(1) / N(sqrt(N(static_cast<double>(2 * dim)))));
      for (std::size_t r = 0; r < w.position.size(); r += width) {
        normalise(w, r, o.layer_norm_eps, y);
        math::affine(y.data(), 1, o.width, w.weight_q, w.bias_q, std::span<N>(q).subspan(r, width));
        math::affine(y.data(), 1, o.width, w.weight_k, w.bias_k, std::span<N>(k).subspan(r, width));
        for (std::size_t i = r; i < r + width; ++i) q[i] = N(q[i] * scale);
      }
      const auto at = [&](std::int64_t h, std::int64_t r, std::int64_t d) {
        return static_cast<std::size_t>(r * o.width + h * dim + d);
      };
      const auto score = [&](std::int64_t h, std::int64_t a, std::int64_t b) {
        N sum = N(0);
        for (std::int64_t d = 0; d < dim; ++d) sum = N(sum + q[at(h, a, d)] * k[at(h, b, d)]);
        return narrow<T>(sum);
      };
      for (std::int64_t h = 0; h < heads; ++h) {
        ends.push_back(score(h, 0, 0));
        ends.push_back(score(h, 1, 1));
        if (o.keep_table) {
          for (std::int64_t i = 0; i < limit; ++i)
            for (std::int64_t j = 0; j < limit; ++j)
              table.push_back(i == 0 ? score(h, 0, 0) : (j == 0 ? score(h, 1, 1) : score(h, i + 1, j + 1)));
        } else {
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t d = 0; d < dim; ++d) query.push_back(narrow<T>(q[at(h, r, d)]));
          for (std::int64_t d = 0; d < dim; ++d)
            for (std::int64_t r = 0; r < step; ++r) key.push_back(r < rows ? narrow<T>(k[at(h, r, d)]) : T(0));
        }
      }
      auto& last = o.keep_table ? table : key;
      last.resize(last.size() + lane_slack, T(0));
    }
    template <class N>
    static void normalise(const tupe_weights<T>& w, std::size_t row, double eps, std::vector<N>& y) {
      using std::sqrt;
      const N count = N(static_cast<double>(y.size()));
      N mean = N(0);
      for (std::size_t i = 0; i < y.size(); ++i) mean = N(mean + N(widen(w.position[row + i])));
      mean = N(mean / count);
      N variance = N(0);
      for (std::size_t i = 0; i < y.size(); ++i) {
        y[i] = N(N(widen(w.position[row + i])) - mean);
        variance = N(variance + y[i] * y[i]);
      }
      const N deviation = N(sqrt(N(variance / count + N(eps))));
      for (std::size_t i = 0; i < y.size(); ++i)
        y[i] = N(y[i] / deviation * N(widen(w.gamma[i])) + N(widen(w.beta[i])));
    }
  };

  /// What one query row reads: its row of the table, or its projection and the projected keys.
  struct line {
    const T* table;
    const T* query;
    const T* key;
    std::int64_t dim;
    std::int64_t rows;
    std::int64_t step;
    bool from_class;
    T class_row;
    T class_column;

    template <class B, class Keys>
    [[nodiscard]] B add(const B& s, const Keys& keys, std::int64_t k) const {
      using L = lanes<B>;
      if (from_class) return B(s + L::broadcast(class_row));
      if constexpr (Keys::contiguous) {
        const std::int64_t first = std::clamp<std::int64_t>(keys.position(k), -lane_slack, rows - 1);
        if (first > 0) return B(s + values<B>(first));
        // A batch that begins at position 0: its other lanes are those of whole batches.
        if (first == 0) {
          T value[L::size];
          for (int i = 0; i < L::size; ++i) value[i] = i == 0 ? T(1) : T(0);
          const B other = values<B>(0);
          const B is_class = L::load(static_cast<const T*>(value));
          return B(s + L::select(L::greater(is_class, L::broadcast(T(0))), L::broadcast(class_column), other));
        }
      }
      T value[L::size];
      for (int i = 0; i < L::size; ++i) value[i] = one(keys.position(k + i));
      return B(s + L::load(value));
    }
    template <class B>
    [[nodiscard]] B values(std::int64_t first) const {
      using L = lanes<B>;
      if (table) return L::load(table + first);
      return kernels::column_product<B>(query, key + first + 1, step, dim);
    }
    [[nodiscard]] T one(std::int64_t p) const {
      if (p == 0) return class_column;
      if (p < 0 || p > rows - 2) return T(0);  // lanes past the last key
      if (table) return table[p];
      T sum = T(0);
      for (std::int64_t d = 0; d < dim; ++d) sum = T(sum + query[d] * key[d * step + p + 1]);
      return sum;
    }
  };
  static line line_of(const held& t, const posenc::row& r) {
    const T* ends = t.ends.data() + 2 * r.head;
    line out{nullptr, nullptr, nullptr, t.dim, t.rows, t.step, r.query_position == 0, ends[0], ends[1]};
    if (!t.table.empty()) {
      out.table = t.table.data() + (r.head * t.limit + r.query_position) * t.limit;
    } else {
      out.query = t.query.data() + (r.head * t.rows + r.query_position + 1) * t.dim;
      out.key = t.key.data() + r.head * t.step * t.dim;
    }
    return out;
  }
  void check_positions(const char* name, const positions& at, std::int64_t batch, std::int64_t tokens) const {
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < tokens; ++i)
        if (at(b, i) < 0 || at(b, i) >= held_->limit)
          detail::outside("tupe", name, "must lie in 0.." + std::to_string(held_->limit - 1), at(b, i));
  }

  std::shared_ptr<const held> held_;
};

}  // namespace posenc
