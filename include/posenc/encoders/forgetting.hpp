// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Forget gates, or data-dependent ALiBi (Lin et al. 2025, FoX): token t keeps the share f_t = sigmoid(gate) of
/// what came before it; with c the running sum of ln f over the columns,
///   bias(h, i, j) = c[h, i] - c[h, j] for j <= i; for j > i 0, or with `bidirectional` r[h, j] - r[h, i], r the
///   running sum of a second set of gates.
/// Columns are the physical order of the keys in the call, never their positions: `forget_sums` holds the sums of the
/// columns appended so far, and queries are columns of the same sequence (no cross attention). A padded token has
/// ln f = 0. A single pass suffices: a row reads a contiguous slice of the sums.
/// Domain   finite gates. Error: ln sigmoid without overflow or cancellation, sums in double; for T = float they are
///          kept as two floats and subtracted part by part, so a long context loses nothing: a difference is right to
///          2^-23 of itself and 2^-47 of the sums.
/// Cost     8 bytes per column and head (16 bidirectional); two loads and three additions per batch of logits.
/// Throws   std::invalid_argument for gates that are not finite, views and calls that do not fit.
/// Who uses it  the Forgetting Transformer; x-transformers' data-dependent ALiBi.
/// Example  examples/gate_example.cpp

#include <posenc/core/error.hpp>
#include <posenc/core/policy.hpp>
#include <posenc/core/traits.hpp>
#include <posenc/core/view.hpp>
#include <posenc/math/affine.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace posenc {

/// Gates from the layer's input: gates[b, t, g, 0] = weight_g . x[b, t] + bias_g, weight [gates, width].
template <class W, class X, class G>
void forget_gates(const view<X>& x, std::span<const W> weight, std::span<const W> bias, const view<G>& gates) {
  detail::require(gates.dim() == 1, "forget_gates", "gates", "must have the shape [batch, token, gate, 1]",
                  gates.dim());
  math::affine_rows("forget_gates", x, weight, bias, gates);
}

struct forget_options {
  std::int64_t batch = 1;
  std::int64_t heads = 0;
  bool bidirectional = false;
};

/// The running sums of a sequence: grows by `append`, as a key cache does. T is the scalar of the logits.
template <class T = float>
class forget_sums {
  using S = math::table_t<T>;

 public:
  explicit forget_sums(const forget_options& o) : options_(o) {
    detail::require(o.batch >= 1, "forget_sums", "batch", "must be at least 1", o.batch);
    detail::require(o.heads >= 1, "forget_sums", "heads", "must be at least 1", o.heads);
    lines_.assign(static_cast<std::size_t>(o.batch * gates()), held{S(0), std::vector<T>(lane_slack, T(0)), {}});
    if constexpr (split)
      for (held& line : lines_) line.rest = line.sums;
  }

  /// Adds the columns of gates [batch, token, gate, 1]: `heads` gates, then the second set where bidirectional.
  /// `padded`, if given, is [batch, token], not 0 for a padded token, whose gate is not looked at.
  template <class G>
  void append(const view<G>& gate, std::span<const std::uint8_t> padded = {}) {
    const char* function = "forget_sums::append";
    const std::int64_t n = gate.tokens();
    detail::require(gate.extents() == shape{options_.batch, n, gates(), 1}, function, "gates",
                    "must have the shape [batch, token, gate, 1], gates", gate.heads());
    detail::require(padded.empty() || static_cast<std::int64_t>(padded.size()) == options_.batch * n, function,
                    "padded", "must hold one value per batch row and token", padded.size());
    const auto is_padded = [&](std::int64_t b, std::int64_t t) {
      return !padded.empty() && padded[static_cast<std::size_t>(b * n + t)] != 0;
    };
    for (std::int64_t b = 0; b < options_.batch; ++b)
      for (std::int64_t t = 0; t < n; ++t)
        for (std::int64_t g = 0; g < gates() && !is_padded(b, t); ++g) {
          const S x = S(widen(gate(b, t, g, 0)));
          detail::require(S(x - x) == S(0), function, "gates", "must be finite, token", t);
        }
    for (std::int64_t b = 0; b < options_.batch; ++b)
      for (std::int64_t g = 0; g < gates(); ++g) {
        held& line = lines_[static_cast<std::size_t>(b * gates() + g)];
        line.sums.resize(static_cast<std::size_t>(columns_ + n + lane_slack), T(0));
        if constexpr (split) line.rest.resize(line.sums.size(), T(0));
        for (std::int64_t t = 0; t < n; ++t) {
          if (!is_padded(b, t)) line.last = S(line.last + math::log_sigmoid(S(widen(gate(b, t, g, 0)))));
          const auto at = static_cast<std::size_t>(columns_ + t);
          line.sums[at] = T(line.last);
          if constexpr (split) line.rest[at] = T(line.last - S(line.sums[at]));
        }
      }
    columns_ += n;
  }
  /// Forgets the first n columns, as a cache that drops its oldest tokens; differences of the others stay.
  void drop_first(std::int64_t n) {
    detail::require(n >= 0 && n <= columns_, "forget_sums::drop_first", "n", "must lie in 0..columns", n);
    for (held& line : lines_) {
      line.sums.erase(line.sums.begin(), line.sums.begin() + static_cast<std::ptrdiff_t>(n));
      if constexpr (split) line.rest.erase(line.rest.begin(), line.rest.begin() + static_cast<std::ptrdiff_t>(n));
    }
    columns_ -= n;
  }

  /// Whether a sum is kept as two numbers, because T is narrower than what it was made in.
  static constexpr bool split = !std::is_same_v<T, S>;
  /// c of a head (or of the second set: head + heads()), columns() values and slack.
  [[nodiscard]] const T* line(std::int64_t batch, std::int64_t gate) const noexcept {
    return lines_[static_cast<std::size_t>(batch * gates() + gate)].sums.data();
  }
  /// What rounding to T left of c; nothing where it left nothing.
  [[nodiscard]] const T* rest(std::int64_t batch, std::int64_t gate) const noexcept {
    return lines_[static_cast<std::size_t>(batch * gates() + gate)].rest.data();
  }
  [[nodiscard]] std::int64_t batch() const noexcept { return options_.batch; }
  [[nodiscard]] std::int64_t heads() const noexcept { return options_.heads; }
  [[nodiscard]] bool bidirectional() const noexcept { return options_.bidirectional; }
  [[nodiscard]] std::int64_t gates() const noexcept { return options_.heads * (options_.bidirectional ? 2 : 1); }
  [[nodiscard]] std::int64_t columns() const noexcept { return columns_; }

 private:
  struct held {
    S last;
    std::vector<T> sums;
    std::vector<T> rest;
  };
  forget_options options_;
  std::int64_t columns_ = 0;
  std::vector<held> lines_;
};

/// The part of a policy: the sums, which must outlive it, and the column of the call's first query (columns - queries
/// in a cached step).
template <class T = float>
class forgetting {
 public:
  static constexpr encoder_traits traits{.name = "forgetting",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};

  explicit forgetting(const forget_sums<T>& sums, std::int64_t first_query = 0)
      : sums_(&sums), first_query_(first_query) {
    detail::require(first_query >= 0, "forgetting", "first_query", "must not be negative", first_query);
  }
  explicit forgetting(const forget_sums<T>&& sums, std::int64_t first_query = 0) = delete;

  template <class B, class Keys>
  [[nodiscard]] auto row(const posenc::row& r, const Keys&) const {
    using L = lanes<B>;
    const std::int64_t column = first_query_ + r.query_index;
    if (r.batch >= sums_->batch() || r.head >= sums_->heads() || column >= sums_->columns())
      detail::outside("forgetting", "query", "must be a column of the sums, column", column);
    const slice past = slice_of(r.batch, r.head, column);
    const slice future = sums_->bidirectional() ? slice_of(r.batch, r.head + sums_->heads(), column) : slice{};
    return [past, future, column, end = sums_->columns()](const B& s, std::int64_t k) {
      k = std::min(k, end);
      // Whole batches before the query, whole batches after it, and the one around it.
      if (k + L::size - 1 <= column) return B(s + past.template minus<B>(k));
      const B later = future.sums ? B(-future.template minus<B>(k)) : L::broadcast(T(0));
      if (k > column) return B(s + later);
      const B ahead = L::iota() + L::broadcast(T(static_cast<float>(k - column)));
      return B(s + L::select(L::greater(ahead, L::broadcast(T(0))), later, past.template minus<B>(k)));
    };
  }

  void check(const call& c) const {
    detail::require(c.batch == sums_->batch(), "forgetting", "batch", "must equal that of the sums", c.batch);
    detail::require(c.keys == sums_->columns(), "forgetting", "keys", "must be the columns of the sums", c.keys);
    detail::require(first_query_ + c.queries <= sums_->columns(), "forgetting", "queries",
                    "must be columns of the same sequence from first_query on", c.queries);
  }
  [[nodiscard]] std::int64_t heads() const noexcept { return sums_->heads(); }
  [[nodiscard]] std::int64_t first_query() const noexcept { return first_query_; }

  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = 0,
            .table_bytes = sums_->batch() * sums_->gates() * (sums_->columns() + lane_slack) *
                           static_cast<std::int64_t>(sizeof(T)) * (forget_sums<T>::split ? 2 : 1),
            .monotone = false,
            .shift = cache_shift::keep_keys};
  }

 private:
  /// The sums of one head and the sum at the query's column.
  struct slice {
    const T* sums = nullptr;
    const T* rest = nullptr;
    T here = T(0);
    T here_rest = T(0);

    /// here - c on the lanes from k on. The parts first: where they are close their difference is exact.
    template <class B>
    [[nodiscard]] B minus(std::int64_t k) const {
      using L = lanes<B>;
      if constexpr (forget_sums<T>::split) {
        const B whole = L::broadcast(here) - L::load(sums + k);
        const B small = L::broadcast(here_rest) - L::load(rest + k);
        return B(whole + small);
      } else if constexpr (std::is_same_v<T, typename L::scalar>) {
        return B(L::broadcast(here) - L::load(sums + k));
      } else {
        // Narrower lanes: rounding the sums first would lose the difference.
        T value[L::size];
        for (int i = 0; i < L::size; ++i) value[i] = T(here - sums[k + i]);
        return L::load(static_cast<const T*>(value));
      }
    }
  };
  [[nodiscard]] slice slice_of(std::int64_t batch, std::int64_t gate, std::int64_t column) const {
    slice s{sums_->line(batch, gate), nullptr, T(0), T(0)};
    s.here = s.sums[column];
    if constexpr (forget_sums<T>::split) {
      s.rest = sums_->rest(batch, gate);
      s.here_rest = s.rest[column];
    }
    return s;
  }

  const forget_sums<T>* sums_;
  std::int64_t first_query_;
};

}  // namespace posenc
