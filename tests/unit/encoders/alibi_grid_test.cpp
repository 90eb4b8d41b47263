// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/alibi_grid.hpp>

#include <unsupported/Eigen/AutoDiff>

using posenc::grid_metric;
using posenc::positions;
using posenc_test::refusal;

namespace {

/// Coordinates ids[axis * tokens + t], up to `size` from `first` on.
std::vector<std::int64_t> grid(std::int64_t tokens, int axes, std::uint64_t seed, std::int64_t first) {
  posenc_test::random_source any(seed);
  std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens * axes));
  for (auto& id : ids) id = first + any.integer(0, 40);
  return ids;
}
double length(const std::vector<std::int64_t>& q, std::int64_t queries, std::int64_t i,
              const std::vector<std::int64_t>& k, std::int64_t keys, std::int64_t j, int axes, grid_metric metric) {
  double sum = 0;
  for (int a = 0; a < axes; ++a) {
    const auto d =
        static_cast<double>(q[static_cast<std::size_t>(a * queries + i)] - k[static_cast<std::size_t>(a * keys + j)]);
    sum += metric == grid_metric::manhattan ? std::abs(d) : d * d;
  }
  return metric == grid_metric::manhattan ? sum : std::sqrt(sum);
}

}  // namespace

TEMPLATE_TEST_CASE("alibi_grid: distances over one to four axes", "[alibi_grid]", float, double, long double) {
  for (int axes = 1; axes <= 4; ++axes)
    for (const auto metric : {grid_metric::manhattan, grid_metric::euclidean})
      for (const std::int64_t first : {std::int64_t{0}, std::int64_t{-20}, std::int64_t{1} << 50}) {
        const auto q = grid(5, axes, 1, first);
        const auto k = grid(23, axes, 2, first);
        const posenc::alibi_grid<TestType> e{2, metric};
        CHECK(e.metric() == metric);
        std::vector<TestType> bias(2 * 5 * 23);
        posenc::fill_bias(e, 2, positions::axes(q, axes), 5, positions::axes(k, axes), 23, std::span<TestType>(bias));
        posenc_test::worst worst;
        for (std::int64_t h = 0; h < 2; ++h)
          for (std::int64_t i = 0; i < 5; ++i)
            for (std::int64_t j = 0; j < 23; ++j)
              worst.see(std::fabs(static_cast<long double>(bias[static_cast<std::size_t>((h * 5 + i) * 23 + j)]) +
                                  (h == 0 ? 0.0625L : 0x1p-8L) * length(q, 5, i, k, 23, j, axes, metric)));
        CAPTURE(axes, first, worst);
        // Slopes are powers of two, so sums of whole numbers are exact.
        CHECK(worst.error <= (metric == grid_metric::manhattan ? 0 : std::is_same_v<TestType, float> ? 6e-7L : 2e-15L));
      }
}

TEST_CASE("alibi_grid: lanes, batch rows and the tail of a row", "[alibi_grid]") {
  const std::int64_t tokens = 21;
  std::vector<std::int64_t> ids = grid(tokens, 2, 3, 0);
  const auto second = grid(tokens, 2, 4, 1000);
  ids.insert(ids.end(), second.begin(), second.end());
  const auto at = positions::axes(ids, 2, 2);
  const posenc::alibi_grid<float> e{1, grid_metric::manhattan};
  const posenc::call c{.batch = 2,
                       .heads = 1,
                       .kv_heads = 1,
                       .queries = tokens,
                       .keys = tokens,
                       .dim = 0,
                       .value_dim = 0,
                       .query_positions = at,
                       .key_positions = at};
  CHECK(e.workspace_bytes(c) == sizeof(float) * 2 * 2 * (21 + posenc::lane_slack));
  posenc_test::guarded<std::byte> memory(e.workspace_bytes(c));
  const auto bound = e.bind(memory.data(), c);
  CHECK(memory.intact());
  using B = posenc::simd::batch<float>;
  int wrong = 0;
  for (std::int64_t b = 0; b < 2; ++b) {
    const std::vector<std::int64_t> own(ids.begin() + b * 2 * tokens, ids.begin() + (b + 1) * 2 * tokens);
    for (std::int64_t i = 0; i < tokens; ++i) {
      const auto op =
          bound.row<B>({.batch = b, .query_index = i, .query_position = at(b, i)}, posenc::contiguous_keys{});
      for (std::int64_t k = 0; k < tokens; k += posenc::lanes<B>::size) {
        float lane[posenc::lane_slack];
        posenc::lanes<B>::store(lane, op(B(2.0f), k));
        for (std::int64_t j = 0; j < posenc::lanes<B>::size && k + j < tokens; ++j)
          wrong += static_cast<double>(lane[j]) !=
                   2 - length(own, tokens, i, own, tokens, k + j, 2, grid_metric::manhattan) / 256;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("alibi_grid: text stands on every axis, and one axis is plain ALiBi", "[alibi_grid]") {
  const std::vector<std::int64_t> image{3, 3, 4, 10, 11, 10};  // rows, columns
  const posenc::alibi_grid<double> e{1, grid_metric::manhattan};
  std::vector<double> bias(3);
  posenc::fill_bias(e, 1, positions::from(2), 1, positions::axes(image, 2), 3, std::span<double>(bias));
  CHECK(bias == std::vector<double>{-9.0 / 256, -10.0 / 256, -10.0 / 256});
  for (const auto metric : {grid_metric::manhattan, grid_metric::euclidean}) {
    std::vector<double> grid_line(50);
    std::vector<double> line(50);
    posenc::fill_bias(posenc::alibi_grid<double>{1, metric}, 1, positions::from(20), 1, positions::from(0), 50,
                      std::span<double>(grid_line));
    posenc::fill_bias(posenc::alibi<double>{1}, 1, positions::from(20), 1, positions::from(0), 50,
                      std::span<double>(line));
    CHECK(grid_line == line);
  }
}

TEST_CASE("alibi_grid: slopes of any alibi, and derivatives by them", "[alibi_grid]") {
  using dual = Eigen::AutoDiffScalar<Eigen::Vector2d>;
  const std::vector<std::int64_t> at{0, 3, 0, 0, 4, 0};
  const posenc::alibi_grid<dual> e{posenc::alibi<dual>{std::vector<dual>{dual(0.5, 2, 0), dual(2, 2, 1)}}};
  std::vector<dual> bias(2 * 3 * 3);
  posenc::fill_bias(e, 2, positions::axes(at, 2), 3, positions::axes(at, 2), 3, std::span<dual>(bias));
  CHECK(bias[1].value() == -2.5);
  CHECK(bias[1].derivatives() == Eigen::Vector2d(-5, 0));
  CHECK(bias[9 + 1].value() == -10);
  CHECK(bias[9 + 1].derivatives() == Eigen::Vector2d(0, -5));
  CHECK(bias[0].value() == 0);
  CHECK(bias[0].derivatives() == Eigen::Vector2d(0, 0));
  // data2vec 2.0: a learned scale, held at 0.
  const std::vector<double> scale{2, -1};
  const posenc::alibi_grid<double> learned{posenc::alibi<double>{{.heads = 2}, scale}};
  CHECK(learned.slopes() == std::vector<double>{0.125, 0});
  CHECK(learned.describe().parameters == 2);
}

TEST_CASE("alibi_grid: refusals", "[alibi_grid]") {
  CHECK(refusal([] {
          posenc::alibi_grid<float>{posenc::alibi<float>{{1}, posenc::alibi_form::causal}};
        }) == "posenc::alibi_grid: slopes must be of the symmetric form, got another form");
  CHECK(refusal([] { posenc::alibi_grid<float>{0}; }) == "posenc::alibi: heads must be at least 1, got 0");
  // A part that takes one axis alone is refused beside positions of several, a grid is not; a causal mask by position
  // has no meaning there.
  const std::vector<std::int64_t> at{0, 3, 0, 0, 4, 0};
  const posenc::shape s{.tokens = 3, .heads = 1, .dim = 1};
  const std::vector<float> zero(3);
  std::vector<float> out(3);
  const posenc::view<const float> x(zero.data(), s);
  const auto attend = [&](const auto& policy) {
    return refusal([&] {
      posenc::attention_reference(x, x, x, posenc::view<float>(out.data(), s), policy,
                                  {.query_positions = positions::axes(at, 2), .key_positions = positions::axes(at, 2)});
    });
  };
  CHECK(attend(posenc::alibi_grid<float>{1}) == "nothing thrown");
  CHECK(attend(posenc::alibi<float>{1}).find("must have one axis") != std::string::npos);
  CHECK(attend(posenc::compose(posenc::alibi_grid<float>{1}, posenc::causal{})).find("must have one axis") !=
        std::string::npos);
  CHECK(posenc::alibi_grid<float>{8}.describe().table_bytes == 32);
  CHECK(posenc::alibi_grid<float>{8}.describe().monotone);
}
