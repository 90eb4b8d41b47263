// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/scaled_sinusoidal.hpp>

#include <unsupported/Eigen/AutoDiff>

using posenc::positions;
using posenc::scaled_sinusoidal;
using posenc_test::refusal;
using posenc_test::values;

TEST_CASE("scaled_sinusoidal: the sinusoid times the scale of the moment", "[scaled_sinusoidal]") {
  const posenc::sinusoidal_options o{.dim = 9, .layout = posenc::sinusoidal_layout::concat_sin_cos, .start = 1};
  const auto plain = posenc::sinusoidal<double>{o}.table(-3, 5);
  scaled_sinusoidal<double> e{o};
  CHECK(e.dim() == 9);
  CHECK(e.scale() == 1.0 / 3);
  for (const double scale : {1.0 / 3, -0.7, 0.0}) {
    e.scale() = scale;
    std::vector<double> rows(45, 99.0);
    e.table(posenc::view{rows.data(), {.tokens = 5, .dim = 9}}, positions::from(-3));
    std::size_t different = 0;
    for (std::size_t i = 0; i < 45; ++i) different += rows[i] != scale * plain[i];
    CHECK(different == 0);
  }
  // Of x-transformers: rows of norm 1 / sqrt(2).
  const scaled_sinusoidal<double> even{{.dim = 64}};
  std::vector<double> row(64);
  even.table(posenc::view{row.data(), {.tokens = 1, .dim = 64}}, positions::from(37));
  double norm = 0;
  for (const double v : row) norm += v * v;
  CHECK(std::abs(norm - 0.5) < 1e-15);
  CHECK(even.describe().parameters == 1);
  CHECK(even.rows().dim() == 64);
}

TEST_CASE("scaled_sinusoidal: embed in every head, real positions, one rounding", "[scaled_sinusoidal]") {
  const scaled_sinusoidal<float> e{{.dim = 6}, 0.3f};
  const posenc::shape s{.batch = 2, .tokens = 2, .heads = 2, .dim = 6};
  const auto x = values<float>(s.elements());
  const std::vector<std::int64_t> ids{4, 0, 9, 2};
  auto sum = x;
  std::vector<float> rows(x.size(), 99.0f);
  e.embed(posenc::view{sum.data(), s}, positions::listed(ids, 2));
  e.table(posenc::view{rows.data(), s}, positions::listed(ids, 2));
  std::size_t different = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    different += sum[i] != x[i] + rows[i];
    const auto exact = posenc::sinusoidal<double>{{.dim = 6}}.table(ids[i / 12], 1)[i % 6];
    different += rows[i] != static_cast<float>(static_cast<double>(0.3f) * exact);
  }
  CHECK(different == 0);
  const std::vector<double> at{0.5, -1.25};
  std::vector<float> real_rows(12);
  std::vector<float> real_sum(12, 0.0f);
  e.table(posenc::view{real_rows.data(), {.tokens = 2, .dim = 6}}, posenc::real_positions{at});
  e.embed(posenc::view{real_sum.data(), {.tokens = 2, .dim = 6}}, posenc::real_positions{at});
  CHECK(real_rows == real_sum);
  CHECK(real_rows[6] == static_cast<float>(static_cast<double>(0.3f) * std::sin(-1.25)));
}

TEST_CASE("scaled_sinusoidal: the derivative by the scale is the row", "[scaled_sinusoidal]") {
  using dual = Eigen::AutoDiffScalar<Eigen::Vector2d>;
  const scaled_sinusoidal<dual> e{{.dim = 5}, dual(0.25, 2, 0)};
  std::vector<dual> x(5, dual(0.5, 2, 1));
  e.embed(posenc::view{x.data(), {.tokens = 1, .dim = 5}}, positions::from(3));
  const auto row = posenc::sinusoidal<double>{{.dim = 5}}.table(3, 1);
  for (std::size_t d = 0; d < 5; ++d) {
    CHECK(x[d].value() == 0.5 + 0.25 * row[d]);
    CHECK(x[d].derivatives() == Eigen::Vector2d(row[d], 1));
  }
}

TEST_CASE("scaled_sinusoidal refuses before it writes", "[scaled_sinusoidal]") {
  CHECK(refusal([] { scaled_sinusoidal<float>{{.dim = 0}}; }) == "posenc::sinusoidal: dim must be at least 1, got 0");
  const scaled_sinusoidal<float> e{{.dim = 4}};
  auto x = values<float>(8);
  const auto before = x;
  const posenc::view v{x.data(), {.tokens = 2, .dim = 4}};
  CHECK(refusal([&] {
          e.embed(posenc::view{x.data(), {.tokens = 2, .dim = 3}});
        }) == "posenc::scaled_sinusoidal::embed: dim must equal the encoder's, got 3");
  const std::vector<double> reals{1, HUGE_VAL};
  CHECK(refusal([&] { e.table(v, posenc::real_positions{reals}); }).find("positions must be finite") !=
        std::string::npos);
  CHECK(x == before);
}
