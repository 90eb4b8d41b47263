// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "reference/rope_matrix.hpp"
#include "reference/rope_scalings.hpp"
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/attention/attention.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/core/eigen.hpp>
#include <posenc/encoders/nope.hpp>
#include <posenc/encoders/xpos.hpp>

#include <functional>
#include <limits>

using posenc::positions;
using posenc::shape;
using posenc::view;
using posenc::xpos;
using posenc::xpos_options;
using posenc_test::largest_difference;
using posenc_test::refusal;
using posenc_test::values;

namespace {

/// The scales of the pairs: ((2i + 0.4 r) / 1.4 r)^(distance / base), by channel fractions.
oracle::wides scales(std::int64_t r, long double distance, long double scale_base) {
  oracle::wides out;
  for (std::int64_t c = 0; c < r; c += 2) {
    const long double fraction = static_cast<long double>(c) / static_cast<long double>(r);
    out.push_back(std::pow((fraction + 0.4L) / 1.4L, distance / scale_base));
  }
  return out;
}
/// x turned by `at`, its pairs scaled by the distance to the centre; sign -1 for keys.
std::vector<double> by_formula(const xpos_options& o, std::int64_t r, const double* x, std::int64_t at, int sign) {
  const bool halves = o.layout == posenc::half_split;
  auto y = oracle::rope_matrix({o.head_dim, 0, halves ? oracle::pairing::halves : oracle::pairing::neighbours, {}},
                               oracle::rope_angles(oracle::plain_rope(o.base, r), static_cast<long double>(at)))
               .times(x);
  const auto s = scales(r, static_cast<long double>(sign * (at - o.centre)), o.scale_base);
  for (std::size_t i = 0; i < s.size(); ++i)
    for (const std::size_t c : {halves ? i : 2 * i, halves ? i + s.size() : 2 * i + 1})
      y[c] = static_cast<double>(y[c] * s[i]);
  return y;
}
double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
std::vector<double> query(const xpos<double>& e, std::vector<double> x, std::int64_t at) {
  e.rotate_queries(view{x.data(), {.tokens = 1, .dim = e.head_dim()}}, positions::from(at));
  return x;
}
std::vector<double> key(const xpos<double>& e, std::vector<double> x, std::int64_t at) {
  e.rotate_keys(view{x.data(), {.tokens = 1, .dim = e.head_dim()}}, positions::from(at));
  return x;
}

}  // namespace

TEST_CASE("xpos: queries and keys against the formula", "[rope][xpos]") {
  for (const auto layout : {posenc::interleaved, posenc::half_split})
    for (const auto& [head_dim, r] : {std::pair<std::int64_t, std::int64_t>{2, 2}, {8, 8}, {67, 64}, {300, 300}})
      for (const auto& [centre, scale_base] : {std::pair<std::int64_t, double>{0, 512}, {1000, 64}, {-3, 2048}}) {
        const xpos_options o{
            .head_dim = head_dim, .rotary_dim = r, .layout = layout, .scale_base = scale_base, .centre = centre};
        const xpos<double> e{o};
        CHECK((e.head_dim() == head_dim && e.centre() == centre));
        const auto x = values<double>(head_dim);
        for (const std::int64_t at : {0, 1, -20, 511, 1500}) {
          CAPTURE(layout, head_dim, centre, scale_base, at);
          const auto scale = static_cast<double>(
              std::pow(3.5L, std::abs(static_cast<long double>(at - centre)) / static_cast<long double>(scale_base)));
          CHECK(largest_difference(query(e, x, at), by_formula(o, r, x.data(), at, 1)) < 5e-13 * scale);
          CHECK(largest_difference(key(e, x, at), by_formula(o, r, x.data(), at, -1)) < 5e-13 * scale);
          const std::vector<float> narrow(x.begin(), x.end());
          auto y = narrow;
          e.rotate_keys(view{y.data(), {.tokens = 1, .dim = head_dim}}, positions::from(at));
          CHECK(largest_difference(y, by_formula(o, r, x.data(), at, -1)) < 4e-7 * scale);
        }
      }
}

TEST_CASE("xpos: a score depends on the difference of the positions, whatever the centre", "[rope][xpos]") {
  const auto q = values<double>(32);
  const auto k = values<double>(32, 3);
  // The score itself: pair by pair zeta^((p - s) / B) times that of RoPE.
  const auto expected = [&](std::int64_t difference) {
    const auto turned =
        oracle::rope_matrix({32, 0, oracle::pairing::neighbours, {}},
                            oracle::rope_angles(oracle::plain_rope(1e4L, 32), static_cast<long double>(difference)))
            .times(q.data());
    const auto s = scales(32, static_cast<long double>(difference), 512);
    long double sum = 0;
    for (std::size_t c = 0; c < 32; ++c) sum += s[c / 2] * static_cast<long double>(turned[c]) * k[c];
    return static_cast<double>(sum);
  };
  for (const std::int64_t centre : {0, 1, 2048, -5000, 8191})
    for (const auto& [p, s] :
         {std::pair<std::int64_t, std::int64_t>{5, 3}, {1000, 998}, {4096, 0}, {7, 7}, {-9, -11}}) {
      const xpos<double> e{{.head_dim = 32, .centre = centre}};
      CAPTURE(centre, p, s);
      CHECK(dot(query(e, q, p), key(e, k, s)) == Approx(expected(p - s)).epsilon(0).margin(2e-11));
    }
  // It fades: without rotation of the slowest pair its share falls with the distance.
  const xpos<double> e{{.head_dim = 2}};
  const std::vector<double> one{1, 0};
  const auto size = [&](std::int64_t p) { return std::hypot(query(e, one, p)[0], query(e, one, p)[1]); };
  CHECK(size(512) == Approx(0.4 / 1.4).epsilon(1e-13));
  CHECK(size(1024) == Approx(0.16 / 1.96).epsilon(1e-13));
}

TEST_CASE("xpos: cached keys move", "[rope][xpos]") {
  for (const auto layout : {posenc::interleaved, posenc::half_split})
    for (const std::int64_t delta : {-700, -1, 0, 1, 4000}) {
      const xpos<double> e{{.head_dim = 19, .rotary_dim = 16, .layout = layout, .centre = 100}};
      const shape s{.batch = 2, .tokens = 3, .heads = 2, .dim = 19};
      const auto x = values<double>(s.elements());
      auto moved = x;
      e.rotate_keys(view{moved.data(), s}, positions::from(1000));
      e.shift(view{moved.data(), s}, delta);
      auto direct = x;
      e.rotate_keys(view{direct.data(), s}, positions::from(1000 + delta));
      posenc_test::worst w;
      for (std::size_t i = 0; i < x.size(); ++i)
        w.see(std::abs(moved[i] - direct[i]) / std::max(1.0, std::abs(direct[i])), static_cast<long double>(i));
      CAPTURE(layout, delta, w);
      CHECK(w.error < 1e-12L);
    }
  const xpos<float> e{{.head_dim = 4}};
  CHECK(e.describe().shift == posenc::cache_shift::rotate_keys);
  CHECK(e.describe().shift_reason.empty());
  CHECK(e.describe().parameters == 0);
}

TEST_CASE("xpos: out of reach is refused before anything is written", "[rope][xpos]") {
  const xpos<float> e{{.head_dim = 4, .centre = 10}};
  // 2^126 = 3.5^(reach / 512), rounded down.
  CHECK(e.reach() == 35694);
  CHECK(xpos<float>{{.head_dim = 128}}.reach() == 35694);
  CHECK(xpos<float>{{.head_dim = 4, .scale_base = 1024}}.reach() == 71388);
  auto x = values<float>(2 * 4);
  const auto before = x;
  const view v{x.data(), {.tokens = 2, .dim = 4}};
  const std::string rule = " must lie within reach of the centre, where scales stay finite, got ";
  CHECK(refusal([&] { e.rotate_queries(v, positions::from(e.reach() + 10)); }) ==
        "posenc::xpos::rotate_queries: positions" + rule + "35705");
  CHECK(refusal([&] { e.rotate_keys(v, positions::from(9 - e.reach())); }) ==
        "posenc::xpos::rotate_keys: positions" + rule + "-35685");
  CHECK(refusal([&] { e.shift(v, e.reach() + 1); }) == "posenc::xpos::shift: positions" + rule + "35695");
  for (const std::int64_t far :
       {std::numeric_limits<std::int64_t>::max() - 1, std::numeric_limits<std::int64_t>::min()}) {
    CHECK(refusal([&] { e.rotate_keys(v, positions::from(far)); }).find("within reach") != std::string::npos);
    CHECK(refusal([&] { e.shift(v, far); }).find("within reach") != std::string::npos);
  }
  const std::vector<std::int64_t> grid{1, 2, 3, 4};
  CHECK(refusal([&] { e.rotate_keys(v, positions::axes(grid, 2)); }) ==
        "posenc::xpos::rotate_keys: positions must have one axis, got 2");
  const view other{x.data(), {.tokens = 1, .dim = 6}};
  CHECK(refusal([&] { e.rotate_keys(other); }) == "posenc::xpos::rotate_keys: dim must equal head_dim, got 6");
  CHECK(refusal([&] { e.rotate_queries(other); }) == "posenc::xpos::rotate_queries: dim must equal head_dim, got 6");
  CHECK(refusal([&] { e.shift(other, 1); }) == "posenc::xpos::shift: dim must equal head_dim, got 6");
  const view repeated{x.data(), {.tokens = 2, .dim = 4}, {.token = 0}};
  for (const auto& f : {std::function<void()>([&] { e.rotate_keys(repeated); }), {[&] { e.shift(repeated, 1); }}})
    CHECK(refusal(f).find("must not repeat elements") != std::string::npos);
  CHECK(x == before);
  // At the end of the reach everything is finite, on both sides.
  auto y = values<float>(4);
  for (const std::int64_t end : {10 + e.reach(), 10 - e.reach()}) {
    for (const bool keys : {true, false}) {
      auto z = y;
      const view one{z.data(), {.tokens = 1, .dim = 4}};
      keys ? e.rotate_keys(one, positions::from(end)) : e.rotate_queries(one, positions::from(end));
      for (const float value : z) CHECK((std::isfinite(value) && value != 0));
    }
  }
  // Half data ends sooner, bfloat16 has the range of float.
  CHECK(e.reach<Eigen::half>() == 3966);
  CHECK(e.reach<Eigen::bfloat16>() == e.reach());
  CHECK(e.reach<double>() == e.reach());
  std::vector<Eigen::half> narrow(y.begin(), y.end());
  const view halves{narrow.data(), {.tokens = 1, .dim = 4}};
  CHECK(refusal([&] { e.rotate_keys(halves, positions::from(10 + 3967)); }) ==
        "posenc::xpos::rotate_keys: positions" + rule + "3977");
  CHECK(refusal([&] { e.shift(halves, -3967); }) == "posenc::xpos::shift: positions" + rule + "-3967");
  e.rotate_keys(halves, positions::from(10 + 3966));
  for (const auto& value : narrow) CHECK(std::isfinite(static_cast<float>(value)));
  e.rotate_keys(view{x.data(), {.tokens = 0, .dim = 4}});
  e.shift(view{x.data(), {.tokens = 0, .dim = 4}}, 5);
  CHECK(x == before);
}

TEST_CASE("xpos: impossible options are refused", "[rope][xpos]") {
  const auto refused = [](const xpos_options& o) { return refusal([&] { xpos<float>{o}; }); };
  for (const double bad : {0.0, -1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)})
    CHECK(refused({.head_dim = 4, .scale_base = bad}).find("posenc::xpos: scale_base must be positive and finite") ==
          0);
  for (const auto layout : {posenc::interleaved_in_half_out, posenc::vjepa2_mixed})
    CHECK(refused({.head_dim = 4, .layout = layout}).find("posenc::xpos: layout must be half_split or interleaved") ==
          0);
  CHECK(refused({.head_dim = 5}) == "posenc::rope: rotary_dim must be even and at least 2, got 5");
  // A reach that no int64 holds is the whole range.
  const xpos<float> flat{{.head_dim = 4, .scale_base = 1e300}};
  CHECK(flat.reach() > std::int64_t{1} << 60);
}

TEST_CASE("xpos: attention scales and turns as the two verbs do", "[rope][xpos]") {
  const xpos<float> e{{.head_dim = 18, .rotary_dim = 16, .centre = 50}};
  const shape s{.batch = 1, .tokens = 40, .heads = 2, .dim = 18};
  auto q = values<float>(s.elements());
  auto k = values<float>(s.elements(), 1);
  const auto v = values<float>(s.elements(), 2);
  std::vector<float> inside(q.size());
  const auto at = positions::from(30);
  posenc::attention(view<const float>{q.data(), s}, view<const float>{k.data(), s}, view<const float>{v.data(), s},
                    view{inside.data(), s}, posenc::compose(e, posenc::causal{}),
                    {.query_positions = at, .key_positions = at, .keys = posenc::key_state::unrotated});
  e.rotate_queries(view{q.data(), s}, at);
  e.rotate_keys(view{k.data(), s}, at);
  std::vector<float> outside(q.size());
  posenc::attention(view<const float>{q.data(), s}, view<const float>{k.data(), s}, view<const float>{v.data(), s},
                    view{outside.data(), s}, posenc::compose(posenc::nope{}, posenc::causal{}),
                    {.query_positions = at, .key_positions = at});
  CHECK(largest_difference(inside, outside) < 2e-6);
  const auto before = inside;
  CHECK(refusal([&] {
          posenc::attention(view<const float>{q.data(), s}, view<const float>{k.data(), s},
                            view<const float>{v.data(), s}, view{inside.data(), s},
                            posenc::compose(e, posenc::causal{}),
                            {.query_positions = positions::from(40000), .key_positions = at});
        }).find("within reach of the centre") != std::string::npos);
  CHECK(inside == before);
}
