// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file

#include <posenc/core/eigen.hpp>

namespace posenc_examples {

/// A matrix that holds `texts` texts of equal length, one under the other, as [texts, tokens, heads, cols / heads].
/// @throws std::invalid_argument if rows or columns do not split so.
template <class Dense>
[[nodiscard]] auto as_texts(Dense&& m, std::int64_t heads, std::int64_t texts) {
  const auto all = posenc::as_view(std::forward<Dense>(m), heads);
  posenc::detail::require(texts >= 1 && all.tokens() % texts == 0, "as_texts", "rows", "must split into equal texts",
                          all.tokens());
  posenc::shape s = all.extents();
  s.batch = texts;
  s.tokens /= texts;
  posenc::strides by = all.steps();
  by.batch = s.tokens * by.token;
  return posenc::view(all.data(), s, by);
}

}  // namespace posenc_examples
