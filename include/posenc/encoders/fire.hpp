// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// FIRE (Li et al. 2024): a small network of the distance as a fraction of the query's position,
///   x = ln(|c (pos_q - pos_k)| + 1) / (ln(|c max(pos_q, |threshold_multiplier * threshold|)| + 1) + eps)
///   bias(h, i, j) = (W_2 relu(W_1 x + b_1) + b_2)_h.
/// Shapes   weight1 [m] (one input), bias1 [m], weight2 [heads, m] row-major, bias2 [heads].
/// Conventions  only the query normalises, in the authors' formula and here. Positions are absolute: a cached step
///              gives the true position of its query.
/// Form     relu makes the bias a broken line in x, at most m + 1 pieces, which are found once. With t = ln(|c d| + 1)
///          as a line over the distances of a call, a row is slope * t + intercept on a few stretches of keys; where no
///          query of a call stands beyond the threshold, one finished line per head serves all rows.
/// Domain   every int64 position; where ids lie so far apart that a line does not pay, and for scalars that are no
///          plain numbers, every logit is evaluated.
/// Error    the pieces are formed in double. In float a logit is off by a few roundings of |slope t| + |intercept|.
/// Cost     (heads + 1) * (queries + keys) values of workspace at most; per batch of logits a load and a multiply-add.
/// Throws   std::invalid_argument for lists whose lengths do not fit, parameters that are not finite, eps <= 0.
/// Who uses it  the FIRE paper; models of arithmetic (mcleish7/arithmetic).
/// Example  examples/distance_bias_example.cpp

#include <posenc/encoders/distance_bias.hpp>

#include <cmath>
#include <vector>

namespace posenc {

template <class T = float>
struct fire_options {
  T c = T(0.1);
  T threshold = T(512);
  T threshold_multiplier = T(1);
  double eps = 1e-6;
  std::vector<T> weight1{};
  std::vector<T> bias1{};
  std::vector<T> weight2{};
  std::vector<T> bias2{};
};

namespace detail {

/// The network as a broken line over x >= 0: piece s of a head holds from knot s - 1 to knot s.
class fire_pieces {
 public:
  fire_pieces() = default;
  template <class T>
  explicit fire_pieces(const fire_options<T>& o) : heads_(o.bias2.size()) {
    const std::size_t units = o.bias1.size();
    const auto knot = [&](std::size_t u) { return -double(o.bias1[u]) / double(o.weight1[u]); };
    for (std::size_t u = 0; u < units; ++u)
      if (o.weight1[u] != T(0) && knot(u) > 0) knots_.push_back(knot(u));
    std::sort(knots_.begin(), knots_.end());
    for (std::size_t h = 0; h < heads_; ++h)
      for (std::size_t s = 0; s <= knots_.size(); ++s) {
        double slope = 0;
        double intercept = static_cast<double>(o.bias2[h]);
        for (std::size_t u = 0; u < units; ++u) {
          // Rising units work from their knot on, falling ones up to it.
          const double from = s == 0 ? 0.0 : knots_[s - 1];
          const bool rising = o.weight1[u] > T(0);
          const bool on = o.weight1[u] == T(0) ? o.bias1[u] > T(0) : rising == (knot(u) <= from);
          if (!on) continue;
          slope += double(o.weight2[h * units + u]) * double(o.weight1[u]);
          intercept += double(o.weight2[h * units + u]) * double(o.bias1[u]);
        }
        slope_.push_back(slope);
        intercept_.push_back(intercept);
      }
  }

  [[nodiscard]] std::size_t count() const noexcept { return knots_.size() + 1; }
  [[nodiscard]] const std::vector<double>& knots() const noexcept { return knots_; }
  [[nodiscard]] const double* slopes(std::int64_t head) const noexcept {
    return slope_.data() + static_cast<std::size_t>(head) * count();
  }
  [[nodiscard]] const double* intercepts(std::int64_t head) const noexcept {
    return intercept_.data() + static_cast<std::size_t>(head) * count();
  }
  [[nodiscard]] std::size_t piece(double x) const noexcept {
    return static_cast<std::size_t>(std::upper_bound(knots_.begin(), knots_.end(), x) - knots_.begin());
  }
  [[nodiscard]] double operator()(std::int64_t head, double x) const noexcept {
    const std::size_t s = piece(x);
    return slopes(head)[s] * x + intercepts(head)[s];
  }
  [[nodiscard]] std::size_t bytes() const noexcept {
    return (knots_.size() + slope_.size() + intercept_.size()) * sizeof(double);
  }

 private:
  std::size_t heads_ = 0;
  std::vector<double> knots_;
  std::vector<double> slope_;
  std::vector<double> intercept_;
};

}  // namespace detail

template <class T = float>
class fire {
 public:
  static constexpr encoder_traits traits{.name = "fire",
                                         .site = site::logit,
                                         .relation = relation::absolute,
                                         .origin = origin::learned,
                                         .translation_invariant = false,
                                         .symmetric = true};

  explicit fire(fire_options<T> o) : options_(checked(std::move(o))) {
    if constexpr (simd_scalar<T>) pieces_ = detail::fire_pieces(options_);
  }

  /// The bias of one pair.
  [[nodiscard]] T operator()(std::int64_t head, std::int64_t query_position, std::int64_t key_position) const {
    return of_distance(head, position_difference(key_position, query_position), normalizer(query_position));
  }

  /// What the hooks read.
  struct bound {
    const fire* owner;
    const T* line;  // null: evaluate per logit
    bool finished;  // a line of biases per head, or one line of t
    std::int64_t lo;
    std::int64_t length;

    template <class B, class Keys>
    [[nodiscard]] auto row(const posenc::row& r, const Keys& keys) const {
      if constexpr (Keys::contiguous && simd_scalar<T>) {
        return row_op<B>(*this, r, position_difference(keys.first, r.query_position));
      } else {
        return [self = *this, keys, r, n = owner->normalizer(r.query_position)](const B& s, std::int64_t k) {
          T value[lanes<B>::size];
          for (int i = 0; i < lanes<B>::size; ++i)
            value[i] = self.value(r.head, position_difference(keys.position(k + i), r.query_position), n);
          return B(s + lanes<B>::load(value));
        };
      }
    }
    [[nodiscard]] T value(std::int64_t head, std::int64_t distance, const detail::formula_t<T>& normalizer) const {
      if constexpr (simd_scalar<T>) {
        if (line && finished) return line[head * length + distance - lo];
        if (line) return T(owner->pieces_(head, double(line[distance - lo]) / normalizer));
      }
      return owner->of_distance(head, distance, normalizer);
    }
  };

  [[nodiscard]] std::size_t workspace_bytes(const call& c) const {
    const detail::distance_range range(c);
    if (!simd_scalar<T> || !range.worth_a_line(c)) return 0;
    const std::int64_t lines = constant_normalizer(c) ? heads() : 1;
    return static_cast<std::size_t>(lines * (range.size() + lane_slack)) * sizeof(T);
  }
  [[nodiscard]] bound bind(std::byte* memory, const call& c) const {
    const detail::distance_range range(c);
    if constexpr (simd_scalar<T>) {
      if (range.worth_a_line(c)) {
        const std::int64_t length = range.size() + lane_slack;
        const bool finished = constant_normalizer(c);
        T* line = reinterpret_cast<T*>(memory);
        const double n = finished ? normalizer(c.query_positions(0, 0)) : 1.0;
        for (std::int64_t i = 0; i < length; ++i) {
          const double t = logarithm(std::min(range.lo + i, range.hi));
          if (!finished) line[i] = T(t);
          for (std::int64_t h = 0; finished && h < heads(); ++h) line[h * length + i] = T(pieces_(h, t / n));
        }
        return {this, line, finished, range.lo, length};
      }
    }
    return {this, nullptr, false, 0, 0};
  }

  [[nodiscard]] const fire_options<T>& options() const noexcept { return options_; }
  [[nodiscard]] std::int64_t heads() const noexcept { return static_cast<std::int64_t>(options_.bias2.size()); }
  [[nodiscard]] encoder_description describe() const {
    const std::size_t network =
        options_.weight1.size() + options_.bias1.size() + options_.weight2.size() + options_.bias2.size();
    return {.position_limit = std::nullopt,
            .parameters = static_cast<std::int64_t>(network) + 2,  // c and threshold_multiplier
            .table_bytes = static_cast<std::int64_t>(network * sizeof(T) + pieces_.bytes()),
            .monotone = false,
            .shift = cache_shift::keep_keys};
  }

 private:
  using W = detail::formula_t<T>;

  /// A row of contiguous keys. Lanes whose t lies between two knots share a slope and an intercept; `here_` keeps the
  /// stretch of the last batch, since the next one mostly lies in it too. The op of a row belongs to one thread.
  template <class B>
  class row_op {
   public:
    row_op(const bound& from, const posenc::row& r, std::int64_t start)
        : owner_(from.owner), head_(r.head), start_(start), normalizer_(from.owner->normalizer(r.query_position)) {
      if (from.line) first_key_ = from.line + (from.finished ? r.head * from.length : 0) + (start - from.lo);
      constexpr T all = std::numeric_limits<T>::infinity();  // a finished line is one stretch: 1 * value + 0
      if (from.finished) here_ = {0, L::broadcast(-all), L::broadcast(all), L::broadcast(1), L::broadcast(0)};
    }
    POSENC_ALWAYS_INLINE B operator()(const B& s, std::int64_t k) const {
      if (!first_key_) [[unlikely]]
        return B(s + each(*owner_, head_, start_ + k, normalizer_));
      const B t = L::load(first_key_ + k);
      if (L::any(L::greater(here_.lo, t) || L::greater(t, here_.hi))) [[unlikely]] {
        const auto [bias, there] = elsewhere(owner_->pieces_, head_, normalizer_, start_ + k, first_key_ + k, here_);
        here_ = there;
        return B(s + bias);
      }
      return B(s + (here_.slope * t + here_.intercept));
    }

   private:
    using L = lanes<B>;
    struct stretch {
      std::size_t piece = 0;
      B lo = L::broadcast(1);
      B hi = L::broadcast(0);
      B slope = L::broadcast(0);
      B intercept = L::broadcast(0);
    };
    struct moved {
      B bias;
      stretch here;
    };

    // What follows takes values, not this object, whose members can stay in registers then.

    /// A batch outside the stretch: to the piece of its least t, and lane by lane to the pieces above.
    static moved elsewhere(const detail::fire_pieces& pieces, std::int64_t head, double normalizer, std::int64_t d,
                           const T* key, stretch here) {
      constexpr int last = L::size - 1;
      // A knot as t, rounded to T: pieces meet there, so a step of T to either side changes nothing beyond rounding.
      const auto border = [&](std::size_t i) { return T(pieces.knots()[i] * normalizer); };
      const double* slope = pieces.slopes(head);
      const double* intercept = pieces.intercepts(head);
      const double inverse = 1 / normalizer;
      // t falls up to distance 0 and rises from there.
      const T low = d < 0 && d + last > 0 ? T(0) : std::min(key[0], key[last]);
      const T high = std::max(key[0], key[last]);
      std::size_t i = here.piece;
      while (i > 0 && low < border(i - 1)) --i;
      while (i + 1 < pieces.count() && low >= border(i)) ++i;
      B a = L::broadcast(slope[i] * inverse);
      B b = L::broadcast(intercept[i]);
      const B t = L::load(key);
      if (i + 1 == pieces.count() || high <= border(i)) {
        here = {i, L::broadcast(i == 0 ? T(0) : border(i - 1)),
                L::broadcast(i + 1 == pieces.count() ? std::numeric_limits<T>::infinity() : border(i)), a, b};
      } else {
        for (; i + 1 < pieces.count() && high > border(i); ++i) {
          const auto above = L::greater(t, L::broadcast(border(i)));
          a = L::select(above, L::broadcast(slope[i + 1] * inverse), a);
          b = L::select(above, L::broadcast(intercept[i + 1]), b);
        }
        here.piece = i;
      }
      return {B(a * t + b), here};
    }
    static B each(const fire& owner, std::int64_t head, std::int64_t d, double normalizer) {
      T value[L::size];
      for (int i = 0; i < L::size; ++i) value[i] = owner.of_distance(head, d + i, normalizer);
      return L::load(value);
    }

    const fire* owner_;
    std::int64_t head_;
    std::int64_t start_;
    double normalizer_;
    const T* first_key_ = nullptr;
    mutable stretch here_{};
  };

  static fire_options<T> checked(fire_options<T> o) {
    detail::require(!o.bias2.empty(), "fire", "bias2", "must list one value per head", o.bias2.size());
    detail::require(!o.bias1.empty(), "fire", "bias1", "must list one value per hidden unit", o.bias1.size());
    detail::require(o.weight1.size() == o.bias1.size(), "fire", "weight1", "must be as long as bias1",
                    o.weight1.size());
    detail::require(o.weight2.size() == o.bias1.size() * o.bias2.size(), "fire", "weight2",
                    "must hold heads * hidden units values", o.weight2.size());
    detail::require(std::isfinite(o.eps) && o.eps > 0, "fire", "eps", "must be positive and finite", o.eps);
    const auto number = [](const char* name, const T& x) {
      detail::require(x == x, "fire", name, "must hold numbers", "a NaN");
      if constexpr (std::is_arithmetic_v<T>) detail::require(std::isfinite(x), "fire", name, "must be finite", x);
    };
    number("c", o.c);
    number("threshold", o.threshold);
    number("threshold_multiplier", o.threshold_multiplier);
    for (const T& x : o.weight1) number("weight1", x);
    for (const T& x : o.bias1) number("bias1", x);
    for (const T& x : o.weight2) number("weight2", x);
    for (const T& x : o.bias2) number("bias2", x);
    return o;
  }

  [[nodiscard]] W limit() const {
    using std::abs;
    return W(abs(W(W(options_.threshold_multiplier) * W(options_.threshold))));
  }
  /// ln(|c n| + 1).
  template <class N>
  [[nodiscard]] W logarithm(const N& n) const {
    using std::abs;
    using std::log;
    const W x = W(abs(W(W(options_.c) * W(n))));
    if constexpr (std::is_arithmetic_v<W>) {
      return std::log1p(x);
    } else {
      return W(log(W(x + W(1))));
    }
  }
  [[nodiscard]] W normalizer(std::int64_t query_position) const {
    const W at(static_cast<double>(query_position));
    const W least = limit();
    return W(logarithm(at > least ? at : least) + W(options_.eps));
  }
  [[nodiscard]] T of_distance(std::int64_t head, std::int64_t distance, const W& normalizer) const {
    const W x = W(logarithm(static_cast<double>(distance)) / normalizer);
    if constexpr (simd_scalar<T>) {
      return T(pieces_(head, x));
    } else {
      const std::size_t units = options_.bias1.size();
      const auto h = static_cast<std::size_t>(head);
      W sum(options_.bias2[h]);
      for (std::size_t u = 0; u < units; ++u) {
        const W z = W(W(options_.weight1[u]) * x + W(options_.bias1[u]));
        if (z > W(0)) sum = W(sum + W(options_.weight2[h * units + u]) * z);
      }
      return T(sum);
    }
  }
  /// Whether no query of the call stands beyond the threshold.
  [[nodiscard]] bool constant_normalizer(const call& c) const {
    if constexpr (simd_scalar<T>) {
      const double least = limit();
      for (std::int64_t b = 0; b < c.batch; ++b)
        for (std::int64_t i = c.query_positions.contiguous() ? c.queries - 1 : 0; i < c.queries; ++i)
          if (static_cast<double>(c.query_positions(b, i)) > least) return false;
    }
    return true;
  }

  fire_options<T> options_;
  detail::fire_pieces pieces_;
};

}  // namespace posenc
