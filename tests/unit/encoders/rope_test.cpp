// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/rope_matrix.hpp"
#include "reference/rotation.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rope.hpp>

#include <unsupported/Eigen/AutoDiff>

using posenc::half_split;
using posenc::interleaved;
using posenc::positions;
using posenc_test::largest_difference;
using posenc_test::refusal;
using posenc_test::values;

namespace {

oracle::rope_rule rule_of(const posenc::rope_options& o, std::int64_t rotary_dim) {
  const auto* l = std::get_if<posenc::linear>(&o.scaling);
  return {.rotary_dim = rotary_dim,
          .offset = o.offset,
          .base = o.base,
          .interleaved = o.layout == interleaved,
          .factor = l ? l->factor : 1,
          .magnitude = o.attention_factor.value_or(1)};
}

/// Every head of every token of a packed array turned by the oracle, token t of batch row b at from + t.
template <class T>
std::vector<T> turned(std::vector<T> x, const posenc::shape& s, const oracle::rope_rule& r, std::int64_t from) {
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t t = 0; t < s.tokens; ++t)
      for (std::int64_t h = 0; h < s.heads; ++h)
        oracle::rope(x.data() + ((b * s.tokens + t) * s.heads + h) * s.dim, r, static_cast<double>(from + t));
  return x;
}

struct arrangement {
  std::int64_t head_dim;
  std::int64_t rotary_dim;
  std::int64_t offset;
};

}  // namespace

TEST_CASE("rope turns pairs as the formula says", "[rope]") {
  // Whole heads, leading, middle and trailing blocks, odd head dims, and more pairs than one block of the row buffer.
  for (const auto [head_dim, rotary_dim, offset] : {arrangement{2, 2, 0},
                                                    {3, 2, 0},
                                                    {3, 2, 1},
                                                    {5, 4, 1},
                                                    {8, 8, 0},
                                                    {20, 6, 7},
                                                    {64, 64, 0},
                                                    {96, 32, 64},
                                                    {600, 516, 33}})
    for (const auto layout : {half_split, interleaved})
      for (const double magnitude : {1.0, 1.25}) {
        const posenc::rope_options o{.head_dim = head_dim,
                                     .rotary_dim = rotary_dim,
                                     .offset = offset,
                                     .layout = layout,
                                     .scaling = posenc::linear{2.5},
                                     .attention_factor = magnitude};
        const posenc::rope<float> r{o};
        const posenc::shape s{.batch = 2, .tokens = 3, .heads = 5, .dim = head_dim};
        const auto x = values<double>(s.elements());
        auto exact = x;
        r.rotate(posenc::view{exact.data(), s}, positions::from(40));
        const auto expected = turned(x, s, rule_of(o, rotary_dim), 40);
        CAPTURE(head_dim, rotary_dim, offset, layout, magnitude);
        CHECK(largest_difference(exact, expected) < 2e-14);
        std::vector<float> narrow(x.begin(), x.end());
        r.rotate(posenc::view{narrow.data(), s}, positions::from(40));
        CHECK(largest_difference(narrow, expected) < 4e-7);
      }
}

TEST_CASE("rope takes rows per batch, listed ids and strides", "[rope]") {
  const posenc::rope<float> r{{.head_dim = 8, .layout = interleaved}};
  const posenc::shape s{.batch = 2, .tokens = 2, .heads = 3, .dim = 8};
  const auto x = values<float>(s.elements());
  const std::vector<std::int64_t> firsts{7, -20};
  const std::vector<std::int64_t> ids{7, 8, -20, -19};
  auto by_first = x;
  r.rotate(posenc::view{by_first.data(), s}, positions::per_row(firsts));
  auto by_id = x;
  r.rotate(posenc::view{by_id.data(), s}, positions::listed(ids, 2));
  CHECK(by_first == by_id);
  const auto expected = turned(x, s, {.rotary_dim = 8, .interleaved = true}, 7);
  CHECK(largest_difference(std::vector(by_first.begin(), by_first.begin() + 48),
                           std::vector(expected.begin(), expected.begin() + 48)) < 4e-7);
  // The same numbers with the dim axis outermost: handled one element at a time.
  std::vector<float> strided(x.size());
  const posenc::view packed{x.data(), s};
  const posenc::view across{strided.data(), s, {.batch = 6, .token = 3, .head = 1, .dim = 12}};
  const auto each = [&](auto&& f) {
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t t = 0; t < 2; ++t)
        for (std::int64_t h = 0; h < 3; ++h)
          for (std::int64_t d = 0; d < 8; ++d) f(b, t, h, d);
  };
  each([&](auto... at) { across(at...) = packed(at...); });
  r.rotate(across, positions::listed(ids, 2));
  const posenc::view want{by_id.data(), s};
  posenc_test::worst worst;
  each([&](auto... at) { worst.see(std::abs(across(at...) - want(at...))); });
  CHECK(worst.error <= 1.2e-7);
}

TEST_CASE("rope at real positions", "[rope]") {
  const posenc::rope<float> r{{.head_dim = 6}};
  const posenc::shape s{.tokens = 3, .dim = 6};
  const auto x = values<double>(s.elements());
  const std::vector<double> at{0.25, -3.5, 1000.125};
  auto y = x;
  r.rotate(posenc::view{y.data(), s}, posenc::real_positions{at});
  auto expected = x;
  for (std::int64_t t = 0; t < 3; ++t)
    oracle::rope(expected.data() + 6 * t, {.rotary_dim = 6}, at[static_cast<std::size_t>(t)]);
  CHECK(largest_difference(y, expected) < 3e-13);
  // Whole numbers are the same as integers.
  auto whole = x;
  r.rotate(posenc::view{whole.data(), s}, posenc::real_positions{std::vector<double>{5, 6, 7}});
  auto integer = x;
  r.rotate(posenc::view{integer.data(), s}, positions::from(5));
  CHECK(largest_difference(whole, integer) < 1e-15);

  auto untouched = x;
  const posenc::view v{untouched.data(), s};
  CHECK(refusal([&] {
          r.rotate(v, posenc::real_positions{std::vector<double>{1, 2}});
        }) == "posenc::rope::rotate: positions must list one position per token, got 2");
  CHECK(refusal([&] {
          r.rotate(v, posenc::real_positions{std::vector<double>{1, NAN, 2}});
        }).find("must be finite") != std::string::npos);
  CHECK(untouched == x);
}

TEST_CASE("rope rotate_to writes elsewhere and copies what it does not turn", "[rope]") {
  const posenc::rope<float> r{{.head_dim = 7, .rotary_dim = 4, .offset = 2}};
  const posenc::shape s{.tokens = 4, .heads = 2, .dim = 7};
  const auto x = values<float>(s.elements());
  std::vector<float> out(x.size(), 99.0f);
  r.rotate_to(posenc::view{x.data(), s}, posenc::view{out.data(), s}, positions::from(3));
  auto in_place = x;
  r.rotate(posenc::view{in_place.data(), s}, positions::from(3));
  CHECK(out == in_place);
  auto itself = x;
  r.rotate_to(posenc::view{itself.data(), s}, posenc::view{itself.data(), s}, positions::from(3));
  CHECK(itself == in_place);

  auto untouched = values<float>(2 * s.elements());
  const auto before = untouched;
  CHECK(refusal([&] {
          r.rotate_to(posenc::view{untouched.data(), s}, posenc::view{untouched.data() + 7, s});
        }) == "posenc::rope::rotate_to: out must be in itself or not overlap it, got overlapping memory");
  CHECK(refusal([&] {
          r.rotate_to(posenc::view{untouched.data(), s},
                      posenc::view{untouched.data(), {.tokens = 3, .heads = 2, .dim = 7}});
        }).find("out must have the shape of in") != std::string::npos);
  CHECK(untouched == before);
}

TEST_CASE("rope inverse undoes, adjoint transposes, and they differ by the square of the magnitude", "[rope]") {
  const double magnitude = 1.138629436;
  const posenc::rope<double> r{{.head_dim = 8, .rotary_dim = 6, .offset = 1, .attention_factor = magnitude}};
  const posenc::shape s{.tokens = 2, .heads = 2, .dim = 8};
  const auto x = values<double>(s.elements());
  auto back = x;
  r.rotate(posenc::view{back.data(), s}, positions::from(11));
  auto transposed = back;
  r.inverse(posenc::view{back.data(), s}, positions::from(11));
  CHECK(largest_difference(back, x) < 1e-15);
  r.adjoint(posenc::view{transposed.data(), s}, positions::from(11));
  posenc_test::worst worst;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool rotated = i % 8 >= 1 && i % 8 < 7;
    worst.see(std::abs(transposed[i] - x[i] * (rotated ? magnitude * magnitude : 1)), static_cast<long double>(i));
  }
  CHECK(worst.error < 1e-15);
}

TEST_CASE("rope shift moves cached keys without a second magnitude", "[rope]") {
  const posenc::rope<double> r{{.head_dim = 16, .layout = interleaved, .attention_factor = 1.5}};
  const posenc::shape s{.tokens = 5, .heads = 2, .dim = 16};
  const auto x = values<double>(s.elements());
  for (const std::int64_t delta : {-1000, -3, 0, 1, 4096}) {
    auto cached = x;
    r.rotate(posenc::view{cached.data(), s}, positions::from(2000));
    r.shift(posenc::view{cached.data(), s}, delta);
    auto direct = x;
    r.rotate(posenc::view{direct.data(), s}, positions::from(2000 + delta));
    CHECK(largest_difference(cached, direct) < 1e-14);
  }
}

TEST_CASE("rope in the float32 angle modes", "[rope]") {
  const std::int64_t at = 100003;
  const posenc::rope<float> exact{{.head_dim = 8}};
  const posenc::rope<float> as_trained{{.head_dim = 8, .angles = posenc::angle_mode::float32}};
  const posenc::rope<float> rounded{{.head_dim = 8, .angles = posenc::angle_mode::float32_rounded_inv_freq}};
  CHECK(as_trained.angles() == posenc::angle_mode::float32);
  float c[4];
  float s[4];
  for (const auto* r : {&as_trained, &rounded}) {
    r->cos_sin(at, c, s);
    for (int i = 0; i < 4; ++i) {
      const float power = static_cast<float>(std::pow(10000.0, static_cast<double>(static_cast<float>(2 * i) / 8.0f)));
      const float f = r == &as_trained ? 1.0f / power : static_cast<float>(std::pow(10.0L, -i));
      const float angle = static_cast<float>(static_cast<double>(static_cast<float>(at)) * static_cast<double>(f));
      CHECK(c[i] == static_cast<float>(std::cos(static_cast<double>(angle))));
      CHECK(s[i] == static_cast<float>(std::sin(static_cast<double>(angle))));
    }
  }
  // Exact angles differ from them by about position * 2^-24.
  float ec[4];
  float es[4];
  exact.cos_sin(at, ec, es);
  as_trained.cos_sin(at, c, s);
  CHECK(std::abs(es[1] - s[1]) > 1e-6f);
  CHECK(std::abs(es[1] - s[1]) < 2e-2f);
  CHECK(exact.float32_inv_freq().empty());
  CHECK(as_trained.float32_inv_freq()[1] == 1.0f / static_cast<float>(std::pow(10000.0, 0.25)));
  CHECK(rounded.float32_inv_freq()[1] == 0.1f);
  // The frequencies it reports are those of the formula in every mode.
  CHECK(as_trained.inv_freq() == exact.inv_freq());

  auto key = values<float>(8);
  const auto before = key;
  CHECK(refusal([&] {
          as_trained.shift(posenc::view{key.data(), {.tokens = 1, .dim = 8}}, 1);
        }) == "posenc::rope::shift: encoder must turn keys by their position alone, got float32 angles do not add up");
  CHECK(key == before);
}

TEST_CASE("rope says what it is", "[rope]") {
  const posenc::rope<float> r{
      {.head_dim = 10, .rotary_dim = 6, .offset = 2, .layout = interleaved, .attention_factor = 2}};
  CHECK(r.head_dim() == 10);
  CHECK(r.rotary_dim() == 6);
  CHECK(r.offset() == 2);
  CHECK(r.pairs() == 3);
  CHECK(r.layout() == interleaved);
  CHECK(r.magnitude() == 2);
  CHECK(r.angles() == posenc::angle_mode::exact);
  CHECK(r.inv_freq().size() == 3);
  CHECK(r.inv_freq()[0] == 1);
  CHECK(r.inv_freq()[2] == Approx(std::pow(10000.0, -4.0 / 6)).epsilon(1e-15));
  CHECK(r.describe().parameters == 0);
  CHECK(!r.describe().position_limit);
  CHECK(r.describe().table_bytes == 3 * static_cast<std::int64_t>(sizeof(posenc::math::turns)));
  CHECK(r.describe().shift == posenc::cache_shift::rotate_keys);
  // cos_sin holds the magnitude, in any type.
  double c[3];
  double s[3];
  r.cos_sin(0, c, s);
  CHECK(c[1] == 2);
  CHECK(s[1] == 0);
  Eigen::half hc[3];
  Eigen::half hs[3];
  r.cos_sin(9, hc, hs);
  r.cos_sin(9, c, s);
  CHECK(static_cast<float>(hc[0]) == Approx(c[0]).epsilon(0x1p-11));
  CHECK(static_cast<float>(hs[0]) == Approx(s[0]).epsilon(0x1p-11));
}

TEST_CASE("rope refuses before it writes", "[rope]") {
  const posenc::rope<float> r{{.head_dim = 8}};
  auto x = values<float>(2 * 3 * 8);
  const auto before = x;
  const posenc::view v{x.data(), {.batch = 2, .tokens = 3, .dim = 8}};
  const posenc::view other{x.data(), {.batch = 2, .tokens = 4, .dim = 6}};
  CHECK(refusal([&] { r.rotate(other); }) == "posenc::rope::rotate: dim must equal head_dim, got 6");
  CHECK(refusal([&] { r.inverse(other); }) == "posenc::rope::inverse: dim must equal head_dim, got 6");
  CHECK(refusal([&] { r.adjoint(other); }) == "posenc::rope::adjoint: dim must equal head_dim, got 6");
  CHECK(refusal([&] { r.shift(other, 1); }) == "posenc::rope::shift: dim must equal head_dim, got 6");
  CHECK(refusal([&] { r.check({.dim = 6}); }) ==
        "posenc::rope: the dim of queries and keys must equal head_dim, got 6");
  const std::vector<std::int64_t> two{1, 2};
  CHECK(refusal([&] { r.rotate(v, positions::listed(two)); }) ==
        "posenc::rope::rotate: positions must list one id per token, batch row and axis, got 2");
  CHECK(refusal([&] { r.rotate(v, positions::per_row(std::span(two).first(1))); }) ==
        "posenc::rope::rotate: positions must list one first position per batch row, got 1");
  const std::vector<std::int64_t> grid{0, 1, 2, 3, 4, 5};
  CHECK(refusal([&] { r.rotate(v, positions::axes(grid, 2)); }) ==
        "posenc::rope::rotate: positions must have one axis, got 2");
  const posenc::view repeated{x.data(), {.tokens = 2, .heads = 3, .dim = 8}, {.token = 8, .head = 0}};
  CHECK(refusal([&] { r.rotate(repeated); }) ==
        "posenc::rope::rotate: out must not repeat elements through a stride of 0, got a stride of 0");
  posenc::call flat{.keys = 3, .dim = 8};
  CHECK(refusal([&] { r.check(flat); }) == "nothing thrown");
  flat.key_positions = positions::axes(grid, 2);
  CHECK(refusal([&] { r.check(flat); }) == "posenc::rope: positions must have one axis, got 2");
  CHECK(x == before);
  // Nothing to do is no error.
  r.rotate(posenc::view{x.data(), {.tokens = 0, .dim = 8}});
  CHECK(x == before);
}

TEST_CASE("rope turns long double and autodiff scalars", "[rope]") {
  const posenc::rope<double> r{{.head_dim = 5, .rotary_dim = 4, .offset = 1, .attention_factor = 1.5}};
  const auto x = values<double>(5);
  auto expected = x;
  oracle::rope(expected.data(), {.rotary_dim = 4, .offset = 1, .magnitude = 1.5}, 9);
  std::vector<long double> wide(x.begin(), x.end());
  r.rotate(posenc::view{wide.data(), {.tokens = 1, .dim = 5}}, positions::from(9));
  CHECK(largest_difference(wide, expected) < 1e-15);

  using dual = Eigen::AutoDiffScalar<Eigen::VectorXd>;
  std::vector<dual> y;
  for (int i = 0; i < 5; ++i) y.emplace_back(x[static_cast<std::size_t>(i)], 5, i);
  r.rotate(posenc::view{y.data(), {.tokens = 1, .dim = 5}}, positions::from(9));
  posenc_test::worst worst;
  for (std::size_t i = 0; i < 5; ++i) {
    worst.see(std::abs(y[i].value() - expected[i]), static_cast<long double>(i));
    // Column i of the rotation is what it makes of the i-th unit vector.
    std::vector<double> unit(5);
    unit[i] = 1;
    oracle::rope(unit.data(), {.rotary_dim = 4, .offset = 1, .magnitude = 1.5}, 9);
    for (std::size_t j = 0; j < 5; ++j)
      worst.see(std::abs(y[j].derivatives()[static_cast<Eigen::Index>(i)] - unit[j]), static_cast<long double>(j));
  }
  CHECK(worst.error < 1e-15);
}

TEST_CASE("rope sums angles over axes, and heads have frequencies of their own", "[rope]") {
  // Three heads, two axes, four pairs, as RoPE-ViT learns them.
  std::vector<double> f;
  for (int i = 0; i < 24; ++i) f.push_back(std::sin(1.3 * i + 0.4));
  const posenc::rope<double> r{
      {.head_dim = 8, .layout = interleaved, .inv_freq = f, .frequency_axes = 2, .frequency_heads = 3}};
  CHECK((r.axis_count() == 2 && r.frequency_heads() == 3));
  const posenc::shape s{.tokens = 2, .heads = 3, .dim = 8};
  const auto x = values<double>(s.elements());
  const std::vector<std::int64_t> grid{5, -7, 11, 30};  // x of both tokens, then y
  const std::vector<double> between{5.25, -7.5, 11.75, 0.125};
  auto whole = x;
  r.rotate(posenc::view{whole.data(), s}, positions::axes(grid, 2));
  auto real = x;
  r.rotate(posenc::view{real.data(), s}, posenc::real_positions::axes(between, 2));
  for (std::size_t t = 0; t < 2; ++t)
    for (std::size_t h = 0; h < 3; ++h) {
      const auto turned_by = [&](const auto& at) {
        std::vector<long double> angle;
        for (std::size_t i = 0; i < 4; ++i)
          angle.push_back(static_cast<long double>(at[t]) * f[8 * h + i] +
                          static_cast<long double>(at[2 + t]) * f[8 * h + 4 + i]);
        return oracle::rope_matrix({8, 0, oracle::pairing::neighbours, {}}, angle).times(x.data() + 8 * (3 * t + h));
      };
      const auto part = [&](const std::vector<double>& y) {
        const auto from = y.begin() + static_cast<std::ptrdiff_t>(8 * (3 * t + h));
        return std::vector(from, from + 8);
      };
      CHECK(largest_difference(part(whole), turned_by(grid)) < 2e-14);
      CHECK(largest_difference(part(real), turned_by(between)) < 2e-14);
      double c[4];
      double sine[4];
      posenc::position at;
      at.axis = {grid[t], grid[2 + t], 0, 0};
      r.cos_sin(at, c, sine, static_cast<std::int64_t>(h));
      CHECK(c[1] == Approx(std::cos(static_cast<double>(grid[t]) * f[8 * h + 1] +
                                    static_cast<double>(grid[2 + t]) * f[8 * h + 5]))
                        .epsilon(0)
                        .margin(2e-14));
    }
  // Undone, shifted and refused like any other.
  auto back = whole;
  r.inverse(posenc::view{back.data(), s}, positions::axes(grid, 2));
  CHECK(largest_difference(back, x) < 2e-15);
  auto moved = whole;
  r.shift(posenc::view{moved.data(), s}, 1000);
  auto direct = x;
  r.rotate(posenc::view{direct.data(), s}, positions::axes(std::vector<std::int64_t>{1005, 993, 1011, 1030}, 2));
  CHECK(largest_difference(moved, direct) < 2e-14);
  double c[4];
  double sine[4];
  for (const std::int64_t head : {-1, 3})
    CHECK(refusal<std::out_of_range>([&] { r.cos_sin(posenc::position(0), c, sine, head); }) ==
          "posenc::rope::cos_sin: head must lie below frequency_heads, got " + std::to_string(head));
  const posenc::view one{back.data(), {.tokens = 6, .dim = 8}};
  CHECK(refusal([&] { r.rotate(one); }) == "posenc::rope::rotate: heads must equal frequency_heads, got 1");
  CHECK(refusal([&] { r.shift(one, 1); }) == "posenc::rope::shift: heads must equal frequency_heads, got 1");
  CHECK(refusal([&] { r.check({.heads = 3, .kv_heads = 1, .dim = 8}); }) ==
        "posenc::rope: the heads of queries and keys must equal frequency_heads, got 1");
}

TEST_CASE("rope takes positions of one axis or of all that its pairs name", "[rope]") {
  const posenc::rope<float> r{{.head_dim = 8, .axes = posenc::rope_axes::chunked({1, 1, 2})}};
  auto x = values<float>(2 * 8);
  const auto before = x;
  const posenc::view v{x.data(), {.tokens = 2, .dim = 8}};
  const std::vector<std::int64_t> ids{1, 2, 3, 4};
  const std::vector<double> reals{1, 2, 3, 4};
  const std::string rule = "positions must have one axis or those that the pairs name, got 2";
  CHECK(refusal([&] { r.rotate(v, positions::axes(ids, 2)); }) == "posenc::rope::rotate: " + rule);
  CHECK(refusal([&] { r.inverse(v, positions::axes(ids, 2)); }) == "posenc::rope::inverse: " + rule);
  CHECK(refusal([&] { r.adjoint(v, positions::axes(ids, 2)); }) == "posenc::rope::adjoint: " + rule);
  CHECK(refusal([&] { r.rotate(v, posenc::real_positions::axes(reals, 2)); }) == "posenc::rope::rotate: " + rule);
  posenc::call c{.heads = 1, .kv_heads = 1, .queries = 2, .keys = 2, .dim = 8};
  c.query_positions = positions::axes(ids, 2);
  CHECK(refusal([&] { r.check(c); }) == "posenc::rope: " + rule);
  const std::vector<std::int64_t> three{1, 2, 3, 4, 5, 6};
  c.query_positions = positions::axes(three, 3);
  CHECK(refusal([&] { r.check(c); }) == "nothing thrown");
  CHECK(x == before);
}

TEST_CASE("rope says why keys can not be moved", "[rope]") {
  const posenc::rope<float> mixed{{.head_dim = 8, .layout = posenc::vjepa2_mixed}};
  auto x = values<float>(8);
  const auto before = x;
  const posenc::view v{x.data(), {.tokens = 1, .dim = 8}};
  CHECK(refusal([&] { mixed.shift(v, 1); }) ==
        "posenc::rope::shift: encoder must turn keys by their position alone, got the pairs of vjepa2_mixed are not "
        "turned orthogonally");
  CHECK(refusal([&] { mixed.inverse(v); }) == "posenc::rope::inverse: layout must be orthogonal, got vjepa2_mixed");
  CHECK(x == before);
  CHECK(mixed.describe().shift == posenc::cache_shift::recompute_keys);
  CHECK(mixed.describe().shift_reason == "the pairs of vjepa2_mixed are not turned orthogonally");
  for (const auto mode : {posenc::angle_mode::float32, posenc::angle_mode::float32_rounded_inv_freq,
                          posenc::angle_mode::ggml_recurrence}) {
    const posenc::rope<float> r{{.head_dim = 8, .angles = mode}};
    CHECK(r.shift_refusal() == "float32 angles do not add up");
    CHECK(r.describe().shift == posenc::cache_shift::recompute_keys);
  }
  const posenc::rope<float> fine{{.head_dim = 8, .scaling = posenc::dynamic_ntk{2, 8, 16}}};
  CHECK(fine.shift_refusal().empty());
  CHECK(fine.describe().shift_reason.empty());
  CHECK((fine.depends_on_length() && !mixed.depends_on_length()));
}

TEST_CASE("rope moves keys along the axes that turn pairs", "[rope]") {
  // No pair follows the first axis.
  const posenc::rope<double> r{{.head_dim = 4, .axes = posenc::rope_axes::alternating_hw({1, 1, 0})}};
  auto x = values<double>(4);
  auto y = x;
  const posenc::view v{x.data(), {.tokens = 1, .dim = 4}};
  posenc::position delta;
  delta.axis = {-3, 70, 70, 9};
  r.shift(v, delta);
  r.shift(posenc::view{y.data(), {.tokens = 1, .dim = 4}}, 70);
  CHECK(x == y);
  delta.axis = {70, 70, 71, 0};
  CHECK(refusal([&] { r.shift(v, delta); }) ==
        "posenc::rope::shift: delta must be the same on every axis that turns pairs, another is, got 71");
  const posenc::rope<double> sums{{.head_dim = 4, .inv_freq = {1, 2, 3, 4}, .frequency_axes = 2}};
  CHECK(refusal([&] { sums.shift(v, delta); }) == "nothing thrown");
  delta.axis = {70, 71, 70, 70};
  CHECK(refusal([&] { sums.shift(v, delta); }) ==
        "posenc::rope::shift: delta must be the same on every axis that turns pairs, another is, got 71");
  const posenc::rope<double> plain{{.head_dim = 4}};
  CHECK(refusal([&] { plain.shift(v, delta); }) == "nothing thrown");
}

TEST_CASE("rope moves keys in the order they are cached in", "[rope]") {
  const posenc::rope<double> r{
      {.head_dim = 10, .rotary_dim = 8, .offset = 1, .layout = posenc::interleaved_in_half_out, .attention_factor = 2}};
  const posenc::shape s{.tokens = 3, .heads = 2, .dim = 10};
  const auto x = values<double>(s.elements());
  auto cached = x;
  r.rotate(posenc::view{cached.data(), s}, positions::from(7));
  r.shift(posenc::view{cached.data(), s}, 1000);
  auto direct = x;
  r.rotate(posenc::view{direct.data(), s}, positions::from(1007));
  CHECK(largest_difference(cached, direct) < 1e-14);
}
