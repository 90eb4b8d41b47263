// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// One truth however it is called: relative positions that meet queries, keys and values.
#include <posenc/encoders/deberta.hpp>
#include <posenc/encoders/shaw.hpp>
#include <posenc/encoders/transformer_xl.hpp>

#include "laws/one_truth.hpp"

using namespace one_truth;

namespace {

template <class Part>
auto content(const char* name, Part part) {
  return encoder{name,
                 [part = std::move(part)](const posenc::run_time_masks& m) {
                   return posenc::compose(part, posenc::run_time_policy<>{.masks = m});
                 },
                 no_embedding};
}

template <class F>
void with_every_encoder(const F& f) {
  laws::random_case c(5);
  const auto table = c.vector<float>(33 * dim);
  f(content("shaw", posenc::shaw<float>({.head_dim = dim}, table, table)));
  const auto u = c.vector<float>(heads * dim);
  const auto v = c.vector<float>(heads * dim);
  f(content("transformer_xl",
            posenc::transformer_xl<float>({.heads = heads, .head_dim = dim, .past = length, .future = length}, u, v,
                                          c.vector<float>(heads * dim * 6))));
  const auto rows = c.vector<float>(heads * 2 * 16 * dim);
  f(content("deberta",
            posenc::deberta<float>(
                {.heads = heads, .head_dim = dim, .position_buckets = 16, .max_relative_positions = 100}, rows, rows)));
}

}  // namespace

TEST_CASE("law: with terms of content and distance, every way to the same tokens gives what a whole prefill gives") {
  with_every_encoder([](const auto& e) { check_one_truth(e); });
}

TEST_CASE("law: with terms of content and distance, a turn that restarts at position 0 comes out otherwise") {
  with_every_encoder([](const auto& e) {
    CAPTURE(e.name);
    CHECK(change_by_restart(e) > 0.3);
  });
}
