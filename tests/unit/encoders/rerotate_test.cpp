// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Cached keys under one encoder become what another would have made of the raw keys.
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rerotate.hpp>

using posenc::positions;
using posenc::rerotate;
using posenc::rope;
using posenc::rope_options;
using posenc::shape;
using posenc::view;
using posenc_test::largest_difference;
using posenc_test::refusal;
using posenc_test::values;

namespace {

template <class T = double>
std::vector<T> rotated(const rope_options& o, std::vector<T> x, const shape& s, const positions& at) {
  rope<double>{o}.rotate(view{x.data(), s}, at);
  return x;
}
/// The largest difference between keys turned again and raw keys under the other encoder.
template <class T = double>
double error(const rope_options& from, const rope_options& to, const positions& before, const positions& after,
             std::int64_t heads = 2) {
  const shape s{.batch = 2, .tokens = 5, .heads = heads, .dim = from.head_dim};
  const auto raw = values<T>(s.elements());
  auto keys = rotated(from, raw, s, before);
  rerotate(view{keys.data(), s}, before, rope<double>{from}, after, rope<float>{to});
  return largest_difference(keys, rotated(to, raw, s, after));
}
double error_in_place(const rope_options& from, const rope_options& to, std::int64_t first) {
  const shape s{.tokens = 5, .heads = 2, .dim = from.head_dim};
  const auto raw = values<double>(s.elements());
  auto keys = rotated(from, raw, s, positions::from(first));
  rerotate(view{keys.data(), s}, positions::from(first), rope<double>{from}, rope<double>{to});
  return largest_difference(keys, rotated(to, raw, s, positions::from(first)));
}

rope_options with(const posenc::rope_scaling& scaling, posenc::rope_layout layout = posenc::half_split) {
  return {.head_dim = 67, .rotary_dim = 64, .offset = 2, .layout = layout, .scaling = scaling};
}
posenc::rope_scaling dynamic(std::int64_t length) { return posenc::dynamic_ntk{2, 2048, length}; }
posenc::rope_scaling lists(std::int64_t length) {
  posenc::longrope s{.original_max_position_embeddings = 4096, .factor = 32, .length = length};
  for (int i = 0; i < 32; ++i) {
    s.short_factor.push_back(1 + 0.01 * i);
    s.long_factor.push_back(1 + 1.7 * i);
  }
  return s;
}
const posenc::rope_scaling stretched = posenc::yarn{.factor = 4, .original_max_position_embeddings = 4096};

}  // namespace

TEST_CASE("rerotate: the cases it is for", "[rope][rerotate]") {
  for (const auto layout : {posenc::half_split, posenc::interleaved, posenc::interleaved_in_half_out}) {
    CAPTURE(layout);
    // Dynamic NTK whose length grows, and falls back.
    CHECK(error_in_place(with(dynamic(2048), layout), with(dynamic(8192), layout), 2000) < 2e-14);
    CHECK(error_in_place(with(dynamic(8192), layout), with(dynamic(8193), layout), 8188) < 2e-14);
    CHECK(error_in_place(with(dynamic(8192), layout), with(dynamic(1), layout), 3) < 2e-14);
    // LongRoPE at its switch; both regimes have the magnitude, which must not enter twice.
    CHECK(rope<double>{with(lists(1))}.magnitude() > 1.1);
    CHECK(error_in_place(with(lists(4096), layout), with(lists(4097), layout), 4091) < 2e-14);
    // From plain to YaRN and back, where the magnitude comes and goes.
    CHECK(error_in_place(with(posenc::no_scaling{}, layout), with(stretched, layout), 100) < 2e-14);
    CHECK(error_in_place(with(stretched, layout), with(posenc::no_scaling{}, layout), 100) < 2e-14);
    // Tokens that move at the same time, every one elsewhere, in every batch row.
    const std::vector<std::int64_t> before{0, 17, 4000, -3, 9, 100, 101, 102, 103, 104};
    const std::vector<std::int64_t> after{5, 16, 3, -300, 9, 0, 1, 2, 3, 4};
    CHECK(error(with(dynamic(4096), layout), with(stretched, layout), positions::listed(before, 2),
                positions::listed(after, 2)) < 2e-14);
    CHECK(error(with(lists(4096), layout), with(lists(5000), layout), positions::listed(before, 2),
                positions::from(1000)) < 2e-14);
  }
}

TEST_CASE("rerotate: the difference of the angles is exact at far positions", "[rope][rerotate]") {
  for (const std::int64_t far : {std::int64_t{1000000000}, std::int64_t{1} << 55}) {
    CHECK(error_in_place(with(dynamic(4096)), with(dynamic(8192)), far) < 1e-14);
    CHECK(error(with(stretched), with(lists(5000)), positions::from(far), positions::from(far + 12345)) < 1e-14);
    CHECK(error<float>(with(stretched), with(lists(5000)), positions::from(far), positions::from(-far)) < 1e-6);
  }
}

TEST_CASE("rerotate: to the same place under the same encoder nothing changes", "[rope][rerotate]") {
  for (const auto layout : {posenc::half_split, posenc::interleaved, posenc::interleaved_in_half_out}) {
    const rope<double> r{with(stretched, layout)};
    auto keys = values<double>(2 * 67);
    const auto before = keys;
    rerotate(view{keys.data(), {.tokens = 2, .dim = 67}}, positions::from(123456789), r, r);
    CHECK(keys == before);
    std::vector<Eigen::half> narrow(before.begin(), before.end());
    const auto narrow_before = narrow;
    rerotate(view{narrow.data(), {.tokens = 2, .dim = 67}}, positions::from(123456789), r, r);
    CHECK(narrow == narrow_before);
    // To another place it is a shift.
    auto shifted = before;
    r.shift(view{shifted.data(), {.tokens = 2, .dim = 67}}, 1000);
    rerotate(view{keys.data(), {.tokens = 2, .dim = 67}}, positions::from(5), r, positions::from(1005), r);
    CHECK(largest_difference(keys, shifted) < 1e-15);
  }
}

TEST_CASE("rerotate: several axes, sets of frequencies, other bases, 16-bit keys", "[rope][rerotate]") {
  rope_options from{.head_dim = 16, .base = 1e4, .axes = posenc::rope_axes::chunked({2, 3, 3})};
  rope_options to{.head_dim = 16, .base = 5e5, .axes = posenc::rope_axes::interleaved({3, 3, 2})};
  std::vector<std::int64_t> before;
  std::vector<std::int64_t> after;
  for (std::int64_t i = 0; i < 30; ++i) {
    before.push_back(i * i % 41);
    after.push_back(100 - 3 * i);
  }
  CHECK(error(from, to, positions::axes(before, 3, 2), positions::axes(after, 3, 2)) < 2e-15);
  // From text to three axes.
  CHECK(error({.head_dim = 16}, to, positions::from(40), positions::axes(after, 3, 2)) < 2e-15);
  from = {.head_dim = 8, .layout = posenc::interleaved, .frequency_axes = 2, .frequency_heads = 3};
  for (int i = 0; i < 24; ++i) from.inv_freq.push_back(0.1 * i - 1);
  to = from;
  for (double& f : to.inv_freq) f *= 0.75;
  const std::span<const std::int64_t> twenty(before.data(), 20);
  CHECK(error(from, to, positions::axes(twenty, 2, 2), positions::axes(twenty, 2, 2), 3) < 5e-14);
  // interleaved_in_half_out writes keys in half order, so half_split can take them over.
  const shape s{.tokens = 2, .dim = 8};
  const auto raw = values<double>(s.elements());
  auto keys = rotated({.head_dim = 8, .layout = posenc::interleaved_in_half_out}, raw, s, positions::from(9));
  rerotate(view{keys.data(), s}, positions::from(9),
           rope<double>{{.head_dim = 8, .layout = posenc::interleaved_in_half_out}}, positions::from(70),
           rope<double>{{.head_dim = 8, .base = 500}});
  const auto direct =
      rotated({.head_dim = 8, .base = 500, .layout = posenc::interleaved_in_half_out}, raw, s, positions::from(70));
  CHECK(largest_difference(keys, direct) < 2e-15);
  // Rounded once more per turn, not more.
  CHECK(error<Eigen::bfloat16>(with(dynamic(4096)), with(dynamic(8192)), positions::from(4000),
                               positions::from(4000)) <= 0x1p-7);
}

TEST_CASE("rerotate: what does not fit is refused before anything is written", "[rope][rerotate]") {
  auto x = values<float>(2 * 2 * 8);
  const auto before = x;
  const view v{x.data(), {.tokens = 2, .heads = 2, .dim = 8}};
  const rope<float> plain{{.head_dim = 8}};
  const auto refused = [&](const rope_options& from, const rope_options& to) {
    return refusal([&] { rerotate(v, positions::from(3), rope<float>{from}, rope<float>{to}); });
  };
  CHECK(refused({.head_dim = 8}, {.head_dim = 10}) == "posenc::rerotate: to must have the head_dim of from, got 10");
  CHECK(refused({.head_dim = 8}, {.head_dim = 8, .rotary_dim = 6}) ==
        "posenc::rerotate: to must have the rotary_dim of from, got 6");
  CHECK(refused({.head_dim = 8, .rotary_dim = 4}, {.head_dim = 8, .rotary_dim = 4, .offset = 1}) ==
        "posenc::rerotate: to must have the offset of from, got 1");
  CHECK(refused({.head_dim = 8}, {.head_dim = 8, .layout = posenc::interleaved}) ==
        "posenc::rerotate: to must pair the channels as from does, layout, got 1");
  CHECK(refused({.head_dim = 8, .layout = posenc::interleaved},
                {.head_dim = 8, .layout = posenc::interleaved_in_half_out})
            .find("must pair the channels as from does") != std::string::npos);
  const auto blocks = [](std::vector<std::int64_t> dims) {
    return rope_options{.head_dim = 8, .layout = posenc::half_split_in_blocks, .axes = {.block_dims = std::move(dims)}};
  };
  CHECK(refused(blocks({4, 4}), blocks({2, 6})).find("must pair the channels as from does") != std::string::npos);
  CHECK(refused({.head_dim = 8}, {.head_dim = 8, .inv_freq = {1, 2, 3, 4, 5, 6, 7, 8}, .frequency_heads = 2}) ==
        "posenc::rerotate: to must have the frequency_heads of from, got 2");
  const std::string alone = "posenc::rerotate: encoder must turn keys by their position alone, got ";
  CHECK(refused({.head_dim = 8, .layout = posenc::vjepa2_mixed}, {.head_dim = 8, .layout = posenc::vjepa2_mixed}) ==
        alone + "the pairs of vjepa2_mixed are not turned orthogonally");
  for (const auto mode : {posenc::angle_mode::float32, posenc::angle_mode::ggml_recurrence}) {
    CHECK(refused({.head_dim = 8, .angles = mode}, {.head_dim = 8}) == alone + "float32 angles do not add up");
    CHECK(refused({.head_dim = 8}, {.head_dim = 8, .angles = mode}) == alone + "float32 angles do not add up");
  }
  const auto thrice = rope_options{.head_dim = 8, .inv_freq = std::vector<double>(12, 0.5), .frequency_heads = 3};
  CHECK(refused(thrice, thrice) == "posenc::rerotate: heads must equal frequency_heads, got 2");

  CHECK(refusal([&] {
          rerotate(view{x.data(), {.tokens = 2, .heads = 2, .dim = 6}}, positions::from(3), plain, plain);
        }) == "posenc::rerotate: dim must equal head_dim, got 6");
  const std::vector<std::int64_t> three{1, 2, 3};
  CHECK(refusal([&] { rerotate(v, positions::listed(three), plain, plain); }) ==
        "posenc::rerotate: positions must list one id per token, batch row and axis, got 3");
  CHECK(refusal([&] { rerotate(v, positions::from(1), plain, positions::listed(three), plain); }) ==
        "posenc::rerotate: positions must list one id per token, batch row and axis, got 3");
  const std::vector<std::int64_t> grid{1, 2, 3, 4};
  CHECK(refusal([&] { rerotate(v, positions::axes(grid, 2), plain, plain); }) ==
        "posenc::rerotate: positions must have one axis, got 2");
  CHECK(refusal([&] {
          rerotate(view{x.data(), {.tokens = 2, .dim = 8}, {.token = 0}}, positions::from(3), plain, plain);
        }).find("must not repeat elements") != std::string::npos);
  CHECK(x == before);
  // Nothing to do is no error.
  rerotate(view{x.data(), {.tokens = 0, .dim = 8}}, positions::from(3), plain, plain);
  CHECK(x == before);
}
