// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// One layer that is fed a text in pieces: absolute encodings are added to the tokens, keys are turned when they are
/// kept, and every piece attends to all that is kept. However a text is cut, its tokens must come out the same.

#include "laws/random_case.hpp"
#include "support/catch.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/run_time.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace one_truth {

inline constexpr std::int64_t heads = 4;
inline constexpr std::int64_t kv_heads = 2;
inline constexpr std::int64_t dim = 8;
inline constexpr std::int64_t width = heads * dim;
inline constexpr std::int64_t length = 150;  // more than a tile of keys

using numbers = std::vector<float>;

/// A text of n tokens, each `width` numbers that know nothing of their place.
inline numbers text_of(std::uint64_t seed, std::int64_t n) { return laws::random_case(seed).vector<float>(n * width); }

inline numbers part_of(const numbers& x, std::int64_t first, std::int64_t n, std::int64_t step) {
  return {x.begin() + first * step, x.begin() + (first + n) * step};
}
inline void append(numbers& to, const numbers& x) { to.insert(to.end(), x.begin(), x.end()); }

/// Tokens times a fixed matrix; each token by itself.
inline numbers projected(const numbers& x, std::int64_t outputs, std::uint64_t seed) {
  const auto w = laws::random_case(seed).vector<double>(width * outputs);
  numbers y;
  for (auto token = x.begin(); token != x.end(); token += width)
    for (std::int64_t o = 0; o < outputs; ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < width; ++i)
        sum += static_cast<double>(token[i]) * w[static_cast<std::size_t>(o * width + i)];
      y.push_back(static_cast<float>(sum / 2));
    }
  return y;
}

/// An encoder with all that a session needs: `policy(masks)` and what is added to the input.
template <class Policy, class Embed>
struct encoder {
  std::string name;
  Policy policy;
  Embed embed;  // (view, positions)
};
template <class Policy, class Embed>
encoder(std::string, Policy, Embed) -> encoder<Policy, Embed>;

inline constexpr auto no_embedding = [](const posenc::view<float>&, const posenc::positions&) {};

/// Keys and values of the tokens so far, and where they stand.
template <class Encoder>
class session {
 public:
  explicit session(const Encoder& e, posenc::run_time_masks masks = {.causal = true}) : encoder_(&e), masks_(masks) {}

  /// Feeds tokens that stand at first, first + 1, ...; returns their outputs.
  numbers feed(numbers x, std::int64_t first) {
    const std::int64_t n = static_cast<std::int64_t>(x.size()) / width;
    const posenc::positions at = posenc::positions::from(first);
    encoder_->embed(posenc::view<float>(x.data(), {.tokens = n, .dim = width}), at);
    numbers q = projected(x, width, 101);
    numbers k = projected(x, kv_heads * dim, 102);
    const numbers v = projected(x, kv_heads * dim, 103);
    posenc::run_time_masks masks = masks_;
    if (!masks.causal) masks.order = posenc::causal_by_index{static_cast<std::int64_t>(ids_.size())};
    const auto policy = encoder_->policy(masks);
    posenc::rotate(policy, posenc::view<float>(k.data(), {.tokens = n, .heads = kv_heads, .dim = dim}), at);
    append(k_, k);
    append(v_, v);
    for (std::int64_t i = 0; i < n; ++i) ids_.push_back(first + i);

    const auto kept = static_cast<std::int64_t>(ids_.size());
    const posenc::shape queries{.tokens = n, .heads = heads, .dim = dim};
    const posenc::shape keys{.tokens = kept, .heads = kv_heads, .dim = dim};
    numbers out(q.size());
    const bool restarted = ids_.back() != kept - 1;
    posenc::attention(posenc::view(q.data(), queries), posenc::view(k_.data(), keys), posenc::view(v_.data(), keys),
                      posenc::view(out.data(), queries), policy,
                      {.query_positions = at,
                       .key_positions = restarted ? posenc::positions::listed(ids_) : posenc::positions::from(0)});
    return out;
  }
  /// Feeds tokens that stand behind all that is kept.
  numbers go_on(const numbers& x) { return feed(x, size()); }
  /// Keeps the first n tokens.
  void truncate(std::int64_t n) {
    k_.resize(static_cast<std::size_t>(n * kv_heads * dim));
    v_.resize(static_cast<std::size_t>(n * kv_heads * dim));
    ids_.resize(static_cast<std::size_t>(n));
  }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }

 private:
  const Encoder* encoder_;
  posenc::run_time_masks masks_;
  numbers k_, v_;
  std::vector<std::int64_t> ids_;
};

inline double largest(const numbers& x) {
  double most = 0;
  for (const float e : x) most = std::max(most, std::abs(static_cast<double>(e)));
  return most;
}
/// The largest difference over the largest output.
inline double error(const numbers& found, const numbers& right) {
  return laws::difference(found, right) / largest(right);
}

/// The outputs of a text in pieces of the given sizes, the last one repeated.
template <class Encoder>
numbers in_pieces(const Encoder& e, const numbers& text, const std::vector<std::int64_t>& sizes) {
  session<Encoder> s(e);
  numbers out;
  const std::int64_t n = static_cast<std::int64_t>(text.size()) / width;
  for (std::size_t i = 0; s.size() < n; ++i) {
    const std::int64_t m = std::min(sizes[std::min(i, sizes.size() - 1)], n - s.size());
    append(out, s.go_on(part_of(text, s.size(), m, width)));
  }
  return out;
}

/// Every way to the same tokens gives what the whole prefill gives.
template <class Encoder>
void check_one_truth(const Encoder& e) {
  constexpr double bound = 2e-6;
  CAPTURE(e.name);
  const numbers text = text_of(1, length);
  const numbers whole = session<Encoder>(e).go_on(text);
  for (const std::int64_t chunk : {1, 7, 48, 149}) {
    CAPTURE(chunk);
    CHECK(error(in_pieces(e, text, {chunk}), whole) <= bound);
  }

  // A chat: a question, an answer token by token, the next question, the next answer.
  std::vector<std::int64_t> turns{23};
  turns.insert(turns.end(), 17, 1);
  turns.push_back(61);
  turns.push_back(1);
  CHECK(error(in_pieces(e, text, turns), whole) <= bound);

  // Another text with the same beginning takes over the kept tokens.
  constexpr std::int64_t shared = 70;
  numbers other = part_of(text, 0, shared, width);
  append(other, text_of(2, length - shared));
  const numbers other_whole = session<Encoder>(e).go_on(other);
  const numbers other_tail = part_of(other_whole, shared, length - shared, width);
  CHECK(error(part_of(other_whole, 0, shared, width), part_of(whole, 0, shared, width)) <= bound);
  session<Encoder> first(e);
  (void)first.go_on(part_of(text, 0, shared, width));
  session<Encoder> copy = first;
  CHECK(error(copy.go_on(part_of(other, shared, length - shared, width)), other_tail) <= bound);
  CHECK(error(first.go_on(part_of(text, shared, length - shared, width)),
              part_of(whole, shared, length - shared, width)) <= bound);

  // The last tokens are taken back and others follow.
  first.truncate(shared);
  CHECK(error(first.go_on(part_of(other, shared, length - shared, width)), other_tail) <= bound);

  // A window as wide as the text cuts nothing.
  for (const std::int64_t window : {length, length + 1000}) {
    session<Encoder> windowed(e, {.causal = true, .window = posenc::sliding_window(window)});
    CHECK(error(windowed.go_on(text), whole) <= bound);
  }
}

/// How much the second turn changes when its positions start at 0 again while the keys of the first turn are kept.
template <class Encoder>
double change_by_restart(const Encoder& e) {
  constexpr std::int64_t turn = 40;
  const numbers text = text_of(3, 2 * turn);
  // Masks by position would hide kept keys from the restarted turn; by index both turns see the same keys.
  session<Encoder> right(e, {});
  session<Encoder> wrong(e, {});
  const numbers first = right.go_on(part_of(text, 0, turn, width));
  CHECK(wrong.go_on(part_of(text, 0, turn, width)) == first);
  const numbers second = part_of(text, turn, turn, width);
  return error(wrong.feed(second, 0), right.go_on(second));
}

}  // namespace one_truth
