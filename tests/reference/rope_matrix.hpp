// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// A rotation as what it is: a dim x dim matrix, written element by element for every layout and multiplied out in long
/// double. Transposes are transposes. It includes no header of the library and shares no line with it.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

namespace oracle {

/// How the channels of the rotated block are paired.
enum class pairing { halves, neighbours, neighbours_to_halves, vjepa2, halves_of_blocks };

struct block_of_channels {
  std::int64_t dim = 0;
  std::int64_t first = 0;
  pairing pairs = pairing::halves;
  std::vector<std::int64_t> blocks{};
};

class square_matrix {
 public:
  explicit square_matrix(std::int64_t n) : n_(n), m_(static_cast<std::size_t>(n * n), 0.0L) {}
  long double& operator()(std::int64_t row, std::int64_t column) {
    return m_[static_cast<std::size_t>(row * n_ + column)];
  }
  [[nodiscard]] square_matrix transposed() const {
    square_matrix t(n_);
    for (std::int64_t i = 0; i < n_; ++i)
      for (std::int64_t j = 0; j < n_; ++j) t(j, i) = m_[static_cast<std::size_t>(i * n_ + j)];
    return t;
  }
  template <class T>
  [[nodiscard]] std::vector<double> times(const T* x) const {
    std::vector<double> y;
    for (std::int64_t i = 0; i < n_; ++i) {
      long double sum = 0;
      for (std::int64_t j = 0; j < n_; ++j)
        sum += m_[static_cast<std::size_t>(i * n_ + j)] * static_cast<long double>(x[j]);
      y.push_back(static_cast<double>(sum));
    }
    return y;
  }

 private:
  std::int64_t n_;
  std::vector<long double> m_;
};

/// The matrix that turns pair i by angle[i], times the magnitude; channels outside the block stay.
inline square_matrix rope_matrix(const block_of_channels& b, const std::vector<long double>& angle,
                                 long double magnitude = 1) {
  square_matrix m(b.dim);
  const auto h = static_cast<std::int64_t>(angle.size());
  const auto cosine = [&](std::int64_t i) { return magnitude * std::cos(angle[static_cast<std::size_t>(i)]); };
  const auto sine = [&](std::int64_t i) { return magnitude * std::sin(angle[static_cast<std::size_t>(i)]); };
  for (std::int64_t c = 0; c < b.dim; ++c)
    if (c < b.first || c >= b.first + 2 * h) m(c, c) = 1;
  // Pair i reads the channels u and v and writes x and y.
  const auto turn = [&](std::int64_t i, std::int64_t u, std::int64_t v, std::int64_t x, std::int64_t y) {
    m(b.first + x, b.first + u) = cosine(i);
    m(b.first + x, b.first + v) = -sine(i);
    m(b.first + y, b.first + u) = sine(i);
    m(b.first + y, b.first + v) = cosine(i);
  };
  switch (b.pairs) {
    case pairing::halves:
      for (std::int64_t i = 0; i < h; ++i) turn(i, i, i + h, i, i + h);
      break;
    case pairing::neighbours:
      for (std::int64_t i = 0; i < h; ++i) turn(i, 2 * i, 2 * i + 1, 2 * i, 2 * i + 1);
      break;
    case pairing::neighbours_to_halves:
      for (std::int64_t i = 0; i < h; ++i) turn(i, 2 * i, 2 * i + 1, i, i + h);
      break;
    case pairing::vjepa2:
      // y = x * cos + swapped(x) * sin with rows of cos and sin repeated as halves.
      for (std::int64_t c = 0; c < 2 * h; ++c) {
        const bool even = c % 2 == 0;
        m(b.first + c, b.first + c) = cosine(c % h);
        m(b.first + c, b.first + (even ? c + 1 : c - 1)) = even ? -sine(c % h) : sine(c % h);
      }
      break;
    case pairing::halves_of_blocks: {
      std::int64_t pair = 0;
      std::int64_t channel = 0;
      for (const std::int64_t width : b.blocks) {
        for (std::int64_t j = 0; j < width / 2; ++j, ++pair)
          turn(pair, channel + j, channel + j + width / 2, channel + j, channel + j + width / 2);
        channel += width;
      }
      break;
    }
  }
  return m;
}

/// position * frequency for every pair, reduced by whole turns.
inline std::vector<long double> rope_angles(const std::vector<long double>& f, long double position) {
  std::vector<long double> out;
  for (const long double x : f) out.push_back(std::remainder(position * x, 2 * std::numbers::pi_v<long double>));
  return out;
}

}  // namespace oracle
