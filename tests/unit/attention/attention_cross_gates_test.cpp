// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The cross product for biases that go by the columns of a call or by absolute positions: forget gates, TUPE, a
// window's table, and a bias behind gates of its own.
#include <posenc/encoders/forgetting.hpp>
#include <posenc/encoders/gated_bias.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/encoders/tupe.hpp>
#include <posenc/encoders/window_bias.hpp>

#include "unit/attention/cross.hpp"

#include <cmath>

using namespace cross;

TEST_CASE("attention with forget gates is that of the dense oracle under every mask") {
  const std::vector<float> gates = numbers(batch * keys * 2 * heads, 61, 3);
  posenc::forget_sums<double> sums({.batch = batch, .heads = heads, .bidirectional = true});
  sums.append(posenc::view<const float>(gates.data(), {.batch = batch, .tokens = keys, .heads = 2 * heads, .dim = 1}));
  // ln sigmoid of every gate between two columns, added up.
  std::vector<double> sum(static_cast<std::size_t>(batch * 2 * heads * keys));
  for (extent b = 0; b < batch; ++b)
    for (extent g = 0; g < 2 * heads; ++g)
      for (extent j = 0; j < keys; ++j) {
        const double before = j == 0 ? 0.0 : sum[static_cast<std::size_t>((b * 2 * heads + g) * keys + j - 1)];
        const auto gate = static_cast<double>(gates[static_cast<std::size_t>((b * keys + j) * 2 * heads + g)]);
        sum[static_cast<std::size_t>((b * 2 * heads + g) * keys + j)] = before - std::log1p(std::exp(-gate));
      }
  run(
      [&](const posenc::run_time_masks& masks, const where& at) {
        return posenc::compose(posenc::forgetting<double>(sums, at.call == kind::decode ? keys - 1 : 0),
                               posenc::run_time_policy<>{.masks = masks});
      },
      [&](dense::content_problem& p, const where& at) {
        p.base.logit = [&](extent b, extent h, extent i, extent j, double x) {
          const extent column = at.call == kind::decode ? keys - 1 : i;
          const auto c = [&](extent g, extent t) {
            return sum[static_cast<std::size_t>((b * 2 * heads + g) * keys + t)];
          };
          return x + (j <= column ? c(h, column) - c(h, j) : c(h + heads, j) - c(h + heads, column));
        };
      },
      {.calls = {kind::prefill, kind::decode}});
}

TEST_CASE("attention with TUPE is that of the dense oracle under every mask") {
  const extent width = 12, rows = 200, d = width / heads;
  const std::vector<float> table = numbers(rows * width, 71), gamma = numbers(width, 72), beta = numbers(width, 73),
                           wq = numbers(width * width, 74), bq = numbers(width, 75), wk = numbers(width * width, 76),
                           bk = numbers(width, 77);
  const posenc::tupe<float> bias(
      {.heads = heads, .width = width},
      {.position = table, .gamma = gamma, .beta = beta, .weight_q = wq, .bias_q = bq, .weight_k = wk, .bias_k = bk});
  // The normalised rows and their projections, [row][channel].
  std::vector<double> q, k;
  for (extent r = 0; r < rows; ++r) {
    std::vector<double> y;
    double mean = 0, variance = 0;
    for (extent c = 0; c < width; ++c) {
      y.push_back(static_cast<double>(table[static_cast<std::size_t>(r * width + c)]));
      mean += y.back() / width;
    }
    for (const double x : y) variance += (x - mean) * (x - mean) / width;
    for (extent c = 0; c < width; ++c) {
      double& x = y[static_cast<std::size_t>(c)];
      x = (x - mean) / std::sqrt(variance + 1e-5) * static_cast<double>(gamma[static_cast<std::size_t>(c)]) +
          static_cast<double>(beta[static_cast<std::size_t>(c)]);
    }
    const auto project = [&](const std::vector<float>& w, const std::vector<float>& b, extent c) {
      double sum = static_cast<double>(b[static_cast<std::size_t>(c)]);
      for (extent i = 0; i < width; ++i)
        sum += static_cast<double>(w[static_cast<std::size_t>(c * width + i)]) * y[static_cast<std::size_t>(i)];
      return sum;
    };
    for (extent c = 0; c < width; ++c) {
      q.push_back(project(wq, bq, c));
      k.push_back(project(wk, bk, c));
    }
  }
  const auto score = [&](extent h, extent a, extent b) {
    double sum = 0;
    for (extent c = h * d; c < (h + 1) * d; ++c)
      sum += q[static_cast<std::size_t>(a * width + c)] * k[static_cast<std::size_t>(b * width + c)];
    return sum / std::sqrt(2.0 * static_cast<double>(d));
  };
  run(beside_masks(bias), adds([&](extent h, extent pq, extent pk) {
        return pq == 0 ? score(h, 0, 0) : pk == 0 ? score(h, 1, 1) : score(h, pq + 1, pk + 1);
      }),
      {.bound = 4e-6, .first_key = 0});
}

TEST_CASE("attention with a window's table is that of the dense oracle under every mask") {
  const std::vector<float> table = numbers((2 * keys - 1) * heads, 81);
  const posenc::window_bias<float> bias({.heads = heads, .window = {.height = 1, .width = keys}}, table);
  run(beside_masks(bias),
      [&](dense::content_problem& p, const where&) {
        p.base.logit = [&](extent, extent h, extent i, extent j, double x) {
          return x + static_cast<double>(table[static_cast<std::size_t>((i - j + keys - 1) * heads + h)]);
        };
      },
      {.calls = {kind::prefill}});
}

TEST_CASE("attention with gated buckets is that of the dense oracle under every mask") {
  const std::vector<float> table = numbers(32 * heads, 91);
  const std::vector<float> gate = numbers(batch * keys * heads, 92, 2);
  const posenc::relative_bucket<float> bias({.heads = heads}, table);
  run(
      [&](const posenc::run_time_masks& masks, const where& at) {
        const posenc::view<const float> gates(
            gate.data(), {.batch = batch, .tokens = static_cast<extent>(at.query.size()), .heads = heads, .dim = 1});
        return posenc::compose(posenc::gated_bias(bias, gates), posenc::run_time_policy<>{.masks = masks});
      },
      [&](dense::content_problem& p, const where& at) {
        p.base.logit = [&](extent b, extent h, extent i, extent j, double x) {
          const auto row = (b * static_cast<extent>(at.query.size()) + i) * heads + h;
          const extent bucket = dense::t5_bucket(at.distance(i, j), true, 32, 128);
          return x + static_cast<double>(gate[static_cast<std::size_t>(row)]) *
                         static_cast<double>(table[static_cast<std::size_t>(bucket * heads + h)]);
        };
      });
}
