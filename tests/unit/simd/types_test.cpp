// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Compiled at every level: size and alignment of public types do not follow the flags (F75).
#include "static/layout_of_types.hpp"
#include "support/catch.hpp"

#include <memory>

TEST_CASE("types: the heap serves every public type without over-alignment", "[simd][types]") {
  STATIC_REQUIRE(alignof(posenc::rope<float>) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  STATIC_REQUIRE(alignof(posenc::attention_options<float>) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  const auto made = std::make_unique<posenc::interval_list>(posenc::interval{0, 4});
  CHECK(made->total() == 4);
}
