// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#include "support/catch.hpp"
#include "unit/encoders/refusal.hpp"

#include <posenc/encoders/window_index.hpp>

using posenc::window_index;
using posenc::window_kind;
using posenc_test::refusal;

TEST_CASE("window_index: written out", "[window_index]") {
  CHECK(window_index(window_kind::swin, {1, 1}) == std::vector<std::int32_t>{0});
  CHECK(window_index(window_kind::swin, {2, 2}) ==
        std::vector<std::int32_t>{4, 3, 1, 0, 5, 4, 2, 1, 7, 6, 4, 3, 8, 7, 5, 4});
  // Not square: a step down is 2 w - 1 = 5 entries.
  CHECK(window_index(window_kind::swin, {2, 3}) == std::vector<std::int32_t>{7,  6,  5,  2, 1, 0, 8,  7,  6,  3, 2, 1,
                                                                             9,  8,  7,  4, 3, 2, 12, 11, 10, 7, 6, 5,
                                                                             13, 12, 11, 8, 7, 6, 14, 13, 12, 9, 8, 7});
  // One token and the class token: entries 1 (row), 2 (column), 3 (corner) after the only offset.
  CHECK(window_index(window_kind::beit, {1, 1}) == std::vector<std::int32_t>{3, 1, 2, 0});
  CHECK(window_index(window_kind::levit, {2, 2}) ==
        std::vector<std::int32_t>{0, 1, 2, 3, 1, 0, 3, 2, 2, 3, 0, 1, 3, 2, 1, 0});
}

TEST_CASE("window_index: sizes", "[window_index]") {
  CHECK(posenc::window_tokens(window_kind::swin, {3, 5}) == 15);
  CHECK(posenc::window_tokens(window_kind::beit, {3, 5}) == 16);
  CHECK(posenc::window_tokens(window_kind::levit, {3, 5}) == 15);
  CHECK(posenc::window_entries(window_kind::swin, {3, 5}) == 45);
  CHECK(posenc::window_entries(window_kind::beit, {3, 5}) == 48);
  CHECK(posenc::window_entries(window_kind::levit, {3, 5}) == 15);
  // BEiT of 14 x 14 patches, as its checkpoints have it.
  CHECK(posenc::window_entries(window_kind::beit, {14, 14}) == 732);
}

TEST_CASE("window_index: refusals", "[window_index]") {
  CHECK(refusal([] {
          (void)window_index(window_kind::swin, {0, 3});
        }) == "posenc::window_tokens: window must have sides of at least 1 and at most 32768 tokens, got 0 x 3");
  CHECK(refusal([] {
          (void)posenc::window_entries(window_kind::levit, {3, -1});
        }) == "posenc::window_entries: window must have sides of at least 1 and at most 32768 tokens, got 3 x -1");
  CHECK(refusal([] {
          (void)posenc::window_tokens(window_kind::swin, {256, 129});
        }) == "posenc::window_tokens: window must have sides of at least 1 and at most 32768 tokens, got 256 x 129");
  // Sides whose product would not fit an int64.
  CHECK(refusal([] {
          (void)posenc::window_tokens(window_kind::swin, {std::int64_t{1} << 40, std::int64_t{1} << 40});
        }).find("at most 32768 tokens") != std::string::npos);
  CHECK(refusal([] { (void)posenc::window_tokens(window_kind::swin, {256, 128}); }) == "nothing thrown");
}
