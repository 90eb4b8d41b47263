// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The cross product for absolute encodings beside relative ones, rotations beside biases, and scales that go by the
// number of visible keys.
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include "unit/attention/cross.hpp"

#include <cmath>

using namespace cross;

namespace {

/// The channel of a sinusoidal row: sines and cosines in turn.
double wave(extent position, extent channel) {
  const double angle = static_cast<double>(position) * std::pow(10000.0, -2.0 * static_cast<double>(channel / 2) / dim);
  return channel % 2 == 0 ? std::sin(angle) : std::cos(angle);
}

/// Turns pairs (c, c + dim / 2) of every row by position * 10000^(-2c / dim).
void turn(dense::tensor& x, const std::vector<std::int64_t>& at) {
  for (extent b = 0; b < x.batch; ++b)
    for (extent t = 0; t < x.tokens; ++t)
      for (extent h = 0; h < x.heads; ++h)
        for (extent c = 0; c < x.dim / 2; ++c) {
          const double angle = static_cast<double>(at[static_cast<std::size_t>(t)]) *
                               std::pow(10000.0, -2.0 * static_cast<double>(c) / static_cast<double>(x.dim));
          double& a = x(b, t, h, c);
          double& o = x(b, t, h, c + x.dim / 2);
          const double first = a * std::cos(angle) - o * std::sin(angle);
          o = a * std::sin(angle) + o * std::cos(angle);
          a = first;
        }
}

}  // namespace

TEST_CASE("ALiBi over sinusoidal rows is that of the dense oracle under every mask") {
  const auto model = [](const posenc::run_time_masks& masks) {
    return posenc::compose(posenc::sinusoidal<float>({.dim = dim}), posenc::alibi<float>(heads),
                           posenc::run_time_policy<>{.masks = masks});
  };
  setting s;
  s.bound = 3e-6;
  s.prepare = [&](tensors& t, const where& at) {
    posenc::embed(model({}), t.q.view(), at.query_positions);
    posenc::embed(model({}), t.k.view(), at.key_positions);
  };
  run([&](const posenc::run_time_masks& masks, const where&) { return model(masks); },
      [](dense::content_problem& p, const where& at) {
        for (extent b = 0; b < batch; ++b) {
          for (extent i = 0; i < p.base.q.tokens; ++i)
            for (extent h = 0; h < heads; ++h)
              for (extent c = 0; c < dim; ++c) p.base.q(b, i, h, c) += wave(at.q(i), c);
          for (extent j = 0; j < keys; ++j)
            for (extent h = 0; h < kv_heads; ++h)
              for (extent c = 0; c < dim; ++c) p.base.k(b, j, h, c) += wave(at.k(j), c);
        }
        p.base.logit = [&at](extent, extent h, extent i, extent j, double x) {
          return x - dense::alibi_slope(h, heads) * std::abs(static_cast<double>(at.distance(i, j)));
        };
      },
      s);
}

TEST_CASE("T5 buckets over RoPE are those of the dense oracle under every mask") {
  const std::vector<float> table = numbers(32 * heads, 101);
  const posenc::relative_bucket<float> bias({.heads = heads}, table);
  run(
      [&](const posenc::run_time_masks& masks, const where&) {
        return posenc::run_time_policy<posenc::relative_bucket<float>>{
            .bias = bias, .masks = masks, .rotation = posenc::rope<float>({.head_dim = dim})};
      },
      [&](dense::content_problem& p, const where& at) {
        turn(p.base.q, at.query);
        turn(p.base.k, at.key);
        p.base.logit = [&](extent, extent h, extent i, extent j, double x) {
          const extent bucket = dense::t5_bucket(at.distance(i, j), true, 32, 128);
          return x + static_cast<double>(table[static_cast<std::size_t>(bucket * heads + h)]);
        };
      },
      {.keys = posenc::key_state::unrotated});
}

TEST_CASE("scalable softmax under ALiBi counts the keys that every mask leaves") {
  const std::vector<double> s{0.4, 0.2, 0.6, 0.3}, b{0.1, 0, 0.2, 0};
  const posenc::alibi<float> bias(heads);
  run(
      [&](const posenc::run_time_masks& masks, const where&) {
        return posenc::compose(posenc::ssmax(s, b), bias, posenc::run_time_policy<>{.masks = masks});
      },
      [&](dense::content_problem& p, const where& at) {
        p.base.row_factor = [&, sees = p.base.visible](extent n, extent h, extent i) {
          double visible = 0;
          for (extent j = 0; j < keys; ++j) visible += sees(n, h, i, j) ? 1 : 0;
          const auto head = static_cast<std::size_t>(h);
          return visible == 0 ? 0.0 : s[head] * std::log(visible) + b[head];
        };
        p.base.logit = [&at](extent, extent h, extent i, extent j, double x) {
          return x - dense::alibi_slope(h, heads) * std::abs(static_cast<double>(at.distance(i, j)));
        };
      });
}
