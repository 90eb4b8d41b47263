// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Sandwich (Chi et al. 2023): what dot products of sinusoidal rows leave of the distance d = pos_k - pos_q,
///   bias(h, d) = (sum_m cos(d base^(-2m / dim)) - subtract) / (8 (h + 1) / heads),
///   m = first_index .. first_index + dim / 2 - 1.
/// Conventions  `dim` is the paper's constant 128, not the head dimension. The paper counts m from 0; NeMo from 1 with
///              dim the head dimension, and subtracts dim / 2, which softmax does not see.
/// Domain   every int64 position. Error: phases are exact (math/angle.hpp), the sum of cosines is formed in double and
///          rounded once to T.
/// Cost     that of distance_bias; dim / 2 cosines per distance for all heads together, half of them where the range of
///          distances is symmetric. No parameters.
/// Throws   std::invalid_argument for impossible options.
/// Who uses it  NeMo; the paper's models.
/// Example  examples/distance_bias_example.cpp

#include <posenc/encoders/distance_bias.hpp>
#include <posenc/kernels/cos_sin.hpp>
#include <posenc/math/frequencies.hpp>

#include <cmath>
#include <vector>

namespace posenc {

struct sandwich_options {
  std::int64_t heads = 0;
  /// Twice the number of cosines.
  std::int64_t dim = 128;
  double base = 10000;
  /// 0 in the paper, 1 in NeMo.
  std::int64_t first_index = 0;
  /// dim / 2 in NeMo.
  double subtract = 0;
};

template <class T = float>
class sandwich_rule {
 public:
  static constexpr encoder_traits traits{.name = "sandwich",
                                         .site = site::logit,
                                         .relation = relation::relative,
                                         .origin = origin::designed,
                                         .translation_invariant = true,
                                         .symmetric = true};

  explicit sandwich_rule(const sandwich_options& o) : options_(o) {
    detail::require(o.heads >= 1, "sandwich", "heads", "must be at least 1", o.heads);
    detail::require(o.dim >= 2 && o.dim % 2 == 0 && o.dim <= (std::int64_t{1} << 20), "sandwich", "dim",
                    "must be even and lie in 2..2^20", o.dim);
    detail::require(std::isfinite(o.base) && o.base > 0, "sandwich", "base", "must be positive and finite", o.base);
    detail::require(o.first_index >= 0 && o.first_index <= (std::int64_t{1} << 20), "sandwich", "first_index",
                    "must lie in 0..2^20", o.first_index);
    detail::require(std::isfinite(o.subtract), "sandwich", "subtract", "must be finite", o.subtract);
    const auto all = math::ladder(o.base, o.first_index + o.dim / 2, static_cast<double>(o.dim) / 2);
    for (auto f = all.begin() + o.first_index; f != all.end(); ++f) steps_.emplace_back(*f);
  }

  /// Every head, the cosines on lanes: within dim / 2 * 2^-52 of the sum of one head alone.
  template <class Arch = simd::default_arch>
  void line(std::int64_t first, std::int64_t n, T* out, std::int64_t stride) const {
    for (std::int64_t i = 0; i < n; ++i) {
      const double sum = cosines<Arch>(first + i);
      for (std::int64_t h = 0; h < heads(); ++h) out[h * stride + i] = T(of_head(h, sum));
    }
  }
  [[nodiscard]] T operator()(std::int64_t head, std::int64_t distance) const {
    double sum = 0;
    for (const math::turns& step : steps_) sum += math::cos_sin(math::phase(step, magnitude(distance))).cos;
    return T(of_head(head, sum));
  }

  [[nodiscard]] const sandwich_options& options() const noexcept { return options_; }
  [[nodiscard]] std::int64_t heads() const noexcept { return options_.heads; }
  [[nodiscard]] encoder_description describe() const {
    return {.position_limit = std::nullopt,
            .parameters = 0,
            .table_bytes = static_cast<std::int64_t>(steps_.size() * sizeof(math::turns)),
            .monotone = false,
            .shift = cache_shift::keep_keys};
  }

 private:
  /// Both signs give the same bits.
  static std::int64_t magnitude(std::int64_t distance) noexcept { return distance < 0 ? -distance : distance; }
  template <class Arch>
  [[nodiscard]] double cosines(std::int64_t distance) const {
    constexpr std::int64_t block = 64;
    alignas(64) double cosine[block];
    alignas(64) double sine[block];
    const auto n = static_cast<std::int64_t>(steps_.size());
    double sum = 0;
    for (std::int64_t i = 0; i < n; i += block) {
      const std::int64_t count = std::min(block, n - i);
      kernels::cos_sin_row<Arch, kernels::row_form::separate>(steps_.data() + i, count, magnitude(distance), 1.0, 1.0,
                                                              cosine, sine);
      for (std::int64_t m = 0; m < count; ++m) sum += cosine[m];
    }
    return sum;
  }
  [[nodiscard]] double of_head(std::int64_t head, double sum) const {
    return (sum - options_.subtract) / (8 * static_cast<double>(head + 1) / static_cast<double>(heads()));
  }

  sandwich_options options_;
  std::vector<math::turns> steps_;
};

/// sandwich<float>{{.heads = 8}}
template <class T = float>
class sandwich : public distance_bias<sandwich_rule<T>> {
 public:
  explicit sandwich(const sandwich_options& o) : distance_bias<sandwich_rule<T>>(sandwich_rule<T>(o)) {}
};

}  // namespace posenc
