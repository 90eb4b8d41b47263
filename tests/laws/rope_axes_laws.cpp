// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Rotations by several axes: text is text, every pair follows its axis alone, attention turns what rotate turns.
#include "laws/random_case.hpp"
#include "reference/rope_matrix.hpp"
#include "reference/rope_scalings.hpp"
#include "support/catch.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/rope_table.hpp>

using posenc::positions;
using posenc::rope_axes;
using posenc::shape;
using posenc::view;

namespace {

struct builder {
  const char* name;
  rope_axes axes;
  std::int64_t head_dim;
};
/// Builders whose ladder runs through.
std::vector<builder> ladders_that_run_through() {
  return {{"chunked", rope_axes::chunked({16, 24, 24}), 128},
          {"chunked, two axes", rope_axes::chunked({3, 2}), 10},
          {"interleaved", rope_axes::interleaved({24, 20, 20}), 128},
          {"interleaved, small", rope_axes::interleaved({11, 11, 10}), 64},
          {"imrope_ggml", rope_axes::imrope_ggml({24, 20, 20, 0}), 128},
          {"alternating_hw", rope_axes::alternating_hw({22, 22, 20}), 128},
          {"many pairs", rope_axes::chunked({100, 100, 90}), 580}};
}
std::vector<builder> all_builders() {
  auto out = ladders_that_run_through();
  out.push_back({"blocks", rope_axes::blocks({16, 56, 56}), 128});
  out.push_back({"vision blocks", rope_axes::blocks({40, 40}), 80});
  out.push_back({"pixtral", rope_axes::pixtral(64), 64});
  return out;
}

constexpr posenc::rope_layout orthogonal[] = {posenc::half_split, posenc::interleaved, posenc::interleaved_in_half_out};
constexpr posenc::angle_mode modes[] = {posenc::angle_mode::exact, posenc::angle_mode::float32,
                                        posenc::angle_mode::float32_rounded_inv_freq,
                                        posenc::angle_mode::ggml_recurrence};

/// ids[axis * tokens + t] with the same number on every axis.
std::vector<std::int64_t> on_every_axis(const std::vector<std::int64_t>& at, int axes) {
  std::vector<std::int64_t> out;
  for (int a = 0; a < axes; ++a) out.insert(out.end(), at.begin(), at.end());
  return out;
}
std::vector<std::int64_t> ids(laws::random_case& any, std::int64_t tokens, int axes, std::int64_t reach = 100000) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < tokens * axes; ++i) out.push_back(any.whole(-reach, reach));
  return out;
}
/// The frequency of every pair in long double.
oracle::wides frequencies_of(const rope_axes& axes, double base) {
  oracle::wides out;
  for (const auto& p : axes.pairs)
    out.push_back(std::exp(-std::log(static_cast<long double>(base)) * static_cast<long double>(p.rung) /
                           static_cast<long double>(p.rungs)));
  return out;
}

}  // namespace

TEST_CASE("axes: a text token is turned as by plain RoPE, bit for bit", "[laws][rope][axes]") {
  const std::vector<std::int64_t> at{0, 1, -5, 4095, 131071, 1000000007, 16777217};
  const auto tokens = static_cast<std::int64_t>(at.size());
  for (const auto& b : ladders_that_run_through())
    for (const auto layout : orthogonal) {
      if (layout == posenc::interleaved_in_half_out && b.head_dim > 512) continue;
      for (const auto mode : modes) {
        CAPTURE(b.name, layout, mode);
        posenc::rope_options o{.head_dim = b.head_dim,
                               .base = 1e6,
                               .layout = layout,
                               .scaling = posenc::linear{2},
                               .attention_factor = 1.25,
                               .angles = mode};
        const posenc::rope<float> plain{o};
        o.axes = b.axes;
        const posenc::rope<float> e{o};
        REQUIRE(e.axis_count() > 1);
        const shape s{.tokens = tokens, .heads = 2, .dim = b.head_dim};
        laws::random_case any(7);
        const auto x = any.vector<float>(s.elements());
        auto right = x;
        plain.rotate(view{right.data(), s}, positions::listed(at));
        auto by_one = x;
        e.rotate(view{by_one.data(), s}, positions::listed(at));
        CHECK(by_one == right);
        auto by_all = x;
        const auto same = on_every_axis(at, 4);
        e.rotate(view{by_all.data(), s}, positions::axes(same, 4));
        CHECK(by_all == right);
        // The hooks of attention.
        auto hooked = x;
        for (std::int64_t t = 0; t < tokens; ++t) {
          e.transform_q(hooked.data() + 2 * t * b.head_dim, b.head_dim, at[static_cast<std::size_t>(t)], 0);
          e.transform_k(hooked.data() + (2 * t + 1) * b.head_dim, b.head_dim, at[static_cast<std::size_t>(t)], 1);
        }
        CHECK(hooked == right);
        // Back again, and in 16 bits.
        plain.inverse(view{right.data(), s}, positions::listed(at));
        e.inverse(view{by_all.data(), s}, positions::axes(same, 4));
        CHECK(by_all == right);
        std::vector<Eigen::bfloat16> narrow(x.begin(), x.end());
        auto narrow_right = narrow;
        plain.rotate(view{narrow_right.data(), s}, positions::listed(at));
        e.rotate(view{narrow.data(), s}, positions::axes(same, 4));
        CHECK(narrow == narrow_right);
      }
    }
}

TEST_CASE("axes: a text token by a table has the bits of a table of plain RoPE", "[laws][rope][axes]") {
  for (const auto& b : ladders_that_run_through())
    for (const auto layout : orthogonal) {
      if (layout == posenc::interleaved_in_half_out && b.head_dim > 512) continue;
      CAPTURE(b.name, layout);
      const posenc::rope<float> plain{{.head_dim = b.head_dim, .layout = layout}};
      const posenc::rope<float> e{{.head_dim = b.head_dim, .layout = layout, .axes = b.axes}};
      const shape s{.tokens = 5, .heads = 2, .dim = b.head_dim};
      laws::random_case any(8);
      const auto x = any.vector<float>(s.elements());
      auto right = x;
      posenc::rope_table<float>{plain, -2, 12}.rotate(view{right.data(), s}, positions::from(3));
      auto y = x;
      const posenc::rope_table<float> table{e, -2, 12};
      table.rotate(view{y.data(), s}, positions::from(3));
      CHECK(y == right);
      auto z = x;
      table.slice(3, 5).rotate(view{z.data(), s}, positions::axes(on_every_axis({3, 4, 5, 6, 7}, 4), 4));
      CHECK(z == right);
    }
}

TEST_CASE("axes: every pair is turned by its axis, whole positions and fractions", "[laws][rope][axes]") {
  for (const auto& b : all_builders())
    for (const auto layout : {posenc::half_split, posenc::interleaved}) {
      CAPTURE(b.name, layout);
      for (const double multiplier : {1.0, 6.283185307179586}) {
        auto axes = b.axes;
        axes.multiplier = multiplier;
        const posenc::rope<double> e{{.head_dim = b.head_dim, .base = 500, .layout = layout, .axes = axes}};
        const int n = e.axis_count();
        laws::random_case any(9);
        const std::int64_t tokens = 3;
        const shape s{.tokens = tokens, .dim = b.head_dim};
        const auto x = any.vector(s.elements());
        const auto whole = ids(any, tokens, n, 1000);
        std::vector<double> real;
        for (std::int64_t i = 0; i < tokens * n; ++i) real.push_back(any.real(-300, 300));
        auto y = x;
        e.rotate(view{y.data(), s}, positions::axes(whole, n));
        auto z = x;
        e.rotate(view{z.data(), s}, posenc::real_positions::axes(real, n));
        const auto f = frequencies_of(b.axes, 500);
        const auto check = [&](const std::vector<double>& got, const auto& at) {
          posenc_test::worst w;
          for (std::int64_t t = 0; t < tokens; ++t) {
            oracle::wides angle;
            for (std::size_t i = 0; i < f.size(); ++i)
              angle.push_back(
                  static_cast<long double>(at[static_cast<std::size_t>(b.axes.pairs[i].axis * tokens + t)]) *
                  static_cast<long double>(multiplier) * f[i]);
            const auto right = oracle::rope_matrix({b.head_dim,
                                                    0,
                                                    layout == posenc::half_split ? oracle::pairing::halves
                                                                                 : oracle::pairing::neighbours,
                                                    {}},
                                                   angle)
                                   .times(x.data() + t * b.head_dim);
            for (std::int64_t d = 0; d < b.head_dim; ++d)
              w.see(std::abs(got[static_cast<std::size_t>(t * b.head_dim + d)] - right[static_cast<std::size_t>(d)]));
          }
          return w.error;
        };
        CHECK(check(y, whole) < 1e-12L);
        CHECK(check(z, real) < 1e-12L);
        // Whole numbers are the same as integers.
        const std::vector<double> as_real(whole.begin(), whole.end());
        auto same = x;
        e.rotate(view{same.data(), s}, posenc::real_positions::axes(as_real, n));
        CHECK(laws::difference(same, y) < 1e-14);
      }
    }
}

TEST_CASE("axes: a score depends on the difference on every axis alone", "[laws][rope][axes]") {
  for (const auto& b : all_builders())
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      CAPTURE(b.name, seed);
      laws::random_case any(seed);
      const posenc::rope<double> e{{.head_dim = b.head_dim, .axes = b.axes}};
      const auto q = any.vector(b.head_dim);
      const auto k = any.vector(b.head_dim);
      posenc::position p;
      posenc::position s;
      posenc::position delta;
      for (std::size_t a = 0; a < 4; ++a) {
        p.axis[a] = any.whole(-1000, 1000);
        s.axis[a] = any.whole(-1000, 1000);
        delta.axis[a] = any.whole(-1000000000, 1000000000);
      }
      const auto score = [&](posenc::position query, posenc::position key) {
        auto x = q;
        auto y = k;
        e.transform_q(x.data(), b.head_dim, query, 0);
        e.transform_k(y.data(), b.head_dim, key, 0);
        return laws::dot(x.data(), y.data(), b.head_dim);
      };
      const double right = score(p, s);
      for (std::size_t a = 0; a < 4; ++a) {
        p.axis[a] += delta.axis[a];
        s.axis[a] += delta.axis[a];
      }
      CHECK(score(p, s) == Approx(right).epsilon(0).margin(1e-12));
      p.axis[1] += 3;
      CHECK(std::abs(score(p, s) - right) > 1e-9);
    }
}

TEST_CASE("axes: a table gives every pair the row of its axis", "[laws][rope][axes]") {
  for (const auto& b : all_builders())
    for (const auto layout : {posenc::half_split, posenc::interleaved, posenc::vjepa2_mixed}) {
      CAPTURE(b.name, layout);
      const posenc::rope<float> e{{.head_dim = b.head_dim + 3,
                                   .rotary_dim = b.head_dim,
                                   .offset = 2,
                                   .layout = layout,
                                   .axes = b.axes,
                                   .attention_factor = 1.5}};
      const posenc::rope_table<float> table{e, -20, 41};
      laws::random_case any(10);
      const shape s{.batch = 2, .tokens = 3, .heads = 2, .dim = b.head_dim + 3};
      const auto x = any.vector<float>(s.elements());
      const int n = e.axis_count();
      std::vector<std::int64_t> at;
      for (std::int64_t i = 0; i < 2 * 3 * n; ++i) at.push_back(any.whole(-20, 20));
      auto right = x;
      e.rotate(view{right.data(), s}, positions::axes(at, n, 2));
      auto y = x;
      table.rotate(view{y.data(), s}, positions::axes(at, n, 2));
      CHECK(y == right);
      // A coordinate without a row is refused before anything is written.
      at.back() = 21;
      CHECK_THROWS_AS(table.rotate(view{y.data(), s}, positions::axes(at, n, 2)), std::out_of_range);
      CHECK(y == right);
    }
}

TEST_CASE("axes: cached keys move where every axis moves alike", "[laws][rope][axes]") {
  for (const auto& b : all_builders())
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      CAPTURE(b.name, seed);
      laws::random_case any(seed);
      const posenc::rope<double> e{{.head_dim = b.head_dim, .axes = b.axes, .attention_factor = 1.5}};
      const int n = e.axis_count();
      const shape s{.tokens = 4, .dim = b.head_dim};
      const auto x = any.vector(s.elements());
      auto at = ids(any, 4, n);
      const std::int64_t delta = any.whole(-1000000, 1000000);
      auto moved = x;
      e.rotate(view{moved.data(), s}, positions::axes(at, n));
      auto by_position = moved;
      e.shift(view{moved.data(), s}, delta);
      e.shift(view{by_position.data(), s}, posenc::position(delta));
      CHECK(by_position == moved);
      for (auto& p : at) p += delta;
      auto right = x;
      e.rotate(view{right.data(), s}, positions::axes(at, n));
      CHECK(laws::difference(moved, right) < 1e-14);
      // One axis alone is no shift.
      posenc::position uneven = delta;
      uneven.axis[1] += 1;
      CHECK_THROWS_WITH(e.shift(view{moved.data(), s}, uneven),
                        posenc_test::contains("posenc::rope::shift: delta must be the same on every axis"));
    }
}

namespace {

/// Attention that rotates inside against queries and keys rotated before.
void check_attention(const posenc::rope<float>& e, std::int64_t heads, std::int64_t kv_heads, std::uint64_t seed) {
  laws::random_case any(seed);
  const shape qs{.batch = 2, .tokens = 5, .heads = heads, .dim = e.head_dim()};
  const shape ks{.batch = 2, .tokens = 9, .heads = kv_heads, .dim = e.head_dim()};
  const int n = e.axis_count();
  auto q = any.vector<float>(qs.elements());
  auto k = any.vector<float>(ks.elements());
  const auto v = any.vector<float>(ks.elements());
  const auto query_ids = ids(any, 2 * qs.tokens, n, 5000);
  const auto key_ids = ids(any, 2 * ks.tokens, n, 5000);
  const auto query_at = positions::axes(query_ids, n, 2);
  const auto key_at = positions::axes(key_ids, n, 2);
  std::vector<float> inside(q.size());
  posenc::attention(view<const float>{q.data(), qs}, view<const float>{k.data(), ks}, view<const float>{v.data(), ks},
                    view{inside.data(), qs}, e,
                    {.query_positions = query_at, .key_positions = key_at, .keys = posenc::key_state::unrotated});
  e.rotate(view{k.data(), ks}, key_at);
  std::vector<float> cached(q.size());
  posenc::attention(view<const float>{q.data(), qs}, view<const float>{k.data(), ks}, view<const float>{v.data(), ks},
                    view{cached.data(), qs}, e, {.query_positions = query_at, .key_positions = key_at});
  e.rotate(view{q.data(), qs}, query_at);
  std::vector<float> outside(q.size());
  posenc::attention(view<const float>{q.data(), qs}, view<const float>{k.data(), ks}, view<const float>{v.data(), ks},
                    view{outside.data(), qs}, posenc::nope{}, {});
  CHECK(laws::difference(inside, outside) < 2e-6);
  CHECK(laws::difference(cached, outside) < 2e-6);
}

}  // namespace

TEST_CASE("axes: attention turns queries and keys as rotate does", "[laws][rope][axes]") {
  std::uint64_t seed = 0;
  for (const auto& b : all_builders())
    for (const auto layout : orthogonal) {
      if (layout == posenc::interleaved_in_half_out && b.head_dim > 512) continue;
      CAPTURE(b.name, layout);
      check_attention(posenc::rope<float>{{.head_dim = b.head_dim, .layout = layout, .axes = b.axes}}, 4, 2, ++seed);
    }
  // Sums over two axes with frequencies of every head.
  laws::random_case any(99);
  std::vector<double> f;
  for (int i = 0; i < 3 * 2 * 4; ++i) f.push_back(any.real(-0.5, 0.5));
  check_attention(
      posenc::rope<float>{
          {.head_dim = 8, .layout = posenc::interleaved, .inv_freq = f, .frequency_axes = 2, .frequency_heads = 3}},
      3, 3, 100);
}
