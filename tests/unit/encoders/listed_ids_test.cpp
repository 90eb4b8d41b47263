// Copyright (c) the posenc authors. SPDX-License-Identifier: MIT
// A bias is the same whether keys are contiguous, listed, or listed with offsets.
#include <posenc/encoders/alibi.hpp>
#include <posenc/encoders/alibi_asymmetric.hpp>
#include <posenc/encoders/kerple.hpp>
#include <posenc/encoders/relative_bucket.hpp>
#include <posenc/simd/batch.hpp>

#include "support/catch.hpp"
#include "support/inputs.hpp"
#include "support/tolerance.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

constexpr std::int64_t keys = 320;
constexpr std::int64_t heads = 2;
constexpr std::int64_t first = 1000000000;  // no float tells it from its neighbours

template <class B, class Part, class Keys>
std::vector<float> logits(const Part& part, const posenc::row& r, const Keys& at) {
  using L = posenc::lanes<B>;
  std::vector<float> out(keys + posenc::lane_slack);
  const auto op = part.template row<B>(r, at);
  for (std::int64_t k = 0; k < keys; k += L::size) {
    typename L::scalar lane[L::size];
    L::store(lane, op(L::broadcast(0.25f), k));
    for (std::int64_t i = 0; i < L::size; ++i) out[static_cast<std::size_t>(k + i)] = static_cast<float>(lane[i]);
  }
  out.resize(keys);
  return out;
}

template <class B, class Part>
void check(const Part& part) {
  std::vector<std::int64_t> ids(keys + posenc::lane_slack);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = first + static_cast<std::int64_t>(i);
  std::vector<float> offsets(ids.size());
  const posenc::listed_keys plain{ids.data()};
  const posenc::listed_keys with_offsets =
      posenc::offsets_to_base(ids.data(), static_cast<std::int64_t>(ids.size()), offsets.data());
  REQUIRE(with_offsets.offsets != nullptr);
  for (const std::int64_t query : {first, first + 150, first + keys - 1}) {
    const posenc::row r{.head = 1, .query_position = query};
    const std::vector<float> right = logits<B>(part, r, posenc::contiguous_keys{first});
    const std::vector<float> from_ids = logits<B>(part, r, plain);
    const std::vector<float> from_offsets = logits<B>(part, r, with_offsets);
    if (query != first) REQUIRE(right[0] != right[keys - 1]);  // KERPLE is 0 for keys to come
    REQUIRE(posenc_test::same_bits(from_ids.data(), right.data(), right.size()));
    REQUIRE(posenc_test::same_bits(from_offsets.data(), right.data(), right.size()));
  }
}

template <class Part>
void check_lanes(const Part& part) {
  check<posenc::simd::batch<float>>(part);
  check<posenc::simd::batch<double>>(part);
  check<float>(part);
}

}  // namespace

TEST_CASE("ALiBi on listed ids is ALiBi on contiguous keys, bit for bit") {
  check_lanes(posenc::alibi<float>(heads));
  check_lanes(posenc::alibi_two_sided<float>({0.5f, 0.25f}, {0.125f, 0.75f}));
}

TEST_CASE("buckets on listed ids are those on contiguous keys, bit for bit") {
  const std::vector<float> table = posenc_test::random_values<float>(32 * heads, 4);
  check_lanes(posenc::relative_bucket<float>(posenc::relative_bucket_options{.heads = heads}, table));
}

TEST_CASE("the line of a distance bias on listed ids is that on contiguous keys, bit for bit") {
  const posenc::kerple<float> bias({.scale = {1.5f, 0.5f}, .shape = {0.25f, 1.0f}});
  // Many queries of one batch row make a line worth its while.
  const posenc::call c{.batch = 1,
                       .heads = heads,
                       .kv_heads = heads,
                       .queries = keys,
                       .keys = keys,
                       .query_positions = posenc::positions::from(first),
                       .key_positions = posenc::positions::from(first)};
  std::vector<std::byte> memory(bias.workspace_bytes(c));
  REQUIRE(!memory.empty());
  const auto bound = bias.bind(memory.data(), c);
  check<posenc::simd::batch<float>>(bound);
  check<posenc::simd::batch<double>>(bound);
}
