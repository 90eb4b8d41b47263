// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Every bias under every mask, for every order of the keys and every kind of call, against the dense oracle: no bias
// and the two best known ones here, as the bias of run_time_policy; the other families in files of their own.
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/relative_bucket.hpp>

#include "unit/attention/cross.hpp"

using namespace cross;

namespace {

template <class Bias>
auto as_bias(const Bias& bias) {
  return [&bias](const posenc::run_time_masks& masks, const where&) {
    return posenc::run_time_policy<Bias>{.bias = bias, .masks = masks};
  };
}

}  // namespace

TEST_CASE("attention without a bias is that of the dense oracle under every mask") {
  const posenc::nope none;
  run(as_bias(none), [](dense::content_problem&, const where&) {});
}

TEST_CASE("attention with ALiBi is that of the dense oracle under every mask") {
  const posenc::alibi<float> bias(heads);
  run(as_bias(bias), adds([](extent h, extent q, extent k) {
        return -dense::alibi_slope(h, heads) * std::abs(static_cast<double>(k - q));
      }));
}

TEST_CASE("attention with T5 buckets is that of the dense oracle under every mask") {
  const std::vector<float> table = numbers(32 * heads, 8);
  const posenc::relative_bucket<float> bias({.heads = heads}, table);
  run(as_bias(bias), adds([&](extent h, extent q, extent k) {
        return table[static_cast<std::size_t>(dense::t5_bucket(k - q, true, 32, 128) * heads + h)];
      }));
}
