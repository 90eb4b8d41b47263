// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Dynamic position bias: a small network of the distance, evaluated once per distinct distance,
///   u = pos_q - pos_k, or sign(u) ln(|u| + 1) with `log_distance`;
///   bias(h, u) = (W_n silu(... silu(W_1 u + b_1) ...) + b_n)_h.
/// Shapes   a layer is weight [out, in] row-major and bias [out]; the first has one input, the last one output per
///          head.
/// Domain   every int64 position. Error: evaluated in double for float and double, rounded once to T.
/// Cost     that of distance_bias; one evaluation of the network per distance for all heads together.
/// Throws   std::invalid_argument for layers that do not fit together, are wider than 1024 or are not finite.
/// Who uses it  x-transformers' DynamicPositionBias (without its normalisation), CrossFormer's DPB in one dimension.
/// Example  examples/distance_bias_example.cpp

#include <posenc/encoders/distance_bias.hpp>

#include <array>
#include <cmath>
#include <vector>

namespace posenc {

template <class T = float>
struct dense_layer {
  std::vector<T> weight{};
  std::vector<T> bias{};
};

template <class T = float>
struct dynamic_bias_options {
  /// silu stands between the layers, not behind the last one.
  std::vector<dense_layer<T>> layers{};
  bool log_distance = false;
};

template <class T = float>
class dynamic_bias_rule {
 public:
  static constexpr encoder_traits traits{.name = "dynamic_bias",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::learned,
                                         .translation_invariant = true,
                                         .symmetric = false};
  static constexpr std::size_t max_width = 1024;

  explicit dynamic_bias_rule(dynamic_bias_options<T> o) : options_(std::move(o)) {
    const char* name = "dynamic_bias";
    detail::require(!options_.layers.empty(), name, "layers", "must not be empty", options_.layers.size());
    std::size_t inputs = 1;
    for (const dense_layer<T>& layer : options_.layers) {
      const std::size_t outputs = layer.bias.size();
      detail::require(outputs >= 1 && outputs <= max_width, name, "layers.bias", "must hold 1..1024 values", outputs);
      detail::require(layer.weight.size() == inputs * outputs, name, "layers.weight",
                      "must hold as many values as inputs * outputs", layer.weight.size());
      for (const auto* list : {&layer.weight, &layer.bias})
        for (const T& x : *list) {
          detail::require(x == x, name, "layers", "must hold numbers", "a NaN");
          if constexpr (std::is_arithmetic_v<T>) detail::require(std::isfinite(x), name, "layers", "must be finite", x);
        }
      inputs = outputs;
    }
  }

  /// All heads, as many distances at once as there are lanes of double.
  template <class Arch = simd::default_arch>
  void line(std::int64_t first, std::int64_t n, T* out, std::int64_t stride) const {
    if constexpr (simd_scalar<T>) {
      using B = simd::batch<double, Arch>;
      constexpr std::int64_t width = lanes<B>::size;
      units<B> last;
      for (std::int64_t i = 0; i < n; i += width) {
        double u[width];
        for (std::int64_t j = 0; j < width; ++j) u[j] = input(first + i + j);
        evaluate<B>(lanes<B>::load(u), last);
        for (std::int64_t h = 0; h < heads(); ++h) {
          lanes<B>::store(u, last[static_cast<std::size_t>(h)]);
          for (std::int64_t j = 0; j < std::min(width, n - i); ++j) out[h * stride + i + j] = T(u[j]);
        }
      }
    } else {
      for (std::int64_t h = 0; h < heads(); ++h)
        for (std::int64_t i = 0; i < n; ++i) out[h * stride + i] = (*this)(h, first + i);
    }
  }
  [[nodiscard]] T operator()(std::int64_t head, std::int64_t distance) const {
    units<W> last;
    evaluate<W>(W(input(distance)), last);
    return T(last[static_cast<std::size_t>(head)]);
  }

  [[nodiscard]] const dynamic_bias_options<T>& options() const noexcept { return options_; }
  [[nodiscard]] std::int64_t heads() const noexcept {
    return static_cast<std::int64_t>(options_.layers.back().bias.size());
  }
  [[nodiscard]] encoder_description describe() const {
    std::size_t parameters = 0;
    for (const auto& layer : options_.layers) parameters += layer.weight.size() + layer.bias.size();
    return {.position_limit = std::nullopt,
            .parameters = static_cast<std::int64_t>(parameters),
            .table_bytes = static_cast<std::int64_t>(parameters * sizeof(T)),
            .monotone = false,
            .shift = cache_shift::keep_keys};
  }

 private:
  using W = detail::formula_t<T>;
  /// On the stack for numbers; autodiff scalars may be large or hold memory of their own.
  template <class B>
  using units = std::conditional_t<simd_scalar<T>, std::array<B, max_width>, std::vector<B>>;

  [[nodiscard]] double input(std::int64_t distance) const {
    const auto u = -static_cast<double>(distance);
    return options_.log_distance ? std::copysign(std::log1p(std::abs(u)), u) : u;
  }
  template <class B>
  void evaluate(const B& u, units<B>& to) const {
    units<B> from;
    if constexpr (!simd_scalar<T>) from.resize(1);
    from[0] = u;
    std::size_t inputs = 1;
    for (std::size_t l = 0; l < options_.layers.size(); ++l) {
      if (l != 0) std::swap(from, to);
      const dense_layer<T>& layer = options_.layers[l];
      const std::size_t outputs = layer.bias.size();
      if constexpr (!simd_scalar<T>) to.resize(outputs);
      // Four sums at a time, so that an addition need not wait for the one before it.
      std::size_t o = 0;
      for (; o + 4 <= outputs; o += 4) affine<4>(layer, o, inputs, from, to);
      for (; o < outputs; ++o) affine<1>(layer, o, inputs, from, to);
      if (l + 1 < options_.layers.size())
        for (o = 0; o < outputs; ++o) to[o] = silu(to[o]);
      inputs = outputs;
    }
  }
  template <std::size_t N, class B>
  static void affine(const dense_layer<T>& layer, std::size_t o, std::size_t inputs, const B& from, B& to) {
    using element = typename B::value_type;
    std::array<element, N> sum;
    for (std::size_t n = 0; n < N; ++n) sum[n] = element(W(layer.bias[o + n]));
    for (std::size_t i = 0; i < inputs; ++i)
      for (std::size_t n = 0; n < N; ++n)
        sum[n] = element(sum[n] + element(W(layer.weight[(o + n) * inputs + i])) * from[i]);
    for (std::size_t n = 0; n < N; ++n) to[o + n] = sum[n];
  }
  template <class B>
  static B silu(const B& x) {
    return B(x / B(B(1.0) + lanes<B>::exp(B(-x))));
  }

  dynamic_bias_options<T> options_;
};

/// dynamic_bias<float>{{.layers = {{weight1, bias1}, {weight2, bias2}}, .log_distance = true}}
template <class T = float>
class dynamic_bias : public distance_bias<dynamic_bias_rule<T>> {
 public:
  explicit dynamic_bias(dynamic_bias_options<T> o)
      : distance_bias<dynamic_bias_rule<T>>(dynamic_bias_rule<T>(std::move(o))) {}
};

}  // namespace posenc
