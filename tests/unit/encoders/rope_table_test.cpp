// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/core/eigen.hpp>
#include <posenc/encoders/rope_table.hpp>

#include <limits>

using posenc::positions;
using posenc_test::largest_difference;
using posenc_test::refusal;
using posenc_test::values;

TEST_CASE("rope table: rows hold the encoder's cos and sin once, whatever the layout", "[rope]") {
  const posenc::rope<float> half{{.head_dim = 12, .rotary_dim = 8, .attention_factor = 1.5}};
  const posenc::rope<float> paired{
      {.head_dim = 12, .rotary_dim = 8, .layout = posenc::interleaved, .attention_factor = 1.5}};
  const posenc::rope_table<double> a{half, -3, 10};
  const posenc::rope_table<double> b{paired, -3, 10};
  CHECK(a.first() == -3);
  CHECK(a.rows() == 10);
  CHECK(a.pairs() == 4);
  double c[4];
  double s[4];
  for (std::int64_t p = -3; p < 7; ++p) {
    half.cos_sin(p, c, s);
    CHECK(std::equal(c, c + 4, a.cos(p)));
    CHECK(std::equal(s, s + 4, a.sin(p)));
    CHECK(std::equal(c, c + 4, b.cos(p)));
    CHECK(std::equal(s, s + 4, b.sin(p)));
  }
}

TEMPLATE_TEST_CASE("rope table: rotating by it is rotating by the encoder", "[rope]", float, double) {
  using T = TestType;
  for (const auto layout : {posenc::half_split, posenc::interleaved})
    for (const std::int64_t rotary_dim : {6, 64, 516}) {
      const posenc::rope<T> r{{.head_dim = rotary_dim + 3, .rotary_dim = rotary_dim, .offset = 2, .layout = layout}};
      const posenc::rope_table<T> table{r, 100, 8};
      const posenc::shape s{.batch = 2, .tokens = 4, .heads = 5, .dim = rotary_dim + 3};
      const auto x = values<T>(s.elements());
      auto by_table = x;
      auto by_encoder = x;
      table.rotate(posenc::view{by_table.data(), s}, positions::from(103));
      r.rotate(posenc::view{by_encoder.data(), s}, positions::from(103));
      CHECK(by_table == by_encoder);
      // Listed ids in any order, and rows with a stride.
      const std::vector<std::int64_t> ids{107, 100, 104, 101};
      table.rotate(posenc::view{by_table.data(), s}, positions::listed(ids));
      r.rotate(posenc::view{by_encoder.data(), s}, positions::listed(ids));
      CHECK(by_table == by_encoder);
      std::vector<T> strided(2 * x.size());
      for (std::size_t i = 0; i < x.size(); ++i) strided[2 * i] = x[i];
      const std::int64_t d = 2 * s.dim;
      const posenc::strides step{.batch = 4 * 5 * d, .token = 5 * d, .head = d, .dim = 2};
      table.rotate(posenc::view{strided.data(), s, step}, positions::from(103));
      auto packed = x;
      r.rotate(posenc::view{packed.data(), s}, positions::from(103));
      posenc_test::worst worst;
      for (std::size_t i = 0; i < x.size(); ++i)
        worst.see(std::abs(strided[2 * i] - packed[i]), static_cast<long double>(i));
      CHECK(worst.error <= 2 * static_cast<double>(std::numeric_limits<T>::epsilon()));
    }
}

TEST_CASE("rope table: 16-bit rows and 16-bit data", "[rope]") {
  const posenc::rope<float> r{{.head_dim = 32, .layout = posenc::interleaved}};
  const posenc::shape s{.tokens = 6, .heads = 2, .dim = 32};
  const auto x = values<float>(s.elements());
  auto exact = x;
  r.rotate(posenc::view{exact.data(), s}, positions::from(40));
  // Rows rounded to half cost 2^-11 per value, to bfloat16 2^-8.
  auto by_half = x;
  posenc::rope_table<Eigen::half>{r, 0, 64}.rotate(posenc::view{by_half.data(), s}, positions::from(40));
  CHECK(largest_difference(by_half, exact) < 0x1p-10);
  CHECK(largest_difference(by_half, exact) > 1e-6);
  auto by_bfloat16 = x;
  posenc::rope_table<Eigen::bfloat16>{r, 0, 64}.rotate(posenc::view{by_bfloat16.data(), s}, positions::from(40));
  CHECK(largest_difference(by_bfloat16, exact) < 0x1p-7);
  // A table of float on half data: arithmetic in float, one rounding.
  std::vector<Eigen::half> narrow(x.size());
  std::vector<Eigen::half> wanted(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) narrow[i] = wanted[i] = Eigen::half(x[i]);
  posenc::rope_table<float>{r, 0, 64}.rotate(posenc::view{narrow.data(), s}, positions::from(40));
  r.rotate(posenc::view{wanted.data(), s}, positions::from(40));
  CHECK(largest_difference(narrow, wanted) == 0);
}

TEST_CASE("rope table: a position without a row throws before anything is written", "[rope]") {
  const posenc::rope_table<float> table{posenc::rope<float>{{.head_dim = 4}}, -5, 10};
  auto x = values<float>(2 * 2 * 4);
  const auto before = x;
  const posenc::view v{x.data(), {.batch = 2, .tokens = 2, .dim = 4}};
  using gone = std::out_of_range;
  CHECK(refusal<gone>([&] { table.rotate(v, positions::from(4)); }) ==
        "posenc::rope_table::rotate: positions must lie in -5..4, got 5");
  CHECK(refusal<gone>([&] { table.rotate(v, positions::from(-6)); }) ==
        "posenc::rope_table::rotate: positions must lie in -5..4, got -6");
  // The last token of the last row of the batch.
  const std::vector<std::int64_t> ids{0, 1, 2, std::numeric_limits<std::int64_t>::max()};
  CHECK(refusal<gone>([&] { table.rotate(v, positions::listed(ids, 2)); }) ==
        "posenc::rope_table::rotate: positions must lie in -5..4, got 9223372036854775807");
  CHECK(refusal<gone>([&] {
          table.rotate(v, positions::from(std::numeric_limits<std::int64_t>::min()));
        }).find("must lie in -5..4") != std::string::npos);
  CHECK(refusal([&] {
          table.rotate(posenc::view{x.data(), {.tokens = 2, .dim = 6}});
        }) == "posenc::rope_table::rotate: dim must equal head_dim, got 6");
  CHECK(refusal([&] {
          table.rotate(posenc::view{x.data(), {.tokens = 2, .dim = 4}, {.token = 0}});
        }) == "posenc::rope_table::rotate: out must not repeat elements through a stride of 0, got a stride of 0");
  CHECK(x == before);
  CHECK(refusal([] {
          posenc::rope_table<float>{posenc::rope<float>{{.head_dim = 4}}, 0, -1};
        }) == "posenc::rope_table: rows must not be negative, got -1");
  const posenc::rope_table<float> none{posenc::rope<float>{{.head_dim = 4}}, 0, 0};
  CHECK(none.rows() == 0);
  CHECK_THROWS_AS(none.rotate(v), gone);
}

TEST_CASE("rope table view: a model's own caches, as the families lay them out", "[rope]") {
  const posenc::rope<float> r{{.head_dim = 10, .rotary_dim = 8, .offset = 1, .layout = posenc::interleaved}};
  constexpr std::int64_t first = 20;
  constexpr std::int64_t rows = 6;
  // [cos | sin] in one row (vLLM), two arrays (GPT-OSS), and [cos | cos] with the half stored twice (Hugging Face).
  std::vector<float> packed(rows * 8);
  std::vector<float> cos(rows * 4);
  std::vector<float> sin(rows * 4);
  std::vector<float> twice_cos(rows * 8);
  std::vector<float> twice_sin(rows * 8);
  for (std::int64_t i = 0; i < rows; ++i) {
    r.cos_sin(first + i, packed.data() + 8 * i, packed.data() + 8 * i + 4);
    r.cos_sin(first + i, cos.data() + 4 * i, sin.data() + 4 * i);
    for (std::int64_t j = 0; j < 8; ++j) {
      twice_cos[static_cast<std::size_t>(8 * i + j)] = cos[static_cast<std::size_t>(4 * i + j % 4)];
      twice_sin[static_cast<std::size_t>(8 * i + j)] = sin[static_cast<std::size_t>(4 * i + j % 4)];
    }
  }
  const posenc::shape s{.tokens = 3, .heads = 2, .dim = 10};
  auto expected = values<float>(s.elements());
  r.rotate(posenc::view{expected.data(), s}, positions::from(22));
  for (const posenc::rope_rows<float>& where :
       {posenc::rope_rows<float>{packed.data(), packed.data() + 4, 8, first, rows},
        {cos.data(), sin.data(), 4, first, rows},
        {twice_cos.data(), twice_sin.data(), 8, first, rows}}) {
    const posenc::rope_table_view<float> v{posenc::interleaved, 10, 8, 1, where};
    CHECK((v.first() == first && v.rows() == rows && v.pairs() == 4));
    CHECK(v.cos(23)[2] == cos[14]);
    CHECK(v.sin(23)[2] == sin[14]);
    auto x = values<float>(s.elements());
    v.rotate(posenc::view{x.data(), s}, positions::from(22));
    CHECK(x == expected);
    CHECK_THROWS_AS(v.rotate(posenc::view{x.data(), s}, positions::from(24)), std::out_of_range);
    CHECK(x == expected);
  }
  const auto make = [&](std::int64_t head_dim, std::int64_t rotary_dim, std::int64_t offset,
                        const posenc::rope_rows<float>& where) {
    return refusal([&] { posenc::rope_table_view<float>{posenc::half_split, head_dim, rotary_dim, offset, where}; });
  };
  CHECK(make(10, 7, 0, {cos.data(), sin.data(), 4, 0, 1}).find("rotary_dim must be even and at least 2, got 7") !=
        std::string::npos);
  CHECK(make(10, 8, 3, {cos.data(), sin.data(), 4, 0, 1}).find("offset + rotary_dim must not exceed head_dim") !=
        std::string::npos);
  CHECK(make(10, 8, 0, {cos.data(), sin.data(), 4, 0, -1}) == "posenc::rope_table: rows must not be negative, got -1");
  CHECK(make(10, 8, 0, {cos.data(), nullptr, 4, 0, 1}) ==
        "posenc::rope_table: cos and sin must not be null, got a null pointer");
  CHECK(make(10, 8, 0, {nullptr, nullptr, 4, 0, 0}) == "nothing thrown");
}

TEST_CASE("rope table: a slice has its rows and no others", "[rope]") {
  const posenc::rope<float> r{{.head_dim = 6}};
  const auto table = r.table(10, 20);
  const auto whole = table.view_of_rows();
  CHECK((whole.first() == 10 && whole.rows() == 20));
  const auto part = table.slice(14, 3);
  CHECK((part.first() == 14 && part.rows() == 3));
  CHECK(part.cos(15) == table.cos(15));
  CHECK(part.slice(15, 2).sin(16) == table.sin(16));
  auto x = values<float>(6);
  auto y = x;
  part.rotate(posenc::view{x.data(), {.tokens = 1, .dim = 6}}, positions::from(16));
  r.rotate(posenc::view{y.data(), {.tokens = 1, .dim = 6}}, positions::from(16));
  CHECK(x == y);
  using gone = std::out_of_range;
  CHECK(refusal<gone>([&] {
          part.rotate(posenc::view{x.data(), {.tokens = 1, .dim = 6}}, positions::from(17));
        }) == "posenc::rope_table::rotate: positions must lie in 14..16, got 17");
  CHECK(x == y);
  CHECK(refusal<gone>([&] { (void)table.slice(9, 2); }) ==
        "posenc::rope_table::slice: positions must lie in 10..29, got 9");
  CHECK(refusal<gone>([&] { (void)table.slice(29, 2); }) ==
        "posenc::rope_table::slice: positions must lie in 10..29, got 30");
  CHECK(refusal([&] { (void)table.slice(10, -1); }) == "posenc::rope_table::slice: count must not be negative, got -1");
  CHECK(refusal([&] { (void)table.slice(10, 21); }) ==
        "posenc::rope_table::slice: count must not exceed the rows, got 21");
  CHECK(table.slice(0, 0).rows() == 0);
  CHECK(refusal([&] {
          posenc::rope_table<float>{r, std::numeric_limits<std::int64_t>::max() - 1, 3};
        }).find("first must leave room for the rows") != std::string::npos);
}

TEST_CASE("rope table: every layout and every way to form angles", "[rope]") {
  for (const auto mode : {posenc::angle_mode::exact, posenc::angle_mode::float32, posenc::angle_mode::ggml_recurrence})
    for (const auto layout : {posenc::half_split, posenc::interleaved, posenc::interleaved_in_half_out,
                              posenc::vjepa2_mixed, posenc::half_split_in_blocks})
      for (const std::int64_t rotary_dim : {4, 12, 64, 300}) {
        CAPTURE(mode, layout, rotary_dim);
        posenc::rope_options o{.head_dim = rotary_dim + 3,
                               .rotary_dim = rotary_dim,
                               .offset = 1,
                               .layout = layout,
                               .scaling = posenc::linear{3},
                               .attention_factor = 1.5,
                               .angles = mode};
        if (layout == posenc::half_split_in_blocks) o.axes.block_dims = {2, rotary_dim - 2};
        const posenc::rope<float> r{o};
        const posenc::shape s{.tokens = 4, .heads = 3, .dim = rotary_dim + 3};
        auto x = values<float>(s.elements());
        auto y = x;
        posenc::rope_table<float>{r, 1000, 8}.rotate(posenc::view{x.data(), s}, positions::from(1002));
        r.rotate(posenc::view{y.data(), s}, positions::from(1002));
        CHECK(x == y);
        // Double data by a table of double.
        if (mode != posenc::angle_mode::exact) continue;
        auto wide = values<double>(s.elements());
        auto right = wide;
        posenc::rope_table<double>{r, 1000, 8}.rotate(posenc::view{wide.data(), s}, positions::from(1002));
        r.rotate(posenc::view{right.data(), s}, positions::from(1002));
        CHECK(wide == right);
      }
}

TEST_CASE("rope table: several axes read the rows of their coordinates", "[rope]") {
  const posenc::rope<float> r{{.head_dim = 8, .axes = posenc::rope_axes::interleaved({2, 1, 1})}};
  REQUIRE(r.axis_count() == 3);
  const auto table = r.table(2, 10);
  auto x = values<float>(2 * 8);
  auto y = x;
  const posenc::view v{x.data(), {.tokens = 2, .dim = 8}};
  const std::vector<std::int64_t> ids{2, 11, 5, 6, 7, 3};
  table.rotate(v, positions::axes(ids, 3));
  r.rotate(posenc::view{y.data(), {.tokens = 2, .dim = 8}}, positions::axes(ids, 3));
  CHECK(x == y);
  // Coordinates that no pair takes need no row, the others do.
  const std::vector<std::int64_t> four{2, 11, 5, 6, 7, 3, -1000, 1000};
  table.rotate(v, positions::axes(four, 4));
  r.rotate(posenc::view{y.data(), {.tokens = 2, .dim = 8}}, positions::axes(four, 4));
  CHECK(x == y);
  const std::vector<std::int64_t> missing{2, 11, 5, 6, 7, 12};
  CHECK(refusal<std::out_of_range>([&] { table.rotate(v, positions::axes(missing, 3)); }) ==
        "posenc::rope_table::rotate: positions must lie in 2..11, got 12");
  const std::vector<std::int64_t> two{2, 11, 5, 6};
  CHECK(refusal([&] { table.rotate(v, positions::axes(two, 2)); }) ==
        "posenc::rope_table::rotate: positions must have one axis or those that the pairs name, got 2");
  CHECK(refusal([&] { posenc::rope<float>{{.head_dim = 8}}.table(2, 10).rotate(v, positions::axes(two, 2)); }) ==
        "posenc::rope_table::rotate: positions must have one axis, got 2");
  CHECK(x == y);
  // A slice keeps the axes.
  table.slice(3, 4).rotate(v, positions::axes(std::vector<std::int64_t>{3, 4, 5, 6, 5, 3}, 3));
  r.rotate(posenc::view{y.data(), {.tokens = 2, .dim = 8}},
           positions::axes(std::vector<std::int64_t>{3, 4, 5, 6, 5, 3}, 3));
  CHECK(x == y);
}

TEST_CASE("rope table: what no row can hold is refused", "[rope]") {
  const posenc::rope<float> sums{{.head_dim = 4, .inv_freq = {1, 2, 3, 4}, .frequency_axes = 2}};
  const posenc::rope<float> heads{{.head_dim = 4, .inv_freq = {1, 2, 3, 4}, .frequency_heads = 2}};
  for (const auto* r : {&sums, &heads})
    CHECK(refusal([&] { (void)r->table(0, 4); }).find("posenc::rope_table: encoder must have one set of frequencies") ==
          0);
  const std::vector<float> rows(64);
  CHECK(refusal([&] {
          posenc::rope_table_view<float>{posenc::half_split_in_blocks, 8, 8, 0, {rows.data(), rows.data(), 4, 0, 1}};
        }) == "posenc::rope_table: layout must come from an encoder that knows its blocks, got half_split_in_blocks");
}

TEST_CASE("rope table: sizes that overflow, rows that overlap and views of temporaries are refused", "[rope]") {
  const posenc::rope<float> encoder{{.head_dim = 8}};
  CHECK(refusal([&] { posenc::rope_table<float>(encoder, 0, std::int64_t{1} << 61); }) ==
        "posenc::rope_table: rows must not exceed 2^56 / rotary_dim, got 2305843009213693952");
  const std::vector<float> values(64);
  const posenc::rope_rows<float> close{values.data(), values.data() + 4, 3, 0, 4};
  CHECK(refusal([&] { posenc::rope_table_view<float>(posenc::half_split, 8, 8, 0, close); }) ==
        "posenc::rope_table: step must not be below the pairs, got 3");
  const auto kept = []<class Table>(std::type_identity<Table>) {
    return requires(Table t) { static_cast<Table>(t).slice(0, 1); };
  };
  CHECK(kept(std::type_identity<const posenc::rope_table<float>&>{}));
  CHECK(!kept(std::type_identity<posenc::rope_table<float>&&>{}));
}
