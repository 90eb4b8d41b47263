// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// One truth however it is called: encodings at the input, rotations and ALiBi. The other files one_truth_* have those
// whose attention is another instantiation.
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/learned.hpp>
#include <posenc/encoders/sinusoidal.hpp>

#include "laws/one_truth.hpp"

using namespace one_truth;

namespace {

constexpr auto plain = [](const posenc::run_time_masks& m) { return posenc::run_time_policy<>{.masks = m}; };

template <class F>
void with_every_encoder(const F& f) {
  const posenc::sinusoidal<float> sinusoidal({.dim = width});
  const posenc::learned<float> learned({.rows = length, .dim = width}, text_of(9, length));
  const posenc::rope<float> rope({.head_dim = dim});
  f(encoder{"sinusoidal", plain, [&](const auto& x, const auto& at) { sinusoidal.embed(x, at); }});
  f(encoder{"learned", plain, [&](const auto& x, const auto& at) { learned.embed(x, at); }});
  f(encoder{"rope",
            [&](const posenc::run_time_masks& m) { return posenc::run_time_policy<>{.masks = m, .rotation = rope}; },
            no_embedding});
  f(encoder{"alibi",
            [](const posenc::run_time_masks& m) {
              return posenc::run_time_policy<posenc::alibi<float>>{.bias = posenc::alibi<float>(heads), .masks = m};
            },
            no_embedding});
}

const encoder without_positions{"nope", plain, no_embedding};

}  // namespace

TEST_CASE("law: chunks, prefixes, turns, truncation and a wide window give what a whole prefill gives") {
  check_one_truth(without_positions);
  with_every_encoder([](const auto& e) { check_one_truth(e); });
}

TEST_CASE("law: a turn that restarts at position 0 over kept keys comes out otherwise, without positions the same") {
  CHECK(change_by_restart(without_positions) <= 2e-6);
  with_every_encoder([](const auto& e) {
    CAPTURE(e.name);
    const double change = change_by_restart(e);
    CHECK(change > 0.3);
  });
}
