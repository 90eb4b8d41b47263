// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Compiled at every level: size and alignment of public types do not follow the flags (F75).
#include "static/layout_of_types.hpp"
#include "support/catch.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>

TEST_CASE("types: the heap serves every public type without over-alignment", "[simd][types]") {
  STATIC_REQUIRE(alignof(posenc::rope<float>) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  STATIC_REQUIRE(alignof(posenc::attention_options<float>) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  const auto made = std::make_unique<posenc::interval_list>(posenc::interval{0, 4});
  CHECK(made->total() == 4);
}

TEST_CASE("F75: size, alignment and order of fields of public types do not follow the flags", "[simd][types]") {
  // Included above: the sizes of all of them, by static_assert at this level. Here, what plain types are made of.
  STATIC_REQUIRE(posenc_test::is_plain<posenc::shape, 32>);
  STATIC_REQUIRE(posenc_test::is_plain<posenc::row, 40>);
  STATIC_REQUIRE(posenc_test::is_plain<posenc::interval_list, 16 * posenc::interval_list::capacity + 8>);
  const auto words = [](const auto& value) {
    std::array<std::int64_t, sizeof(value) / 8> out{};
    std::memcpy(out.data(), &value, sizeof(value));
    return out;
  };
  using std::array;
  CHECK(words(posenc::shape{.batch = 1, .tokens = 2, .heads = 3, .dim = 4}) == array<std::int64_t, 4>{1, 2, 3, 4});
  CHECK(words(posenc::strides{.batch = 1, .token = 2, .head = 3, .dim = 4}) == array<std::int64_t, 4>{1, 2, 3, 4});
  CHECK(words(posenc::position{7}) == array<std::int64_t, 4>{7, 7, 7, 7});
  CHECK(words(posenc::interval{-1, 5}) == array<std::int64_t, 2>{-1, 5});
  CHECK(words(posenc::row{.batch = 1, .head = 2, .kv_head = 3, .query_index = 4, .query_position = 5}) ==
        array<std::int64_t, 5>{1, 2, 3, 4, 5});
}
