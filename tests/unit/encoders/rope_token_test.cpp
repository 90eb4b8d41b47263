// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Every layout against the matrix that it is, at every width, in every type, packed and strided, both ways.
#include "reference/rope_matrix.hpp"
#include "reference/rope_scalings.hpp"
#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rope.hpp>

namespace detail = posenc::detail;
using posenc::positions;
using posenc::rope_layout;
using posenc::shape;
using posenc::view;
using posenc_test::largest_difference;
using posenc_test::values;
using arch = posenc::simd::default_arch;

namespace {

constexpr std::int64_t place = 1000;

struct arrangement {
  const char* name;
  rope_layout layout;
  oracle::pairing pairs;
};
constexpr arrangement arrangements[] = {
    {"half_split", posenc::half_split, oracle::pairing::halves},
    {"interleaved", posenc::interleaved, oracle::pairing::neighbours},
    {"interleaved_in_half_out", posenc::interleaved_in_half_out, oracle::pairing::neighbours_to_halves},
    {"vjepa2_mixed", posenc::vjepa2_mixed, oracle::pairing::vjepa2},
    {"half_split_in_blocks", posenc::half_split_in_blocks, oracle::pairing::halves_of_blocks}};

/// Two uneven blocks with an empty one between them.
std::vector<std::int64_t> blocks_of(std::int64_t r) {
  const std::int64_t first = r / 6 * 2;
  return {first, 0, r - first};
}

struct tested {
  posenc::rope<double> encoder;
  oracle::square_matrix matrix;
};
/// A block of r channels after one channel and before two: an odd head for every even width.
tested make(const arrangement& a, std::int64_t r, double magnitude) {
  posenc::rope_options o{
      .head_dim = r + 3, .rotary_dim = r, .offset = 1, .layout = a.layout, .attention_factor = magnitude};
  if (a.layout == posenc::half_split_in_blocks) o.axes.block_dims = blocks_of(r);
  return {posenc::rope<double>(o),
          oracle::rope_matrix({r + 3, 1, a.pairs, blocks_of(r)},
                              oracle::rope_angles(oracle::plain_rope(1e4L, r), place), magnitude)};
}
bool possible(const arrangement& a, std::int64_t r) {
  return a.layout != posenc::interleaved_in_half_out || r <= detail::permuted_rotary_dim;
}
std::vector<std::int64_t> widths() {
  std::vector<std::int64_t> out;
  for (std::int64_t r = 2; r <= 70; r += 2) out.push_back(r);
  // Around the blocks of 128 pairs that rows are built in.
  for (const std::int64_t r : {126, 128, 130, 254, 256, 258, 300, 512, 514}) out.push_back(r);
  return out;
}

}  // namespace

TEST_CASE("token: every layout is its matrix, its adjoint the transpose, at every width", "[rope][layout]") {
  for (const auto& a : arrangements)
    for (const std::int64_t r : widths()) {
      if (!possible(a, r)) continue;
      for (const double magnitude : {1.0, 1.25}) {
        CAPTURE(a.name, r, magnitude);
        const tested t = make(a, r, magnitude);
        const shape s{.tokens = 1, .dim = r + 3};
        const auto x = values<double>(r + 3);
        auto y = x;
        t.encoder.rotate(view{y.data(), s}, positions::from(place));
        CHECK(largest_difference(y, t.matrix.times(x.data())) < 2e-13);
        auto back = x;
        t.encoder.adjoint(view{back.data(), s}, positions::from(place));
        CHECK(largest_difference(back, t.matrix.transposed().times(x.data())) < 2e-13);
        // The definition of an adjoint, by the library's own two verbs.
        const auto z = values<double>(r + 3, 5);
        auto across = z;
        t.encoder.adjoint(view{across.data(), s}, positions::from(place));
        long double forwards = 0;
        long double backwards = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
          forwards += static_cast<long double>(y[i]) * z[i];
          backwards += static_cast<long double>(x[i]) * across[i];
        }
        CHECK(std::abs(static_cast<double>(forwards - backwards)) < 1e-15 * static_cast<double>(r + 3));
        if (a.layout == posenc::vjepa2_mixed) continue;
        t.encoder.inverse(view{y.data(), s}, positions::from(place));
        CHECK(largest_difference(y, x) < 2e-15);
        auto first_back = x;
        t.encoder.inverse(view{first_back.data(), s}, positions::from(place));
        t.encoder.rotate(view{first_back.data(), s}, positions::from(place));
        CHECK(largest_difference(first_back, x) < 2e-15);
      }
    }
}

TEST_CASE("token: in place is out of place, for several heads and batch rows", "[rope][layout]") {
  for (const auto& a : arrangements)
    for (const std::int64_t r : widths()) {
      if (!possible(a, r)) continue;
      CAPTURE(a.name, r);
      const tested t = make(a, r, 1.25);
      const shape s{.batch = 2, .tokens = 2, .heads = 3, .dim = r + 3};
      const auto x = values<float>(s.elements());
      auto in_place = x;
      t.encoder.rotate(view{in_place.data(), s}, positions::from(place - 1));
      posenc_test::guarded<float> out(x.size(), 1);
      t.encoder.rotate_to(view{x.data(), s}, view{out.data(), s}, positions::from(place - 1));
      CHECK(posenc_test::same_bits(in_place.data(), static_cast<const float*>(out.data()), x.size()));
      CHECK(out.intact());
      // The second token stands at `place`; channels outside the block have the bits they had.
      for (std::size_t row : {3u, 4u, 5u, 9u, 10u, 11u}) {
        const auto d = static_cast<std::size_t>(r + 3);
        const auto right = t.matrix.times(x.data() + row * d);
        const std::vector<float> got(in_place.begin() + static_cast<std::ptrdiff_t>(row * d),
                                     in_place.begin() + static_cast<std::ptrdiff_t>((row + 1) * d));
        CHECK(largest_difference(got, right) < 5e-7);
        for (const std::size_t outside : {std::size_t{0}, d - 2, d - 1}) CHECK(got[outside] == x[row * d + outside]);
      }
    }
}

TEMPLATE_TEST_CASE("token: 16-bit data is the float path rounded once, in every layout", "[rope][layout]", Eigen::half,
                   Eigen::bfloat16) {
  for (const auto& a : arrangements)
    for (const std::int64_t r : widths()) {
      if (!possible(a, r)) continue;
      CAPTURE(a.name, r);
      const tested t = make(a, r, 1.25);
      const shape s{.tokens = 2, .heads = 3, .dim = r + 3};
      std::vector<TestType> narrow;
      for (const float x : values<float>(s.elements())) narrow.emplace_back(x);
      std::vector<float> wide(narrow.begin(), narrow.end());
      t.encoder.rotate(view{narrow.data(), s}, positions::from(place));
      t.encoder.rotate(view{wide.data(), s}, positions::from(place));
      std::size_t different = 0;
      for (std::size_t i = 0; i < wide.size(); ++i) different += narrow[i] != TestType(wide[i]);
      CHECK(different == 0);
    }
}

TEST_CASE("token: long double data in every layout", "[rope][layout]") {
  for (const auto& a : arrangements)
    for (const std::int64_t r : {2, 6, 32, 70, 300}) {
      CAPTURE(a.name, r);
      const tested t = make(a, r, 1.25);
      const shape s{.tokens = 1, .heads = 2, .dim = r + 3};
      const auto x = values<long double>(s.elements());
      auto y = x;
      t.encoder.rotate(view{y.data(), s}, positions::from(place));
      std::vector<long double> elsewhere(x.size());
      t.encoder.rotate_to(view{x.data(), s}, view{elsewhere.data(), s}, positions::from(place));
      CHECK(y == elsewhere);
      const std::vector<long double> second(y.begin() + r + 3, y.end());
      CHECK(largest_difference(second, t.matrix.times(x.data() + r + 3)) < 2e-13);
      t.encoder.adjoint(view{elsewhere.data(), s}, positions::from(place));
      if (a.layout == posenc::vjepa2_mixed) continue;
      posenc_test::worst w;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto d = static_cast<std::int64_t>(i) % (r + 3);
        w.see(std::fabs(elsewhere[i] - x[i] * (d >= 1 && d <= r ? 1.5625L : 1.0L)), static_cast<long double>(i));
      }
      CHECK(w.error < 2e-15L);
    }
}

namespace {

template <class T>
void check_strided(double tolerance) {
  for (const auto& a : arrangements)
    for (const std::int64_t r : {2, 4, 6, 10, 24, 50, 64, 258}) {
      CAPTURE(a.name, r);
      const tested t = make(a, r, 1.25);
      const shape s{.batch = 2, .tokens = 2, .heads = 2, .dim = r + 3};
      auto x = values<T>(s.elements());
      // Heads outermost, three elements from channel to channel, channels counted down.
      const posenc::strides step{
          .batch = 3 * s.dim * s.tokens, .token = 3 * s.dim, .head = 3 * s.dim * s.tokens * s.batch, .dim = -3};
      std::vector<T> memory(static_cast<std::size_t>(3 * s.elements()), T(0.5));
      const view packed{x.data(), s};
      const view strided{memory.data() + 3 * (s.dim - 1), s, step};
      const auto each = [&](auto&& f) {
        for (std::int64_t b = 0; b < s.batch; ++b)
          for (std::int64_t n = 0; n < s.tokens; ++n)
            for (std::int64_t h = 0; h < s.heads; ++h)
              for (std::int64_t d = 0; d < s.dim; ++d) f(b, n, h, d);
      };
      each([&](auto... i) { strided(i...) = packed(i...); });
      std::vector<T> apart(x.size());
      t.encoder.rotate_to(strided, view{apart.data(), s}, positions::from(place));
      t.encoder.rotate(packed, positions::from(place));
      t.encoder.rotate(strided, positions::from(place));
      const view copied{apart.data(), s};
      posenc_test::worst w;
      each([&](auto... i) {
        w.see(std::abs(static_cast<double>(strided(i...)) - static_cast<double>(packed(i...))));
        w.see(std::abs(static_cast<double>(copied(i...)) - static_cast<double>(packed(i...))));
      });
      CHECK(w.error <= tolerance);
      std::size_t untouched = 0;
      for (const T& m : memory) untouched += m == T(0.5);
      CHECK(untouched >= static_cast<std::size_t>(2 * s.elements()));
      t.encoder.adjoint(packed, positions::from(place));
      t.encoder.adjoint(strided, positions::from(place));
      posenc_test::worst back;
      each([&](auto... i) {
        back.see(std::abs(static_cast<double>(strided(i...)) - static_cast<double>(packed(i...))));
      });
      CHECK(back.error <= 2 * tolerance);
    }
}

}  // namespace

TEST_CASE("token: strided memory in every layout", "[rope][layout]") {
  check_strided<double>(1e-15);
  check_strided<float>(4e-7);
  check_strided<Eigen::bfloat16>(0x1p-7);
}

TEST_CASE("token: interleaved_in_half_out is a permutation after interleaved", "[rope][layout]") {
  for (const std::int64_t r : widths()) {
    if (r > detail::permuted_rotary_dim) continue;
    const posenc::rope_options o{.head_dim = r + 3, .rotary_dim = r, .offset = 1, .layout = posenc::interleaved};
    auto permuting = o;
    permuting.layout = posenc::interleaved_in_half_out;
    const shape s{.tokens = 1, .dim = r + 3};
    auto x = values<double>(r + 3);
    auto y = x;
    posenc::rope<double>{o}.rotate(view{x.data(), s}, positions::from(-77));
    posenc::rope<double>{permuting}.rotate(view{y.data(), s}, positions::from(-77));
    auto right = x;
    for (std::int64_t i = 0; i < r / 2; ++i) {
      right[static_cast<std::size_t>(1 + i)] = x[static_cast<std::size_t>(1 + 2 * i)];
      right[static_cast<std::size_t>(1 + i + r / 2)] = x[static_cast<std::size_t>(2 + 2 * i)];
    }
    CHECK(largest_difference(y, right) < 1e-15);
  }
}

TEST_CASE("token: half_split_in_blocks is half_split in every block", "[rope][layout]") {
  for (const std::vector<std::int64_t>& dims :
       {std::vector<std::int64_t>{40, 40}, {16, 56, 56}, {2, 4}, {6}, {300, 2, 4}}) {
    std::int64_t r = 0;
    for (const auto d : dims) r += d;
    const posenc::rope<double> whole{
        {.head_dim = r, .layout = posenc::half_split_in_blocks, .axes = posenc::rope_axes::blocks(dims)}};
    const shape s{.tokens = 2, .dim = r};
    std::vector<std::int64_t> ids;
    for (std::size_t a = 0; a < dims.size(); ++a) {
      ids.push_back(10 + 90 * static_cast<std::int64_t>(a));
      ids.push_back(-3 - static_cast<std::int64_t>(a));
    }
    const auto x = values<double>(s.elements());
    auto y = x;
    whole.rotate(view{y.data(), s}, positions::axes(ids, static_cast<int>(dims.size())));
    auto right = x;
    std::int64_t first = 0;
    for (std::size_t a = 0; a < dims.size(); ++a) {
      const posenc::rope<double> part{{.head_dim = r, .rotary_dim = dims[a], .offset = first}};
      part.rotate(view{right.data(), s}, positions::listed(std::span<const std::int64_t>(ids).subspan(2 * a, 2)));
      first += dims[a];
    }
    CHECK(largest_difference(y, right) < 1e-15);
  }
}

TEST_CASE("token: channels outside the block are copied, also into other strides", "[rope][layout]") {
  const detail::rope_frame frame{.offset = 1, .rotary_dim = 2, .head_dim = 5};
  const auto x = values<float>(10);
  std::vector<float> out(20, 7.0f);
  detail::copy_rest(frame, detail::row_span<const float>{x.data(), 5, 1}, detail::row_span<float>{out.data(), 10, 2},
                    2);
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t d = 0; d < 5; ++d) CHECK(out[10 * h + 2 * d] == (d == 1 || d == 2 ? 7.0f : x[5 * h + d]));
  CHECK(out[1] == 7.0f);
  const detail::row_span<const float> heads{x.data(), 5, 1};
  CHECK(heads.from_head(1).data == x.data() + 5);
}

TEST_CASE("token: one token at an integer and a real position, and a head's own frequencies", "[rope][layout]") {
  std::vector<posenc::math::turns> steps;
  for (const double f : {0.5, 0.25, 0.125, 0.7, 0.35, 0.175}) steps.emplace_back(posenc::math::double_double(f));
  for (const auto layout : {posenc::half_split, posenc::interleaved}) {
    const detail::rope_frame frame{
        .layout = layout, .rotary_dim = 6, .head_dim = 6, .steps = steps.data(), .frequency_heads = 2};
    const auto pairs = layout == posenc::half_split ? oracle::pairing::halves : oracle::pairing::neighbours;
    const auto x = values<double>(12);
    const auto m = [&](const oracle::wides& f, long double at) {
      return oracle::rope_matrix({6, 0, pairs, {}}, oracle::rope_angles(f, at), 2);
    };
    const posenc::position whole = 13;
    auto y = x;
    detail::rotate_heads<arch>(frame, detail::row_span<const double>{y.data(), 6, 1},
                               detail::row_span<double>{y.data(), 6, 1}, 0, 2, true,
                               detail::rows_of_position<arch, posenc::position>{frame, whole, 2, 1});
    CHECK(largest_difference(std::vector(y.begin(), y.begin() + 6), m({0.5L, 0.25L, 0.125L}, 13).times(x.data())) <
          2e-15);
    const oracle::wides second{static_cast<long double>(0.7), static_cast<long double>(0.35),
                               static_cast<long double>(0.175)};
    CHECK(largest_difference(std::vector(y.begin() + 6, y.end()), m(second, 13).times(x.data() + 6)) < 2e-15);
    // From the second head on, as the kernels of attention ask for it.
    const posenc::real_position real = 13.5;
    auto z = x;
    detail::rotate_heads<arch>(frame, detail::row_span<const double>{z.data(), 6, 1},
                               detail::row_span<double>{z.data(), 6, 1}, 1, 1, true,
                               detail::rows_of_position<arch, posenc::real_position>{frame, real, 2, 1});
    CHECK(largest_difference(std::vector(z.begin(), z.begin() + 6), m(second, 13.5L).times(x.data())) < 2e-15);
    CHECK(std::equal(z.begin() + 6, z.end(), x.begin() + 6));
  }
}
