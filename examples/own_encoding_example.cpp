// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// An encoding of one's own: a value type with the hook it needs.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

// [encoder]
/// Adds strength * exp(-|distance| / reach): near keys are preferred, far ones are treated alike.
struct near_bias {
  double strength;
  double reach;

  template <class B, class Keys>
  auto row(const posenc::row& r, const Keys& keys) const {
    using L = posenc::lanes<B>;
    return [keys, r, a = L::broadcast(strength), b = L::broadcast(-1 / reach)](const B& s, std::int64_t k) {
      return B(s + a * L::exp(B(b * L::abs(posenc::distance<B>(keys, r, k)))));
    };
  }
};
// [/encoder]

int main() {
  bool good = true;
  constexpr std::int64_t tokens = 50;
  std::vector<float> q(tokens * 8, 0.0f);
  std::vector<float> v(tokens * 8, 0.0f);
  std::vector<float> out(tokens * 8);
  const posenc::shape shape{.tokens = tokens, .dim = 8};
  const posenc::view queries{q.data(), shape};
  const posenc::view values{v.data(), shape};
  const posenc::view result{out.data(), shape};
  values(0, 20, 0, 0) = 1;

  // [use]
  posenc::attention(queries, queries, values, result, posenc::compose(near_bias{2, 5}, posenc::causal{}));
  // [/use]
  for (std::int64_t i = 0; i < tokens; ++i) {
    double total = 0;
    for (std::int64_t j = 0; j <= i; ++j) total += std::exp(2 * std::exp(-static_cast<double>(i - j) / 5));
    const double expected = i < 20 ? 0 : std::exp(2 * std::exp(-static_cast<double>(i - 20) / 5)) / total;
    good = good && std::abs(static_cast<double>(result(0, i, 0, 0)) - expected) < 1e-6;
  }
  std::printf("the key at 20 gets %.4f of the query at 20 and %.4f of the query at 49\n",
              static_cast<double>(result(0, 20, 0, 0)), static_cast<double>(result(0, 49, 0, 0)));

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
