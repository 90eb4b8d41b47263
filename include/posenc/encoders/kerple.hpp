// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// KERPLE (Chi et al. 2022): learned kernels of the distance t = max(pos_q - pos_k, 0), or |pos_q - pos_k|,
///   kerple          log     bias(h, t) = -r1(h) ln(1 + r2(h) t)
///                   power   bias(h, t) = -a(h) t^p(h), 0 at t = 0
///   kerple_weight   the score is multiplied by exp(-a(h) t^p(h)), 1 at t = 0; stands before kerple in a policy:
///                   compose(kerple_weight<float>{...}, kerple<float>{...}, causal{})
/// Parameters are raised to `parameter_min` and exponents lowered to 2 when the encoder is made, as the authors' code
/// does on every forward pass: straight-through, so an autodiff scalar with an assignable value() keeps its derivative.
/// Domain   every int64 position. Error: evaluated in double for float and double, rounded once to T; one addition.
/// Cost     that of distance_bias; one ln, or one power, per head and distance.
/// Throws   std::invalid_argument for lists of different lengths, and parameters that are not finite.
/// Who uses it  the authors' fork of GPT-NeoX, NeMo.
/// Example  examples/distance_bias_example.cpp

#include <posenc/encoders/distance_bias.hpp>

#include <cmath>
#include <vector>

namespace posenc {

enum class kerple_kernel { log, power };
/// past: later keys have t = 0, as in the authors' causal code. absolute: |pos_q - pos_k|.
enum class kerple_distance { past, absolute };

template <class T = float>
struct kerple_options {
  kerple_kernel kernel = kerple_kernel::log;
  kerple_distance distance = kerple_distance::past;
  /// r1 or a, one per head.
  std::vector<T> scale{};
  /// r2 or p, one per head.
  std::vector<T> shape{};
  double parameter_min = 0.01;
};

namespace detail {

template <class T>
void hold_at(T& x, double value) {
  if constexpr (requires { x.value() = value; }) {
    x.value() = value;
  } else {
    x = T(value);
  }
}

template <class T>
class kerple_parameters {
 public:
  kerple_parameters(const char* name, kerple_options<T> o) : options_(std::move(o)) {
    require(!options_.scale.empty(), name, "scale", "must list one value per head", options_.scale.size());
    require(options_.shape.size() == options_.scale.size(), name, "shape", "must be as long as scale",
            options_.shape.size());
    require(std::isfinite(options_.parameter_min) && options_.parameter_min >= 0 && options_.parameter_min <= 2, name,
            "parameter_min", "must lie in 0..2", options_.parameter_min);
    hold(name, "scale", options_.scale, false);
    hold(name, "shape", options_.shape, options_.kernel == kerple_kernel::power);
  }

  [[nodiscard]] const kerple_options<T>& options() const noexcept { return options_; }
  [[nodiscard]] std::int64_t heads() const noexcept { return static_cast<std::int64_t>(options_.scale.size()); }
  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = 2 * heads(),
            .table_bytes = 2 * heads() * static_cast<std::int64_t>(sizeof(T)),
            .monotone = options_.distance == kerple_distance::absolute,
            .shift = cache_shift::keep_keys};
  }

  /// The bias of a distance key - query, not yet rounded.
  [[nodiscard]] formula_t<T> bias(std::int64_t head, std::int64_t distance) const {
    using W = formula_t<T>;
    using std::exp;
    using std::log;
    std::int64_t t = -distance;
    if (t < 0) t = options_.distance == kerple_distance::absolute ? -t : 0;
    if (t == 0) return W(0);
    const W scale(options_.scale[static_cast<std::size_t>(head)]);
    const W shape(options_.shape[static_cast<std::size_t>(head)]);
    const auto n = static_cast<double>(t);
    if constexpr (std::is_arithmetic_v<W>) {
      if (options_.kernel == kerple_kernel::log) return -scale * std::log1p(shape * W(n));
      return -scale * std::pow(W(n), shape);
    } else {
      if (options_.kernel == kerple_kernel::log) return W(-scale * W(log(W(W(1) + shape * W(n)))));
      return W(-scale * W(exp(W(shape * W(std::log(n))))));
    }
  }

 private:
  void hold(const char* name, const char* list, std::vector<T>& values, bool exponents) const {
    for (T& x : values) {
      require(x == x, name, list, "must hold numbers", "a NaN");
      if constexpr (std::is_arithmetic_v<T>) require(std::isfinite(x), name, list, "must be finite", x);
      if (x < T(options_.parameter_min)) hold_at(x, options_.parameter_min);
      if (exponents && T(2) < x) hold_at(x, 2);
    }
  }

  kerple_options<T> options_;
};

}  // namespace detail

template <class T = float>
class kerple_rule : public detail::kerple_parameters<T> {
 public:
  static constexpr encoder_traits traits{.name = "kerple",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};
  explicit kerple_rule(kerple_options<T> o) : detail::kerple_parameters<T>("kerple", std::move(o)) {}
  [[nodiscard]] T operator()(std::int64_t head, std::int64_t distance) const { return T(this->bias(head, distance)); }
};

template <class T = float>
class kerple_weight_rule : public detail::kerple_parameters<T> {
 public:
  static constexpr bool multiplies = true;
  static constexpr encoder_traits traits{.name = "kerple",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};
  explicit kerple_weight_rule(kerple_options<T> o) : detail::kerple_parameters<T>("kerple_weight", std::move(o)) {
    detail::require(this->options().kernel == kerple_kernel::power, "kerple_weight", "kernel", "must be power", "log");
  }
  [[nodiscard]] T operator()(std::int64_t head, std::int64_t distance) const {
    using std::exp;
    return T(exp(this->bias(head, distance)));
  }
  /// The factor on a score of either sign: no order of preference follows from it.
  [[nodiscard]] encoder_description describe() const {
    encoder_description d = detail::kerple_parameters<T>::describe();
    d.monotone = false;
    return d;
  }
};

/// kerple<float>{{.scale = r1, .shape = r2}}
template <class T = float>
class kerple : public distance_bias<kerple_rule<T>> {
 public:
  explicit kerple(kerple_options<T> o) : distance_bias<kerple_rule<T>>(kerple_rule<T>(std::move(o))) {}
};

/// kerple_weight<float>{{.kernel = kerple_kernel::power, .scale = a, .shape = p}}
template <class T = float>
class kerple_weight : public distance_bias<kerple_weight_rule<T>> {
 public:
  explicit kerple_weight(kerple_options<T> o)
      : distance_bias<kerple_weight_rule<T>>(kerple_weight_rule<T>(std::move(o))) {}
};

}  // namespace posenc
