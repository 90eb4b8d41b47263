#!/usr/bin/env python3
# Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
"""make_reference_constants.py > tests/reference/constants.hpp, and then clang-format.

Constants and function values to 128 bits and more, in decimal arithmetic of 140 digits.
"""
from decimal import Decimal, getcontext, ROUND_HALF_EVEN

getcontext().prec = 140
ONE = Decimal(1)


def arctan_inverse(n):
    total, term, k = Decimal(0), ONE / n, 0
    while abs(term) > Decimal(10) ** -139:
        total += term / (2 * k + 1) * (-1) ** k
        term /= n * n
        k += 1
    return total


PI = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
LADDERS = [(10000.0, 128), (500000.0, 128), (1000000.0, 64), (150000.0, 64), (100.0, 20), (10000.0, 2)]
EXP = [0.0, 1e-300, 1e-10, -1e-10, 0.5, -0.5, 1.0, -1.0, 0.1, 3.75, -9.210340371976184, 13.122363377404328, 100.25,
       -250.125, 650.0, -650.0]
LOG = [1.0000000000000002, 0.9999999999999999, 1.5, 2.0, 3.0, 10.0, 0.1, 100.0, 10000.0, 500000.0, 1e-30, 1e30, 1e290,
       1e-290, 128.0, 10.75]


def mantissa(value):
    """value = m * 2^e with 2^127 <= m < 2^128, m rounded."""
    negative, value, e = value < 0, abs(value), 0
    if value == 0:
        return 0, 0, 0, negative
    two = Decimal(2)
    e = int((value.ln() / two.ln()).to_integral_value(rounding="ROUND_FLOOR")) - 127
    m = int((value / two ** e).to_integral_value(rounding=ROUND_HALF_EVEN))
    while m >= 1 << 128:
        e += 1
        m = int((value / two ** e).to_integral_value(rounding=ROUND_HALF_EVEN))
    while m < 1 << 127:
        e -= 1
        m = int((value / two ** e).to_integral_value(rounding=ROUND_HALF_EVEN))
    return m >> 64, m & ((1 << 64) - 1), e, negative


def row(x, value):
    high, low, e, negative = mantissa(value)
    return f"    {{{x!r}, {str(negative).lower()}, 0x{high:016x}u, 0x{low:016x}u, {e}}},"


def main():
    print("""// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// Written by tests/scripts/make_reference_constants.py in decimal arithmetic of 140 digits.

#include <cstdint>

namespace reference {
""")
    inverse = int((ONE / (2 * PI) * Decimal(2) ** 320).to_integral_value(rounding=ROUND_HALF_EVEN))
    words = [inverse >> (64 * i) & ((1 << 64) - 1) for i in range(5)]
    print("/// round(2^320 / (2 pi)), the most significant word first.")
    print("inline constexpr std::uint64_t inverse_two_pi[5] = {" + ", ".join(f"0x{w:016x}u" for w in reversed(words)) + "};\n")
    print("""/// f(x) = (negative ? -1 : 1) * (high * 2^64 + low) * 2^exponent, 128 bits, rounded.
struct wide_value {
  double x;
  bool negative;
  std::uint64_t high;
  std::uint64_t low;
  int exponent;
};
""")
    print("inline constexpr wide_value exponentials[] = {")
    print("\n".join(row(x, Decimal(x).exp()) for x in EXP))
    print("};\n")
    print("inline constexpr wide_value logarithms[] = {")
    print("\n".join(row(x, Decimal(x).ln()) for x in LOG))
    print("};\n")
    for name, value in (("ln2", Decimal(2).ln()), ("two_pi", 2 * PI), ("inverse_two_pi_value", ONE / (2 * PI))):
        print(f"inline constexpr wide_value {name} = {row(0.0, value).strip().rstrip(',')};")
    print()
    print("/// base^(-2i / dim) for i = 0 .. dim / 2 - 1.")
    print("struct ladder_values {\n  double base;\n  int dim;\n  const wide_value* values;\n};")
    names = []
    for base, dim in LADDERS:
        name = f"ladder_{int(base)}_{dim}"
        names.append((base, dim, name))
        print(f"inline constexpr wide_value {name}[] = {{")
        log_base = Decimal(base).ln()
        print("\n".join(row(float(i), (-log_base * (2 * i) / dim).exp()) for i in range(dim // 2)))
        print("};")
    print("inline constexpr ladder_values ladders[] = {")
    print("\n".join(f"    {{{base!r}, {dim}, {name}}}," for base, dim, name in names))
    print("};\n\n}  // namespace reference")


main()
