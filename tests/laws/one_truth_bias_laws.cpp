// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// One truth however it is called: biases from tables and formulas of the distance.
#include <posenc/encoders/kerple.hpp>
#include <posenc/encoders/relative_bucket.hpp>

#include "laws/one_truth.hpp"

using namespace one_truth;

namespace {

template <class F>
void with_every_encoder(const F& f) {
  const posenc::relative_bucket<float> buckets({.heads = heads, .bidirectional = false},
                                               laws::random_case(4).vector<float>(32 * heads));
  const posenc::kerple<float> kerple({.scale = {0.5f, 1, 0.25f, 2}, .shape = {1, 0.5f, 2, 0.125f}});
  f(encoder{"relative_bucket",
            [&](const posenc::run_time_masks& m) {
              return posenc::run_time_policy<posenc::relative_bucket<float>>{.bias = buckets, .masks = m};
            },
            no_embedding});
  f(encoder{
      "kerple",
      [&](const posenc::run_time_masks& m) { return posenc::compose(kerple, posenc::run_time_policy<>{.masks = m}); },
      no_embedding});
}

}  // namespace

TEST_CASE("law: with a bias by distance, chunks, prefixes, turns and truncation give what a whole prefill gives") {
  with_every_encoder([](const auto& e) { check_one_truth(e); });
}

TEST_CASE("law: with a bias by distance, a turn that restarts at position 0 comes out otherwise") {
  with_every_encoder([](const auto& e) {
    CAPTURE(e.name);
    CHECK(change_by_restart(e) > 0.3);
  });
}
