// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/encoders/transformer_xl.hpp>

#include "support/catch.hpp"
#include "unit/encoders/content_case.hpp"

#include <cmath>

namespace {

using dense::extent;

/// e(r): sines of r 10000^(-2m/D), then cosines; or in turn.
double sinusoid(extent r, extent model, extent column, bool interleaved) {
  const extent half = model / 2;
  const extent m = interleaved ? column / 2 : column % half;
  const bool sine = interleaved ? column % 2 == 0 : column < half;
  const double angle = static_cast<double>(r) * std::pow(10000.0, -static_cast<double>(m) / static_cast<double>(half));
  return sine ? std::sin(angle) : std::cos(angle);
}

template <class C>
void check(const content_case::sizes& s, bool interleaved, extent clamp) {
  constexpr extent model = 12;
  std::mt19937 random(5);
  const auto u = posenc_test::random_stored<C>(random, {1, 1, s.heads, s.dim});
  const auto v = posenc_test::random_stored<C>(random, {1, 1, s.heads, s.dim});
  const auto w = posenc_test::random_stored<C>(random, {1, s.heads, s.dim, model});
  const posenc::transformer_xl<C> encoder({.heads = s.heads,
                                           .head_dim = s.dim,
                                           .past = clamp > 0 ? clamp : s.first_query + s.queries - 1 - s.first_key,
                                           .future = clamp > 0 ? clamp : s.first_key + s.keys - 1 - s.first_query,
                                           .clamp_distance = clamp > 0,
                                           .layout = interleaved ? posenc::sinusoidal_layout::interleaved_sin_cos
                                                                 : posenc::sinusoidal_layout::concat_sin_cos},
                                          u.data, v.data, w.data);
  content_case::check<C>(
      s, encoder,
      [&](extent h, extent, extent, const double* q, const double* k, extent distance) {
        double sum = 0;
        extent r = -distance;
        if (clamp > 0) r = std::clamp(r, -clamp, clamp);
        for (extent d = 0; d < s.dim; ++d) {
          const auto at = static_cast<std::size_t>(h * s.dim + d);
          double row = 0;
          for (extent m = 0; m < model; ++m)
            row += static_cast<double>(w.data[at * model + static_cast<std::size_t>(m)]) *
                   sinusoid(r, model, m, interleaved);
          sum += static_cast<double>(u.data[at]) * k[d] + (q[d] + static_cast<double>(v.data[at])) * row;
        }
        return sum;
      },
      std::same_as<C, float> ? 4e-6 : 1e-12);
}

}  // namespace

TEMPLATE_TEST_CASE("Transformer-XL's scores are those of the definition", "", float, double) {
  check<TestType>({.heads = 4, .kv_heads = 2, .queries = 140, .keys = 140}, false, 0);
  check<TestType>({.heads = 2, .kv_heads = 2, .queries = 30, .keys = 160, .first_query = 130, .dim = 10}, true, 0);
  check<TestType>({.heads = 2, .kv_heads = 1, .queries = 100, .keys = 131, .first_key = -7}, false, 40);
  check<TestType>({.heads = 3, .kv_heads = 3, .queries = 1, .keys = 140, .first_query = 139, .dim = 5}, false, 0);
}

TEST_CASE("learned rows stand in the order of the distance from query to key") {
  // One head of one channel: R(r) = r.
  std::vector<double> rows;
  for (int r = -2; r <= 3; ++r) rows.push_back(r);
  const std::vector<double> zero{0};
  const auto encoder =
      posenc::transformer_xl<double>::from_rows({.heads = 1, .head_dim = 1, .past = 3, .future = 2}, zero, zero, rows);
  std::vector<double> q(4, 1.0), k(4, 0.0), out(4), logits(16);
  const posenc::shape s{.tokens = 4, .dim = 1};
  // Distances beyond future 2 are refused.
  CHECK_THROWS_AS(posenc::attention_reference(posenc::view(q.data(), s), posenc::view(k.data(), s),
                                              posenc::view(k.data(), s), posenc::view(out.data(), s), encoder, {}),
                  std::out_of_range);
  const posenc::shape three{.tokens = 3, .dim = 1};
  posenc::attention_reference(posenc::view(q.data(), three), posenc::view(k.data(), three),
                              posenc::view(k.data(), three), posenc::view(out.data(), three), encoder,
                              {.scale = 1.0, .logits = posenc::view(logits.data(), {.tokens = 3, .dim = 3})});
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 3; ++j) CHECK(logits[3 * i + j] == static_cast<double>(i) - static_cast<double>(j));
  CHECK(posenc::relative_column(5, 2, 7) == 4);
}

TEST_CASE("transformer_xl refuses options and sizes that do not fit") {
  using posenc::transformer_xl;
  const std::vector<float> n(8), w(8 * 6);
  CHECK_THROWS_AS(transformer_xl<float>({.heads = 2, .head_dim = 4, .past = -1}, n, n, w), std::invalid_argument);
  CHECK_THROWS_AS(transformer_xl<float>({.heads = 2, .head_dim = 4, .past = 3}, std::vector<float>(7), n, w),
                  std::invalid_argument);
  CHECK_THROWS_AS(transformer_xl<float>({.heads = 2, .head_dim = 4, .past = 3}, n, n, std::vector<float>(9)),
                  std::invalid_argument);
  CHECK_THROWS_AS(transformer_xl<float>::from_rows({.heads = 2, .head_dim = 4, .past = 3}, n, n, n),
                  std::invalid_argument);
}
