// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
#pragma once
/// @file
/// One vocabulary for a SIMD batch and for a plain or autodiff scalar, so that a hook is written once. The scalar form
/// is here; `simd/batch.hpp` adds the form for batches. Hooks name their intermediates as B, never `auto`: expression
/// templates of autodiff scalars would dangle.

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace posenc {

template <class B>
struct lanes {
  using scalar = B;
  using mask = bool;
  static constexpr int size = 1;

  template <class S>
  static B load(const S* p) {
    return B(*p);
  }
  static void store(B* p, const B& x) { *p = x; }
  /// table[x] on each lane, where x is an integer from 0 to 2^24.
  template <class S>
  static B gather(const S* table, const B& x) {
    return B(table[static_cast<std::int64_t>(x)]);
  }
  template <class S>
  static B broadcast(const S& x) {
    return B(x);
  }
  /// 0, 1, 2, ... over the lanes.
  static B iota() { return B(0); }
  static B select(bool m, const B& yes, const B& no) { return m ? yes : no; }
  static bool greater(const B& a, const B& b) { return a > b; }
  /// Whether the mask holds in some lane.
  static bool any(bool m) { return m; }
  /// A lane mask from one truth value per lane.
  static bool mask_from(const bool* truth) { return *truth; }

  static B abs(const B& x) {
    using std::abs;
    return abs(x);
  }
  static B tanh(const B& x) {
    using std::tanh;
    return tanh(x);
  }
  static B exp(const B& x) {
    using std::exp;
    return exp(x);
  }
  static B sqrt(const B& x) {
    using std::sqrt;
    return sqrt(x);
  }
};

}  // namespace posenc
