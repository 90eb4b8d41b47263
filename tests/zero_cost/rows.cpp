// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// Three functions that must be the same machine code: instructions.py compares them.
#include <posenc/attention/compose.hpp>
#include <posenc/attention/masks.hpp>
#include <posenc/attention/modifiers.hpp>
#include <posenc/attention/score_pass.hpp>

#include <cstdint>
#include <limits>

namespace {

using arch = posenc::simd::default_arch;
using batch = posenc::simd::batch<float, arch>;

template <class Policy>
POSENC_ALWAYS_INLINE float first_pass(const Policy& policy, float* scores, std::int64_t n, std::int64_t first_key,
                                      const posenc::row& r) {
  const auto op = posenc::detail::make_logit_op<batch>(policy.parts, r, posenc::contiguous_keys{r.query_position});
  return posenc::detail::transform_scores<arch>(scores, n, first_key, op, posenc::detail::no_lane_mask{});
}

}  // namespace

/// The maximum of a row written without any policy: whole batches, then the lanes that are left.
extern "C" float plain_row(float* scores, std::int64_t n, std::int64_t, const posenc::row&) {
  using lanes = posenc::lanes<batch>;
  const batch lowest(-std::numeric_limits<float>::infinity());
  batch highest = lowest;
  posenc::detail::for_scores<arch, float>(
      n, posenc::detail::no_room{}, [&](std::int64_t j, auto at, auto count) POSENC_LAMBDA_INLINE {
        batch x = at.load(scores + j);
        if constexpr (!at.count_is_static)
          x = lanes::select(lanes::greater(batch(static_cast<float>(count)), lanes::iota()), x, lowest);
        at.store(scores + j, x);
        highest = xsimd::max(highest, x);
      });
  return posenc::simd::greatest(highest);
}

extern "C" float empty_policy_row(float* scores, std::int64_t n, std::int64_t first_key, const posenc::row& r) {
  return first_pass(posenc::compose(), scores, n, first_key, r);
}

/// Masks and query scales act before the pass: none of their code may be in it.
extern "C" float masked_policy_row(float* scores, std::int64_t n, std::int64_t first_key, const posenc::row& r) {
  return first_pass(posenc::compose(posenc::causal{}, posenc::query_temperature{}), scores, n, first_key, r);
}

/// A softcap is code: it shows that the comparison can fail.
extern "C" float capped_policy_row(float* scores, std::int64_t n, std::int64_t first_key, const posenc::row& r) {
  return first_pass(posenc::compose(posenc::softcap(30)), scores, n, first_key, r);
}
