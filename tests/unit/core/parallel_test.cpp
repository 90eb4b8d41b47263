// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include <posenc/core/parallel.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace {

struct no_workers {};
struct backwards {
  static std::int64_t concurrency() { return 2; }
  template <class F>
  void parallel_for(std::int64_t n, F&& f) {
    for (std::int64_t i = n; i-- > 0;) f(i, i % 2);
  }
};

}  // namespace

TEST_CASE("parallel: the serial executor runs every item once, in order, as worker 0", "[core][parallel]") {
  const posenc::serial_executor serial;
  std::vector<std::pair<std::int64_t, std::int64_t>> calls;
  serial.parallel_for(5, [&](std::int64_t item, std::int64_t worker) { calls.emplace_back(item, worker); });
  CHECK(calls == std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}});
  calls.clear();
  serial.parallel_for(0, [&](std::int64_t item, std::int64_t worker) { calls.emplace_back(item, worker); });
  CHECK(calls.empty());
  CHECK(serial.concurrency() == 1);
}

TEST_CASE("parallel: an executor is anything with the two members", "[core][parallel]") {
  STATIC_REQUIRE(posenc::executor<posenc::serial_executor>);
  STATIC_REQUIRE(posenc::executor<const posenc::serial_executor>);
  STATIC_REQUIRE(posenc::executor<backwards>);
  STATIC_REQUIRE(!posenc::executor<no_workers>);
  STATIC_REQUIRE(!posenc::executor<int>);
  backwards own;
  std::int64_t seen = 0;
  own.parallel_for(4, [&](std::int64_t item, std::int64_t) { seen = 10 * seen + item; });
  CHECK(seen == 3210);
}
