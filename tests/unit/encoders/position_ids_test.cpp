// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/encoders/position_ids.hpp>

using ids = std::vector<std::int64_t>;
using posenc_test::refusal;

namespace {
template <class T>
std::span<const T> span_of(const std::vector<T>& v) {
  return v;
}
}  // namespace

TEST_CASE("position ids: sequential", "[position_ids]") {
  CHECK(posenc::sequential_ids(3) == ids{0, 1, 2});
  CHECK(posenc::sequential_ids(2, 7) == ids{7, 8});
  CHECK(posenc::sequential_ids(0).empty());
  CHECK(refusal([] { (void)posenc::sequential_ids(-1); }) ==
        "posenc::sequential_ids: tokens must not be negative, got -1");
}

TEST_CASE("position ids: masked", "[position_ids]") {
  const std::vector<int> mask{0, 0, 1, 1, 1, 1, 0, 1};
  CHECK(posenc::masked_ids(span_of(mask), 2) == ids{0, 0, 0, 1, 0, 1, 0, 2});
  CHECK(posenc::masked_ids(span_of(mask), 2, 1) == ids{1, 1, 0, 1, 0, 1, 1, 2});
  CHECK(posenc::masked_ids(span_of(mask)) == ids{0, 0, 0, 1, 2, 3, 0, 4});
  const std::vector<float> real{1, 0, 1};
  CHECK(posenc::masked_ids(span_of(real), 1, -1) == ids{0, -1, 1});
  CHECK(posenc::masked_ids(std::span<const int>{}).empty());
  CHECK(refusal([&] { (void)posenc::masked_ids(span_of(mask), 3); }) ==
        "posenc::masked_ids: the list must split into batch equal rows, got 8");
  CHECK(refusal([&] { (void)posenc::masked_ids(span_of(mask), 0); }) ==
        "posenc::masked_ids: batch must be at least 1, got 0");
}

TEST_CASE("position ids: RoBERTa and fairseq count from padding_idx + 1, over padding inside too", "[position_ids]") {
  const std::vector<std::int32_t> tokens{1, 1, 5, 6, 7, 1, 8, 1};
  CHECK(posenc::roberta_ids(span_of(tokens), 1, 2) == ids{1, 1, 2, 3, 2, 1, 3, 1});
  // A cached step: past tokens come before it.
  const std::vector<std::int32_t> one{9};
  CHECK(posenc::roberta_ids(span_of(one), 1, 1, 5) == ids{7});
  const std::vector<std::int32_t> padding{1};
  CHECK(posenc::roberta_ids(span_of(padding), 1, 1, 5) == ids{1});
  // Real tokens start at padding_idx + 1, whatever it is.
  CHECK(posenc::roberta_ids(span_of(one), 0) == ids{1});
  CHECK(refusal([&] { (void)posenc::roberta_ids(span_of(tokens), 1, 3); }).find("posenc::roberta_ids: ") == 0);
}

TEST_CASE("position ids: OPT counts the mask, drops the past, and puts padding on row offset - 1", "[position_ids]") {
  const std::vector<int> mask{0, 0, 1, 1, 1, 1, 1, 1};
  CHECK(posenc::opt_ids(span_of(mask), 2) == ids{1, 1, 2, 3, 2, 3, 4, 5});
  CHECK(posenc::opt_ids(span_of(mask), 2, 3) == ids{3, 5});
  const std::vector<int> holes{1, 1, 0, 1, 0};
  CHECK(posenc::opt_ids(span_of(holes)) == ids{2, 3, 1, 4, 1});
  CHECK(posenc::opt_ids(span_of(mask), 2, 4).empty());
  CHECK(posenc::opt_ids(span_of(mask), 2, 3, 0) == ids{1, 3});
  CHECK(refusal([&] { (void)posenc::opt_ids(span_of(mask), 2, 5); }) ==
        "posenc::opt_ids: past must lie in 0..columns of the mask, got 5");
  CHECK(refusal([&] { (void)posenc::opt_ids(span_of(mask), 2, -1); }) ==
        "posenc::opt_ids: past must lie in 0..columns of the mask, got -1");
}

TEST_CASE("position ids: BART counts without a mask", "[position_ids]") {
  CHECK(posenc::bart_ids(3) == ids{2, 3, 4});
  CHECK(posenc::bart_ids(1, 10) == ids{12});
  CHECK(posenc::bart_ids(2, 1, 0) == ids{1, 2});
}
