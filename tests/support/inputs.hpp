// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Inputs: seeded random numbers that are the same on every platform, and buffers with canaries on both sides that may
/// start at any element.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace posenc_test {

/// splitmix64: a few lines, so that a seed means the same numbers under every standard library.
class random_source {
 public:
  explicit random_source(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t bits() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// lo <= x < hi.
  double uniform(double lo, double hi) noexcept {
    return lo + (hi - lo) * (static_cast<double>(bits() >> 11) * 0x1p-53);
  }
  /// lo <= x <= hi; the whole range of int64 is allowed.
  std::int64_t integer(std::int64_t lo, std::int64_t hi) noexcept {
    const std::uint64_t count = static_cast<std::uint64_t>(hi) - static_cast<std::uint64_t>(lo) + 1;
    const std::uint64_t x = count == 0 ? bits() : bits() % count;
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(lo) + x);
  }

 private:
  std::uint64_t state_;
};

/// n values in [lo, hi), each rounded to T from float (double for T = double).
template <class T>
[[nodiscard]] std::vector<T> random_values(std::size_t n, std::uint64_t seed, double lo = -1, double hi = 1) {
  random_source source(seed);
  std::vector<T> out(n);
  for (T& x : out) {
    const double value = source.uniform(lo, hi);
    if constexpr (sizeof(T) < sizeof(float)) {
      x = T(static_cast<float>(value));
    } else {
      x = static_cast<T>(value);
    }
  }
  return out;
}

/// `size` elements between two guards of canaries. The first element lies `shift` elements past an address that is a
/// multiple of 64 bytes, so shifts 0 .. 64 / sizeof(T) - 1 are all the ways to be misaligned.
template <class T>
class guarded {
 public:
  explicit guarded(std::size_t size, std::size_t shift = 0)
      : bytes_((size + shift + 2 * guard) * sizeof(T) + 64), size_(size) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    first_ = (64 - address % 64) % 64 + (guard + shift) * sizeof(T);
    std::memset(bytes_.data(), canary, bytes_.size());
  }
  guarded(const guarded&) = delete;
  guarded& operator=(const guarded&) = delete;

  [[nodiscard]] T* data() noexcept { return reinterpret_cast<T*>(bytes_.data() + first_); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  T& operator[](std::size_t i) noexcept { return data()[i]; }
  void fill(const std::vector<T>& values) noexcept {
    if (!values.empty()) std::memcpy(data(), values.data(), values.size() * sizeof(T));
  }

  /// Whether nothing outside the elements was written.
  [[nodiscard]] bool intact() const noexcept {
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if ((i < first_ || i >= first_ + size_ * sizeof(T)) && bytes_[i] != canary) return false;
    return true;
  }
  /// Whether element i still holds the canary.
  [[nodiscard]] bool untouched(std::size_t i) const noexcept {
    for (std::size_t k = 0; k < sizeof(T); ++k)
      if (bytes_[first_ + i * sizeof(T) + k] != canary) return false;
    return true;
  }

 private:
  static constexpr unsigned char canary = 0xa5;
  static constexpr std::size_t guard = 64;  // elements on each side
  std::vector<unsigned char> bytes_;
  std::size_t size_;
  std::size_t first_ = 0;
};

}  // namespace posenc_test
