// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Storage types and compute types. What lies in memory may be narrow (half, bfloat16); arithmetic happens in
/// `compute_t<T>`; a result is rounded once, when it is stored. A 16-bit type of your own takes part by specialising
/// `storage_traits` with its format:
///   template <> struct posenc::storage_traits<my_half> { static constexpr auto kind = posenc::format::binary16; };

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>

namespace posenc {

/// How the bits of a storage type are read. `native`: the type computes by itself (float, double, autodiff scalars).
enum class format { native, binary16, bfloat16 };

template <class T>
struct storage_traits {
  static constexpr format kind = format::native;
};

template <class T>
inline constexpr format format_of = storage_traits<std::remove_cv_t<T>>::kind;

/// float for 16-bit storage, else the type itself.
template <class T>
using compute_t = std::conditional_t<format_of<T> == format::native, std::remove_cv_t<T>, float>;

/// The types that SIMD kernels compute in.
template <class T>
concept simd_scalar = std::same_as < std::remove_cv_t<T>,
float > || std::same_as<std::remove_cv_t<T>, double>;

/// The types that SIMD kernels load and store: float, double and 16-bit storage.
template <class T>
concept simd_storage = simd_scalar<T> ||(format_of<T> != format::native && sizeof(T) == 2);

namespace detail {

/// binary32 from the bits of a binary16, exact.
constexpr float float_from_binary16(std::uint16_t bits) noexcept {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

/// The bits of the nearest binary16, ties to even; NaN stays NaN.
constexpr std::uint16_t binary16_from_float(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and more: infinity
  if (magnitude < 0x38800000u) {                                                    // below 2^-14: subnormal
    // Adding 0.5 moves the rounding position of binary32 to 2^-24, the step of subnormal binary16.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u;
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

constexpr float float_from_bfloat16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

/// The bits of the nearest bfloat16, ties to even; NaN stays NaN.
constexpr std::uint16_t bfloat16_from_float(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// float(value) with the last bit set when the conversion was inexact: a later rounding to 16 bits is then the one
/// rounding of `value` itself. Wide is double or long double.
template <class Wide>
float round_to_odd(Wide value) noexcept {
  const float nearest = static_cast<float>(value);
  if (static_cast<Wide>(nearest) == value || !std::isfinite(nearest)) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  const Wide magnitude = value < 0 ? -value : value;
  const bool away = static_cast<Wide>(nearest < 0 ? -nearest : nearest) > magnitude;
  if (away) --bits;  // towards zero first
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace detail

/// The value of a stored element in its compute type, exact.
template <class T>
constexpr compute_t<T> widen(const T& stored) noexcept {
  if constexpr (format_of<T> == format::binary16) {
    return detail::float_from_binary16(std::bit_cast<std::uint16_t>(stored));
  } else if constexpr (format_of<T> == format::bfloat16) {
    return detail::float_from_bfloat16(std::bit_cast<std::uint16_t>(stored));
  } else {
    return stored;
  }
}

/// The nearest value of storage type T, ties to even: one rounding, also from double to 16 bits.
template <class T, class Value>
constexpr T narrow(const Value& value) noexcept {
  if constexpr (format_of<T> == format::native) {
    return static_cast<T>(value);
  } else {
    float wide;
    if constexpr (std::same_as<Value, double> || std::same_as<Value, long double>) {
      wide = detail::round_to_odd(value);
    } else {
      wide = static_cast<float>(value);
    }
    if constexpr (format_of<T> == format::binary16) {
      return std::bit_cast<T>(detail::binary16_from_float(wide));
    } else {
      return std::bit_cast<T>(detail::bfloat16_from_float(wide));
    }
  }
}

}  // namespace posenc
