// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <posenc/attention/bias.hpp>
#include <posenc/attention/reference.hpp>
#include <posenc/encoders/continuous_bias.hpp>
#include <posenc/encoders/decomposed_bias.hpp>
#include <posenc/encoders/window_bias.hpp>

#include <map>
#include <set>

using posenc::view;
using posenc::window_kind;

namespace {

constexpr std::uint64_t cases = 40;

posenc::window_shape any_window(laws::random_case& any) { return {any.whole(1, 9), any.whole(1, 9)}; }

}  // namespace

TEST_CASE("window_index: two pairs of tokens share an entry exactly when their offsets agree", "[laws][window_index]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const posenc::window_shape w = any_window(any);
    const std::int64_t tokens = w.height * w.width;
    const bool sign = any.coin();
    const auto index = posenc::window_index(sign ? window_kind::swin : window_kind::levit, w);
    std::map<std::pair<std::int64_t, std::int64_t>, std::int32_t> of_offset;
    std::set<std::int32_t> used;
    std::size_t broken = 0;
    for (std::int64_t i = 0; i < tokens; ++i)
      for (std::int64_t j = 0; j < tokens; ++j) {
        std::int64_t dy = i / w.width - j / w.width;
        std::int64_t dx = i % w.width - j % w.width;
        if (!sign) {
          dy = std::abs(dy);
          dx = std::abs(dx);
        }
        const std::int32_t entry = index[static_cast<std::size_t>(i * tokens + j)];
        broken += of_offset.emplace(std::pair{dy, dx}, entry).first->second != entry;
        used.insert(entry);
        // The offset the other way is the entry mirrored in the table.
        const std::int32_t back = index[static_cast<std::size_t>(j * tokens + i)];
        broken += sign ? entry + back != posenc::window_entries(window_kind::swin, w) - 1 : entry != back;
      }
    CHECK(broken == 0);
    // No entry is left without a pair, none beyond the table.
    CHECK(used.size() == of_offset.size());
    CHECK(static_cast<std::int64_t>(used.size()) ==
          posenc::window_entries(sign ? window_kind::swin : window_kind::levit, w));
    CHECK(*used.rbegin() == static_cast<std::int32_t>(used.size()) - 1);

    // beit is swin behind a class token.
    const auto with_class = posenc::window_index(window_kind::beit, w);
    const auto swin = posenc::window_index(window_kind::swin, w);
    for (std::int64_t i = 0; i < tokens; ++i)
      for (std::int64_t j = 0; j < tokens; ++j)
        broken += with_class[static_cast<std::size_t>((i + 1) * (tokens + 1) + j + 1)] !=
                  swin[static_cast<std::size_t>(i * tokens + j)];
    CHECK(broken == 0);
    CHECK(std::set<std::int32_t>(with_class.begin(), with_class.end()).size() ==
          static_cast<std::size_t>(posenc::window_entries(window_kind::beit, w)));
  }
}

TEMPLATE_TEST_CASE("window_bias: the table's value at the index, whatever the positions", "[laws][window_bias]", float,
                   double) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const posenc::window_shape w = any_window(any);
    const auto kind = static_cast<window_kind>(any.whole(0, 2));
    const std::int64_t heads = any.whole(1, 5);
    const std::int64_t n = posenc::window_tokens(kind, w);
    const auto table = any.vector<TestType>(heads * posenc::window_entries(kind, w));
    const posenc::window_bias<TestType> e({.heads = heads, .kind = kind, .window = w}, table);
    const auto index = posenc::window_index(kind, w);
    std::vector<TestType> bias(static_cast<std::size_t>(heads * n * n));
    posenc::fill_bias<TestType>(e, heads, posenc::positions::from(any.whole(-1000, 1000)), n,
                                posenc::positions::listed(any.order(n)), n, bias);
    std::size_t broken = 0;
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < n; ++i) {
        std::vector<TestType> line(static_cast<std::size_t>(n));
        posenc::add_bias_row(e, {.head = h, .query_index = i, .query_position = any.whole(-9, 9)}, any.whole(-9, 9),
                             std::span<TestType>(line));
        for (std::int64_t j = 0; j < n; ++j) {
          const TestType right =
              table[static_cast<std::size_t>(index[static_cast<std::size_t>(i * n + j)] * heads + h)];
          broken += line[static_cast<std::size_t>(j)] != right;
          broken += bias[static_cast<std::size_t>((h * n + i) * n + j)] != right;
        }
      }
    CHECK(broken == 0);
  }
}

TEST_CASE("continuous_bias: a window inside a larger one of the same training has the same biases",
          "[laws][continuous_bias]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const posenc::window_shape trained{any.whole(2, 9), any.whole(2, 9)};
    const posenc::window_shape small = any_window(any);
    const posenc::window_shape large{small.height + any.whole(0, 4), small.width + any.whole(0, 4)};
    const std::int64_t hidden = any.whole(1, 9);
    const auto w1 = any.vector(2 * hidden);
    const auto b1 = any.vector(hidden);
    const auto w2 = any.vector(2 * hidden);
    const posenc::continuous_bias<double> a({.heads = 2, .window = small, .trained = trained}, {w1, b1, w2});
    const posenc::continuous_bias<double> b({.heads = 2, .window = large, .trained = trained}, {w1, b1, w2});
    std::size_t broken = 0;
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < small.height * small.width; ++i)
        for (std::int64_t j = 0; j < small.height * small.width; ++j) {
          const auto in_large = [&](std::int64_t t) { return t / small.width * large.width + t % small.width; };
          const double value = a.window().line(h, i)[j];
          broken += value != b.window().line(h, in_large(i))[in_large(j)] || !(value > 0 && value < 16);
        }
    CHECK(broken == 0);
  }
}

TEST_CASE("decomposed_bias: logits are the scaled products plus the two terms, whatever the scale",
          "[laws][decomposed_bias]") {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    laws::random_case any(seed);
    const posenc::window_shape queries = any_window(any);
    const posenc::window_shape keys = any.coin() ? queries : any_window(any);
    const std::int64_t dim = any.whole(1, 12);
    const std::int64_t heads = any.whole(1, 3);
    const auto rh = any.vector(any.whole(1, 20) * dim);
    const auto rw = any.vector(any.whole(1, 20) * dim);
    const posenc::decomposed_bias<double> e({.queries = queries, .keys = keys, .dim = dim}, rh, rw);
    const std::int64_t nq = e.queries();
    const std::int64_t nk = e.keys();
    const auto q = any.vector(nq * heads * dim);
    const auto k = any.vector(nk * heads * dim);
    const double scale = any.real(0.05, 3);
    const posenc::shape sq{.tokens = nq, .heads = heads, .dim = dim};
    const posenc::shape sk{.tokens = nk, .heads = heads, .dim = dim};
    std::vector<double> out(q.size()), logits(static_cast<std::size_t>(nq * heads * nk));
    posenc::attention_reference(view{q.data(), sq}, view{k.data(), sk}, view{k.data(), sk}, view{out.data(), sq}, e,
                                {.scale = scale, .logits = {logits.data(), {1, nq, heads, nk}}});
    double worst = 0;
    std::vector<double> h(static_cast<std::size_t>(keys.height)), w(static_cast<std::size_t>(keys.width));
    for (std::int64_t i = 0; i < nq; ++i)
      for (std::int64_t head = 0; head < heads; ++head) {
        const double* query = q.data() + (i * heads + head) * dim;
        e.terms(query, 1, i, std::span<double>(h), std::span<double>(w));
        for (std::int64_t j = 0; j < nk; ++j) {
          const double right = scale * laws::dot(query, k.data() + (j * heads + head) * dim, dim) +
                               h[static_cast<std::size_t>(j / keys.width)] +
                               w[static_cast<std::size_t>(j % keys.width)];
          worst = std::max(worst, std::abs(logits[static_cast<std::size_t>((i * heads + head) * nk + j)] - right));
        }
      }
    CHECK(worst < 1e-13);
  }
}
