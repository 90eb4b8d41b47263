// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// The claims of encoders of the input embedding, beside those of claims_laws.cpp.
#include "laws/claims.hpp"

#include <posenc/encoders/axial.hpp>
#include <posenc/encoders/hierarchical.hpp>
#include <posenc/encoders/scaled_sinusoidal.hpp>
#include <posenc/encoders/tiled.hpp>

using namespace laws;

TEST_CASE("claims: hierarchical, tiled, axial", "[laws][claims]") {
  random_case any(5);
  const auto table = any.vector(16 * width);
  const posenc::hierarchical<double> h({.rows = 16, .dim = width}, table);
  check_claims(h);
  CHECK(h.describe().position_limit == 256);
  check_claims(posenc::tiled<double>({.rows = 16, .dim = width, .length = 300}, table));
  const auto first = any.vector(16 * dim), second = any.vector(16 * dim);
  const posenc::axial<double> a({{16, dim, first}, {16, dim, second}});
  check_claims(a);
  CHECK(a.describe().position_limit == 256);
}

TEST_CASE("claims: scaled_sinusoidal", "[laws][claims]") {
  check_claims(posenc::scaled_sinusoidal<double>({.dim = width}));
}
