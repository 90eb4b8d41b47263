// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/encoders/rope_axes.hpp>

#include <string>

using posenc::rope_axes;
using posenc::rope_pair;
using posenc_test::refusal;

namespace {

/// The axis of every pair as a text: one digit per pair.
std::string axes_of(const rope_axes& a) {
  std::string out;
  for (const rope_pair& p : a.pairs) out += std::to_string(p.axis);
  return out;
}
std::string repeated(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}
/// Whether pair i stands on rung i of one ladder.
bool runs_through(const rope_axes& a) {
  for (std::size_t i = 0; i < a.pairs.size(); ++i)
    if (a.pairs[i].rung != static_cast<std::int64_t>(i) ||
        a.pairs[i].rungs != static_cast<std::int64_t>(a.pairs.size()))
      return false;
  return true;
}
std::string refused(rope_axes (*builder)(const std::vector<std::int64_t>&), const std::vector<std::int64_t>& parts) {
  return refusal([&] { (void)builder(parts); });
}

}  // namespace

TEST_CASE("axes: sections one after the other (Qwen2-VL)", "[rope][axes]") {
  const auto a = rope_axes::chunked({16, 24, 24});
  CHECK(axes_of(a) == repeated("0", 16) + repeated("1", 24) + repeated("2", 24));
  CHECK(runs_through(a));
  CHECK(a.multiplier == 1);
  CHECK(a.block_dims.empty());
  CHECK(axes_of(rope_axes::chunked({8, 12, 12})) == repeated("0", 8) + repeated("1", 12) + repeated("2", 12));
  CHECK(axes_of(rope_axes::chunked({1, 0, 2, 1})) == "0223");
  CHECK(axes_of(rope_axes::chunked({3})) == "000");
}

TEST_CASE("axes: dealt out by remainders (Qwen3-VL)", "[rope][axes]") {
  const auto a = rope_axes::interleaved({24, 20, 20});
  CHECK(axes_of(a) == repeated("012", 20) + "0000");
  CHECK(runs_through(a));
  CHECK(axes_of(rope_axes::interleaved({11, 11, 10})) == repeated("012", 10) + "01");
  // The last height is pair 4, the last width pair 2; time takes what remains.
  CHECK(axes_of(rope_axes::interleaved({5, 2, 1})) == "01201000");
  CHECK(axes_of(rope_axes::interleaved({24, 20, 20, 0})) == axes_of(a));
}

TEST_CASE("axes: as ggml deals them out, two pairs of Qwen3-VL go to the fourth coordinate", "[rope][axes]") {
  const auto published = rope_axes::interleaved({24, 20, 20});
  const auto ggml = rope_axes::imrope_ggml({24, 20, 20, 0});
  CHECK(axes_of(ggml) == repeated("012", 20) + "0330");
  REQUIRE(ggml.pairs.size() == 64);
  for (std::size_t i = 0; i < 64; ++i) CHECK((ggml.pairs[i] == published.pairs[i]) == (i != 61 && i != 62));
  CHECK(runs_through(ggml));
  // Sections without a remainder are not concerned.
  CHECK(rope_axes::imrope_ggml({11, 11, 10, 0}).pairs == rope_axes::interleaved({11, 11, 10}).pairs);
  // Too short a section of time loses pairs to the fourth coordinate as well.
  CHECK(axes_of(rope_axes::imrope_ggml({1, 2, 2, 0})) == "01231");
}

TEST_CASE("axes: height and width in turn, time last (Ernie 4.5 VL)", "[rope][axes]") {
  const auto a = rope_axes::alternating_hw({22, 22, 20});
  CHECK(axes_of(a) == repeated("12", 22) + repeated("0", 20));
  CHECK(runs_through(a));
  CHECK(axes_of(rope_axes::alternating_hw({1, 1, 1})) == "120");
  CHECK(axes_of(rope_axes::alternating_hw({1, 1, 0})) == "12");
}

TEST_CASE("axes: blocks with ladders of their own", "[rope][axes]") {
  const auto flux = rope_axes::blocks({16, 56, 56});
  CHECK(axes_of(flux) == repeated("0", 8) + repeated("1", 28) + repeated("2", 28));
  CHECK(flux.block_dims == std::vector<std::int64_t>{16, 56, 56});
  for (std::size_t i = 0; i < 64; ++i) {
    const auto start = i < 8 ? 0u : i < 36 ? 8u : 36u;
    CHECK(flux.pairs[i].rung == static_cast<std::int64_t>(i - start));
    CHECK(flux.pairs[i].rungs == (i < 8 ? 8 : 28));
  }
  CHECK(rope_axes::blocks({40, 40}).pairs[20] == rope_pair{1, 0, 20});
  CHECK(axes_of(rope_axes::blocks({44, 42, 42})).size() == 64);
  CHECK(axes_of(rope_axes::blocks({2, 0, 4})) == "022");
}

TEST_CASE("axes: one ladder dealt out to rows and columns (Pixtral)", "[rope][axes]") {
  const auto a = rope_axes::pixtral(64);
  CHECK(axes_of(a) == repeated("0", 16) + repeated("1", 16));
  for (std::size_t i = 0; i < 32; ++i) {
    CHECK(a.pairs[i].rungs == 32);
    CHECK(a.pairs[i].rung == static_cast<std::int64_t>(i < 16 ? 2 * i : 2 * (i - 16) + 1));
  }
  CHECK(rope_axes::pixtral(4).pairs == std::vector<rope_pair>{{0, 0, 2}, {1, 1, 2}});
  for (const std::int64_t bad : {0, 2, 6, 66, -4})
    CHECK(refusal([&] { (void)rope_axes::pixtral(bad); }) ==
          "posenc::rope_axes::pixtral: head_dim must be a multiple of 4, got " + std::to_string(bad));
}

TEST_CASE("axes: sections that can not be are refused", "[rope][axes]") {
  const std::pair<const char*, rope_axes (*)(const std::vector<std::int64_t>&)> builders[] = {
      {"chunked", rope_axes::chunked},
      {"interleaved", rope_axes::interleaved},
      {"imrope_ggml", rope_axes::imrope_ggml},
      {"alternating_hw", rope_axes::alternating_hw}};
  for (const auto& [name, builder] : builders) {
    CAPTURE(name);
    const std::string start = std::string("posenc::rope_axes::") + name + ": sections ";
    CHECK(refused(builder, {}) == start + "must list one to four axes, got 0");
    CHECK(refused(builder, {1, 1, 1, 1, 1}) == start + "must list one to four axes, got 5");
    CHECK(refused(builder, {4, -1, 4}) == start + "must not be negative, got -1");
    CHECK(refused(builder, {0, 0, 0}) == start + "must sum to at least 1, got 0");
  }
  CHECK(refused(rope_axes::interleaved, {4, 4}) ==
        "posenc::rope_axes::interleaved: sections must list time, height and width, got 2");
  CHECK(refused(rope_axes::interleaved, {4, 4, 4, 2}) ==
        "posenc::rope_axes::interleaved: sections must give a fourth axis nothing, got 2");
  CHECK(refused(rope_axes::imrope_ggml, {4}) ==
        "posenc::rope_axes::imrope_ggml: sections must list time, height and width, got 1");
  CHECK(refused(rope_axes::alternating_hw, {22, 20, 22}) ==
        "posenc::rope_axes::alternating_hw: sections must be three, height and width alike, got 3");
  CHECK(refused(rope_axes::alternating_hw, {22, 22}) ==
        "posenc::rope_axes::alternating_hw: sections must be three, height and width alike, got 2");
  CHECK(refused(rope_axes::blocks, {22, 21, 21}) == "posenc::rope_axes::blocks: dims must be even, got 21");
  CHECK(refused(rope_axes::blocks, {}) == "posenc::rope_axes::blocks: dims must list one to four axes, got 0");
  CHECK(refused(rope_axes::blocks, {-2, 4}) == "posenc::rope_axes::blocks: dims must not be negative, got -2");
}

TEST_CASE("axes: sections whose sum would overflow are refused", "[rope][axes]") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const std::string rule = "must not exceed 2^24, got 9223372036854775807";
  CHECK(refusal([&] { (void)rope_axes::chunked({most, most, 66}); }) == "posenc::rope_axes::chunked: sections " + rule);
  CHECK(refusal([&] {
          (void)rope_axes::imrope_ggml({1, most, 1, 0});
        }) == "posenc::rope_axes::imrope_ggml: sections " + rule);
  CHECK(refusal([&] { (void)rope_axes::blocks({2, most}); }) == "posenc::rope_axes::blocks: dims " + rule);
}
