// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/error.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <limits>
#include <string>

TEST_CASE("error: the text names function, argument, rule and value", "[core][error]") {
  CHECK(posenc::detail::message("rope", "head_dim", "must be even", 9) == "posenc::rope: head_dim must be even, got 9");
  const auto text = [](const auto& value) { return posenc::detail::message("f", "a", "must hold", value); };
  CHECK(text(std::int64_t{-7}) == "posenc::f: a must hold, got -7");
  CHECK(text(std::numeric_limits<std::int64_t>::min()) == "posenc::f: a must hold, got -9223372036854775808");
  CHECK(text(std::numeric_limits<std::uint64_t>::max()) == "posenc::f: a must hold, got 18446744073709551615");
  CHECK(text(true) == "posenc::f: a must hold, got true");
  CHECK(text(false) == "posenc::f: a must hold, got false");
  CHECK(text(0.5f) == "posenc::f: a must hold, got 0.5");
  CHECK(text(1e-7) == "posenc::f: a must hold, got 1e-07");
  CHECK(text(10000.25) == "posenc::f: a must hold, got 10000.25");
  CHECK(text(std::numeric_limits<double>::infinity()) == "posenc::f: a must hold, got inf");
  CHECK(text("a null pointer") == "posenc::f: a must hold, got a null pointer");
  CHECK(text(std::string("paper")) == "posenc::f: a must hold, got paper");
}

TEST_CASE("error: each kind throws its exception with the whole text", "[core][error]") {
  using namespace posenc::detail;
  CHECK_THROWS_AS(invalid("f", "a", "must hold", 1), std::invalid_argument);
  CHECK_THROWS_WITH(invalid("f", "a", "must hold", 1), "posenc::f: a must hold, got 1");
  CHECK_THROWS_AS(outside("f", "a", "must lie below 4", 4), std::out_of_range);
  CHECK_THROWS_WITH(outside("f", "a", "must lie below 4", 4), "posenc::f: a must lie below 4, got 4");
  CHECK_THROWS_AS(require(false, "f", "a", "must hold", 2.5), std::invalid_argument);
  CHECK_THROWS_WITH(require(false, "f", "a", "must hold", 2.5), "posenc::f: a must hold, got 2.5");
  CHECK_NOTHROW(require(true, "f", "a", "must hold", 2.5));
}

namespace {
std::string heard;
}

TEST_CASE("error: the handler of builds without exceptions can be replaced and put back", "[core][error]") {
  const posenc::error_handler_type before = posenc::error_handler();
  REQUIRE(before != nullptr);
  posenc::error_handler() = [](const char* message) { heard = message; };
  posenc::error_handler()("said");
  posenc::error_handler() = before;
  CHECK(heard == "said");
  CHECK(posenc::error_handler() == before);
}
