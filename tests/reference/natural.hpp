// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Natural numbers of any size, schoolbook arithmetic: what oracles compute with when an answer must be exact.

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace reference {

class natural {
 public:
  natural() = default;
  natural(std::uint64_t value) {  // NOLINT: every unsigned number is one
    for (; value; value >>= 32) words_.push_back(static_cast<std::uint32_t>(value));
  }
  /// Words of 64 bits, the most significant first.
  static natural from_words(std::initializer_list<std::uint64_t> words) {
    natural out;
    for (const std::uint64_t w : words) out = (out << 64) + natural(w);
    return out;
  }

  /// Bits up to the highest one that is set.
  [[nodiscard]] std::size_t bit_length() const noexcept {
    if (words_.empty()) return 0;
    std::size_t top = 0;
    for (std::uint32_t w = words_.back(); w; w >>= 1) ++top;
    return 32 * (words_.size() - 1) + top;
  }
  [[nodiscard]] bool bit(std::size_t i) const noexcept {
    return i / 32 < words_.size() && ((words_[i / 32] >> (i % 32)) & 1u);
  }
  /// Bits from .. from + 63.
  [[nodiscard]] std::uint64_t word_at(std::size_t from) const noexcept {
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < 64; ++i) out |= std::uint64_t{bit(from + i)} << i;
    return out;
  }

  friend std::strong_ordering operator<=>(const natural& a, const natural& b) noexcept {
    if (a.words_.size() != b.words_.size()) return a.words_.size() <=> b.words_.size();
    for (std::size_t i = a.words_.size(); i-- > 0;)
      if (a.words_[i] != b.words_[i]) return a.words_[i] <=> b.words_[i];
    return std::strong_ordering::equal;
  }
  friend bool operator==(const natural& a, const natural& b) noexcept { return a.words_ == b.words_; }

  friend natural operator+(const natural& a, const natural& b) {
    natural out;
    std::uint64_t carry = 0;
    for (std::size_t i = 0; i < std::max(a.words_.size(), b.words_.size()) || carry; ++i) {
      carry += (i < a.words_.size() ? a.words_[i] : 0u);
      carry += (i < b.words_.size() ? b.words_[i] : 0u);
      out.words_.push_back(static_cast<std::uint32_t>(carry));
      carry >>= 32;
    }
    return out.trim();
  }
  /// |a - b|.
  friend natural difference(const natural& a, const natural& b) {
    if (a < b) return difference(b, a);
    natural out = a;
    std::int64_t borrow = 0;
    for (std::size_t i = 0; i < out.words_.size(); ++i) {
      std::int64_t d = std::int64_t{out.words_[i]} - (i < b.words_.size() ? std::int64_t{b.words_[i]} : 0) + borrow;
      borrow = d < 0 ? -1 : 0;
      out.words_[i] = static_cast<std::uint32_t>(d);
    }
    return out.trim();
  }
  friend natural operator*(const natural& a, const natural& b) {
    natural out;
    out.words_.assign(a.words_.size() + b.words_.size(), 0);
    for (std::size_t i = 0; i < a.words_.size(); ++i) {
      std::uint64_t carry = 0;
      for (std::size_t j = 0; j < b.words_.size() || carry; ++j) {
        const std::uint64_t product = j < b.words_.size() ? std::uint64_t{a.words_[i]} * b.words_[j] : 0;
        carry += product + out.words_[i + j];
        out.words_[i + j] = static_cast<std::uint32_t>(carry);
        carry >>= 32;
      }
    }
    return out.trim();
  }
  friend natural operator<<(const natural& a, std::size_t bits) {
    natural out;
    out.words_.assign(bits / 32, 0);
    std::uint64_t carry = 0;
    for (const std::uint32_t w : a.words_) {
      carry |= std::uint64_t{w} << (bits % 32);
      out.words_.push_back(static_cast<std::uint32_t>(carry));
      carry >>= 32;
    }
    out.words_.push_back(static_cast<std::uint32_t>(carry));
    return out.trim();
  }
  friend natural operator>>(const natural& a, std::size_t bits) {
    natural out;
    for (std::size_t i = bits / 32; i < a.words_.size(); ++i) {
      const std::uint64_t high = i + 1 < a.words_.size() ? a.words_[i + 1] : 0;
      out.words_.push_back(static_cast<std::uint32_t>(((high << 32) | a.words_[i]) >> (bits % 32)));
    }
    return out.trim();
  }

 private:
  natural& trim() {
    while (!words_.empty() && words_.back() == 0) words_.pop_back();
    return *this;
  }
  std::vector<std::uint32_t> words_;
};

[[nodiscard]] inline natural power(const natural& base, std::uint64_t exponent) {
  natural out(1);
  natural square = base;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) out = out * square;
    if (exponent > 1) square = square * square;
  }
  return out;
}

/// A finite number taken apart: (negative ? -1 : 1) * magnitude * 2^exponent, exact.
struct binary {
  bool negative = false;
  natural magnitude;
  int exponent = 0;

  binary() = default;
  binary(bool n, natural m, int e) : negative(n), magnitude(std::move(m)), exponent(e) {}
  binary(double value) {  // NOLINT: every finite double is one
    negative = std::signbit(value);
    int e = 0;
    const double fraction = std::frexp(std::fabs(value), &e);
    magnitude = natural(static_cast<std::uint64_t>(std::ldexp(fraction, 53)));
    exponent = e - 53;
  }
  /// The same value with a smaller exponent.
  [[nodiscard]] binary scaled_to(int e) const {
    return {negative, magnitude << static_cast<std::size_t>(exponent - e), e};
  }
  friend binary operator-(binary a) {
    a.negative = !a.negative;
    return a;
  }
  friend binary operator+(const binary& x, const binary& y) {
    const int e = std::min(x.exponent, y.exponent);
    const binary a = x.scaled_to(e);
    const binary b = y.scaled_to(e);
    if (a.negative == b.negative) return {a.negative, a.magnitude + b.magnitude, e};
    return {a.magnitude < b.magnitude ? b.negative : a.negative, difference(a.magnitude, b.magnitude), e};
  }
  friend binary operator-(const binary& a, const binary& b) { return a + (-b); }
  friend binary operator*(const binary& a, const binary& b) {
    return {a.negative != b.negative, a.magnitude * b.magnitude, a.exponent + b.exponent};
  }
  [[nodiscard]] bool zero() const noexcept { return magnitude.bit_length() == 0; }
  /// floor(log2 |x|) + 1, for comparing sizes.
  [[nodiscard]] int log2_above() const noexcept { return static_cast<int>(magnitude.bit_length()) + exponent; }
};

/// log2 of |got - exact| / |exact|, rounded up; very small when equal.
[[nodiscard]] inline int relative_error_log2(const binary& got, const binary& exact) {
  const binary d = got - exact;
  return d.zero() ? -100000 : d.log2_above() - (exact.log2_above() - 1);
}

}  // namespace reference
