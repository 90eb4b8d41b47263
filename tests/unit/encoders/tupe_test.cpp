// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/attended.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/bias.hpp>
#include <posenc/encoders/tupe.hpp>

using posenc::positions;
using posenc::view;
using posenc_test::refusal;
using posenc_test::values;

namespace {

constexpr double eps = 1e-5;

struct weights {
  std::vector<double> position, gamma, beta, wq, bq, wk, bk;
  weights(std::int64_t rows, std::int64_t width)
      : position(values<double>(rows * width, 1)),
        gamma(values<double>(width, 2)),
        beta(values<double>(width, 3)),
        wq(values<double>(width * width, 4)),
        bq(values<double>(width, 5)),
        wk(values<double>(width * width, 6)),
        bk(values<double>(width, 7)) {}
  [[nodiscard]] posenc::tupe_weights<double> spans() const { return {position, gamma, beta, wq, bq, wk, bk}; }
};

/// The bias of two positions from the definition, everything made again for each pair.
double expected(const weights& w, std::int64_t heads, std::int64_t head, std::int64_t pq, std::int64_t pk) {
  const auto width = w.gamma.size();
  const std::size_t d = width / static_cast<std::size_t>(heads);
  const auto normal = [&](std::int64_t row) {
    const double* p = w.position.data() + static_cast<std::size_t>(row) * width;
    double mean = 0, square = 0;
    for (std::size_t i = 0; i < width; ++i) mean += p[i] / static_cast<double>(width);
    for (std::size_t i = 0; i < width; ++i) square += (p[i] - mean) * (p[i] - mean) / static_cast<double>(width);
    std::vector<double> y(width);
    for (std::size_t i = 0; i < width; ++i) y[i] = w.gamma[i] * (p[i] - mean) / std::sqrt(square + eps) + w.beta[i];
    return y;
  };
  const auto score = [&](std::int64_t a, std::int64_t b) {
    const auto ya = normal(a);
    const auto yb = normal(b);
    double sum = 0;
    for (std::size_t o = static_cast<std::size_t>(head) * d; o < static_cast<std::size_t>(head + 1) * d; ++o) {
      double q = w.bq[o], k = w.bk[o];
      for (std::size_t i = 0; i < width; ++i) {
        q += w.wq[o * width + i] * ya[i];
        k += w.wk[o * width + i] * yb[i];
      }
      sum += q * k;
    }
    return sum / std::sqrt(2.0 * static_cast<double>(d));
  };
  if (pq == 0) return score(0, 0);
  return pk == 0 ? score(1, 1) : score(pq + 1, pk + 1);
}

}  // namespace

TEST_CASE("tupe: every pair of positions, by rows and with a kept table", "[tupe]") {
  constexpr std::int64_t heads = 2;
  constexpr std::int64_t limit = 40;
  const weights w(limit + 1, 10);
  for (const bool keep : {false, true}) {
    CAPTURE(keep);
    const posenc::tupe<double> e({.heads = heads, .width = 10, .keep_table = keep}, w.spans());
    REQUIRE(e.limit() == limit);
    // Contiguous keys on lanes: from position 0, so that a batch holds the class token, and from later ones.
    double worst = 0;
    for (const std::int64_t first : {0, 1, 7})
      for (const std::int64_t q : {0, 1, 2, 39}) {
        std::vector<double> line(static_cast<std::size_t>(limit - first), 1.0);
        posenc::add_bias_row(e, {.head = 1, .query_position = q}, first, std::span<double>(line));
        for (std::size_t j = 0; j < line.size(); ++j)
          worst =
              std::max(worst, std::abs(line[j] - 1 - expected(w, heads, 1, q, first + static_cast<std::int64_t>(j))));
      }
    CHECK(worst < 1e-13);
    const std::vector<std::int64_t> at{5, 0, 39, 1, 5, 17, 0};
    std::vector<double> bias(2 * 7 * 7);
    posenc::fill_bias<double>(e, 2, positions::listed(at), 7, positions::listed(at), 7, bias);
    worst = 0;
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::size_t i = 0; i < 7; ++i)
        for (std::size_t j = 0; j < 7; ++j)
          worst = std::max(worst, std::abs(bias[(static_cast<std::size_t>(h) * 7 + i) * 7 + j] -
                                           expected(w, heads, h, at[i], at[j])));
    CHECK(worst < 1e-13);
  }
}

TEST_CASE("tupe: attention with both terms over sqrt(2 d), and a cached step", "[tupe]") {
  constexpr std::int64_t tokens = 21;
  constexpr std::int64_t dim = 4;
  const weights w(tokens + 1, 2 * dim);
  const posenc::tupe<double> e({.heads = 2, .width = 2 * dim}, w.spans());
  const auto q = values<double>(tokens * 2 * dim, 1);
  const auto k = values<double>(tokens * 2 * dim, 2);
  const auto v = values<double>(tokens * 2 * dim, 3);
  std::vector<double> out(q.size());
  const posenc::shape s{.tokens = tokens, .heads = 2, .dim = dim};
  posenc::attention(view{q.data(), s}, view{k.data(), s}, view{v.data(), s}, view{out.data(), s}, e,
                    {.scale = 1 / std::sqrt(2.0 * dim)});
  const auto right = posenc_test::attended(
      q, k, v, tokens, dim, [&](std::int64_t, std::int64_t h, std::int64_t i, std::int64_t j, double score) {
        return score / std::sqrt(2.0) + expected(w, 2, h, i, j);  // attended scales by 1 / sqrt(dim)
      });
  CHECK(posenc_test::largest_difference(out, right) < 1e-13);
  // The last token alone, standing at its position.
  std::vector<double> last(2 * dim);
  const posenc::shape one{.tokens = 1, .heads = 2, .dim = dim};
  posenc::attention(view{q.data() + (tokens - 1) * 2 * dim, one}, view{k.data(), s}, view{v.data(), s},
                    view{last.data(), one}, e,
                    {.query_positions = positions::from(tokens - 1), .scale = 1 / std::sqrt(2.0 * dim)});
  CHECK(posenc_test::largest_difference(last, std::vector<double>(out.end() - 2 * dim, out.end())) < 1e-14);
}

// Copies share what the first one made.
static_assert(sizeof(posenc::tupe<double>) == sizeof(std::shared_ptr<int>));

TEST_CASE("tupe: float is rounded once, and the kept table too", "[tupe]") {
  const weights w(9, 6);
  const auto narrow = [](const std::vector<double>& x) { return std::vector<float>(x.begin(), x.end()); };
  const auto p = narrow(w.position), g = narrow(w.gamma), b = narrow(w.beta), wq = narrow(w.wq), bq = narrow(w.bq),
             wk = narrow(w.wk), bk = narrow(w.bk);
  const posenc::tupe<float> e({.heads = 3, .width = 6, .keep_table = true}, {p, g, b, wq, bq, wk, bk});
  weights wide(9, 6);
  wide.position.assign(p.begin(), p.end());
  wide.gamma.assign(g.begin(), g.end());
  wide.beta.assign(b.begin(), b.end());
  wide.wq.assign(wq.begin(), wq.end());
  wide.bq.assign(bq.begin(), bq.end());
  wide.wk.assign(wk.begin(), wk.end());
  wide.bk.assign(bk.begin(), bk.end());
  std::vector<float> bias(3 * 8 * 8);
  posenc::fill_bias<float>(e, 3, {}, 8, {}, 8, bias);
  double worst = 0;
  for (std::int64_t h = 0; h < 3; ++h)
    for (std::int64_t i = 0; i < 8; ++i)
      for (std::int64_t j = 0; j < 8; ++j) {
        const double right = expected(wide, 3, h, i, j);
        worst =
            std::max(worst, std::abs(static_cast<double>(bias[static_cast<std::size_t>((h * 8 + i) * 8 + j)]) - right) /
                                std::max(1e-3, std::abs(right)));
      }
  CHECK(worst <= 6e-8);
}

TEST_CASE("tupe: refusals and description", "[tupe]") {
  const weights w(9, 6);
  const auto make = [&](const posenc::tupe_options& o, posenc::tupe_weights<double> s) {
    return refusal([&] { posenc::tupe<double>(o, s); });
  };
  CHECK(make({.heads = 3, .width = 6}, w.spans()) == "nothing thrown");
  CHECK(make({.heads = 0, .width = 6}, w.spans()) == "posenc::tupe: heads must be at least 1, got 0");
  CHECK(make({.heads = 4, .width = 6}, w.spans()) == "posenc::tupe: width must be a multiple of heads, got 6");
  CHECK(make({.heads = 3, .width = 6, .layer_norm_eps = -1}, w.spans()) ==
        "posenc::tupe: layer_norm_eps must be finite and not negative, got -1");
  auto spans = w.spans();
  spans.position = spans.position.first(6);
  CHECK(make({.heads = 3, .width = 6}, spans) ==
        "posenc::tupe: position must hold at least two rows of width values, got 6");
  spans = w.spans();
  spans.weight_k = spans.weight_k.first(35);
  CHECK(make({.heads = 3, .width = 6}, spans) == "posenc::tupe: weight_k must fit the width, got 35");

  const posenc::tupe<double> e({.heads = 3, .width = 6}, w.spans());
  CHECK(e.describe().position_limit == 8);
  CHECK(e.describe().parameters == 9 * 6 + 4 * 6 + 2 * 36);
  CHECK(e.describe().table_bytes == (9 * 6 + 16 * 6 + posenc::lane_slack + 6) * 8);
  const posenc::tupe<double> kept({.heads = 3, .width = 6, .keep_table = true}, w.spans());
  CHECK(kept.describe().table_bytes == (3 * 8 * 8 + posenc::lane_slack + 6) * 8);
  // The number of the header: 12 heads of 512 tokens in float.
  CHECK(12 * 512 * 512 * 4 == 12 << 20);
  std::vector<double> out(3 * 9);
  CHECK(refusal<std::out_of_range>([&] { posenc::fill_bias<double>(e, 3, {}, 1, {}, 9, out); }) ==
        "posenc::tupe: key positions must lie in 0..7, got 8");
  CHECK(refusal<std::out_of_range>([&] { posenc::fill_bias<double>(e, 3, positions::from(-1), 9, {}, 1, out); }) ==
        "posenc::tupe: query positions must lie in 0..7, got -1");
  CHECK(refusal<std::out_of_range>([&] {
          posenc::add_bias_row(e, {.query_position = 8}, 0, std::span<double>(out).first(3));
        }) == "posenc::tupe: query position must lie in 0..7, got 8");
}
