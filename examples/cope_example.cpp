// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Contextual positions, a part of one's own that needs whole rows, scalable softmax, and heads that differ.
#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/per_head.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/attention/two_pass.hpp>
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/cope.hpp>
#include <posenc/encoders/nope.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

// [own]
/// Keeps the logits of a row within `width` of its greatest one: no logit is final before all are known.
struct floor_below_greatest {
  float width;

  std::int64_t scratch_size(std::int64_t, std::int64_t, std::int64_t) const { return 0; }
  template <class B, class Keys, class C = typename posenc::lanes<B>::scalar>
  void transform_logits(const posenc::logit_row<C>& line, const Keys&, C*) const {
    // Hidden keys have minus infinity, and what is made of them is not used.
    const C* first = line.logits + line.seen.lo;
    const C* end = line.logits + line.seen.hi;
    const C least = *std::max_element(first, end) - C(width);
    for (std::int64_t j = line.seen.lo; j < line.seen.hi; ++j) line.logits[j] = std::max(line.logits[j], least);
  }
};
// [/own]

int main() {
  bool good = true;
  constexpr std::int64_t tokens = 6, heads = 2, dim = 4;
  const posenc::shape shape{.tokens = tokens, .heads = heads, .dim = dim};
  std::vector<float> x(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(0.7f * static_cast<float>(i));
  std::vector<float> y(x.size()), one(x.size());
  const posenc::view<const float> q(x.data(), shape), k = q, v = q;
  const posenc::view<float> out(y.data(), shape), step(one.data(), {.tokens = 1, .heads = heads, .dim = dim});

  // [cope]
  // Three positions of dim channels, shared by the heads; zeros at the start of training.
  const std::vector<float> pos_emb{0, 0, 0, 0, 1, 0, -1, 0, 2, 0, -2, 0};
  const auto contextual = posenc::compose(posenc::cope<float>{{.head_dim = dim}, pos_emb}, posenc::causal{});
  posenc::attention_two_pass(q, k, v, out, contextual);
  // [/cope]

  // [step]
  // A cached step: the query is the last of the columns.
  const posenc::view<const float> last(x.data() + (tokens - 1) * heads * dim,
                                       {.tokens = 1, .heads = heads, .dim = dim});
  posenc::attention_two_pass(last, k, v, step, contextual, {.query_positions = posenc::positions::from(tokens - 1)});
  // [/step]
  for (std::size_t i = 0; i < static_cast<std::size_t>(heads * dim); ++i)
    good = good && std::abs(one[i] - y[y.size() - static_cast<std::size_t>(heads * dim) + i]) < 1e-6f;
  std::printf("contextual: first channel of the last token %.6f\n", static_cast<double>(step(0, 0, 0, 0)));

  // The same, one score at a time.
  std::vector<float> z(x.size());
  posenc::attention_reference(q, k, v, posenc::view<float>(z.data(), shape), contextual);
  for (std::size_t i = 0; i < x.size(); ++i) good = good && std::abs(z[i] - y[i]) < 1e-6f;

  // RAM's order: the bias is divided with the products.
  // [ram]
  const posenc::cope<float> ram{{.head_dim = dim, .order = posenc::cope_order::before_scale}, pos_emb};
  // [/ram]
  posenc::attention_two_pass(q, k, v, out, posenc::compose(ram, posenc::causal{}));
  good = good && std::abs(z[z.size() - 1] - y[y.size() - 1]) > 1e-6f;

  // A row within 0 of its greatest logit is a mean.
  posenc::attention_two_pass(q, k, v, out, posenc::compose(floor_below_greatest{0}, posenc::causal{}));
  good = good && std::abs(out(0, 1, 0, 0) - (x[0] + x[heads * dim]) / 2) < 1e-6f;

  // [ssmax]
  // q.k times 0.43 ln n, n the keys that the row sees; the bias is added after it and is not scaled.
  const auto scalable = posenc::compose(posenc::ssmax{0.43}, posenc::alibi<float>{heads}, posenc::sliding_window{1024});
  posenc::attention(q, k, v, out, scalable);
  // [/ssmax]
  good = good && std::abs(posenc::ssmax{0.43}.query_scale(0, 0, 1024) - 0.43 * std::log(1024.0)) < 1e-12;

  // [heads]
  // Head 0 has ALiBi, the others none; each part is made for all heads of the model.
  const posenc::per_head mixed{[](std::int64_t head) { return head == 0; }, posenc::alibi<float>{heads},
                               posenc::nope{}};
  posenc::attention(q, k, v, out, posenc::compose(mixed, posenc::causal{}));
  // [/heads]
  posenc::attention(q, k, v, posenc::view<float>(z.data(), shape), posenc::compose(posenc::causal{}));
  good = good && std::abs(out(0, 5, 1, 0) - z[5 * heads * dim + dim]) < 1e-6f &&
         std::abs(out(0, 5, 0, 0) - z[5 * heads * dim]) > 1e-6f;

  std::puts(good ? "ok" : "wrong");
  return good ? 0 : 1;
}
